"""DNS as a person writes it down in `explain --dns` or in a policy's `[[test]]`, answered as a server would."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from policy.answer import NOERROR, Answer, Reply, Rr, assemble
from policy.errors import BadClient, BadPolicy
from policy.host import Name, read_address, read_host
from policy.quote import quote

_KEYS: Final = ("A", "AAAA", "CNAME", "rcode", "AAAA_rcode")


@dataclass(frozen=True, slots=True)
class _Zone:
    """What one name answers; `fault` when somebody wrote what no DNS message can carry."""

    a: tuple[str, ...]
    aaaa: tuple[str, ...]
    cname: str | None
    rcode: str
    aaaa_rcode: str


def read_script(names: Mapping[str, Any]) -> Callable[[Name], Answer]:
    """What to ask instead of DNS: name to `{"A": […], "AAAA": […], "CNAME": "…", "rcode": "…", "AAAA_rcode": "…"}`.

    A name that is not there is NXDOMAIN. Raises BadPolicy for another shape.
    """
    zones: dict[Name, _Zone] = {}
    problems: list[str] = []
    for text, answers in names.items():
        fault = _fault(answers)
        if fault:
            problems.append(f"dns: {quote(text)}: {fault}")
            continue
        try:
            host = read_host(text)
        except BadClient:
            continue  # nobody can ask for it, and a CNAME that leads to it is found invalid there
        if isinstance(host, str):
            zones[host] = _Zone(
                tuple(answers.get("A", ())),
                tuple(answers.get("AAAA", ())),
                answers.get("CNAME"),
                answers.get("rcode", NOERROR),
                answers.get("AAAA_rcode", answers.get("rcode", NOERROR)),
            )
    if problems:
        raise BadPolicy(tuple(problems))
    return lambda name: assemble(name, (_reply(zones, name, v6=False), _reply(zones, name, v6=True)))


def _fault(answers: object) -> str | None:
    if not isinstance(answers, Mapping):
        return 'not an object; write {"A": ["93.184.215.14"]}'
    for key, value in answers.items():
        if key not in _KEYS:
            return f"unknown key {quote(str(key))}; known: {', '.join(_KEYS)}"
        if key in ("A", "AAAA"):
            if not isinstance(value, list) or not all(isinstance(element, str) for element in value):
                return f"{key} is not a list of texts"
        elif not isinstance(value, str):
            return f"{key} is not text"
    return None


def _reply(zones: Mapping[Name, _Zone], name: Name, *, v6: bool) -> Reply:
    """All records on the way from `name`, as a recursive server puts them into one message."""
    records: list[Rr] = []
    seen: set[Name] = set()
    owner = name
    while owner not in seen:
        seen.add(owner)
        zone = zones.get(owner)
        if zone is None:
            return Reply("NXDOMAIN", tuple(records))
        try:
            for text in zone.aaaa if v6 else zone.a:
                records.append(Rr(owner, read_address(text)))
            target = read_host(zone.cname) if zone.cname is not None else None
        except BadClient as error:
            return Reply(fault=error.detail)
        rcode = zone.aaaa_rcode if v6 else zone.rcode
        if not isinstance(target, str):
            return Reply(rcode, tuple(records), "" if target is None else "a CNAME to an address")
        records.append(Rr(owner, target))
        if rcode != NOERROR:
            return Reply(rcode, tuple(records))
        owner = target
    return Reply(NOERROR, tuple(records))
