"""One stream passed on as it comes: a bounded piece in hand, nothing read before the last piece is written."""

import os
from collections.abc import Callable
from typing import Final

from proxy.loop import IN, OUT, Loop

_READ_BYTES: Final = 65_536
_WRITE_BYTES: Final = 4_096
"""PIPE_BUF: a pipe or terminal that polls writable takes this much without waiting (pipe(7)), whosever flags it has."""


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
        self._step = self._read
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
        try:
            piece = os.read(self._source, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""  # a terminal read from the background (EIO), a reset socket: the stream is over
        if not piece:
            self.stop()
            return
        self._piece = memoryview(piece)
        self._await(self._target, OUT, self._write)

    def _write(self) -> None:
        try:
            self._piece = self._piece[os.write(self._target, self._piece[:_WRITE_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:
            self.stop()  # nobody reads it any more: closing our end tells the writer so
            return
        if not self._piece:
            self._await(self._source, IN, self._read)
        elif self._watched is None:
            self._await(self._target, OUT, self._write)
