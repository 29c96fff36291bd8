"""The resolver against a scripted server: what it believes, what it passes over, and how often it asks."""

import os
import socket
import time
from collections.abc import Mapping

import dns.flags
import dns.message
import dns.name
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import pytest

from policy.answer import Answer
from policy.destination import Destination
from policy.document import parse
from policy.errors import Broken
from policy.host import Name
from policy.judge import admit
from policy.layers import combine
from policy.limits import Limits
from policy.verdict import Reason
from proxy import resolver as resolver_module
from proxy.loop import Loop
from proxy.resolver import Resolver, read_server, resolve_now, system_servers
from tests.proxy.dns_peer import DnsPeer, Script, reply, zone

APP = Name("app.example.com")
A4 = "app.example.com. 60 IN A 192.0.2.7"
A6 = "app.example.com. 60 IN AAAA 2001:db8::7"
QUICK = Limits(resolve_s=1.2)
PATIENT = Limits(resolve_s=8)


def look(peer: DnsPeer, name: str = "app.example.com", limits: Limits = PATIENT) -> Answer:
    return resolve_now(Name(name), [peer.server], limits)


def texts(answer: Answer) -> list[str]:
    return [str(address) for address in answer.addresses]


def chain(links: int) -> list[str]:
    owners = ["app", *(f"c{at}" for at in range(1, links + 1))]
    aliases = [f"{a}.example.com. 60 IN CNAME {b}.example.com." for a, b in zip(owners, owners[1:], strict=False)]
    return [*aliases, f"{owners[-1]}.example.com. 60 IN A 192.0.2.7"]


GOOD = {("app.example.com.", "A"): [A4], ("app.example.com.", "AAAA"): [A6]}

TABLE: list[tuple[str, Mapping[tuple[str, str], list[str] | str], list[str], str]] = [
    # what, zone, addresses, part of the detail
    ("both families", GOOD, ["192.0.2.7", "2001:db8::7"], ""),
    ("only A", {("app.example.com.", "A"): [A4]}, ["192.0.2.7"], ""),
    ("only AAAA", {("app.example.com.", "AAAA"): [A6]}, ["2001:db8::7"], ""),
    ("A and AAAA SERVFAIL", {**GOOD, ("app.example.com.", "AAAA"): "SERVFAIL"}, ["192.0.2.7"], ""),
    ("NXDOMAIN", {}, [], "NXDOMAIN"),
    ("SERVFAIL", {("app.example.com.", t): "SERVFAIL" for t in ("A", "AAAA")}, [], "SERVFAIL"),
    ("REFUSED", {("app.example.com.", t): "REFUSED" for t in ("A", "AAAA")}, [], "REFUSED"),
    ("only TXT", {("app.example.com.", "TXT"): ['app.example.com. 60 IN TXT "x"']}, [], "no address"),
    ("other owner", {("app.example.com.", "A"): ["other.example.net. 60 IN A 192.0.2.7"]}, [], "no address"),
    ("CNAME", {("app.example.com.", "A"): chain(1)}, ["192.0.2.7"], ""),
    ("8 CNAMEs", {("app.example.com.", "A"): chain(8)}, ["192.0.2.7"], ""),
    ("9 CNAMEs", {("app.example.com.", "A"): chain(9)}, [], "CNAMEs"),
    ("40 CNAMEs", {("app.example.com.", "A"): chain(40)}, [], "CNAMEs"),
    ("CNAME beside A", {("app.example.com.", "A"): [*chain(1), A4]}, [], "beside"),
    ("CNAME to itself", {("app.example.com.", "A"): ["app.example.com. 60 IN CNAME app.example.com."]}, [], "circle"),
    ("CNAME circle", {("app.example.com.", "A"): ["app.example.com. 60 IN CNAME b.example.com.",
        "b.example.com. 60 IN CNAME app.example.com."]}, [], "circle"),
    ("two CNAMEs", {("app.example.com.", "A"): ["app.example.com. 60 IN CNAME b.example.com.",
        "app.example.com. 60 IN CNAME c.example.com.", "c.example.com. 60 IN A 192.0.2.7"]}, [], "two CNAMEs"),
    ("NUL in a target", {("app.example.com.", "A"): ["app.example.com. 60 IN CNAME localhost\\000.example.net.",
        "localhost\\000.example.net. 60 IN A 192.0.2.7"]}, [], "\\x00"),
    ("dot in a label", {("app.example.com.", "A"): ["app.example.com. 60 IN CNAME a\\.b.example.net.",
        "a\\.b.example.net. 60 IN A 192.0.2.7"]}, [], ""),
    ("mapped AAAA", {("app.example.com.", "AAAA"): ["app.example.com. 60 IN AAAA ::ffff:192.0.2.7"]}, ["192.0.2.7"], ""),
    ("records of another family", {("app.example.com.", "AAAA"): [A4]}, [], "no address"),
    ("DNAME", {("app.example.com.", "A"): ["example.com. 60 IN DNAME example.net.",
        "app.example.com. 60 IN CNAME app.example.net.", "app.example.net. 60 IN A 192.0.2.7"]}, ["192.0.2.7"], ""),
]  # fmt: skip


@pytest.mark.parametrize(("what", "table", "addresses", "detail"), TABLE, ids=[row[0] for row in TABLE])
def test_answers(what: str, table: Mapping[tuple[str, str], list[str] | str], addresses: list[str], detail: str) -> None:
    with DnsPeer(zone(table)) as peer:
        answer = look(peer)
    assert sorted(texts(answer)) == sorted(addresses), what
    assert (answer.failed is None) == bool(addresses)
    if not addresses:
        assert answer.failed is Reason.DNS_FAILED
        assert detail in answer.detail
    assert len(peer.asked) <= 4


def test_only_a_and_aaaa_are_asked_in_random_letters_from_random_ports() -> None:
    with DnsPeer(zone({("app.example.com.", "A"): [A4.replace(" 60 ", " 0 ")]})) as peer:
        for _ in range(16):
            look(peer)
    assert {kind for _, kind, _ in peer.asked} == {"A", "AAAA"}
    assert len(set(peer.ids)) > 24
    assert len(set(peer.ports)) > 16
    assert len(set(peer.spellings)) > 16


def mangled(change: str) -> Script:
    """A server, or a guesser, whose first reply is wrong in one way; the true one follows when `change` says so."""

    def script(query: dns.message.Message, wire: bytes, transport: str) -> list[bytes]:
        good = reply(query, A4) if query.question[0].rdtype == dns.rdatatype.A else reply(query, soa=True)
        bad = reply(query, "app.example.com. 60 IN A 203.0.113.66")
        if change == "id":
            bad.id ^= 1
        elif change == "question":
            bad.question = [dns.rrset.RRset(dns.name.from_text("other.example.com."), dns.rdataclass.IN, query.question[0].rdtype)]
        elif change == "type":
            bad.question = [dns.rrset.RRset(query.question[0].name, dns.rdataclass.IN, dns.rdatatype.TXT)]
        elif change == "two questions":
            bad.question = [
                *query.question,
                dns.rrset.RRset(dns.name.from_text("x."), dns.rdataclass.IN, dns.rdatatype.A),
            ]
        elif change == "not a reply":
            bad.flags &= ~dns.flags.QR
        raw = bad.to_wire()
        if change == "garbage":
            raw = wire[:2] + os.urandom(60)
        elif change == "compression loop":
            raw = wire[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + b"\xc0\x0c\0\1\0\1" + b"\xc0\x12\0\1\0\1\0\0\0\x3c\0\4\1\1\1\1"
        elif change == "short":
            raw = wire[:11]
        elif change == "trailing bytes":
            raw += b"xx"
        return [raw, good.to_wire()]

    return script


@pytest.mark.parametrize(
    "change",
    [
        "id",
        "question",
        "type",
        "two questions",
        "not a reply",
        "garbage",
        "compression loop",
        "short",
        "trailing bytes",
    ],
)
def test_a_wrong_reply_is_left_lying_and_the_true_one_counts(change: str) -> None:
    with DnsPeer(mangled(change)) as peer:
        assert texts(look(peer)) == ["192.0.2.7"]


@pytest.mark.parametrize("cause", ["truncated", "respelled"])
def test_what_udp_cannot_settle_is_asked_over_tcp(cause: str) -> None:
    def script(query: dns.message.Message, _wire: bytes, transport: str) -> list[bytes]:
        if transport == "tcp":
            many = [f"app.example.com. 60 IN A 192.0.2.{at}" for at in range(1, 200)]
            return [(reply(query, *many) if query.question[0].rdtype == 1 else reply(query, soa=True)).to_wire(max_size=65_535)]
        message = reply(query, "app.example.com. 60 IN A 203.0.113.66")
        if cause == "truncated":
            message.flags |= dns.flags.TC
        else:
            swapped = dns.name.from_text(query.question[0].name.to_text().swapcase())
            message.question = [dns.rrset.RRset(swapped, dns.rdataclass.IN, query.question[0].rdtype)]
        return [message.to_wire()]

    with DnsPeer(script) as peer:
        answer = look(peer)
    assert len(answer.addresses) == 199
    assert {transport for _, _, transport in peer.asked} == {"udp", "tcp"}


def test_a_spoofed_datagram_from_another_port_never_arrives() -> None:
    spoofer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def script(query: dns.message.Message, _wire: bytes, _transport: str) -> list[bytes]:
        spoofer.sendto(reply(query, "app.example.com. 60 IN A 203.0.113.66").to_wire(), ("127.0.0.1", peer.ports[-1]))
        return [reply(query, A4).to_wire()] if query.question[0].rdtype == 1 else [reply(query, soa=True).to_wire()]

    with DnsPeer(script) as peer, spoofer:
        assert texts(look(peer)) == ["192.0.2.7"]


def test_silence_ends_by_the_limit_as_dns_timeout() -> None:
    with DnsPeer(lambda *_: []) as peer:
        began = time.monotonic()
        answer = look(peer, limits=QUICK)
    assert answer.failed is Reason.DNS_TIMEOUT
    assert 1.0 < time.monotonic() - began < 4


def test_a_silent_family_does_not_hold_the_other() -> None:
    with DnsPeer(zone({**GOOD, ("app.example.com.", "AAAA"): "silence"})) as peer:
        began = time.monotonic()
        answer = look(peer, limits=Limits(resolve_s=20))
    assert texts(answer) == ["192.0.2.7"]
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("first", ["closed", "silent", "SERVFAIL", "REFUSED", "garbage"])
def test_another_server_is_asked_when_one_cannot_say(first: str) -> None:
    def broken(query: dns.message.Message, _wire: bytes, _transport: str) -> list[bytes]:
        if first in {"silent", "closed"}:
            return []
        return [b"\0" * 20 if first == "garbage" else reply(query, rcode=first).to_wire()]

    with DnsPeer(broken) as bad, DnsPeer(zone(GOOD)) as good:
        if first == "closed":
            bad.udp.close()
            bad.__exit__()
        loop = Loop()
        resolver = Resolver(loop, [bad.server, good.server], Limits(resolve_s=8))
        answers: list[Answer] = []
        resolver.lookup(APP, answers.append)
        while not answers:
            loop.turn()
        assert sorted(texts(answers[0])) == ["192.0.2.7", "2001:db8::7"]
        if first in {"silent", "garbage"}:  # it is asked last from then on
            asked = len(bad.asked)
            resolver.lookup(Name("else.example.com"), answers.append)
            while len(answers) < 2:
                loop.turn()
            assert len(bad.asked) == asked
        resolver.stop()
        loop.close()


def test_an_alias_left_open_is_followed() -> None:
    table: Mapping[tuple[str, str], list[str] | str] = {("b.example.com.", "A"): ["b.example.com. 60 IN A 192.0.2.7"]}

    def script(query: dns.message.Message, wire: bytes, transport: str) -> list[bytes]:
        if query.question[0].name.to_text().lower() == "app.example.com.":
            return [reply(query, "app.example.com. 60 IN CNAME b.example.com.").to_wire()]
        return zone(table)(query, wire, transport)

    with DnsPeer(script) as peer:
        answer = look(peer)
    assert texts(answer) == ["192.0.2.7"]
    assert answer.chain == ("b.example.com",)
    assert len(peer.asked) == 4


@pytest.mark.parametrize(("links", "asked", "found"), [(1, 4, True), (7, 16, True), (8, 18, True), (9, 18, False), (40, 18, False)])
def test_aliases_left_open_are_followed_as_far_as_closed_ones(links: int, asked: int, found: bool) -> None:
    """Every reply holds one link; each link is asked for once in each family."""
    *aliases, end = chain(links)
    table = {(end.split(" ")[0], "A"): [end]}
    table |= {(alias.split(" ")[0], kind): [alias] for alias in aliases for kind in ("A", "AAAA")}
    with DnsPeer(zone(table)) as peer:
        answer = look(peer)
    assert texts(answer) == (["192.0.2.7"] if found else [])
    assert len(answer.chain) == (links if found else 8 + 1) or not found
    assert answer.failed is (None if found else Reason.DNS_FAILED)
    assert len(peer.asked) <= asked


def test_an_alias_to_a_name_that_does_not_exist() -> None:
    table: Mapping[tuple[str, str], list[str] | str] = {
        ("app.example.com.", kind): ["app.example.com. 60 IN CNAME gone.example.com."] for kind in ("A", "AAAA")
    }
    with DnsPeer(zone(table)) as peer:
        answer = look(peer)
    assert (answer.failed, answer.detail) == (Reason.DNS_FAILED, "NXDOMAIN")


def test_guesses_without_end_move_the_question_to_tcp() -> None:
    def script(query: dns.message.Message, _wire: bytes, transport: str) -> list[bytes]:
        if transport == "tcp":
            return [(reply(query, A4) if query.question[0].rdtype == 1 else reply(query, soa=True)).to_wire()]
        guess = reply(query, "app.example.com. 60 IN A 203.0.113.66")
        guess.id ^= 0x55
        return [guess.to_wire()] * 40

    with DnsPeer(script) as peer:
        began = time.monotonic()
        answer = look(peer, limits=Limits(resolve_s=8))
    assert texts(answer) == ["192.0.2.7"]
    assert time.monotonic() - began < 4
    assert [transport for _, _, transport in peer.asked].count("tcp") == 2


@pytest.mark.parametrize("stream", ["closes", "garbage", "short", "other id", "truncated again", "silent"])
def test_a_stream_that_fails_is_another_servers_turn(stream: str) -> None:
    def script(query: dns.message.Message, wire: bytes, transport: str) -> list[bytes]:
        message = reply(query, A4)
        if transport == "udp":
            message.flags |= dns.flags.TC
            return [message.to_wire()]
        if stream == "other id":
            message.id ^= 1
        elif stream == "truncated again":
            message.flags |= dns.flags.TC
        elif stream == "silent":
            time.sleep(1.5)
        return {"closes": [], "silent": [], "garbage": [os.urandom(70)], "short": [wire[:7]]}.get(stream, [message.to_wire()])

    before = set(os.listdir("/proc/self/fd"))
    with DnsPeer(script) as bad, DnsPeer(zone(GOOD)) as good:
        answer = resolve_now(APP, [bad.server, good.server], Limits(resolve_s=8))
    assert set(os.listdir("/proc/self/fd")) == before
    assert sorted(texts(answer)) == ["192.0.2.7", "2001:db8::7"]


def test_a_huge_answer_is_refused_and_a_large_one_used_but_not_kept() -> None:
    for count, found in ((4000, 0), (257, 0), (256, 256)):
        many = dns.rrset.from_text_list("app.example.com.", 60, "IN", "A", [f"198.51.{at >> 8}.{at & 255}" for at in range(count)])

        def script(query: dns.message.Message, _wire: bytes, transport: str, many: dns.rrset.RRset = many) -> list[bytes]:
            message = reply(query, soa=query.question[0].rdtype != 1)
            if transport == "tcp":
                message.answer = [many]
            elif query.question[0].rdtype == 1:
                message.flags |= dns.flags.TC
            return [message.to_wire(max_size=65_535)]

        with DnsPeer(script) as peer:
            loop = Loop()
            resolver = Resolver(loop, [peer.server], Limits(resolve_s=5))
            answers: list[Answer] = []
            for turn in (1, 2):
                resolver.lookup(APP, answers.append)
                run(loop, answers, turn)
            resolver.stop()
            loop.close()
        assert [len(answer.addresses) for answer in answers] == [found, found]
        assert found or answers[0].detail == "more than 256 addresses"
        assert [transport for _, kind, transport in peer.asked if kind == "A"].count("tcp") >= 2


def test_a_rebinding_name_is_asked_for_at_every_pin() -> None:
    turns = iter(["192.0.2.7", "127.0.0.1", "192.0.2.9"])

    def script(query: dns.message.Message, _wire: bytes, _transport: str) -> list[bytes]:
        if query.question[0].rdtype != 1:
            return [reply(query, soa=True).to_wire()]
        return [reply(query, f"app.example.com. 0 IN A {next(turns)}").to_wire()]

    with DnsPeer(script) as peer:
        loop = Loop()
        resolver = Resolver(loop, [peer.server], QUICK)
        answers: list[Answer] = []
        for count in (1, 2, 3):
            resolver.lookup(APP, answers.append)
            run(loop, answers, count)
        resolver.stop()
        loop.close()
    assert [texts(answer) for answer in answers] == [["192.0.2.7"], ["127.0.0.1"], ["192.0.2.9"]]


def test_an_answer_of_one_family_is_believed_for_a_short_time() -> None:
    now_s = [100.0]
    with DnsPeer(zone({**GOOD, ("app.example.com.", "AAAA"): "SERVFAIL"})) as peer:
        loop = Loop(clock=lambda: now_s[0])
        resolver = Resolver(loop, [peer.server], QUICK)
        answers: list[Answer] = []
        for count, moment_s in enumerate((100.0, 104.0, 106.0), 1):
            now_s[0] = moment_s
            loop.turn(0)
            resolver.lookup(APP, answers.append)
            run(loop, answers, count)
        resolver.stop()
        loop.close()
    assert [texts(answer) for answer in answers] == [["192.0.2.7"]] * 3
    assert len(peer.asked) == 4


def test_a_bug_on_the_way_of_a_reply_still_ends_the_lookup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def bug(*_: object) -> Answer:
        raise RuntimeError("a bug in assemble")

    monkeypatch.setattr(resolver_module, "assemble", bug)
    with DnsPeer(zone(GOOD)) as peer:
        answer = look(peer, limits=Limits(resolve_s=0.6))
    assert answer.failed is Reason.DNS_TIMEOUT
    assert "a bug in assemble" in capsys.readouterr().err


def test_a_slow_server_stalls_nobody_else() -> None:
    with DnsPeer(zone({**GOOD, ("slow.example.com.", "A"): "silence", ("slow.example.com.", "AAAA"): "silence"})) as peer:
        loop = Loop()
        resolver = Resolver(loop, [peer.server], Limits(resolve_s=5))
        slow: list[Answer] = []
        answers: list[Answer] = []
        resolver.lookup(Name("slow.example.com"), slow.append)
        began = time.monotonic()
        resolver.lookup(APP, answers.append)
        run(loop, answers, 1)
        assert time.monotonic() - began < 2
        assert not slow
        resolver.stop()
        loop.close()


def run(loop: Loop, until: list[Answer], count: int) -> None:
    end = time.monotonic() + 10
    while len(until) < count and time.monotonic() < end:
        loop.turn(0.5)
    assert len(until) == count


def test_ttl_decides_how_often_a_name_is_asked_for() -> None:
    with DnsPeer(
        zone({("app.example.com.", "A"): [A4], ("zero.example.com.", "A"): ["zero.example.com. 0 IN A 192.0.2.8"]})
    ) as peer:
        loop = Loop()
        resolver = Resolver(loop, [peer.server], QUICK)
        answers: list[Answer] = []
        for count, name in enumerate(["app", "app", "app", "zero", "zero", "none", "none"], 1):
            resolver.lookup(Name(f"{name}.example.com"), answers.append)
            run(loop, answers, count)
        resolver.stop()
        loop.close()
    names = [name for name, kind, _ in peer.asked if kind == "A"]
    assert [names.count(f"{name}.example.com.") for name in ("app", "zero", "none")] == [1, 2, 1]


def test_one_flight_serves_all_who_wait_and_a_leaver_takes_nobody_along() -> None:
    with DnsPeer(zone(GOOD)) as peer:
        loop = Loop()
        resolver = Resolver(loop, [peer.server], QUICK)
        answers: list[Answer] = []
        left: list[Answer] = []
        leave = resolver.lookup(APP, left.append)
        for _ in range(20):
            resolver.lookup(APP, answers.append)
        leave()
        leave()
        run(loop, answers, 20)
        assert len(peer.asked) == 2
        assert not left
        resolver.stop()
        loop.close()


def test_nothing_stays_open_however_a_lookup_ends() -> None:
    with DnsPeer(lambda *_: []) as silent, DnsPeer(zone(GOOD)) as good:
        loop = Loop()
        before = set(os.listdir("/proc/self/fd"))
        resolver = Resolver(loop, [silent.server], Limits(resolve_s=0.3))
        answers: list[Answer] = []
        for at in range(50):
            resolver.lookup(Name(f"n{at}.example.com"), answers.append)
        cancel = [resolver.lookup(Name(f"c{at}.example.com"), answers.append) for at in range(50)]
        for each in cancel:
            each()
        run(loop, answers, 50)
        resolver.lookup(APP, answers.append)
        resolver.stop()
        quick = Resolver(loop, [good.server], QUICK)
        quick.lookup(APP, answers.append)
        run(loop, answers, 51)
        assert set(os.listdir("/proc/self/fd")) == before
        loop.close()


def test_more_names_at_once_than_allowed_are_refused_and_say_so() -> None:
    with DnsPeer(lambda *_: []) as peer:
        loop = Loop()
        resolver = Resolver(loop, [peer.server], Limits(resolve_s=0.2))
        answers: list[Answer] = []
        for at in range(520):
            resolver.lookup(Name(f"n{at}.example.com"), answers.append)
        assert len(answers) == 8
        assert "512 names" in answers[0].detail
        assert answers[0].failed is Reason.LIMIT_REACHED
        run(loop, answers, 520)
        resolver.stop()
        loop.close()


def test_a_waiter_that_raises_keeps_the_answer_from_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    with DnsPeer(zone(GOOD)) as peer:
        loop = Loop()
        resolver = Resolver(loop, [peer.server], QUICK)
        answers: list[Answer] = []

        def bug(_: Answer) -> None:
            raise RuntimeError("a waiter's bug")

        resolver.lookup(APP, bug)
        resolver.lookup(APP, answers.append)
        run(loop, answers, 1)
        resolver.stop()
        loop.close()
    assert "a waiter's bug" in capsys.readouterr().err


def test_getaddrinfo_is_called_by_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("getaddrinfo was called")

    monkeypatch.setattr(socket, "getaddrinfo", forbidden)
    with DnsPeer(zone(GOOD)) as peer:
        assert len(look(peer).addresses) == 2


def test_no_server_listens() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", 0))
        answer = resolve_now(APP, [held.getsockname()], Limits(resolve_s=0.5))
        assert answer.failed is Reason.DNS_TIMEOUT


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("192.0.2.1", ("192.0.2.1", 53)), ("192.0.2.1:5353", ("192.0.2.1", 5353)), ("[2001:db8::1]:53", ("2001:db8::1", 53)),
        ("2001:db8::1", ("2001:db8::1", 53)),
        ("dns.example.com:53", None), ("192.0.2.1:0", None), ("192.0.2.1:x", None), ("", None), ("127.1:53", None),
    ],
)  # fmt: skip
def test_read_server(text: str, server: tuple[str, int] | None) -> None:
    if server is None:
        with pytest.raises(Broken):
            read_server(text)
    else:
        assert read_server(text) == server


def test_system_servers(tmp_path: os.PathLike[str]) -> None:
    file = os.path.join(tmp_path, "resolv.conf")
    with open(file, "w") as out:
        out.write("# x\nsearch corp.example.com\nnameserver fe80::1%eth0\nnameserver 192.0.2.1\nnameserver ::1\noptions x\n")
    assert system_servers(file) == (("192.0.2.1", 53), ("::1", 53))
    with open(file, "w") as out:
        out.write("search x\n")
    for bad in (file, file + ".none"):
        with pytest.raises(Broken, match="--resolver"):
            system_servers(bad)


@pytest.mark.parametrize("target", ["localhost.", "metadata.google.internal.", "db.svc.cluster.local."])
def test_an_alias_to_a_special_name_is_not_asked_for_and_refused_as_one(target: str) -> None:
    def script(query: dns.message.Message, _wire: bytes, _transport: str) -> list[bytes]:
        return [reply(query, f"app.example.com. 60 IN CNAME {target}").to_wire()]

    with DnsPeer(script) as peer:
        answer = look(peer)
    assert {name for name, _, _ in peer.asked} == {"app.example.com."}
    policy = combine([parse('version = 1\n[[grant]]\nhosts = ["app.example.com"]\n', "p.toml")])
    verdict, pin = admit(policy, Destination(APP, 443), answer, 0.0)
    assert (verdict.reason, pin) == (Reason.NAME_SPECIAL, None)
