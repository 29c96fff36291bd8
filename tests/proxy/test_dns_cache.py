"""The cache's bounds."""

from ipaddress import ip_address

import pytest

from policy.answer import Answer
from policy.host import Name
from policy.limits import DNS_CACHE_COUNT, DNS_KEPT_ADDRESSES_COUNT, DNS_NEGATIVE_MOST_S, DNS_TTL_MOST_S
from policy.verdict import Reason
from proxy.dns_cache import DnsCache

HIT = Answer(Name("a.example"), (ip_address("192.0.2.1"),))


@pytest.mark.parametrize(
    ("ttl_s", "failed", "kept_s"),
    [
        (0, None, 0),
        (5, None, 5),
        (10**6, None, DNS_TTL_MOST_S),
        (0, Reason.DNS_FAILED, 0),
        (10**6, Reason.DNS_FAILED, DNS_NEGATIVE_MOST_S),
    ],
)
def test_how_long_an_answer_is_kept(ttl_s: int, failed: Reason | None, kept_s: float) -> None:
    cache = DnsCache()
    answer = Answer(Name("a.example"), () if failed else HIT.addresses, ttl_s=ttl_s, failed=failed)
    cache.put(answer, 100.0)
    assert cache.get(answer.name, 100.0) == (answer if kept_s else None)
    if kept_s:
        assert cache.get(answer.name, 100 + kept_s - 0.1) == answer
    assert cache.get(answer.name, 100 + kept_s) is None


def test_it_never_holds_more_than_its_bound() -> None:
    cache = DnsCache()
    for at in range(DNS_CACHE_COUNT + 100):
        cache.put(Answer(Name(f"n{at}.example"), HIT.addresses, ttl_s=60), 0.0)
    assert len(cache) == DNS_CACHE_COUNT
    assert cache.get(Name("n0.example"), 1.0) is None
    assert cache.get(Name(f"n{DNS_CACHE_COUNT + 99}.example"), 1.0) is not None


@pytest.mark.parametrize(("count", "kept"), [(DNS_KEPT_ADDRESSES_COUNT, True), (DNS_KEPT_ADDRESSES_COUNT + 1, False)])
def test_a_large_answer_is_not_kept(count: int, kept: bool) -> None:
    cache = DnsCache()
    cache.put(Answer(HIT.name, tuple(ip_address(2**31 + at) for at in range(count)), ttl_s=60), 0.0)
    assert (cache.get(HIT.name, 1.0) is not None) == kept
