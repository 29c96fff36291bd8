"""DNS messages read fast and bounded, held against dnspython's own parser, tables and random bytes."""

import io
import struct
import subprocess
import sys
import time
from pathlib import Path

import dns.flags
import dns.message
import dns.rdatatype
import dns.rrset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.answer import Reply, Rr
from policy.errors import BadClient
from policy.host import Name, read_address, read_host, unpack
from policy.limits import DNS_ADDRESSES_COUNT, DNS_NAMES_COUNT
from proxy.dns_message import AAAA, A, Question, Read, ask, read

APP = Name("app.example.com")
LONG = b"".join(b"\1" + bytes([97 + at % 26]) for at in range(120)) + b"\0"
POINTER = struct.Struct(">H")


def response(question: Question) -> dns.message.Message:
    return dns.message.make_response(dns.message.from_wire(question.wire))


def said(question: Question, wire: bytes) -> Read:
    heard = read(question, wire)
    assert heard is not None
    return heard


def raw(question: Question, answers: list[bytes], counts: tuple[int, int, int] | None = None) -> bytes:
    """A reply by hand, for what dnspython would not write; the question's name lies at 12."""
    sections = counts or (len(answers), 0, 0)
    head = question.wire[:2] + b"\x81\x80" + struct.pack(">HHHH", 1, *sections)
    return head + question.wire[12 : question.end] + b"".join(answers)


def record(owner: bytes, kind: int, data: bytes, class_: int = 1, ttl_s: int = 60, length: int | None = None) -> bytes:
    return owner + struct.pack(">HHIH", kind, class_, ttl_s, len(data) if length is None else length) + data


ASKED = b"\xc0\x0c"
ONE = b"\1\1\1\1"


@pytest.mark.parametrize("kind", [A, AAAA])
@pytest.mark.parametrize("name", ["a.example", "app.example.com", "x" * 63 + ".example", ".".join(["a" * 61] * 4)])
def test_a_question_is_what_dnspython_reads_back(name: str, kind: dns.rdatatype.RdataType) -> None:
    question = ask(Name(name), kind)
    message = dns.message.from_wire(question.wire)
    assert [(each.name.to_text(omit_final_dot=True).lower(), each.rdtype) for each in message.question] == [(name, kind)]
    assert (message.edns, message.payload) == (0, 1232)
    assert message.flags & dns.flags.RD
    assert said(question, response(question).to_wire()) == Read(Reply())


RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["app", "b", "c.d", "_x", "é", "a\\.b", "UPPER"]),
        st.integers(0, 2**31 - 1),
        st.sampled_from(
            [("A", "192.0.2.1"), ("A", "198.51.100.9"), ("AAAA", "2001:db8::1"), ("AAAA", "::ffff:192.0.2.1"),
             ("CNAME", "b.example.com."), ("CNAME", "c.d.example.com."), ("TXT", '"x"'), ("MX", "5 b.example.com.")],
        ),
    ),
    max_size=8,
)  # fmt: skip


def slowly(question: Question, wire: bytes) -> list[Rr] | None:
    """The records that count, by dnspython's parser; None when one of them has a name that is none."""
    found = []
    for rrset in dns.message.from_wire(wire, one_rr_per_rrset=True).answer:  # else it drops the first of two CNAMEs
        if rrset.rdtype not in (question.kind, dns.rdatatype.CNAME):
            continue
        for each in rrset:
            names = [rrset.name, each.target] if rrset.rdtype == dns.rdatatype.CNAME else [rrset.name]
            try:
                hosts = [read_host(".".join(map(bytes.decode, name.labels[:-1])).encode()) for name in names]
            except (BadClient, UnicodeDecodeError):
                return None
            if any(b"." in label for name in names for label in name.labels):
                return None
            data = hosts[1] if len(hosts) > 1 else unpack(read_address(each.address).packed)
            found.append(Rr(Name(str(hosts[0])), data, rrset.ttl))
    return found


@settings(max_examples=150, deadline=None)
@given(RECORDS, st.sampled_from([A, AAAA]), st.booleans())
def test_it_reads_what_dnspython_reads(
    records: list[tuple[str, int, tuple[str, str]]], kind: dns.rdatatype.RdataType, compressed: bool
) -> None:
    question = ask(APP, kind)
    message = response(question)
    for owner, ttl_s, (type_, data) in records:
        message.answer.append(dns.rrset.from_text(f"{owner}.example.com.", ttl_s, "IN", type_, data))
    wire = message.to_wire(max_size=65_535)
    if not compressed:
        wire = raw(question, [plainly(each) for each in message.answer])
    theirs = slowly(question, wire)
    ours = said(question, wire).reply
    if theirs is None:
        assert ours.fault
    else:
        assert not ours.fault
        assert list(ours.records) == theirs


def plainly(rrset: dns.rrset.RRset) -> bytes:
    """Without compression."""
    file = io.BytesIO()
    rrset.to_wire(file)
    return file.getvalue()


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 4), st.integers(0, 4), st.sampled_from([A, AAAA]))
def test_random_bytes_never_raise(data: bytes, answers: int, others: int, kind: dns.rdatatype.RdataType) -> None:
    question = ask(APP, kind)
    heard = read(question, raw(question, [data], (answers, others, 0)))
    assert heard is None or heard.reply.fault or heard.reply.rcode
    assert read(question, data) is None


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 140), st.integers(0, 255))
def test_a_good_reply_with_one_byte_changed_never_raises(at: int, byte: int) -> None:
    question = ask(APP, A)
    message = response(question)
    message.answer.append(dns.rrset.from_text("app.example.com.", 60, "IN", "CNAME", "b.example.com."))
    message.answer.append(dns.rrset.from_text("b.example.com.", 60, "IN", "A", "192.0.2.1"))
    wire = bytearray(message.to_wire())
    wire[at % len(wire)] = byte
    read(question, bytes(wire))


NO_REPLY = [
    ("another id", lambda wire: bytes([wire[0] ^ 1]) + wire[1:]),
    ("a question", lambda wire: wire[:2] + bytes([wire[2] & 0x7F]) + wire[3:]),
    ("another opcode", lambda wire: wire[:2] + bytes([wire[2] | 0x28]) + wire[3:]),
    ("no question", lambda wire: wire[:5] + b"\0" + wire[6:]),
    ("two questions", lambda wire: wire[:5] + b"\2" + wire[6:]),
    ("another name", lambda wire: wire.replace(wire[13:16], b"bpp", 1)),
    ("another type", lambda wire: wire[:30] + b"\x1c" + wire[31:]),
    ("another class", lambda wire: wire[:32] + b"\3" + wire[33:]),
    ("bytes behind", lambda wire: wire + b"x"),
    ("cut short", lambda wire: wire[:-1]),
    ("only a header", lambda wire: wire[:12]),
    ("nothing", lambda wire: b""),
]


@pytest.mark.parametrize(("what", "change"), NO_REPLY, ids=[row[0] for row in NO_REPLY])
def test_what_is_no_reply_is_left_lying(what: str, change: object) -> None:
    question = ask(APP, A)
    wire = raw(question, [record(ASKED, 1, ONE)])
    assert said(question, wire).reply.records
    assert read(question, change(wire)) is None, what  # type: ignore[operator]


MALFORMED = [
    ("a pointer to itself", record(b"\xc0\x21", 1, ONE)),
    ("a pointer ahead", record(b"\xc0\x30", 1, ONE)),
    ("an address of three bytes", record(ASKED, 1, b"\1\1\1")),
    ("an address of five bytes", record(ASKED, 1, b"\1\1\1\1\1")),
    ("data beyond the end", record(ASKED, 1, ONE, length=5)),
    ("a target longer than its data", record(ASKED, 5, b"\1a\xc0\x10", length=3) + b"\x10"),
    ("a target shorter than its data", record(ASKED, 5, b"\xc0\x10x")),
    ("an unknown kind of label", record(b"\x40\x01", 1, ONE)),
    ("an owner beyond the end", b"\x3f"),
]


@pytest.mark.parametrize(("what", "answer"), MALFORMED, ids=[row[0] for row in MALFORMED])
def test_what_does_not_hold_together_is_left_lying(what: str, answer: bytes) -> None:
    question = ask(APP, A)
    assert read(question, raw(question, [answer])) is None, what


def test_what_was_truncated_may_end_anywhere() -> None:
    question = ask(APP, A)
    wire = bytearray(raw(question, [record(ASKED, 1, ONE)] * 2))
    wire[2] |= 2
    for end in range(question.end, len(wire) + 1):
        assert said(question, bytes(wire[:end])).is_truncated


def test_other_letters_are_seen() -> None:
    question = ask(APP, A)
    wire = raw(question, [record(ASKED, 1, ONE)])
    assert not said(question, wire).is_respelled
    assert said(question, wire[:12] + wire[12:25].swapcase() + wire[25:]).is_respelled


def test_the_rcode_has_twelve_bits() -> None:
    question = ask(APP, A)
    opt = record(b"\0", 41, b"", class_=1232, ttl_s=1 << 24)
    assert said(question, raw(question, [opt], (0, 0, 1))).reply.rcode == "BADVERS"


@pytest.mark.parametrize(("ttl_s", "minimum_s", "kept_s"), [(60, 30, 30), (30, 60, 30), (2**31, 60, 0), (0, 60, 0)])
def test_how_long_nothing_may_be_believed(ttl_s: int, minimum_s: int, kept_s: int) -> None:
    question = ask(APP, A)
    soa = record(ASKED, 6, b"\0\0" + struct.pack(">5I", 1, 2, 3, 4, minimum_s), ttl_s=ttl_s)
    assert said(question, raw(question, [soa], (0, 1, 0))).negative_ttl_s == kept_s
    assert said(question, raw(question, [soa], (1, 0, 0))).negative_ttl_s == 0
    cut = record(ASKED, 6, b"\0" * 21)
    assert read(question, raw(question, [cut], (0, 1, 0))) is None


@pytest.mark.parametrize(("ttl_s", "told_s"), [(0, 0), (2**31 - 1, 2**31 - 1), (2**31, 0), (2**32 - 1, 0)])
def test_a_ttl_with_the_top_bit_is_none(ttl_s: int, told_s: int) -> None:
    question = ask(APP, A)
    wire = raw(question, [record(ASKED, 1, ONE, ttl_s=ttl_s)])
    assert [each.ttl_s for each in said(question, wire).reply.records] == [told_s]


def test_another_class_says_nothing() -> None:
    question = ask(APP, A)
    assert said(question, raw(question, [record(ASKED, 1, ONE, class_=3)])).reply == Reply()


@pytest.mark.parametrize(("count", "fault"), [(DNS_ADDRESSES_COUNT, ""), (DNS_ADDRESSES_COUNT + 1, "more than 256 addresses")])
def test_too_many_addresses_are_a_fault(count: int, fault: str) -> None:
    question = ask(APP, A)
    reply = said(question, raw(question, [record(ASKED, 1, struct.pack(">I", at)) for at in range(count)])).reply
    assert reply.fault == fault


def test_names_that_take_a_parser_seconds_take_no_time() -> None:
    question = ask(APP, A)
    at = POINTER.pack(0xC000 | question.end + 5)
    target = POINTER.pack(0xC000 | question.end)
    answers = [record(b"\4" + b"%04x" % number + (at if number else LONG), 5, target) for number in range(4000)]
    wire = raw(question, answers)
    assert len(wire) > 60_000
    began_s = time.process_time()
    assert said(question, wire).reply.fault == f"more than {DNS_NAMES_COUNT} names"
    assert time.process_time() - began_s < 0.5


def test_asking_and_reading_import_nothing() -> None:
    """By then a front may not read its files any more."""
    code = """
import codecs, struct, sys
sys.path.insert(0, sys.argv[1])
from proxy.dns_message import A, AAAA, ask, read
codecs.lookup("punycode")  # as stockade.run_front does
before = set(sys.modules)
for kind, data in ((A, b"1234"), (AAAA, b"0123456789abcdef")):
    question = ask("app.example.com", kind)
    for flags in (b"\\x81\\x80", b"\\x81\\x82", b"\\x81\\x83", b"\\x81\\x85", b"\\x83\\x80"):
        owner = b"\\xc0\\x0c"
        answer = owner + struct.pack(">HHIH", kind, 1, 60, len(data)) + data
        alias = owner + struct.pack(">HHIH", 5, 1, 60, 16) + b"\\x0dxn--bcher-kva\\xc0\\x10"
        soa = owner + struct.pack(">HHIH", 6, 1, 60, 22) + bytes(22)
        opt = b"\\0" + struct.pack(">HHIH", 41, 1232, 0, 0)
        head = question.wire[:2] + flags + struct.pack(">4H", 1, 2, 1, 1) + question.wire[12 : question.end]
        assert read(question, head + answer + alias + soa + opt) is not None
        assert flags == b"\\x83\\x80" or read(question, head) is None
print(*sorted(set(sys.modules) - before))
"""
    root = str(Path(__file__).resolve().parents[2])
    ran = subprocess.run([sys.executable, "-I", "-c", code, root], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
