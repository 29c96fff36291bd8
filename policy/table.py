"""One layer compiled for look-ups: a hash of exact hosts, a tree of reversed labels, sorted intervals of addresses."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Network
from itertools import chain

from policy.grant import Grant, Refuse
from policy.host import Name
from policy.networks import Networks, compile_networks
from policy.special import SpecialName, special
from policy.verdict import Reason, Verdict


@dataclass(frozen=True, slots=True)
class Entry:
    """A grant ready for use."""

    grant: Grant
    granted: Verdict
    """What is answered when this grant allows; made once, because every connection needs one."""
    ports: Container[int]
    exact: frozenset[Name]
    """The names among its hosts."""
    private: Networks[Grant] | None
    is_plain: bool
    """No `until`, no `intercept`: only the port is left to look at."""


@dataclass(frozen=True, slots=True)
class Said:
    """All that a layer says about one name."""

    rule: Refuse | None
    special: SpecialName | None
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class _Node[T]:
    """Labels from the top of the name tree down; `values` belong to the names below this one."""

    children: dict[str, "_Node[T]"] = field(default_factory=dict)
    values: list[T] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Table:
    """One layer's rules by what they are looked up with."""

    layer: str
    is_report: bool
    """In report mode, and with a grant: a policy empty of grants permits nothing in any mode."""
    nat64: tuple[IPv6Network, ...]
    revision: str
    names: Mapping[Name, Said]
    """Every name that the layer writes out, with the wildcards and presets that cover it too."""
    wild_grants: _Node[int]
    wild_refuses: _Node[Refuse]
    presets: tuple[int, ...]
    entries: tuple[Entry, ...]
    """In the order of `Grant.key`, which no file's order changes."""
    grant_networks: Networks[int]
    refuse_networks: Networks[Refuse] | None

    def about(self, name: Name) -> Said:
        """What the layer says about `name`."""
        return self.names.get(name) or self._look_up(name, (), ())

    def _look_up(self, name: Name, rules: Iterable[Refuse], exact: Iterable[int]) -> Said:
        """As `about`, with the rules and grants that name it exactly given."""
        labels = name.split(".")
        rule = min((*rules, *_climb(self.wild_refuses, labels)), key=_rule_key, default=None)
        found = sorted({*exact, *_climb(self.wild_grants, labels), *self.presets})
        return Said(rule, special(name), tuple(self.entries[at] for at in found))


def compile_table(
    layer: str,
    mode: str,
    grants: Sequence[Grant],
    refuses: Sequence[Refuse],
    nat64: tuple[IPv6Network, ...],
    revision: str,
) -> Table:
    """The table of one layer; the order of `grants` and `refuses` leaves no trace in it."""
    grants = sorted(grants, key=Grant.key)
    refuses = sorted(refuses, key=_rule_key)
    exact_grants: dict[Name, list[int]] = {}
    exact_refuses: dict[Name, list[Refuse]] = {}
    wild_grants: _Node[int] = _Node()
    wild_refuses: _Node[Refuse] = _Node()
    for at, grant in enumerate(grants):
        for pattern in grant.hosts:
            where = _reach(wild_grants, pattern.name) if pattern.below else exact_grants.setdefault(pattern.name, [])
            where.append(at)
    for rule in refuses:
        for pattern in rule.hosts:
            place = _reach(wild_refuses, pattern.name) if pattern.below else exact_refuses.setdefault(pattern.name, [])
            place.append(rule)
    names: dict[Name, Said] = {}
    refused = [(network, rule) for rule in refuses for network in rule.addresses]
    table = Table(
        layer=layer,
        is_report=mode == "report" and bool(grants),
        nat64=nat64,
        revision=revision,
        names=names,
        wild_grants=wild_grants,
        wild_refuses=wild_refuses,
        presets=tuple(at for at, grant in enumerate(grants) if grant.public_web),
        entries=tuple(_entry(grant, layer, revision) for grant in grants),
        grant_networks=compile_networks(
            (network, at) for at, grant in enumerate(grants) for network in grant.addresses
        ),
        refuse_networks=compile_networks(refused) if refused else None,
    )
    for name in {*exact_grants, *exact_refuses}:
        names[name] = table._look_up(name, exact_refuses.get(name, ()), exact_grants.get(name, ()))
    return table


def _entry(grant: Grant, layer: str, revision: str) -> Entry:
    return Entry(
        grant=grant,
        ports=grant.ports[0] if len(grant.ports) == 1 else frozenset(chain.from_iterable(grant.ports)),
        granted=Verdict(True, Reason.GRANTED, grant=grant.name, layer=layer, revision=revision),
        exact=frozenset(pattern.name for pattern in grant.hosts if not pattern.below),
        private=compile_networks((network, grant) for network in grant.private) if grant.private else None,
        is_plain=grant.until_s is None and not grant.intercept,
    )


def _rule_key(rule: Refuse) -> tuple[object, ...]:
    return rule.name, *map(str, rule.hosts), *map(str, rule.addresses)


def _reach[T](tree: _Node[T], name: Name) -> list[T]:
    """The values of the node for the names below `name`, which is made where it is missing."""
    node = tree
    for label in reversed(name.split(".")):
        node = node.children.setdefault(label, _Node())
    return node.values


def _climb[T](tree: _Node[T], labels: list[str]) -> list[T]:
    """The values of every wildcard that covers the name with these labels."""
    found: list[T] = []
    node = tree
    for label in labels[:0:-1]:  # from the top, and never the name's own first label
        below = node.children.get(label)
        if below is None:
            break
        node = below
        found += node.values
    return found
