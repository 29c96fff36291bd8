"""One request and its response as bytes on their way: what each side gets, and when it is over."""

from typing import Final

from policy.errors import BadClient
from policy.limits import HTTP_INTERIM_COUNT
from policy.verdict import Reason
from proxy import onward
from proxy.asked import Asked
from proxy.body import Body, EndlessBody, body_of
from proxy.http1 import HeadBuffer, RequestHead, ResponseHead, read_response

IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods a proxy may send again on its own (RFC 9110 §9.2.2)."""


class Exchange:
    """Sans I/O: fed with what each side sent, it says what the other side gets."""

    __slots__ = (
        "_answer",
        "_asks_websocket",
        "_body",
        "_heads",
        "_interim_count",
        "asked",
        "head",
        "is_over",
        "keeps_client",
        "keeps_upstream",
        "response",
    )

    def __init__(self, asked: Asked, head: RequestHead) -> None:
        self.asked = asked
        self.head = head
        self._body: Body = body_of(head)
        self._asks_websocket = onward.wants_websocket(head)
        self._heads = HeadBuffer(is_request=False)
        self._interim_count = 0
        self._answer: Body | None = None
        self.response: ResponseHead | None = None
        """The final response's head; 101 counts as final."""
        self.is_over = False
        """The response is whole, with the body still on its way perhaps."""
        self.keeps_client = head.keeps_alive
        """The client's connection may go on with another request."""
        self.keeps_upstream = False
        """The upstream's connection may."""

    @property
    def has_request(self) -> bool:
        """All of the request has come."""
        return self._body.done

    @property
    def is_tunnel(self) -> bool:
        """Both sides switched protocols (101): bytes go both ways until each side ends."""
        return self.response is not None and self.response.status == 101

    @property
    def is_unanswered(self) -> bool:
        """Not one byte of a response has come."""
        return self.response is None and len(self._heads) == 0

    @property
    def can_repeat(self) -> bool:
        """It does no harm to send it twice, and nothing of it is gone that would be needed."""
        return self.head.method in IDEMPOTENT and not self.head.has_body

    def begin(self) -> bytes:
        """Write the head for the upstream."""
        return onward.request(self.asked, websocket=self._asks_websocket)

    def send(self, held: bytes) -> tuple[bytes, bytes]:
        """Take the body out of what the client sent: what goes on, and what is left. Raises BadClient."""
        body = self._body
        if body.done or not held:
            return b"", held
        payload = body.feed(held)
        if self.head.chunked and not self.is_tunnel:
            payload = onward.chunk(payload) + (onward.LAST_CHUNK if body.done else b"")
        return payload, body.rest

    def receive(self, data: bytes) -> bytes:
        """Take what the upstream sent; what the client gets of it. Raises BadClient."""
        words = b""
        while data and self._answer is None:
            whole = self._heads.feed(data)
            if whole is None:
                return words
            head, data = whole
            words += self._receive_head(read_response(head, self.head.method))
        if self._answer is not None:
            words += self._receive_body(self._answer, data)
        return words

    def end(self, *, reset: bool) -> bool:
        """Take the end of what the upstream sends: whether that completes the response."""
        complete = isinstance(self._answer, EndlessBody) and not reset
        self.is_over = self.is_over or complete
        return complete

    def _receive_head(self, head: ResponseHead) -> bytes:
        minor = self.head.minor
        if head.status == 101:
            if not self._asks_websocket or b"websocket" not in head.tokens(b"upgrade"):
                raise BadClient(Reason.NOT_HTTP, "it switches to a protocol that was not asked for")
            self.response, self._body, self._answer = head, EndlessBody(), EndlessBody()
            self.keeps_client = False
            return onward.response(head, minor=minor, keep=False, websocket=True)
        if head.status < 200:  # RFC 9110 §15.2: several of them, but none to HTTP/1.0
            self._interim_count += 1
            if self._interim_count > HTTP_INTERIM_COUNT:
                raise BadClient(Reason.NOT_HTTP, f"more than {HTTP_INTERIM_COUNT} interim responses")
            return onward.response(head, minor=minor, keep=True) if minor == 1 else b""
        self.response = head
        self._answer = body_of(head)
        ends = isinstance(self._answer, EndlessBody)
        self.keeps_upstream = head.minor == 1 and not ends and b"close" not in head.tokens(b"connection")
        # A client that is answered before its body has come cannot know whether to send it (RFC 9112 §9.3).
        self.keeps_client = self.keeps_client and not ends and self.has_request
        return onward.response(head, minor=minor, keep=self.keeps_client)

    def _receive_body(self, answer: Body, data: bytes) -> bytes:
        payload = answer.feed(data) if data else b""
        if answer.done:
            self.is_over = True
            self.keeps_upstream = self.keeps_upstream and not answer.rest
        if self.response is None or not self.response.chunked or self.head.minor == 0:
            return payload
        return onward.chunk(payload) + (onward.LAST_CHUNK if answer.done else b"")
