"""Records: whole, valid JSON, and unbroken by hostile text."""

import json
from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from policy.answer import Pin
from policy.destination import Destination
from policy.limits import SHOWN_CHARS
from policy.record import clean, end, entry, moment, record_id
from policy.verdict import Reason, Verdict

DESTINATION = Destination("pypi.org", 443)
GRANTED = Verdict(True, Reason.GRANTED, "python packages", layer="p.toml", revision="abc")


def test_verdict_record():
    found = entry(
        "r-1", 1_800_000_000.1234, "s1", "connect", DESTINATION, GRANTED,
        pin=Pin("pypi.org", (IPv4Address("151.101.0.223"),), 443), peer="151.101.0.223", method="GET", path="/", tier="tunnel",
    )  # fmt: skip
    assert found == {
        "id": "r-1", "at": "2027-01-15T08:00:00.123Z", "event": "verdict", "session": "s1", "entry": "connect",
        "destination": {"host": "pypi.org", "port": 443}, "verdict": "allow", "reason": "granted", "grant": "python packages",
        "rule": None, "layer": "p.toml", "revision": "abc", "detail": "", "address": None, "would_refuse": None,
        "pin": ["151.101.0.223"], "peer": "151.101.0.223", "method": "GET", "path": "/", "tier": "tunnel",
    }  # fmt: skip


def test_refusal_record():
    verdict = Verdict(
        False, Reason.ADDRESS_PRIVATE, None, "10.0.0.0/8", "p.toml", "abc", "why", IPv4Address("10.0.0.1")
    )
    found = entry("r", 0.0, "s", "socks5", None, verdict)
    assert (found["verdict"], found["reason"], found["destination"], found["address"]) == (
        "refuse",
        "address-private",
        None,
        "10.0.0.1",
    )
    report = entry("r", 0.0, "s", "http", DESTINATION, Verdict(True, Reason.GRANTED, would_refuse=Reason.NOT_GRANTED))
    assert (report["verdict"], report["would_refuse"]) == ("allow", "not-granted")
    assert all(type(value) in (str, int, dict, list, type(None)) for value in report.values()), "JSON's own types only"


def test_end_record():
    found = end(
        "r",
        0.0,
        "s",
        sent_bytes=1,
        received_bytes=2,
        duration_s=1.23456789,
        closed_by="client",
        peer="1.1.1.1",
        tier="tunnel",
    )
    assert found == {
        "id": "r", "at": "1970-01-01T00:00:00.000Z", "event": "end", "session": "s", "peer": "1.1.1.1", "tier": "tunnel",
        "sent_bytes": 1, "received_bytes": 2, "duration_s": 1.234568, "closed_by": "client",
    }  # fmt: skip


def test_ids_sort_as_they_were_counted():
    ids = [record_id("p", number) for number in (0, 1, 9, 10, 255, 256, 2**32, 2**39)]
    assert ids == sorted(set(ids))


def test_ux06_hostile_text_stays_one_field():
    """UX-06: line ends, escapes, quotes and right-to-left marks are written as escapes, and cut."""
    assert clean("a\r\nALLOW admin") == "a\\r\\nALLOW admin"
    assert clean("\x1b[2J") == "\\x1b[2J"
    assert clean("\u202egnp.exe") == "\\u202egnp.exe"
    assert clean("x" * 10_000) == "x" * SHOWN_CHARS + "…"
    assert clean(None) is None


@given(st.text(st.characters(codec=None), max_size=600))
def test_any_text_makes_one_line_of_json(text):
    verdict = Verdict(False, Reason.NOT_GRANTED, text, text, text, "r", text)
    record = entry("r", 0.0, text, text, DESTINATION, verdict, peer=text, method=text, path=text, tier=text)
    line = json.dumps(record, ensure_ascii=False)
    assert "\n" not in line and json.loads(line) == record
    for key in ("session", "entry", "grant", "rule", "layer", "detail", "peer", "method", "path", "tier"):
        value = record[key].removesuffix("…")
        assert value.isascii() and value.isprintable() and len(value) <= SHOWN_CHARS


@given(st.floats(0, 4_000_000_000))
def test_moments_are_rfc3339(at_s):
    text = moment(at_s)
    assert len(text) == 24 and text.endswith("Z") and text[10] == "T" and text[19] == "."
