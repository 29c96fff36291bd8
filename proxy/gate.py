"""The only way to a socket: judge, resolve if judged, admit, pin, dial, record; and only then hand it over."""

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from policy import record
from policy.answer import Answer, Pin
from policy.destination import Destination
from policy.errors import Broken
from policy.host import Address, Name
from policy.judge import admit, judge
from policy.layers import Policy
from policy.verdict import Reason, Verdict
from proxy.dial import Dialled, dial
from proxy.loop import Loop
from proxy.session import Session


class Resolves(Protocol):
    """What the gate asks of a resolver (`proxy.resolver.Resolver`)."""

    def lookup(self, name: Name, done: Callable[[Answer], None]) -> Callable[[], None]:
        """Ask both families; `done` exactly once unless the returned cancel is called."""


class Keeps(Protocol):
    """What the gate asks of a journal (`proxy.journal.Journal`)."""

    def write(self, entry: dict[str, Any]) -> None:
        """Keep one record; raises Broken when it cannot be kept."""


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


TIERS: Final = {"socks5": "tunnel", "connect": "tunnel", "http": "forward"}
"""Entry, and how what comes that way is carried (DESIGN §4)."""


def _cancelled() -> None:
    """Nothing is under way."""


class Gate:
    """Every connection of every session goes through one `open`. `clock` is Unix time in seconds."""

    def __init__(
        self,
        loop: Loop,
        resolver: Resolves,
        journal: Keeps,
        *,
        dials: Dials = dial,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.loop = loop
        self.resolver = resolver
        self.dials = dials
        self.clock = clock
        self._journal = journal
        self._id_prefix = f"{int(clock()):08x}{os.urandom(4).hex()}"
        self._id_number = 0

    def open(
        self,
        session: Session,
        destination: Destination,
        entry: str,
        done: Callable[[Opened], None],
        *,
        method: str | None = None,
        path: str | None = None,
    ) -> Callable[[], None]:
        """Judge, resolve, admit, dial and record one connection; returns what cancels it.

        `done` is called exactly once unless cancelled, possibly before `open` returns, and owns the socket it
        gets. Cancelling records what had been decided. Nothing is raised: a bug on the way is `internal-error`.
        """
        opening = _Opening(self, session, destination, entry, done, method, path)
        opening.run(opening.begin)
        return opening.cancel

    def judge(
        self,
        session: Session,
        destination: Destination,
        entry: str,
        *,
        method: str | None = None,
        path: str | None = None,
    ) -> tuple[Verdict, str]:
        """Judge and record the next request on a connection that is open already; the verdict and the record's id."""
        verdict = self.decide(session, destination, method, path)
        return self.keep(session, destination, entry, verdict, method=method, path=path)

    def refuse(self, session: Session, destination: Destination | None, entry: str, verdict: Verdict) -> str:
        """Record a refusal found elsewhere (what cannot be read, an SNI that differs); the record's id."""
        if not verdict.revision:
            verdict = replace(verdict, revision=session.policy.revision)
        return self.keep(session, destination, entry, verdict)[1]

    def end(
        self,
        opened: Opened,
        session: Session,
        *,
        tier: str = "tunnel",
        sent_bytes: int,
        received_bytes: int,
        duration_s: float,
        closed_by: str,
    ) -> None:
        """Record how a connection that was handed over ended. A journal that is full loses it, and says so itself."""
        ended = record.end(
            opened.record_id,
            self.clock(),
            session.name,
            peer=opened.peer,
            tier=tier,
            sent_bytes=sent_bytes,
            received_bytes=received_bytes,
            duration_s=duration_s,
            closed_by=closed_by,
        )
        try:
            self._journal.write(ended)
        except Broken:
            pass  # the connection is over; the next verdict finds the same journal and refuses

    def decide(self, session: Session, destination: Destination, method: str | None, path: str | None) -> Verdict:
        """The verdict before DNS, the session's own state included. Not recorded."""
        policy = session.policy
        if session.revoked:
            return _revoked(session)
        if session.is_full:
            most = policy.limits.connections_count
            detail = f"This session has {most} connections open, the most it may have (limits.connections_count)."
            return Verdict(False, Reason.LIMIT_REACHED, revision=policy.revision, detail=detail)
        return judge(policy, destination, self.clock(), method=method, path=path)

    def still(self, session: Session, opened: Opened, *, method: str | None = None, path: str | None = None) -> Verdict:
        """The verdict on a connection that is open, under the session's present policy. Not recorded."""
        if session.revoked:
            return _revoked(session)
        name = opened.destination.name
        answer = None
        if name is not None and opened.address is not None:
            answer = Answer(name, addresses=(opened.address,))
        return admit(session.policy, opened.destination, answer, self.clock(), method=method, path=path)[0]

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
        """Write the verdict's record before anything is promised; the verdict that stands and the record's id.

        When the journal cannot keep it, whatever was allowed is refused as `limit-reached`.
        """
        self._id_number += 1
        record_id = record.record_id(self._id_prefix, self._id_number)
        line = record.entry(
            record_id,
            self.clock(),
            session.name,
            entry,
            destination,
            verdict,
            pin=pin,
            peer=peer,
            method=method,
            path=path,
            tier=TIERS.get(entry),
        )
        try:
            self._journal.write(line)
        except Broken as error:
            if verdict.allowed:
                verdict = Verdict(
                    False,
                    Reason.LIMIT_REACHED,
                    revision=verdict.revision,
                    detail=f"No record can be kept: {error}",
                )
        return verdict, record_id


def _revoked(session: Session) -> Verdict:
    detail = f"The session {session.name} was revoked."
    return Verdict(False, Reason.SESSION_REVOKED, revision=session.policy.revision, detail=detail)


class _Opening:
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
        gate: Gate,
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
            return _revoked(self._session)
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
