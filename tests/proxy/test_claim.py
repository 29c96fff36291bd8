"""What a tunnel's client says first, as a table; cut at every offset and with a tail."""

from ipaddress import ip_address

import pytest

from policy.destination import Destination
from policy.errors import BadClient
from policy.host import Name
from policy.verdict import Reason
from proxy.claim import Claim, Next
from tests.proxy.peers import client_hello

NAME = Name("example.com")
ADDRESS = ip_address("93.184.215.14")
HELLO = client_hello("example.com")
OTHER = client_hello("evil.example.net")
NONE = client_hello(None)

TABLE = [
    # destination, first bytes, what follows
    (NAME, 443, HELLO, Next.PASS),
    (NAME, 8443, HELLO, Next.PASS),
    (NAME, 80, HELLO, Next.PASS),
    (NAME, 443, OTHER, Reason.SNI_MISMATCH),
    (NAME, 22, OTHER, Reason.SNI_MISMATCH),
    (NAME, 80, OTHER, Reason.SNI_MISMATCH),
    (NAME, 443, client_hello("www.example.com"), Reason.SNI_MISMATCH),
    (NAME, 443, client_hello("EXAMPLE.com"), Next.PASS),
    (NAME, 443, NONE, Reason.SNI_MISSING),
    (NAME, 8443, NONE, Reason.SNI_MISSING),
    (ADDRESS, 443, NONE, Next.PASS),
    (ADDRESS, 443, HELLO, Reason.SNI_MISMATCH),
    (NAME, 443, b"GET / HTTP/1.1\r\n\r\n", Reason.NOT_TLS),
    (NAME, 443, b"SSH-2.0-x\r\n", Reason.NOT_TLS),
    (ADDRESS, 443, b"\x00", Reason.NOT_TLS),
    (NAME, 443, b"\x16\x02\x00\x00\x01x", Reason.NOT_TLS),
    (NAME, 80, b"GET / HTTP/1.1\r\n\r\n", Next.HTTP),
    (NAME, 80, b"\x00anything", Next.HTTP),
    (NAME, 22, b"SSH-2.0-x\r\n", Next.PASS),
    (NAME, 5432, b"\x00\x00\x00\x08\x04\xd2\x16\x2f", Next.PASS),
]


def outcome(host, port, *parts: bytes):
    claim = Claim(Destination(host, port))
    for part in parts:
        try:
            following = claim.feed(part)
        except BadClient as bad:
            return bad.reason
        if following is not Next.WAIT:
            return following
    return Next.WAIT


@pytest.mark.parametrize(("host", "port", "first", "expected"), TABLE)
def test_whole_and_with_a_tail(host, port, first, expected):
    assert outcome(host, port, first) == expected


@pytest.mark.parametrize(("host", "port", "first", "expected"), TABLE)
def test_cut_at_every_offset(host, port, first, expected):
    for at in range(1, len(first)):
        assert outcome(host, port, first[:at], first[at:]) == expected, at


def test_half_a_hello_waits_and_its_end_is_refused():
    claim = Claim(Destination(NAME, 8443))
    assert not claim.has_deadline
    assert claim.feed(HELLO[:40]) is Next.WAIT
    assert claim.has_deadline
    with pytest.raises(BadClient) as caught:
        claim.end()
    assert caught.value.reason is Reason.NOT_TLS


def test_saying_nothing_is_no_claim():
    Claim(Destination(NAME, 443)).end()


def test_tls_is_owed_on_443_from_the_start():
    assert Claim(Destination(NAME, 443)).has_deadline
    assert not Claim(Destination(NAME, 22)).has_deadline
