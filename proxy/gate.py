"""The only way to a socket: judge, resolve if judged, admit, pin, dial, record; and only then hand it over."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from policy import record
from policy.answer import Answer, Pin
from policy.destination import Destination
from policy.errors import Broken
from policy.judge import admit, judge
from policy.verdict import Reason, Verdict
from proxy.crash import Complaint
from proxy.dial import dial
from proxy.loop import Loop
from proxy.opening import Dials, Opened, Opening, Resolves, revoked
from proxy.session import Session

__all__ = ["Gate", "Keeps", "Opened"]


class Keeps(Protocol):
    """What the gate asks of a journal (`proxy.journal.Journal`)."""

    def write(self, record: Mapping[str, Any], /) -> None:
        """Keep one record; raises Broken when it cannot be kept."""


TIERS: Final = {"socks5": "tunnel", "connect": "tunnel", "http": "forward"}
"""Entry, and how what comes that way is carried (DESIGN §4)."""


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
        self._unkept = Complaint(lambda: loop.now_s)

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
        opening = Opening(self, session, destination, entry, done, method, path)
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
        """Record how a connection that was handed over ended. A journal that is full loses it, which is said."""
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
        self._write(ended)  # when it is lost the connection is over all the same; the next verdict refuses

    def decide(self, session: Session, destination: Destination, method: str | None, path: str | None) -> Verdict:
        """The verdict before DNS, the session's own state included. Not recorded."""
        if session.revoked:
            return revoked(session)
        return judge(session.policy, destination, self.clock(), method=method, path=path)

    def still(self, session: Session, opened: Opened, *, method: str | None = None, path: str | None = None) -> Verdict:
        """The verdict on a connection that is open, under the session's present policy. Not recorded."""
        if session.revoked:
            return revoked(session)
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

        When the journal cannot keep it, whatever was allowed is refused as `limit-reached`, and the id says "unrecorded".
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
        lost = self._write(line)
        if lost is None:
            return verdict, record_id
        if verdict.allowed:
            detail = f"No record can be kept: {lost}"
            verdict = Verdict(False, Reason.LIMIT_REACHED, revision=verdict.revision, detail=detail)
        return verdict, "unrecorded"

    def _write(self, line: Mapping[str, Any]) -> Broken | None:
        """Keep one record; why it was lost, which standard error is told, or None."""
        try:
            self._journal.write(line)
        except Broken as error:
            self._unkept.tell(f"no record can be kept, and nothing new is let through: {error}")
            return error
        return None
