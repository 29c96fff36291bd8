"""Ends a connection so that the peer hears it: last words before an orderly close, or a reset after what was sent."""

import fcntl
import socket
import struct
import sys
from collections.abc import Callable
from typing import Final

from policy.limits import LINGER_BYTES, LINGER_S, RESET_POLL_S
from proxy.loop import IN, OUT, Loop

_SIOCOUTQ: Final = 0x5411
"""Bytes in the send queue that the peer has not acknowledged (tcp(7))."""
_SIOCOUTQNSD: Final = 0x894B
"""Bytes in the send queue that were never sent (linux/sockios.h)."""


def reset(sock: socket.socket) -> None:
    """Close with RST, dropping what was not sent, so that an end half way is not taken for a whole one."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass  # already reset by the peer; close is all that is left
    sock.close()


def unsent_bytes(sock: socket.socket) -> int:
    """How many bytes the kernel still holds that never left; 0 for a socket that is dead or not TCP."""
    return _queued(sock, _SIOCOUTQNSD)


def _queued(sock: socket.socket, what: int) -> int:
    try:
        return int.from_bytes(fcntl.ioctl(sock, what, bytes(4)), sys.byteorder)
    except OSError:
        return 0


class Linger:
    """Sends the last words, ends our side, then drops what still comes until the peer closes (RFC 9112 §9.6).

    Closing at once would reset the connection when the peer had sent anything more, and the reset would eat
    the words. It ends LINGER_S after the peer has everything, or stopped taking it, and after LINGER_BYTES
    dropped. The socket must not be watched; `done` is called once.
    """

    __slots__ = ("_done", "_dropped_bytes", "_left_bytes", "_loop", "_socket", "_timer", "_words")

    def __init__(self, loop: Loop, sock: socket.socket, words: bytes, done: Callable[[], None]) -> None:
        self._loop = loop
        self._socket = sock
        self._words = words
        self._done: Callable[[], None] | None = done
        self._dropped_bytes = 0
        self._left_bytes = sys.maxsize
        self._timer = loop.call_after(LINGER_S, self._look)
        loop.watch(sock.fileno(), OUT if words else IN, self._ready)
        self._say()

    def cut(self) -> None:
        """Reset now. Harmless to repeat."""
        self._end(reset)

    def fail(self, _error: Exception) -> None:
        """A callback raised (see `proxy.loop.Fails`)."""
        self.cut()

    def _look(self) -> None:
        """Wait on while a slow peer still takes what it was sent; the words may stand behind megabytes."""
        left_bytes = len(self._words) + _queued(self._socket, _SIOCOUTQ)
        if left_bytes == 0:
            self._end(socket.socket.close)
        elif left_bytes < self._left_bytes:
            self._left_bytes = left_bytes
            self._timer = self._loop.call_after(LINGER_S, self._look)
        else:
            self.cut()

    def _say(self) -> None:
        try:
            if self._words:
                self._words = self._words[self._socket.send(self._words) :]
            if not self._words:
                self._socket.shutdown(socket.SHUT_WR)
                self._loop.modify(self._socket.fileno(), IN)
        except BlockingIOError:
            pass
        except OSError:
            self._end(socket.socket.close)

    def _ready(self, _mask: int) -> None:
        if self._words:
            self._say()
            return
        try:
            dropped = len(self._socket.recv(65_536))
        except BlockingIOError:
            return
        except OSError:
            dropped = 0
        self._dropped_bytes += dropped
        if dropped == 0:
            self._end(socket.socket.close)
        elif self._dropped_bytes > LINGER_BYTES:
            self.cut()

    def _end(self, close: Callable[[socket.socket], None]) -> None:
        done, self._done = self._done, None
        if done is not None:
            self._timer.cancel()
            self._loop.forget(self._socket.fileno())
            close(self._socket)
            self._loop.guard(done)


class Reset:
    """Resets a connection once all that was written to it has left, or after LINGER_S. `done` is called once."""

    __slots__ = ("_done", "_loop", "_socket", "_timer", "_until_s")

    def __init__(self, loop: Loop, sock: socket.socket, done: Callable[[], None]) -> None:
        self._loop = loop
        self._socket = sock
        self._done: Callable[[], None] | None = done
        self._until_s = loop.now_s + LINGER_S
        self._timer = loop.call_after(RESET_POLL_S, self._poll)
        if not unsent_bytes(sock):
            self.cut()

    def cut(self) -> None:
        """Reset now. Harmless to repeat."""
        done, self._done = self._done, None
        if done is not None:
            self._timer.cancel()
            reset(self._socket)
            self._loop.guard(done)

    def fail(self, _error: Exception) -> None:
        """A callback raised (see `proxy.loop.Fails`)."""
        self.cut()

    def _poll(self) -> None:
        if unsent_bytes(self._socket) and self._loop.now_s < self._until_s:
            self._timer = self._loop.call_after(RESET_POLL_S, self._poll)
        else:
            self.cut()
