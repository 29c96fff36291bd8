"""DNS as a person writes it down."""

from ipaddress import ip_address

import pytest

from policy.answer import Answer
from policy.errors import BadPolicy
from policy.script import read_script
from policy.verdict import Reason

A, AAAA = "93.184.215.14", "2606:4700::1111"


def ask(names, name="a.net"):
    return read_script(names)(name)


@pytest.mark.parametrize(
    ("names", "addresses", "chain"),
    [
        ({"a.net": {"A": [A]}}, [A], ()),
        ({"A.Net.": {"A": [A], "AAAA": [AAAA]}}, [A, AAAA], ()),
        ({"a.net": {"A": [A], "AAAA_rcode": "SERVFAIL"}}, [A], ()),
        (
            {"a.net": {"CNAME": "b.net"}, "b.net": {"CNAME": "C.net."}, "c.net": {"AAAA": [AAAA]}},
            [AAAA],
            ("b.net", "c.net"),
        ),
        ({"a.net": {"AAAA": ["::ffff:8.8.8.8"]}}, ["8.8.8.8"], ()),
    ],
)
def test_answers(names, addresses, chain):
    assert ask(names) == Answer("a.net", tuple(map(ip_address, addresses)), chain)


@pytest.mark.parametrize(
    ("names", "detail"),
    [
        ({}, "NXDOMAIN"),
        ({"b.net": {"A": [A]}}, "NXDOMAIN"),
        ({"a.net": {}}, "no address records"),
        ({"a.net": {"A": [], "AAAA": []}}, "no address records"),
        ({"a.net": {"rcode": "SERVFAIL"}}, "SERVFAIL"),
        ({"a.net": {"rcode": "SERVFAIL", "A": [A]}}, "SERVFAIL"),
        ({"a.net": {"CNAME": "b.net"}}, "NXDOMAIN"),
        ({"a.net": {"CNAME": "b.net", "A": [A]}, "b.net": {"A": [A]}}, "a.net has a CNAME beside an address"),
        ({"a.net": {"CNAME": "a.net"}}, "the CNAMEs of a.net go in a circle"),
        ({"a.net": {"CNAME": "x\\000.net"}}, 'the host "x\\\\000.net" has the character'),
        ({"a.net": {"CNAME": "1.2.3.4"}}, "a CNAME to an address"),
        ({"a.net": {"AAAA": ["fe80::1%eth0"]}}, "zone id"),
        ({"a.net": {"A": ["10.1"]}}, "ends in a number"),
    ],
)
def test_no_answer(names, detail):
    found = ask(names)
    assert found.failed is Reason.DNS_FAILED and detail in found.detail, found
    assert not found.addresses


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"a.net": 5}, "not an object"),
        ({"a.net": {"MX": []}}, "unknown key"),
        ({"a.net": {"A": "1.1.1.1"}}, "A is not a list of texts"),
        ({"a.net": {"A": [1]}}, "A is not a list of texts"),
        ({"a.net": {"CNAME": ["b.net"]}}, "CNAME is not text"),
        ({"a.net": {"rcode": None}}, "rcode is not text"),
    ],
)
def test_another_shape_is_an_error(names, words):
    with pytest.raises(BadPolicy) as error:
        read_script(names)
    assert words in error.value.problems[0] and '"a.net"' in error.value.problems[0]
