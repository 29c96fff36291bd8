"""Forwards plain HTTP/1.1: each request of a connection is judged, framed exactly, and streamed with back-pressure."""

import socket
from collections.abc import Callable
from typing import Final

from policy.answer import Answer
from policy.destination import Destination, read_authority
from policy.errors import BadClient
from policy.judge import admit
from policy.limits import COPY_BYTES, HTTP_KEPT_S
from policy.verdict import CODES, Codes, Reason, Verdict
from proxy import onward
from proxy.asked import Asked
from proxy.body import Body, EndlessBody, body_of
from proxy.gate import Gate, Opened
from proxy.http1 import HeadBuffer, ResponseHead, read_response
from proxy.http_head import HttpReader
from proxy.leg import READABLE, WRITABLE, Leg
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

IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods a proxy may send again on its own (RFC 9110 §9.2.2)."""


class _Exchange:
    """One request and its response on their way."""

    __slots__ = ("answer", "asked", "body", "first", "heads", "is_reused", "is_over", "keeps_client", "keeps_upstream", "response", "sent_more", "websocket")  # fmt: skip

    def __init__(self, asked: Asked) -> None:
        assert asked.head is not None
        self.asked = asked
        self.body: Body = body_of(asked.head)
        self.websocket = onward.wants_websocket(asked.head)
        self.first = b""
        """What was written first: enough to say it again while `sent_more` is False."""
        self.sent_more = False
        self.is_reused = False
        """It went to an upstream that had served another request before."""
        self.heads = HeadBuffer(is_request=False)
        self.response: ResponseHead | None = None
        self.answer: Body | None = None
        self.keeps_client = asked.head.keeps_alive
        self.keeps_upstream = False
        self.is_over = False

    @property
    def is_tunnel(self) -> bool:
        """Both sides switched protocols (101)."""
        return self.response is not None and self.response.status == 101


class Forward:
    """One client connection that speaks HTTP/1.1, until it ends; owns both sockets.

    `buffer` is scratch space shared by all connections of a loop. With `within`, the client came through a tunnel
    (of `entry`) to that opened upstream, and may name nothing else. `done` is called exactly once.
    """

    def __init__(
        self,
        loop: Loop,
        gate: Gate,
        session: Session,
        client: socket.socket,
        buffer: memoryview,
        done: Callable[[], None],
        *,
        entry: str = "http",
        within: Opened | None = None,
    ) -> None:
        self._loop = loop
        self._gate = gate
        self._session = session
        self._entry = entry
        self._buffer = buffer
        self._done: Callable[[], None] | None = done
        self._within = within.destination if within else None
        self._client = Leg(loop, client, self._client_ready)
        self._upstream: Leg | None = None
        self._opened: Opened | None = None
        self._opened_s = loop.now_s
        self._cancel: Callable[[], None] | None = None
        self._is_asking_gate = False
        self._held = b""
        self._reader = HttpReader(self._within)
        self._exchange: _Exchange | None = None
        self._last_s = loop.now_s
        self._head_since_s: float | None = None
        self._timer = loop.call_at(loop.now_s + session.policy.limits.greeting_s, self._tick)
        if within is not None:
            self._take_upstream(within)
        session.keep(self)

    def start(self, first: bytes | Asked) -> None:
        """Begin with a request that was read already, or with the bytes of one."""
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
            self._end()

    def fail(self, _error: Exception) -> None:
        """A callback raised (see `proxy.loop.Fails`)."""
        self.cut(Reason.INTERNAL_ERROR.value)

    def rejudge(self) -> None:
        """End what would not be let through now; a kept upstream is opened anew for the next request."""
        exchange, opened = self._exchange, self._opened
        if exchange is None or opened is None:
            self._drop_upstream(Reason.POLICY_CHANGED.value)
        elif not self._would_pass(exchange.asked, opened):
            revoked = self._session.revoked
            self.cut((Reason.SESSION_REVOKED if revoked else Reason.POLICY_CHANGED).value)

    def _would_pass(self, asked: Asked, opened: Opened) -> bool:
        assert asked.head is not None
        verdict = self._gate.decide(self._session, asked.destination, asked.head.method, asked.path)
        name = asked.destination.name
        if verdict.allowed and name is not None and opened.peer is not None:
            address = read_authority(opened.peer).address
            assert address is not None
            answer = Answer(name, (address,))
            verdict, _ = admit(self._session.policy, asked.destination, answer, self._gate.clock())
        return verdict.allowed

    # --- what the loop reports

    def _client_ready(self, mask: int) -> None:
        client = self._client
        self._last_s = self._loop.now_s
        if client.pending and mask & WRITABLE:
            client.flush()
        if mask & READABLE and not client.ended and len(self._held) < COPY_BYTES:
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
        if mask & READABLE and not upstream.ended and not self._client.pending:
            data = upstream.read(self._buffer)
            if data:
                self._respond(data)
            elif upstream.ended:
                self._upstream_ended(upstream)
        self._advance()

    def _tick(self) -> None:
        """Look whether a deadline has come: it moves with every byte, the timer does not."""
        limits, exchange = self._session.policy.limits, self._exchange
        if exchange is not None:
            due_s = self._last_s + (limits.drain_s if self._client.ended else limits.idle_s)
        elif self._head_since_s is not None:
            due_s = self._head_since_s + limits.greeting_s
        else:
            due_s = self._last_s + min(HTTP_KEPT_S, limits.idle_s)
        if self._loop.now_s < due_s or self._cancel is not None:
            self._timer = self._loop.call_at(max(due_s, self._loop.now_s + 0.1), self._tick)
        elif exchange is None:
            self._head_late(limits.greeting_s)
        elif exchange.response is not None:
            self.cut("idle")
        elif exchange.body.done:
            self._fail_upstream(UPSTREAM_SILENT, f"The upstream sent no response within {limits.idle_s:g} s.")
        else:
            detail = f"The request's body stopped coming for {limits.idle_s:g} s."
            self._refuse_bad(Unspeakable(Reason.REQUEST_INVALID, detail, REQUEST_SLOW))

    def _head_late(self, greeting_s: float) -> None:
        if self._head_since_s is None:
            self._close(b"")
        else:
            detail = f"No whole request head came within {greeting_s:g} s."
            self._refuse_bad(Unspeakable(Reason.REQUEST_INVALID, detail, REQUEST_SLOW))

    # --- the one place that decides what happens next

    def _advance(self) -> None:
        """Go on as far as the bytes at hand allow, then watch for what is wanted."""
        while self._done is not None and not self._is_asking_gate:
            exchange = self._exchange
            if exchange is None:
                if self._client.pending or not self._read_head():
                    break
            elif exchange.is_over:
                self._finish(exchange)
            else:
                self._pump(exchange)
                if not exchange.is_over:
                    break
        if self._done is None or self._is_asking_gate:
            return
        self._client.watch(reads=len(self._held) < COPY_BYTES)
        if self._upstream is not None:
            self._upstream.watch(reads=not self._client.pending)

    def _read_head(self) -> bool:
        """Read the next request's head out of the bytes held; False when there is none yet, or never will be."""
        held, self._held = self._held, b""
        if held:
            try:
                asked = self._reader.feed(held).asked
                if asked is not None and asked.entry != "http":
                    raise BadClient(
                        Reason.REQUEST_INVALID, "CONNECT must be the first request of its connection"
                    )
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
                self._close(b"")
            else:
                self._refuse_bad(
                    BadClient(Reason.REQUEST_INVALID, "the connection ended inside a request head")
                )
        return False

    def _begin(self, asked: Asked) -> None:
        """Judge one request: on the upstream at hand when it leads there, else through the gate."""
        assert asked.head is not None
        self._head_since_s = None
        self._exchange = exchange = _Exchange(asked)
        opened, upstream = self._opened, self._upstream
        if (
            opened is not None
            and upstream is not None
            and self._can_reuse(asked.destination, opened, upstream)
        ):
            exchange.is_reused = upstream.received_bytes > 0
            verdict, record_id = self._gate.judge(
                self._session, asked.destination, self._entry, method=asked.head.method, path=asked.path
            )
            if verdict.allowed:
                self._send_head(exchange, upstream)
            else:
                self._refuse(exchange, verdict, record_id)
            return
        self._drop_upstream("proxy")
        self._open(exchange)

    def _can_reuse(self, destination: Destination, opened: Opened, upstream: Leg) -> bool:
        """The same destination, admitted under the policy of now, and not closed by its owner meanwhile."""
        return (
            opened.destination == destination
            and opened.verdict.revision == self._session.policy.revision
            and upstream.is_quiet()
        )

    def _open(self, exchange: _Exchange) -> None:
        asked = exchange.asked
        assert asked.head is not None
        self._is_asking_gate = True
        cancel = self._gate.open(
            self._session,
            asked.destination,
            self._entry,
            self._gate_done,
            method=asked.head.method,
            path=asked.path,
        )
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
            self._send_head(exchange, self._take_upstream(opened))
        if not was_asking:
            self._advance()

    def _take_upstream(self, opened: Opened) -> Leg:
        assert opened.upstream is not None
        self._opened, self._opened_s = opened, self._loop.now_s
        self._upstream = upstream = Leg(self._loop, opened.upstream, self._upstream_ready)
        return upstream

    # --- the request's way

    def _send_head(self, exchange: _Exchange, upstream: Leg) -> None:
        """Send the head, and with it what is at hand of the body."""
        if not exchange.first:
            exchange.first = onward.request(exchange.asked, websocket=exchange.websocket)
            try:
                exchange.first += self._encode(exchange)
            except BadClient as bad:
                self._refuse_bad(bad)
                return
        upstream.send(exchange.first)
        if upstream.broken:
            self._retry_or_fail(exchange, nothing_sent=True)

    def _encode(self, exchange: _Exchange) -> bytes:
        """Take the body out of the bytes held, in the form in which it goes on."""
        body, held = exchange.body, self._held
        if body.done or not held:
            return b""
        payload = body.feed(held)
        self._held = body.rest
        assert exchange.asked.head is not None
        if not exchange.asked.head.chunked:
            return payload
        return onward.chunk(payload) + (onward.LAST_CHUNK if body.done else b"")

    def _pump(self, exchange: _Exchange) -> None:
        """Send on what the client sent of the body, unless the upstream still has some to take."""
        upstream, client = self._upstream, self._client
        if exchange.is_tunnel and upstream is not None:
            self._carry(exchange, upstream)
            return
        if upstream is not None and not upstream.pending and self._held and not exchange.body.done:
            try:
                data = self._encode(exchange)
            except BadClient as bad:
                self._refuse_bad(bad)
                return
            exchange.sent_more = True
            upstream.send(data)  # a broken upstream may still have an answer: it is read to its end
        if client.broken or (client.ended and not self._held and not exchange.body.done):
            self._abandon()

    def _carry(self, exchange: _Exchange, upstream: Leg) -> None:
        """Copy both ways after 101, and pass each end on."""
        client = self._client
        if not upstream.pending and self._held:
            data, self._held = self._held, b""
            upstream.send(data)
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
        """Take what the upstream sent: heads, then the body."""
        exchange = self._exchange
        if exchange is None or exchange.is_over or self._done is None:
            self._drop_upstream("proxy")  # it speaks when nobody asked
            return
        words = b""
        try:
            while data and exchange.answer is None:
                whole = exchange.heads.feed(data)
                if whole is None:
                    break
                head, data = whole
                words += self._answer_head(exchange, head)
            if exchange.answer is not None and (data or exchange.answer.done):
                words += self._answer_body(exchange, exchange.answer, data)
        except BadClient as bad:
            self._client.send(words)
            self._fail_upstream(UPSTREAM_UNREADABLE, f"The response cannot be read: {bad.detail}")
            return
        self._client.send(words)

    def _answer_head(self, exchange: _Exchange, raw: bytes) -> bytes:
        """Read one response head; what the client gets of it."""
        asked = exchange.asked.head
        assert asked is not None
        head = read_response(raw, asked.method)
        if head.status == 101:
            if not exchange.websocket or b"websocket" not in head.tokens(b"upgrade"):
                raise BadClient(Reason.NOT_HTTP, "it switches to a protocol that was not asked for")
            exchange.response, exchange.body, exchange.answer = head, EndlessBody(), EndlessBody()
            return onward.response(head, minor=1, keep=False, websocket=True)
        if head.status < 200:
            return onward.response(head, minor=1, keep=True) if asked.minor == 1 else b""
        exchange.response = head
        exchange.answer = body_of(head)
        ends = isinstance(exchange.answer, EndlessBody)
        exchange.keeps_upstream = head.minor == 1 and not ends and b"close" not in head.tokens(b"connection")
        # A client that is answered before its body has come may not know whether to send it (RFC 9112 §9.3).
        exchange.keeps_client = exchange.keeps_client and not ends and exchange.body.done
        return onward.response(head, minor=asked.minor, keep=exchange.keeps_client)

    def _answer_body(self, exchange: _Exchange, answer: Body, data: bytes) -> bytes:
        payload = answer.feed(data) if data else b""
        response, asked = exchange.response, exchange.asked.head
        assert response is not None
        assert asked is not None
        if answer.done:
            exchange.is_over = True
            exchange.keeps_upstream = exchange.keeps_upstream and not answer.rest
        if not response.chunked or asked.minor == 0:
            return payload
        return onward.chunk(payload) + (onward.LAST_CHUNK if answer.done else b"")

    def _upstream_ended(self, upstream: Leg) -> None:
        """No more comes from the upstream: the end of a body, of a kept connection, or of what was hoped for."""
        exchange = self._exchange
        if exchange is None:
            self._drop_upstream("upstream")
        elif exchange.is_tunnel:
            if upstream.reset:
                self.cut("upstream")
        elif exchange.response is None:
            self._retry_or_fail(exchange, nothing_sent=False)
        elif isinstance(exchange.answer, EndlessBody) and not upstream.reset:
            exchange.is_over = True
        else:
            self._truncate("upstream")

    def _retry_or_fail(self, exchange: _Exchange, *, nothing_sent: bool) -> None:
        """A kept upstream may have been closed just then: ask again once, where asking twice does no harm."""
        head = exchange.asked.head
        assert head is not None
        harmless = nothing_sent or (head.method in IDEMPOTENT and not head.has_body)
        fresh = len(exchange.heads) == 0 and not exchange.sent_more
        self._drop_upstream("upstream")
        if exchange.is_reused and harmless and fresh:
            exchange.is_reused = False
            self._open(exchange)
        else:
            self._fail_upstream(UPSTREAM_CLOSED, "The upstream closed the connection before it answered.")

    # --- ends

    def _finish(self, exchange: _Exchange) -> None:
        """One exchange is over: keep what can be kept."""
        if not (exchange.keeps_upstream and exchange.body.done):
            self._drop_upstream("upstream" if exchange.keeps_client else "proxy")
        if exchange.keeps_client and exchange.body.done:
            self._exchange = None
            self._reader = HttpReader(self._within)
        else:
            self._close(b"")

    def _refuse(
        self, exchange: _Exchange, verdict: Verdict, record_id: str, codes: Codes | None = None
    ) -> None:
        """Answer one request with a refusal; the connection goes on when the body is out of the way."""
        head = exchange.asked.head
        assert head is not None
        try:
            self._encode(exchange)
        except BadClient:
            pass  # it is refused already, and the connection ends
        keep = exchange.keeps_client and exchange.body.done
        words = render(
            "http", verdict, exchange.asked.destination, record_id,
            accepts_json=head.accepts_json, codes=codes, keep=keep, body=head.method != "HEAD",
        )  # fmt: skip
        if keep and words:
            self._client.send(words)
            self._exchange = None
            self._reader = HttpReader(self._within)
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
        words = render(
            "http", verdict, self._within, record_id, accepts_json=self._reader.accepts_json, codes=codes
        )
        self._drop_upstream("client", resets=True)
        self._close(words)

    def _fail_upstream(self, codes: Codes, detail: str) -> None:
        """The upstream failed after it was reached: 502 or 504, or a cut when the answer had begun."""
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
        """The answer cannot be completed: reset the client once it has what there is, lest it take it for whole."""
        self._drop_upstream(closed_by)
        if self._done is not None:
            Reset(self._loop, self._client.release(), _nothing)
            self._end()

    def _abandon(self) -> None:
        """The client is gone, or ended its request half way."""
        self._drop_upstream("client", resets=True)
        self._close(b"")

    def _close(self, words: bytes) -> None:
        """Say the last words behind what still waits, and end the client's connection in order."""
        if self._done is not None:
            self._drop_upstream("client")
            Linger(self._loop, self._client.release(), self._client.pending + words, _nothing)
            self._end()

    def _drop_upstream(self, closed_by: str, *, resets: bool = False) -> None:
        """Close the upstream, or stop its opening, and record its end. Harmless to repeat."""
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
        upstream, opened = self._upstream, self._opened
        self._upstream = self._opened = None
        if upstream is None or opened is None:
            return
        sock = upstream.release()
        if resets:
            reset(sock)
        else:
            sock.close()
        self._gate.end(
            opened, self._session, self._entry,
            sent_bytes=upstream.sent_bytes, received_bytes=upstream.received_bytes,
            duration_s=self._loop.now_s - self._opened_s, closed_by=closed_by,
        )  # fmt: skip

    def _end(self) -> None:
        done, self._done = self._done, None
        self._timer.cancel()
        self._session.forget(self)
        if done is not None:
            done()


def _nothing() -> None:
    """Nobody waits for a lingering socket; it is bounded by itself."""
