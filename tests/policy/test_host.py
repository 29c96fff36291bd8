"""Names and addresses in text: what is read, as what, and what is refused."""

import string
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.errors import BadClient
from policy.host import plain, read_address, read_host, read_v6, unpack
from policy.limits import LABEL_MAX_BYTES, NAME_MAX_BYTES, SHOWN_CHARS
from policy.verdict import Reason
from tests.policy.strategies import NAMES

LONG = ".".join(["b" * 63] * 3 + ["c" * 61])


@pytest.mark.parametrize(
    ("raw", "host"),
    [
        (b"example.com", "example.com"),
        (b"EXAMPLE.Com.", "example.com"),
        (b"a_b.example.com", "a_b.example.com"),
        (b"_dmarc.example.com", "_dmarc.example.com"),
        (b"localhost", "localhost"),
        (b"r3---sn-abc.example.net", "r3---sn-abc.example.net"),
        (b"1.example.com", "1.example.com"),
        (b"0xff.example.com", "0xff.example.com"),
        (b"93.184.215.14", IPv4Address("93.184.215.14")),
        (b"xn--mnchen-3ya.example.net", "xn--mnchen-3ya.example.net"),
        ("münchen.example.net", "xn--mnchen-3ya.example.net"),
        ("faß.de", "xn--fa-hia.de"),
        (LONG.encode(), LONG),
        (LONG.encode() + b".", LONG),
    ],
)
def test_read(raw, host):
    assert read_host(raw) == host


@pytest.mark.parametrize(
    "raw",
    [
        b"", b".", b"..", b".example.com", b"example.com..", b"a..b", b"-a.com", b"a-.com", b"a.-b.com", b"a b.com", b"a\0.com",
        b"a%2eb.com", b"a/b", b"a@b", b"[a]", b"a:b", b"*.a.com", b"a\r\nb", b"127.0.0.1.", b"127.0.0.1..", b"127.1", b"0177.0.0.1",
        b"2130706433", b"0x7f000001", b"0x", b"0", b"1.2.3.4.5", b"8.8.8.08", b"1.2.3.256", b"foo.123", b"foo.0x1f", b"1.2.3.0x",
        "m\u00fcnchen.example.net".encode(), b"\xff\xfe", ("a" * 64 + ".com").encode(), (LONG + "d").encode(), b"xn--a.example.net",
        b"xn--example-.net", b"xn--zn7c.com", b"xn--.com",
    ],
)  # fmt: skip
def test_no_host_on_the_wire(raw):
    with pytest.raises(BadClient) as error:
        read_host(raw)
    assert error.value.reason is Reason.HOST_INVALID
    assert len(error.value.detail) < SHOWN_CHARS + 200 and error.value.detail.isascii() or "…" in error.value.detail


@pytest.mark.parametrize(
    "text",
    [
        "mu\u0308nchen.de", "127\u30020\u30020\u30021", "127\uff0e0.0.1", "\u2460.com", "\u00b9.0.0.1", "\u0661.\u0660.\u0660.\u0661",
        "\uff4cocalhost", "local\u00adhost", "local\u200bhost", "local\u200dhost", "\u212aubernetes.default.svc", "\u017ftorage.com",
        "M\u00dcNCHEN.de", "\u0130stanbul.com", "example.com\u2044.evil.net", "evil.net\u2100.example.com", "\ufeffexample.com",
        "\u00fc" * 64 + ".com", "exam\ud800ple.com",
    ],
)  # fmt: skip
def test_unicode_that_would_have_to_be_mapped(text):
    with pytest.raises(BadClient) as error:
        read_host(text)
    assert error.value.reason is Reason.HOST_INVALID


@pytest.mark.parametrize(
    "text",
    [
        "fe80::1%eth0",
        "::1%25lo",
        "v1.fe80::",
        "1.2.3.4",
        "",
        ":::1",
        "::1::",
        "1:2:3:4:5:6:7:8:9",
        "::ffff:0177.0.0.1",
        "example",
        "[::1]",
        "::1 ",
        "12345::",
    ],
)
def test_no_v6(text):
    for raw in (text, text.encode()):
        with pytest.raises(BadClient) as error:
            read_v6(raw)
        assert error.value.reason is Reason.HOST_INVALID


def test_mapped_becomes_ipv4():
    assert read_v6("::FFFF:127.0.0.1") == read_v6(b"0:0:0:0:0:ffff:7f00:1") == IPv4Address("127.0.0.1")
    assert unpack(b"\0" * 10 + b"\xff\xff\x7f\0\0\1") == IPv4Address("127.0.0.1")
    assert plain(IPv6Address("::ffff:0:7f00:1")) == IPv6Address("::ffff:0:7f00:1")
    assert plain(IPv6Address("::7f00:1")) == IPv6Address("::7f00:1")


@pytest.mark.parametrize("packed", [b"", b"abc", b"12345", b"x" * 17])
def test_no_packed_address(packed):
    with pytest.raises(BadClient):
        unpack(packed)


def test_address_of_dns_data():
    assert read_address("10.0.0.1") == IPv4Address("10.0.0.1")
    assert read_address("2001:db8::1") == IPv6Address("2001:db8::1")
    for text in ("example.com", "fe80::1%eth0", "[::1]", "10.1"):
        with pytest.raises(BadClient):
            read_address(text)


@given(NAMES)
def test_names_round_trip(name):
    assert read_host(name) == read_host(name.upper().encode() + b".") == name


@given(st.ip_addresses())
def test_addresses_round_trip(address):
    address = plain(address)
    assert read_address(str(address)) == unpack(address.packed) == address == ip_address(str(address))


def naive(text):
    """POLICY §2's sentences on a name, one by one."""
    text = text.lower().removesuffix(".")
    labels = text.split(".")
    if not 1 <= len(text) <= NAME_MAX_BYTES or not all(1 <= len(label) <= LABEL_MAX_BYTES for label in labels):
        return False
    if not set(text) <= set(string.ascii_lowercase + string.digits + "-_."):
        return False
    if any(label[0] == "-" or label[-1] == "-" for label in labels):
        return False
    last = labels[-1]
    return not (last.isdigit() or (last.startswith("0x") and set(last[2:]) <= set(string.hexdigits)))


@given(st.one_of(st.text("abx0179.-_", max_size=70), st.binary(max_size=300).map(lambda raw: raw.decode("latin-1"))))
def test_reader_and_its_naive_twin(text):
    if "xn--" in text.lower():
        return
    raw = text.encode("latin-1")
    try:
        host = read_host(raw)
    except BadClient:
        try:
            IPv4Address(text)
        except ValueError:
            assert not (text.isascii() and naive(text))
        else:
            raise AssertionError(text)
    else:
        assert host == IPv4Address(text) if isinstance(host, IPv4Address) else naive(text)


@given(st.one_of(st.binary(max_size=400), st.text(max_size=300)))
def test_nothing_but_bad_client(raw):
    for read in (read_host, read_v6):
        try:
            read(raw)
        except BadClient:
            pass
