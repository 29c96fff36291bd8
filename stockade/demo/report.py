"""How the demonstration is shown: a table for people, one object for programs."""

from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from stockade.demo.outcome import Outcome
from stockade.demo.stage import Played

_COLOURS: Final = {"allowed": "green", "refused": "yellow", "no way": "blue"}

_WIDE_COLUMNS: Final = 110


def show(played: Played, console: Console) -> None:
    """Print the table, the canaries, where to read on, and everything that did not come out as it had to."""
    console.print(_table(played, beside=console.width >= _WIDE_COLUMNS))
    counted = len(played.outcomes)
    console.print(f"{counted} attempts in {played.duration_s:.1f} s, {played.set_up_s:.1f} s of it to set up.")
    touched = sum(played.canaries.values())
    console.print(
        f"Canaries touched: [{'red' if touched else 'bold green'}]{touched}[/] "
        "(loopback, private, link-local, metadata and unlisted public addresses; any port, TCP, UDP and ping)"
    )
    console.print(f"DNS questions for names that no grant speaks for: {len(played.asked_in_vain)}")
    for label, file in (
        ("policy", played.policy_file),
        ("the shell's script", played.script_file),
        ("journal", played.journal_file),
    ):
        console.print(f"{label}: {file}", soft_wrap=True, markup=False, highlight=False)
    for line in wrong(played):
        console.print(f"NOT AS EXPECTED: {line}", style="red", soft_wrap=True, markup=False)


def _table(played: Played, *, beside: bool) -> Table:
    """One row for each attempt, with the reason in a column of its own or, where that is narrow, under the title."""
    table = Table(title="What the confined shell tried", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("#", justify="right")
    table.add_column("attempt", no_wrap=beside)
    table.add_column("came of it", no_wrap=True)
    if beside:
        table.add_column("why")
    for heading in ("bytes in", "ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, one in enumerate(played.outcomes, 1):
        colour = "red" if one.fault else _COLOURS[one.attempt.fate]
        title, reason = escape(one.attempt.title), escape(one.fault or why(one))
        table.add_row(
            str(number),
            title if beside else Group(title, Padding(f"[dim]{reason}[/]", (0, 0, 0, 2))),
            f"[{colour}]{'UNEXPECTED' if one.fault else one.attempt.fate}[/]",
            *((reason,) if beside else ()),
            f"{one.received_bytes:,}" if one.attempt.fate == "allowed" else "",
            str(one.duration_ms),
        )
    return table


def wrong(played: Played) -> list[str]:
    """Every way in which it did not come out as it had to, one line each."""
    lines = [
        f"{one.attempt.title}: {one.fault}. Command: {one.attempt.shell} Said: {one.said[-400:].strip()!r}"
        for one in played.outcomes
        if one.fault
    ]
    lines += [f"canary {place} was touched {count} times" for place, count in played.canaries.items()]
    lines += [f"DNS was asked for {name}, which no grant speaks for" for name in played.asked_in_vain]
    return [*lines, *played.faults]


def why(one: Outcome) -> str:
    """Name the grant that let it through, or the reason and rule that did not, or the kernel's own word."""
    if one.attempt.fate == "no way":
        return "no route: there is no interface but lo in the sandbox"
    record = one.verdict or {}
    if one.attempt.fate == "allowed":
        return f"grant {record.get('grant')!r}"
    rule = record.get("rule") or record.get("detail") or ""
    return f"{record.get('reason')}: {rule}" if rule else str(record.get("reason"))


def as_object(played: Played) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "as_expected": played.as_expected,
        "attempts": [
            {
                "title": one.attempt.title,
                "shell": one.attempt.shell,
                "expected": one.attempt.fate,
                "reason": None if one.attempt.fate == "no way" else one.attempt.reason,
                "fault": one.fault or None,
                "why": why(one),
                "duration_ms": one.duration_ms,
                "received_bytes": one.received_bytes,
                "sent_bytes": one.sent_bytes,
                "said": one.said,
                "record": one.verdict,
            }
            for one in played.outcomes
        ],
        "canaries": played.canaries,
        "asked_in_vain": list(played.asked_in_vain),
        "faults": wrong(played),
        "duration_s": round(played.duration_s, 3),
        "set_up_s": round(played.set_up_s, 3),
        "policy": str(played.policy_file),
        "script": str(played.script_file),
        "journal": str(played.journal_file),
    }
