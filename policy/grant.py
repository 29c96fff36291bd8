"""A grant (one allowance), a refuse rule, and the host patterns that both are written with."""

from dataclasses import dataclass, field
from typing import Final

from policy.host import Name
from policy.networks import Network
from policy.request import PathPattern

DEFAULT_PORTS: Final = (range(443, 444), range(80, 81))
"""What a grant without `ports` allows."""


@dataclass(frozen=True, slots=True)
class HostPattern:
    """An exact name, or (`below`) every name below it at any depth and never the name itself."""

    name: Name
    below: bool = False

    def __str__(self) -> str:
        return f"*.{self.name}" if self.below else self.name

    def covers(self, name: Name) -> bool:
        """Whether `name` is meant. The compiled tables answer alike and faster."""
        return name.endswith(f".{self.name}") if self.below else name == self.name

    def covers_all(self, other: "HostPattern") -> bool:
        """Whether every name that `other` means is meant."""
        return self.covers(other.name) or self == other


@dataclass(frozen=True, slots=True)
class Inject:
    """A header that is added to the requests of an intercepted grant; `value` may name a secret."""

    header: str
    value: str


@dataclass(frozen=True, slots=True)
class Grant:
    """One allowance. It speaks for a destination whose host, port and moment all match."""

    name: str
    hosts: tuple[HostPattern, ...] = ()
    addresses: tuple[Network, ...] = ()
    """Destinations written as address literals."""
    public_web: bool = False
    """Any globally reachable unicast address, by name or literal."""
    ports: tuple[range, ...] = DEFAULT_PORTS
    private: tuple[Network, ...] = ()
    """Non-public networks that `hosts` may resolve to."""
    until_s: float | None = None
    """Unix time from which on it no longer speaks."""
    intercept: bool = False
    """Only requests whose head the proxy can read: plain HTTP, and TLS that ends at the proxy."""
    methods: tuple[str, ...] = ()
    paths: tuple[PathPattern, ...] = ()
    inject: Inject | None = None
    line: int = field(default=0, compare=False)
    """Where the file says it, from 1."""

    def has_port(self, port: int) -> bool:
        """Whether `port` is among `ports`."""
        return any(port in ports for ports in self.ports)

    def is_over(self, now_s: float) -> bool:
        """Whether `until` has come."""
        return self.until_s is not None and now_s >= self.until_s

    def key(self) -> tuple[object, ...]:
        """An order of grants that does not depend on the order in a file: exact hosts first, presets last."""
        wild = any(pattern.below for pattern in self.hosts)
        content = (*map(str, self.hosts), *map(str, self.addresses), str(self.ports), *map(str, self.private))
        rest = (
            str(self.until_s),
            str(self.intercept),
            *self.methods,
            *map(str, self.paths),
            str(self.inject),
        )
        return (self.public_web, wild, self.name, content, rest)


@dataclass(frozen=True, slots=True)
class Refuse:
    """A refuse rule: beats every grant, in every layer, on every port."""

    name: str
    hosts: tuple[HostPattern, ...] = ()
    addresses: tuple[Network, ...] = ()
    line: int = field(default=0, compare=False)
