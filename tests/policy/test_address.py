"""The address table against the registries' edges, a naive twin, and every way to carry an IPv4 in an IPv6."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.address import BLOCKS, IANA_V4, IANA_V6, NAT64_LENGTHS, Floor, classify, counts_as, hard_blocks
from policy.host import plain
from policy.verdict import Reason


def naive(address):
    """The most specific row that holds the address, by looking at all of them."""
    rows = [block for block in BLOCKS if address in block.network]
    return max(rows, key=lambda block: block.network.prefixlen)


EDGES = sorted(
    {
        address
        for block in BLOCKS
        for address in (
            int(block.network.network_address) - 1,
            int(block.network.network_address),
            int(block.network.broadcast_address),
            int(block.network.broadcast_address) + 1,
        )
    }
)


def test_edges_of_every_row():
    for number in EDGES:
        for kind, bits in ((IPv4Address, 32), (IPv6Address, 128)):
            if 0 <= number < 1 << bits:
                address = kind(number)
                assert classify(address) is naive(address), address


@given(st.ip_addresses())
def test_table_and_its_naive_twin(address):
    found = classify(address)
    if found.source == "RFC 5214":
        assert naive(address).floor < found.floor
    else:
        assert found is naive(address)


def test_every_row_is_whole():
    assert len({block.network for block in BLOCKS}) == len(BLOCKS)
    for block in BLOCKS:
        assert block.title and block.source
        assert (block.floor is Floor.NONE) == (block.reason is Reason.GRANTED)
        assert block.floor is Floor.NONE or block.reason.startswith("address-")
        assert str(block.network) in str(block)
    assert len(IANA_V4) == 26 and len(IANA_V6) == 25, "the registries of 2025-10-09"


@pytest.mark.parametrize(
    ("address", "floor", "reason"),
    [
        ("1.1.1.1", Floor.NONE, Reason.GRANTED),
        ("192.0.0.9", Floor.NONE, Reason.GRANTED),
        ("2001:20::1", Floor.NONE, Reason.GRANTED),
        ("0.0.0.0", Floor.HARD, Reason.ADDRESS_RESERVED),
        ("127.255.255.254", Floor.HARD, Reason.ADDRESS_LOOPBACK),
        ("::1", Floor.HARD, Reason.ADDRESS_LOOPBACK),
        ("::", Floor.HARD, Reason.ADDRESS_RESERVED),
        ("169.254.169.254", Floor.HARD, Reason.ADDRESS_LINK_LOCAL),
        ("fe80::1", Floor.HARD, Reason.ADDRESS_LINK_LOCAL),
        ("224.0.0.251", Floor.HARD, Reason.ADDRESS_MULTICAST),
        ("ff02::1", Floor.HARD, Reason.ADDRESS_MULTICAST),
        ("255.255.255.255", Floor.HARD, Reason.ADDRESS_RESERVED),
        ("168.63.129.16", Floor.HARD, Reason.ADDRESS_METADATA),
        ("100.100.100.200", Floor.HARD, Reason.ADDRESS_METADATA),
        ("192.0.0.192", Floor.HARD, Reason.ADDRESS_METADATA),
        ("fd00:ec2::254", Floor.HARD, Reason.ADDRESS_METADATA),
        ("fd20:ce::254", Floor.HARD, Reason.ADDRESS_METADATA),
        ("10.1.2.3", Floor.SOFT, Reason.ADDRESS_PRIVATE),
        ("fd12::1", Floor.SOFT, Reason.ADDRESS_PRIVATE),
        ("fec0::1", Floor.SOFT, Reason.ADDRESS_PRIVATE),
        ("198.18.0.1", Floor.SOFT, Reason.ADDRESS_RESERVED),
        ("240.0.0.1", Floor.SOFT, Reason.ADDRESS_RESERVED),
        ("4000::1", Floor.SOFT, Reason.ADDRESS_RESERVED),
        ("::1:0:0:0", Floor.SOFT, Reason.ADDRESS_RESERVED),
        ("::8.8.8.8", Floor.HARD, Reason.ADDRESS_EMBEDDED),
        ("::ffff:0:8.8.8.8", Floor.HARD, Reason.ADDRESS_EMBEDDED),
        ("2002:808:808::1", Floor.HARD, Reason.ADDRESS_EMBEDDED),
        ("2001:0:808:808::1", Floor.HARD, Reason.ADDRESS_EMBEDDED),
        ("64:ff9b:1:808:8:800::", Floor.HARD, Reason.ADDRESS_EMBEDDED),
        ("2a00:1450:4001:800:0:5efe:127.0.0.1", Floor.HARD, Reason.ADDRESS_EMBEDDED),
        ("2a00:1450:4001:800:200:5efe:10.0.0.1", Floor.SOFT, Reason.ADDRESS_EMBEDDED),
        ("2a00:1450:4001:800:0:5efe:8.8.8.8", Floor.NONE, Reason.GRANTED),
        ("fe80::5efe:8.8.8.8", Floor.HARD, Reason.ADDRESS_LINK_LOCAL),
    ],
)
def test_rows(address, floor, reason):
    block = classify(ip_address(address))
    assert (block.floor, block.reason) == (floor, reason)


def test_ac01_carrier_nat_ends_where_it_ends():
    """AC-01: 100.64.0.0/10 is refused exactly up to its edges."""
    for text, floor in (
        ("100.63.255.255", Floor.NONE), ("100.64.0.0", Floor.SOFT), ("100.127.255.255", Floor.SOFT), ("100.128.0.0", Floor.NONE),
    ):  # fmt: skip
        assert classify(IPv4Address(text)).floor is floor
    assert "carrier NAT" in classify(IPv4Address("100.64.0.1")).title


# --- embedding


def embed(prefix, address):
    """RFC 6052 §2.2, written from its picture: the prefix, then the IPv4 octets, octet 8 left zero."""
    octets = bytearray(prefix.network_address.packed[: prefix.prefixlen // 8])
    for octet in address.packed:
        if len(octets) == 8:
            octets.append(0)
        octets.append(octet)
    return IPv6Address(bytes(octets) + bytes(16 - len(octets)))


def test_rfc6052_examples():
    """The table of RFC 6052 §2.4."""
    for prefix, written in (
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
    ):
        network = IPv6Network(prefix)
        assert embed(network, IPv4Address("192.0.2.33")) == IPv6Address(written)
        assert counts_as(IPv6Address(written), (network,)) == IPv4Address("192.0.2.33")


@given(st.sampled_from(NAT64_LENGTHS), st.ip_addresses(v=4), st.integers(0, (1 << 128) - 1))
def test_nat64_carries_what_it_carries(length, address, noise):
    number = (0x2A00 << 112) | (noise & (1 << 112) - 1)
    if length == 96:
        number &= ~(0xFF << 56)
    prefix = IPv6Network((number >> (128 - length) << (128 - length), length))
    assert counts_as(embed(prefix, address), (prefix,)) == address
    assert counts_as(embed(prefix, address), ()) == embed(prefix, address)


def test_nat64_with_bits_64_to_71_is_nowhere():
    prefix = IPv6Network("2a00:1450:6400::/56")
    assert counts_as(IPv6Address("2a00:1450:6400:7f:100:1::"), (prefix,)) is None


def test_well_known_and_mapped():
    assert (
        counts_as(IPv6Address("64:ff9b::7f00:1")) == counts_as(IPv6Address("::ffff:7f00:1")) == IPv4Address("127.0.0.1")
    )
    assert counts_as(IPv4Address("8.8.8.8")) == IPv4Address("8.8.8.8")
    assert counts_as(IPv6Address("2606:4700::1")) == IPv6Address("2606:4700::1")


@given(st.ip_addresses(v=4))
def test_no_carrier_is_more_open_than_what_it_carries(address):
    inner = classify(address).floor
    number = int(address)
    for carrier in (
        number, 0xFFFF << 48 | number, 0x2002 << 112 | number << 80 | 1, 0x2001 << 112 | number << 64,
        0x2001 << 112 | number ^ 0xFFFF_FFFF, 0x0064_FF9B_0001 << 80 | number, 0xFFFF << 32 | number, 0x0064_FF9B << 96 | number,
        0x2A00_1450_4001_0800_0000_5EFE << 32 | number, 0x2A00_1450_4001_0800_0200_5EFE << 32 | number,
    ):  # fmt: skip
        reached = counts_as(plain(IPv6Address(carrier)))
        assert reached is not None
        assert classify(reached).floor >= inner


def test_hard_blocks():
    assert hard_blocks(ip_network("127.0.0.0/8"))
    assert hard_blocks(ip_network("100.64.0.0/10"))
    assert hard_blocks(ip_network("fd00::/8"))
    assert hard_blocks(ip_network("0.0.0.0/1"))
    assert not hard_blocks(ip_network("10.0.0.0/8"))
    assert not hard_blocks(ip_network("2606:4700::/32"))
