"""Holds the processes of one command: a single-threaded parent that outlives whoever asked, and ends everything.

It adopts every orphan of the command (PR_SET_CHILD_SUBREAPER), kills the pid namespace's init when the time is up,
when it is told to, or when the other side of its channel is gone, and says how it ended only when the kernel has no
child left for it.
"""

import json
import os
import select
import signal
import time
from pathlib import Path
from socket import socket
from typing import Final, NoReturn

from firewall import prctl
from policy.limits import ACKNOWLEDGE_S
from sandbox import child
from sandbox.child import Ends, Launch

_STEP_S: Final = 0.0005


def keep(launch: Launch, ends: Ends, channel: socket) -> NoReturn:
    """Start the launch's command and hold it to its end; for a forked child, never returns.

    Reads any message on `channel`, or its end, as "end it now". Sends one JSON object: `status` (the command's exit
    status, null when it never ended by itself or never ran), `timed_out`, `acknowledged`.
    """
    try:
        os.setsid()
        prctl.adopt_orphans()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        _Keeper(channel).hold(launch, ends)
    except BaseException as bug:  # noqa: BLE001 - a forked child must not return into its parent's frames
        end_children(time.monotonic() + ACKNOWLEDGE_S)
        channel.send(json.dumps({"fault": repr(bug)}).encode())
    finally:
        os._exit(0)


class _Keeper:
    def __init__(self, channel: socket) -> None:
        self._channel = channel
        self._init_fd: int | None = None
        self._record = b""
        self._status: int | None = None

    def hold(self, launch: Launch, ends: Ends) -> None:
        record_fd, status_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            child.become(launch, ends, status_fd, me)
        until_s = time.monotonic() + launch.plan.timeout_s
        outer_fd = os.pidfd_open(pid)
        _let_go_of_all_but({self._channel.fileno(), record_fd, outer_fd})
        watched = select.epoll()
        for fd in (self._channel.fileno(), record_fd, outer_fd):
            watched.register(fd, select.EPOLLIN)
        timed_out = False
        while True:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                timed_out = True
                break
            ready = {fd for fd, _ in watched.poll(left_s)}
            if record_fd in ready and not self._read_record(record_fd):
                watched.unregister(record_fd)
            if self._channel.fileno() in ready:
                self._channel.recv(64)  # read it: closing a socket with unread data would lose our report on the way
                break
            if outer_fd in ready:
                break
        self._read_record(record_fd)
        acknowledged = self._end(outer_fd)
        report = {
            "status": self._status,
            "timed_out": timed_out and self._status is None,
            "acknowledged": acknowledged,
        }
        try:
            self._channel.send(json.dumps(report).encode())
        except OSError:
            launch.workspace.remove()  # whoever asked was killed; nothing is left of the command all the same

    def _read_record(self, fd: int) -> bool:
        """Take what bubblewrap said so far (--json-status-fd: one object a line); False at its end."""
        while True:
            try:
                piece = os.read(fd, 4096)
            except BlockingIOError:
                return True
            if not piece:
                return False
            *lines, self._record = (self._record + piece).split(b"\n")
            for line in lines:
                said = json.loads(line)
                if "exit-code" in said:
                    self._status = int(said["exit-code"])
                elif "child-pid" in said and self._init_fd is None:
                    try:
                        self._init_fd = os.pidfd_open(int(said["child-pid"]))
                    except ProcessLookupError:
                        pass  # over already

    def _end(self, outer_fd: int) -> bool:
        """Kill the namespace's init, bubblewrap, and every child that comes to us by their deaths, until none is left.

        The kernel lets an init end only after every process of its pid namespace (pid_namespaces(7)), so ECHILD here
        means that nothing of the command is alive.
        """
        for fd in (self._init_fd, outer_fd):
            if fd is not None:
                try:
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        return end_children(time.monotonic() + ACKNOWLEDGE_S)


def end_children(until_s: float, spare: frozenset[int] = frozenset()) -> bool:
    """Kill and reap every child but those of `spare` until none is left; False when `until_s` came first."""
    while True:
        mine = children() - spare
        if not mine:
            return True
        for pid in mine:
            os.kill(
                pid, signal.SIGKILL
            )  # a child that has ended is a zombie until it is reaped: this cannot hit a stranger
            if os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() > until_s:
                return False
        time.sleep(_STEP_S)


def children() -> frozenset[int]:
    """Pids of this single-threaded process's children, ended ones that were not reaped among them (proc(5))."""
    return frozenset(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()))


def _let_go_of_all_but(kept: set[int]) -> None:
    """Hold nothing open that somebody else waits on: no pipe's end, no listener, no terminal."""
    null = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    child.close_all_but(kept | {0, 1, 2})
