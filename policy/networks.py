"""Networks compiled to sorted integers, so that one look-up is one bisect."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network

from policy.host import Address

type Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class _Family[T]:
    """Disjoint segments of one address family: `values[i]` holds from `starts[i]` up to the next start."""

    starts: tuple[int, ...]
    values: tuple[tuple[T, ...], ...]

    def find(self, number: int) -> tuple[T, ...]:
        return self.values[bisect_right(self.starts, number) - 1]


@dataclass(frozen=True, slots=True)
class Networks[T]:
    """Values tied to networks of both families."""

    v4: _Family[T]
    v6: _Family[T]

    def find(self, address: Address) -> tuple[T, ...]:
        """The values of every network that holds `address`, the widest network's first."""
        family = self.v6 if isinstance(address, IPv6Address) else self.v4
        return family.find(int(address))


def compile_networks[T](rows: Iterable[tuple[Network, T]]) -> Networks[T]:
    """One table of all `rows`; a network given twice keeps both values, in the order given."""
    v4: list[tuple[int, int, T]] = []
    v6: list[tuple[int, int, T]] = []
    for network, value in rows:
        ends = int(network.network_address), int(network.broadcast_address), value
        (v4 if network.version == 4 else v6).append(ends)
    return Networks(_compile(v4, 32), _compile(v6, 128))


def _compile[T](rows: list[tuple[int, int, T]], bits: int) -> _Family[T]:
    """Networks nest and never cross, so a stack of the open ones is enough."""
    starts: list[int] = [0]
    values: list[tuple[T, ...]] = [()]
    opened: list[tuple[int, T]] = []

    def begin(at: int) -> None:
        inside = tuple(value for _, value in opened)
        if starts[-1] == at:
            values[-1] = inside
        elif at < 1 << bits:
            starts.append(at)
            values.append(inside)

    for first, last, value in sorted(rows, key=lambda row: (row[0], -row[1])):
        while opened and opened[-1][0] < first:
            end = opened.pop()[0]
            begin(end + 1)
        opened.append((last, value))
        begin(first)
    while opened:
        end = opened.pop()[0]
        begin(end + 1)
    return _Family(tuple(starts), tuple(values))
