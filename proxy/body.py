"""Where a message's body ends: by count, by its last chunk, or with the connection (RFC 9112 §6)."""

from typing import Protocol

from proxy.http1 import ChunkedBody, RequestHead, ResponseHead


class Body(Protocol):
    """Takes what comes behind a head, gives back the payload, and knows its own end."""

    @property
    def done(self) -> bool:
        """The last byte has come."""

    @property
    def rest(self) -> bytes:
        """Once done: what came behind it in the last feed."""

    def feed(self, data: bytes) -> bytes:
        """Return the payload in `data`. Raises BadClient."""


class CountedBody:
    """A body of `length` bytes."""

    __slots__ = ("_left_bytes", "done", "rest")

    def __init__(self, length: int) -> None:
        self._left_bytes = length
        self.done = length == 0
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return what of `data` belongs to the body."""
        left = self._left_bytes
        if len(data) < left:
            self._left_bytes = left - len(data)
            return data
        self._left_bytes = 0
        self.done = True
        self.rest = data[left:]
        return data[:left]


class EndlessBody:
    """A body that ends with its connection, and a stream that is no message at all."""

    __slots__ = ()
    done = False
    rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return all of it."""
        return data


def body_of(head: RequestHead | ResponseHead) -> Body:
    """Find how the body behind `head` ends."""
    if head.chunked:
        return ChunkedBody()
    return EndlessBody() if head.length is None else CountedBody(head.length)
