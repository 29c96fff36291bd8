"""Many clients at once: stalled ones stop nobody, limits are said, and running out of descriptors is loud and passes."""

import gc
import random
import resource
import socket
import struct
import time
from collections import Counter

from policy.limits import KEEPALIVE_IDLE_S
from tests.proxy.peers import client_hello, closed, descriptors, read_all, read_exactly
from tests.proxy.rig import CONNECT_OK, SOCKS_OK, Origin, Rig, connect_request, policy, socks_request

TUNNEL = connect_request("example.com:22")


def serves(rig: Rig, origin: Origin) -> float:
    """Open one tunnel and push a byte each way; how long that took, in seconds."""
    started_s = time.monotonic()
    with rig.client() as client:
        client.sendall(TUNNEL)
        upstream = origin.accept()
        assert read_exactly(client, len(CONNECT_OK)) == CONNECT_OK
        client.sendall(b"a")
        assert upstream.recv(1) == b"a"
        upstream.sendall(b"b")
        assert client.recv(1) == b"b"
        upstream.close()
    return time.monotonic() - started_s


def lowest_free() -> int:
    with socket.socket() as probe:
        return probe.fileno()


def settle(before: int) -> None:
    until_s = time.monotonic() + 8
    while descriptors() > before and time.monotonic() < until_s:
        time.sleep(0.02)
    assert descriptors() <= before


def test_500_stalled_clients_leave_others_served():
    before = descriptors()
    with Rig(policy(greeting_s=1)) as rig:
        origin = Origin(rig)
        stalled = [rig.client() for _ in range(500)]
        for at, client in enumerate(stalled):
            client.sendall((b"", b"\x05", b"CONN", b"GET http://example.com/ HTTP/1.1\r\nA: b")[at % 4])
        assert serves(rig, origin) < 1
        rig.until(lambda: not rig.front.flows, 9)  # a second of greeting, and LINGER_S for what was refused
        assert serves(rig, origin) < 1
        for client in stalled:
            client.close()
        origin.close()
    settle(before)


def test_1000_idle_tunnels():
    before = descriptors()
    with Rig() as rig:
        origin = Origin(rig)
        pairs = []
        for _ in range(1000):
            client = rig.client()
            client.sendall(TUNNEL)
            pairs.append((client, origin.accept()))
        for client, _ in pairs:
            assert read_exactly(client, len(CONNECT_OK)) == CONNECT_OK
        assert rig.session.clients_count == 1000
        for client, upstream in pairs[::97]:
            client.sendall(b"x")
            assert upstream.recv(1) == b"x"
        for client, upstream in pairs:
            client.close()
            upstream.close()
        rig.until(lambda: not rig.front.flows)
        assert rig.session.clients_count == 0
        assert len(rig.journal.ends()) == 1000
        assert rig.loop.timers_count < 200
        origin.close()
    settle(before)


def test_one_session_has_only_so_many_connections():
    with Rig(policy(connections_count=3)) as rig:
        origin = Origin(rig)
        open_now = []
        for _ in range(3):
            client = rig.client()
            client.sendall(TUNNEL)
            origin.accept()
            read_exactly(client, len(CONNECT_OK))
            open_now.append(client)
        with rig.client() as client:
            client.sendall(TUNNEL)
            assert read_all(client).startswith(b"HTTP/1.1 503 ")
        with rig.client() as client:
            client.sendall(b"\x05\x01\x00" + socks_request("example.com", 22))
            assert read_all(client)[2:4] == b"\x05\x01"
        open_now += [rig.client(), rig.client()]
        rig.until(lambda: rig.session.clients_count == 5)
        open_now[0].sendall(b"x")
        assert origin.accepted[0].recv(1) == b"x"  # those within the limit do not notice
        for client in open_now[3:]:
            client.close()
        rig.until(lambda: rig.session.clients_count == 3)
        origin.accepted[0].close()
        open_now.pop(0).close()
        rig.until(lambda: rig.session.clients_count == 2)
        assert serves(rig, origin) < 1
        for client in open_now:
            client.close()
        origin.close()
        assert rig.journal.reasons().count("limit-reached") == 2


def test_clients_far_above_the_limit_are_reset_at_once(monkeypatch):
    monkeypatch.setattr("proxy.front.OVER_LIMIT_COUNT", 2)
    with Rig(policy(connections_count=3)) as rig:
        waiting = [rig.client() for _ in range(5)]
        rig.until(lambda: rig.session.clients_count == 5)
        with rig.client() as client:
            assert closed(client) == "reset"
        assert rig.journal.reasons() == ["limit-reached"]
        for client in waiting:
            client.close()


def test_out_of_descriptors_refuses_at_once_and_recovers(capsys):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Rig() as rig:
        origin = Origin(rig)
        clients = [socket.socket() for _ in range(30)]
        for client in clients:
            client.settimeout(5)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free() + 10, hard))
            for client in clients:
                client.connect(("127.0.0.1", rig.port))
            busy_s = time.process_time()
            rig.until(lambda: "limit-reached" in rig.journal.reasons())
            time.sleep(0.5)
            assert time.process_time() - busy_s < 0.4
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        ends = [closed(client) for client in clients]
        assert "reset" in ends
        for client in clients:
            client.close()
        assert serves(rig, origin) < 2
        origin.close()
    assert "No file descriptor is left" in capsys.readouterr().err


def test_clients_that_reset_at_any_phase_leave_nothing():
    """PR-15, with a fixed seed: no trace in the log, others unaffected, descriptors back to the baseline."""
    chance = random.Random(15)
    before = descriptors()
    scripts = [
        connect_request("example.com:443") + client_hello("example.com"),
        connect_request("example.com:22") + b"x" * 5000,
        b"\x05\x01\x00" + socks_request("example.com", 443) + client_hello("evil.example.net"),
        connect_request("evil.example.net:443") + b"y" * 3000,
        b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: 9000\r\n\r\n" + b"z" * 9000,
        connect_request("example.com:80") + b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
    ]
    with Rig(policy(greeting_s=1, drain_s=1, client_hello_s=1)) as rig:
        origin = Origin(rig)
        for _ in range(400):
            client = rig.client()
            script = chance.choice(scripts)
            client.sendall(script[: chance.randrange(len(script) + 1)])
            if chance.random() < 0.3:
                time.sleep(0.001)
            if chance.random() < 0.8:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        origin.listener.settimeout(0.05)
        try:
            while True:
                upstream = origin.accept()
                if chance.random() < 0.5:
                    upstream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                upstream.close()
        except TimeoutError:
            pass
        origin.listener.settimeout(5)
        rig.until(lambda: not rig.front.flows, 15)
        assert serves(rig, origin) < 1
        rig.until(lambda: not rig.front.flows)
        assert rig.session.clients_count == 0
        assert rig.printed == []
        origin.close()
    settle(before)


def test_accepted_sockets_inherit_what_finds_dead_peers():
    """tcp(7) says so of Linux; without it a client that lost its power would be kept until the idle limit."""
    with Rig() as rig:
        with rig.client():
            rig.until(lambda: rig.front.flows)
            [flow] = rig.front.flows
            accepted = flow._client
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE_IDLE_S


def test_random_bytes_from_many_clients_are_refused_or_dropped():
    """With a fixed seed: whatever is said, others are served and nothing raises."""
    chance = random.Random(7)
    before = descriptors()
    starts = [b"", b"\x05\x01\x00", b"\x05\x02\x00\x02", b"CONNECT ", b"GET http://", b"\x16\x03\x01", b"\x04\x01"]
    with Rig(policy(greeting_s=1)) as rig:
        origin = Origin(rig)
        for _ in range(300):
            with rig.client() as client:
                client.sendall(chance.choice(starts) + chance.randbytes(chance.randrange(300)))
                if chance.random() < 0.5:
                    client.shutdown(socket.SHUT_WR)
        assert serves(rig, origin) < 1
        rig.until(lambda: not rig.front.flows)
        assert rig.printed == [] and "granted" not in rig.journal.reasons()[:-1]
        origin.close()
    settle(before)


def test_draining_lets_tunnels_end_and_accepts_no_more():
    with Rig() as rig:
        origin = Origin(rig)
        drained = []
        with rig.client() as client, rig.client() as greeting:
            client.sendall(b"\x05\x01\x00" + socks_request("example.com", 22))
            upstream = origin.accept()
            assert read_exactly(client, len(SOCKS_OK)) == SOCKS_OK
            rig.until(lambda: len(rig.front.flows) == 2)
            rig.order(lambda: rig.front.drain(lambda: drained.append(1)))
            assert closed(greeting) == "reset"
            client.sendall(b"x")
            assert upstream.recv(1) == b"x"
            assert drained == []
            try:
                socket.create_connection(("127.0.0.1", rig.port)).close()
                raise AssertionError("it still accepts")
            except ConnectionRefusedError:
                pass
        upstream.close()
        rig.until(lambda: drained == [1])
        origin.close()


def test_a_tunnel_that_ended_leaves_nothing_for_the_garbage_collector():
    """Each connection's objects go by reference count, at once: memory stays flat at any rate."""
    with Rig() as rig:
        origin = Origin(rig)
        serves(rig, origin)
        rig.until(lambda: not rig.front.flows)
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                serves(rig, origin)
            rig.until(lambda: not rig.front.flows)
            time.sleep(0.05)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            ours = Counter(type(each).__name__ for each in gc.garbage if type(each).__module__.startswith("proxy."))
            assert ours == {}
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        origin.close()
