"""Removes a tree that a command made as it liked: of any depth, closed to its owner, its names and links its own."""

import os
import secrets
from typing import Final

_HOLD: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def remove(path: str) -> None:
    """Remove the directory at `path` with everything in it. Harmless to repeat; raises OSError where it may not.

    Each directory in it is moved up to the top before it is emptied, so that neither the length of a path nor the
    number of open descriptors grows with the depth; no link is followed.
    """
    try:
        top = _open(path, None)
    except FileNotFoundError:
        return
    try:
        while found := _empty(top, top):
            for name in found:
                below = _open(name, top)
                try:
                    _empty(below, top)
                finally:
                    os.close(below)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)  # noqa: PTH106 - a path as it was given


def _open(name: str, at: int | None) -> int:
    """Open a directory for reading, and make it its owner's again first."""
    held = os.open(name, _HOLD, dir_fd=at)
    try:
        os.chmod(f"/proc/self/fd/{held}", 0o700)  # noqa: PTH101 - the directory itself, whatever its name is by now
        return os.open(f"/proc/self/fd/{held}", _READ)
    finally:
        os.close(held)


def _empty(directory: int, top: int) -> list[str]:
    """Remove what is no directory from `directory`; move its directories up to `top` and give the names there.

    With `top` itself there is nothing to move.
    """
    with os.scandir(directory) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    kept = []
    for name, is_directory in found:
        if not is_directory:
            os.unlink(name, dir_fd=directory)
        elif directory == top:
            kept.append(name)
        else:
            os.close(_open(name, directory))  # one that its owner may not write cannot be moved
            kept.append(secrets.token_hex(16))
            os.rename(name, kept[-1], src_dir_fd=directory, dst_dir_fd=top)
    return kept
