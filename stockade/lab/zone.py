"""What the lab's DNS answers: one script per name, turned into the bytes of a response (RFC 1035 §4)."""

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

TYPES: Final = {"A": 1, "CNAME": 5, "SOA": 6, "TXT": 16, "AAAA": 28, "DNAME": 39, "SVCB": 64, "HTTPS": 65}
RCODES: Final = {"NOERROR": 0, "FORMERR": 1, "SERVFAIL": 2, "NXDOMAIN": 3, "NOTIMP": 4, "REFUSED": 5}
_TYPE_NAMES: Final = {number: name for name, number in TYPES.items()}
_OPT: Final = 41
_PLAIN_UDP_BYTES: Final = 512
_LINKS_COUNT: Final = 32
_SHIFTS: Final = {"ipv4hint": 4, "ipv6hint": 6}

type Script = Mapping[str, Any]
"""A name's answer: A, AAAA, TXT, HTTPS (lists), CNAME, DNAME (a name), `rcode`, `A_rcode`, `AAAA_rcode`,
`ttl`, `timeout` (true, or a list of types: no answer ever), `delay_s`, `truncate` (over UDP only), `records`
(lists of owner, type, value), `seq` (scripts: each query of a type takes the next, the last
one stays), `raw` (hex: everything after the id)."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question as it came; `labels` are its bytes in the client's own spelling (0x20 echoes them)."""

    ident: int
    flags: int
    name: str
    rtype: int
    section: bytes
    udp_bytes: int

    @property
    def type_name(self) -> str:
        """`A`, `AAAA`..., or the number."""
        return _TYPE_NAMES.get(self.rtype, str(self.rtype))


@dataclass(frozen=True, slots=True)
class Response:
    """Bytes to send after `delay_s`; None for silence."""

    payload: bytes | None
    delay_s: float = 0.0


def read_question(message: bytes) -> Question | None:
    """Read a query with one question; None for anything else."""
    if len(message) < 17:
        return None
    ident, flags, questions, _, _, additional = struct.unpack(">6H", message[:12])
    if flags & 0x8000 or questions != 1:
        return None
    labels, at = [], 12
    while at < len(message) and (length := message[at]):
        if length > 63:
            return None
        labels.append(message[at + 1 : at + 1 + length])
        at += 1 + length
    end = at + 5
    if end > len(message):
        return None
    udp_bytes = _PLAIN_UDP_BYTES
    if additional and message[end : end + 3] == b"\0" + struct.pack(">H", _OPT):
        udp_bytes = max(_PLAIN_UDP_BYTES, struct.unpack(">H", message[end + 3 : end + 5])[0])
    name = b".".join(labels).decode("latin-1").lower()
    return Question(ident, flags, name, struct.unpack(">H", message[at + 1 : at + 3])[0], message[12:end], udp_bytes)


class Zone:
    """Every name the lab knows, and how often each was asked; a name it does not know is NXDOMAIN."""

    def __init__(self, names: Mapping[str, Script]) -> None:
        self._names = dict(names)
        self.asked: Counter[str] = Counter()
        """`name TYPE` -> queries."""
        self._turn: Counter[tuple[str, int]] = Counter()

    def write(self, names: Mapping[str, Script], *, only: bool = False) -> None:
        """Set the scripts of these names (and forget all others when `only`); their sequences start again."""
        if only:
            self._names.clear()
        for name, script in names.items():
            self._names[name.lower()] = script
        self._turn.clear()

    def forget_counts(self) -> None:
        """Start counting again."""
        self.asked.clear()

    def respond(self, question: Question, *, by_udp: bool) -> Response:
        """Answer one question as a recursive server would, with the CNAME chain and what it leads to."""
        self.asked[f"{question.name} {question.type_name}"] += 1
        script = self._script(question.name, question.rtype)
        if script is None:
            return Response(_message(question, RCODES["NXDOMAIN"], []))
        delay_s = float(script.get("delay_s", 0))
        silent = script.get("timeout", False)
        if silent is True or (isinstance(silent, list) and question.type_name in silent):
            return Response(None)
        if "raw" in script:
            return Response(struct.pack(">H", question.ident) + bytes.fromhex(script["raw"]), delay_s)
        if by_udp and script.get("truncate"):
            return Response(_message(question, 0, [], truncated=True), delay_s)
        rcode, records = self._records(question, script)
        payload = _message(question, rcode, records)
        if by_udp and len(payload) > question.udp_bytes:
            payload = _message(question, rcode, [], truncated=True)
        return Response(payload, delay_s)

    def _script(self, name: str, rtype: int) -> Script | None:
        script = self._names.get(name)
        if script is None or "seq" not in script:
            return script
        turn = self._turn[name, rtype]
        self._turn[name, rtype] += 1
        items = script["seq"]
        item: Script = items[min(turn, len(items) - 1)]
        return item

    def _records(self, question: Question, script: Script) -> tuple[int, list[tuple[str, str, str, int]]]:
        records: list[tuple[str, str, str, int]] = []
        owner, wanted = question.name, question.type_name
        for _ in range(_LINKS_COUNT):
            ttl = int(script.get("ttl", 60))
            for other, kind, value in script.get("records", ()):
                records.append((other, kind, value, ttl))
            rcode: str = script.get(f"{wanted}_rcode") or script.get("rcode", "NOERROR")
            if rcode != "NOERROR":
                return RCODES[rcode], records
            if "DNAME" in script:
                below = owner.split(".", 1)[1]
                records.append((below, "DNAME", script["DNAME"], ttl))
            if "CNAME" in script and wanted != "CNAME":
                target = script["CNAME"].rstrip(".").lower()
                records.append((owner, "CNAME", script["CNAME"], ttl))
                owner, following = target, self._script(target, question.rtype)
                if following is None:
                    return RCODES["NXDOMAIN"], records
                script = following
                continue
            found = script.get(wanted, ())
            for value in [found] if isinstance(found, str) else found:
                records.append((owner, wanted, value, ttl))
            break
        return RCODES["NOERROR"], records


def _message(question: Question, rcode: int, records: list[tuple[str, str, str, int]], *, truncated: bool = False) -> bytes:
    flags = 0x8080 | (question.flags & 0x0100) | (0x0200 if truncated else 0) | rcode
    body = b"".join(_record(question, *record) for record in records)
    return struct.pack(">6H", question.ident, flags, 1, len(records), 0, 0) + question.section + body


def _record(question: Question, owner: str, kind: str, value: str, ttl: int) -> bytes:
    data = _data(kind, value)
    place = b"\xc0\x0c" if owner == question.name else _name(owner)
    return place + struct.pack(">HHIH", TYPES[kind], 1, ttl, len(data)) + data


def _name(text: str) -> bytes:
    labels = [label.encode("latin-1") for label in text.rstrip(".").split(".") if label]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def _data(kind: str, value: str) -> bytes:
    if kind in ("A", "AAAA"):
        return ip_address(value).packed
    if kind in ("CNAME", "DNAME"):
        return _name(value)
    if kind == "TXT":
        text = value.encode()
        parts = (text[at : at + 255] for at in range(0, len(text) or 1, 255))
        return b"".join(bytes([len(part)]) + part for part in parts)
    if kind in ("HTTPS", "SVCB"):  # RFC 9460 §2.2: priority, target, then address hints
        priority, target, *parameters = value.split()
        packed = struct.pack(">H", int(priority)) + _name(target)
        for parameter in parameters:
            key, _, addresses = parameter.partition("=")
            hint = b"".join(ip_address(address).packed for address in addresses.split(","))
            packed += struct.pack(">HH", _SHIFTS[key], len(hint)) + hint
        return packed
    raise ValueError(f"the lab cannot write a {kind} record")
