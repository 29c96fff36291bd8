"""The forked child that becomes the sandbox: into the namespace, out of our rights, and bubblewrap in its place."""

import os
import resource
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from firewall import prctl
from firewall.namespace import Namespace
from policy.errors import Broken
from sandbox import bwrap
from sandbox.plan import Plan
from sandbox.workspace import Workspace

_STAGES: Final = ("/mnt", "/media", "/srv", "/opt", "/tmp")  # noqa: S108 - covered for this child alone
_FAILED: Final = 125


@dataclass(frozen=True, slots=True)
class Launch:
    """A plan and the things it is carried out with."""

    plan: Plan
    program: str
    """Absolute path of bubblewrap."""
    namespace: Namespace
    workspace: Workspace


@dataclass(frozen=True, slots=True)
class Ends:
    """The command's three streams: descriptors of pipes that it holds the far ends of."""

    stdin: int
    stdout: int
    stderr: int


def become(launch: Launch, ends: Ends, status_fd: int, parent: int) -> NoReturn:
    """Be bubblewrap, set up for the launch's plan. For a forked, single-threaded child of `parent`; never returns.

    What goes wrong here is said on the command's standard error, and the missing exit-code record on `status_fd`
    tells the keeper that the command never ran.
    """
    plan, namespace, workspace = launch.plan, launch.namespace, launch.workspace
    try:
        prctl.die_with_parent(parent)
        for number, fd in enumerate((ends.stdin, ends.stdout, ends.stderr)):
            os.dup2(fd, number)
        _reset_signals()
        account = plan.account
        workspace_fd = workspace.fd
        if account.switched and namespace.user_fd is None:
            workspace_fd = _stage(workspace)
        if namespace.user_fd is None:
            namespace.join()
        if account.switched:
            prctl.become(account.uid, account.gid)
        if namespace.user_fd is not None:
            namespace.join()
        prctl.leave_keys()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.umask(0o022)
        files = {
            path: _memory_file(text.encode("utf-8", "surrogateescape")) for path, text in bwrap.contents(plan).items()
        }
        options = bwrap.arguments(plan, workspace_fd=workspace_fd, status_fd=status_fd, files=files)
        # Bubblewrap's own command line can be read inside as /proc/1/cmdline, so the options come from a descriptor.
        options_fd = _memory_file(b"".join(os.fsencode(each) + b"\0" for each in options))
        passed = {0, 1, 2, workspace_fd, status_fd, options_fd, *files.values()}
        close_all_but(passed)
        for fd in passed:
            os.set_inheritable(fd, True)
        os.chdir("/")
        prctl.die_with_parent(parent)  # a change of credentials cleared it
        command = (*bwrap.LAUNCH, *plan.command)
        os.execve(launch.program, ["bwrap", "--args", str(options_fd), "--", *command], dict(plan.environment))
    except BaseException as error:  # noqa: BLE001 - a forked child must not return into its parent's frames
        os.write(2, f"sandbox: {error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(_FAILED)


def _stage(workspace: Workspace) -> int:
    """Show the workspace at a path that every user may reach, in a mount namespace of our own; its descriptor there.

    Bubblewrap looks the path up as the workspace's user, who may not enter the directories above it (one under /root,
    say).
    """
    os.unshare(os.CLONE_NEWNS)
    prctl.keep_mounts_private()
    fd = os.open(workspace.path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not os.path.samestat(os.fstat(fd), os.fstat(workspace.fd)):
        raise Broken(f"workspace {workspace.path}: it was replaced while it was being opened")
    stage = first_directory(_STAGES)
    prctl.bind(f"/proc/self/fd/{fd}", stage)
    os.close(fd)
    return os.open(stage, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def first_directory(paths: Sequence[str]) -> str:
    """Give the first of `paths` that is a directory itself, or the last; a machine need not have each."""
    return next((path for path in paths if Path(path).is_dir() and not Path(path).is_symlink()), paths[-1])


def _reset_signals() -> None:
    """Every signal as a fresh program expects it; Python ignores SIGPIPE, and `yes | head` would never end."""
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue  # the C library keeps some real-time signals to itself
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("stockade", os.MFD_CLOEXEC)
    while content:
        content = content[os.write(fd, content) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def close_all_but(kept: set[int]) -> None:
    """Close every descriptor that is not in `kept`: whatever the caller left open is nobody's in the sandbox.

    They are read from /proc: a limit that was lowered after they were opened says nothing about their numbers.
    """
    for fd in set(map(int, os.listdir("/proc/self/fd"))) - kept:  # noqa: PTH208 - names alone
        try:
            os.close(fd)
        except OSError:
            continue  # the one that the listing itself had
