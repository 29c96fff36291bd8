"""What DNS said about one name, as a value: the addresses, the CNAMEs that led to them, or the failure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from policy.host import Address, Name
from policy.limits import CNAME_LINKS_COUNT
from policy.verdict import Reason

NOERROR: Final = "NOERROR"


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
    """DNS_FAILED or DNS_TIMEOUT when there is nothing to dial; LIMIT_REACHED when nobody was asked."""
    detail: str = ""
    """The rcode or the fault, for the record."""


class Pin(NamedTuple):
    """A host tied to the addresses that were admitted for it. Dialling takes a pin; nothing dials a name.

    A tuple, because every connection makes one and a frozen dataclass takes twice as long.
    """

    host: Name | Address
    addresses: tuple[Address, ...]
    port: int


@dataclass(frozen=True, slots=True)
class Rr:
    """One A, AAAA or CNAME record of an answer section; other types are left out by whoever reads the message."""

    owner: Name
    data: Name | Address
    """The target of a CNAME, or the address."""
    ttl_s: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """One family's reply. `rcode` is its mnemonic (RFC 1035 §4.1.1)."""

    rcode: str = NOERROR
    records: tuple[Rr, ...] = ()
    fault: str = ""
    """Why it cannot be used: a name or an address that is none, a truncated or foreign message."""
    timed_out: bool = False


def assemble(name: Name, replies: Sequence[Reply]) -> Answer:
    """One answer for `name` from the replies of both families (POLICY §4).

    A record counts only when the CNAMEs lead from `name` to its owner. A family that fails is passed over when the
    other has addresses; a reply that contradicts itself (loop, two CNAMEs, a CNAME beside an address, more than
    CNAME_LINKS_COUNT links) fails the whole name, because it was made by somebody who hopes that one of us is lenient.
    """
    addresses: dict[Address, None] = {}
    links: dict[Name, None] = {}
    ttls: list[int] = []
    faults: list[str] = []
    timed_out = False
    for reply in replies:
        timed_out = timed_out or reply.timed_out
        if reply.timed_out or reply.fault or reply.rcode != NOERROR:
            faults.append("no reply in time" if reply.timed_out else reply.fault or reply.rcode)
            if reply.fault:
                return Answer(name, failed=Reason.DNS_FAILED, detail=reply.fault)
            continue
        owners: dict[Name, list[Rr]] = {}
        for record in reply.records:
            owners.setdefault(record.owner, []).append(record)
        chain, found = _follow(name, owners)
        if isinstance(found, str):
            return Answer(name, failed=Reason.DNS_FAILED, detail=found)
        addresses.update((record.data, None) for record in found if not isinstance(record.data, str))
        links.update(dict.fromkeys(chain))
        ttls += [record.ttl_s for owner in (name, *chain) for record in owners.get(owner, ())]
    if addresses:
        return Answer(name, tuple(addresses), tuple(links), min(ttls, default=0))
    failed = Reason.DNS_TIMEOUT if timed_out else Reason.DNS_FAILED
    detail = ", ".join(dict.fromkeys(faults)) or "no address records"
    return Answer(name, chain=tuple(links), ttl_s=min(ttls, default=0), failed=failed, detail=detail)


def _follow(name: Name, owners: dict[Name, list[Rr]]) -> tuple[list[Name], list[Rr] | str]:
    """The CNAME targets from `name` on, and the address records at their end or what is wrong with the chain."""
    chain: list[Name] = []
    owner = name
    while True:
        records = owners.get(owner, [])
        targets = {record.data for record in records if isinstance(record.data, str)}
        if not targets:
            return chain, records
        if len(targets) > 1:
            return chain, f"{owner} has two CNAMEs"
        if any(not isinstance(record.data, str) for record in records):
            return chain, f"{owner} has a CNAME beside an address"
        owner = targets.pop()
        if owner == name or owner in chain:
            return chain, f"the CNAMEs of {name} go in a circle"
        chain.append(owner)
        if len(chain) > CNAME_LINKS_COUNT:
            return chain, f"more than {CNAME_LINKS_COUNT} CNAMEs"
