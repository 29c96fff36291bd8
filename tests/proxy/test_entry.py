"""The first byte decides, and every wrong one is answered at once in words the client's protocol has."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.errors import BadClient
from policy.verdict import Reason, Verdict
from proxy.entry import EntryReader
from tests.proxy.cuts import outcome


def refusal_of(data: bytes) -> tuple[EntryReader, BadClient, bytes]:
    reader = EntryReader()
    with pytest.raises(BadClient) as caught:
        reader.feed(data)
    bad = caught.value
    return reader, bad, reader.refused(bad, Verdict(False, bad.reason, detail=bad.detail), "r1")


def test_socks4_gets_reply_91() -> None:
    for data in (b"\x04", b"\x04\x01\x01\xbb\x00\x00\x00\x01\x00a.b\x00"):
        reader, bad, said = refusal_of(data)
        assert (reader.entry, bad.reason) == ("socks4", Reason.PROTOCOL_REFUSED)
        assert said == b"\x00\x5b\x00\x00\x00\x00\x00\x00"


def test_tls_to_the_proxy_gets_a_fatal_alert() -> None:
    reader, bad, said = refusal_of(b"\x16\x03\x01\x02\x00")
    assert (reader.entry, bad.reason) == ("tls", Reason.PROTOCOL_REFUSED)
    assert said == b"\x15\x03\x01\x00\x02\x02\x28"


@pytest.mark.parametrize("first", [b"\x00", b"\x01", b"\x80", b"\xff", b" ", b"\r\n", b"{", b"1", b"\x06"])
def test_anything_else_gets_a_400_that_says_what_is_spoken(first: bytes) -> None:
    reader, bad, said = refusal_of(first)
    assert (reader.entry, bad.reason) == ("http", Reason.NOT_HTTP)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"SOCKS5" in said.partition(b"\r\n\r\n")[2]
    assert b"CONNECT" in said.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"EHLO a.b\r\n\r\n",
        b"hello\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"A" * 9_000,
    ],
)
def test_letters_that_are_no_http_are_answered_without_waiting(data: bytes) -> None:
    _, _, said = refusal_of(data)
    assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 414 "))


def test_a_head_that_was_read_decides_the_form_of_its_refusal() -> None:
    _, _, said = refusal_of(b"GET / HTTP/1.1\r\nHost: a.b\r\nAccept: application/json\r\n\r\n")
    fields, _, body = said.partition(b"\r\n\r\n")
    assert b"Content-Type: application/problem+json" in fields
    assert json.loads(body)["reason"] == "request-invalid"


def test_nothing_said_is_nothing_read() -> None:
    reader = EntryReader()
    assert reader.feed(b"").asked is None
    assert reader.entry == "http"


@given(st.lists(st.binary(max_size=30), max_size=6))
def test_no_bytes_raise_anything_but_bad_client(parts: list[bytes]) -> None:
    def feed(parts: list[bytes]) -> None:
        reader = EntryReader()
        for part in parts:
            try:
                if reader.feed(part).asked:
                    return
            except BadClient as bad:
                assert reader.refused(bad, Verdict(False, bad.reason, detail=bad.detail), "r1")
                raise

    for start in (b"", b"\x05", b"GET http://", b"CONNECT "):
        outcome(feed)([start, *parts, b"\r\n\r\n"])
