"""What came of each attempt: what the client showed, held against what the journal recorded."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from stockade.demo.attempts import Attempt

_NS_A_MS: Final = 1_000_000
_SAID_BYTES: Final = 4_000

type Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trace:
    """What one attempt left in the workspace."""

    began_ms: int
    ended_ms: int
    status: int
    said: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attempt and what came of it; `fault` is empty when that is what had to come."""

    attempt: Attempt
    fault: str
    duration_ms: int = 0
    said: str = ""
    verdict: Record | None = None
    """The verdict's record: the decisive one, when an attempt needed several connections."""
    received_bytes: int = 0
    sent_bytes: int = 0


def read_trace(results: Path, number: int) -> Trace | None:
    """Read what attempt `number` left; None when it did not end."""
    try:
        began, ended, status = (int((results / f"{number}.{part}").read_text()) for part in ("began", "ended", "status"))
        said = (results / f"{number}.said").read_bytes()[:_SAID_BYTES].decode("utf-8", "backslashreplace")
    except (OSError, ValueError):
        return None
    return Trace(began // _NS_A_MS, ended // _NS_A_MS, status, said)


def read_journal(file: Path) -> list[Record]:
    """Every record of a journal."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def judge(attempts: Sequence[Attempt], results: Path, journal: Iterable[Record]) -> list[Outcome]:
    """Hold each attempt's trace against the records of the same moments; the shell tried one at a time."""
    records = list(journal)
    return [_outcome(attempt, read_trace(results, number), records) for number, attempt in enumerate(attempts)]


def _outcome(attempt: Attempt, trace: Trace | None, records: list[Record]) -> Outcome:
    if trace is None:
        return Outcome(attempt, "it did not end")
    verdicts = [
        record for record in records if record["event"] == "verdict" and trace.began_ms <= _moment_ms(record) <= trace.ended_ms + 1
    ]
    ids = {record["id"] for record in verdicts}
    ends = [record for record in records if record["event"] == "end" and record["id"] in ids]
    return Outcome(
        attempt,
        _fault(attempt, trace, verdicts),
        trace.ended_ms - trace.began_ms,
        trace.said,
        _decisive(attempt, verdicts),
        sum(record.get("received_bytes") or 0 for record in ends),
        sum(record.get("sent_bytes") or 0 for record in ends),
    )


def _moment_ms(record: Record) -> int:
    return round(datetime.fromisoformat(record["at"]).timestamp() * 1000)


def _decisive(attempt: Attempt, verdicts: list[Record]) -> Record | None:
    wanted = [each for each in verdicts if (each["reason"], _host(each)) == (attempt.reason, attempt.host)]
    found = wanted or verdicts
    return found[-1] if found else None


def _host(record: Record) -> str:
    destination = record.get("destination")
    return str(destination["host"]) if destination else ""


def _fault(attempt: Attempt, trace: Trace, verdicts: list[Record]) -> str:
    """Why this is not what had to come; empty when it is."""
    if attempt.says not in trace.said:
        return f"the client did not show {attempt.says!r}"
    if attempt.fate == "no way":
        return f"it reached the proxy, which said {verdicts[0]['reason']}" if verdicts else ""
    if not verdicts:
        return "the journal has no record of it"
    last = _decisive(attempt, verdicts)
    assert last is not None
    if last["reason"] != attempt.reason or _host(last) != attempt.host:
        wanted = f"{attempt.reason} for {attempt.host!r}"
        return f"the journal says {last['reason']} for {_host(last)!r}, not {wanted}"
    if attempt.fate == "allowed":
        refused = [record["reason"] for record in verdicts if record["reason"] != "granted"]
        return f"something was refused on the way: {', '.join(refused)}" if refused else ""
    return ""
