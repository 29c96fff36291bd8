"""HTTP heads and chunked bodies as tables, each also cut at every offset and with a tail glued behind."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.errors import BadClient
from policy.limits import HTTP_HEAD_BYTES, REQUEST_LINE_BYTES
from policy.verdict import Reason
from proxy.http1 import ChunkedBody, HeadBuffer, RequestHead, read_request, read_response
from proxy.refusal import Unspeakable
from tests.proxy.cuts import outcome, ways

LINE = b"POST http://a.b/ HTTP/1.1\r\n"
HOST = b"Host: a.b\r\n"

GOOD = [
    (b"GET http://a.b/ HTTP/1.1\r\n" + HOST + b"\r\n", 0, False),
    (LINE + HOST + b"Content-Length: 5\r\n\r\n", 5, False),
    (LINE + HOST + b"Content-Length: 0\r\n\r\n", 0, False),
    (LINE + HOST + b"Transfer-Encoding: chunked\r\n\r\n", 0, True),
    (LINE + HOST + b"transfer-encoding:CHUNKED \r\n\r\n", 0, True),
    (b"GET http://a.b/ HTTP/1.0\r\n\r\n", 0, False),
    (b"CONNECT a.b:443 HTTP/1.1\r\n\r\n", 0, False),
    (LINE + HOST + b"Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 3\r\n\r\n", 3, False),
    (LINE + HOST + b"X: \xc3\xa9\r\n\r\n", 0, False),
]

SMUGGLED = {
    "length and chunked": LINE + HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunked and length": LINE + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
    "two lengths that differ": LINE + HOST + b"Content-Length: 0\r\nContent-Length: 38\r\n\r\n",
    "two lengths that agree": LINE + HOST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
    "list of lengths": LINE + HOST + b"Content-Length: 5, 5\r\n\r\n",
    "signed length": LINE + HOST + b"Content-Length: +5\r\n\r\n",
    "negative length": LINE + HOST + b"Content-Length: -5\r\n\r\n",
    "hex length": LINE + HOST + b"Content-Length: 0x5\r\n\r\n",
    "empty length": LINE + HOST + b"Content-Length:\r\n\r\n",
    "length over 64 bits": LINE + HOST + b"Content-Length: 99999999999999999999\r\n\r\n",
    "space before colon": LINE + HOST + b"Transfer-Encoding : chunked\r\n\r\n",
    "tab before colon": LINE + HOST + b"Transfer-Encoding\t: chunked\r\n\r\n",
    "chunked is not last": LINE + HOST + b"Transfer-Encoding: chunked, identity\r\n\r\n",
    "identity before chunked": LINE + HOST + b"Transfer-Encoding: identity, chunked\r\n\r\n",
    "chunked twice": LINE + HOST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    "unknown coding": LINE + HOST + b"Transfer-Encoding: xchunked\r\n\r\n",
    "quoted coding": LINE + HOST + b'Transfer-Encoding: "chunked"\r\n\r\n',
    "vertical tab before coding": LINE + HOST + b"Transfer-Encoding: \x0bchunked\r\n\r\n",
    "empty coding": LINE + HOST + b"Transfer-Encoding:\r\n\r\n",
    "chunked in HTTP/1.0": b"POST http://a.b/ HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n",
    "obsolete folding": LINE + HOST + b"X: a\r\n b\r\n\r\n",
    "folded first field": LINE + b" X: a\r\n" + HOST + b"\r\n",
    "bare LF after a field": LINE + b"Host: a.b\nX: y\r\n\r\n",
    "bare LF throughout": b"GET http://a.b/ HTTP/1.1\nHost: a.b\n\n",
    "bare LF at the end": LINE + HOST + b"\n\r\n",
    "bare CR in a value": LINE + HOST + b"X: a\rb\r\n\r\n",
    "NUL in a value": LINE + HOST + b"X: a\0b\r\n\r\n",
    "NUL in a name": LINE + HOST + b"X\0: b\r\n\r\n",
    "control in a value": LINE + HOST + b"X: \x01\r\n\r\n",
    "DEL in a value": LINE + HOST + b"X: \x7f\r\n\r\n",
    "no name": LINE + HOST + b": x\r\n\r\n",
    "space in a name": LINE + HOST + b"X y: z\r\n\r\n",
    "no colon": LINE + HOST + b"Xy\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/2.0": b"GET http://a.b/ HTTP/2.0\r\n\r\n",
    "HTTP/1.2": b"GET http://a.b/ HTTP/1.2\r\n\r\n",
    "HTTP/0.9": b"GET http://a.b/\r\n\r\n",
    "lower-case version": b"GET http://a.b/ http/1.1\r\n\r\n",
    "RTSP": b"DESCRIBE http://a.b/ RTSP/1.0\r\n\r\n",
    "two spaces": b"GET  http://a.b/ HTTP/1.1\r\n\r\n",
    "space behind the version": b"GET http://a.b/ HTTP/1.1 \r\n\r\n",
    "tab in the target": b"GET http://a.b/\t HTTP/1.1\r\n\r\n",
    "control in the target": b"GET http://a.b/\x01 HTTP/1.1\r\n\r\n",
    "not ASCII in the target": b"GET http://a.b/\xff HTTP/1.1\r\n\r\n",
    "unknown method": b"FROB http://a.b/ HTTP/1.1\r\n\r\n",
    "lower-case method": b"get http://a.b/ HTTP/1.1\r\n\r\n",
}


def read_head(parts: list[bytes]) -> tuple[RequestHead, bytes]:
    buffer, rest = HeadBuffer(), b""
    for at, part in enumerate(parts):
        whole = buffer.feed(part)
        if whole:
            rest = whole[1] + b"".join(parts[at + 1 :])
            return read_request(whole[0]), rest
    raise AssertionError("no whole head")


@pytest.mark.parametrize("tail", [b"", b"GET / HTTP/1.1\n\n\0"])
@pytest.mark.parametrize(("data", "length", "chunked"), GOOD)
def test_head_however_it_is_cut(data: bytes, length: int, chunked: bool, tail: bytes) -> None:
    for parts in ways(data + tail):
        head, rest = read_head(parts)
        assert (head.length, head.chunked, rest) == (length, chunked, tail)


@pytest.mark.parametrize("data", SMUGGLED.values(), ids=SMUGGLED)
def test_what_two_readers_read_two_ways_is_refused(data: bytes) -> None:
    for parts in ways(data):
        assert outcome(read_head)(parts) == "bad: request-invalid"


def test_empty_lines_before_a_request_are_ignored() -> None:
    for parts in ways(b"\r\n\r\nGET http://a.b/ HTTP/1.1\r\n\r\n"):
        assert read_head(parts)[0].method == "GET"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET http://a.b/" + b"a" * REQUEST_LINE_BYTES, 414),
        (b"GET http://a.b/" + b"a" * REQUEST_LINE_BYTES + b" HTTP/1.1\r\n\r\n", 414),
        (LINE + b"X: " + b"a" * HTTP_HEAD_BYTES, 431),
        (LINE + b"X: " + b"a" * HTTP_HEAD_BYTES + b"\r\n\r\n", 431),
        (LINE + b"X: y\r\n" * (HTTP_HEAD_BYTES // 6) + b"\r\n", 431),
        (b"A" * 70_000, 414),
    ],
)
def test_too_long(data: bytes, status: int) -> None:
    for parts in ([data], [data[at : at + 100] for at in range(0, len(data), 100)]):
        with pytest.raises(Unspeakable) as caught:
            read_head(parts)
        assert caught.value.codes.http == status


def test_the_longest_request_line_is_read() -> None:
    target = b"http://a.b/" + b"a" * (REQUEST_LINE_BYTES - len(b"GET http://a.b/ HTTP/1.1"))
    head, _ = read_head([b"GET " + target + b" HTTP/1.1\r\n\r\n"])
    assert head.target == target


RESPONSES = [
    (b"HTTP/1.1 200 OK\r\n\r\n", "GET", (200, None, False)),
    (b"HTTP/1.1 200\r\n\r\n", "GET", (200, None, False)),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "GET", (200, 5, False)),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", (200, 0, False)),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", (200, None, True)),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HEAD", (200, 0, False)),
    (b"HTTP/1.1 204 No\r\n\r\n", "GET", (204, 0, False)),
    (b"HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\n", "GET", (304, 0, False)),
    (b"HTTP/1.1 100 Continue\r\n\r\n", "POST", (100, 0, False)),
    (b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", "GET", (101, 0, False)),
    (b"HTTP/1.0 200 OK\r\n\r\n", "GET", (200, None, False)),
]


@pytest.mark.parametrize(("data", "method", "expected"), RESPONSES)
def test_response(data: bytes, method: str, expected: tuple[int, int | None, bool]) -> None:
    head = read_response(data, method)
    assert (head.status, head.length, head.chunked) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, foo\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 O\0K\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\n\r\n",
        b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
    ],
)
def test_response_that_is_not_http(data: bytes) -> None:
    with pytest.raises(BadClient) as caught:
        read_response(data, "GET")
    assert caught.value.reason is Reason.NOT_HTTP


CHUNKED = [
    (b"0\r\n\r\n", b""),
    (b"5\r\nabcde\r\n0\r\n\r\n", b"abcde"),
    (b"5;name=value\r\nabcde\r\n0\r\n\r\n", b"abcde"),
    (b"4\r\n\r\n\r\n\r\n0\r\n\r\n", b"\r\n\r\n"),
    (b"8\r\n0\r\n\r\n\r\n\r\r\n2\r\nab\r\n00\r\nTrailer: x\r\nOther: y\r\n\r\n", b"0\r\n\r\n\r\n\rab"),
    (b"A\r\n0\r\n\r\n\r\n\r\n\r\r\n0\r\n\r\n", b"0\r\n\r\n\r\n\r\n\r"),
]


def decode(parts: list[bytes]) -> tuple[bytes, bytes | None]:
    """The payload, and what came behind the body; None when it never ended."""
    body, payload = ChunkedBody(), b""
    for at, part in enumerate(parts):
        payload += body.feed(part)
        if body.done:
            return payload, body.rest + b"".join(parts[at + 1 :])
    return payload, None


def slowly(data: bytes) -> tuple[bytes, bytes]:
    """The naive twin, for whole bodies that are right."""
    payload = b""
    while True:
        line, _, data = data.partition(b"\r\n")
        size = int(line.split(b";")[0], 16)
        if size == 0:
            break
        payload, data = payload + data[:size], data[size + 2 :]
    while not data.startswith(b"\r\n"):
        data = data.partition(b"\r\n")[2]
    return payload, data[2:]


@pytest.mark.parametrize("tail", [b"", b"\r\n\r\n", b"GET http://evil/ HTTP/1.1\r\n\r\n", b"0\r\n\r\n"])
@pytest.mark.parametrize(("data", "payload"), CHUNKED)
def test_chunked_ends_at_its_last_byte_however_it_is_cut(data: bytes, payload: bytes, tail: bytes) -> None:
    assert slowly(data + tail) == (payload, tail)
    for parts in ways(data + tail):
        assert decode(parts) == (payload, tail)


@given(
    st.lists(st.text("\r\n0a", max_size=9).map(str.encode), max_size=5),
    st.sampled_from([b"", b";x=y"]),
    st.sampled_from([b"", b"T: u\r\n"]),
    st.text("\r\n0a", max_size=9).map(str.encode),
    st.integers(0, 99),
    st.integers(0, 99),
)
def test_chunked_against_the_naive_twin(
    chunks: list[bytes], extension: bytes, trailer: bytes, tail: bytes, one: int, two: int
) -> None:
    data = b"".join(b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks if chunk)
    data += b"0\r\n" + trailer + b"\r\n" + tail
    first, second = sorted((one, two))
    assert decode([data[:first], data[first:second], data[second:]]) == slowly(data)


@pytest.mark.parametrize(
    "data",
    [
        b"5 \r\nabcde\r\n0\r\n\r\n",
        b"5\nabcde\r\n0\r\n\r\n",
        b"0x5\r\nabcde\r\n0\r\n\r\n",
        b"+5\r\nabcde\r\n0\r\n\r\n",
        b"-1\r\nabcde\r\n0\r\n\r\n",
        b"5\r\nabcdeX\r\n0\r\n\r\n",
        b"5\r\nabcde0\r\n\r\n",
        b"FFFFFFFFFFFFFFFFF\r\n",
        b"5;\0\r\nabcde\r\n0\r\n\r\n",
        b"5;\n\r\nabcde\r\n0\r\n\r\n",
        b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"0\r\nX : y\r\n\r\n",
        b"0\r\n X: y\r\n\r\n",
        b"0\r\nX: y\n\r\n",
    ],
)
def test_chunked_that_is_wrong(data: bytes) -> None:
    for parts in ways(data):
        assert outcome(decode)(parts) == "bad: request-invalid"


@pytest.mark.parametrize("endless", [b"0\r\n" + b"X: y\r\n" * 9_000, b"5;" + b"a" * 40_000, b"0\r\nX: " + b"y" * 40_000])
def test_chunked_without_payload_ends_some_time(endless: bytes) -> None:
    parts = [endless[at : at + 50] for at in range(0, len(endless), 50)]
    assert outcome(decode)(parts) == "bad: request-invalid"


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_no_bytes_raise_anything_but_bad_client(parts: list[bytes]) -> None:
    for start in (b"", LINE, LINE + HOST, b"GET http://"):
        whole = start + b"".join(parts) + b"\r\n\r\n"
        outcome(lambda _, whole=whole: read_request(whole[: whole.index(b"\r\n\r\n") + 4]))([])
        outcome(lambda _, whole=whole: read_response(b"HTTP/1.1 200 OK\r\n" + whole, "GET"))([])
    outcome(decode)(parts)
    outcome(decode)([b"5\r\nabcde\r\n0\r\n", *parts])


@given(st.lists(st.tuples(st.text("abX-_ :\t\r\n\0", max_size=6), st.text('ab,;" \t\r\n\0', max_size=8)), max_size=5))
def test_fields_that_are_read_are_the_lines_that_were_written(fields: list[tuple[str, str]]) -> None:
    written = "".join(f"{name}:{value}\r\n" for name, value in fields).encode()
    try:
        head = read_request(b"GET http://a.b/ HTTP/1.1\r\n" + written + b"\r\n")
    except BadClient:
        return
    lines = written.split(b"\r\n")[:-1]
    assert len(head.fields) == len(lines)
    for (_, name, value), line in zip(head.fields, lines, strict=True):
        assert re.fullmatch(rb"[abX_-]+", name)
        assert re.fullmatch(re.escape(name) + rb":[ \t]*" + re.escape(value) + rb"[ \t]*", line)
