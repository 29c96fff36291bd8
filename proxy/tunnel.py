"""Carries bytes both ways, with back-pressure, once the first words of the client are judged."""

import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from policy.destination import Destination
from policy.errors import BadClient
from policy.limits import Limits
from policy.verdict import Reason
from proxy.claim import ALERTS, Claim, Next
from proxy.linger import Linger, Reset, reset
from proxy.loop import ERR, HUP, IN, OUT, Loop, Timer

_READABLE: Final = IN | ERR | HUP
_WRITABLE: Final = OUT | ERR | HUP


@dataclass(frozen=True, slots=True)
class Ended:
    """How a tunnel ended. `sent_bytes` went to the upstream's socket, `received_bytes` to the client's."""

    sent_bytes: int
    received_bytes: int
    closed_by: str
    """client, upstream, idle, drain, http (see `rest`), a reason's value, or what `Tunnel.cut` was told."""
    refused: BadClient | None = None
    """The claim that failed, when that ended it."""
    rest: bytes = b""
    """With `closed_by` http: what the client said, to be read as requests; both sockets are open and unwatched."""


class _Side:
    """One of the two sockets, and what is waiting to be written to it."""

    __slots__ = (
        "broken",
        "delivered_bytes",
        "fd",
        "mask",
        "pending",
        "read_ended",
        "reset",
        "shut",
        "socket",
    )

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.fd = sock.fileno()
        self.mask = 0
        """What the loop watches it for; 0 when it does not."""
        self.pending = b""
        """Read from the other side, not yet taken by this socket; while there is any, the other is not read."""
        self.read_ended = False
        self.shut = False
        """We told it that no more comes."""
        self.broken = False
        """It takes no more bytes; it may still have some to give."""
        self.reset = False
        """Its peer reset the connection."""
        self.delivered_bytes = 0


class Tunnel:
    """Two one-way copies that end by themselves; one stalled direction holds COPY_BYTES at most and stops no other.

    `buffer` is scratch space shared by all tunnels of a loop. Neither socket may be watched when the tunnel
    takes them; it closes both, except when it ends as http. `done` is called exactly once, `start` may call it;
    except after http, `released` is called once too, then or later: when both sockets are closed.
    """

    __slots__ = (
        "_buffer",
        "_claim",
        "_client",
        "_closed_by",
        "_done",
        "_farewell",
        "_held",
        "_hello_due_s",
        "_last_s",
        "_limits",
        "_loop",
        "_released",
        "_timer",
        "_upstream",
    )

    def __init__(
        self,
        loop: Loop,
        client: socket.socket,
        upstream: socket.socket,
        destination: Destination,
        limits: Limits,
        buffer: memoryview,
        done: Callable[[Ended], None],
        released: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._buffer = buffer
        self._done: Callable[[Ended], None] | None = done
        self._released = released
        self._farewell: Linger | Reset | None = None
        self._client = _Side(client)
        self._upstream = _Side(upstream)
        self._claim: Claim | None = Claim(destination)
        self._held = bytearray()
        self._last_s = loop.now_s
        self._hello_due_s = loop.now_s + limits.client_hello_s
        self._closed_by = ""
        self._timer: Timer = loop.call_at(self._due_s(), self._tick)

    def start(self, first: bytes = b"") -> None:
        """Begin to carry; `first` is what the client said behind its request."""
        if first:
            self._take(first)
        self._settle()

    def cut(self, closed_by: str) -> None:
        """End it now with a reset both ways, so that neither end takes it for complete. Harmless to repeat."""
        if self._done is not None:
            self._stop_watching()
            reset(self._client.socket)
            reset(self._upstream.socket)
            self._end(closed_by)
            self._loop.guard(self._released)
        elif self._farewell is not None:
            self._farewell.cut()

    def fail(self, _error: Exception) -> None:
        """A callback raised (see `proxy.loop.Fails`)."""
        self.cut(Reason.INTERNAL_ERROR.value)

    def _client_ready(self, mask: int) -> None:
        self._ready(self._client, self._upstream, mask)

    def _upstream_ready(self, mask: int) -> None:
        self._ready(self._upstream, self._client, mask)

    def _ready(self, side: _Side, other: _Side, mask: int) -> None:
        """One socket can be read, written or has failed."""
        self._last_s = self._loop.now_s
        calm = True
        if side.pending and mask & _WRITABLE:
            pending, side.pending = side.pending, b""
            self._send(side, memoryview(pending))
            calm = False
        if mask & _READABLE and side.mask & IN:
            calm = self._read(side, other) and calm
        if not calm and self._done is not None:
            self._settle()

    def _read(self, side: _Side, other: _Side) -> bool:
        """Read once and pass on; False when anything but plain copying happened."""
        try:
            count = side.socket.recv_into(self._buffer)
        except BlockingIOError:
            return True
        except OSError as error:
            # EPIPE here is a reset after an orderly end of data (tcp_reset() in CLOSE_WAIT): nothing is missing.
            side.reset = side.reset or error.errno != errno.EPIPE
            side.read_ended = side.broken = True
            side.pending = b""
            return False
        if count == 0:
            side.read_ended = True
            return False
        if self._claim is not None and side is self._client:
            self._take(bytes(self._buffer[:count]))
            return False
        self._send(other, self._buffer[:count])
        return not other.pending and not other.broken

    def _take(self, data: bytes) -> None:
        """Hold the client's first bytes until its claim is judged, then send them on as they came."""
        claim = self._claim
        if claim is None:
            self._send(self._upstream, memoryview(data))
            return
        self._held += data
        had_deadline = claim.has_deadline
        try:
            following = claim.feed(data)
        except BadClient as refused:
            self._refuse(refused)
            return
        if following is Next.HTTP:
            self._hand_over()
        elif following is Next.PASS:
            self._pass()
        elif claim.has_deadline and not had_deadline:
            self._hello_due_s = self._loop.now_s + self._limits.client_hello_s
            self._set_timer()

    def _pass(self) -> None:
        """The claim holds, or there will be none."""
        held, self._held, self._claim = self._held, bytearray(), None
        if held:
            self._send(self._upstream, memoryview(bytes(held)))

    def _send(self, side: _Side, data: memoryview) -> None:
        """Write what the socket takes and keep the rest; for a broken side, drop it."""
        if side.broken:
            return
        try:
            sent = side.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            # The kernel tells a reset once; the next recv would look like an orderly end.
            side.broken = True
            side.reset = side.reset or error.errno == errno.ECONNRESET
            return
        side.delivered_bytes += sent
        if sent < len(data):
            side.pending = bytes(data[sent:])

    def _settle(self) -> None:
        """After anything but plain copying: pass ends on, close what is over, watch for what is wanted next."""
        client, upstream = self._client, self._upstream
        if self._done is None:
            return
        if client.read_ended and not client.reset and self._claim is not None:
            try:
                self._claim.end()
            except BadClient as refused:
                self._refuse(refused)
                return
            self._pass()
        for side, other in ((client, upstream), (upstream, client)):
            if side.read_ended and not self._closed_by:
                self._closed_by = "client" if side is client else "upstream"
                self._set_timer()
            if side.read_ended and not other.pending and (side.reset or side.broken):
                self._finish(other, side)
                return
            if side.read_ended and not other.pending and not other.shut:
                other.shut = True
                self._shut(other)
        if client.read_ended and upstream.read_ended and not client.pending and not upstream.pending:
            self._stop_watching()
            client.socket.close()
            upstream.socket.close()
            self._end(self._closed_by)
            self._loop.guard(self._released)
            return
        self._watch(client, upstream)
        self._watch(upstream, client)

    def _shut(self, side: _Side) -> None:
        try:
            side.socket.shutdown(socket.SHUT_WR)
        except OSError:
            side.broken = True

    def _finish(self, side: _Side, gone: _Side) -> None:
        """`gone` gave all it had and takes nothing more: reset `side` when it was reset, else close in order."""
        self._stop_watching()
        gone.socket.close()
        self._end(self._closed_by)
        if gone.reset:
            self._farewell = Reset(self._loop, side.socket, self._released)
        else:
            self._farewell = Linger(self._loop, side.socket, b"", self._released)

    def _refuse(self, refused: BadClient) -> None:
        """Close the upstream unheard; a TLS client learns the cause by an alert."""
        self._stop_watching()
        self._upstream.socket.close()
        self._end(refused.reason.value, refused)
        self._farewell = Linger(self._loop, self._client.socket, ALERTS.get(refused.reason, b""), self._released)

    def _hand_over(self) -> None:
        """It is HTTP in the clear: leave both sockets to the caller, unless the server spoke first."""
        if self._client.delivered_bytes or self._client.pending:
            self._refuse(BadClient(Reason.NOT_HTTP, "The server spoke before the client on port 80; that is not HTTP."))
            return
        self._stop_watching()
        self._end("http", rest=bytes(self._held))

    def _watch(self, side: _Side, other: _Side) -> None:
        """Watch for what is wanted only. A side nothing is wanted of is not watched: its HUP would spin the loop."""
        mask = 0
        if not side.read_ended and not other.pending:
            mask = IN
        if side.pending:
            mask |= OUT
        if mask == side.mask:
            return
        if mask == 0:
            self._loop.forget(side.fd)
        elif side.mask == 0:
            self._loop.watch(side.fd, mask, self._client_ready if side is self._client else self._upstream_ready)
        else:
            self._loop.modify(side.fd, mask)
        side.mask = mask

    def _due_s(self) -> float:
        """When the next deadline is, as things stand: it moves with every byte, the timer does not."""
        draining = self._client.read_ended or self._upstream.read_ended
        due_s = self._last_s + (self._limits.drain_s if draining else self._limits.idle_s)
        if self._claim is not None and self._claim.has_deadline:
            due_s = min(due_s, self._hello_due_s)
        return due_s

    def _set_timer(self) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_at(self._due_s(), self._tick)

    def _tick(self) -> None:
        """A deadline may have come; if not, sleep for what is left."""
        if self._loop.now_s < self._due_s():
            self._set_timer()
        elif self._claim is not None and self._claim.has_deadline and self._loop.now_s >= self._hello_due_s:
            text = f"No whole ClientHello within {self._limits.client_hello_s:g} s."
            self._refuse(BadClient(Reason.NOT_TLS, text))
        else:
            self.cut("drain" if self._client.read_ended or self._upstream.read_ended else "idle")

    def _stop_watching(self) -> None:
        for side in (self._client, self._upstream):
            if side.mask:
                self._loop.forget(side.fd)
                side.mask = 0
        self._timer.cancel()

    def _end(self, closed_by: str, refused: BadClient | None = None, rest: bytes = b"") -> None:
        done, self._done = self._done, None
        if done is not None:
            sent, received = self._upstream.delivered_bytes, self._client.delivered_bytes
            self._loop.guard(done, Ended(sent, received, closed_by, refused, rest))
