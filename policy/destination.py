"""A destination is read once, here, from wire bytes or text; nothing after it sees text again (POLICY §2)."""

import re
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from policy.errors import BadClient
from policy.host import Address, Host, Name, read_host, read_v6, unpack
from policy.quote import quote
from policy.verdict import Reason

DEFAULT_PORTS: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443, "tcp": None}
"""Every scheme a target may have, with its port; `tcp` always names one."""

_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PATH: Final = re.compile(r"[/?]")
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f\\]")
"""Never in a target: parsers strip, fold or split on them, each in its own way."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Host and port as asked for, in normal form, before any name was resolved."""

    host: Host
    port: int
    is_mapped: bool = field(default=False, compare=False)
    """Written as an IPv4-mapped literal: it reaches what the IPv4 does, but no grant lifts the floor for it."""

    @property
    def name(self) -> Name | None:
        """The host when it is a name."""
        return self.host if isinstance(self.host, str) else None

    @property
    def address(self) -> Address | None:
        """The host when it is an address literal."""
        return None if isinstance(self.host, str) else self.host

    def __str__(self) -> str:
        """`host:port`, IPv6 in brackets: the authority form of RFC 3986 §3.2, which reads back to an equal value."""
        return f"[{self.host}]:{self.port}" if isinstance(self.host, IPv6Address) else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Url:
    """A target in absolute form; `path` is path and query as given, never empty, without the fragment."""

    scheme: str
    destination: Destination
    path: str


def read_authority(raw: bytes | str, default_port: int | None = None) -> Destination:
    """`host:port` of a CONNECT line (RFC 9110 §9.3.6) or a Host field (§7.2); IPv6 in brackets.

    Without `default_port` the port must be there. Raises BadClient(HOST_INVALID or PORT_INVALID).
    """
    text = raw.decode("latin-1") if isinstance(raw, bytes) else raw
    is_mapped = False
    if text.startswith("["):
        literal, closed, rest = text[1:].partition("]")
        if not closed:
            raise BadClient(Reason.HOST_INVALID, f"the host {quote(raw)} has an open bracket")
        address = read_v6(literal)
        host: Host = address
        is_mapped = isinstance(address, IPv4Address)
    else:
        name, colon, rest = text.partition(":")
        rest = colon + rest
        host = read_host(name.encode("latin-1") if isinstance(raw, bytes) else name)
    if not rest and default_port is not None:
        return Destination(host, default_port, is_mapped)
    return Destination(host, _read_port(rest, raw), is_mapped)


def read_name(raw: bytes, port: int) -> Destination:
    """The domain form of SOCKS5 (RFC 1928 §5): a name, or an address that a client wrote as text.

    Raises BadClient(HOST_INVALID or PORT_INVALID).
    """
    if b":" not in raw:
        return Destination(read_host(raw), _check_port(port))
    address = read_v6(raw)
    return Destination(address, _check_port(port), isinstance(address, IPv4Address))


def read_packed(packed: bytes, port: int) -> Destination:
    """An address in network order, 4 or 16 octets: the address forms of SOCKS5, and transparent connections.

    Raises BadClient(HOST_INVALID or PORT_INVALID).
    """
    address = unpack(packed)
    return Destination(address, _check_port(port), len(packed) == 16 and isinstance(address, IPv4Address))


def read_url(text: bytes | str) -> Url:
    """A target in absolute form (RFC 9112 §3.2.2): http, https, ws, wss, or `tcp://host:port`.

    Userinfo, backslashes, spaces and controls are errors; the fragment is dropped; an empty port is the scheme's.
    Raises BadClient(HOST_INVALID, PORT_INVALID or REQUEST_INVALID).
    """
    whole = text.decode("latin-1") if isinstance(text, bytes) else text
    if _FORBIDDEN.search(whole):
        raise BadClient(Reason.REQUEST_INVALID, f"the target {quote(text)} has a space, a control or a backslash")
    match = _SCHEME.match(whole)
    scheme = match.group(1).lower() if match else ""
    if match is None or scheme not in DEFAULT_PORTS:
        known = ", ".join(DEFAULT_PORTS)
        said = f"the target {quote(text)} does not begin with {known} and ://"
        raise BadClient(Reason.REQUEST_INVALID, f"{said}; write https://host/ or tcp://host:port")
    rest = whole[match.end() :].partition("#")[0]
    found = _PATH.search(rest)
    end = found.start() if found else len(rest)
    authority, path = rest[:end], rest[end:]
    if not path.isascii():
        raise BadClient(Reason.REQUEST_INVALID, f"the path {quote(path)} is not ASCII; percent-encode it")
    if "@" in authority:
        raise BadClient(Reason.HOST_INVALID, f"the target {quote(text)} carries user information before an @")
    port = DEFAULT_PORTS[scheme]
    if port is not None:
        authority = authority.removesuffix(":")
    elif path not in ("", "/"):
        raise BadClient(Reason.REQUEST_INVALID, f"the target {quote(text)} has a path, and tcp has none; write tcp://host:port")
    destination = read_authority(authority.encode("latin-1") if isinstance(text, bytes) else authority, port)
    return Url(scheme, destination, path if path.startswith("/") else "/" + path)


def _read_port(rest: str, raw: bytes | str) -> int:
    if not rest.startswith(":"):
        fault = "has no port" if not rest else "has text after its bracket"
        raise BadClient(Reason.PORT_INVALID if not rest else Reason.HOST_INVALID, f"{quote(raw)} {fault}")
    if not _PORT.fullmatch(rest, 1) or int(rest[1:]) > 65_535:
        raise BadClient(Reason.PORT_INVALID, f"{quote(raw)} has no plain decimal port from 1 to 65535")
    return int(rest[1:])


def _check_port(port: int) -> int:
    if not 1 <= port <= 65_535:
        raise BadClient(Reason.PORT_INVALID, f"the port {port} is not from 1 to 65535")
    return port
