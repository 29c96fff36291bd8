"""A network namespace with a loopback and nothing else, whose only listening sockets are served from outside it.

The sockets are born inside and handed out by SCM_RIGHTS, so whoever connects to them is in this namespace: the socket
names the session. There is no route, no other interface and no name in /run/netns; descriptors hold the namespace,
and it vanishes with the last of them, however its owner ended.
"""

import fcntl
import os
import signal
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from errno import EADDRNOTAVAIL, EAFNOSUPPORT
from pathlib import Path
from typing import Final, NoReturn

from firewall import prctl, standing
from policy.errors import Broken
from policy.limits import LISTEN_BACKLOG_COUNT, NAMESPACE_S

_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP_RUNNING: Final = 0x41
_FDS_MOST_COUNT: Final = 16

type Endpoint = tuple[str, int]
"""Address literal and port, on the namespace's own loopback."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """Descriptors that hold one network namespace, and the listening sockets inside it."""

    net_fd: int
    user_fd: int | None
    """The user namespace that owns it, when we had to make one; None when the one we are in owns it."""
    listeners: tuple[socket.socket, ...]

    def join(self) -> None:
        """Move this single-threaded process in (setns(2)): a forked child, just before it becomes something else."""
        if self.user_fd is not None:
            os.setns(self.user_fd, os.CLONE_NEWUSER)
        os.setns(self.net_fd, os.CLONE_NEWNET)

    def close(self) -> None:
        """Let go of everything; the namespace ends with the last process in it."""
        for listener in self.listeners:
            listener.close()
        os.close(self.net_fd)
        if self.user_fd is not None:
            os.close(self.user_fd)


def make(endpoints: Sequence[Endpoint], *, account: tuple[int, int] | None = None) -> Namespace:
    """Make a namespace with one TCP listener at each of `endpoints`.

    `account` (uid, gid) is who will join it, when this process can become somebody else; needed only where it may
    switch users but not make namespaces. A kernel without IPv6 has no `::1`, and so no listener there; any other
    failure raises `Broken`. The calling process stays where it is: a forked child does the work and ends.
    """
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        mine.close()
        _build(theirs, endpoints, account, parent)
    theirs.close()
    try:
        mine.settimeout(NAMESPACE_S)
        message, fds, _, _ = socket.recv_fds(mine, 4096, _FDS_MOST_COUNT)
    except TimeoutError as late:
        raise Broken(f"network namespace: not made within {NAMESPACE_S:.0f} s; {standing.remedy()}") from late
    finally:
        mine.close()
        _end(child)
    if not fds:
        raise Broken(message.decode("utf-8", "replace") or "network namespace: its maker ended without a word")
    owned = message == b"user"
    user_fd = fds[1] if owned else None
    listeners = tuple(socket.socket(fileno=fd) for fd in fds[2 if owned else 1 :])
    return Namespace(fds[0], user_fd, listeners)


def _end(child: int) -> None:
    """Wait for a child that is about to leave; kill one that does not."""
    until_s = time.monotonic() + 1.0
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until_s:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.0005)


def _build(
    channel: socket.socket, endpoints: Sequence[Endpoint], account: tuple[int, int] | None, parent: int
) -> NoReturn:
    """In the child: make it, open it, send its descriptors, leave."""
    try:
        prctl.die_with_parent(parent)
        owned = _unshare(account)
        _raise_loopback()
        fds = [os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)]
        if owned:
            fds.append(os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC))
        fds += [listener.detach() for endpoint in endpoints if (listener := _listen(endpoint)) is not None]
        socket.send_fds(channel, [b"user" if owned else b"here"], fds)
    except OSError as error:
        channel.send(f"network namespace: {error.strerror}; {standing.remedy(error)}".encode())
    except BaseException as bug:  # noqa: BLE001 - a forked child must not return into its parent's frames
        channel.send(f"network namespace: {bug!r}".encode())
    finally:
        os._exit(0)


def _unshare(account: tuple[int, int] | None) -> bool:
    """Leave the network namespace for a new one; True when a new user namespace had to own it."""
    try:
        os.unshare(os.CLONE_NEWNET)
        return False
    except PermissionError:
        pass
    if account is not None:
        prctl.become(*account)
    uid, gid = os.geteuid(), os.getegid()
    os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNET)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path("/proc/self", name).write_text(text, "ascii")
    return True


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP_RUNNING))


def _listen(endpoint: Endpoint) -> socket.socket | None:
    six = ":" in endpoint[0]
    try:
        listener = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM)
        if six:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(endpoint)
    except OSError as error:
        if six and error.errno in (EAFNOSUPPORT, EADDRNOTAVAIL):
            return None
        raise
    listener.listen(LISTEN_BACKLOG_COUNT)
    listener.setblocking(False)
    return listener
