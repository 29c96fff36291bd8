"""Destinations from CONNECT lines, Host fields, SOCKS forms and URLs."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.destination import Destination, read_authority, read_name, read_packed, read_url
from policy.errors import BadClient
from policy.verdict import Reason
from tests.policy.strategies import HOSTS, PORTS

V4, V6 = IPv4Address, IPv6Address


@pytest.mark.parametrize(
    ("raw", "host", "port"),
    [
        (b"example.com:443", "example.com", 443),
        (b"EXAMPLE.com.:1", "example.com", 1),
        (b"8.8.8.8:65535", V4("8.8.8.8"), 65535),
        (b"[2606:4700::1111]:443", V6("2606:4700::1111"), 443),
        (b"[::ffff:8.8.8.8]:443", V4("8.8.8.8"), 443),
        ("münchen.example.net:80", "xn--mnchen-3ya.example.net", 80),
    ],
)
def test_authority(raw, host, port):
    assert read_authority(raw) == Destination(host, port)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"example.com", Reason.PORT_INVALID),
        (b"example.com:", Reason.PORT_INVALID),
        (b"example.com:0", Reason.PORT_INVALID),
        (b"example.com:65536", Reason.PORT_INVALID),
        (b"example.com:0443", Reason.PORT_INVALID),
        (b"example.com:-1", Reason.PORT_INVALID),
        (b"example.com:+443", Reason.PORT_INVALID),
        (b"example.com:443 ", Reason.PORT_INVALID),
        (b"example.com: 443", Reason.PORT_INVALID),
        (b"example.com:4_43", Reason.PORT_INVALID),
        (b"example.com:443:80", Reason.PORT_INVALID),
        (b"example.com:443/", Reason.PORT_INVALID),
        (b"[::1]", Reason.PORT_INVALID),
        ("example.com:\u0664\u0664\u0663", Reason.PORT_INVALID),
        (b"[::1]443", Reason.HOST_INVALID),
        (b"[::1", Reason.HOST_INVALID),
        (b"[]:443", Reason.HOST_INVALID),
        (b"[example.com]:443", Reason.HOST_INVALID),
        (b"[1.2.3.4]:443", Reason.HOST_INVALID),
        (b"2606:4700::1111:443", Reason.HOST_INVALID),
        (b":443", Reason.HOST_INVALID),
        (b"user@example.com:443", Reason.HOST_INVALID),
        (b"http://example.com:443", Reason.PORT_INVALID),
        (b"", Reason.HOST_INVALID),
    ],
)
def test_no_authority(raw, reason):
    with pytest.raises(BadClient) as error:
        read_authority(raw)
    assert error.value.reason is reason


def test_default_port_is_for_a_missing_port_only():
    assert read_authority(b"example.com", 80) == Destination("example.com", 80)
    assert read_authority(b"[::1]", 80) == Destination(V6("::1"), 80)
    for raw in (b"example.com:", b"[::1]:", b"example.com:x"):
        with pytest.raises(BadClient):
            read_authority(raw, 80)


def test_socks_forms():
    assert read_name(b"Example.COM.", 443) == Destination("example.com", 443)
    assert read_name(b"127.0.0.1", 443) == Destination(V4("127.0.0.1"), 443)
    assert read_name(b"::1", 443) == Destination(V6("::1"), 443)
    assert read_packed(b"\x08\x08\x08\x08", 443) == Destination(V4("8.8.8.8"), 443)
    assert read_packed(V6("::ffff:8.8.8.8").packed, 443) == Destination(V4("8.8.8.8"), 443)
    for raw in (
        b"[::1]",
        b"evil.net\0.example.com",
        b"example.com:22",
        b"user@example.com",
        b"",
        b"2130706433",
        b"x" * 255,
    ):
        with pytest.raises(BadClient):
            read_name(raw, 443)
    for port in (0, -1, 65536):
        with pytest.raises(BadClient) as error:
            read_packed(b"\x08\x08\x08\x08", port)
        assert error.value.reason is Reason.PORT_INVALID


@pytest.mark.parametrize(
    ("text", "scheme", "authority", "path"),
    [
        ("http://example.com", "http", "example.com:80", "/"),
        ("HTTPS://Example.com/a/b?c=d#e", "https", "example.com:443", "/a/b?c=d"),
        ("ws://example.com:8080/chat", "ws", "example.com:8080", "/chat"),
        ("wss://example.com?x", "wss", "example.com:443", "/?x"),
        ("tcp://example.com:22", "tcp", "example.com:22", "/"),
        ("http://example.com:/", "http", "example.com:80", "/"),
        ("http://[2606:4700::1111]/", "http", "[2606:4700::1111]:80", "/"),
        ("http://example.com#@127.0.0.1/", "http", "example.com:80", "/"),
        ("http://example.com?@127.0.0.1/", "http", "example.com:80", "/?@127.0.0.1/"),
    ],
)
def test_url(text, scheme, authority, path):
    for raw in (text, text.encode()):
        url = read_url(raw)
        assert (url.scheme, str(url.destination), url.path) == (scheme, authority, path)


@pytest.mark.parametrize(
    "text",
    [
        "", "http", "*", "//example.com/", "http:/example.com/", "http:example.com", "ftp://example.com/", "file:///etc/passwd",
        "http://user@example.com/", "http://user:pw@example.com/", "http://example.com@127.0.0.1/", "http://a\\@b/", "http:\\\\a\\",
        "http://exam\tple.com/", "http://example.com/a b", "ht\ntp://example.com/", " http://example.com/", "http://example.com\0/",
        "http://example.com/\r\nX: y", "tcp://example.com", "tcp://example.com:", "tcp://example.com:22/x", "tcp://example.com:22?x", "http://example.com:0/", "http://::1/", "http://[::1/",
        "http://[::1]x/", "http://ex%61mple.com/", "http:///", "http://./", "http://example.com/ü", "http://127.0.0.1;@example.com/",
    ],
)  # fmt: skip
def test_no_url(text):
    for raw in (text, text.encode()):
        with pytest.raises(BadClient) as error:
            read_url(raw)
        assert error.value.reason in (Reason.HOST_INVALID, Reason.PORT_INVALID, Reason.REQUEST_INVALID)


@given(HOSTS, PORTS)
def test_destinations_round_trip(host, port):
    destination = Destination(host, port)
    assert read_authority(str(destination)) == read_authority(str(destination).encode()) == destination
    assert read_url(f"tcp://{destination}").destination == destination
    assert destination.name == (host if isinstance(host, str) else None)
    assert destination.address == (None if isinstance(host, str) else host)


@given(
    st.one_of(st.binary(max_size=300), st.text(max_size=200), st.text("htps:/@.[]#?%\\012ab", max_size=40)),
    st.integers(),
)
def test_nothing_but_bad_client(raw, port):
    packed = raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass")
    for read in (
        lambda: read_authority(raw), lambda: read_authority(raw, 80), lambda: read_url(raw),
        lambda: read_name(packed, port), lambda: read_packed(packed, port), lambda: read_packed(packed[:4], port),
    ):  # fmt: skip
        try:
            found = read()
        except BadClient as error:
            assert error.reason in (Reason.HOST_INVALID, Reason.PORT_INVALID, Reason.REQUEST_INVALID)
        else:
            destination = getattr(found, "destination", found)
            assert read_authority(str(destination)) == destination
