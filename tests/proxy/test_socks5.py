"""SOCKS5 as a table: what the client sends, what it gets back, and what was asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.destination import read_authority
from policy.errors import BadClient
from policy.verdict import Reason, Verdict
from proxy.asked import Asked
from proxy.entry import EntryReader
from tests.proxy.cuts import outcome, ways

NONE = b"\x05\x01\x00"
NAME = b"\x05\x01\x00\x03\x0bexample.com\x01\xbb"

ASKED = [
    (NONE + NAME, b"\x05\x00", "example.com:443", None),
    (b"\x05\x02\x00\x02\x01\x04user\x06secret" + NAME, b"\x05\x02\x01\x00", "example.com:443", "user"),
    (b"\x05\x01\x02\x01\x00\x00" + NAME, b"\x05\x02\x01\x00", "example.com:443", ""),
    (b"\x05\x03\x01\x80\x00" + NAME, b"\x05\x00", "example.com:443", None),
    (NONE + b"\x05\x01\x00\x01\x08\x08\x08\x08\x00\x50", b"\x05\x00", "8.8.8.8:80", None),
    (NONE + b"\x05\x01\x00\x04" + bytes(15) + b"\x01\x00\x50", b"\x05\x00", "[::1]:80", None),
    (NONE + b"\x05\x01\x00\x04" + bytes(10) + b"\xff\xff\x7f\0\0\1\0\x50", b"\x05\x00", "127.0.0.1:80", None),
    (NONE + b"\x05\x01\x00\x03\x0cEXAMPLE.com.\x00\x16", b"\x05\x00", "example.com:22", None),
    (NONE + b"\x05\x01\x00\x03\x03::1\x00\x16", b"\x05\x00", "[::1]:22", None),
]


def name(host: bytes, port: bytes = b"\x01\xbb") -> bytes:
    return NONE + b"\x05\x01\x00\x03" + bytes((len(host),)) + host + port


def rep(code: int) -> bytes:
    return bytes((5, code, 0, 1, 0, 0, 0, 0, 0, 0))


REFUSED = [
    (b"\x05\x00", Reason.PROTOCOL_REFUSED, b"\x05\xff"),
    (b"\x05\x01\x01", Reason.PROTOCOL_REFUSED, b"\x05\xff"),
    (b"\x05\x01\x02\x05", Reason.REQUEST_INVALID, b"\x01\x01"),
    (NONE + b"\x05\x02\x00\x01\x08\x08\x08\x08\x01\xbb", Reason.PROTOCOL_REFUSED, rep(7)),
    (NONE + b"\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00", Reason.PROTOCOL_REFUSED, rep(7)),
    (NONE + b"\x05\x01\x00\x02", Reason.PROTOCOL_REFUSED, rep(8)),
    (NONE + b"\x04\x01", Reason.REQUEST_INVALID, rep(1)),
    (NONE + b"\x05\x01\x01", Reason.REQUEST_INVALID, rep(1)),
    (name(b""), Reason.HOST_INVALID, rep(1)),
    (name(b"evil.example.net\0.example.com"), Reason.HOST_INVALID, rep(1)),
    (name(b"example.com\0"), Reason.HOST_INVALID, rep(1)),
    (name(b"example.com\r\nHost: x"), Reason.HOST_INVALID, rep(1)),
    (name(b"user@example.com"), Reason.HOST_INVALID, rep(1)),
    (name(b"example.com:22"), Reason.HOST_INVALID, rep(1)),
    (name(b"[::1]"), Reason.HOST_INVALID, rep(1)),
    (name(b"2130706433"), Reason.HOST_INVALID, rep(1)),
    (name(b"\xff\xfe"), Reason.HOST_INVALID, rep(1)),
    (name(b"a" * 255), Reason.HOST_INVALID, rep(1)),
    (name(b".".join([b"a" * 63] * 3 + [b"a" * 62])), Reason.HOST_INVALID, rep(1)),
    (name(b"example.com", b"\0\0"), Reason.PORT_INVALID, rep(1)),
]


def read(parts: list[bytes]) -> tuple[bytes, Asked | None, bytes]:
    """Everything sent back, what was asked, and the bytes behind it wherever they were cut."""
    reader, sent, asked, rest = EntryReader(), b"", None, b""
    for part in parts:
        if asked is not None:
            rest += part
            continue
        step = reader.feed(part)
        sent, asked = sent + step.send, step.asked
    return sent, asked, (asked.rest if asked else b"") + rest


@pytest.mark.parametrize("tail", [b"", b"\x16\x03\x01 first data"])
@pytest.mark.parametrize(("data", "sent", "destination", "label"), ASKED)
def test_asked_however_it_is_cut(data: bytes, sent: bytes, destination: str, label: str, tail: bytes) -> None:
    for parts in ways(data + tail):
        got, asked, rest = read(parts)
        assert (got, rest) == (sent, tail)
        assert asked is not None
        assert (asked.entry, asked.destination, asked.label) == ("socks5", read_authority(destination), label)


@pytest.mark.parametrize("tail", [b"", b"more"])
@pytest.mark.parametrize(("data", "reason", "reply"), REFUSED)
def test_refused_however_it_is_cut(data: bytes, reason: Reason, reply: bytes, tail: bytes) -> None:
    heard = set()
    for parts in ways(data + tail):
        reader, bad, sent = EntryReader(), None, b""
        for part in parts:
            try:
                sent += reader.feed(part).send
            except BadClient as caught:
                bad = caught
                break
        assert bad is not None
        assert bad.reason is reason
        said = sent + reader.refused(bad, Verdict(False, bad.reason, detail=bad.detail), "r1")
        assert said.endswith(reply)
        heard.add(said)
    assert len(heard) == 1  # the client hears the same, the method chosen included, however its bytes came


def test_the_password_is_kept_nowhere() -> None:
    reader = EntryReader()
    step = reader.feed(b"\x05\x01\x02\x01\x04user\x06secret" + NAME)
    kept = repr([step.asked, vars(reader), vars(reader._reader)])
    assert "user" in kept
    assert "secret" not in kept


@pytest.mark.parametrize("whole", [row[0] for row in ASKED])
def test_half_a_request_asks_nothing(whole: bytes) -> None:
    for at in range(len(whole)):
        assert read([whole[:at]])[1] is None


@given(st.lists(st.binary(max_size=24), max_size=8))
def test_no_bytes_raise_anything_but_bad_client(parts: list[bytes]) -> None:
    outcome(read)([b"\x05", *parts])
    outcome(read)([NONE, *parts])
    outcome(read)([NONE + b"\x05\x01\x00\x03", *parts])
