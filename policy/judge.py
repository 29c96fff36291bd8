"""The verdict: `judge` before DNS, `admit` after it; every layer must allow, and no rule may refuse (POLICY §4)."""

from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Final

from policy.address import Block, Floor, classify, counts_as
from policy.answer import Answer, Pin
from policy.destination import Destination
from policy.errors import BadClient
from policy.host import Address, Name
from policy.layers import Policy
from policy.limits import CNAME_LINKS_COUNT
from policy.request import read_path
from policy.special import special
from policy.table import Entry, Table
from policy.verdict import Reason, Verdict

type _Head = tuple[str, str] | None
"""Method and path of a request that the proxy can read; None for a tunnel."""
type _Spoken = tuple[Verdict, Sequence[Entry]]
"""A layer's verdict, and the grants that speak when it is allowed by any."""

_NEAREST: Final = (
    Reason.METHOD_NOT_GRANTED,
    Reason.PATH_NOT_GRANTED,
    Reason.REQUEST_INVALID,
    Reason.NOT_GRANTED,
    Reason.GRANT_EXPIRED,
    Reason.PORT_NOT_GRANTED,
)
"""Of several grants that do not speak, the one that came nearest is named; the first of these is nearest."""
_FIRMNESS: Final = {
    Reason.REFUSED_BY_RULE: 0,
    Reason.NAME_SPECIAL: 1,
    Reason.ADDRESS_OWN: 2,
    Reason.ADDRESS_METADATA: 2,
    Reason.ADDRESS_LOOPBACK: 2,
    Reason.ADDRESS_LINK_LOCAL: 2,
    Reason.ADDRESS_MULTICAST: 2,
    Reason.ADDRESS_EMBEDDED: 3,
    Reason.ADDRESS_PRIVATE: 3,
    Reason.ADDRESS_RESERVED: 3,
}
"""Of several layers that refuse, the firmest speaks: what no grant could lift first."""


def judge(
    policy: Policy,
    destination: Destination,
    now_s: float,
    *,
    method: str | None = None,
    path: str | None = None,
) -> Verdict:
    """Before DNS: for a name, allowed means that it may be resolved; for an address literal it is final.

    `now_s` is Unix time. `method` and `path` are given where the proxy can read the request's head, and only then
    does a grant with `intercept` speak. Never raises.
    """
    head = None if method is None else (method, path or "")
    if len(policy.tables) == 1:
        return _ask(policy, policy.tables[0], destination, now_s, head)[0]
    return _merge(policy, [_ask(policy, table, destination, now_s, head)[0] for table in policy.tables])


def admit(
    policy: Policy,
    destination: Destination,
    answer: Answer | None,
    now_s: float,
    *,
    method: str | None = None,
    path: str | None = None,
) -> tuple[Verdict, Pin | None]:
    """After DNS: every address must be admitted or the whole name is refused; `answer` is None for a literal.

    Judges again, so a policy that changed meanwhile holds, and takes the same `method` and `path`. Never raises.
    """
    head = None if method is None else (method, path or "")
    if len(policy.tables) == 1:
        verdict = _admit(policy, policy.tables[0], destination, answer, now_s, head)
    else:
        verdict = _merge(policy, [_admit(policy, table, destination, answer, now_s, head) for table in policy.tables])
    if not verdict.allowed:
        return verdict, None
    host = destination.host
    addresses = (host,) if not isinstance(host, str) else answer.addresses if answer is not None else ()
    return verdict, Pin(host, addresses, destination.port)


def _merge(policy: Policy, every: list[Verdict]) -> Verdict:
    """One verdict of all layers' verdicts, and the one place where "not decided" becomes a refusal."""
    if not every:
        return Verdict(False, Reason.NOT_GRANTED, revision=policy.revision, detail="There is no policy, so nothing may leave.")
    refused = [verdict for verdict in every if not verdict.allowed]
    if refused:
        return min(refused, key=lambda it: (_FIRMNESS.get(it.reason, 9), it.reason, it.layer or ""))
    reported = [verdict for verdict in every if verdict.would_refuse]
    return min(reported or every, key=lambda it: (it.would_refuse or "", it.layer or ""))


def _ask(policy: Policy, table: Table, destination: Destination, now_s: float, head: _Head) -> _Spoken:
    """One layer's verdict before DNS, and the grants that speak."""
    host = destination.host
    if not isinstance(host, str):
        return _ask_literal(policy, table, destination, now_s, head)
    said = table.about(host)
    if said.rule is not None:
        detail = f"The refuse rule {said.rule.name} names {host}."
        return _refused(table, Reason.REFUSED_BY_RULE, detail, said.rule.name), ()
    entries = said.entries
    if said.special is None:
        if len(entries) == 1 and entries[0].is_plain and destination.port in entries[0].ports:
            return entries[0].granted, entries
        return _speak(table, entries, destination, now_s, head)
    lifting = tuple(
        entry for entry in _speak(table, entries, destination, now_s, head)[1] if host in entry.exact and entry.private is not None
    )
    if lifting:
        return lifting[0].granted, lifting
    detail = f"{host} is a special name: {said.special.title}."
    return _refused(table, Reason.NAME_SPECIAL, detail, str(said.special)), ()


def _ask_literal(policy: Policy, table: Table, destination: Destination, now_s: float, head: _Head) -> _Spoken:
    address = destination.host
    assert not isinstance(address, str)
    standing = _stand(policy, table, address)
    if isinstance(standing, Verdict):
        return standing, ()
    if standing is None:
        found = table.grant_networks.find(counts_as(address, table.nat64) or address)
        entries = tuple(table.entries[at] for at in sorted({*found, *table.presets}))
        return _speak(table, entries, destination, now_s, head)
    reached, block = standing
    found = table.grant_networks.find(reached)
    if found and not destination.is_mapped:
        entries = tuple(table.entries[at] for at in sorted(set(found)))
        verdict, speaking = _speak(table, entries, destination, now_s, head)
        if speaking:
            return verdict, speaking
        # No report mode here: the floor holds in every mode.
        return _refused(table, verdict.would_refuse or verdict.reason, verdict.detail, grant=verdict.grant), ()
    return _offends(table, address, reached, block), ()


def _speak(table: Table, entries: tuple[Entry, ...], destination: Destination, now_s: float, head: _Head) -> _Spoken:
    """The grants of `entries` that speak for the destination now; without one, why the nearest does not."""
    speaking = []
    nearest: tuple[int, Entry, str] | None = None
    for entry in entries:
        if destination.port not in entry.ports:
            reason, detail = Reason.PORT_NOT_GRANTED, f"does not have port {destination.port}"
        elif entry.is_plain:
            speaking.append(entry)
            continue
        elif entry.grant.is_over(now_s):
            reason, detail = Reason.GRANT_EXPIRED, "has expired"
        else:
            fault = _hears(entry, head)
            if fault is None:
                speaking.append(entry)
                continue
            reason, detail = fault
        rank = _NEAREST.index(reason)
        if nearest is None or rank < nearest[0]:
            nearest = rank, entry, detail
    if speaking:
        return speaking[0].granted, speaking
    return _unspoken(table, destination, nearest), ()


def _hears(entry: Entry, head: _Head) -> tuple[Reason, str] | None:
    """Why a grant with `intercept` does not speak for a request, or None when it does."""
    grant = entry.grant
    if not grant.intercept:
        return None
    if head is None:
        return (
            Reason.NOT_GRANTED,
            "has intercept = true, and the proxy cannot read the requests of this tunnel",
        )
    method, path = head
    if grant.methods and method not in grant.methods:
        return Reason.METHOD_NOT_GRANTED, f"allows only {', '.join(grant.methods)}"
    if not grant.paths:
        return None
    try:
        segments = read_path(path)
    except BadClient as error:
        return Reason.REQUEST_INVALID, f"has paths, and {error.detail}"
    if any(pattern.covers(segments) for pattern in grant.paths):
        return None
    return Reason.PATH_NOT_GRANTED, f"allows only {', '.join(map(str, grant.paths))}"


def _unspoken(table: Table, destination: Destination, nearest: tuple[int, Entry, str] | None) -> Verdict:
    """No grant speaks: a refusal, or in report mode a pass that says what it would have been."""
    if nearest is None:
        reason, grant, detail = Reason.NOT_GRANTED, None, f"No grant names {destination.host}."
    else:
        reason, grant = _NEAREST[nearest[0]], nearest[1].grant.name
        detail = f"The grant {grant} {nearest[2]}."
    if table.is_report:
        return Verdict(
            True,
            Reason.GRANTED,
            None,
            None,
            table.layer,
            table.revision,
            f"Report mode: {detail}",
            None,
            reason,
        )
    return _refused(table, reason, detail, grant=grant)


def _admit(
    policy: Policy,
    table: Table,
    destination: Destination,
    answer: Answer | None,
    now_s: float,
    head: _Head,
) -> Verdict:
    """One layer's verdict after DNS."""
    verdict, speaking = _ask(policy, table, destination, now_s, head)
    host = destination.host
    if not verdict.allowed or not isinstance(host, str):
        return verdict
    if answer is not None and answer.chain and answer.name == host:
        refused = _hold_chain(table, host, answer.chain, speaking)
        if refused is not None:
            return refused
    if answer is None or answer.name != host or answer.failed is not None or not answer.addresses:
        return _unanswered(table, host, answer, verdict)
    soft: list[tuple[Address, Address, Block]] = []
    for address in answer.addresses:
        standing = _stand(policy, table, address)
        if isinstance(standing, Verdict):
            return standing
        if standing is not None:
            soft.append((address, *standing))
    if not soft:
        return verdict
    for entry in speaking:
        if entry.private is not None and all(entry.private.find(reached) for _, reached, _ in soft):
            return entry.granted
    return _offends(table, *soft[0], grant=verdict.grant)


def _stand(policy: Policy, table: Table, address: Address) -> tuple[Address, Block] | Verdict | None:
    """None for a public address; what one on the soft floor reaches, and its block; or the refusal no grant can lift.

    Such a refusal comes from a rule, from the address being this machine's own, or from the hard floor.
    """
    reached = address if isinstance(address, IPv4Address) else counts_as(address, table.nat64)
    if reached is None:
        detail = f"{address} has a NAT64 prefix and is no NAT64 address (RFC 6052)."
        return _refused(table, Reason.ADDRESS_EMBEDDED, detail, "NAT64 prefix", address=address)
    if table.refuse_networks is not None:
        rules = table.refuse_networks.find(address) or table.refuse_networks.find(reached)
        if rules:
            detail = f"The refuse rule {rules[-1].name} names {address}."
            return _refused(table, Reason.REFUSED_BY_RULE, detail, rules[-1].name, address=address)
    own = policy.own_numbers
    if own and (int(reached) in own or int(address) in own):
        detail = f"{address} is one of this machine's own addresses."
        return _refused(table, Reason.ADDRESS_OWN, detail, "own address", address=address)
    block = classify(reached)
    if block.floor is Floor.NONE:
        return None
    return _offends(table, address, reached, block) if block.floor is Floor.HARD else (reached, block)


def _hold_chain(table: Table, host: Name, chain: tuple[Name, ...], speaking: Sequence[Entry]) -> Verdict | None:
    """The refusal of a CNAME chain: too long, through a refused name, or through a special one."""
    if len(chain) > CNAME_LINKS_COUNT:
        detail = f"{host} is a chain of more than {CNAME_LINKS_COUNT} CNAMEs."
        return _refused(table, Reason.DNS_FAILED, detail)
    for link in chain:
        rule = table.about(link).rule
        if rule is not None:
            detail = f"{host} is an alias of {link}, which the refuse rule {rule.name} names."
            return _refused(table, Reason.REFUSED_BY_RULE, detail, rule.name)
        row = special(link)
        # Internal load balancers stand behind `.internal` names, so a grant that says `private` may pass through them.
        if row is not None and (row.is_metadata or not any(entry.private for entry in speaking)):
            detail = f"{host} is an alias of {link}, a special name: {row.title}."
            return _refused(table, Reason.NAME_SPECIAL, detail, str(row))
    return None


def _unanswered(table: Table, host: Name, answer: Answer | None, verdict: Verdict) -> Verdict:
    """DNS said nothing that can be dialled."""
    if answer is None or answer.name != host:
        return _refused(table, Reason.DNS_FAILED, f"There is no answer for {host}.", grant=verdict.grant)
    detail = answer.detail or "no address"
    return _refused(table, answer.failed or Reason.DNS_FAILED, f"{host}: {detail}.", grant=verdict.grant)


def _offends(table: Table, address: Address, reached: Address, block: Block, grant: str | None = None) -> Verdict:
    reached_words = "" if reached == address else f", which reaches {reached}"
    detail = f"{address}{reached_words} is in {block.network}: {block.title}."
    return _refused(table, block.reason, detail, str(block), grant=grant, address=address)


def _refused(
    table: Table,
    reason: Reason,
    detail: str,
    rule: str | None = None,
    *,
    grant: str | None = None,
    address: Address | None = None,
) -> Verdict:
    return Verdict(False, reason, grant, rule, table.layer, table.revision, detail, address)
