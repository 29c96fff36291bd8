"""Run a command as an ordinary user where the suite runs as root: `python -I tests/ordinary.py UID COMMAND...`.

The interpreter and the sources may lie under a directory that only root may enter (a home directory of mode 0700). In a
mount namespace of its own such a directory is covered by a readable one that shows those trees and nothing else.
"""

import ctypes
import os
import stat
import sys
from pathlib import Path

MS_BIND_REC, MS_PRIVATE_REC = 0x5000, 0x44000


def mount(source, target, kind, flags):
    libc = ctypes.CDLL(None, use_errno=True)
    encoded = [None if each is None else os.fsencode(each) for each in (source, target, kind)]
    if libc.mount(*encoded, ctypes.c_ulong(flags), b"mode=0755" if kind else None):
        raise OSError(ctypes.get_errno(), f"mount {source} on {target}")


def closed_ancestor(path):
    """The highest directory above `path` that others may not enter."""
    for each in reversed(Path(path).parents):
        if not stat.S_IMODE(each.stat().st_mode) & stat.S_IXOTH:
            return each
    return None


def show(trees):
    """Make every one of `trees` reachable for everybody, in this mount namespace only."""
    covers = {}
    for tree in trees:
        ancestor = closed_ancestor(tree)
        if ancestor is not None:
            covers.setdefault(ancestor, []).append(tree)
    for ancestor, hidden in covers.items():
        held = {tree: os.open(tree, os.O_PATH) for tree in hidden}
        mount("tmpfs", ancestor, "tmpfs", 0)
        for tree, fd in held.items():
            Path(tree).mkdir(parents=True, exist_ok=True)
            mount(f"/proc/self/fd/{fd}", tree, None, MS_BIND_REC)
            os.close(fd)


def main():
    uid = int(sys.argv[1])
    os.unshare(os.CLONE_NEWNS)
    mount(None, "/", None, MS_PRIVATE_REC)
    here = Path(__file__).resolve().parents[1]
    show({str(Path(each).resolve()) for each in (sys.prefix, sys.base_prefix, here)})
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
