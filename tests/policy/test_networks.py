"""Intervals with bisect, against looking at every network."""

from ipaddress import ip_network

from hypothesis import given
from hypothesis import strategies as st

from policy.networks import compile_networks

V4 = st.builds(
    lambda address, length: ip_network((int(address) >> 32 - length << 32 - length, length)),
    st.ip_addresses(v=4),
    st.integers(0, 32),
)
V6 = st.builds(
    lambda number, length: ip_network((0x2001 << 112 | number << 120 - 16 >> 128 - length << 128 - length, length)),
    st.integers(0, 255),
    st.integers(16, 128),
)
NARROW = st.builds(
    lambda number, length: ip_network((0x0A000000 | number >> 32 - length << 32 - length, length)),
    st.integers(0, 1023),
    st.integers(22, 32),
)


@given(st.lists(st.one_of(V4, V6, NARROW)), st.lists(st.ip_addresses()))
def test_table_and_its_naive_twin(networks, addresses):
    table = compile_networks((network, at) for at, network in enumerate(networks))
    edges = [edge for network in networks for edge in (network.network_address, network.broadcast_address)]
    outside = [edge + 1 for edge in edges if int(edge) + 1 < 1 << edge.max_prefixlen] + [
        edge - 1 for edge in edges if int(edge)
    ]
    for address in (*addresses, *edges, *outside):
        holding = [at for at, network in enumerate(networks) if address in network]
        found = table.find(address)
        assert sorted(found) == holding
        lengths = [networks[at].prefixlen for at in found]
        assert lengths == sorted(lengths), "the widest first"


def test_nothing_is_found_in_nothing():
    table = compile_networks([])
    for text in ("0.0.0.0/32", "255.255.255.255/32", "::/128", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"):
        assert table.find(ip_network(text).network_address) == ()


def test_nf01_overlaps_duplicates_and_thousands():
    """NF-01: overlapping, adjacent and double networks load, and 5,000 of them quickly."""
    texts = [
        "10.0.0.0/8",
        "10.1.2.3/32",
        "10.1.2.3/32",
        "10.1.2.2/31",
        "11.0.0.0/8",
        *(f"172.16.{at // 256}.{at % 256}/32" for at in range(4996)),
    ]
    table = compile_networks((ip_network(text), text) for text in texts)
    assert table.find(ip_network("10.1.2.3/32").network_address) == (
        "10.0.0.0/8",
        "10.1.2.2/31",
        "10.1.2.3/32",
        "10.1.2.3/32",
    )
    assert table.find(ip_network("172.16.19.131/32").network_address) == ("172.16.19.131/32",)
    assert table.find(ip_network("12.0.0.0/32").network_address) == ()
