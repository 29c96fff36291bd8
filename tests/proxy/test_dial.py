"""Dialling a pin over loopback: the order, the stagger, the deadline, the peer, and no descriptor left."""

import os
import socket
import time
from ipaddress import ip_address

import pytest

from policy.answer import Pin
from policy.destination import Destination
from policy.host import Name
from policy.verdict import Reason
from proxy.dial import dial, interleave
from proxy.loop import Loop

HOST = Name("origin.example.com")


def addresses(*texts: str):
    return tuple(ip_address(text) for text in texts)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def loop():
    made = Loop()
    yield made
    made.close()


def wait(loop: Loop, outcome: list, most_s: float = 5.0) -> None:
    until_s = time.monotonic() + most_s
    while not outcome and time.monotonic() < until_s:
        loop.turn(0.05)


def listening(address: str, port: int = 0) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, port))
    sock.listen()
    return sock


@pytest.mark.parametrize(
    ("given", "order"),
    [
        (["192.0.2.1"], ["192.0.2.1"]),
        (["192.0.2.1", "192.0.2.2"], ["192.0.2.1", "192.0.2.2"]),
        (["192.0.2.1", "2001:db8::1"], ["2001:db8::1", "192.0.2.1"]),
        (
            ["192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1"],
            ["2001:db8::1", "192.0.2.1", "192.0.2.2", "192.0.2.3"],
        ),
        (["2001:db8::2", "2001:db8::1", "192.0.2.1"], ["2001:db8::2", "192.0.2.1", "2001:db8::1"]),
    ],
)
def test_families_alternate_and_ipv6_is_first(given, order):
    assert interleave(addresses(*given)) == list(addresses(*order))


def test_the_peer_is_read_back_from_the_socket(loop):
    server = listening("127.0.0.7")
    port = server.getsockname()[1]
    outcome = []
    dial(loop, Pin(HOST, addresses("127.0.0.7"), port), 5, outcome.append)
    wait(loop, outcome)
    [dialled] = outcome
    assert dialled.peer == Destination(ip_address("127.0.0.7"), port)
    assert dialled.reason is Reason.GRANTED
    assert dialled.upstream.getpeername() == ("127.0.0.7", port)
    assert not dialled.upstream.getblocking()
    assert dialled.upstream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    dialled.upstream.close()
    server.close()


def test_ipv6_is_dialled_and_read_back(loop):
    server = socket.socket(socket.AF_INET6)
    server.bind(("::1", 0))
    server.listen()
    port = server.getsockname()[1]
    outcome = []
    dial(loop, Pin(HOST, addresses("127.0.0.7", "::1"), port), 5, outcome.append)
    wait(loop, outcome)
    assert str(outcome[0].peer) == f"[::1]:{port}"
    outcome[0].upstream.close()
    server.close()


def test_a_dead_address_costs_nothing_when_the_next_answers(loop):
    server = listening("127.0.0.8")
    port = server.getsockname()[1]
    before, outcome = descriptors(), []
    started_s = time.monotonic()
    dial(loop, Pin(HOST, addresses("127.0.0.7", "127.0.0.8"), port), 5, outcome.append)
    wait(loop, outcome)
    assert outcome[0].peer.host == ip_address("127.0.0.8")
    assert time.monotonic() - started_s < 0.2
    outcome[0].upstream.close()
    assert descriptors() <= before
    server.close()


def blackhole() -> tuple[socket.socket, list[socket.socket]]:
    """A listener whose queue is full: a connect to it gets no answer."""
    server = socket.socket()
    server.bind(("127.0.0.9", 0))
    server.listen(0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(server.getsockname())
        fillers.append(filler)
    time.sleep(0.05)
    return server, fillers


def test_a_silent_address_is_overtaken_after_the_stagger(loop):
    silent, fillers = blackhole()
    port = silent.getsockname()[1]
    server = listening("127.0.0.10", port)
    before, outcome = descriptors(), []
    started_s = time.monotonic()
    dial(loop, Pin(HOST, addresses("127.0.0.9", "127.0.0.10"), port), 5, outcome.append)
    wait(loop, outcome)
    took_s = time.monotonic() - started_s
    assert outcome[0].peer.host == ip_address("127.0.0.10")
    assert 0.2 < took_s < 1
    outcome[0].upstream.close()
    assert descriptors() <= before
    for sock in (silent, server, *fillers):
        sock.close()


def test_one_deadline_bounds_all_addresses(loop):
    silent, fillers = blackhole()
    port = silent.getsockname()[1]
    before, outcome = descriptors(), []
    dial(loop, Pin(HOST, addresses("127.0.0.9", "127.0.0.11"), port), 0.6, outcome.append)
    wait(loop, outcome)
    assert outcome[0].upstream is None
    assert outcome[0].reason is Reason.CONNECT_TIMEOUT
    assert "127.0.0.9" in outcome[0].detail and "Connection refused" in outcome[0].detail
    assert descriptors() <= before
    for sock in (silent, *fillers):
        sock.close()


def test_all_refused(loop):
    gone = listening("127.0.0.7")
    port = gone.getsockname()[1]
    gone.close()
    before, outcome = descriptors(), []
    dial(loop, Pin(HOST, addresses("127.0.0.7", "127.0.0.8"), port), 5, outcome.append)
    wait(loop, outcome)
    assert outcome[0].reason is Reason.CONNECT_REFUSED
    assert outcome[0].detail == (f"127.0.0.7:{port}: Connection refused; 127.0.0.8:{port}: Connection refused")
    assert descriptors() <= before


def test_an_empty_pin_dials_nothing(loop):
    outcome = []
    dial(loop, Pin(HOST, (), 443), 5, outcome.append)
    assert outcome[0].reason is Reason.CONNECT_UNREACHABLE


def test_cancelling_leaves_nothing(loop):
    silent, fillers = blackhole()
    before, outcome = descriptors(), []
    cancel = dial(loop, Pin(HOST, addresses("127.0.0.9", "127.0.0.11"), silent.getsockname()[1]), 5, outcome.append)
    loop.turn(0.01)
    cancel()
    cancel()
    assert descriptors() <= before
    loop.turn(0.4)
    assert outcome == []
    for sock in (silent, *fillers):
        sock.close()


def test_done_that_raises_ends_this_dial_only(loop, capsys):
    server = listening("127.0.0.7")
    called = []

    def done(dialled):
        called.append(dialled)
        raise ZeroDivisionError

    dial(loop, Pin(HOST, addresses("127.0.0.7"), server.getsockname()[1]), 5, done)
    wait(loop, called)
    loop.turn(0.05)
    assert len(called) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    called[0].upstream.close()
    server.close()
