"""The gate's order: judged before resolved, admitted before dialled, recorded before promised; and every way it fails closed."""

import socket
from ipaddress import ip_address

import pytest

from policy.answer import Answer
from policy.destination import Destination, read_authority
from policy.document import parse
from policy.errors import Broken
from policy.host import Name
from policy.layers import combine
from policy.verdict import Reason, Verdict
from proxy.crash import Crashes
from proxy.dial import Dialled
from proxy.gate import Gate
from proxy.loop import Loop
from proxy.session import Session
from tests.proxy.peers import descriptors

POLICY = """
version = 1
[[grant]]
name = "example"
hosts = ["example.com", "two.example.com"]
ports = [443, 22]
[[grant]]
name = "one address"
addresses = ["93.184.215.14/32"]
[limits]
connections_count = 3
"""
NARROWER = POLICY.replace('"example.com", ', "")
PUBLIC, OTHER, PRIVATE = "93.184.215.14", "93.184.215.15", "10.0.0.5"


def policy(text: str = POLICY):
    return combine([parse(text, "test.toml")])


class Answers:
    """A resolver that holds each question until it is told the answer."""

    def __init__(self) -> None:
        self.asked: list[Name] = []
        self.waiting = []
        self.cancelled = 0
        self.at_once: Answer | None = None

    def lookup(self, name, done):
        self.asked.append(name)
        if self.at_once is not None:
            done(self.at_once)
        else:
            self.waiting.append(done)

        def cancel() -> None:
            self.cancelled += 1

        return cancel

    def answer(self, *addresses: str, **rest) -> None:
        self.waiting.pop(0)(Answer(self.asked[-1], tuple(map(ip_address, addresses)), **rest))


class Dials:
    """Dialling that is told how it ended; the sockets are one end of a pair."""

    def __init__(self) -> None:
        self.pins = []
        self.waiting = []
        self.cancelled = 0
        self.far = []

    def __call__(self, loop, pin, connect_s, done):
        self.pins.append(pin)
        self.waiting.append((pin, done))

        def cancel() -> None:
            self.cancelled += 1

        return cancel

    def connect(self) -> None:
        pin, done = self.waiting.pop(0)
        near, far = socket.socketpair()
        self.far.append(far)
        done(Dialled(near, Destination(pin.addresses[0], pin.port), Reason.GRANTED, ""))

    def fail(self, reason: Reason) -> None:
        self.waiting.pop(0)[1](Dialled(None, None, reason, "as told"))


class Lines:
    """A journal in a list; full when told."""

    def __init__(self) -> None:
        self.lines = []
        self.fault: Exception | None = None

    def write(self, entry) -> None:
        if self.fault:
            raise self.fault
        self.lines.append(entry)


class Rig:
    def __init__(self) -> None:
        self.printed = []
        self.loop = Loop(crashes=Crashes(self.printed.append))
        self.resolver, self.dials, self.journal = Answers(), Dials(), Lines()
        self.gate = Gate(self.loop, self.resolver, self.journal, dials=self.dials, clock=lambda: 1_800_000_000.0)
        self.session = Session("s1", policy())
        self.opened = []

    def open(self, target: str, done=None, **more):
        destination = read_authority(target)
        return self.gate.open(self.session, destination, "connect", done or self.opened.append, **more)

    @property
    def outcome(self):
        [opened] = self.opened
        return opened

    def reasons(self):
        return [line["reason"] for line in self.journal.lines]


@pytest.fixture
def rig():
    before = descriptors()
    made = Rig()
    yield made
    made.loop.close()
    for sock in made.dials.far:
        sock.close()
    for opened in made.opened:
        if opened.upstream:
            opened.upstream.close()
    assert descriptors() <= before


def test_a_granted_name_is_judged_resolved_admitted_dialled_and_recorded(rig):
    rig.open("example.com:443")
    assert rig.resolver.asked == ["example.com"] and rig.journal.lines == []
    rig.resolver.answer(PUBLIC, OTHER)
    [pin] = rig.dials.pins
    assert [str(address) for address in pin.addresses] == [PUBLIC, OTHER]
    assert rig.journal.lines == [] and rig.opened == []
    rig.dials.connect()
    assert rig.outcome.verdict.allowed and rig.outcome.upstream is not None
    [line] = rig.journal.lines
    assert (line["verdict"], line["grant"], line["peer"]) == ("allow", "example", f"{PUBLIC}:443")
    assert (line["id"], line["pin"]) == (rig.outcome.record_id, [PUBLIC, OTHER])


def test_a_name_no_grant_speaks_for_never_reaches_dns(rig):
    rig.open("evil.example.net:443")
    rig.open("example.com:8080")
    assert rig.resolver.asked == [] and rig.dials.pins == []
    assert [opened.verdict.reason for opened in rig.opened] == [Reason.NOT_GRANTED, Reason.PORT_NOT_GRANTED]
    assert rig.reasons() == ["not-granted", "port-not-granted"]


def test_a_literal_is_never_resolved(rig):
    rig.open(f"{PUBLIC}:443")
    rig.open("127.0.0.1:443")
    assert rig.resolver.asked == []
    rig.dials.connect()
    assert sorted(opened.verdict.reason for opened in rig.opened) == [Reason.ADDRESS_LOOPBACK, Reason.GRANTED]


@pytest.mark.parametrize(
    ("addresses", "reason"),
    [
        ([PRIVATE], Reason.ADDRESS_PRIVATE),
        ([PUBLIC, "127.0.0.1"], Reason.ADDRESS_LOOPBACK),
        ([], Reason.DNS_FAILED),
    ],
)
def test_what_is_not_admitted_is_not_dialled(rig, addresses, reason):
    rig.open("example.com:443")
    rig.resolver.answer(*addresses)
    assert rig.dials.pins == [] and rig.outcome.upstream is None
    assert rig.outcome.verdict.reason is reason
    assert rig.reasons() == [reason]


def test_the_resolvers_failure_is_the_reason(rig):
    rig.open("example.com:443")
    rig.resolver.answer(failed=Reason.DNS_TIMEOUT, detail="no server answered")
    assert rig.outcome.verdict.reason is Reason.DNS_TIMEOUT


@pytest.mark.parametrize("reason", [Reason.CONNECT_REFUSED, Reason.CONNECT_TIMEOUT, Reason.CONNECT_UNREACHABLE])
def test_a_failed_dial_is_recorded_with_its_reason(rig, reason):
    rig.open("example.com:443")
    rig.resolver.answer(PUBLIC)
    rig.dials.fail(reason)
    assert (rig.outcome.verdict.allowed, rig.outcome.verdict.reason, rig.outcome.upstream) == (
        False,
        reason,
        None,
    )
    assert rig.reasons() == [reason]


def test_done_may_be_called_before_open_returns(rig):
    rig.resolver.at_once = Answer(Name("example.com"), (ip_address(PRIVATE),))
    cancel = rig.open("example.com:443")
    assert rig.outcome.verdict.reason is Reason.ADDRESS_PRIVATE
    cancel()
    assert rig.resolver.cancelled == 0 and len(rig.journal.lines) == 1


def test_a_full_journal_refuses_and_closes_the_upstream(rig):
    rig.journal.fault = Broken("No space left on device")
    rig.open(f"{PUBLIC}:443")
    rig.dials.connect()
    assert rig.outcome.upstream is None
    assert rig.outcome.verdict.reason is Reason.LIMIT_REACHED
    assert "No space left" in rig.outcome.verdict.detail
    assert rig.dials.far[0].recv(1) == b""


def test_a_full_journal_leaves_a_refusal_its_reason(rig):
    rig.journal.fault = Broken("No space left on device")
    rig.open("evil.example.net:443")
    assert rig.outcome.verdict.reason is Reason.NOT_GRANTED
    assert rig.outcome.record_id == "unrecorded"


def test_a_full_journal_is_told_on_standard_error_and_not_for_each_record(rig, capsys):
    rig.journal.fault = Broken("No space left on device")
    for _ in range(3):
        rig.open("evil.example.net:443")
    assert capsys.readouterr().err.count("No space left on device") == 1


def test_a_journal_with_a_bug_refuses_too(rig):
    rig.journal.fault = ZeroDivisionError()
    rig.open(f"{PUBLIC}:443")
    rig.dials.connect()
    assert rig.outcome.upstream is None and rig.outcome.verdict.reason is Reason.INTERNAL_ERROR
    assert rig.printed


@pytest.mark.parametrize("place", ["lookup", "dials", "clock"])
def test_every_hook_that_raises_is_an_internal_error(rig, place):
    def bug(*_args, **_more):
        raise ZeroDivisionError

    if place == "lookup":
        rig.resolver.lookup = bug
    elif place == "dials":
        rig.gate.dials = bug
    else:
        real, calls = rig.gate.clock, []
        rig.gate.clock = lambda: bug() if not calls.append(1) and len(calls) == 1 else real()
    rig.open("example.com:443" if place == "lookup" else f"{PUBLIC}:443")
    assert rig.outcome.verdict.reason is Reason.INTERNAL_ERROR and not rig.outcome.verdict.allowed
    assert rig.reasons() == ["internal-error"]
    assert "ZeroDivisionError" in rig.printed[0]


def test_a_policy_that_changed_while_dns_was_asked_holds(rig):
    rig.open("example.com:443")
    rig.session.adopt(policy(NARROWER))
    rig.resolver.answer(PUBLIC)
    assert rig.dials.pins == [] and rig.outcome.verdict.reason is Reason.NOT_GRANTED


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda session: session.adopt(policy(NARROWER)), Reason.NOT_GRANTED),
        (
            lambda session: session.adopt(session.policy.with_own(frozenset({ip_address(PUBLIC)}))),
            Reason.ADDRESS_OWN,
        ),
        (lambda session: session.revoke(), Reason.SESSION_REVOKED),
    ],
)
def test_a_change_while_dialling_holds(rig, change, reason):
    rig.open("example.com:443")
    rig.resolver.answer(PUBLIC)
    change(rig.session)
    rig.dials.connect()
    assert rig.outcome.upstream is None and rig.outcome.verdict.reason is reason
    assert rig.dials.far[0].recv(1) == b""


def test_a_revoked_session_is_refused_before_dns(rig):
    rig.session.revoke()
    rig.open("example.com:443")
    assert rig.outcome.verdict.reason is Reason.SESSION_REVOKED
    assert rig.resolver.asked == []


def test_cancelling_stops_the_step_under_way_and_records_what_was_decided(rig):
    cancel = rig.open("example.com:443")
    cancel()
    cancel()
    assert rig.resolver.cancelled == 1 and rig.opened == []
    assert [(line["reason"], line["peer"]) for line in rig.journal.lines] == [("granted", None)]
    cancel = rig.open(f"{PUBLIC}:443")
    cancel()
    assert rig.dials.cancelled == 1 and len(rig.journal.lines) == 2
    rig.dials.connect()  # too late: its socket is closed
    assert rig.opened == [] and rig.dials.far[0].recv(1) == b""


def test_done_that_raises_closes_the_socket(rig):
    def bug(_opened):
        raise ZeroDivisionError

    rig.open(f"{PUBLIC}:443", bug)
    rig.dials.connect()
    assert rig.dials.far[0].recv(1) == b"" and rig.printed


def test_the_next_request_is_judged_and_recorded_without_dialling(rig):
    verdict, record_id = rig.gate.judge(rig.session, read_authority("evil.example.net:80"), "http", method="GET", path="/")
    assert verdict.reason is Reason.NOT_GRANTED and rig.journal.lines[0]["id"] == record_id
    assert (rig.journal.lines[0]["method"], rig.journal.lines[0]["path"]) == ("GET", "/")
    rig.journal.fault = Broken("full")
    verdict, _ = rig.gate.judge(rig.session, read_authority("example.com:443"), "http")
    assert verdict.reason is Reason.LIMIT_REACHED


def test_a_refusal_found_elsewhere_is_recorded(rig):
    record_id = rig.gate.refuse(rig.session, None, "socks5", Verdict(False, Reason.HOST_INVALID, detail="NUL"))
    [line] = rig.journal.lines
    assert (line["id"], line["reason"], line["destination"]) == (record_id, "host-invalid", None)
    assert line["revision"] == rig.session.policy.revision


def test_record_ids_are_unique(rig):
    for _ in range(100):
        rig.open("evil.example.net:443")
    assert len({line["id"] for line in rig.journal.lines}) == 100


def test_still_judges_an_open_connection_by_its_peer(rig):
    rig.open("example.com:443")
    rig.resolver.answer(PUBLIC)
    rig.dials.connect()
    opened = rig.outcome
    assert rig.gate.still(rig.session, opened).allowed
    rig.session.policy = rig.session.policy.with_own(frozenset({ip_address(PUBLIC)}))
    assert rig.gate.still(rig.session, opened).reason is Reason.ADDRESS_OWN
    rig.session.policy = policy(NARROWER)
    assert rig.gate.still(rig.session, opened).reason is Reason.NOT_GRANTED


def test_the_end_is_recorded_under_the_verdicts_id(rig):
    rig.open(f"{PUBLIC}:443")
    rig.dials.connect()
    rig.gate.end(rig.outcome, rig.session, sent_bytes=3, received_bytes=5, duration_s=1.5, closed_by="client")
    verdict, end = rig.journal.lines
    assert (end["id"], end["event"], end["peer"]) == (verdict["id"], "end", f"{PUBLIC}:443")
    assert (end["sent_bytes"], end["received_bytes"], end["closed_by"]) == (3, 5, "client")
    rig.journal.fault = Broken("full")
    rig.gate.end(rig.outcome, rig.session, sent_bytes=0, received_bytes=0, duration_s=0, closed_by="client")
