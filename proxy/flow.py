"""One client connection from accept to end: greeting, opening, then a tunnel or forwarded requests, or a refusal."""

import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from policy.errors import BadClient
from policy.limits import GREETING_READ_BYTES
from policy.verdict import Reason, Verdict
from proxy.entry import Asked, EntryReader
from proxy.forward import Forward
from proxy.gate import Gate, Opened
from proxy.linger import Linger, reset
from proxy.loop import IN, Loop
from proxy.refusal import ESTABLISHED, render, socks5
from proxy.session import Session
from proxy.tunnel import Ended, Tunnel


@dataclass(frozen=True, slots=True)
class Plane:
    """What all flows of one worker share."""

    loop: Loop
    gate: Gate
    buffer: memoryview
    """Scratch space for copying, COPY_BYTES long."""


class State(Enum):
    """Where a flow stands. Each state has its own deadline: greeting_s, resolve_s and connect_s, idle_s, LINGER_S."""

    GREETING = "the request is being read"
    OPENING = "the gate is judging, resolving or dialling"
    CARRYING = "a tunnel or a forward has both sockets"
    LINGERING = "the refusal is being delivered"
    ENDED = "every descriptor is given back"


class Flow:
    """Owns one accepted, non-blocking client socket. `ended` is called exactly once, with the flow."""

    __slots__ = (
        "_asked", "_cancel", "_client", "_ended", "_forward", "_is_over_limit", "_linger", "_opened", "_opened_s", "_plane",
        "_reader", "_said_bytes", "_session", "_timer", "_tunnel", "state",
    )  # fmt: skip

    def __init__(self, plane: Plane, session: Session, client: socket.socket, ended: Callable[["Flow"], None]) -> None:
        self._plane = plane
        self._session = session
        self._client = client
        self._ended = ended
        self._reader = EntryReader()
        self._said_bytes = 0
        self._asked: Asked | None = None
        self._opened: Opened | None = None
        self._cancel: Callable[[], None] | None = None
        self._opened_s = 0.0
        self._tunnel: Tunnel | None = None
        self._forward: Forward | None = None
        self._linger: Linger | None = None
        self.state = State.GREETING
        plane.loop.watch(client.fileno(), IN, self._greet)
        limits = session.policy.limits
        self._timer = plane.loop.call_at(plane.loop.now_s + limits.greeting_s, self._greet_too_late)
        session.clients_count += 1
        self._is_over_limit = session.clients_count > limits.connections_count

    def cut(self, closed_by: str) -> None:
        """End it now, whatever it does, with a reset both ways. Harmless to repeat."""
        if self._tunnel is not None:
            self._tunnel.cut(closed_by)
        elif self._forward is not None:
            self._forward.cut(closed_by)
        elif self._linger is not None:
            self._linger.cut()
        else:
            self._gone()

    def fail(self, error: Exception) -> None:
        """Refuse as `internal-error`: one of our callbacks raised (see `proxy.loop.Fails`)."""
        if self.state in {State.GREETING, State.OPENING}:
            self.state = State.LINGERING  # should saying it fail as well, the flow is reset and not tried again
            self._plane.loop.guard(self._release)
            detail = f"{type(error).__name__} inside the proxy; its standard error has the trace."
            self._plane.loop.guard(self._refuse, Verdict(False, Reason.INTERNAL_ERROR, detail=detail))
            if self._linger is not None:
                return
        self.cut(Reason.INTERNAL_ERROR.value)

    def rejudge(self) -> None:
        """Cut the tunnel when the session's present policy would not open it."""
        opened = self._opened
        if self._tunnel is None or opened is None:
            return
        verdict = self._plane.gate.still(self._session, opened)
        if verdict.allowed:
            return
        if verdict.reason is not Reason.SESSION_REVOKED:
            detail = f"The policy changed while the tunnel was open; now: {verdict.reason}. {verdict.detail}"
            verdict = replace(verdict, reason=Reason.POLICY_CHANGED, detail=detail)
        self._record(verdict)
        self._tunnel.cut(verdict.reason.value)

    # --- greeting

    def _greet(self, _mask: int) -> None:
        """Read on, until the request is whole."""
        try:
            data = self._client.recv(GREETING_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._gone()
            return
        if not data:
            self._greet_ended("The client closed before its request was whole.")
            return
        self._said_bytes += len(data)
        try:
            step = self._reader.feed(data)
        except BadClient as bad:
            self._refuse_bad(bad)
            return
        if step.send and not self._say(step.send):
            return
        if step.asked is not None:
            self._ask(step.asked)

    def _greet_too_late(self) -> None:
        greeting_s = self._session.policy.limits.greeting_s
        self._greet_ended(f"No whole request came within {greeting_s:g} s.")

    def _greet_ended(self, detail: str) -> None:
        """Refuse half a request; one that never began is no request, and nothing to record."""
        if self._said_bytes:
            self._refuse_bad(BadClient(Reason.REQUEST_INVALID, detail))
        else:
            self._say_last(b"")

    # --- opening

    def _ask(self, asked: Asked) -> None:
        """Go through the gate, or leave plain HTTP to the forward, which does so for each request."""
        self._asked = asked
        self._timer.cancel()
        if self._is_over_limit:
            self._refuse(self._limit_reached())
            return
        if asked.entry == "http":
            self._forward_from(asked, None)
            return
        self.state = State.OPENING
        cancel = self._plane.gate.open(self._session, asked.destination, asked.entry, self._open_done)
        if self.state is State.OPENING:
            self._cancel = cancel
            # Early bytes wait in the kernel; only an end both ways is worth knowing now.
            self._plane.loop.modify(self._client.fileno(), 0, self._left_early)

    def _limit_reached(self) -> Verdict:
        policy = self._session.policy
        detail = f"This session may have {policy.limits.connections_count} connections at a time (connections_count)."
        return Verdict(False, Reason.LIMIT_REACHED, revision=policy.revision, detail=detail)

    def _left_early(self, _mask: int) -> None:
        """The client reset or closed both ways while the gate was at work."""
        self._gone()

    def _open_done(self, opened: Opened) -> None:
        """Promise what is there, and only then; or refuse."""
        self._cancel = None
        if not opened.verdict.allowed or opened.upstream is None:
            self._refuse(opened.verdict, opened.record_id)
            return
        asked = self._asked
        assert asked is not None
        self._opened = opened
        self._opened_s = self._plane.loop.now_s
        self.state = State.CARRYING
        if self._say(socks5(0) if asked.entry == "socks5" else ESTABLISHED):
            self._carry(opened, asked)

    def _carry(self, opened: Opened, asked: Asked) -> None:
        assert opened.upstream is not None
        plane = self._plane
        plane.loop.forget(self._client.fileno())
        self._tunnel = Tunnel(
            plane.loop,
            self._client,
            opened.upstream,
            opened.destination,
            self._session.policy.limits,
            plane.buffer,
            self._tunnel_ended,
            self._end,
        )
        self._session.keep(self)
        self._tunnel.start(asked.rest)

    # --- ends

    def _tunnel_ended(self, ended: Ended) -> None:
        """Record the end, and why when a claim failed; HTTP in the clear goes on request by request."""
        opened, asked = self._opened, self._asked
        assert opened is not None
        assert asked is not None
        self._session.forget(self)
        if ended.closed_by == "http":
            self._tunnel = None
            self._forward_from(ended.rest, opened)
            return
        if ended.refused is not None:
            self._record(replace(opened.verdict, allowed=False, reason=ended.refused.reason, detail=ended.refused.detail))
        self._record_end(ended.closed_by, ended.sent_bytes, ended.received_bytes)

    def _forward_from(self, first: Asked | bytes, within: Opened | None) -> None:
        asked, plane = self._asked, self._plane
        assert asked is not None
        plane.loop.forget(self._client.fileno())
        self.state = State.CARRYING
        self._forward = Forward(
            plane.loop,
            plane.gate,
            self._session,
            self._client,
            buffer=plane.buffer,
            done=self._end,
            entry=asked.entry,
            within=within,
        )
        self._forward.start(first)

    def _refuse_bad(self, bad: BadClient) -> None:
        """Refuse what cannot be read, in the words of the protocol as far as it is known."""
        verdict = Verdict(False, bad.reason, revision=self._session.policy.revision, detail=bad.detail)
        record_id = self._record(verdict)
        self._say_last(self._reader.refused(bad, verdict, record_id))

    def _refuse(self, verdict: Verdict, record_id: str | None = None) -> None:
        """Say a refusal, recorded before it is said."""
        asked = self._asked
        if record_id is None:
            record_id = self._record(verdict)
        if asked is None:
            self._say_last(self._reader.refused(BadClient(verdict.reason, verdict.detail), verdict, record_id))
        else:
            self._say_last(render(asked.entry, verdict, asked.destination, record_id, accepts_json=asked.accepts_json))

    def _record(self, verdict: Verdict) -> str:
        """Record a refusal found here; the record's id."""
        asked = self._asked
        entry = asked.entry if asked else self._reader.entry
        return self._plane.gate.refuse(self._session, asked.destination if asked else None, entry, verdict)

    def _record_end(self, closed_by: str, sent_bytes: int = 0, received_bytes: int = 0) -> None:
        """Record the end of the upstream connection."""
        opened = self._opened
        if opened is not None:
            self._plane.gate.end(
                opened,
                self._session,
                sent_bytes=sent_bytes,
                received_bytes=received_bytes,
                duration_s=self._plane.loop.now_s - self._opened_s,
                closed_by=closed_by,
            )

    def _say(self, words: bytes) -> bool:
        """Say a few bytes of the handshake; False, and the flow is over, when the client does not take them."""
        try:
            if self._client.send(words) == len(words):
                return True
        except OSError:
            pass
        self._gone()
        return False

    def _say_last(self, words: bytes) -> None:
        """Deliver the last words and close; without words, just close."""
        self._timer.cancel()
        self._plane.loop.forget(self._client.fileno())
        self.state = State.LINGERING
        self._linger = Linger(self._plane.loop, self._client, words, self._end)

    def _gone(self) -> None:
        """The client is gone, or is to be: give everything back at once."""
        self._release()
        self._plane.loop.forget(self._client.fileno())
        reset(self._client)
        self._end()

    def _release(self) -> None:
        """Stop the gate, or close what it opened and nobody took."""
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
        if self._opened is not None and self._opened.upstream is not None:
            self._opened.upstream.close()
            self._record_end("client")
            self._opened = None

    def _end(self) -> None:
        """Give back the place in the session. Harmless to repeat."""
        if self.state is not State.ENDED:
            self.state = State.ENDED
            self._timer.cancel()
            self._session.forget(self)
            self._session.clients_count -= 1
            self._tunnel = self._forward = self._linger = None
            self._ended(self)
