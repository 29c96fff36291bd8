"""The journal: one JSON line for each record, on disk before anything is promised."""

import fcntl
import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from errno import errorcode
from pathlib import Path
from typing import Any, Final

from policy.errors import Broken

_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

type Report = Callable[[Mapping[str, Any]], None]


class Journal:
    """Appends to `file` (created for its owner alone); without one, records only go to `reports`.

    Several processes may append to one file: each line is one write(2) under O_APPEND and flock(2), so that who takes
    the stump of a line off the end takes nobody else's line with it.
    """

    def __init__(self, file: str | None, reports: Sequence[Report] = ()) -> None:
        """Raise Broken when the file cannot be opened, is no regular file, or is a symbolic link."""
        self.file = file
        self._reports = tuple(reports)
        self._fd = None if file is None else _open(file)
        self._torn = self._fd is not None and _ends_torn(self._fd)

    def write(self, record: Mapping[str, Any]) -> None:
        """Keep one record; raises Broken when it could not be kept whole, and the next call tries afresh."""
        if self._fd is not None:
            self._append(json.dumps(record, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n")
        for report in self._reports:
            report(record)

    def close(self) -> None:
        """Give the file back. Harmless to repeat."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _append(self, line: bytes) -> None:
        fd = self._fd
        assert fd is not None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                self._append_locked(fd, line)
            finally:
                fcntl.flock(fd, fcntl.LOCK_UN)
        except OSError as error:
            raise self._broken(_text(error)) from error

    def _append_locked(self, fd: int, line: bytes) -> None:
        if self._torn:  # end the stump that somebody left, so that no reader takes two lines for one
            line = b"\n" + line
        written = os.write(fd, line)
        if written == len(line):
            self._torn = False
            return
        try:
            os.ftruncate(fd, os.fstat(fd).st_size - written)
        except OSError:
            self._torn = True
        raise self._broken(f"only {written} of {len(line)} bytes fitted")

    def _broken(self, why: str) -> Broken:
        return Broken(f"journal {self.file}: {why}; free space on its disk, or name another file with --journal")


def _text(error: OSError) -> str:
    return f"{error.strerror or error} ({errorcode.get(error.errno or 0, 'no number')})"


def _ends_torn(fd: int) -> bool:
    """Whether the last line has no end: its writer died, or its disk was full."""
    size = os.fstat(fd).st_size
    return size > 0 and os.pread(fd, 1, size - 1) != b"\n"


def _open(file: str) -> int:
    try:
        fd = os.open(file, _FLAGS, 0o600)
    except OSError as error:
        is_link = Path(file).is_symlink()
        hint = "it is a symbolic link; name the file itself" if is_link else "name another with --journal"
        raise Broken(f"journal {file}: {_text(error)}; {hint}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Broken(f"journal {file}: it is no regular file; name another with --journal")
    return fd
