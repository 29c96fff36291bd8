"""The journal: one JSON line for each record, on disk before anything is promised."""

import fcntl
import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from policy.errors import Broken

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

type Report = Callable[[Mapping[str, Any]], None]


class Journal:
    """Appends to `file` (created for its owner alone); without one, records only go to `reports`.

    Several processes may append to one file: each line is one write(2) under O_APPEND.
    """

    def __init__(self, file: str | None, reports: Sequence[Report] = ()) -> None:
        """Raise Broken when the file cannot be opened, is no regular file, or is a symbolic link."""
        self.file = file
        self._reports = tuple(reports)
        self._fd = None if file is None else _open(file)
        self._torn = False

    def write(self, record: Mapping[str, Any]) -> None:
        """Keep one record; raises Broken when it could not be kept whole, and the next call tries afresh."""
        if self._fd is not None:
            self._append(json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n")
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
        if self._torn:  # end the stump of a line that did not fit, so that no reader takes two for one
            line = b"\n" + line
        try:
            written = os.write(fd, line)
        except OSError as error:
            raise self._broken(error.strerror or str(error)) from error
        if written == len(line):
            self._torn = False
            return
        self._torn = not self._cut(fd, written)
        raise self._broken(f"only {written} of {len(line)} bytes fitted")

    def _cut(self, fd: int, written: int) -> bool:
        """Take a stump off the file's end again; False when somebody has written behind it meanwhile."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                size = os.fstat(fd).st_size
                if os.lseek(fd, 0, os.SEEK_CUR) != size:
                    return False
                os.ftruncate(fd, size - written)
            finally:
                fcntl.flock(fd, fcntl.LOCK_UN)
        except OSError:
            return False
        return True

    def _broken(self, why: str) -> Broken:
        return Broken(f"journal {self.file}: {why}; free space on its disk, or name another file with --journal")


def _open(file: str) -> int:
    try:
        fd = os.open(file, _FLAGS, 0o600)
    except OSError as error:
        is_link = Path(file).is_symlink()
        hint = "it is a symbolic link; name the file itself" if is_link else "name another with --journal"
        raise Broken(f"journal {file}: {error.strerror}; {hint}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Broken(f"journal {file}: it is no regular file; name another with --journal")
    return fd
