"""The directory a command may write, resolved once and held by a descriptor from then on."""

import os
import shlex
import stat
import tempfile
from dataclasses import dataclass
from errno import ELOOP
from typing import Final

from policy.errors import Broken
from sandbox.account import Account
from sandbox.remove import remove

_NEVER: Final = frozenset(
    (
        *("/", "/home", "/root", "/var", "/var/tmp", "/var/lib", "/var/log", "/var/run", "/tmp"),  # noqa: S108 - names
        *("/opt", "/srv", "/mnt", "/media", "/run", "/run/user"),
    )
)
"""Directories that are never a workspace, though what lies under them may be."""
_NEVER_UNDER: Final = (
    "/usr",
    "/etc",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/boot",
    "/dev",
    "/proc",
    "/sys",
)
"""Trees that are never a workspace: the system's own, and those a sandbox mounts itself."""


_NEVER_CLAIMED_UNDER: Final = tuple(f"/var/{name}" for name in ("backups", "cache", "lib", "log", "mail", "spool"))
"""Trees whose directories root owns for a reason: a link to one must not make us give it away."""

_LINKS_MOST_COUNT: Final = 40
"""As many as the kernel follows (path_resolution(7))."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """One open workspace."""

    path: str
    """Its real path, also inside the sandbox."""
    fd: int
    """O_PATH descriptor of the directory itself; every later use goes through it."""
    owner: tuple[int, int]
    """Uid and gid of the directory when it was opened."""
    fresh: bool = False
    """Made by us, and removed by `close`."""
    through: str | None = None
    """A link on the way to it that neither root nor this process's user owns."""

    def claim(self, account: Account) -> str | None:
        """Give the directory itself, nothing under it, to the account's user; says so in one line when that is news."""
        if not account.claims:
            return None
        if _under(self.path, (*_NEVER_CLAIMED_UNDER, "/run")):
            raise Broken(f"workspace {self.path}: root owns it for a reason; chown it yourself, or make one elsewhere")
        if self.through is not None:
            raise Broken(
                f"workspace {self.path}: root owns it, and {self.through}, by which it was named, is somebody else's link; "
                "name the directory itself"
            )
        os.chown(f"/proc/self/fd/{self.fd}", account.uid, account.gid)
        if self.fresh:
            return None
        return (
            f"workspace {self.path} belonged to root and now belongs to uid {account.uid}, as which its commands run; "
            f"for files already in it: chown -R {account.uid}:{account.gid} {shlex.quote(self.path)}"
        )

    def close(self) -> None:
        """Let go of it, and remove it when it was made for one command."""
        os.close(self.fd)
        self.remove()

    def remove(self) -> None:
        """Remove it when it was made for one command; also the keeper's, should we be killed. Harmless to repeat."""
        if self.fresh:
            remove(self.path)


def open_at(path: str) -> Workspace:
    """Open an existing directory; a symbolic link is followed once, here. Raises `Broken` with the remedy."""
    if not path:  # an unset variable of somebody's shell; it does not mean the current directory
        raise Broken("workspace: its path is empty; give an existing directory that you own, or leave --workspace out")
    try:
        real, through = _resolve(path)
        fd = os.open(real, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Broken(f"workspace {path}: {reason}; give an existing directory that you own") from error
    if real in _NEVER or _under(real, _NEVER_UNDER):
        os.close(fd)
        raise Broken(f"workspace {real}: a system directory is never a workspace; make a directory of its own for it")
    if os.readlink(f"/proc/self/fd/{fd}") != real:  # noqa: PTH115
        os.close(fd)
        raise Broken(f"workspace {real}: it was replaced while it was being opened")
    status = os.fstat(fd)
    return Workspace(real, fd, (status.st_uid, status.st_gid), through=through)


def _resolve(path: str) -> tuple[str, str | None]:
    """Give the real path of `path`, and the first link on the way that a stranger owns. Raises OSError, ValueError."""
    at, through, links_count = "/", None, 0
    ahead = [*reversed(os.path.join(os.getcwd(), path).split("/"))]  # noqa: PTH109, PTH118 - `..` is walked, not cut
    while ahead:
        part = ahead.pop()
        if part in ("", "."):
            continue
        if part == "..":
            at = os.path.dirname(at)  # noqa: PTH120
            continue
        here = os.path.join(at, part)  # noqa: PTH118
        status = os.lstat(here)
        if not stat.S_ISLNK(status.st_mode):
            at = here
            continue
        links_count += 1
        if links_count > _LINKS_MOST_COUNT:
            raise OSError(ELOOP, os.strerror(ELOOP))
        if through is None and status.st_uid not in (0, os.geteuid()):
            through = here
        text = os.readlink(here)  # noqa: PTH115
        at = "/" if text.startswith("/") else at
        ahead += reversed(text.split("/"))
    return at, through


def _under(path: str, trees: tuple[str, ...]) -> bool:
    return any(path == tree or path.startswith(tree + "/") for tree in trees)


def make() -> Workspace:
    """Make a fresh private directory, removed when it is closed. Raises `Broken` where there is no room for one."""
    try:
        directory = tempfile.mkdtemp(prefix="stockade-")
    except OSError as error:
        raise Broken(f"workspace: no fresh one can be made: {error.strerror}; name one with --workspace") from error
    try:
        made = open_at(directory)
    except BaseException:
        os.rmdir(directory)  # noqa: PTH106 - empty, whatever its name resolves to
        raise
    return Workspace(made.path, made.fd, made.owner, fresh=True)

