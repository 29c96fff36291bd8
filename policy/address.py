"""The floor: one row for each block that is not ordinary public unicast, and what an address counts as (POLICY §3).

Rows: the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890) as of REGISTRY_DATE, then blocks that the
registries leave to other documents (multicast, deprecated forms), then the clouds' metadata addresses. The most
specific row decides. A block whose reachability the registry leaves blank is not affirmed, so it is refused.
"""

from bisect import bisect_right
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Network, ip_network
from typing import Final

from policy.host import Address
from policy.networks import Network, Networks, compile_networks
from policy.verdict import Reason

REGISTRY_DATE: Final = "2025-10-09"
"""Both IANA registries' "last updated" when the rows were copied."""


class Floor(IntEnum):
    """How firmly an address is refused."""

    NONE = 0
    """Globally reachable unicast."""
    SOFT = 1
    """Refused unless a grant's `private` or `addresses` holds it."""
    HARD = 2
    """Never reachable."""


@dataclass(frozen=True, slots=True)
class Block:
    """One row: a network, what it is, the document that says so, and how it is refused."""

    network: Network
    title: str
    source: str
    floor: Floor
    reason: Reason

    def __str__(self) -> str:
        return f"{self.network} ({self.title}, {self.source})"


def _row(network: str, title: str, source: str, floor: Floor, reason: Reason = Reason.ADDRESS_RESERVED) -> Block:
    return Block(ip_network(network), title, source, floor, reason)


_OPEN, _SOFT, _HARD = Floor.NONE, Floor.SOFT, Floor.HARD
_PUBLIC: Final = Reason.GRANTED

IANA_V4: Final = (
    _row("0.0.0.0/8", "this network", "RFC 791", _HARD),
    _row("0.0.0.0/32", "unspecified, this host", "RFC 1122", _HARD),
    _row("10.0.0.0/8", "private use", "RFC 1918", _SOFT, Reason.ADDRESS_PRIVATE),
    _row("100.64.0.0/10", "shared address space, carrier NAT", "RFC 6598", _SOFT, Reason.ADDRESS_PRIVATE),
    _row("127.0.0.0/8", "loopback", "RFC 1122", _HARD, Reason.ADDRESS_LOOPBACK),
    _row("169.254.0.0/16", "link-local, cloud metadata", "RFC 3927", _HARD, Reason.ADDRESS_LINK_LOCAL),
    _row("172.16.0.0/12", "private use", "RFC 1918", _SOFT, Reason.ADDRESS_PRIVATE),
    _row("192.0.0.0/24", "IETF protocol assignments", "RFC 6890", _SOFT),
    _row("192.0.0.0/29", "IPv4 service continuity, DS-Lite", "RFC 7335", _SOFT),
    _row("192.0.0.8/32", "IPv4 dummy address", "RFC 7600", _SOFT),
    _row("192.0.0.9/32", "PCP anycast", "RFC 7723", _OPEN, _PUBLIC),
    _row("192.0.0.10/32", "TURN anycast", "RFC 8155", _OPEN, _PUBLIC),
    _row("192.0.0.170/32", "NAT64/DNS64 discovery", "RFC 8880", _SOFT),
    _row("192.0.0.171/32", "NAT64/DNS64 discovery", "RFC 8880", _SOFT),
    _row("192.0.2.0/24", "documentation, TEST-NET-1", "RFC 5737", _SOFT),
    _row("192.31.196.0/24", "AS112-v4", "RFC 7535", _OPEN, _PUBLIC),
    _row("192.52.193.0/24", "AMT", "RFC 7450", _OPEN, _PUBLIC),
    _row("192.88.99.0/24", "deprecated 6to4 relay anycast", "RFC 7526", _SOFT),
    _row("192.88.99.2/32", "6a44 relay anycast", "RFC 6751", _SOFT),
    _row("192.168.0.0/16", "private use", "RFC 1918", _SOFT, Reason.ADDRESS_PRIVATE),
    _row("192.175.48.0/24", "direct delegation AS112", "RFC 7534", _OPEN, _PUBLIC),
    _row("198.18.0.0/15", "benchmarking", "RFC 2544", _SOFT),
    _row("198.51.100.0/24", "documentation, TEST-NET-2", "RFC 5737", _SOFT),
    _row("203.0.113.0/24", "documentation, TEST-NET-3", "RFC 5737", _SOFT),
    _row("240.0.0.0/4", "reserved, class E", "RFC 1112", _SOFT),
    _row("255.255.255.255/32", "limited broadcast", "RFC 919", _HARD),
)

IANA_V6: Final = (
    _row("::1/128", "loopback", "RFC 4291", _HARD, Reason.ADDRESS_LOOPBACK),
    _row("::/128", "unspecified", "RFC 4291", _HARD),
    _row("::ffff:0:0/96", "IPv4-mapped", "RFC 4291", _HARD, Reason.ADDRESS_EMBEDDED),
    _row("64:ff9b::/96", "NAT64 well-known prefix", "RFC 6052", _HARD, Reason.ADDRESS_EMBEDDED),
    _row("64:ff9b:1::/48", "NAT64 local use", "RFC 8215", _HARD, Reason.ADDRESS_EMBEDDED),
    _row("100::/64", "discard only", "RFC 6666", _SOFT),
    _row("100:0:0:1::/64", "dummy prefix", "RFC 9780", _SOFT),
    _row("2001::/23", "IETF protocol assignments", "RFC 2928", _SOFT),
    _row("2001::/32", "Teredo", "RFC 4380", _HARD, Reason.ADDRESS_EMBEDDED),
    _row("2001:1::1/128", "PCP anycast", "RFC 7723", _OPEN, _PUBLIC),
    _row("2001:1::2/128", "TURN anycast", "RFC 8155", _OPEN, _PUBLIC),
    _row("2001:1::3/128", "DNS-SD SRP anycast", "RFC 9665", _OPEN, _PUBLIC),
    _row("2001:2::/48", "benchmarking", "RFC 5180", _SOFT),
    _row("2001:3::/32", "AMT", "RFC 7450", _OPEN, _PUBLIC),
    _row("2001:4:112::/48", "AS112-v6", "RFC 7535", _OPEN, _PUBLIC),
    _row("2001:10::/28", "deprecated ORCHID", "RFC 4843", _SOFT),
    _row("2001:20::/28", "ORCHIDv2", "RFC 7343", _OPEN, _PUBLIC),
    _row("2001:30::/28", "drone remote identification", "RFC 9374", _OPEN, _PUBLIC),
    _row("2001:db8::/32", "documentation", "RFC 3849", _SOFT),
    _row("2002::/16", "6to4", "RFC 3056", _HARD, Reason.ADDRESS_EMBEDDED),
    _row("2620:4f:8000::/48", "direct delegation AS112", "RFC 7534", _OPEN, _PUBLIC),
    _row("3fff::/20", "documentation", "RFC 9637", _SOFT),
    _row("5f00::/16", "segment routing SIDs", "RFC 9602", _SOFT),
    _row("fc00::/7", "unique local", "RFC 4193", _SOFT, Reason.ADDRESS_PRIVATE),
    _row("fe80::/10", "link-local", "RFC 4291", _HARD, Reason.ADDRESS_LINK_LOCAL),
)

BEYOND: Final = (
    _row("0.0.0.0/0", "public unicast", "RFC 791", _OPEN, _PUBLIC),
    _row("224.0.0.0/4", "multicast", "RFC 5771", _HARD, Reason.ADDRESS_MULTICAST),
    _row("::/0", "outside global unicast", "RFC 4291", _SOFT),
    _row("2000::/3", "global unicast", "RFC 4291", _OPEN, _PUBLIC),
    _row("::/96", "deprecated IPv4-compatible", "RFC 4291", _HARD, Reason.ADDRESS_EMBEDDED),
    _row("::ffff:0:0:0/96", "IPv4-translated", "RFC 2765", _HARD, Reason.ADDRESS_EMBEDDED),
    _row("fec0::/10", "deprecated site-local", "RFC 3879", _SOFT, Reason.ADDRESS_PRIVATE),
    _row("ff00::/8", "multicast", "RFC 4291", _HARD, Reason.ADDRESS_MULTICAST),
)
"""What the special-purpose registries leave to other documents, and the ground under both of them."""

METADATA: Final = tuple(
    _row(network, title, "cloud metadata", _HARD, Reason.ADDRESS_METADATA)
    for network, title in (
        ("100.100.100.200/32", "Alibaba Cloud"),
        ("100.96.0.96/32", "Volcano Engine"),
        ("168.63.129.16/32", "Azure WireServer"),
        ("192.0.0.192/32", "Oracle Cloud Classic"),
        ("fd00:ec2::23/128", "AWS EKS Pod Identity"),
        ("fd00:ec2::253/128", "AWS VPC resolver"),
        ("fd00:ec2::254/128", "AWS instance metadata"),
        ("fd20:ce::254/128", "Google Cloud"),
        ("fd00:42::42/128", "Scaleway"),
        ("fd00:a9fe:a9fe::1/128", "Akamai Linode"),
        ("fd00:c1::a9fe:a9fe/128", "Oracle Cloud"),
    )
)
"""Metadata services outside 169.254.0.0/16, from each cloud's own documentation."""

BLOCKS: Final = IANA_V4 + IANA_V6 + BEYOND + METADATA
_TABLE: Final[Networks[Block]] = compile_networks((block.network, block) for block in BLOCKS)
_V4_STARTS: Final = _TABLE.v4.starts
_V4_BLOCKS: Final = tuple(blocks[-1] for blocks in _TABLE.v4.values)
_V6_STARTS: Final = _TABLE.v6.starts
_V6_BLOCKS: Final = tuple(blocks[-1] for blocks in _TABLE.v6.values)
"""The most specific row of each segment: every connection asks for one."""

_ISATAP: Final = (0x0000_5EFE, 0x0200_5EFE)
"""First half of an ISATAP interface id, universal bit clear and set (RFC 5214 §6.1)."""
NAT64_LENGTHS: Final = (32, 40, 48, 56, 64, 96)
"""Prefix lengths of RFC 6052 §2.2."""
_CARRIERS: Final = frozenset((0xFFFF, 0x0064_FF9B << 64))
"""First 96 bits of IPv4-mapped addresses (RFC 4291 §2.5.5.2) and of NAT64's well-known prefix (RFC 6052 §2.1)."""


def classify(address: Address) -> Block:
    """The row that decides about `address`; pass it through `counts_as` first."""
    number = int(address)
    if isinstance(address, IPv4Address):
        return _V4_BLOCKS[bisect_right(_V4_STARTS, number) - 1]
    block = _V6_BLOCKS[bisect_right(_V6_STARTS, number) - 1]
    return _isatap(number, block) if (number >> 32) & 0xFFFF_FFFF in _ISATAP else block


def counts_as(address: Address, nat64: tuple[IPv6Network, ...] = ()) -> Address | None:
    """What `address` reaches: the IPv4 inside a mapped or NAT64 one (RFC 6052 §2.3), else itself.

    `nat64`: the site's own prefixes, without the well-known one. None when the address has a NAT64 prefix and yet is
    no such address (bits 64 to 71 are not zero): nobody can say where that goes.
    """
    if isinstance(address, IPv4Address):
        return address
    number = int(address)
    if number >> 32 in _CARRIERS:
        return IPv4Address(number & 0xFFFF_FFFF)
    for prefix in nat64:
        if number >> (128 - prefix.prefixlen) == int(prefix.network_address) >> (128 - prefix.prefixlen):
            return _carried(number, prefix.prefixlen)
    return address


def hard_blocks(network: Network) -> tuple[Block, ...]:
    """The hard rows that `network` touches; a policy may not name such a network."""
    return tuple(
        block
        for block in BLOCKS
        if block.floor is Floor.HARD and block.network.version == network.version and block.network.overlaps(network)
    )


def _carried(number: int, length: int) -> IPv4Address | None:
    """The IPv4 after a prefix of `length` bits, around the octet "u" (bits 64-71), which must be zero."""
    if length == 96:
        return IPv4Address(number & 0xFFFF_FFFF)
    if (number >> 56) & 0xFF:
        return None
    without_u = (number >> 64 << 56) | (number & (1 << 56) - 1)
    return IPv4Address((without_u >> (120 - length - 32)) & 0xFFFF_FFFF)


def _isatap(number: int, outer: Block) -> Block:
    """An ISATAP id is refused as firmly as the IPv4 that it carries, or as its own prefix, whichever is firmer."""
    inner = classify(IPv4Address(number & 0xFFFF_FFFF))
    if inner.floor <= outer.floor:
        return outer
    network = IPv6Network((number, 128))
    return Block(
        network,
        f"ISATAP carrying {inner.network}, {inner.title}",
        "RFC 5214",
        inner.floor,
        Reason.ADDRESS_EMBEDDED,
    )
