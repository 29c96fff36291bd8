"""DNS messages: one question out, one reply in; the only door to dnspython (RFC 1035, RFC 6891)."""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype

from policy.answer import NOERROR, Reply, Rr
from policy.errors import BadClient
from policy.host import Name, read_host, unpack
from policy.limits import DNS_ADDRESSES_COUNT, DNS_NAMES_COUNT, EDNS_PAYLOAD_BYTES
from policy.verdict import Reason

A: Final = dns.rdatatype.A
AAAA: Final = dns.rdatatype.AAAA
_HEADER: Final = struct.Struct(">6H")
"""Id, flags, and the counts of the four sections (RFC 1035 §4.1.1)."""
_RECORD: Final = struct.Struct(">HHIH")
"""Type, class, TTL and length of the data, after the owner (RFC 1035 §4.1.3)."""
_OPCODE: Final = 0x7800
_ADDRESS_BYTES: Final = {A: 4, AAAA: 16}
_AROUND: Final = {
    kind: dns.message.make_query(dns.name.root, kind, use_edns=0, payload=EDNS_PAYLOAD_BYTES).to_wire() for kind in (A, AAAA)
}
"""Questions for the root name; another name's is the same with its labels before the root's."""
_SOA_LEAST_BYTES: Final = 22
"""Two root names and five numbers, MINIMUM the last (RFC 1035 §3.3.13)."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question as sent: a random id, and letters in random case (draft-vixie-dnsext-dns0x20)."""

    name: Name
    kind: dns.rdatatype.RdataType
    wire: bytes
    end: int
    """Where the question section ends in `wire`; a reply repeats it to there (RFC 1035 §4.1.2)."""


@dataclass(frozen=True, slots=True)
class Read:
    """What a server sent for a question."""

    reply: Reply
    is_truncated: bool = False
    """TC was set: ask again over TCP (RFC 1035 §4.2.1)."""
    is_respelled: bool = False
    """The question came back in other letters: somebody guessed, or a server folds case. TCP tells which."""
    negative_ttl_s: int = 0
    """How long "there is nothing" may be believed (RFC 2308 §5); 0 where no SOA says so."""


def ask(name: Name, kind: dns.rdatatype.RdataType) -> Question:
    """A recursive question for `name`'s records of `kind` (A or AAAA)."""
    coins = int.from_bytes(os.urandom(32))
    spelling = "".join(letter.upper() if coins >> at & 1 else letter for at, letter in enumerate(name))
    labels = b"".join(bytes([len(label)]) + label for label in spelling.encode("ascii").split(b"."))
    id_, around = os.urandom(2), _AROUND[kind]
    wire = id_ + around[2 : _HEADER.size] + labels + around[_HEADER.size :]
    return Question(name, kind, wire, _HEADER.size + len(name) + 2 + 4)


def read(question: Question, wire: bytes) -> Read | None:
    """The reply that `wire` holds, or None when it is no reply to this question and must be left lying.

    Only the records that count are decoded, and only so many names: a message of a few hundred bytes can hold names
    that take a general parser seconds.
    """
    if len(wire) < question.end or wire[:2] != question.wire[:2]:
        return None
    _, flags, questions, *counts = _HEADER.unpack_from(wire)
    if not flags & dns.flags.QR or flags & _OPCODE or questions != 1:
        return None
    sent, repeated = (each[_HEADER.size : question.end] for each in (question.wire, wire))
    if repeated.lower() != sent.lower():  # type and class are numbers below any letter's, so folding keeps them
        return None
    respelled = repeated != sent
    if flags & dns.flags.TC:  # it may end anywhere, so nothing more of it is read
        return Read(Reply(), is_truncated=True, is_respelled=respelled)
    try:
        reply, negative_ttl_s = _read(question, wire, flags & 0xF, counts)
    except BadClient as error:
        return Read(Reply(fault=error.detail), is_respelled=respelled)
    except (IndexError, ValueError, struct.error, dns.exception.DNSException):
        return None
    return Read(reply, is_respelled=respelled, negative_ttl_s=negative_ttl_s)


@dataclass(frozen=True, slots=True)
class _Raw:
    """One record, undecoded: where its owner and its data lie in the message."""

    section: int
    owner_at: int
    kind: int
    class_: int
    ttl_s: int
    data_at: int
    data_end: int


def _read(question: Question, wire: bytes, rcode: int, counts: list[int]) -> tuple[Reply, int]:
    """The reply, and how long "there is nothing" may be believed. Raises what `read` turns into None or a fault."""
    names = _Names(wire, question.name)
    records: list[Rr] = []
    negative_ttl_s = 0
    addresses_count = 0
    for raw in _records(wire, question.end, counts):
        if raw.section == 2 and raw.kind == dns.rdatatype.OPT:
            rcode |= raw.ttl_s >> 24 << 4  # RFC 6891 §6.1.3
        if raw.class_ != dns.rdataclass.IN:
            continue
        ttl_s = raw.ttl_s if raw.ttl_s < 1 << 31 else 0  # RFC 2181 §8
        if raw.section == 1 and raw.kind == dns.rdatatype.SOA:
            if raw.data_end - raw.data_at < _SOA_LEAST_BYTES:
                raise ValueError("an SOA cut short")
            minimum_s = struct.unpack_from(">I", wire, raw.data_end - 4)[0]
            negative_ttl_s = min(ttl_s, minimum_s)
        elif raw.section == 0 and raw.kind == dns.rdatatype.CNAME:
            if _after_name(wire, raw.data_at) != raw.data_end:
                raise ValueError("a target that is not all of its data")
            records.append(Rr(names.at(raw.owner_at), names.at(raw.data_at), ttl_s))
        elif raw.section == 0 and raw.kind == question.kind:
            if raw.data_end - raw.data_at != _ADDRESS_BYTES[question.kind]:
                raise ValueError("an address of another length")
            addresses_count += 1
            if addresses_count > DNS_ADDRESSES_COUNT:
                raise BadClient(Reason.HOST_INVALID, f"more than {DNS_ADDRESSES_COUNT} addresses")
            records.append(Rr(names.at(raw.owner_at), unpack(wire[raw.data_at : raw.data_end]), ttl_s))
    if rcode == dns.rcode.NOERROR:
        return Reply(NOERROR, tuple(records)), negative_ttl_s
    said = dns.rcode.to_text(dns.rcode.Rcode.make(rcode))
    return Reply(said), negative_ttl_s if rcode == dns.rcode.NXDOMAIN else 0


def _records(wire: bytes, at: int, counts: list[int]) -> Iterator[_Raw]:
    """Every record from `at` on; raises ValueError, IndexError or struct.error when the message does not hold together.

    That it ends with its last record is part of that.
    """
    for section, count in enumerate(counts):
        for _ in range(count):
            owner_at = at
            at = _after_name(wire, at)
            kind, class_, ttl_s, length = _RECORD.unpack_from(wire, at)
            at += _RECORD.size
            if at + length > len(wire):
                raise ValueError("data beyond the end")
            yield _Raw(section, owner_at, kind, class_, ttl_s, at, at + length)
            at += length
    if at != len(wire):
        raise ValueError("bytes after the last record")


def _after_name(wire: bytes, at: int) -> int:
    """Where a name that begins at `at` ends in place: after its root label or its pointer (RFC 1035 §4.1.4)."""
    while (length := wire[at]) < 0x40:
        at += 1 + length
        if length == 0:
            return at
    if length < 0xC0:
        raise ValueError("an unknown kind of label")
    return at + 2


class _Names:
    """The names of one message, decoded once each and only so many."""

    def __init__(self, wire: bytes, asked: Name) -> None:
        self._wire = wire
        self._known: dict[int, Name] = {_HEADER.size: asked}

    def at(self, at: int) -> Name:
        """The name at this place; raises BadClient when it is no name of ours, or one too many."""
        first = self._wire[at]
        if first >= 0xC0:
            at = (first & 0x3F) << 8 | self._wire[at + 1]
        name = self._known.get(at)
        if name is None:
            if len(self._known) > DNS_NAMES_COUNT:
                raise BadClient(Reason.HOST_INVALID, f"more than {DNS_NAMES_COUNT} names")
            name = self._known[at] = _name(dns.name.from_wire(self._wire, at)[0])
        return name


def _name(name: dns.name.Name) -> Name:
    labels = name.labels[:-1]
    host = None if any(b"." in label for label in labels) else read_host(b".".join(labels))
    if not isinstance(host, str):
        raise BadClient(Reason.HOST_INVALID, "a record whose name reads like another name or an address")
    return host
