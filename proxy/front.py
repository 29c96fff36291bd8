"""The listeners: each accepts for one session, and goes on, loudly, when the machine has nothing left to give."""

import errno
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from policy.limits import ACCEPT_COUNT, ACCEPT_PAUSE_S, LISTEN_BACKLOG_COUNT, OVER_LIMIT_COUNT
from policy.verdict import Reason, Verdict
from proxy.crash import Complaint
from proxy.dial import keep_alive
from proxy.flow import Flow, Plane, State
from proxy.linger import reset
from proxy.loop import IN
from proxy.session import Session

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})
_PASSING = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EINTR})
"""The connection died before it was accepted, or a firewall refused it: the next may be well (accept(2))."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound stream socket, and the session that everything accepted on it belongs to (POLICY §7)."""

    socket: socket.socket
    session: Session


class Front:
    """Accepts on every listener and keeps the flows. It owns the listening sockets."""

    def __init__(self, plane: Plane, listeners: tuple[Listener, ...]) -> None:
        self._plane = plane
        self._doors = [_Door(self, plane, listener) for listener in listeners]
        self._spare_fd = _spare()
        self._complaint = Complaint(lambda: plane.loop.now_s)
        self.flows: set[Flow] = set()
        self._drained: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to accept."""
        for door in self._doors:
            door.open()

    def stop_accepting(self) -> None:
        """Close the listening sockets; connections waiting in them are reset by the kernel. Harmless to repeat."""
        for door in self._doors:
            door.close()

    def drain(self, drained: Callable[[], None]) -> None:
        """Stop accepting, end what carries nothing yet, and call `drained` when the last flow has ended."""
        self._drained = drained
        self.stop_accepting()
        for flow in tuple(self.flows):
            if flow.state is State.GREETING:
                flow.cut("stopped")
        self._look_drained()

    def accepted(self, session: Session, client: socket.socket) -> None:
        """Follow one client to its end."""
        self.flows.add(Flow(self._plane, session, client, self._ended))

    def _ended(self, flow: Flow) -> None:
        self.flows.discard(flow)
        self._look_drained()

    def _look_drained(self) -> None:
        if self._drained is not None and not self.flows:
            self._drained()

    def close(self, closed_by: str) -> None:
        """Stop accepting and cut every flow. Harmless to repeat."""
        self.stop_accepting()
        for flow in tuple(self.flows):
            flow.cut(closed_by)
        if self._spare_fd >= 0:
            os.close(self._spare_fd)
            self._spare_fd = -1

    def refuse_waiting(self, door: "_Door") -> bool:
        """Out of descriptors: give up the spare one to accept a client, reset it, and take the spare back.

        The client learns at once that it is refused, in place of waiting in a queue that nobody empties. False when
        none waits: accept(2) wants a descriptor before it looks. Raises OSError when not even that can be done.
        """
        if self._spare_fd < 0:
            self._spare_fd = _spare()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        os.close(self._spare_fd)
        self._spare_fd = -1
        try:
            client = door.accept()
            if client is not None:
                self.turn_away(client, door.session, "No file descriptor is left in the proxy's process.")
            return client is not None
        finally:
            self._spare_fd = _spare()

    def turn_away(self, client: socket.socket, session: Session, detail: str) -> None:
        """Record and reset a client that cannot even be listened to."""
        self._plane.gate.refuse(session, None, "accept", Verdict(False, Reason.LIMIT_REACHED, detail=detail))
        reset(client)
        self.complain(f"clients of {session.name} are turned away: {detail}")

    def complain(self, words: str) -> None:
        """Say it on standard error, at most once a minute."""
        self._complaint.tell(words)


def _spare() -> int:
    """Hold a descriptor for the moment when there is no other; -1 when that moment is now."""
    try:
        return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


class _Door:
    """One listening socket."""

    __slots__ = ("_front", "_plane", "_socket", "session")

    def __init__(self, front: Front, plane: Plane, listener: Listener) -> None:
        self._front = front
        self._plane = plane
        self._socket = listener.socket
        self.session = listener.session

    def open(self) -> None:
        """Listen. What is set on the listening socket, every accepted one inherits (tcp(7))."""
        self._socket.setblocking(False)
        if self._socket.family in {socket.AF_INET, socket.AF_INET6}:
            keep_alive(self._socket)
        self._socket.listen(LISTEN_BACKLOG_COUNT)
        self._plane.loop.watch(self._socket.fileno(), IN, self._ready)

    def close(self) -> None:
        """Listen no more. Harmless to repeat."""
        self._plane.loop.forget(self._socket.fileno())
        self._socket.close()

    def accept(self) -> socket.socket | None:
        """One waiting client, non-blocking; None when none waits. Raises OSError."""
        try:
            client, _ = self._socket.accept()
        except BlockingIOError:
            return None
        client.setblocking(False)
        return client

    def fail(self, _error: Exception) -> None:
        """Go on accepting: what raised was one client's (see `proxy.loop.Fails`)."""
        self._resume()

    def _ready(self, _mask: int) -> None:
        session = self.session
        most = session.policy.limits.connections_count + OVER_LIMIT_COUNT
        for _ in range(ACCEPT_COUNT):
            try:
                client = self.accept()
            except OSError as error:
                if not self._recover(error):
                    return
                continue
            if client is None:
                return
            if session.clients_count >= most:
                self._front.turn_away(client, session, f"{session.clients_count} connections are open.")
                continue
            self._front.accepted(session, client)

    def _recover(self, error: OSError) -> bool:
        """Whether accepting may go on at once; else none waits, or it pauses lest the listener's readiness spin."""
        if error.errno in _PASSING:
            return True
        if error.errno in _EXHAUSTED:
            try:
                return self._front.refuse_waiting(self)
            except OSError as worse:
                error = worse
        self._front.complain(f"accepting pauses: {error.strerror}; raise the limit of open files (ulimit -n)")
        self._plane.loop.forget(self._socket.fileno())
        self._plane.loop.call_after(ACCEPT_PAUSE_S, self._resume)
        return False

    def _resume(self) -> None:
        fd = self._socket.fileno()
        if fd >= 0:
            self._plane.loop.forget(fd)
            self._plane.loop.watch(fd, IN, self._ready)
