"""One client from accept to end, over real sockets: promises kept, refusals said in the client's protocol, nothing left behind."""

import socket
import struct
import time
from ipaddress import ip_address

import pytest

from policy.destination import Destination
from policy.verdict import Reason
from proxy.dial import Dialled
from tests.proxy.peers import client_hello, closed, descriptors, read_all, read_exactly
from tests.proxy.rig import (
    CONNECT_OK,
    GRANTS,
    PUBLIC,
    SOCKS_OK,
    Origin,
    Rig,
    connect_request,
    policy,
    socks_request,
)


@pytest.fixture
def rig():
    before = descriptors()
    with Rig(policy(greeting_s=1, client_hello_s=1)) as made:
        yield made
        made.until(lambda: not made.front.flows)
        assert made.session.clients_count == 0
    assert made.printed == []
    deadline = time.monotonic() + 5
    while descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert descriptors() <= before


@pytest.fixture
def origin(rig):
    made = Origin(rig)
    yield made
    made.close()


REQUESTS = {
    "socks5": (b"\x05\x01\x00" + socks_request("example.com", 22), SOCKS_OK),
    "connect": (connect_request("example.com:22"), CONNECT_OK),
}


@pytest.mark.parametrize("entry", REQUESTS)
def test_a_granted_tunnel_carries_and_is_recorded(rig, origin, entry):
    request, promise = REQUESTS[entry]
    with rig.client() as client:
        client.sendall(request)
        upstream = origin.accept()
        assert read_exactly(client, len(promise)) == promise
        client.sendall(b"up")
        assert upstream.recv(10) == b"up"
        upstream.sendall(b"down!")
        assert read_exactly(client, 5) == b"down!"
    assert upstream.recv(10) == b""
    upstream.close()
    rig.until(rig.journal.ends)
    verdict, end = rig.journal
    assert (verdict["verdict"], verdict["entry"], verdict["grant"]) == ("allow", entry, "example")
    assert verdict["peer"] == "93.184.215.14:22" and verdict["session"] == "s1"
    assert (end["id"], end["sent_bytes"], end["received_bytes"]) == (verdict["id"], 2, 5)
    assert end["closed_by"] == "client" and 0 <= end["duration_s"] < 10


@pytest.mark.parametrize("entry", REQUESTS)
def test_nothing_is_promised_before_the_upstream_is_there(rig, entry):
    request, _ = REQUESTS[entry]
    with rig.client() as client:
        client.sendall(request)
        rig.until(lambda: rig.held)
        greeting = b"\x05\x00" if entry == "socks5" else b""
        assert read_exactly(client, len(greeting)) == greeting
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(1)
        assert rig.journal == []
        client.settimeout(10)
        rig.refuse_held(Reason.CONNECT_TIMEOUT)
        said = read_all(client)
        assert said[1] == 0x06 if entry == "socks5" else said.startswith(b"HTTP/1.1 504 ")
    assert rig.journal.reasons() == ["connect-timeout"]


@pytest.mark.parametrize(
    ("reason", "socks", "http"),
    [
        (Reason.CONNECT_REFUSED, 0x05, b"502"),
        (Reason.CONNECT_UNREACHABLE, 0x04, b"502"),
        (Reason.LIMIT_REACHED, 0x01, b"503"),
        (Reason.INTERNAL_ERROR, 0x01, b"502"),
    ],
)
def test_a_failed_dial_has_its_own_code(rig, reason, socks, http):
    for entry, (request, _) in REQUESTS.items():
        with rig.client() as client:
            client.sendall(request)
            rig.until(lambda: rig.held)
            rig.refuse_held(reason)
            said = read_all(client)
            assert said[3] == socks if entry == "socks5" else said[9:12] == http


def test_an_origin_that_refuses(rig):
    gone = Origin(rig)
    gone.close()
    with rig.client() as client:
        client.sendall(REQUESTS["connect"][0])
        said = read_all(client)
    assert said.startswith(b"HTTP/1.1 502 ") and b"connection_refused" in said


@pytest.mark.parametrize(
    ("target", "port", "reply", "reason"),
    [
        ("evil.example.net", 443, 0x02, "not-granted"),
        ("example.com", 8080, 0x02, "port-not-granted"),
        ("localhost", 443, 0x02, "name-special"),
        ("evil.example.net\0.example.com", 443, 0x01, "host-invalid"),
        ("a" * 255, 443, 0x01, "host-invalid"),
        ("", 443, 0x01, "host-invalid"),
        ("2130706433", 443, 0x01, "host-invalid"),
        ("example.com", 0, 0x01, "port-invalid"),
    ],
)
def test_socks_refusals(rig, target, port, reply, reason):
    with rig.client() as client:
        client.sendall(b"\x05\x01\x00" + socks_request(target, port))
        assert read_all(client) == b"\x05\x00\x05" + bytes([reply]) + b"\x00\x01\x00\x00\x00\x00\x00\x00"
    assert rig.journal.reasons() == [reason]
    assert rig.names.asked == []


def test_a_connect_refusal_says_what_to_write(rig):
    with rig.client() as client:
        client.sendall(connect_request("evil.example.net:443"))
        said = read_all(client)
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 ") and b"Proxy-Status: stockade; error=http_request_denied" in head
    [line] = rig.journal
    assert line["id"].encode() in body and b'hosts = ["evil.example.net"]' in body


@pytest.mark.parametrize("entry", REQUESTS)
def test_a_handshake_cut_at_every_offset(rig, origin, entry):
    request, promise = REQUESTS[entry]
    for at in range(1, len(request)):
        with rig.client() as client:
            client.sendall(request[:at])
            time.sleep(0.002)
            client.sendall(request[at:])
            upstream = origin.accept()
            assert read_exactly(client, len(promise)) == promise, at
            upstream.close()


def test_a_handshake_byte_by_byte(rig, origin):
    request, promise = REQUESTS["socks5"]
    with rig.client() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for octet in request:
            client.sendall(bytes([octet]))
            time.sleep(0.001)
        origin.accept()
        assert read_exactly(client, len(promise)) == promise


@pytest.mark.parametrize("entry", REQUESTS)
def test_first_data_glued_to_the_request(rig, origin, entry):
    request, promise = REQUESTS[entry]
    with rig.client() as client:
        client.sendall(request + b"glued")
        upstream = origin.accept()
        assert read_exactly(client, len(promise)) == promise
        assert read_exactly(upstream, 5) == b"glued"


def test_early_data_while_the_gate_is_at_work_is_kept(rig):
    request, promise = REQUESTS["connect"]
    with rig.client() as client:
        client.sendall(request)
        rig.until(lambda: rig.held)
        client.sendall(b"early")
        time.sleep(0.05)
        origin = Origin(rig)
        pin, told = rig.held.pop()
        rig.order(lambda: rig.gate.dials(rig.loop, pin, 5, told))
        upstream = origin.accept()
        assert read_exactly(client, len(promise)) == promise
        assert read_exactly(upstream, 5) == b"early"
    origin.close()


# --- bad input


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"\x05", b"\x05\xff"),
        (b"\x05\x01", b"\x05\xff"),
        (b"\x05\x01\x00\x05\x01\x00\x03\x0bexam", b"\x05\x00\x05\x01\x00\x01\x00\x00\x00\x00\x00\x00"),
        (b"CONNECT example.com:443 HT", b"HTTP/1.1 400 "),
        (b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n", b"HTTP/1.1 400 "),
        (b"", b""),
    ],
)
@pytest.mark.parametrize("ends", [True, False])
def test_half_a_greeting_gets_its_protocols_error_within_the_deadline(rig, said, answer, ends):
    with rig.client() as client:
        client.sendall(said)
        if ends:
            client.shutdown(socket.SHUT_WR)
        started_s = time.monotonic()
        got = read_all(client)
        took_s = time.monotonic() - started_s
    assert got[: len(answer)] == answer and bool(got) == bool(answer)
    assert took_s < (0.5 if ends else 2)
    assert rig.journal.reasons() == (["request-invalid"] if said else [])


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"\x00garbage", b"HTTP/1.1 400 "),
        (b"\xff" * 5000, b"HTTP/1.1 400 "),
        (b"\x04\x01\x00\x50\x00\x00\x00\x01\x00example.com\x00", b"\x00\x5b"),
        (client_hello("example.com"), b"\x15\x03"),
        (b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET http://example.com/ HTTP/1.1\r\nX: " + b"y" * 65_536 + b"\r\n\r\n", b"HTTP/1.1 431 "),
        (b"GET http://example.com/" + b"y" * 65_536, b"HTTP/1.1 414 "),
        (b"\x05\x01\x02" + b"\x02", b""),
    ],
)
def test_garbage_is_refused_and_recorded(rig, said, answer):
    with rig.client() as client:
        client.sendall(said)
        got = b""
        if answer:
            got = read_all(client)
    assert got[: len(answer)] == answer
    rig.until(lambda: len(rig.journal) == 1)
    assert rig.journal[0]["verdict"] == "refuse"


# --- the first words of a tunnel


@pytest.mark.parametrize(
    ("hello", "reason", "alert"),
    [
        (client_hello("evil.example.net"), "sni-mismatch", b"\x15\x03\x03\x00\x02\x02\x70"),
        (client_hello(None), "sni-missing", b"\x15\x03\x03\x00\x02\x02\x6d"),
        (b"SSH-2.0-x\r\n", "not-tls", b""),
    ],
)
def test_a_claim_that_fails_is_recorded_and_ends_the_tunnel(rig, origin, hello, reason, alert):
    with rig.client() as client:
        client.sendall(connect_request("example.com:443"))
        upstream = origin.accept()
        assert read_exactly(client, len(CONNECT_OK)) == CONNECT_OK
        client.sendall(hello)
        assert read_all(client) == alert
        assert upstream.recv(100) == b""
    rig.until(rig.journal.ends)
    assert rig.journal.reasons() == ["granted", reason]
    [end] = rig.journal.ends()
    assert (end["closed_by"], end["sent_bytes"]) == (reason, 0)


def test_the_right_name_passes_unchanged(rig, origin):
    hello = client_hello("example.com")
    with rig.client() as client:
        client.sendall(connect_request("example.com:443") + hello[:20])
        upstream = origin.accept()
        read_exactly(client, len(CONNECT_OK))
        client.sendall(hello[20:])
        assert read_exactly(upstream, len(hello)) == hello


HTTP_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


def read_head(sock: socket.socket) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got:
        part = sock.recv(65_536)
        assert part, got
        got += part
    return got


@pytest.mark.parametrize("entry", ["connect", "socks5"])
def test_http_inside_a_tunnel_to_port_80_is_judged_request_by_request(rig, origin, entry):
    """IM-03: the tunnel's destination is the only host that its requests may name."""
    request, promise = (
        (connect_request("example.com:80"), CONNECT_OK)
        if entry == "connect"
        else (b"\x05\x01\x00" + socks_request("example.com", 80), SOCKS_OK)
    )
    with rig.client() as client:
        client.sendall(request)
        upstream = origin.accept()
        read_exactly(client, len(promise))
        client.sendall(b"GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n")
        assert read_head(upstream).startswith(b"GET /a HTTP/1.1\r\nHost: example.com\r\n")
        upstream.sendall(HTTP_OK)
        assert read_head(client).startswith(b"HTTP/1.1 200 OK\r\n")
        client.sendall(b"GET /b HTTP/1.1\r\nHost: two.example.com\r\n\r\n")
        assert read_head(client).startswith(b"HTTP/1.1 421 ")
    rig.until(rig.journal.ends)
    assert rig.journal.reasons()[-1] == "host-mismatch"


def test_plain_http_is_forwarded(rig, origin):
    with rig.client() as client:
        client.sendall(b"GET http://example.com/x HTTP/1.1\r\nHost: example.com\r\n\r\n")
        upstream = origin.accept()
        assert read_head(upstream).startswith(b"GET /x HTTP/1.1\r\n")
        upstream.sendall(HTTP_OK)
        assert read_head(client).endswith(b"hi")
    rig.until(rig.journal.ends)
    assert rig.journal[0]["entry"] == "http"


# --- the policy changes


def test_a_change_cuts_what_it_refuses_and_leaves_the_rest(rig, origin):
    with rig.client() as cut, rig.client() as kept:
        cut.sendall(connect_request("two.example.com:22"))
        origin.accept()
        read_exactly(cut, len(CONNECT_OK))
        kept.sendall(connect_request("example.com:22"))
        upstream = origin.accept()
        read_exactly(kept, len(CONNECT_OK))
        rig.order(lambda: rig.session.adopt(policy(GRANTS.replace(', "two.example.com"', ""))))
        assert closed(cut) == "reset"
        kept.sendall(b"still here")
        assert upstream.recv(100) == b"still here"
        rig.order(rig.session.revoke)
        assert closed(kept) == "reset"
        with rig.client() as late:
            late.sendall(connect_request("example.com:22"))
            assert closed(late) == "eof"
    assert rig.journal.reasons()[2:] == ["policy-changed", "session-revoked", "session-revoked"]
    assert [end["closed_by"] for end in rig.journal.ends()] == ["policy-changed", "session-revoked"]


# --- the client leaves


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@pytest.mark.parametrize("leave", [reset, socket.socket.close])
def test_a_client_that_leaves_at_each_phase(rig, leave):
    for said in (b"", b"\x05", b"\x05\x01\x00", connect_request("evil.example.net:443")):
        client = rig.client()
        client.sendall(said)
        leave(client)
    client = rig.client()
    client.sendall(connect_request("example.com:443"))
    rig.until(lambda: rig.held)
    leave(client)
    if leave is reset:  # an orderly end of data is no reason to stop: a client may half-close
        rig.until(lambda: not rig.front.flows)
    rig.refuse_held(Reason.CONNECT_REFUSED)
    rig.until(lambda: not rig.front.flows)


def test_the_gate_is_stopped_when_the_client_resets(rig):
    client = rig.client()
    client.sendall(connect_request("example.com:443"))
    rig.until(lambda: rig.held)
    reset(client)
    rig.until(lambda: rig.journal)
    assert "client left" in rig.journal[0]["detail"]


# --- bugs


@pytest.mark.parametrize("entry", REQUESTS)
def test_a_bug_in_the_gate_is_an_internal_error(entry):
    with Rig() as rig:

        def bug(*_args, **_more):
            raise ZeroDivisionError

        rig.gate.open = bug
        with rig.client() as client:
            client.sendall(REQUESTS[entry][0])
            said = read_all(client)
        assert said[2:4] == b"\x05\x01" if entry == "socks5" else said.startswith(b"HTTP/1.1 502 ")
        assert rig.journal.reasons() == ["internal-error"]
        assert len(rig.printed) == 1 and "ZeroDivisionError" in rig.printed[0]
        rig.until(lambda: not rig.front.flows)


def test_a_bug_while_the_gate_is_at_work_stops_the_gate(rig):
    with rig.client() as client:
        client.sendall(REQUESTS["connect"][0])
        rig.until(lambda: rig.held)
        [flow] = rig.front.flows
        rig.order(lambda: flow.fail(ValueError("a bug")))
        assert read_all(client).startswith(b"HTTP/1.1 502 ")
    assert rig.journal.reasons() == ["granted", "internal-error"]  # what had been decided, and what came of it
    near, far = socket.socketpair()
    told = rig.held.pop()[1]
    rig.order(lambda: told(Dialled(near, Destination(ip_address(PUBLIC), 22), Reason.GRANTED, "")))
    assert far.recv(1) == b""  # a socket that comes too late is closed
    far.close()


def test_a_bug_that_even_refusing_meets_resets_the_client():
    with Rig() as rig:

        def bug(*_args, **_more):
            raise ZeroDivisionError

        rig.gate.open = rig.gate.refuse = bug
        with rig.client() as client:
            client.sendall(REQUESTS["connect"][0])
            assert closed(client) == "reset"
        rig.until(lambda: not rig.front.flows)
        assert rig.session.clients_count == 0
