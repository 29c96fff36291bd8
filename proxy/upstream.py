"""The server side of forwarded exchanges: a leg, the verdict that opened it, the record of its end."""

import socket
from collections.abc import Callable

from policy.destination import Destination
from proxy.gate import Gate, Opened
from proxy.leg import Leg
from proxy.linger import reset
from proxy.loop import Loop
from proxy.session import Session


class Upstream(Leg):
    """A connection that the gate opened, for one request or several to the same destination."""

    __slots__ = ("_gate", "_opened_at_s", "_session", "opened")

    def __init__(self, loop: Loop, gate: Gate, session: Session, opened: Opened, ready: Callable[[int], None]) -> None:
        assert opened.upstream is not None
        super().__init__(loop, opened.upstream, ready)
        self._gate = gate
        self._session = session
        self._opened_at_s = loop.now_s
        self.opened = opened

    def leads_to(self, destination: Destination) -> bool:
        """Tell whether it is the same destination, admitted by the policy of now, and still open and silent."""
        return (
            self.opened.destination == destination
            and self.opened.verdict.revision == self._session.policy.revision
            and self._is_quiet()
        )

    def would_pass(self, method: str, path: str | None) -> bool:
        """Tell whether the policy of now still lets this request through to this very peer."""
        return self._gate.still(self._session, self.opened, method=method, path=path).allowed

    def close(self, closed_by: str, *, resets: bool = False) -> None:
        """Close it, with a reset when what it was sent is not whole, and record its end."""
        sock = self.release()
        if resets:
            reset(sock)
        else:
            sock.close()
        self._gate.end(
            self.opened,
            self._session,
            tier="forward",
            sent_bytes=self.sent_bytes,
            received_bytes=self.received_bytes,
            duration_s=self._loop.now_s - self._opened_at_s,
            closed_by=closed_by,
        )

    def _is_quiet(self) -> bool:
        """Tell whether the peer has neither closed nor spoken out of turn."""
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False
