"""An exchange sans I/O: bytes from the upstream, cut at every offset, give the client the same message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.errors import BadClient
from policy.limits import HTTP_INTERIM_COUNT
from policy.verdict import Reason
from proxy.exchange import Exchange
from proxy.http1 import read_request
from proxy.http_head import ask
from tests.proxy.cuts import ways
from tests.proxy.test_http1 import slowly


def exchange(method: str = "GET", *fields: str, minor: int = 1) -> Exchange:
    lines = [f"{method} http://a.b/x HTTP/1.{minor}", "Host: a.b", *fields, "", ""]
    head = read_request("\r\n".join(lines).encode())
    return Exchange(ask(head, b""), head)


def plain(said: bytes) -> tuple[bytes, bytes]:
    """The head, and the payload whatever its framing."""
    head, _, body = said.rpartition(b"\r\n\r\n") if b"chunked" not in said else said.partition(b"\r\n\r\n")
    if b"chunked" in head:
        body, rest = slowly(body)
        assert rest == b""
    return head, body


OK = b"HTTP/1.1 200 OK\r\n"
SAID = [
    (OK + b"Content-Length: 5\r\n\r\nabcde", b"abcde", (True, True, True)),
    (OK + b"Content-Length: 5\r\nConnection: close\r\n\r\nabcde", b"abcde", (True, True, False)),
    (
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: x\r\n\r\n",
        b"abcde",
        (True, True, True),
    ),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nabcde", b"abcde", (True, True, False)),
    (OK + b"\r\nabcde", b"abcde", (False, False, False)),
    (OK + b"Content-Length: 5\r\n\r\nabcdeHTTP/1.1 200 OK\r\n\r\npoison", b"abcde", (True, True, False)),
    (OK + b"Content-Length: 0\r\n\r\n", b"", (True, True, True)),
]


@pytest.mark.parametrize("minor", [0, 1])
@pytest.mark.parametrize(("said", "payload", "ends"), SAID)
def test_response_however_it_is_cut(said: bytes, payload: bytes, ends: tuple[bool, bool, bool], minor: int) -> None:
    for parts in ways(said):
        under_way = exchange(minor=minor)
        got = b""
        for part in parts:
            if under_way.is_over:
                break  # the connection takes no more from this upstream
            got += under_way.receive(part)
        head, body = plain(got)
        assert body == payload
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert (under_way.is_over, under_way.keeps_client) == (ends[0], ends[1] and minor == 1)
        if parts == [said]:
            assert under_way.keeps_upstream == ends[2]
        assert (b"Connection: close" in head) == (not under_way.keeps_client)


@pytest.mark.parametrize("said", [said for said, _, _ in SAID])
def test_a_response_that_ends_early_is_only_whole_when_its_end_is_its_end(said: bytes) -> None:
    for at in range(len(said)):
        under_way = exchange()
        under_way.receive(said[:at])
        if not under_way.is_over:
            endless = under_way.response is not None and under_way.response.length is None and b"chunked" not in said
            assert under_way.end(reset=False) == endless
            assert not exchange().end(reset=True)


REQUESTS = [
    (("Content-Length: 5",), b"abcde", b"abcde"),
    (("Transfer-Encoding: chunked",), b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: x\r\n\r\n", b"abcde"),
    (("Transfer-Encoding: chunked",), b"0\r\n\r\n", b""),
    ((), b"", b""),
]


@pytest.mark.parametrize("tail", [b"", b"GET http://evil/ HTTP/1.1\r\n\r\n"])
@pytest.mark.parametrize(("fields", "data", "payload"), REQUESTS)
def test_request_body_ends_where_it_says_however_it_is_cut(
    fields: tuple[str, ...], data: bytes, payload: bytes, tail: bytes
) -> None:
    for parts in ways(data + tail or b" "):
        under_way, sent, held = exchange("POST", *fields), b"", b""
        for part in parts if data + tail else []:
            more, held = under_way.send(held + part)
            sent += more
        assert under_way.has_request
        assert held == tail
        if "chunked" in "".join(fields):
            assert slowly(sent) == (payload, b"")
        else:
            assert sent == payload


def test_a_client_answered_before_its_body_came_is_not_kept() -> None:
    under_way = exchange("POST", "Content-Length: 5")
    assert b"Connection: close" in under_way.receive(OK + b"Content-Length: 0\r\n\r\n")
    assert not under_way.keeps_client


@pytest.mark.parametrize(
    ("method", "fields", "repeats"),
    [
        ("GET", (), True),
        ("POST", (), False),
        ("PUT", ("Content-Length: 0",), True),
        ("PUT", ("Content-Length: 1",), False),
    ],
)
def test_what_may_be_sent_twice(method: str, fields: tuple[str, ...], repeats: bool) -> None:
    assert exchange(method, *fields).can_repeat == repeats


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_no_bytes_raise_anything_but_bad_client(parts: list[bytes]) -> None:
    for start in (b"", OK, OK + b"Transfer-Encoding: chunked\r\n\r\n", b"HTTP/1.1 101 S\r\n"):
        under_way = exchange("GET", "Connection: upgrade", "Upgrade: websocket")
        try:
            for part in (start, *parts, b"\r\n\r\n"):
                under_way.receive(part)
                if under_way.is_over:
                    break
        except BadClient as bad:
            assert bad.reason in (Reason.NOT_HTTP, Reason.REQUEST_INVALID)


@pytest.mark.parametrize("minor", [0, 1])
def test_interim_responses_end_some_time(minor: int) -> None:
    """A server that never comes to its answer would have the worker read heads for ever."""
    interim = b"HTTP/1.1 103 Early\r\n\r\n"
    whole = exchange(minor=minor)
    whole.receive(interim * HTTP_INTERIM_COUNT + OK + b"Content-Length: 0\r\n\r\n")
    assert whole.is_over
    with pytest.raises(BadClient) as caught:
        exchange(minor=minor).receive(interim * (HTTP_INTERIM_COUNT + 1))
    assert caught.value.reason is Reason.NOT_HTTP
