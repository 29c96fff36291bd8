"""One stream of a command's output: its head and its tail in memory, the whole in a file once it outgrew them."""

import os
from collections.abc import Callable
from typing import BinaryIO


class Capture:
    """Takes any amount and holds a bounded part of it.

    `spool` opens an unnamed file for the whole stream; it is called once, when the stream outgrows what is kept. A
    disk that fails ends the file, never the command: `fault` then says why.
    """

    def __init__(self, head_bytes: int, tail_bytes: int, log_bytes: int, spool: Callable[[], BinaryIO]) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._log_bytes = log_bytes
        self._spool = spool
        self._head = bytearray()
        self._tail = bytearray()
        self.count = 0
        """Bytes the command wrote."""
        self.file: BinaryIO | None = None
        self.logged = 0
        """Bytes of them in `file`."""
        self.fault: OSError | None = None

    def add(self, piece: bytes) -> None:
        """Take the next bytes of the stream."""
        if self.file is None and self.fault is None and self.count + len(piece) > self._head_bytes + self._tail_bytes:
            self._start_log()
        self.count += len(piece)
        if self.file is not None:
            self._log(piece)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += piece[:room]
            piece = piece[room:]
        if piece:
            self._tail += piece
            if len(self._tail) > 2 * self._tail_bytes:
                del self._tail[: -self._tail_bytes]

    @property
    def truncated(self) -> bool:
        """Head and tail together are not the whole."""
        return self.count > self._head_bytes + self._tail_bytes

    def kept(self, where: str | None = None) -> bytes:
        """Head and tail, and between them a line that says how much is left out and `where` the whole is."""
        if not self.truncated:
            return bytes(self._head + self._tail)
        tail = bytes(self._tail[-self._tail_bytes :])
        left_out = self.count - len(self._head) - len(tail)
        told = f"\n[stockade: {left_out} bytes left out here; {where or 'no log could be kept'}]\n"
        return bytes(self._head) + os.fsencode(told) + tail

    def _start_log(self) -> None:
        try:
            self.file = self._spool()
        except OSError as error:
            self.fault = error
            return
        self._log(bytes(self._head + self._tail))

    def _log(self, piece: bytes) -> None:
        piece = piece[: self._log_bytes - self.logged]
        if not piece or self.file is None:
            return
        try:
            self.file.write(piece)
            self.logged += len(piece)
        except OSError as error:
            self.file.close()
            self.file, self.fault = None, error
