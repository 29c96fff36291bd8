"""The first message of TLS, read without a key: server name, ALPN, and whether ECH hides another name."""

import struct
from dataclasses import dataclass
from typing import Final

from policy.destination import read_name
from policy.errors import BadClient
from policy.host import Name
from policy.limits import CLIENT_HELLO_BYTES, TLS_RECORD_BYTES
from policy.verdict import Reason

HANDSHAKE: Final = 22
CLIENT_HELLO: Final = 1
SERVER_NAME: Final = 0
ALPN: Final = 16
ENCRYPTED_CLIENT_HELLO: Final = 0xFE0D

_EXTENSION: Final = struct.Struct("!HH")
_PORT: Final = 443
"""A server name has no port; any valid one reads it."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What a ClientHello says about where it wants to go."""

    sni: Name | None
    """The one host_name of RFC 6066 §3, in normal form; None when the client sent none."""
    alpn: tuple[bytes, ...] = ()
    """Protocols offered (RFC 7301), in the client's order."""
    ech: bool = False
    """The encrypted_client_hello extension is there: another name may be hidden, or it is GREASE."""


class ClientHelloReader:
    """Collects records until the ClientHello is whole (RFC 8446 §4.1.2, §5.1).

    `held` is every byte fed, for the upstream to get unchanged.
    """

    __slots__ = ("_message", "_read", "held")

    def __init__(self) -> None:
        self.held = b""
        self._read = 0
        self._message = b""

    def feed(self, data: bytes) -> Hello | None:
        """Read on; None while more is needed.

        Raises BadClient: NOT_TLS for anything but a ClientHello within CLIENT_HELLO_BYTES, SNI_MISMATCH for
        a server name that can be no destination's.
        """
        held = self.held = self.held + data if self.held else data
        if held[:1] not in (b"", b"\x16"):
            raise _bad("the tunnel does not begin with a TLS handshake record")
        if held[1:2] not in (b"", b"\x03"):
            raise _bad("the first record is not of TLS 1.0 or later")
        message, at = self._message, self._read
        while len(held) >= at + 5:
            size = held[at + 3] << 8 | held[at + 4]
            if held[at] != HANDSHAKE or held[at + 1] != 3 or not 0 < size <= TLS_RECORD_BYTES:
                raise _bad("a record inside the ClientHello is not a handshake record of 1 to 16384 bytes")
            if len(held) < at + 5 + size:
                break
            message += held[at + 5 : at + 5 + size]
            at += 5 + size
            if message[0] != CLIENT_HELLO:
                raise _bad(f"the first handshake message has type {message[0]}: not a ClientHello")
            if len(message) >= 4:
                end = 4 + int.from_bytes(message[1:4])
                if end > CLIENT_HELLO_BYTES:
                    raise _bad(f"the ClientHello is longer than {CLIENT_HELLO_BYTES} bytes")
                if len(message) > end:
                    raise _bad("another message is glued to the ClientHello")
                if len(message) == end:
                    return read(message)
        self._message, self._read = message, at
        if len(held) > CLIENT_HELLO_BYTES:
            raise _bad(f"no whole ClientHello within {CLIENT_HELLO_BYTES} bytes")
        return None


def read(message: bytes) -> Hello:
    """Read one whole ClientHello, its handshake header included (RFC 8446 §4.1.2). Raises BadClient."""
    try:
        at = 38  # header 4, legacy_version 2, random 32
        at += 1 + message[at]  # legacy_session_id
        at += 2 + (message[at] << 8 | message[at + 1])  # cipher_suites
        at += 1 + message[at]  # legacy_compression_methods
        if at == len(message):
            return Hello(None)  # TLS 1.2 and earlier may end here (RFC 5246 §7.4.1.2)
        if at + 2 + (message[at] << 8 | message[at + 1]) != len(message):
            raise _bad("the ClientHello's extensions do not fill it")
        return _extensions(message, at + 2)
    except (IndexError, struct.error):
        raise _bad("the ClientHello is cut short") from None


def _extensions(message: bytes, at: int) -> Hello:
    """RFC 8446 §4.2: type, size, data. Types that come twice are the upstream's to refuse; a name is ours."""
    sni: Name | None = None
    alpn: tuple[bytes, ...] = ()
    ech = False
    whole = len(message)
    while at < whole:
        kind, size = _EXTENSION.unpack_from(message, at)
        start = at + 4
        at = start + size
        if kind == SERVER_NAME:
            if sni is not None:
                raise _bad("the server_name extension comes twice")
            sni = _server_name(message[start:at])
        elif kind == ALPN:
            alpn = _protocols(message[start:at])
        elif kind == ENCRYPTED_CLIENT_HELLO:
            ech = True
    if at > whole:
        raise _bad("an extension of the ClientHello is cut short")
    return Hello(sni, alpn, ech)


def _server_name(data: bytes) -> Name:
    """RFC 6066 §3: a list of exactly one host_name, which is never an address."""
    size = len(data) - 5
    if size < 1 or data[:2] != (size + 3).to_bytes(2) or data[2] != 0 or data[3:5] != size.to_bytes(2):
        raise _bad("the server_name extension must hold exactly one host_name")
    try:
        name = read_name(data[5:], _PORT).name
    except BadClient as bad:
        raise BadClient(Reason.SNI_MISMATCH, f"the server name is no DNS name: {bad.detail}") from None
    if name is None:
        raise BadClient(Reason.SNI_MISMATCH, "the server name is an address; only a DNS name may stand there")
    return name


def _protocols(data: bytes) -> tuple[bytes, ...]:
    """RFC 7301 §3.1: a list of names of 1 to 255 octets."""
    if len(data) < 3 or data[:2] != (len(data) - 2).to_bytes(2):
        raise _bad("the ALPN extension does not hold what it says")
    names: list[bytes] = []
    at = 2
    while at < len(data):
        end = at + 1 + data[at]
        if end > len(data) or end == at + 1:
            raise _bad("the ALPN extension holds an empty or cut name")
        names.append(data[at + 1 : end])
        at = end
    return tuple(names)


def _bad(detail: str) -> BadClient:
    return BadClient(Reason.NOT_TLS, detail)
