"""ClientHellos made by ssl and by hand, cut at every offset, over records of every size, and a slow twin."""

import ssl
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.errors import BadClient
from policy.limits import CLIENT_HELLO_BYTES
from policy.verdict import Reason
from proxy.client_hello import ClientHelloReader, Hello
from tests.proxy.cuts import outcome, ways


def by_ssl(name: str | None, alpn: list[str] | None = None, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """What OpenSSL sends first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = newest
    if alpn:
        context.set_alpn_protocols(alpn)
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def vector(data: bytes, octets: int) -> bytes:
    return len(data).to_bytes(octets) + data


def extension(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2) + vector(data, 2)


def server_name(*names: bytes, kind: int = 0) -> bytes:
    return extension(0, vector(b"".join(bytes((kind,)) + vector(name, 2) for name in names), 2))


def hello(*extensions: bytes, bare: bool = False) -> bytes:
    """A handshake message by hand."""
    body = b"\x03\x03" + bytes(32) + vector(bytes(32), 1) + vector(b"\x13\x01", 2) + vector(b"\0", 1)
    return b"\x01" + vector(body if bare else body + vector(b"".join(extensions), 2), 3)


def records(message: bytes, size: int = 1 << 14) -> bytes:
    pieces = (message[at : at + size] for at in range(0, len(message), size))
    return b"".join(b"\x16\x03\x01" + vector(piece, 2) for piece in pieces)


def slowly(data: bytes) -> Hello:
    """The naive twin, for whole hellos that are right: struct and slices, no shortcut."""
    message = b""
    while data:
        _, _, size = struct.unpack("!BHH", data[:5])
        message, data = message + data[5 : 5 + size], data[5 + size :]
    body = message[4:]
    assert int.from_bytes(message[1:4]) == len(body)

    def take(octets: int) -> bytes:
        nonlocal body
        size = int.from_bytes(body[:octets])
        taken, body = body[octets : octets + size], body[octets + size :]
        assert len(taken) == size
        return taken

    body = body[34:]
    take(1), take(2), take(1)
    found: dict[int, bytes] = {}
    if body:
        body = take(2)
        while body:
            kind, body = int.from_bytes(body[:2]), body[2:]
            assert kind not in found
            found[kind] = take(2)
    sni, alpn = None, []
    if 0 in found:
        sni = found[0][5:].decode("ascii").lower().removesuffix(".")
    if 16 in found:
        body = found[16][2:]
        while body:
            alpn.append(take(1))
    return Hello(sni, tuple(alpn), 0xFE0D in found)  # type: ignore[arg-type]


def read(parts: list[bytes]) -> Hello | None:
    reader = ClientHelloReader()
    for at, part in enumerate(parts):
        found = reader.feed(part)
        if found is not None:
            assert reader.held == b"".join(parts[: at + 1])
            return found
    return None


GOOD = {
    "ssl": by_ssl("example.com"),
    "ssl with ALPN": by_ssl("Example.COM", ["h2", "http/1.1"]),
    "ssl, no name": by_ssl(None),
    "ssl, TLS 1.2": by_ssl("example.com", newest=ssl.TLSVersion.TLSv1_2),
    "no extensions at all": records(hello(bare=True)),
    "empty extensions": records(hello()),
    "trailing dot": records(hello(server_name(b"example.com."))),
    "ECH": records(hello(extension(0xFE0D, b"\0" * 20), server_name(b"public.example.net"))),
    "other extensions": records(hello(extension(0x2A2A, b""), extension(16, b"\0\3\2h2"), extension(21, bytes(300)))),
}


@pytest.mark.parametrize("data", GOOD.values(), ids=GOOD)
def test_read_like_the_slow_twin_however_it_is_cut(data: bytes) -> None:
    expected = slowly(data)
    for parts in ways(data):
        assert read(parts) == expected


@pytest.mark.parametrize("tail", [b"\x14\x03\x03\x00\x01\x01", b"\x17\x03\x03\x00\x05early"])
@pytest.mark.parametrize("data", GOOD.values(), ids=GOOD)
def test_records_glued_behind_are_not_its_business(data: bytes, tail: bytes) -> None:
    assert read([data + tail]) == slowly(data)


@pytest.mark.parametrize("data", GOOD.values(), ids=GOOD)
def test_split_over_records_of_every_size(data: bytes) -> None:
    expected = slowly(data)
    message = data[5:]
    for size in range(1, len(message) + 1):
        split = records(message, size)
        assert read([split]) == expected
        if size in (1, 2, 7, 100):
            assert read([split[at : at + 1] for at in range(len(split))]) == expected


def test_what_is_found() -> None:
    assert read([GOOD["ssl with ALPN"]]) == Hello("example.com", (b"h2", b"http/1.1"))  # type: ignore[arg-type]
    assert read([GOOD["ssl, no name"]]) == Hello(None)
    assert read([GOOD["ECH"]]) == Hello("public.example.net", (), ech=True)  # type: ignore[arg-type]


def test_a_post_quantum_hello_of_many_kilobytes_is_read() -> None:
    data = records(hello(server_name(b"example.com"), extension(51, bytes(40_000))))
    assert read([data]) == slowly(data)


NAME = server_name(b"example.com")
BAD = {
    "plain text": (b"GET / HTTP/1.1\r\n", Reason.NOT_TLS),
    "SSH": (b"SSH-2.0-x\r\n", Reason.NOT_TLS),
    "SSLv2": (b"\x80\x2e\x01\x03\x01", Reason.NOT_TLS),
    "an alert": (b"\x15\x03\x01\x00\x02\x02\x28", Reason.NOT_TLS),
    "major version 2": (b"\x16\x02\x00\x00\x10", Reason.NOT_TLS),
    "empty record": (b"\x16\x03\x01\x00\x00", Reason.NOT_TLS),
    "record too long": (b"\x16\x03\x01\x40\x01", Reason.NOT_TLS),
    "ServerHello": (records(b"\x02" + hello(NAME)[1:]), Reason.NOT_TLS),
    "two names": (records(hello(server_name(b"example.com", b"evil.net"))), Reason.NOT_TLS),
    "two server_name extensions": (records(hello(NAME, server_name(b"evil.net"))), Reason.NOT_TLS),
    "no name in the list": (records(hello(server_name())), Reason.NOT_TLS),
    "empty server_name": (records(hello(extension(0, b""))), Reason.NOT_TLS),
    "empty name": (records(hello(server_name(b""))), Reason.NOT_TLS),
    "other kind of name": (records(hello(server_name(b"example.com", kind=1))), Reason.NOT_TLS),
    "server_name list too long": (records(hello(extension(0, b"\0\x10\0\0\1a"))), Reason.NOT_TLS),
    "server_name list too short": (records(hello(extension(0, b"\0\3\0\0\1a"))), Reason.NOT_TLS),
    "NUL in the name": (records(hello(server_name(b"evil.net\0.example.com"))), Reason.SNI_MISMATCH),
    "address for a name": (records(hello(server_name(b"1.2.3.4"))), Reason.SNI_MISMATCH),
    "IPv6 for a name": (records(hello(server_name(b"::1"))), Reason.SNI_MISMATCH),
    "number for a name": (records(hello(server_name(b"2130706433"))), Reason.SNI_MISMATCH),
    "not ASCII": (records(hello(server_name("bücher.net".encode()))), Reason.SNI_MISMATCH),
    "over-long name": (records(hello(server_name(b"a" * 300))), Reason.SNI_MISMATCH),
    "ALPN empty": (records(hello(extension(16, b"\0\0"))), Reason.NOT_TLS),
    "ALPN empty name": (records(hello(extension(16, b"\0\1\0"))), Reason.NOT_TLS),
    "ALPN cut": (records(hello(extension(16, b"\0\2\2h"))), Reason.NOT_TLS),
    "extension too long": (records(hello(b"\0\x2a\0\x09abc")), Reason.NOT_TLS),
    "glued message": (records(hello(NAME) + b"\x0b\0\0\0"), Reason.NOT_TLS),
    "message too long": (b"\x16\x03\x01\x00\x04\x01\xff\xff\xff", Reason.NOT_TLS),
    "body too short": (records(b"\x01\0\0\5abcde"), Reason.NOT_TLS),
    "session id too long": (records(b"\x01\0\0\x25" + b"\3\3" + bytes(32) + b"\xff\0\0"), Reason.NOT_TLS),
}


@pytest.mark.parametrize(("data", "reason"), BAD.values(), ids=BAD)
def test_refused_however_it_is_cut(data: bytes, reason: Reason) -> None:
    for parts in ways(data):
        assert outcome(read)(parts) == f"bad: {reason}"


def test_another_record_between_two_halves_is_refused() -> None:
    message = hello(NAME)
    data = records(message[:50]) + b"\x14\x03\x03\x00\x01\x01" + records(message[50:])
    assert outcome(read)([data]) == "bad: not-tls"


def test_extensions_must_fill_the_message() -> None:
    message = hello(NAME)
    longer = b"\x01" + vector(message[4:] + b"\0", 3)
    assert outcome(read)([records(longer)]) == "bad: not-tls"


def test_it_is_bounded() -> None:
    for size in (1, 16, 1 << 14):
        data = records(hello(NAME, extension(21, bytes(40_000)), extension(41, bytes(25_480))), size)
        parts = [data[at : at + 4_096] for at in range(0, len(data), 4_096)]
        assert outcome(read)(parts) == "bad: not-tls"
    reader = ClientHelloReader()
    with pytest.raises(BadClient):
        for _ in range(CLIENT_HELLO_BYTES):
            reader.feed(b"\x16\x03\x01\x00\x01\x01" if not reader.held else b"\x16\x03\x01\x00\x01\x00")


@settings(max_examples=300)
@given(st.integers(0, 400), st.integers(0, 255), st.integers(0, 400))
def test_no_flipped_octet_raises_anything_but_bad_client(at: int, octet: int, cut: int) -> None:
    data = bytearray(GOOD["ssl with ALPN"])
    data[at % len(data)] = octet
    outcome(read)([bytes(data[:cut]), bytes(data[cut:])])


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_no_bytes_raise_anything_but_bad_client(parts: list[bytes]) -> None:
    outcome(read)(parts)
    outcome(read)([b"\x16\x03\x01", *parts])
    outcome(read)([records(b"\x01" + vector(b"".join(parts), 3))])
    outcome(read)([records(hello(b"".join(parts)))])
