"""Policy files as layers, and the policy that they make together: what every one of them allows."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from ipaddress import IPv6Network
from typing import Literal

from policy.grant import Grant, Refuse
from policy.host import Address
from policy.limits import Limits
from policy.table import Table, compile_table
from policy.trial import Trial


@dataclass(frozen=True, slots=True)
class Layer:
    """One policy file, read and checked."""

    file: str
    text: str = ""
    mode: Literal["enforce", "report"] = "enforce"
    grants: tuple[Grant, ...] = ()
    refuses: tuple[Refuse, ...] = ()
    own: frozenset[Address] = frozenset()
    nat64: tuple[IPv6Network, ...] = ()
    limits: tuple[tuple[str, float], ...] = ()
    """Names of `Limits` fields and values, for those that the file sets."""
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """Every layer, compiled. Without a layer it permits nothing."""

    layers: tuple[Layer, ...]
    tables: tuple[Table, ...]
    """One for each layer, in the same order."""
    own: frozenset[Address]
    """This machine's own addresses, by every layer and by netlink."""
    own_numbers: frozenset[int]
    """`own` as integers, which hash faster. Both families share it: an IPv6 address that small is IPv4-compatible,
    and never reachable."""
    limits: Limits
    revision: str
    """Twelve hexadecimal digits of the SHA-256 over the layers' texts; "none" without a layer."""

    @property
    def mode(self) -> Literal["enforce", "report"]:
        """`report` when any layer is: then something passes that `enforce` would refuse."""
        return "report" if any(layer.mode == "report" for layer in self.layers) else "enforce"

    def next_end_s(self, now_s: float) -> float | None:
        """When the next grant ends, in Unix time: from then on less is allowed. None when none will."""
        ends = (grant.until_s for layer in self.layers for grant in layer.grants)
        return min((end_s for end_s in ends if end_s is not None and end_s > now_s), default=None)

    def with_own(self, addresses: frozenset[Address]) -> "Policy":
        """The same policy on a machine that has `addresses` too."""
        own = self.own | addresses
        return replace(self, own=own, own_numbers=frozenset(map(int, own)))


def combine(layers: Sequence[Layer], own: frozenset[Address] = frozenset()) -> Policy:
    """The policy of all `layers` together; their order does not matter to any verdict."""
    revision = _revision(layers)
    own = own.union(*(layer.own for layer in layers))
    return Policy(
        layers=tuple(layers),
        tables=tuple(compile_table(layer.file, layer.mode, layer.grants, layer.refuses, layer.nat64, revision) for layer in layers),
        own=own,
        own_numbers=frozenset(map(int, own)),
        limits=_merge_limits(layers),
        revision=revision,
    )


def _revision(layers: Sequence[Layer]) -> str:
    if not layers:
        return "none"
    whole = hashlib.sha256()
    for text in sorted(layer.text for layer in layers):
        whole.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return whole.hexdigest()[:12]


def _merge_limits(layers: Sequence[Layer]) -> Limits:
    """The least of every layer's value or default: like a floor exception, a higher limit needs every layer."""
    defaults = Limits()
    if not layers:
        return defaults
    said = [dict(layer.limits) for layer in layers]
    return Limits(
        **{field.name: min(each.get(field.name, getattr(defaults, field.name)) for each in said) for field in fields(Limits)}
    )
