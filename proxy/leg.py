"""One socket of a forwarded exchange: writes as soon as it can, and is watched for what is wanted only."""

import errno
import socket
from collections.abc import Callable
from typing import Final

from proxy.loop import ERR, HUP, IN, OUT, Loop

READABLE: Final = IN | ERR | HUP
WRITABLE: Final = OUT | ERR | HUP


class Leg:
    """A connected, non-blocking socket that nobody else watches, and what waits to be written to it."""

    __slots__ = (
        "_loop",
        "_mask",
        "_ready",
        "_sock",
        "broken",
        "ended",
        "is_shut",
        "pending",
        "received_bytes",
        "reset",
        "sent_bytes",
    )

    def __init__(self, loop: Loop, sock: socket.socket, ready: Callable[[int], None]) -> None:
        self._loop = loop
        self._sock = sock
        self._ready = ready
        self._mask = 0
        self.pending = b""
        """Not yet taken by the kernel; while there is any, the other side is not read."""
        self.ended = False
        """No more will come from it."""
        self.broken = False
        """It takes no more."""
        self.reset = False
        """Its peer reset the connection."""
        self.is_shut = False
        """We told it that no more comes."""
        self.sent_bytes = 0
        self.received_bytes = 0

    def can_read(self, mask: int) -> bool:
        """Tell whether `mask` says that reading gives bytes, or the end that was not seen yet."""
        return bool(mask & READABLE) and not self.ended

    def read(self, buffer: memoryview) -> bytes:
        """Read once; empty when nothing came, and then `ended` says whether anything ever will."""
        try:
            count = self._sock.recv_into(buffer)
        except BlockingIOError:
            return b""
        except OSError as error:
            self.ended = self.broken = True
            self.reset = error.errno != errno.EPIPE
            return b""
        self.ended = count == 0
        self.received_bytes += count
        return bytes(buffer[:count])

    def send(self, data: bytes) -> None:
        """Write what the kernel takes, keep the rest for `flush`; to a broken leg, nothing."""
        if self.broken or not data:
            return
        if self.pending:
            self.pending += data
            return
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.broken = True
            self.reset = self.reset or error.errno == errno.ECONNRESET
            return
        self.sent_bytes += sent
        if sent < len(data):
            self.pending = data[sent:]

    def flush(self) -> None:
        """Write what waited."""
        waiting, self.pending = self.pending, b""
        self.send(waiting)

    def shut(self) -> None:
        """Tell the peer that no more comes."""
        self.is_shut = True
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.broken = True

    def watch(self, *, reads: bool) -> None:
        """Be told when it can be read, if `reads`, and when it takes what waits.

        Nothing is watched when neither is wanted: the loop would report a hang-up at every turn.
        """
        mask = (IN if reads and not self.ended else 0) | (OUT if self.pending else 0)
        if mask == self._mask:
            return
        fd = self._sock.fileno()
        if mask == 0:
            self._loop.forget(fd)
        elif self._mask == 0:
            self._loop.watch(fd, mask, self._ready)
        else:
            self._loop.modify(fd, mask)
        self._mask = mask

    def release(self) -> socket.socket:
        """Stop watching; the socket is the caller's."""
        if self._mask:
            self._loop.forget(self._sock.fileno())
            self._mask = 0
        return self._sock
