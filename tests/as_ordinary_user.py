"""Run a command as an ordinary user although the interpreter and this clone may lie under a directory only root may enter.

`python -I tests/as_ordinary_user.py UID GID DIR... -- COMMAND...`, as root. In a mount namespace of its own, each closed
directory on the way to a DIR is covered by an empty open one, into which the DIRs are bound; nothing is copied and nothing
outside changes.
"""

import ctypes
import os
import stat
import sys
from pathlib import Path

MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, str(target), kind, data)]
    if libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]) != 0:
        raise OSError(ctypes.get_errno(), f"mount {source} on {target}")


def closed_parent(path: Path) -> Path | None:
    """The first directory on the way to `path`, itself included, that others may not enter."""
    for step in [*reversed(path.parents), path]:
        if not step.stat().st_mode & stat.S_IXOTH:
            return step
    return None


def main() -> None:
    split = sys.argv.index("--")
    uid, gid = int(sys.argv[1]), int(sys.argv[2])
    wanted = [Path(text).resolve() for text in sys.argv[3:split]]
    command = sys.argv[split + 1 :]
    os.unshare(os.CLONE_NEWNS)
    mount("none", Path("/"), None, MS_REC | MS_PRIVATE)
    doors: dict[Path, list[Path]] = {}
    for path in wanted:
        if (door := closed_parent(path)) is not None:
            doors.setdefault(door, []).append(path)
    held = {path: os.open(path, os.O_PATH) for paths in doors.values() for path in paths}
    for door, paths in doors.items():
        mount("tmpfs", door, "tmpfs", 0, "mode=755")
        for path in sorted(paths):
            path.mkdir(parents=True, exist_ok=True)
            mount(f"/proc/self/fd/{held[path]}", path, None, MS_BIND | MS_REC)
            if not path.stat().st_mode & stat.S_IXOTH:
                raise SystemExit(f"{path} itself is closed to others")
    for fd in held.values():
        os.close(fd)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    os.execvp(command[0], command)


main()
