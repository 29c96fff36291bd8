"""Plain HTTP/1.1 through the real gate over sockets: what either side gets, and every way it ends."""

import re
import socket
import struct
import threading
import time

import pytest

from policy.document import parse
from policy.layers import combine
from policy.limits import HTTP_TURN_COUNT
from tests.proxy.peers import descriptors
from tests.proxy.stage import ADDRESSES, POLICY, Conn, Stage, echo, everything, get, response
from tests.proxy.test_http1 import SMUGGLED

A = "a.example.com"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED_OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def status(said: bytes) -> int:
    return int(said.split(b" ")[1])


# --- what goes on


def test_the_origin_gets_origin_form_and_nothing_of_the_hop() -> None:
    def script(conn: Conn) -> None:
        conn.request()
        conn.say(
            b"HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nConnection: X-Hop\r\n"
            b"X-Hop: 1\r\n"
            b"Keep-Alive: 5\r\n"
            b"Proxy-Authenticate: Basic\r\nProxy-Status: stockade; error=x\r\nX-End: 2\r\n"
            b"Upgrade: h2c\r\n\r\nok"
        )

    with Stage(script) as stage:
        said = stage.ask(
            get(
                A, "/x?y=%20", "User-Agent: t/1",
                "Proxy-Authorization: Basic c2VjcmV0", "Proxy-Connection: keep-alive",
                "Connection: X-Secret, keep-alive, close", "X-Secret: 1", "TE: trailers", "Keep-Alive: 9",
                "X-Forwarded-For: 1.2.3.4", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk", "Accept:  */* ",
            )
        )  # fmt: skip
        assert stage.origin.conns[0].seen == (
            b"GET /x?y=%20 HTTP/1.1\r\nHost: a.example.com\r\nUser-Agent: t/1\r\nX-Forwarded-For: 1.2.3.4\r\nAccept: */*\r\n\r\n"
        )
        assert said == b"HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nX-End: 2\r\nConnection: close\r\n\r\nok"


def test_connection_can_not_name_away_host_or_framing() -> None:
    with Stage(echo) as stage:
        said = stage.ask(get(A, "/", "Connection: close, Host, Content-Length", "Content-Length: 3", method="POST") + b"abc")
        assert said.endswith(b"POST / abc")
        assert b"\r\nHost: a.example.com\r\n" in stage.origin.conns[0].seen


def test_a_port_that_is_not_80_stays_in_host() -> None:
    with Stage(echo) as stage:
        stage.ask(get(f"{A}:8080"))
        assert b"\r\nHost: a.example.com:8080\r\n" in stage.origin.conns[0].seen
        assert stage.dialled[0].port == 8080


def test_upgrade_h2c_is_dropped_and_the_request_goes_on() -> None:
    with Stage(echo) as stage:
        fields = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AA")
        assert stage.ask(get(A, "/", *fields)).endswith(b"GET / ")
        assert b"pgrade" not in stage.origin.conns[0].seen


# --- one connection, many requests


def test_each_request_of_a_kept_connection_is_judged() -> None:
    with Stage(echo) as stage:
        client = stage.client()
        for host, path, expected in [
            (A, "/1", 200), (A, "/2", 200), ("evil.example.com", "/3", 403), ("other.example.com", "/4", 403),
            (A, "/5", 200), ("b.example.com", "/6", 200), (f"{A}:22", "/7", 403),
        ]:  # fmt: skip
            client.sendall(get(host, path))
            head, _ = response(client)
            assert status(head) == expected
            assert b"Connection: close" not in head
        seen = b"".join(conn.seen for conn in stage.origin.conns)
        assert re.findall(rb"GET (\S+) ", seen) == [b"/1", b"/2", b"/5", b"/6"]
        assert [pin.host for pin in stage.dialled] == [A, A, "b.example.com"]
        verdicts = [(record["destination"]["host"], record["reason"]) for record in stage.events("verdict")]
        assert len(verdicts) == 7
        assert verdicts[2] == ("evil.example.com", "refused-by-rule")
    ends = stage.events("end")
    assert len(ends) == 3
    assert ends[0]["received_bytes"] == 2 * len(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nGET /1 ")


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_pipelined_requests_are_answered_in_order_and_each_goes_where_it_says(step: int) -> None:
    posted = get(A, "/2", "Content-Length: 40", method="POST") + get("evil.example.com")[:40]
    chunked = get("b.example.com", "/4", "Transfer-Encoding: chunked", method="POST") + b"5\r\nabcde\r\n0\r\nX: y\r\n\r\n"
    data = get(A, "/1") + posted + get("evil.example.com", "/3") + chunked + get(A, "/5", "Connection: close")
    data += get(A, "/never")
    with Stage(echo) as stage:
        said = stage.ask(*[data[at : at + step] for at in range(0, len(data), step)])
        assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"200", b"200", b"403", b"200", b"200"]
        assert re.findall(rb"(?:GET|POST) (/\d) ", said) == [b"/1", b"/2", b"/4", b"/5"]
        seen = [conn.seen for conn in stage.origin.conns]
        assert len(seen) == 3
        assert b"POST /4" in seen[1]
        assert b"/3" not in b"".join(seen)
        assert b"never" not in b"".join(seen)


def test_many_pipelined_refusals_come_one_by_one_and_hold_nobody_up() -> None:
    refused_in_one_turn: list[int] = []
    with Stage(echo) as stage:
        turn = stage.loop.turn

        def counted_turn(most_s: float | None = None) -> None:
            before = len(stage.records)
            turn(most_s)
            refused_in_one_turn.append(len(stage.records) - before)

        stage.loop.turn = counted_turn  # type: ignore[method-assign]
        client = stage.client()
        client.sendall(get("evil.example.com") * 300)
        assert stage.ask(get(A)).endswith(b"GET / ")
        for _ in range(300):
            assert status(response(client)[0]) == 403
        assert len(stage.events("verdict")) == 301
    # What the client sent begins HTTP_TURN_COUNT requests, and so does the timer that goes on with them.
    assert max(refused_in_one_turn) <= 2 * HTTP_TURN_COUNT + 2


def test_a_refused_upload_is_refused_before_its_body_is_read() -> None:
    with Stage(echo) as stage:
        client = stage.client()
        client.sendall(get("evil.example.com", "/", "Content-Length: 50000000", "Expect: 100-continue", method="PUT"))
        head, body = response(client)
        assert status(head) == 403
        assert b"Connection: close" in head
        assert b"refused-by-rule" in body
        assert client.recv(1) == b""
        assert stage.origin.conns == []


def test_connect_in_the_middle_of_a_connection_is_refused() -> None:
    with Stage(echo) as stage:
        said = stage.ask(get(A) + b"CONNECT a.example.com:443 HTTP/1.1\r\n\r\n")
        assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"200", b"400"]


# --- what must never pass


@pytest.mark.parametrize("data", SMUGGLED.values(), ids=SMUGGLED)
def test_smuggling_is_answered_400_and_the_origin_gets_nothing(data: bytes) -> None:
    data = data.replace(b"a.b", A.encode())
    with Stage(echo) as stage:
        said = stage.ask(data + b"0\r\n\r\n" + get("evil.example.com", "/smuggled"), ends=False)
        assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"400"]
        assert b"Connection: close" in said
        assert stage.origin.conns == []


@pytest.mark.parametrize(
    "chunks",
    [b"5\nabcde\r\n0\r\n\r\n", b"5\r\nabcdeX\r\n", b"zz\r\n", b"5;\0\r\nabcde\r\n", b"0\r\nA : b\r\n\r\n"],
)
def test_a_body_that_can_not_be_read_ends_both_connections(chunks: bytes) -> None:
    with Stage(echo) as stage:
        said = stage.ask(get(A, "/", "Transfer-Encoding: chunked", method="POST"), chunks + get(A, "/smuggled"), ends=False)
        assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"400"]
    assert b"smuggled" not in b"".join(conn.seen for conn in stage.origin.conns)


# --- bodies


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 30_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_arrive_whole_both_ways(size: int, chunked: bool) -> None:
    sent = (b"0123456789abcde" * (size // 15 + 1))[:size]

    def script(conn: Conn) -> None:
        _, payload = conn.request() or (b"", b"")
        assert payload == sent
        if not chunked:
            conn.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size, sent)
            return
        conn.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n")
        for at in range(0, size, 100_000):
            piece = sent[at : at + 100_000]
            conn.say(b"%x;ext=1\r\n" % len(piece), piece, b"\r\n")
        conn.say(b"0\r\nX: trailer\r\n\r\n")

    with Stage(script) as stage:
        client = stage.client()
        if chunked:
            framed = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (sent[at : at + 70_001] for at in range(0, size, 70_001)))
            request = get(A, "/", "Transfer-Encoding: chunked", method="POST") + framed + b"0\r\nT: x\r\n\r\n"
        else:
            request = get(A, "/", f"Content-Length: {size}", method="POST") + sent
        thread = threading.Thread(target=client.sendall, args=(request,))
        thread.start()
        head, body = response(client)
        thread.join()
        assert status(head) == 200
        assert body == sent
        assert (b"Transfer-Encoding: chunked" in head) == chunked
        assert b"railer" not in head
        assert stage.origin.faults == []
        client.sendall(get("evil.example.com"))
        assert status(response(client)[0]) == 403


@pytest.mark.parametrize(
    ("method", "said", "got", "body"),
    [
        (
            "HEAD",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            b" 200 OK\r\nContent-Length: 5\r\n\r\n",
            b"",
        ),
        ("HEAD", CHUNKED_OK, b" 200 OK\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", b" 204 No\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\n", b" 304 X\r\nContent-Length: 5\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", b" 200 \r\nContent-Length: 0\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 103 E\r\nLink: x\r\n\r\n" + OK, OK[8:-2], b"ok"),
    ],
)
def test_responses_keep_the_connection(method: str, said: bytes, got: bytes, body: bytes) -> None:
    def script(conn: Conn) -> None:
        while conn.request():
            conn.say(said)

    with Stage(script) as stage:
        client = stage.client()
        for _ in range(2):
            client.sendall(get(A, "/", method=method))
            head, rest = response(client, head_only=not body)
            while head.startswith(b"HTTP/1.1 1"):
                head, rest = response(client)
            assert (head, rest) == (b"HTTP/1.1" + got, body)
        assert len(stage.origin.conns) == 1


def test_informational_responses_are_passed_on() -> None:
    def script(conn: Conn) -> None:
        conn.request()
        conn.say(b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\nConnection: Y\r\nY: 1\r\n\r\n", OK)

    with Stage(script) as stage:
        assert stage.ask(get(A)).startswith(b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 200 OK\r\n")


def test_a_response_that_ends_with_its_connection() -> None:
    def script(conn: Conn) -> None:
        conn.request()
        conn.say(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 100_000)

    with Stage(script) as stage:
        head, _, body = stage.ask(get(A), ends=False).partition(b"\r\n\r\n")
        assert b"Connection: close" in head
        assert body == b"x" * 100_000


@pytest.mark.parametrize("fields", [(), ("Connection: keep-alive",)])
def test_an_http_1_0_client_gets_no_chunks_no_100_and_the_end(fields: tuple[str, ...]) -> None:
    def script(conn: Conn) -> None:
        conn.request()
        conn.say(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        conn.say(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        conn.request()

    with Stage(script) as stage:
        request = "\r\n".join([f"GET http://{A}/ HTTP/1.0", "Expect: 100-continue", *fields, "", ""]).encode()
        said = stage.ask(request, ends=False)
        assert said == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcde"
        assert stage.origin.conns[0].seen == b"GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n"


# --- Expect: 100-continue, end to end


EXPECT = get(A, "/", "Content-Length: 10", "Expect: 100-continue", method="PUT")


@pytest.mark.parametrize("said", [b"HTTP/1.1 417 No\r\n", b"HTTP/1.1 401 Who\r\nWWW-Authenticate: Basic\r\n"])
def test_expect_refused_by_the_origin_reaches_the_client_at_once(said: bytes) -> None:
    def script(conn: Conn) -> None:
        assert b"Expect: 100-continue" in conn.until(b"\r\n\r\n")
        conn.say(said + b"Content-Length: 0\r\n\r\n")
        conn.more()

    with Stage(script) as stage:
        client = stage.client()
        client.sendall(EXPECT)
        head, _ = response(client)
        assert head.startswith(said.split(b"\r\n")[0])
        assert b"Connection: close" in head
        assert client.recv(1) == b""


@pytest.mark.parametrize("delay_s", [0.0, 0.5])
def test_expect_answered_100_then_the_body_goes_once(delay_s: float) -> None:
    def script(conn: Conn) -> None:
        head = conn.until(b"\r\n\r\n")
        time.sleep(delay_s)
        conn.say(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert conn.payload(head) == b"0123456789"
        conn.say(OK)
        conn.more()

    with Stage(script) as stage:
        client = stage.client()
        client.sendall(EXPECT)
        assert response(client)[0] == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"0123456789")
        assert response(client)[1] == b"ok"
        client.close()
        stage.wait(lambda: stage.live_count == 0)
        assert stage.origin.faults == []
        assert stage.origin.conns[0].seen.endswith(b"\r\n\r\n0123456789")


def test_expect_never_answered_and_the_client_sends_all_the_same() -> None:
    with Stage(echo) as stage:
        client = stage.client()
        client.sendall(EXPECT)
        time.sleep(0.2)
        client.sendall(b"0123456789")
        assert response(client)[1] == b"PUT / 0123456789"


# --- WebSocket


UPGRADE = (
    "Connection: keep-alive, Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Key: x",
    "Sec-WebSocket-Version: 13",
)
SWITCH = b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\n"


@pytest.mark.parametrize("scheme", [b"http", b"ws"])
def test_websocket_becomes_a_tunnel_both_ways(scheme: bytes) -> None:
    payload = b"\x82\x7f" + bytes(range(256)) * 8_192

    def script(conn: Conn) -> None:
        head = conn.until(b"\r\n\r\n")
        assert b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" in head
        conn.say(SWITCH + b"\x81\x02hi")
        conn.say(conn.exactly(1), conn.exactly(len(payload)))
        assert conn.more() == b""
        conn.say(b"after the client's end")

    with Stage(script) as stage:
        client = stage.client()
        client.sendall(get(A, "/ws", *UPGRADE).replace(b"http://", scheme + b"://") + b"1")
        assert response(client)[0] == SWITCH.replace(b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"").replace(
            b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        thread = threading.Thread(target=lambda: (client.sendall(payload), client.shutdown(socket.SHUT_WR)))
        thread.start()
        assert everything(client) == b"\x81\x02hi1" + payload + b"after the client's end"
        thread.join()
        assert stage.origin.faults == []


def test_a_websocket_to_a_refused_host_is_refused_before_101() -> None:
    with Stage(echo) as stage:
        client = stage.client()
        client.sendall(get("evil.example.com", "/ws", *UPGRADE))
        assert status(response(client)[0]) == 403


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ((), SWITCH),
        (UPGRADE, SWITCH.replace(b"websocket", b"h2c")),
        (("Connection: Upgrade", "Upgrade: h2c"), SWITCH),
    ],
)
def test_a_switch_nobody_asked_for_is_502(fields: tuple[str, ...], said: bytes) -> None:
    def script(conn: Conn) -> None:
        conn.until(b"\r\n\r\n")
        conn.say(said)
        conn.more()

    with Stage(script) as stage:
        answer = stage.ask(get(A, "/", *fields))
        assert status(answer) == 502
        assert b"error=http_protocol_error" in answer


# --- upstreams that fail


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 40_000,
        b"\x00\x01\x02\n",
        b"HTTP/1.1 103 Hint\r\n\r\nnonsense\r\n\r\n",
    ],
)
def test_a_bad_response_head_is_502(said: bytes) -> None:
    def script(conn: Conn) -> None:
        conn.request()
        conn.say(said)
        conn.more()

    with Stage(script) as stage:
        client = stage.client()
        client.sendall(get(A))
        head = response(client)[0]
        if b" 103 " in head:
            head = response(client)[0]
        assert status(head) == 502
        assert b"error=http_protocol_error" in head
        assert stage.events("verdict")[-1]["reason"] == "not-http"
        client.sendall(get("evil.example.com"))
        assert status(response(client)[0]) == 403


@pytest.mark.parametrize("resets", [False, True])
def test_an_upstream_that_closes_before_it_answers_is_502(resets: bool) -> None:
    def script(conn: Conn) -> None:
        conn.request()
        if resets:
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with Stage(script) as stage:
        said = stage.ask(get(A))
        assert status(said) == 502
        assert b"error=connection_terminated" in said
        assert len(stage.origin.conns) == 1


def test_an_upstream_that_says_nothing_is_504_in_time() -> None:
    with Stage(lambda conn: conn.until(b"never"), idle_s=0.3) as stage:
        client = stage.client()
        client.sendall(get(A))
        head, body = response(client)
        assert status(head) == 504
        assert b"error=http_response_timeout" in head
        assert b"sent no response within 0.3 s" in body


def test_a_client_that_left_a_silent_upstream_is_let_go() -> None:
    with Stage(lambda conn: conn.until(b"never"), drain_s=0.3) as stage:
        assert status(stage.ask(get(A))) == 504
        stage.wait(lambda: stage.live_count == 0)


def test_after_a_silent_upstream_the_client_still_has_its_deadlines() -> None:
    """Each request has its own, the one that waited behind the first too, and so has the silence after the last."""
    with Stage(lambda conn: conn.until(b"never"), idle_s=0.3) as stage:
        client = stage.client()
        client.sendall(get(A) + get(A))
        assert [status(response(client)[0]) for _ in range(2)] == [504, 504]
        client.sendall(get(A))
        assert status(response(client)[0]) == 504
        assert everything(client) == b""
        stage.wait(lambda: stage.live_count == 0)


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcXX",
    ],
)
def test_a_response_cut_short_is_not_taken_for_whole(said: bytes) -> None:
    def script(conn: Conn) -> None:
        conn.request()
        conn.say(said)

    with Stage(script) as stage:
        client = stage.client()
        client.sendall(get(A))
        with pytest.raises(ConnectionResetError):
            everything(client)


def test_a_reset_in_a_body_that_ends_with_the_connection_is_passed_on() -> None:
    def script(conn: Conn) -> None:
        conn.request()
        conn.say(b"HTTP/1.1 200 OK\r\n\r\nabc")
        time.sleep(0.1)
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with Stage(script) as stage:
        client = stage.client()
        client.sendall(get(A))
        with pytest.raises(ConnectionResetError):
            everything(client)


def test_an_early_answer_reaches_a_client_that_is_still_sending() -> None:
    def script(conn: Conn) -> None:
        conn.until(b"\r\n\r\n")
        conn.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
        conn.sock.shutdown(socket.SHUT_WR)
        time.sleep(0.3)

    with Stage(script) as stage:
        client = stage.client()
        client.sendall(get(A, "/", "Content-Length: 50000000", method="POST") + b"x" * 100_000)
        head, body = response(client)
        assert status(head) == 413
        assert b"Connection: close" in head
        assert body == b"big"


# --- kept upstreams that went away (PR-11)


def test_a_kept_upstream_closed_while_idle_is_replaced() -> None:
    def script(conn: Conn) -> None:
        _head, payload = conn.request() or (b"", b"")
        conn.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(payload), payload)
        time.sleep(0.01)

    body = b"p" * 1_000_000
    with Stage(script) as stage:
        for _ in range(10):
            client = stage.client()
            client.sendall(get(A))
            assert status(response(client)[0]) == 200
            time.sleep(0.03)
            client.sendall(get(A, "/", f"Content-Length: {len(body)}", method="POST") + body)
            assert response(client)[1] == body
            client.close()
        assert stage.origin.faults == []


@pytest.mark.parametrize(("method", "fields", "expected"), [("GET", (), 200), ("POST", ("Content-Length: 3",), 502)])
def test_a_kept_upstream_that_closes_on_the_next_request(method: str, fields: tuple[str, ...], expected: int) -> None:
    def script(conn: Conn) -> None:
        conn.request()
        conn.say(OK)
        conn.until(b"\r\n\r\n")

    with Stage(script) as stage:
        client = stage.client()
        client.sendall(get(A))
        assert status(response(client)[0]) == 200
        client.sendall(get(A, "/2", *fields, method=method) + (b"abc" if fields else b""))
        assert status(response(client)[0]) == expected
        assert len(stage.origin.conns) == (2 if expected == 200 else 1)


def test_an_upstream_that_speaks_out_of_turn_is_not_used_again() -> None:
    def script(conn: Conn) -> None:
        while conn.request():
            conn.say(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")

    with Stage(script) as stage:
        client = stage.client()
        for _ in range(3):
            client.sendall(get(A))
            assert response(client)[1] == b"ok"
        assert len(stage.origin.conns) == 3


# --- time, space, and what is left behind


@pytest.mark.parametrize("half", [b"G", b"GET http://a.exa", get(A)[:-1], get(A, "/", "X: y")[:-2]])
def test_half_a_head_is_answered_within_its_deadline(half: bytes) -> None:
    with Stage(echo, greeting_s=0.2) as stage:
        said = stage.ask(get(A) + half, ends=False)
        assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"200", b"408"]


def test_a_client_that_says_nothing_more_is_closed() -> None:
    with Stage(echo, idle_s=0.3) as stage:
        said = stage.ask(get(A), ends=False)
        assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"200"]


def test_a_body_that_stops_coming_is_408() -> None:
    with Stage(echo, idle_s=0.3) as stage:
        said = stage.ask(get(A, "/", "Content-Length: 10", method="POST") + b"abc", ends=False)
        assert status(said) == 408


def test_a_client_that_ends_half_way_through_its_body_completes_nothing() -> None:
    done: list[bytes] = []

    def script(conn: Conn) -> None:
        head = conn.until(b"\r\n\r\n")
        done.append(conn.payload(head))

    with Stage(script) as stage:
        assert stage.ask(get(A, "/", "Content-Length: 10", method="POST") + b"abc") == b""
        stage.wait(lambda: stage.origin.faults or done)
        assert done == []
        assert isinstance(stage.origin.faults[0], ConnectionResetError)


def test_a_stalled_reader_stops_the_sender_and_a_stalled_origin_the_client() -> None:
    sent = [0]

    def download(conn: Conn) -> None:
        conn.request()
        conn.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        while sent[0] < 100_000_000:
            sent[0] += conn.sock.send(b"x" * 100_000)

    with Stage(download) as stage:
        client = stage.client()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        client.sendall(get(A))
        held = -1
        while held != sent[0]:
            held = sent[0]
            time.sleep(0.2)
        assert 0 < held < 20_000_000
        for flow in stage.session._live:
            assert len(flow._client.pending) <= 70_000
        left = 100_000_000
        _head, _ = response(client, head_only=True)
        while left:
            left -= len(client.recv(1 << 20))

    with Stage(lambda conn: (conn.until(b"\r\n\r\n"), time.sleep(1))) as stage:
        client = stage.client()
        client.sendall(get(A, "/", "Content-Length: 100000000", method="POST"))
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.sendall(bytes(100_000_000))
        for flow in stage.session._live:
            assert len(flow._held) + len(flow._upstream.pending) <= 300_000


def test_a_client_that_resets_at_any_point_leaves_nothing() -> None:
    def script(conn: Conn) -> None:
        while request := conn.request():
            conn.say(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"4\r\nabcd\r\n" * 50,
                b"0\r\n\r\n",
                request[1],
            )

    request = get(A, "/", "Content-Length: 30", method="POST") + b"x" * 30 + get(A)
    with Stage(script) as stage:
        stage.ask(get(A))
        stage.wait(lambda: stage.live_count == 0)
        before = descriptors()
        for at in range(0, len(request) + 40, 3):
            client = stage.client()
            client.sendall(request[:at])
            if at > len(request):
                client.recv(at - len(request))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        stage.wait(lambda: stage.live_count == 0)
        stage.wait(lambda: descriptors() <= before)
        assert stage.ask(get(A)).startswith(b"HTTP/1.1 200")


# --- a policy that changes


def test_a_new_policy_cuts_what_it_refuses_and_nothing_else() -> None:
    def script(conn: Conn) -> None:
        while conn.request():
            conn.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf ")
            time.sleep(0.4)
            conn.say(b"whole")

    narrower = combine([parse(POLICY.replace('"a.example.com", ', ""), "narrow.toml")])
    with Stage(script) as stage:
        cut, kept = stage.client(), stage.client()
        cut.sendall(get(A))
        kept.sendall(get("b.example.com"))
        assert cut.recv(1) == kept.recv(1) == b"H"
        stage.wait(lambda: len(stage.origin.conns) == 2)
        stage.do(lambda: stage.session.adopt(narrower))
        with pytest.raises(ConnectionResetError):
            everything(cut)
        got = b"H"
        while not got.endswith(b"whole"):
            got += kept.recv(100)
        kept.sendall(get("b.example.com"))
        assert response(kept)[1] == b"half whole"
        assert len(stage.origin.conns) == 3
        kept.sendall(get(A))
        assert status(response(kept)[0]) == 403
        assert "policy-changed" in [record["closed_by"] for record in stage.events("end")]


# --- through a tunnel to port 80


def test_inside_a_tunnel_each_request_must_name_the_tunnels_destination() -> None:
    with Stage(echo, within=f"{A}:80") as stage:
        assert stage.ask(b"GET /1 HTTP/1.1\r\nHost: a.example.com\r\n\r\n" * 2).count(b"GET /1") == 2
        assert len(stage.origin.conns) == 1
        said = stage.ask(b"GET /2 HTTP/1.1\r\nHost: evil.example.com\r\n\r\n")
        assert status(said) == 421
        assert b"error=http_request_denied" in said
        assert b"/2" not in b"".join(conn.seen for conn in stage.origin.conns)
        assert {record["entry"] for record in stage.events("verdict")} == {"connect"}


def test_inside_a_tunnel_a_second_request_may_not_change_its_host() -> None:
    with Stage(echo, within=f"{A}:80") as stage:
        said = stage.ask(b"GET /1 HTTP/1.1\r\nHost: a.example.com\r\n\r\nGET /2 HTTP/1.1\r\nHost: b.example.com\r\n\r\n")
        assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"200", b"421"]
        assert b"/2" not in b"".join(conn.seen for conn in stage.origin.conns)


def test_the_first_request_of_a_tunnel_whose_upstream_went_away_is_asked_on_a_new_one() -> None:
    def script(conn: Conn) -> None:
        if conn.number:
            echo(conn)

    with Stage(script, within=f"{A}:80") as stage:
        client = stage.client()
        time.sleep(0.1)
        client.sendall(b"GET /1 HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
        assert response(client)[1] == b"GET /1 "
        assert [str(pin.addresses[0]) for pin in stage.dialled] == [ADDRESSES[A]] * 2
