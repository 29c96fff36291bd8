"""Refusals: POLICY §5 said in HTTP and SOCKS, what to write, and no way for hostile text to break out."""

import json
import re
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.destination import Destination, read_authority
from policy.limits import REASON_PHRASE_CHARS
from policy.verdict import CODES, Reason, Verdict
from proxy.refusal import printable, render

EVIL = read_authority("evil.example.net:8443")
REFUSALS = [reason for reason in Reason if reason is not Reason.GRANTED]


def parts(said: bytes) -> tuple[str, dict[str, str], bytes]:
    head, _, body = said.partition(b"\r\n\r\n")
    line, *fields = head.decode("ascii").split("\r\n")
    return line, {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}, body


@pytest.mark.parametrize("reason", REFUSALS)
def test_http_says_the_status_and_error_of_the_table(reason: Reason) -> None:
    said = render("connect", Verdict(False, reason), EVIL, "r-17")
    codes = CODES[reason]
    if codes.http is None:
        assert said == b""
        return
    line, fields, body = parts(said)
    assert line.startswith(f"HTTP/1.1 {codes.http} ")
    assert str(reason) in line
    assert "evil.example.net:8443" in line
    assert fields["proxy-status"].startswith(f'stockade; error={codes.proxy_status}; details="')
    assert int(fields["content-length"]) == len(body)
    assert fields["connection"] == "close"
    assert b"r-17" in body
    assert ("retry-after" in fields) == (codes.http in (429, 503))


@pytest.mark.parametrize("reason", REFUSALS)
def test_socks_says_the_reply_of_the_table(reason: Reason) -> None:
    said = render("socks5", Verdict(False, reason), EVIL, "r-17")
    reply = CODES[reason].socks
    assert said == (b"" if reply is None else bytes((5, reply, 0, 1, 0, 0, 0, 0, 0, 0)))


def test_the_text_says_what_was_asked_why_and_what_to_write() -> None:
    verdict = Verdict(False, Reason.NOT_GRANTED, layer="team.toml", detail="No grant names this host.")
    line, fields, body = parts(render("http", verdict, EVIL, "r-17"))
    assert line == "HTTP/1.1 403 Refused by policy: not-granted evil.example.net:8443"
    assert fields["content-type"].startswith("text/plain")
    assert body.decode() == (
        "Stockade refused evil.example.net:8443: not-granted.\n"
        "Why: No grant names this host.\n"
        "Policy: team.toml\n"
        "Record: r-17\n"
        'To grant it, write in a [[grant]]: hosts = ["evil.example.net"], ports = [8443]\n'
    )


def test_json_says_the_same() -> None:
    verdict = Verdict(False, Reason.REFUSED_BY_RULE, rule="*.example.net", layer="org.toml", detail="A rule.")
    line, fields, body = parts(render("connect", verdict, EVIL, "r-17", accepts_json=True))
    assert line == "HTTP/1.1 403 Refused by policy: refused-by-rule evil.example.net:8443 (*.example.net)"
    assert fields["content-type"] == "application/problem+json"
    problem = json.loads(body)
    assert {key: problem[key] for key in ("title", "status", "asked", "reason", "rule", "layer", "record")} == {
        "title": "Refused by policy",
        "status": 403,
        "asked": "evil.example.net:8443",
        "reason": "refused-by-rule",
        "rule": "*.example.net",
        "layer": "org.toml",
        "record": "r-17",
    }


@pytest.mark.parametrize("reason", [Reason.ADDRESS_LOOPBACK, Reason.ADDRESS_METADATA, Reason.ADDRESS_OWN])
def test_the_hard_floor_is_never_for_sale(reason: Reason) -> None:
    assert b"grant" not in render("http", Verdict(False, reason), EVIL, "r")


def test_an_answer_to_head_has_no_body_but_its_length() -> None:
    said = render("http", Verdict(False, Reason.NOT_GRANTED), EVIL, "r", keep=True, body=False)
    _, fields, body = parts(said)
    assert body == b""
    assert int(fields["content-length"]) > 0
    assert "connection" not in fields


HOSTILE = [
    "a\r\nX: y",
    "\x1b[31m\x07",
    '"; error=granted; x="',
    "\\",
    "\u202eevil",
    "é" * 999,
    "\0",
    "\ud800",
    "a" * 10_000,
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("accepts_json", [True, False])
def test_hostile_text_stays_text(text: str, accepts_json: bool) -> None:
    verdict = Verdict(False, Reason.HOST_INVALID, detail=text, rule=text, grant=text, layer=text)
    for destination in (None, EVIL):
        said = render("http", verdict, destination, text, accepts_json=accepts_json)
        line, fields, body = parts(said)
        assert len(line) <= REASON_PHRASE_CHARS + len("HTTP/1.1 400 ")
        assert set(fields) <= {
            "proxy-status",
            "content-type",
            "content-length",
            "cache-control",
            "connection",
        }
        assert re.fullmatch(rb"[\x20-\x7e\r\n]*", said)
        assert len(said) < 8_192
        assert re.fullmatch(r'stockade; error=[a-z_]+; details="(?:[^"\\]|\\["\\])*"', fields["proxy-status"])
        if accepts_json:
            assert json.loads(body)["reason"] == "host-invalid"
        else:
            assert b"\r" not in body


@given(st.text(), st.integers(4, 50))
def test_printable_is_printable_and_short(text: str, most: int) -> None:
    safe = printable(text, most)
    assert len(safe) <= most
    assert all(" " <= char <= "~" for char in safe)


@given(st.sampled_from(REFUSALS), st.text(), st.sampled_from([None, EVIL, Destination(ip_address("::1"), 1)]))
def test_every_verdict_can_be_said(reason: Reason, text: str, destination: Destination | None) -> None:
    verdict = Verdict(False, reason, detail=text, rule=text or None, grant=text or None, address=ip_address("10.0.0.1"))
    for entry in ("http", "connect", "socks5", "socks4", "tls"):
        for accepts_json in (True, False):
            assert isinstance(render(entry, verdict, destination, "r", accepts_json=accepts_json), bytes)
