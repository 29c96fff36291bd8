"""A long output's log, put into the workspace once nothing that could redirect it is alive any more."""

import os
import tempfile
from typing import BinaryIO, Final

from firewall import prctl
from sandbox.account import Account
from sandbox.workspace import Workspace

_DIRECTORIES: Final = (".stockade", "outputs")
_PIECE_BYTES: Final = 1 << 20


def spool(workspace: Workspace) -> BinaryIO:
    """Open an unnamed file on the workspace's file system: the command cannot find it, and it is gone if we are."""
    return tempfile.TemporaryFile(dir=f"/proc/self/fd/{workspace.fd}", buffering=0)


def save(source: BinaryIO, workspace: Workspace, account: Account, name: str) -> str:
    """Copy a spool to `.stockade/outputs/NAME` in the workspace, as the account's user, and give its path.

    Each step is taken from the step before, by descriptor and following no link (openat(2)): where the command left a
    symbolic link, or anything else in the way, this raises OSError. Root does it as a child that became that user, so
    that nothing a workspace's owner arranges is done with more rights than the owner's.
    """
    path = "/".join((workspace.path, *_DIRECTORIES, name))
    if not account.switched:
        _copy(source, workspace.fd, name)
        return path
    child = os.fork()
    if child == 0:
        status = 255
        try:
            prctl.become(account.uid, account.gid)
            _copy(source, workspace.fd, name)
            status = 0
        except OSError as error:
            status = error.errno or 255
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        raise OSError(abs(status), os.strerror(abs(status)), path)
    return path


def _copy(source: BinaryIO, workspace_fd: int, name: str) -> None:
    at = os.dup(workspace_fd)
    try:
        for part in _DIRECTORIES:
            try:
                os.mkdir(part, 0o700, dir_fd=at)
            except FileExistsError:
                pass
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = below
        target = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=at)
        try:
            source.seek(0)
            while piece := source.read(_PIECE_BYTES):
                while piece:
                    piece = piece[os.write(target, piece) :]
        finally:
            os.close(target)
    finally:
        os.close(at)
