"""One layer compiled for look-ups: a hash of exact hosts, wildcards settled from a tree of labels, sorted intervals.

The tree of reversed labels is walked once, at load: what its nodes say, from the top down, is then hashed by suffix, which
takes a third of the time of walking the tree for each connection.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Network
from itertools import chain
from typing import Final

from policy.grant import Grant, HostPattern, Refuse
from policy.host import Name
from policy.networks import Networks, compile_networks
from policy.special import SINGLE_LABEL, SPECIAL_NAMES, SpecialName, special
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

    rule: Refuse | None = None
    special: SpecialName | None = None
    entries: tuple[Entry, ...] = ()


NOTHING: Final = Said()


@dataclass(slots=True)
class _Node:
    """Labels from the top of the name tree down; what a node holds is about the names below it."""

    children: dict[str, "_Node"] = field(default_factory=dict)
    grants: list[int] = field(default_factory=list)
    rules: list[Refuse] = field(default_factory=list)
    reach: tuple[int, ...] = ()
    """The presets, and the grants of this node and those above it."""
    special: SpecialName | None = None
    said: Said = NOTHING
    """What all these say, from the top down to this node."""


@dataclass(frozen=True, slots=True)
class Table:
    """One layer's rules by what they are looked up with."""

    layer: str
    is_report: bool
    """In report mode, and with a grant: a policy empty of grants permits nothing in any mode."""
    nat64: tuple[IPv6Network, ...]
    """The longest first: of prefixes that nest, a router takes the most specific one."""
    revision: str
    names: Mapping[Name, Said]
    """Every name that the layer writes out and every special name, with what covers them too."""
    wildcards: Mapping[str, Said]
    """Suffixes with all that is said below them: the tree of labels, settled, so that the longest one says it all."""
    single: Said
    """About a name of one label that `names` does not have."""
    rest: Said
    """About every other name: the presets."""
    presets: tuple[int, ...]
    entries: tuple[Entry, ...]
    """In the order of `Grant.key`, which no file's order changes."""
    grant_networks: Networks[int]
    refuse_networks: Networks[Refuse] | None

    def about(self, name: Name) -> Said:
        """What the layer says about `name`."""
        found = self.names.get(name)
        if found is not None:
            return found
        at = name.find(".")
        if at < 0:
            return self.single
        while at >= 0:
            found = self.wildcards.get(name[at + 1 :])
            if found is not None:
                return found
            at = name.find(".", at + 1)
        return self.rest


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
    entries = tuple(_entry(grant, layer, revision) for grant in grants)
    presets = tuple(at for at, grant in enumerate(grants) if grant.public_web)
    tree = _Node()
    exact: dict[Name, _Node] = {}
    for at, grant in enumerate(grants):
        for pattern in grant.hosts:
            _place(tree, exact, pattern).grants.append(at)
    for rule in refuses:
        for pattern in rule.hosts:
            _place(tree, exact, pattern).rules.append(rule)
    for name in SPECIAL_NAMES:
        _place(tree, exact, HostPattern(name, below=True)).special = special(name)
        exact.setdefault(name, _Node())
    _settle(tree, NOTHING, presets, (), entries)
    names: dict[Name, Said] = {}
    for name, node in exact.items():
        above = _deepest(tree, name)
        rules = [*node.rules, *([above.said.rule] if above.said.rule else [])]
        speaking = tuple(entries[at] for at in sorted({*node.grants, *above.reach}))
        names[name] = Said(min(rules, key=_rule_key, default=None), special(name), speaking)
    refused = [(network, rule) for rule in refuses for network in rule.addresses]
    return Table(
        layer=layer,
        is_report=mode == "report" and bool(grants),
        nat64=tuple(sorted(nat64, key=_longest_first)),
        revision=revision,
        names=names,
        wildcards=dict(_flatten(tree, "")),
        single=Said(tree.said.rule, SINGLE_LABEL, tree.said.entries),
        rest=tree.said,
        presets=presets,
        entries=entries,
        grant_networks=compile_networks((network, at) for at, grant in enumerate(grants) for network in grant.addresses),
        refuse_networks=compile_networks(refused) if refused else None,
    )


def _entry(grant: Grant, layer: str, revision: str) -> Entry:
    return Entry(
        grant=grant,
        ports=grant.ports[0] if len(grant.ports) == 1 else frozenset(chain.from_iterable(grant.ports)),
        granted=Verdict(True, Reason.GRANTED, grant=grant.name, layer=layer, revision=revision),
        exact=frozenset(pattern.name for pattern in grant.hosts if not pattern.below),
        private=compile_networks((network, grant) for network in grant.private) if grant.private else None,
        is_plain=grant.until_s is None and not grant.intercept,
    )


def _longest_first(prefix: IPv6Network) -> tuple[int, int]:
    return -prefix.prefixlen, int(prefix.network_address)


def _rule_key(rule: Refuse) -> tuple[object, ...]:
    return rule.name, *map(str, rule.hosts), *map(str, rule.addresses)


def _place(tree: _Node, exact: dict[Name, _Node], pattern: HostPattern) -> _Node:
    """Where the rules of `pattern` are kept, made where it is missing."""
    if not pattern.below:
        return exact.setdefault(pattern.name, _Node())
    node = tree
    for label in reversed(pattern.name.split(".")):
        node = node.children.setdefault(label, _Node())
    return node


def _settle(node: _Node, above: Said, grants: tuple[int, ...], rules: tuple[Refuse, ...], entries: tuple[Entry, ...]) -> None:
    """Give `node` and all below it what those above them say, once, so that a look-up adds nothing up."""
    node.reach = tuple(sorted({*grants, *node.grants}))
    rules = (*rules, *node.rules)
    row = node.special or above.special
    node.said = Said(min(rules, key=_rule_key, default=None), row, tuple(entries[at] for at in node.reach))
    for child in node.children.values():
        _settle(child, node.said, node.reach, rules, entries)


def _flatten(node: _Node, suffix: str) -> Iterator[tuple[str, Said]]:
    """Every node that says something of its own, by the name that it stands for."""
    for label, child in node.children.items():
        name = f"{label}.{suffix}" if suffix else label
        if child.grants or child.rules or child.special:
            yield name, child.said
        yield from _flatten(child, name)


def _deepest(tree: _Node, name: Name) -> _Node:
    """The lowest node that has `name` below it."""
    node = tree
    for label in name.split(".")[:0:-1]:  # from the top, and never the name's own first label
        below = node.children.get(label)
        if below is None:
            break
        node = below
    return node
