"""The worker's own part: policies and this machine's addresses swapped under it, and signals taken and given back."""

import os
import signal
import socket
import threading
from ipaddress import ip_address

import pytest

from policy.destination import read_authority
from policy.judge import judge
from policy.verdict import Reason
from proxy.front import Listener
from proxy.loop import Loop
from proxy.session import Session
from proxy.signals import Signals
from proxy.worker import Worker, serve
from tests.proxy.peers import descriptors
from tests.proxy.rig import GRANTS, PUBLIC, Lines, policy


@pytest.fixture
def session():
    return Session("s1", policy())


@pytest.fixture
def worker(session):
    before = descriptors()
    loop = Loop()
    made = Worker(loop, [Listener(listening(), session)], servers=[("192.0.2.53", 53)], journal=Lines())
    made.start()
    yield made
    made.close()
    made.close()
    loop.close()
    assert descriptors() <= before


def listening() -> socket.socket:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock


def reason(session: Session, target: str) -> Reason:
    return judge(session.policy, read_authority(target), 0.0).reason


def test_own_addresses_are_refused_and_stay_so_after_a_reload(worker, session):
    assert reason(session, f"{PUBLIC}:443") is Reason.GRANTED
    worker._own_changed(frozenset({ip_address(PUBLIC), ip_address("127.0.0.1")}))
    assert reason(session, f"{PUBLIC}:443") is Reason.ADDRESS_OWN
    assert reason(session, "127.0.0.1:443") is Reason.ADDRESS_LOOPBACK
    worker.adopt(policy(GRANTS + "# another revision\n"))
    assert reason(session, f"{PUBLIC}:443") is Reason.ADDRESS_OWN
    worker._own_changed(frozenset())
    assert reason(session, f"{PUBLIC}:443") is Reason.GRANTED


class Unjudgeable:
    """A live connection whose judging has a bug."""

    def __init__(self) -> None:
        self.failed = []

    def rejudge(self) -> None:
        raise ZeroDivisionError

    def fail(self, error: Exception) -> None:
        self.failed.append(error)


def test_a_connection_that_cannot_be_judged_again_is_cut_and_the_policy_holds(worker, session, capsys):
    live = [Unjudgeable(), Unjudgeable()]
    for each in live:
        session.keep(each)
    changed = policy(GRANTS + "# another revision\n", resolve_s=3)
    worker.adopt(changed)
    assert all(each.failed for each in live)
    assert session.policy.revision == changed.revision
    assert worker._resolver.limits.resolve_s == 3
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_every_session_gets_the_new_policy():
    loop = Loop()
    sessions = [Session("a", policy()), Session("b", policy())]
    worker = Worker(loop, [Listener(listening(), each) for each in sessions], servers=[("192.0.2.53", 53)], journal=Lines())
    worker.start()
    changed = policy(GRANTS + "# another revision\n")
    worker.adopt(changed)
    assert [each.policy.revision for each in sessions] == [changed.revision] * 2
    assert worker.revision == changed.revision
    worker.close()
    loop.close()


def test_signals_reach_the_loop_and_handlers_come_back():
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGHUP)}
    loop, caught = Loop(), []
    signals = Signals(loop, list(before), caught.append)
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGHUP)
    for _ in range(3):
        loop.turn(0.1)
    assert sorted(caught) == sorted(before)
    signals.close()
    assert {number: signal.getsignal(number) for number in before} == before
    loop.close()


def test_serve_ends_by_a_signal_and_leaves_no_descriptor():
    before = descriptors()
    started = []
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    serve(
        [Listener(listening(), Session("s1", policy()))],
        servers=[("192.0.2.53", 53)],
        journal=Lines(),
        started=lambda: (started.append(1), timer.start()),
    )
    assert started == [1]
    assert descriptors() <= before


def test_serve_stops_when_the_parent_is_another_one_already():
    serve(
        [Listener(listening(), Session("s1", policy()))],
        servers=[("192.0.2.53", 53)],
        journal=Lines(),
        parent_pid=os.getppid() + 1,
    )
