"""One connection on its way through the gate: judged, resolving, dialling, then handed over, refused or cancelled."""

import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from policy.answer import Answer, Pin
from policy.destination import Destination
from policy.host import Address, Name
from policy.judge import admit
from policy.layers import Policy
from policy.verdict import Reason, Verdict
from proxy.dial import Dialled
from proxy.loop import Loop
from proxy.session import Session


class Resolves(Protocol):
    """What the gate asks of a resolver (`proxy.resolver.Resolver`)."""

    def lookup(self, name: Name, done: Callable[[Answer], None]) -> Callable[[], None]:
        """Ask both families; `done` exactly once unless the returned cancel is called."""


type Dials = Callable[[Loop, Pin, float, Callable[[Dialled], None]], Callable[[], None]]
"""`proxy.dial.dial`, or what a test puts in its place."""


@dataclass(frozen=True, slots=True)
class Opened:
    """How one `Gate.open` ended. `upstream`, connected and non-blocking, is there exactly when `verdict.allowed`."""

    verdict: Verdict
    upstream: socket.socket | None
    peer: str | None
    """The address and port read back from the socket (getpeername(2)), as `Destination` writes them."""
    record_id: str
    destination: Destination
    address: Address | None = None
    """The address of `peer`."""


class Decides(Protocol):
    """What an opening asks of its gate (`proxy.gate.Gate`)."""

    loop: Loop
    resolver: Resolves
    dials: Dials
    clock: Callable[[], float]

    def decide(self, session: Session, destination: Destination, method: str | None, path: str | None) -> Verdict:
        """Judge before DNS; nothing is recorded."""

    def keep(
        self,
        session: Session,
        destination: Destination | None,
        entry: str,
        verdict: Verdict,
        *,
        pin: Pin | None = None,
        peer: str | None = None,
        method: str | None = None,
        path: str | None = None,
    ) -> tuple[Verdict, str]:
        """Record; the verdict that stands, and the record's id."""


def _cancelled() -> None:
    """Nothing is under way."""


def revoked(session: Session) -> Verdict:
    """Refuse everything: somebody took the session's right to leave."""
    detail = f"The session {session.name} was revoked."
    return Verdict(False, Reason.SESSION_REVOKED, revision=session.policy.revision, detail=detail)


class Opening:
    """One connection on its way through the gate: judged, resolving, dialling, then done or cancelled."""

    __slots__ = (
        "_answer",
        "_destination",
        "_done",
        "_entry",
        "_gate",
        "_method",
        "_path",
        "_pin",
        "_policy",
        "_session",
        "_step",
        "_stop",
        "_verdict",
    )

    def __init__(
        self,
        gate: Decides,
        session: Session,
        destination: Destination,
        entry: str,
        done: Callable[[Opened], None],
        method: str | None,
        path: str | None,
    ) -> None:
        self._gate = gate
        self._session = session
        self._destination = destination
        self._entry = entry
        self._done: Callable[[Opened], None] | None = done
        self._method = method
        self._path = path
        self._policy: Policy = session.policy
        self._verdict: Verdict | None = None
        self._answer: Answer | None = None
        self._pin: Pin | None = None
        self._step = 0
        self._stop: Callable[[], None] = _cancelled

    def run(self, step: Callable[[], None]) -> None:
        """Take one step; whatever it raises is a bug, and refuses."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - POLICY §5: every hook that raises becomes internal-error
            self._gate.loop.crashed(step, error)

    def fail(self, error: Exception) -> None:
        """A step raised: refuse (see `proxy.loop.Fails`)."""
        self._refuse(Reason.INTERNAL_ERROR, f"{type(error).__name__} while the connection was being opened")

    def begin(self) -> None:
        """Judge; a name that is granted is resolved, an address goes straight on."""
        verdict = self._gate.decide(self._session, self._destination, self._method, self._path)
        self._verdict = verdict
        name = self._destination.name
        if not verdict.allowed:
            self._finish(verdict)
        elif name is None:
            self._admit()
        else:
            self._under_way(lambda: self._gate.resolver.lookup(name, self._answered))

    def cancel(self) -> None:
        """The client is gone: stop, give descriptors back, and record what had been decided. Harmless to repeat."""
        if self._done is None:
            return
        self._done = None
        self._stop_step()
        if self._verdict is not None:
            gone = replace(self._verdict, detail="The client left before the connection was made.")
            self._gate.keep(
                self._session,
                self._destination,
                self._entry,
                gone,
                pin=self._pin,
                method=self._method,
                path=self._path,
            )

    def _under_way(self, start: Callable[[], Callable[[], None]]) -> None:
        """Start something that may end at once, in which case there is nothing left to stop."""
        self._step += 1
        step = self._step
        stop = start()
        if self._step == step and self._done is not None:
            self._stop = stop

    def _stop_step(self) -> None:
        stop, self._stop = self._stop, _cancelled
        self._step += 1
        stop()

    def _answered(self, answer: Answer) -> None:
        """Take what DNS said."""
        self._step += 1
        self._stop = _cancelled
        self._answer = answer
        if self._done is not None:
            self.run(self._admit)

    def _admit(self) -> None:
        """Every address must be admitted, under the policy of this moment; then dial the pin."""
        verdict = self._admitted()
        pin = self._pin
        if not verdict.allowed or pin is None:
            self._finish(verdict)
            return
        connect_s = self._session.policy.limits.connect_s
        self._under_way(lambda: self._gate.dials(self._gate.loop, pin, connect_s, self._dialled))

    def _admitted(self) -> Verdict:
        """Judge again and admit under the session's present policy; sets the verdict and the pin."""
        self._policy = self._session.policy
        if self._session.revoked:
            return revoked(self._session)
        verdict, self._pin = admit(
            self._policy,
            self._destination,
            self._answer,
            self._gate.clock(),
            method=self._method,
            path=self._path,
        )
        self._verdict = verdict
        return verdict

    def _dialled(self, dialled: Dialled) -> None:
        """Take the connected socket, or why there is none."""
        self._step += 1
        self._stop = _cancelled
        if self._done is None:
            if dialled.upstream is not None:
                dialled.upstream.close()
            return
        try:
            self._settle(dialled)
        except Exception as error:  # noqa: BLE001
            if dialled.upstream is not None:
                dialled.upstream.close()
            self._gate.loop.crashed(self._dialled, error)

    def _settle(self, dialled: Dialled) -> None:
        """The policy may have changed while the network was asked: it must still admit what was dialled."""
        verdict = self._verdict
        upstream, peer = dialled.upstream, dialled.peer
        assert verdict is not None
        if upstream is None or peer is None:
            reason = Reason.INTERNAL_ERROR if dialled.reason is Reason.GRANTED else dialled.reason
            self._finish(replace(verdict, allowed=False, reason=reason, detail=dialled.detail))
            return
        if self._session.policy is not self._policy or self._session.revoked:
            verdict = self._admitted()
        if not verdict.allowed:
            upstream.close()
            self._finish(verdict)
            return
        self._finish(verdict, upstream, peer)

    def _refuse(self, reason: Reason, detail: str) -> None:
        self._stop_step()
        verdict = self._verdict or Verdict(False, reason, revision=self._policy.revision)
        self._finish(replace(verdict, allowed=False, reason=reason, detail=detail))

    def _finish(self, verdict: Verdict, upstream: socket.socket | None = None, peer: Destination | None = None) -> None:
        """Record, then tell; a connection that cannot be recorded is closed and refused."""
        done = self._done
        self._done = None
        if done is None:
            return
        record_id = ""
        peer_text = str(peer) if peer else None
        try:
            verdict, record_id = self._gate.keep(
                self._session,
                self._destination,
                self._entry,
                verdict,
                pin=self._pin,
                peer=peer_text,
                method=self._method,
                path=self._path,
            )
        except Exception as error:  # noqa: BLE001
            self._gate.loop.crashed(_cancelled, error)
            verdict = replace(verdict, allowed=False, reason=Reason.INTERNAL_ERROR, detail=type(error).__name__)
        if not verdict.allowed and upstream is not None:
            upstream.close()
            upstream = None
        try:
            done(Opened(verdict, upstream, peer_text, record_id, self._destination, peer.address if peer else None))
        except Exception as error:  # noqa: BLE001
            if upstream is not None:
                self._gate.loop.forget(upstream.fileno())
                upstream.close()
            self._gate.loop.crashed(done, error)
