"""What an HTTP head asks for, as a table, and every head that is answered 400 or 421."""

import base64

import pytest

from policy.destination import read_authority
from policy.errors import BadClient
from policy.limits import VIA_COUNT
from policy.verdict import Reason, Verdict
from proxy.asked import Asked
from proxy.entry import EntryReader
from proxy.http_head import HttpReader
from tests.proxy.cuts import ways

BASIC = base64.b64encode(b"user:s3cret")


def head(line: str, *fields: str) -> bytes:
    return "\r\n".join([line, *fields, "", ""]).encode("latin-1")


ASKED = [
    (head("CONNECT a.b:443 HTTP/1.1", "Host: a.b:443"), "connect", "a.b:443", None),
    (head("CONNECT a.b:443 HTTP/1.1", "Host: 127.0.0.1:443"), "connect", "a.b:443", None),
    (head("CONNECT A.B.:443 HTTP/1.0"), "connect", "a.b:443", None),
    (head("CONNECT [::1]:22 HTTP/1.1", "Host: x"), "connect", "[::1]:22", None),
    (head("GET http://a.b/x?y=z HTTP/1.1", "Host: a.b"), "http", "a.b:80", "/x?y=z"),
    (head("GET http://a.b HTTP/1.1", "Host: A.b:80"), "http", "a.b:80", "/"),
    (head("GET HTTP://a.b:8080?q HTTP/1.1", "Host: a.b:8080"), "http", "a.b:8080", "/?q"),
    (head("GET http://[::1]/ HTTP/1.1", "Host: [::1]"), "http", "[::1]:80", "/"),
    (head("GET ws://a.b/s HTTP/1.1", "Host: a.b"), "http", "a.b:80", "/s"),
    (head("GET http://a.b/ HTTP/1.0"), "http", "a.b:80", "/"),
    (head("OPTIONS http://a.b HTTP/1.1", "Host: a.b"), "http", "a.b:80", "*"),
    (head("OPTIONS http://a.b/ HTTP/1.1", "Host: a.b"), "http", "a.b:80", "/"),
    (head("GET http://a.b/ HTTP/1.1", "Host: a.b", "Via: 1.1 other, 1.0 third:8080"), "http", "a.b:80", "/"),
]

REFUSED = [
    (head("GET / HTTP/1.1", "Host: a.b"), Reason.REQUEST_INVALID, "whole URL"),
    (head("OPTIONS * HTTP/1.1", "Host: a.b"), Reason.REQUEST_INVALID, "names no host"),
    (head("GET https://a.b/ HTTP/1.1", "Host: a.b"), Reason.REQUEST_INVALID, "CONNECT"),
    (head("GET wss://a.b/ HTTP/1.1", "Host: a.b"), Reason.REQUEST_INVALID, "CONNECT"),
    (head("GET ftp://a.b/ HTTP/1.1", "Host: a.b"), Reason.REQUEST_INVALID, "http://"),
    (head("GET http://a.b/ HTTP/1.1"), Reason.REQUEST_INVALID, "one Host"),
    (head("GET http://a.b/ HTTP/1.1", "Host: a.b", "Host: a.b"), Reason.REQUEST_INVALID, "one Host"),
    (head("GET http://a.b/ HTTP/1.0", "Host: a.b", "Host: c.d"), Reason.REQUEST_INVALID, "one Host"),
    (head("GET http://a.b/ HTTP/1.1", "Host: 127.0.0.1"), Reason.HOST_MISMATCH, "a.b:80"),
    (head("GET http://a.b/ HTTP/1.1", "Host: a.b:81"), Reason.HOST_MISMATCH, "a.b:80"),
    (head("GET http://a.b/c/ HTTP/1.1", "Host: a.b/c"), Reason.HOST_INVALID, ""),
    (head("GET http://a.b?c/ HTTP/1.1", "Host: a.b?c"), Reason.HOST_INVALID, ""),
    (head("GET http:///c HTTP/1.1", "Host: "), Reason.HOST_INVALID, ""),
    (head("GET http://a.b/ HTTP/1.0", "Host: c.d"), Reason.HOST_MISMATCH, "a.b:80"),
    (head("GET http://a.b/ HTTP/1.1", "Host: "), Reason.HOST_INVALID, ""),
    (head("GET http://a.b/ HTTP/1.1", "Host: a.b, c.d"), Reason.HOST_INVALID, ""),
    (head("GET http://u:p@a.b/ HTTP/1.1", "Host: a.b"), Reason.HOST_INVALID, ""),
    (head("GET http://a.b%00.c.d/ HTTP/1.1", "Host: a.b"), Reason.HOST_INVALID, ""),
    (head("GET http://a.b:0/ HTTP/1.1", "Host: a.b"), Reason.PORT_INVALID, ""),
    (head("GET http://a.b/#f HTTP/1.1", "Host: a.b"), Reason.REQUEST_INVALID, "fragment"),
    (head("CONNECT a.b HTTP/1.1", "Host: a.b"), Reason.PORT_INVALID, ""),
    (head("CONNECT [a.b]:443 HTTP/1.1", "Host: a.b"), Reason.HOST_INVALID, ""),
    (head("CONNECT http://a.b/ HTTP/1.1", "Host: a.b"), Reason.PORT_INVALID, ""),
    (head("CONNECT a.b..:443 HTTP/1.1"), Reason.HOST_INVALID, ""),
    (head("CONNECT " + "a" * 300 + ":443 HTTP/1.1"), Reason.HOST_INVALID, ""),
    (head("CONNECT u@a.b:443 HTTP/1.1"), Reason.HOST_INVALID, ""),
    (head("CONNECT a.b:443 HTTP/1.1", "Content-Length: 5"), Reason.REQUEST_INVALID, "no body"),
    (head("CONNECT a.b:443 HTTP/1.1", "Transfer-Encoding: chunked"), Reason.REQUEST_INVALID, "no body"),
    (head("GET http://a.b/ HTTP/1.1", "Host: a.b", "Via: 1.1 self"), Reason.REQUEST_INVALID, "loop"),
    (
        head("GET http://a.b/ HTTP/1.1", "Host: a.b", "Via: 1.0 x,1.1  Stockade (c)"),
        Reason.REQUEST_INVALID,
        "loop",
    ),
    (head("CONNECT a.b:443 HTTP/1.1", "Via: 1.1 stockade"), Reason.REQUEST_INVALID, "loop"),
    (
        head("GET http://a.b/ HTTP/1.1", "Host: a.b", "Via: 1.1 x" + ", 1.1 y" * VIA_COUNT),
        Reason.REQUEST_INVALID,
        "loop",
    ),
    (
        head("TRACE http://a.b/ HTTP/1.1", "Host: a.b", "Max-Forwards: 0"),
        Reason.REQUEST_INVALID,
        "Max-Forwards",
    ),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Reason.REQUEST_INVALID, ""),
]


def read(parts: list[bytes], reader: HttpReader | EntryReader | None = None) -> tuple[Asked | None, bytes]:
    reader, asked, rest = reader or EntryReader(), None, b""
    for part in parts:
        if asked is not None:
            rest += part
        else:
            step = reader.feed(part)
            assert step.send == b""
            asked = step.asked
    return asked, (asked.rest if asked else b"") + rest


@pytest.mark.parametrize("tail", [b"", b"\x16\x03\x01 hello", b"GET http://other/ HTTP/1.1\r\n\r\n"])
@pytest.mark.parametrize(("data", "entry", "destination", "path"), ASKED)
def test_asked_however_it_is_cut(data: bytes, entry: str, destination: str, path: str, tail: bytes) -> None:
    for parts in ways(data + tail):
        asked, rest = read(parts)
        assert asked is not None
        assert (asked.entry, asked.destination, asked.path) == (entry, read_authority(destination), path)
        assert rest == tail


@pytest.mark.parametrize(("data", "reason", "says"), REFUSED)
def test_refused_however_it_is_cut(data: bytes, reason: Reason, says: str) -> None:
    for parts in ways(data):
        reader = EntryReader()
        with pytest.raises(BadClient) as caught:
            read(parts, reader)
        bad = caught.value
        assert bad.reason is reason
        assert says in bad.detail
        said = reader.refused(bad, Verdict(False, bad.reason, detail=bad.detail), "r1")
        assert said.startswith(b"HTTP/1.1 421 " if reason is Reason.HOST_MISMATCH else b"HTTP/1.1 400 ")
        assert b"\r\nConnection: close\r\n" in said


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (b"Basic " + BASIC, "user"),
        (b"basic  " + BASIC, "user"),
        (b"Basic ===", None),
        (b"Basic \xff", None),
        (b"Bearer x", None),
        (b"", None),
    ],
)
def test_a_credential_is_a_label(value: bytes, label: str | None) -> None:
    data = b"CONNECT a.b:443 HTTP/1.1\r\nProxy-Authorization: %b\r\n\r\n" % value
    asked, _ = read([data])
    assert asked is not None
    assert asked.label == label


def test_max_forwards_counts_down() -> None:
    asked, _ = read([head("TRACE http://a.b/ HTTP/1.1", "Host: a.b", "Max-Forwards: 2")])
    assert asked is not None
    assert asked.head is not None
    assert asked.head.values(b"max-forwards") == [b"1"]


WITHIN = read_authority("a.b:80")


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (head("GET /x?y HTTP/1.1", "Host: a.b"), "/x?y"),
        (head("GET /x HTTP/1.1", "Host: a.b:80"), "/x"),
        (head("GET http://a.b/x HTTP/1.1", "Host: a.b"), "/x"),
        (head("OPTIONS * HTTP/1.1", "Host: a.b"), "*"),
        (head("GET / HTTP/1.0"), "/"),
    ],
)
def test_inside_a_tunnel(data: bytes, path: str) -> None:
    for parts in ways(data):
        asked, _ = read(parts, HttpReader(WITHIN))
        assert asked is not None
        assert (asked.destination, asked.path) == (WITHIN, path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (head("GET /x HTTP/1.1", "Host: c.d"), Reason.HOST_MISMATCH),
        (head("GET /x HTTP/1.1", "Host: a.b:81"), Reason.HOST_MISMATCH),
        (head("GET http://c.d/x HTTP/1.1", "Host: c.d"), Reason.HOST_MISMATCH),
        (head("GET http://c.d/x HTTP/1.1", "Host: a.b"), Reason.HOST_MISMATCH),
        (head("GET /x HTTP/1.1"), Reason.REQUEST_INVALID),
        (head("GET /x#y HTTP/1.1", "Host: a.b"), Reason.REQUEST_INVALID),
        (head("GET * HTTP/1.1", "Host: a.b"), Reason.REQUEST_INVALID),
        (head("GET https://a.b/ HTTP/1.1", "Host: a.b"), Reason.REQUEST_INVALID),
        (head("CONNECT a.b:80 HTTP/1.1", "Host: a.b"), Reason.REQUEST_INVALID),
        (head("PRI * HTTP/2.0"), Reason.REQUEST_INVALID),
    ],
)
def test_inside_a_tunnel_nothing_else_is_named(data: bytes, reason: Reason) -> None:
    with pytest.raises(BadClient) as caught:
        read([data], HttpReader(WITHIN))
    assert caught.value.reason is reason
