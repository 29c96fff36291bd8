"""A policy file: TOML text to a Layer, with every error of the file in one run (POLICY §1)."""

import re
import tomllib
from collections.abc import Callable
from dataclasses import fields
from difflib import get_close_matches
from ipaddress import IPv6Network
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, create_model
from pydantic_core import ErrorDetails

from policy.cross_check import cross_check
from policy.errors import BadClient, BadPolicy
from policy.grant import DEFAULT_PORTS, Grant, HostPattern, Inject, Refuse
from policy.host import Address, read_address
from policy.layers import Layer
from policy.limits import POLICY_CHARS, SHOWN_CHARS, Limits
from policy.lines import KeyPath, locate
from policy.networks import Network
from policy.pattern import (
    BadSpelling,
    read_nat64_prefix,
    read_network,
    read_pattern,
    read_refused_network,
)
from policy.request import PathPattern, read_method, read_path_pattern
from policy.trial import Trial
from policy.value import (
    describe,
    read_header,
    read_injected,
    read_moment,
    read_port_value,
    read_reason,
    read_title,
    shown,
)
from policy.verdict import Reason


def _text[T](read: Callable[[str], T], wanted: str) -> PlainValidator:
    """A validator that reads a string with `read` and says what is `wanted` when it is something else."""

    def check(value: object) -> T:
        if not isinstance(value, str):
            raise BadSpelling(f"{describe(value)} where {wanted} is wanted; write it in quotes")
        try:
            return read(value)
        except BadClient as error:
            raise BadSpelling(error.detail) from None

    return PlainValidator(check)


_HostText = Annotated[HostPattern, _text(read_pattern, "a host")]
_NetworkText = Annotated[Network, _text(read_network, "a network")]
_RefusedNetworkText = Annotated[Network, _text(read_refused_network, "a network")]
_PortNumbers = Annotated[range, PlainValidator(read_port_value)]
_NameText = Annotated[str, _text(read_title, "a name")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True, defer_build=True)


class InjectTable(_Table):
    """`[grant.inject]`: a header that the sandbox never holds."""

    header: Annotated[str, _text(read_header, "a header name")]
    value: Annotated[str, _text(read_injected, "a header value")]


class GrantTable(_Table):
    """`[[grant]]`: one allowance."""

    name: _NameText | None = None
    hosts: list[_HostText] = []
    addresses: list[_NetworkText] = []
    preset: Literal["public-web"] | None = None
    ports: list[_PortNumbers] = list(DEFAULT_PORTS)
    private: list[_NetworkText] = []
    until: Annotated[float, PlainValidator(read_moment)] | None = None
    intercept: bool = False
    methods: list[Annotated[str, _text(read_method, "a method")]] = []
    paths: list[Annotated[PathPattern, _text(read_path_pattern, "a path")]] = []
    inject: InjectTable | None = None


class RefuseTable(_Table):
    """`[[refuse]]`: beats every grant."""

    name: _NameText | None = None
    hosts: list[_HostText] = []
    addresses: list[_RefusedNetworkText] = []


class AddressesTable(_Table):
    """`[addresses]`: what the machine cannot find out about its own network."""

    own: list[Annotated[Address, _text(read_address, "an address")]] = []
    nat64_prefixes: list[Annotated[IPv6Network, _text(read_nat64_prefix, "an IPv6 network")]] = []


class DnsTable(_Table):
    """What one name answers in a `[[test]]` or in the file of `explain --dns`."""

    A: list[str] = []
    AAAA: list[str] = []
    CNAME: str | None = None
    rcode: str | None = None
    AAAA_rcode: str | None = None


class TrialTable(_Table):
    """`[[test]]`: a target and what must become of it."""

    to: str
    expect: Literal["allow", "refuse", "invalid"]
    reason: Annotated[Reason, _text(read_reason, "a reason")] | None = None
    dns: dict[str, DnsTable] = {}


class _FileKeys(_Table):
    version: Literal[1]
    mode: Literal["enforce", "report"] = "enforce"
    grant: list[GrantTable] = []
    refuse: list[RefuseTable] = []
    addresses: AddressesTable = Field(default_factory=AddressesTable)
    limits: _Table | None = None
    test: list[TrialTable] = []


LimitsTable: Final[type[_Table]] = create_model(
    "LimitsTable",
    __base__=_Table,
    **{field.name: ((float if field.type is float else int) | None, None) for field in fields(Limits)},  # type: ignore[call-overload]
)
"""`[limits]`: the fields of policy.limits.Limits."""

FileTable: Final[type[_FileKeys]] = create_model(
    "FileTable",
    __base__=_FileKeys,
    limits=(LimitsTable | None, None),  # type: ignore[arg-type]
)
"""The whole file."""


def parse(text: str, file: str) -> Layer:
    """The layer that `text` says, named `file`.

    Raises BadPolicy with every problem, each one line: `file:line:key: what is wrong; what to write instead`.
    """
    if len(text) > POLICY_CHARS:
        raise BadPolicy((f"{file}:1: longer than {POLICY_CHARS:,} characters; split it into several files",))
    try:
        raw = tomllib.loads(text)
        lines = locate(text)
    except (ValueError, RecursionError) as error:
        raise BadPolicy((_syntax(error, text, file),)) from None
    problems = [*cross_check(raw)]
    table: _FileKeys | None = None
    try:
        table = FileTable.model_validate(raw)
    except ValidationError as error:
        problems += [(_path(found), _words(found)) for found in error.errors(include_url=False)]
    if problems or table is None:
        placed = sorted(set(problems), key=lambda it: (_line(it[0], lines), list(map(_rank, it[0])), it[1]))
        raise BadPolicy(tuple(f"{file}:{_line(path, lines)}:{_key(path)}: {words}" for path, words in placed))
    return _layer(table, text, file, lines)


def _layer(table: _FileKeys, text: str, file: str, lines: dict[KeyPath, int]) -> Layer:
    limits = {} if table.limits is None else table.limits.model_dump(exclude_none=True)
    return Layer(
        file=file,
        text=text,
        mode=table.mode,
        grants=tuple(_grant(grant, lines.get(("grant", at), 1)) for at, grant in enumerate(table.grant)),
        refuses=tuple(_refuse(rule, lines.get(("refuse", at), 1)) for at, rule in enumerate(table.refuse)),
        own=frozenset(table.addresses.own),
        nat64=tuple(table.addresses.nat64_prefixes),
        limits=tuple(sorted(limits.items())),
        trials=tuple(
            Trial(
                to=test.to,
                expect=test.expect,
                reason=test.reason,
                dns={name: answers.model_dump(exclude_none=True) for name, answers in test.dns.items()},
                line=lines.get(("test", at), 1),
            )
            for at, test in enumerate(table.test)
        ),
    )


def _grant(table: GrantTable, line: int) -> Grant:
    said = [*map(str, table.hosts), *map(str, table.addresses), *([table.preset] if table.preset else [])]
    return Grant(
        name=table.name or _called(said),
        hosts=tuple(table.hosts),
        addresses=tuple(table.addresses),
        public_web=table.preset == "public-web",
        ports=tuple(table.ports),
        private=tuple(table.private),
        until_s=table.until,
        intercept=table.intercept,
        methods=tuple(table.methods),
        paths=tuple(table.paths),
        inject=Inject(table.inject.header, table.inject.value) if table.inject else None,
        line=line,
    )


def _refuse(table: RefuseTable, line: int) -> Refuse:
    said = [*map(str, table.hosts), *map(str, table.addresses)]
    return Refuse(table.name or _called(said), tuple(table.hosts), tuple(table.addresses), line)


def _called(said: list[str]) -> str:
    """A name for what has none, from its content alone, so that the order in a file never shows."""
    name = ", ".join(sorted(said))
    return name if len(name) <= 80 else name[:79] + "…"


def _syntax(error: Exception, text: str, file: str) -> str:
    if isinstance(error, RecursionError):
        return f"{file}:1: nested too deeply; a policy needs three levels"
    found = re.search(r"\(at line (\d+), column \d+\)", str(error))
    line = int(found.group(1)) if found else text.count("\n") + 1
    what = re.sub(r" \(at .*\)", "", str(error))[:SHOWN_CHARS]
    return f"{file}:{line}: not TOML: {what[:1].lower()}{what[1:]}; see https://toml.io/en/v1.0.0"


def _path(found: ErrorDetails) -> KeyPath:
    return found["loc"]


def _key(path: KeyPath) -> str:
    """`("grant", 0, "hosts", 1)` as `grant[1].hosts[2]`: people count from 1."""
    out = ""
    for part in path:
        out += f"[{part + 1}]" if isinstance(part, int) else f"{'.' if out else ''}{part}"
    return out or "file"


def _rank(part: str | int) -> tuple[str, int]:
    return (part, 0) if isinstance(part, str) else ("", part)


def _line(path: KeyPath, lines: dict[KeyPath, int]) -> int:
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def _words(found: ErrorDetails) -> str:
    """One of pydantic's errors in this product's words."""
    kind, more, value = found["type"], found.get("ctx", {}), found["input"]
    if kind == "value_error":
        return str(more["error"])
    if kind == "extra_forbidden":
        return _unknown(found)
    if kind == "missing":
        return f"missing; write {'version = 1' if found['loc'] == ('version',) else str(found['loc'][-1]) + ' = …'}"
    if kind == "literal_error":
        return f"{shown(value)} means nothing here; write {more['expected'].replace(chr(39), chr(34))}"
    wanted = {
        "list_type": "a list in [ ]",
        "string_type": "text in quotes",
        "bool_type": "true or false",
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "dict_type": "a table",
        "model_type": "a table",
    }.get(kind)
    return f"{describe(value)} where {wanted or found['msg']} is wanted" + _doubled(found)


def _doubled(found: ErrorDetails) -> str:
    """The brackets that a list of tables wants, where a file has `[grant]` or the like."""
    (top, *below) = found["loc"]
    is_table = found["type"] == "list_type" and isinstance(found["input"], dict)
    return f"; write [[{top}]], with two brackets" if is_table and not below else ""


def _unknown(found: ErrorDetails) -> str:
    models: dict[str, type[BaseModel]] = {
        "grant": GrantTable,
        "refuse": RefuseTable,
        "addresses": AddressesTable,
        "limits": LimitsTable,
        "test": TrialTable,
        "inject": InjectTable,
        "dns": DnsTable,
    }
    parents = [part for part in found["loc"][:-1] if part in models]
    known = list((models[str(parents[-1])] if parents else FileTable).model_fields)
    close = get_close_matches(str(found["loc"][-1]), known, n=1)
    return f"unknown key; {f'write {close[0]}' if close else 'known here: ' + ', '.join(known)}"
