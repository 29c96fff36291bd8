"""Forwards plain HTTP/1.1: each request of a connection is judged, and bytes stream with back-pressure.

Long because the request's way, the response's way and every end decide over the same two sockets what comes next;
what needs no socket is in `proxy.exchange`, what needs one only in `proxy.leg` and `proxy.upstream`.
"""

import socket
from collections.abc import Callable

from policy.destination import Destination
from policy.errors import BadClient
from policy.limits import COPY_BYTES, HTTP_KEPT_S, HTTP_TURN_COUNT
from policy.verdict import CODES, Codes, Reason, Verdict
from proxy.asked import Asked
from proxy.exchange import Exchange
from proxy.gate import Gate, Opened
from proxy.http_head import HttpReader
from proxy.leg import WRITABLE, Leg
from proxy.linger import Linger, Reset, reset
from proxy.loop import Loop
from proxy.refusal import (
    REQUEST_SLOW,
    UPSTREAM_CLOSED,
    UPSTREAM_SILENT,
    UPSTREAM_UNREADABLE,
    Unspeakable,
    render,
)
from proxy.session import Session
from proxy.upstream import Upstream


class Forward:
    """One client connection that speaks HTTP/1.1, until it ends; owns both sockets.

    `buffer` is scratch space shared by all connections of a loop. With `within`, the client came through a
    tunnel (of `entry`) to that opened upstream, and may name nothing else. `done` is called exactly once.
    """

    def __init__(
        self,
        loop: Loop,
        gate: Gate,
        session: Session,
        client: socket.socket,
        *,
        buffer: memoryview,
        done: Callable[[], None],
        entry: str = "http",
        within: Opened | None = None,
    ) -> None:
        self._loop = loop
        self._gate = gate
        self._session = session
        self._entry = entry
        self._buffer = buffer
        self._done: Callable[[], None] | None = done
        self._farewell: Linger | Reset | None = None
        self._client = Leg(loop, client, self._client_ready)
        self._within: Destination | None = None
        self._upstream: Upstream | None = None
        if within is not None:
            self._within = within.destination
            self._take_upstream(within)
        self._cancel: Callable[[], None] | None = None
        self._is_asking_gate = False
        self._held = b""
        """What the client sent and nobody has taken yet: at most COPY_BYTES and one read more."""
        self._reader = HttpReader(self._within)
        self._exchange: Exchange | None = None
        self._first = b""
        """What a reused upstream was sent when the exchange began; empty once there was more."""
        self._last_s = loop.now_s
        self._head_since_s: float | None = None
        limits = session.policy.limits
        self._timer = loop.call_at(loop.now_s + min(limits.greeting_s, limits.idle_s), self._tick)
        session.keep(self)

    def start(self, first: bytes | Asked) -> None:
        """Begin with a request that was read already, or with the first bytes of one."""
        if isinstance(first, Asked):
            self._held = first.rest
            self._begin(first)
        else:
            self._held = first
        self._advance()

    def cut(self, closed_by: str) -> None:
        """End it now with a reset both ways. Harmless to repeat."""
        if self._done is not None:
            self._drop_upstream(closed_by, resets=True)
            reset(self._client.release())
            self._leave()()
        elif self._farewell is not None:
            self._farewell.cut()

    def fail(self, _error: Exception) -> None:
        """End what raised (see `proxy.loop.Fails`)."""
        self.cut(Reason.INTERNAL_ERROR.value)

    def rejudge(self) -> None:
        """End what would not be let through now; a kept upstream is opened anew for the next request."""
        exchange, upstream = self._exchange, self._upstream
        if exchange is None:
            self._drop_upstream(Reason.POLICY_CHANGED.value)
        elif upstream is not None and not upstream.would_pass(exchange.head.method, exchange.asked.path):
            revoked = self._session.revoked
            self.cut((Reason.SESSION_REVOKED if revoked else Reason.POLICY_CHANGED).value)

    # --- what the loop reports

    def _client_ready(self, mask: int) -> None:
        client = self._client
        self._last_s = self._loop.now_s
        if client.pending and mask & WRITABLE:
            client.flush()
        if client.can_read(mask) and len(self._held) < COPY_BYTES:
            self._held += client.read(self._buffer)
        if client.reset:
            self._abandon()
        else:
            self._advance()

    def _upstream_ready(self, mask: int) -> None:
        upstream = self._upstream
        assert upstream is not None
        self._last_s = self._loop.now_s
        if upstream.pending and mask & WRITABLE:
            upstream.flush()
        if upstream.can_read(mask) and not self._client.pending:
            data = upstream.read(self._buffer)
            if data:
                self._respond(data)
            elif upstream.ended:
                self._upstream_ended(upstream)
        self._advance()

    def _tick(self) -> None:
        """Look whether a deadline has come: it moves with every byte, the timer does not."""
        limits, exchange, now_s = self._session.policy.limits, self._exchange, self._loop.now_s
        if exchange is not None:
            due_s = self._last_s + (limits.drain_s if self._client.ended else limits.idle_s)
        elif self._head_since_s is not None:
            due_s = self._head_since_s + limits.greeting_s
        else:
            due_s = self._last_s + min(HTTP_KEPT_S, limits.idle_s)
        if self._cancel is not None:  # the gate has deadlines of its own
            due_s = max(due_s, now_s + limits.connect_s)
        if now_s < due_s:
            self._timer = self._loop.call_at(due_s, self._tick)
        elif exchange is None and self._head_since_s is None:
            self._close()
        elif exchange is None:
            self._refuse_bad(_slow(f"No whole request head came within {limits.greeting_s:g} s."))
        elif exchange.response is not None:
            self.cut("idle")
        elif exchange.has_request:
            waited_s = limits.drain_s if self._client.ended else limits.idle_s
            self._fail_upstream(UPSTREAM_SILENT, f"The upstream sent no response within {waited_s:g} s.")
            if self._done is not None:  # the client may ask again, has asked already, or has left
                self._last_s = now_s
                self._tick()
                self._advance()
        else:
            self._refuse_bad(_slow(f"Nothing more of the request's body came within {limits.idle_s:g} s."))

    # --- the one place that decides what happens next

    def _advance(self) -> None:
        """Go on as far as the bytes at hand allow, then watch for what is wanted."""
        heads_count = 0
        while self._done is not None and not self._is_asking_gate:
            exchange = self._exchange
            if exchange is None:
                if heads_count == HTTP_TURN_COUNT:
                    self._loop.call_after(0.0, self._advance)  # others are waiting
                    break
                if self._client.pending or not self._read_head():
                    break
                heads_count += 1
            elif exchange.is_over:
                self._finish(exchange)
            elif not self._pump(exchange):
                break
        if self._done is None or self._is_asking_gate:
            return
        self._client.watch(reads=len(self._held) < COPY_BYTES)
        if self._upstream is not None:
            self._upstream.watch(reads=not self._client.pending)

    def _read_head(self) -> bool:
        """Read the next head out of the bytes held; False when there is none yet, or never will be."""
        held, self._held = self._held, b""
        if held:
            try:
                asked = self._reader.feed(held).asked
                if asked is not None and asked.entry != "http":
                    raise BadClient(Reason.REQUEST_INVALID, "CONNECT must be the first request of its connection")
            except BadClient as bad:
                self._refuse_bad(bad)
                return False
            if asked is not None:
                self._held = asked.rest
                self._begin(asked)
                return True
            if self._head_since_s is None and not self._reader.is_empty:
                self._head_since_s = self._loop.now_s
                self._timer.cancel()
                self._tick()
        if self._client.ended or self._client.broken:
            if self._reader.is_empty:
                self._close()
            else:
                self._refuse_bad(BadClient(Reason.REQUEST_INVALID, "the connection ended inside a request head"))
        return False

    def _begin(self, asked: Asked) -> None:
        """Judge one request: on the upstream at hand when it leads there, else through the gate."""
        assert asked.head is not None
        self._head_since_s = None
        self._exchange = exchange = Exchange(asked, asked.head)
        upstream = self._upstream
        if upstream is None or not upstream.leads_to(asked.destination):
            self._drop_upstream("proxy")
            self._open(exchange)
            return
        verdict, record_id = self._gate.judge(
            self._session, asked.destination, self._entry, method=asked.head.method, path=asked.path
        )
        if verdict.allowed:
            self._send_head(exchange, upstream, is_reused=True)
        else:
            self._refuse(exchange, verdict, record_id)

    def _open(self, exchange: Exchange) -> None:
        asked, method = exchange.asked, exchange.head.method
        self._is_asking_gate = True
        cancel = self._gate.open(self._session, asked.destination, self._entry, self._gate_done, method=method, path=asked.path)
        if self._is_asking_gate:
            self._is_asking_gate = False
            self._cancel = cancel

    def _gate_done(self, opened: Opened) -> None:
        """Take what the gate opened, possibly before `open` returned."""
        was_asking, self._is_asking_gate = self._is_asking_gate, False
        self._cancel = None
        exchange = self._exchange
        assert exchange is not None
        self._last_s = self._loop.now_s
        if opened.upstream is None:
            self._refuse(exchange, opened.verdict, opened.record_id)
        else:
            self._send_head(exchange, self._take_upstream(opened), is_reused=False)
        if not was_asking:
            self._advance()

    def _take_upstream(self, opened: Opened) -> Upstream:
        self._upstream = upstream = Upstream(self._loop, self._gate, self._session, opened, self._upstream_ready)
        return upstream

    # --- the request's way

    def _send_head(self, exchange: Exchange, upstream: Upstream, *, is_reused: bool) -> None:
        """Send the head, and with it what is at hand of the body."""
        first = self._first
        if not first:
            try:
                body, self._held = exchange.send(self._held)
            except BadClient as bad:
                self._refuse_bad(bad)
                return
            first = exchange.begin() + body
        self._first = first if is_reused else b""
        upstream.send(first)
        if upstream.broken:
            self._retry_or_fail(exchange, nothing_sent=True)

    def _pump(self, exchange: Exchange) -> bool:
        """Send on what the client sent, unless the upstream has some to take; True when that ended it."""
        upstream, client = self._upstream, self._client
        if upstream is not None and not upstream.pending and self._held and not exchange.has_request:
            try:
                data, self._held = exchange.send(self._held)
            except BadClient as bad:
                self._refuse_bad(bad)
                return True
            self._first = b""
            upstream.send(data)  # a broken upstream may still have an answer: it is read to its end
        if upstream is not None and exchange.is_tunnel:
            self._pass_ends(exchange, upstream)
        elif client.broken or (client.ended and not self._held and not exchange.has_request):
            self._abandon()
        return exchange.is_over or self._done is None

    def _pass_ends(self, exchange: Exchange, upstream: Upstream) -> None:
        """After 101: one side's end of data is the other's, once it has all that came before."""
        client = self._client
        if client.broken or upstream.broken:
            self.cut("client" if client.broken else "upstream")
            return
        if client.ended and not self._held and not upstream.pending and not upstream.is_shut:
            upstream.shut()
        if upstream.ended and not client.pending and not client.is_shut:
            client.shut()
        exchange.is_over = client.is_shut and upstream.is_shut

    # --- the response's way

    def _respond(self, data: bytes) -> None:
        """Take what the upstream sent."""
        exchange = self._exchange
        if exchange is None:
            self._drop_upstream("proxy")  # it speaks when nobody asked
            return
        try:
            self._client.send(exchange.receive(data))
        except BadClient as bad:
            self._fail_upstream(UPSTREAM_UNREADABLE, f"The response cannot be read: {bad.detail}.")

    def _upstream_ended(self, upstream: Upstream) -> None:
        """Take the end of a body, of a kept connection, or of what was hoped for."""
        exchange = self._exchange
        if exchange is None:
            self._drop_upstream("upstream")
        elif exchange.is_tunnel:
            if upstream.reset:
                self.cut("upstream")
        elif exchange.response is None:
            self._retry_or_fail(exchange, nothing_sent=False)
        elif not exchange.end(reset=upstream.reset):
            self._truncate("upstream")

    def _retry_or_fail(self, exchange: Exchange, *, nothing_sent: bool) -> None:
        """Ask again once, where that does no harm: a kept upstream may have been closed just then."""
        self._drop_upstream("upstream")
        if self._first and exchange.is_unanswered and (nothing_sent or exchange.can_repeat):
            self._open(exchange)
        else:
            self._fail_upstream(UPSTREAM_CLOSED, "The upstream closed the connection before it answered.")

    # --- ends

    def _finish(self, exchange: Exchange) -> None:
        """Keep what can be kept of the two connections, and close what cannot."""
        if not (exchange.keeps_upstream and exchange.has_request):
            self._drop_upstream("upstream" if exchange.keeps_client else "proxy")
        if exchange.keeps_client and exchange.has_request:
            self._next()
        else:
            self._close()

    def _next(self) -> None:
        """Forget this exchange; the client may ask again."""
        self._exchange = None
        self._first = b""
        self._reader = HttpReader(self._within)

    def _refuse(self, exchange: Exchange, verdict: Verdict, record_id: str, codes: Codes | None = None) -> None:
        """Answer one request with a refusal; the connection goes on when the body is out of the way."""
        try:
            _, self._held = exchange.send(self._held)
        except BadClient:
            exchange.keeps_client = False
        keep = exchange.keeps_client and exchange.has_request
        words = render(
            "http",
            verdict,
            exchange.asked.destination,
            record_id,
            accepts_json=exchange.head.accepts_json,
            codes=codes,
            keep=keep,
            body=exchange.head.method != "HEAD",
        )
        if keep and words:
            self._client.send(words)
            self._next()
        else:
            self._close(words)

    def _refuse_bad(self, bad: BadClient) -> None:
        """Answer what cannot be read, and close: where the next request would begin is not known."""
        if self._exchange is not None and self._exchange.response is not None:
            self._truncate("client")
            return
        codes = bad.codes if isinstance(bad, Unspeakable) else CODES[bad.reason]
        verdict = Verdict(False, bad.reason, detail=bad.detail)
        record_id = self._gate.refuse(self._session, self._within, self._entry, verdict)
        accepts_json = self._reader.accepts_json
        words = render("http", verdict, self._within, record_id, accepts_json=accepts_json, codes=codes)
        self._drop_upstream("client", resets=True)
        self._close(words)

    def _fail_upstream(self, codes: Codes, detail: str) -> None:
        """Say that the upstream failed after it was reached: 502 or 504, or a cut in mid answer."""
        exchange = self._exchange
        assert exchange is not None
        self._drop_upstream("upstream")
        if exchange.response is not None:
            self._truncate("upstream")
            return
        verdict = Verdict(False, Reason.NOT_HTTP, detail=detail)
        record_id = self._gate.refuse(self._session, exchange.asked.destination, self._entry, verdict)
        self._refuse(exchange, verdict, record_id, codes)

    def _truncate(self, closed_by: str) -> None:
        """Reset the client once it has what there is of an answer, lest it take that for the whole."""
        self._drop_upstream(closed_by)
        if self._done is not None:
            self._farewell = Reset(self._loop, self._client.release(), self._leave())

    def _abandon(self) -> None:
        """End what the client left, or what it ended half way."""
        self._drop_upstream("client", resets=True)
        self._close()

    def _close(self, words: bytes = b"") -> None:
        """Say the last words behind what still waits, and end the client's connection in order."""
        if self._done is not None:
            self._drop_upstream("client")
            self._farewell = Linger(self._loop, self._client.release(), self._client.pending + words, self._leave())

    def _drop_upstream(self, closed_by: str, *, resets: bool = False) -> None:
        """Close the upstream, or stop its opening, and record its end. Harmless to repeat."""
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.close(closed_by, resets=resets)

    def _leave(self) -> Callable[[], None]:
        """Stop everything here; the owner is told by what this returns, once the client's socket is closed."""
        done, self._done = self._done or _nothing, None
        self._timer.cancel()
        self._session.forget(self)
        return done


def _slow(detail: str) -> Unspeakable:
    return Unspeakable(Reason.REQUEST_INVALID, detail, REQUEST_SLOW)


def _nothing() -> None:
    """The owner was told already."""
