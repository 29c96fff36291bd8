"""One record per verdict and one per connection's end, as a JSON object that no hostile text can break."""

from datetime import UTC, datetime
from typing import Any

from policy.answer import Pin
from policy.destination import Destination
from policy.host import Address
from policy.limits import SHOWN_CHARS
from policy.quote import escape
from policy.verdict import Verdict


def record_id(prefix: str, number: int) -> str:
    """The `number`th id under `prefix`: unique while the prefix is, and sorted as text in the order of the numbers.

    Whoever counts also picks the prefix, once per process, at random and beginning with its start time.
    """
    return f"{prefix}-{number:010x}"


def entry(
    record_id: str,
    at_s: float,
    session: str,
    entry: str,
    destination: Destination | None,
    verdict: Verdict,
    *,
    pin: Pin | None = None,
    peer: str | None = None,
    method: str | None = None,
    path: str | None = None,
    tier: str | None = None,
) -> dict[str, Any]:
    """The record of one verdict. `at_s` is Unix time; `entry` the way in: socks5, connect, http, …"""
    return {
        "id": record_id,
        "at": moment(at_s),
        "event": "verdict",
        "session": clean(session),
        "entry": clean(entry),
        "destination": None if destination is None else {"host": str(destination.host), "port": destination.port},
        "verdict": "allow" if verdict.allowed else "refuse",
        "reason": verdict.reason.value,
        "grant": clean(verdict.grant),
        "rule": clean(verdict.rule),
        "layer": clean(verdict.layer),
        "revision": verdict.revision,
        "detail": clean(verdict.detail),
        "address": _text(verdict.address),
        "would_refuse": verdict.would_refuse.value if verdict.would_refuse else None,
        "pin": [str(address) for address in pin.addresses] if pin else None,
        "peer": clean(peer),
        "method": clean(method),
        "path": clean(path),
        "tier": clean(tier),
    }


def end(
    record_id: str,
    at_s: float,
    session: str,
    *,
    sent_bytes: int,
    received_bytes: int,
    duration_s: float,
    closed_by: str,
    peer: str | None = None,
    tier: str | None = None,
) -> dict[str, Any]:
    """The record of a connection's end; `record_id` is its verdict's. Bytes are as the client sees them."""
    return {
        "id": record_id,
        "at": moment(at_s),
        "event": "end",
        "session": clean(session),
        "peer": clean(peer),
        "tier": clean(tier),
        "sent_bytes": sent_bytes,
        "received_bytes": received_bytes,
        "duration_s": round(duration_s, 6),
        "closed_by": clean(closed_by),
    }


def moment(at_s: float) -> str:
    """Unix time in RFC 3339, UTC, milliseconds."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clean(text: str | None) -> str | None:
    """`text` with every control and non-ASCII character escaped, cut at SHOWN_CHARS; None stays None."""
    if text is None or (len(text) <= SHOWN_CHARS and text.isascii() and text.isprintable()):
        return text
    cut = escape(text[:SHOWN_CHARS])
    return cut[:SHOWN_CHARS] + "…" if len(text) > SHOWN_CHARS or len(cut) > SHOWN_CHARS else cut


def _text(address: Address | None) -> str | None:
    return None if address is None else str(address)
