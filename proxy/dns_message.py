"""DNS messages: one question out, one reply in; the only door to dnspython (RFC 1035, RFC 6891)."""

import os
import secrets
from dataclasses import dataclass
from typing import Final

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype

# dnspython imports a record's class when it first meets one; by then a front may not read its files any more.
import dns.rdtypes.ANY.CNAME
import dns.rdtypes.ANY.SOA
import dns.rdtypes.IN.A
import dns.rdtypes.IN.AAAA
import dns.rrset

from policy.answer import NOERROR, Reply, Rr
from policy.errors import BadClient
from policy.host import Name, plain, read_address, read_host
from policy.limits import EDNS_PAYLOAD_BYTES

A: Final = dns.rdatatype.A
AAAA: Final = dns.rdatatype.AAAA
_HEADER_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class Question:
    """One question as sent: a random id, and letters in random case (draft-vixie-dnsext-dns0x20)."""

    name: Name
    kind: dns.rdatatype.RdataType
    wire: bytes
    spelled: dns.name.Name


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
    spelling = "".join(
        letter.upper() if coins >> at & 1 else letter for at, letter in enumerate(name)
    )
    spelled = dns.name.from_text(spelling + ".")
    message = dns.message.make_query(spelled, kind, use_edns=0, payload=EDNS_PAYLOAD_BYTES)
    message.id = secrets.randbits(16)
    return Question(name, kind, message.to_wire(), spelled)


def read(question: Question, wire: bytes) -> Read | None:
    """The reply that `wire` holds, or None when it is no reply to this question and must be left lying."""
    if len(wire) < _HEADER_BYTES or wire[:2] != question.wire[:2]:
        return None
    try:
        message = dns.message.from_wire(wire, ignore_trailing=False, raise_on_truncation=False)
        return _read(question, message)
    except Exception:  # noqa: BLE001 - dnspython raises many kinds; whatever it cannot read is no reply
        return None


def _read(question: Question, message: dns.message.Message) -> Read | None:
    if not message.flags & dns.flags.QR or message.opcode() != 0 or len(message.question) != 1:
        return None
    asked = message.question[0]
    if asked.rdtype != question.kind or asked.rdclass != dns.rdataclass.IN or asked.name != question.spelled:
        return None
    respelled = asked.name.labels != question.spelled.labels
    if message.flags & dns.flags.TC:
        return Read(Reply(), is_truncated=True, is_respelled=respelled)
    rcode = dns.rcode.to_text(message.rcode())
    if rcode != NOERROR:
        negative_s = _negative_ttl_s(message) if rcode == "NXDOMAIN" else 0
        return Read(Reply(rcode), is_respelled=respelled, negative_ttl_s=negative_s)
    records: list[Rr] = []
    for rrset in message.answer:
        if rrset.rdclass == dns.rdataclass.IN and rrset.rdtype in (question.kind, dns.rdatatype.CNAME):
            try:
                records += _records(rrset)
            except BadClient as error:
                return Read(Reply(fault=error.detail), is_respelled=respelled)
    return Read(Reply(NOERROR, tuple(records)), is_respelled=respelled, negative_ttl_s=_negative_ttl_s(message))


def _records(rrset: dns.rrset.RRset) -> list[Rr]:
    """Raises BadClient when an owner, a target or an address is none of ours."""
    owner = _name(rrset.name)
    if rrset.rdtype == dns.rdatatype.CNAME:
        return [Rr(owner, _name(record.target), rrset.ttl) for record in rrset]
    return [Rr(owner, plain(read_address(record.address)), rrset.ttl) for record in rrset]


def _name(name: dns.name.Name) -> Name:
    labels = name.labels[:-1]
    if any(b"." in label for label in labels):
        labels = (b"\0",)  # a dot inside a label reads like another name; read_host refuses the NUL
    host = read_host(b".".join(labels))
    if not isinstance(host, str):
        return _name(dns.name.Name((b"\0", b"")))
    return host


def _negative_ttl_s(message: dns.message.Message) -> int:
    for rrset in message.authority:
        if rrset.rdtype == dns.rdatatype.SOA:
            return min([rrset.ttl, *(int(record.minimum) for record in rrset)])
    return 0
