"""What a process asks of the kernel about itself, where Python has no name for it (prctl(2), keyctl(2), mount(2))."""

import ctypes
import os
import platform
import signal
from errno import ENOSYS, EPERM
from typing import Final

_SET_PDEATHSIG: Final = 1
_SET_DUMPABLE: Final = 4
_SET_CHILD_SUBREAPER: Final = 36
_SET_NO_NEW_PRIVS: Final = 38
_KEYCTL: Final = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "loongarch64": 219, "ppc64le": 271, "s390x": 280}
"""keyctl(2)'s number, by architecture."""
_JOIN_SESSION_KEYRING: Final = 1
_MS_BIND: Final = 0x1000
_MS_REC: Final = 0x4000
_MS_PRIVATE: Final = 0x40000


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc().prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def die_with_parent(parent: int) -> None:
    """Be killed when the thread that forked us ends; leave at once when `parent` has ended already.

    A change of credentials clears it: ask again after one.
    """
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(125)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none is out of reach; forks do not."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def gain_nothing() -> None:
    """Let no set-uid program give this process or its children anything from now on."""
    _prctl(_SET_NO_NEW_PRIVS, 1)


def leave_keys() -> None:
    """Take an empty session keyring in place of the inherited one, whose keys whoever has it may read (keyrings(7))."""
    number = _KEYCTL.get(platform.machine())
    if number is None:
        raise OSError(ENOSYS, f"keyctl's number on {platform.machine()} is not known")
    failed = _libc().syscall(ctypes.c_long(number), ctypes.c_long(_JOIN_SESSION_KEYRING), None) < 0
    # ENOSYS: no keys in this kernel; EPERM: a filter that the command inherits.
    if failed and ctypes.get_errno() not in (ENOSYS, EPERM):
        raise OSError(ctypes.get_errno(), "join a session keyring")


def become(uid: int, gid: int) -> None:
    """Be `uid` and `gid` for good, with no other group, and own /proc/self again."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _prctl(_SET_DUMPABLE, 1)


def keep_mounts_private() -> None:
    """Let nobody else see what this process, in a mount namespace of its own, mounts (mount_namespaces(7))."""
    if _libc().mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None):
        raise OSError(ctypes.get_errno(), "make mounts private")


def bind(source: str, target: str) -> None:
    """Show the directory `source` at `target` in this mount namespace."""
    if _libc().mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(_MS_BIND | _MS_REC), None):
        raise OSError(ctypes.get_errno(), f"bind {source} on {target}")
