"""What a verdict costs on a warm name: judge and admit together, beside a naive twin that looks at every rule.

`python bench/verdict.py` prints one row for each policy: processor time of one call in microseconds, the best of RUNS.
"""

import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_network

from policy.address import BLOCKS
from policy.answer import Answer
from policy.destination import Destination
from policy.grant import Grant, HostPattern
from policy.host import Address, Name
from policy.judge import admit, judge
from policy.layers import Layer, Policy, combine

RUNS = 15
CALLS = 5_000
HOST = Name("files.pythonhosted.org")
V4, V6 = IPv4Address("151.101.0.223"), IPv6Address("2a04:4e42::223")
ROWS = [(block.network, block) for block in BLOCKS]


def naive(grants: tuple[Grant, ...], destination: Destination, answer: Answer) -> bool:
    """POLICY §4 by looking at everything, with the standard library's own networks."""
    name = destination.name
    assert name is not None
    speaking = [
        grant
        for grant in grants
        if any(pattern.covers(name) for pattern in grant.hosts) and grant.has_port(destination.port)
    ]
    return bool(speaking) and all(is_public(address) for address in answer.addresses)


def is_public(address: Address) -> bool:
    """The most specific row of the address table, by looking at all of them."""
    rows = [(network.prefixlen, block) for network, block in ROWS if address in network]
    return max(rows, key=lambda row: row[0])[1].floor == 0


def policy(hosts_count: int) -> tuple[Policy, Layer]:
    """One grant for the host by a wildcard, and `hosts_count` others."""
    others = tuple(
        Grant(f"g{at}", (HostPattern(Name(f"h{at}.example.com")),), (ip_network((0x0B000000 + at, 32)),))
        for at in range(hosts_count)
    )
    wanted = Grant("packages", (HostPattern(Name("pypi.org")), HostPattern(Name("pythonhosted.org"), below=True)))
    layer = Layer("bench.toml", grants=(*others, wanted))
    return combine([layer]), layer


def cost_us(call: Callable[[], object]) -> float:
    """Processor time of one call, the best run: the others were disturbed."""
    times = []
    for _ in range(RUNS):
        started_s = time.process_time()
        for _ in range(CALLS):
            call()
        times.append((time.process_time() - started_s) / CALLS * 1e6)
    return min(times)


def main() -> None:
    """Print the table."""
    destination = Destination(HOST, 443)
    print(f"{'others':>7} {'addresses':>9} {'judge':>7} {'admit':>7} {'both':>7} {'naive':>9}")
    for others in (0, 10, 1_000):
        rules, layer = policy(others)
        for addresses in ((V4,), (V4, V6)):
            answer = Answer(HOST, addresses)
            judged = cost_us(lambda rules=rules: judge(rules, destination, 0.0))  # type: ignore[misc]
            admitted = cost_us(lambda rules=rules, answer=answer: admit(rules, destination, answer, 0.0))  # type: ignore[misc]
            twin = min(naive_cost_us(layer, destination, answer) for _ in range(RUNS))
            row = (judged, admitted, judged + admitted)
            print(f"{others:>7} {len(addresses):>9}", *(f"{it:>7.2f}" for it in row), f"{twin:>9.1f}")


def naive_cost_us(layer: Layer, destination: Destination, answer: Answer) -> float:
    """Processor time of the naive twin's verdict."""
    started_s = time.process_time()
    for _ in range(10):
        assert naive(layer.grants, destination, answer)
    return (time.process_time() - started_s) / 10 * 1e6


if __name__ == "__main__":
    main()
