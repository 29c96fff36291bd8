"""CNAME chains, owners and families, assembled into one answer."""

from ipaddress import IPv4Address, IPv6Address

import pytest

from policy.answer import Answer, Reply, Rr, assemble
from policy.verdict import Reason

A, AAAA = IPv4Address("93.184.215.14"), IPv6Address("2606:4700::1111")
NAME = "a.example.com"


def reply(*records, rcode="NOERROR"):
    return Reply(rcode, tuple(Rr(owner, data, ttl_s) for owner, data, ttl_s in records))


def test_both_families():
    found = assemble(NAME, [reply((NAME, A, 60)), reply((NAME, AAAA, 30))])
    assert found == Answer(NAME, (A, AAAA), (), 30)


def test_a_chain_is_followed_and_kept_in_order():
    links = [(NAME, "b.example.net", 9), ("b.example.net", "c.example.net", 5)]
    found = assemble(NAME, [reply(*links, ("c.example.net", A, 60)), reply(*links)])
    assert found == Answer(NAME, (A,), ("b.example.net", "c.example.net"), 5)


@pytest.mark.parametrize(
    "records",
    [
        [("other.example.com", A, 1)],
        [(NAME, "b.example.net", 1), ("c.example.net", A, 1)],
        [(NAME, "b.example.net", 1), ("x.b.example.net", A, 1)],
    ],
)
def test_a_record_of_another_owner_counts_for_nothing(records):
    found = assemble(NAME, [reply(*records), reply()])
    assert found.failed is Reason.DNS_FAILED and not found.addresses
    assert found.detail == "no address records"


@pytest.mark.parametrize(
    ("records", "detail"),
    [
        ([(NAME, NAME, 1)], "in a circle"),
        ([(NAME, "b.net", 1), ("b.net", NAME, 1)], "in a circle"),
        ([(NAME, "b.net", 1), ("b.net", "c.net", 1), ("c.net", "b.net", 1)], "in a circle"),
        ([(NAME, "b.net", 1), (NAME, A, 1)], "beside an address"),
        ([(NAME, "b.net", 1), ("b.net", A, 1), ("b.net", "c.net", 1)], "beside an address"),
        ([(NAME, "b.net", 1), (NAME, "c.net", 1), ("b.net", A, 1)], "two CNAMEs"),
        (
            [(NAME, "c0.net", 1), *[(f"c{at}.net", f"c{at + 1}.net", 1) for at in range(8)], ("c8.net", A, 1)],
            "more than 8",
        ),
    ],
)
def test_a_chain_that_contradicts_itself_fails_the_name(records, detail):
    for replies in ([reply(*records), reply((NAME, AAAA, 1))], [reply((NAME, AAAA, 1)), reply(*records)]):
        found = assemble(NAME, replies)
        assert found.failed is Reason.DNS_FAILED and detail in found.detail and not found.addresses


def test_eight_links_are_fine_and_the_same_cname_twice_is_one():
    links = [(NAME, "c1.net", 1), (NAME, "c1.net", 1), *[(f"c{at}.net", f"c{at + 1}.net", 1) for at in range(1, 8)]]
    assert assemble(NAME, [reply(*links, ("c8.net", A, 1))]).addresses == (A,)


@pytest.mark.parametrize(
    ("replies", "failed", "detail"),
    [
        ([Reply("NXDOMAIN"), Reply("NXDOMAIN")], Reason.DNS_FAILED, "NXDOMAIN"),
        ([Reply("SERVFAIL"), Reply("REFUSED")], Reason.DNS_FAILED, "SERVFAIL, REFUSED"),
        ([Reply("NOERROR"), Reply(timed_out=True)], Reason.DNS_TIMEOUT, "no reply in time"),
        ([Reply(timed_out=True), Reply(timed_out=True)], Reason.DNS_TIMEOUT, "no reply in time"),
        ([Reply(), Reply()], Reason.DNS_FAILED, "no address records"),
        ([], Reason.DNS_FAILED, "no address records"),
        ([Reply(fault="the name in it is none"), reply((NAME, AAAA, 1))], Reason.DNS_FAILED, "the name in it is none"),
    ],
)
def test_failures(replies, failed, detail):
    found = assemble(NAME, replies)
    assert (found.failed, found.detail, found.addresses) == (failed, detail, ())


@pytest.mark.parametrize("other", [Reply("SERVFAIL"), Reply("NXDOMAIN"), Reply(timed_out=True), Reply()])
def test_one_family_that_fails_is_passed_over(other):
    for replies in ([reply((NAME, A, 7)), other], [other, reply((NAME, A, 7))]):
        assert assemble(NAME, replies) == Answer(NAME, (A,), (), 7)
