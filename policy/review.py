"""What is right in a policy and yet not meant: rules that never speak, said twice, or over already."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from policy.address import Floor, classify
from policy.grant import Grant, HostPattern, Refuse
from policy.host import Name
from policy.layers import Layer
from policy.networks import Network, Networks, compile_networks
from policy.special import special

type _Warning = tuple[int, str, str]
"""Line, key, words."""


def review(layer: Layer, now_s: float) -> list[str]:
    """Warnings, each `file:line:key: what; remedy`, in the order of the file's lines."""
    found = [
        *_dead(layer),
        *_double(layer),
        *_needless(layer.refuses),
        *(warning for grant in layer.grants for warning in _odd(grant, now_s)),
    ]
    if not layer.grants:
        found.append((1, "grant", "no grant, so nothing may leave; write a [[grant]]"))
    return [f"{layer.file}:{line}:{key}: {words}" for line, key, words in sorted(set(found))]


def _dead(layer: Layer) -> Iterator[_Warning]:
    """Grants, or parts of them, that a refuse rule takes back whole."""
    for grant in layer.grants:
        for pattern in grant.hosts:
            rule = _who_covers(pattern, layer.refuses)
            if rule:
                yield grant.line, "grant", _never(pattern, rule)
        for network in grant.addresses:
            owner = next((rule for rule in layer.refuses if any(_holds(it, network) for it in rule.addresses)), None)
            if owner:
                yield grant.line, "grant", _never(network, owner)


def _never(said: object, rule: Refuse) -> str:
    return f"{said} never speaks: the refuse rule {rule.name} wins; remove one of them"


def _double(layer: Layer) -> Iterator[_Warning]:
    """Values that one grant says twice, and grants that say nothing which a wider one does not."""
    for grant in layer.grants:
        for kind, said in (("hosts", grant.hosts), ("addresses", grant.addresses), ("private", grant.private)):
            for value, count in Counter(map(str, said)).items():
                if count > 1:
                    yield grant.line, f"grant.{kind}", f"{value} is said {count} times; remove all but one"
    by_pattern: dict[HostPattern, list[Grant]] = {}
    for grant in layer.grants:
        for pattern in grant.hosts:
            by_pattern.setdefault(pattern, []).append(grant)
    networks = compile_networks((network, grant) for grant in layer.grants for network in grant.addresses)
    for narrow in layer.grants:
        wide = next((other for other in _around(narrow, by_pattern, networks) if _is_needless(narrow, other)), None)
        if wide:
            words = f"the grant {narrow.name} says nothing that {wide.name} (line {wide.line}) does not"
            yield narrow.line, "grant", f"{words}; remove one of them"


def _around(grant: Grant, by_pattern: Mapping[HostPattern, Sequence[Grant]], networks: Networks[Grant]) -> Iterator[Grant]:
    """Every grant that covers the first thing that `grant` names: only those can cover all of it."""
    if grant.hosts:
        pattern = grant.hosts[0]
        yield from by_pattern.get(pattern, ())
        name = pattern.name
        while "." in name:
            name = Name(name.partition(".")[2])
            yield from by_pattern.get(HostPattern(name, below=True), ())
    elif grant.addresses:
        yield from networks.find(grant.addresses[0].network_address)


def _is_needless(narrow: Grant, wide: Grant) -> bool:
    """Whether `narrow` could go; of two that say the same, the later one could."""
    if narrow is wide or not _is_within(narrow, wide):
        return False
    return not _is_within(wide, narrow) or narrow.line > wide.line


def _is_within(narrow: Grant, wide: Grant) -> bool:
    """Whether `wide` speaks wherever `narrow` does, so that `narrow` could go."""
    if wide.intercept or wide.until_s is not None or wide.public_web or narrow.public_web or narrow.intercept:
        return False
    ports = all(any(it[0] in other and it[-1] in other for other in wide.ports) for it in narrow.ports)
    hosts = all(any(other.covers_all(it) for other in wide.hosts) for it in narrow.hosts)
    networks = all(any(_holds(other, it) for other in wide.addresses) for it in narrow.addresses)
    private = all(any(_holds(other, it) for other in wide.private) for it in narrow.private)
    return ports and hosts and networks and private


def _needless(refuses: Sequence[Refuse]) -> Iterator[_Warning]:
    """Refuse rules whose every part another rule has already."""
    for at, rule in enumerate(refuses):
        others = [other for place, other in enumerate(refuses) if place != at and not (place > at and other == rule)]
        hosts = all(_who_covers(pattern, others) for pattern in rule.hosts)
        wide = [network for other in others for network in other.addresses]
        networks = all(any(_holds(it, network) for it in wide) for network in rule.addresses)
        if hosts and networks:
            yield rule.line, "refuse", f"the refuse rule {rule.name} says nothing that the others do not; remove it"


def _odd(grant: Grant, now_s: float) -> Iterator[_Warning]:
    if grant.until_s is not None and grant.is_over(now_s):
        moment = datetime.fromtimestamp(grant.until_s, UTC).isoformat().replace("+00:00", "Z")
        words = f"the grant {grant.name} ended at {moment}; remove it, or give it a later moment"
        yield grant.line, "grant.until", words
    for pattern in grant.hosts:
        row = special(pattern.name)
        if row and (pattern.below or not grant.private):
            words = f"{pattern} is a special name ({row.title}); it needs its exact host and private = [its network]"
            yield grant.line, "grant.hosts", words
    for network in grant.private:
        if classify(network.network_address).floor is Floor.NONE:
            yield grant.line, "grant.private", f"{network} is public, which needs no private; remove it"


def _who_covers(pattern: HostPattern, rules: Sequence[Refuse]) -> Refuse | None:
    return next((rule for rule in rules if any(it.covers_all(pattern) for it in rule.hosts)), None)


def _holds(wide: Network, narrow: Network) -> bool:
    """Whether every address of `narrow` is in `wide`; networks of two families hold nothing of each other."""
    first, last = int(narrow.network_address), int(narrow.broadcast_address)
    same = wide.version == narrow.version
    return same and int(wide.network_address) <= first and last <= int(wide.broadcast_address)
