"""What DNS said about one name, as a value: the addresses, the CNAMEs that led to them, or the failure."""

from dataclasses import dataclass

from policy.host import Address, Name
from policy.verdict import Reason


@dataclass(frozen=True, slots=True)
class Answer:
    """Both families' answers for `name`, merged. Exactly one of `addresses` and `failed` speaks."""

    name: Name
    addresses: tuple[Address, ...] = ()
    chain: tuple[Name, ...] = ()
    """Every CNAME target on the way, in order, `name` not among them."""
    ttl_s: int = 0
    """Least TTL of the records used."""
    failed: Reason | None = None
    """DNS_FAILED or DNS_TIMEOUT when there is nothing to dial."""
    detail: str = ""
    """The rcode or the fault, for the record."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A host tied to the addresses that were admitted for it. Dialling takes a pin; nothing dials a name."""

    host: Name | Address
    addresses: tuple[Address, ...]
    port: int
