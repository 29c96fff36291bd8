"""The tunnel over real sockets: every byte, both half-closes, resets, stalls, and the first words judged before any is sent on."""

import hashlib
import os
import select
import socket
import struct
import time

import pytest

from policy.destination import Destination
from policy.host import Name
from policy.limits import COPY_BYTES, Limits
from policy.verdict import Reason
from proxy.linger import Linger, unsent_bytes
from proxy.loop import Loop
from proxy.tunnel import Tunnel
from tests.proxy.peers import (
    Talk,
    client_hello,
    closed,
    descriptors,
    pair,
    read_all,
    read_exactly,
    turn_until,
)

NAME = Name("example.com")
HELLO = client_hello("example.com")
SIZES = [0, 1, 1000, 65_536, 65_537, 1_000_000, 30_000_000]


class Lane:
    """One tunnel between two far ends."""

    def __init__(self, loop: Loop, port: int = 22, limits: Limits | None = None, first: bytes = b"") -> None:
        self.loop = loop
        self.client, near_client = pair()
        self.origin, near_origin = pair()
        self.near = (near_client, near_origin)
        self.ended = []
        self.released = []
        buffer = memoryview(bytearray(COPY_BYTES))
        self.tunnel = Tunnel(
            loop,
            near_client,
            near_origin,
            Destination(NAME, port),
            limits or Limits(),
            buffer,
            self.ended.append,
            lambda: self.released.append(1),
        )
        self.tunnel.start(first)

    def until_ended(self, most_s: float = 20.0):
        turn_until(self.loop, lambda: self.ended, most_s)
        return self.ended[0]

    def close(self) -> None:
        for sock in (self.client, self.origin, *self.near):
            sock.close()


@pytest.fixture
def loop():
    made = Loop()
    yield made
    made.close()


def payload(size: int) -> bytes:
    return b"-" + os.urandom(min(size, 1_000_003)) * (size // 1_000_003 + 1)  # never 0x16: that would be TLS


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("direction", ["up", "down", "answer after the client's end", "both at once"])
def test_half_close_delivers_every_byte(loop, direction, size):
    data = payload(size)[:size]
    lane = Lane(loop)
    down = b"" if direction == "up" else data
    up = b"" if direction == "down" else data

    def ask() -> bytes:
        lane.client.sendall(up)
        lane.client.shutdown(socket.SHUT_WR)
        return read_all(lane.client)

    def answer() -> bytes:
        if direction == "both at once":
            writing = Talk(lambda: (lane.origin.sendall(down), lane.origin.shutdown(socket.SHUT_WR)))
            got = read_all(lane.origin)
            writing.join(20)
            return got
        if direction == "down":
            lane.origin.sendall(down)
            lane.origin.shutdown(socket.SHUT_WR)
            return read_all(lane.origin)
        got = read_all(lane.origin)
        lane.origin.sendall(down)
        lane.origin.close()
        return got

    asking, answering = Talk(ask), Talk(answer)
    turn_until(loop, lambda: not asking.is_alive() and not answering.is_alive() and lane.ended)
    assert not isinstance(answering.result, Exception), (answering.result, asking.result, lane.ended)
    assert not isinstance(asking.result, Exception), (answering.result, asking.result, lane.ended)
    assert hashlib.sha256(answering.result).digest() == hashlib.sha256(up).digest()
    assert hashlib.sha256(asking.result).digest() == hashlib.sha256(down).digest()
    ended = lane.ended[0]
    assert (ended.sent_bytes, ended.received_bytes) == (len(up), len(down))
    lane.close()


def test_an_upstream_that_closes_at_once_loses_no_tail(loop):
    """Even with the client's bytes unread in its queue, which turns its close into a reset."""
    for unread, size in (
        (b"", 200_000),
        (b"unread request", 20_000),
    ):  # the kernel drops what a reset overtakes
        lane = Lane(loop)
        lane.client.sendall(unread)
        if unread:
            turn_until(loop, lambda: peek(lane.origin))  # noqa: B023
        lane.origin.sendall(b"t" * size)
        lane.origin.close()
        got = Talk(lambda: read_exactly(lane.client, size))  # noqa: B023
        turn_until(loop, lambda: not got.is_alive())  # noqa: B023
        assert got.result == b"t" * size
        lane.client.close()
        lane.until_ended()
        lane.close()


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@pytest.mark.parametrize("who", ["client", "origin"])
def test_a_reset_is_passed_on_as_a_reset(loop, who):
    before = descriptors()
    lane = Lane(loop)
    one, other = (lane.client, lane.origin) if who == "client" else (lane.origin, lane.client)
    one.sendall(b"some of it")
    turn_until(loop, lambda: peek(other) == b"some of it")
    reset(one)
    ended = lane.until_ended()
    assert ended.closed_by == ("client" if who == "client" else "upstream")
    assert other.recv(100) == b"some of it"
    assert closed(other) == "reset"
    lane.close()
    assert descriptors() <= before


def test_a_reset_waits_for_what_was_sent_before_it(loop):
    """The client's window is shut and ours holds the rest: the reset must not overtake it."""
    lane = Lane(loop)
    lane.client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lane.near[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    lane.origin.sendall(b"x" * 150_000)
    turn_until(loop, lambda: unsent_bytes(lane.origin) == 0)
    reset(lane.origin)
    for _ in range(5):
        loop.turn(0.01)
    assert not lane.ended
    got = Talk(lambda: read_exactly(lane.client, 150_000))
    turn_until(loop, lambda: not got.is_alive())
    assert got.result == b"x" * 150_000
    lane.until_ended()
    turn_until(loop, lambda: closed(lane.client) == "reset")
    lane.close()


def test_a_stalled_client_holds_a_bounded_amount_and_its_tunnel_still_carries_the_other_way(loop):
    lane = Lane(loop)
    lane.origin.setblocking(False)
    accepted = 0
    for _ in range(600):
        try:
            accepted += lane.origin.send(b"z" * 65_536)
        except BlockingIOError:
            loop.turn(0.001)
            continue
        loop.turn(0)
    assert accepted < 24_000_000  # the kernel's buffers of two connections, and COPY_BYTES of ours
    lane.client.sendall(b"upwards")
    turn_until(loop, lambda: peek(lane.origin) == b"upwards")
    busy = time.process_time()
    for _ in range(20):
        loop.turn(0.02)
    assert time.process_time() - busy < 0.2  # nothing spins
    lane.close()


def peek(sock: socket.socket) -> bytes:
    return sock.recv(100, socket.MSG_PEEK) if readable(sock) else b""


def test_an_upstream_reset_while_the_client_stalls_does_not_spin(loop):
    lane = Lane(loop)
    lane.origin.setblocking(False)
    for _ in range(400):
        peek_send(lane.origin, b"z" * 65_536)
        loop.turn(0)
    reset(lane.origin)
    loop.turn(0.01)
    started_s, busy_s = time.monotonic(), time.process_time()
    while time.monotonic() - started_s < 0.5:
        loop.turn(0.1)
    assert time.process_time() - busy_s < 0.2
    lane.close()


def peek_send(sock: socket.socket, data: bytes) -> None:
    try:
        sock.send(data)
    except BlockingIOError:
        pass


# --- the first words


@pytest.mark.parametrize("glued", [True, False])
def test_the_hello_goes_on_unchanged_and_only_when_whole(loop, glued):
    lane = Lane(loop, 443, first=HELLO[:50] if glued else b"")
    if not glued:
        lane.client.sendall(HELLO[:50])
    for _ in range(5):
        loop.turn(0.01)
    lane.origin.settimeout(0.05)
    with pytest.raises(TimeoutError):
        lane.origin.recv(1)
    lane.client.sendall(HELLO[50:] + b"tail")
    lane.origin.settimeout(20)
    got = Talk(lambda: read_exactly(lane.origin, len(HELLO) + 4))
    turn_until(loop, lambda: not got.is_alive())
    assert got.result == HELLO + b"tail"
    lane.tunnel.cut("test")
    assert lane.ended[0].closed_by == "test"
    lane.close()


def readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


@pytest.mark.parametrize(
    ("first", "port", "reason", "alert"),
    [
        (client_hello("evil.example.net"), 443, Reason.SNI_MISMATCH, b"\x15\x03\x03\x00\x02\x02\x70"),
        (client_hello("evil.example.net"), 8443, Reason.SNI_MISMATCH, b"\x15\x03\x03\x00\x02\x02\x70"),
        (client_hello(None), 443, Reason.SNI_MISSING, b"\x15\x03\x03\x00\x02\x02\x6d"),
        (b"SSH-2.0-x\r\n", 443, Reason.NOT_TLS, b""),
    ],
)
def test_a_failed_claim_sends_nothing_on_and_tells_the_client(loop, first, port, reason, alert):
    before = descriptors()
    lane = Lane(loop, port)
    lane.client.sendall(first)
    ended = lane.until_ended()
    assert (ended.refused.reason, ended.closed_by, ended.sent_bytes) == (reason, reason.value, 0)
    assert lane.origin.recv(100) == b""
    said = Talk(lambda: read_all(lane.client))
    turn_until(loop, lambda: not said.is_alive())
    assert said.result == alert
    lane.client.close()
    for _ in range(3):
        loop.turn(0.01)
    lane.close()
    assert descriptors() <= before


@pytest.mark.parametrize("port", [22, 443, 80])
def test_a_server_that_speaks_first_is_heard_at_once(loop, port):
    lane = Lane(loop, port)
    lane.origin.sendall(b"SSH-2.0-server\r\n")
    turn_until(loop, lambda: readable(lane.client))
    assert lane.client.recv(100) == b"SSH-2.0-server\r\n"
    lane.close()


def test_http_on_port_80_is_handed_back_with_both_sockets_open(loop):
    lane = Lane(loop, 80)
    lane.client.sendall(b"GET / HTTP/1.1\r\n")
    ended = lane.until_ended()
    assert (ended.closed_by, ended.rest) == ("http", b"GET / HTTP/1.1\r\n")
    assert all(sock.fileno() >= 0 for sock in lane.near)
    lane.close()


def test_no_hello_in_time_is_refused_on_443_only(loop):
    limits = Limits(client_hello_s=0.2)
    owing, free = Lane(loop, 443, limits), Lane(loop, 22, limits)
    ended = owing.until_ended()
    assert ended.refused.reason is Reason.NOT_TLS
    for _ in range(10):
        loop.turn(0.03)
    assert not free.ended
    free.client.sendall(HELLO[:9])  # TLS begun on another port owes the rest of it
    assert free.until_ended().refused.reason is Reason.NOT_TLS
    owing.close()
    free.close()


def test_half_a_hello_and_the_end(loop):
    lane = Lane(loop, 443)
    lane.client.sendall(HELLO[:100])
    lane.client.shutdown(socket.SHUT_WR)
    assert lane.until_ended().refused.reason is Reason.NOT_TLS
    lane.close()


def test_last_words_reach_a_slow_client_whole(loop, monkeypatch):
    """Longer than LINGER_S in all, for what we hold and for what the kernel holds; never so long without progress."""
    monkeypatch.setattr("proxy.linger.LINGER_S", 0.3)
    client, near = pair()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    done = []
    words = payload(3_000_000)
    Linger(loop, near, words, lambda: done.append(1))
    started_s = time.monotonic()
    got = bytearray()
    while len(got) < len(words):
        loop.turn(0.01)
        got += client.recv(100_000)
        time.sleep(0.02)
    assert got == words and time.monotonic() - started_s > 0.6
    assert closed(client) == "eof"
    client.close()
    turn_until(loop, lambda: done)


def test_a_client_that_takes_nothing_more_is_cut(loop, monkeypatch):
    monkeypatch.setattr("proxy.linger.LINGER_S", 0.1)
    near, far = socket.socketpair()
    near.setblocking(False)
    done = []
    Linger(loop, near, b"w" * 10_000_000, lambda: done.append(1))
    turn_until(loop, lambda: done, 3)
    far.close()


# --- time


def test_idle_is_cut_with_a_reset_and_traffic_keeps_it(loop):
    lane = Lane(loop, limits=Limits(idle_s=0.4))
    for _ in range(4):
        time.sleep(0.15)
        lane.client.sendall(b"x")
        loop.turn(0.05)
        loop.turn(0)
        assert not lane.ended
    assert lane.until_ended().closed_by == "idle"
    assert closed(lane.client) == "reset"
    lane.close()


def test_after_one_end_of_data_silence_is_bounded_by_the_drain(loop):
    lane = Lane(loop, limits=Limits(drain_s=0.3))
    lane.client.shutdown(socket.SHUT_WR)
    assert lane.until_ended(3).closed_by == "drain"
    lane.close()


def test_a_cut_resets_both_and_leaves_no_descriptor(loop):
    before = descriptors()
    lane = Lane(loop)
    lane.tunnel.cut("policy-changed")
    lane.tunnel.cut("again")
    assert [ended.closed_by for ended in lane.ended] == ["policy-changed"]
    assert (closed(lane.client), closed(lane.origin)) == ("reset", "reset")
    lane.close()
    assert descriptors() <= before


def test_random_ends_at_random_moments_leave_nothing(loop):
    """PR-15: whatever either side does, the tunnel ends, says so once, and gives both descriptors back."""
    import random

    chance = random.Random(20261201)
    before = descriptors()
    for _ in range(150):
        lane = Lane(loop, chance.choice([22, 443, 80]), Limits(drain_s=0.1, client_hello_s=0.1, idle_s=0.15))
        sides = [lane.client, lane.origin]
        for _ in range(chance.randrange(5)):
            side = chance.choice(sides)
            act = chance.randrange(5)
            try:
                if act == 0:
                    reset(side)
                elif act == 1:
                    side.close()
                elif act == 2:
                    side.shutdown(socket.SHUT_WR)
                elif act == 3:
                    side.sendall(HELLO[: chance.randrange(1, len(HELLO))])
                else:
                    side.sendall(b"GET / HTTP/1.1\r\n" * chance.randrange(1, 500))
            except OSError:
                pass
            if chance.random() < 0.5:
                loop.turn(0)
        lane.until_ended(3)
        assert len(lane.ended) == 1
        if lane.ended[0].closed_by == "http":
            for sock in lane.near:
                sock.close()
        lane.client.close()
        lane.origin.close()
    turn_until(loop, lambda: loop.turn(0.01) or loop.timers_count == 0 or descriptors() <= before, 8)
    assert descriptors() <= before
