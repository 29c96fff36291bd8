"""One stream passed on as it comes: a bounded piece in hand, nothing read before the last piece is written."""

import fcntl
import os
import struct
import termios
from collections.abc import Callable
from errno import EBADF, ECONNRESET, EPIPE
from typing import Final

from proxy.loop import IN, OUT, Loop

_READ_BYTES: Final = 65_536
_WRITE_BYTES: Final = 4_096
"""PIPE_BUF: a pipe or terminal that polls writable takes this much without waiting (pipe(7)), whosever flags it has."""

_NO_READER: Final = (EPIPE, ECONNRESET, EBADF)
"""Whoever was to read it is gone, or never was: the caller closed the stream."""


def waiting_bytes(pipe: int) -> int:
    """Count the bytes that wait in a pipe (FIONREAD)."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0])


class Relay:
    """Copies from `source` to `target` until either ends, then closes those it owns and calls `done`.

    A descriptor that epoll will not watch (a regular file, /dev/null) is always ready.
    """

    def __init__(
        self, loop: Loop, source: int, target: int, *, owned: tuple[int, ...], done: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._source = source
        self._target = target
        self._owned = owned
        self._done = done
        self._piece = memoryview(b"")
        self._watched: int | None = None
        self._left_bytes: int | None = None
        self._step = self._read
        self.fault: OSError | None = None
        """Why the target took no more, though somebody was to read it: a full disk."""
        self.ended = False
        self._await(source, IN, self._read)

    def stop(self) -> None:
        """Copy no more; harmless to repeat."""
        if self.ended:
            return
        self.ended = True
        self._forget()
        for fd in self._owned:
            os.close(fd)
        self._done()

    def finish(self) -> None:
        """Copy what waits in the source pipe by now, and stop: whoever may write to it has ended."""
        if self.ended or self._left_bytes is not None:
            return
        os.set_blocking(self._source, False)
        self._left_bytes = waiting_bytes(self._source)
        if not self._piece:
            self._read()

    def _await(self, fd: int, mask: int, ready: Callable[[], None]) -> None:
        self._forget()
        self._step = ready
        try:
            self._loop.watch(fd, mask, self._ready)
            self._watched = fd
        except PermissionError:
            self._loop.call_after(0.0, self._ready)
        except OSError:
            self.stop()  # not an open descriptor: the caller closed its own standard stream

    def fail(self, _error: Exception) -> None:
        """Stop: one of its own steps raised (see `proxy.loop.Fails`)."""
        self.stop()

    def _ready(self, _mask: int = 0) -> None:
        if not self.ended:
            self._step()

    def _forget(self) -> None:
        if self._watched is not None:
            self._loop.forget(self._watched)
            self._watched = None

    def _read(self) -> None:
        most = _READ_BYTES if self._left_bytes is None else min(_READ_BYTES, self._left_bytes)
        try:
            piece = os.read(self._source, most)
        except BlockingIOError:
            if self._left_bytes is not None:
                self.stop()
            return
        except OSError:
            piece = b""  # a terminal read from the background (EIO), a reset socket: the stream is over
        if not piece:
            self.stop()
            return
        if self._left_bytes is not None:
            self._left_bytes -= len(piece)
        self._piece = memoryview(piece)
        self._await(self._target, OUT, self._write)

    def _write(self) -> None:
        try:
            self._piece = self._piece[os.write(self._target, self._piece[:_WRITE_BYTES]) :]
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno not in _NO_READER:
                self.fault = error
            self.stop()  # nobody reads it any more: closing our end tells the writer so
            return
        if not self._piece and self._left_bytes is not None:
            self._read()
        elif not self._piece:
            self._await(self._source, IN, self._read)
        elif self._watched is None:
            self._await(self._target, OUT, self._write)
