"""What several files make together: revision, limits, own addresses."""

from ipaddress import ip_address

from policy.document import parse
from policy.layers import combine
from policy.limits import Limits

A = parse('version = 1\n[[grant]]\nhosts = ["a.net"]\n', "a.toml")
B = parse('version = 1\n[[grant]]\nhosts = ["b.net"]\n[addresses]\nown = ["1.1.1.1"]\n', "b.toml")


def test_revision_is_of_the_content():
    assert combine([A]).revision == combine([parse(A.text, "other.toml")]).revision
    assert combine([A, B]).revision == combine([B, A]).revision
    assert len({combine(layers).revision for layers in ([], [A], [B], [A, A], [A, B])}) == 5
    assert len(combine([A]).revision) == 12


def test_own_addresses():
    one, two = ip_address("1.1.1.1"), ip_address("2a00::1")
    assert combine([A]).own == frozenset()
    assert combine([A, B]).own == {one}
    found = combine([B], frozenset([two])).with_own(frozenset([ip_address("9.9.9.9")]))
    assert found.own == {one, two, ip_address("9.9.9.9")} and found.own_numbers == {int(it) for it in found.own}
    assert found.revision == combine([B]).revision and found.tables == combine([B]).tables


def test_limits_without_a_word_are_the_products():
    assert combine([]).limits == combine([A]).limits == Limits()
