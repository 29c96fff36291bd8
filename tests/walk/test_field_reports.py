"""Failures that users of other proxies reported, tried here over real sockets; tests/field_reports.toml says which is which."""

import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from policy.document import parse
from policy.errors import BadPolicy
from tests.attack.conftest import POLICY, Client, read_all
from tests.attack.conftest import client as client
from tests.walk.conftest import stockade

WEB = 'version = 1\n[[grant]]\npreset = "public-web"\n'


def http(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:80]
    return int(answer[9:12])


def problems(text: str) -> str:
    with pytest.raises(BadPolicy) as caught:
        parse(text, "p.toml")
    return str(caught.value)


# --- names


def test_an_over_long_name_is_refused_before_dns(lab, client) -> None:
    long = b"a" * 242 + b".attacker.org"
    assert client.socks_name(long, 443)[1:2] not in {b"\x00", b""}
    for host, code in (
        (b"a." * 150 + b"example.net", {400}),
        (b"a" * 70_000, {400, 414, 431}),
        (b"a" * 64 + b".example.net", {400}),
    ):
        assert http(client.connect(host + b":443")) in code
        assert http(client.get(b"http://" + host + b"/", host)) in code
    assert lab.asked() == {}


def test_one_trailing_dot_is_the_same_name_and_more_is_none(lab, client) -> None:
    assert http(client.get(b"http://EXAMPLE.com./", b"EXAMPLE.com.")) == 200
    assert client.proxy.verdict()["destination"]["host"] == "example.com"
    for wrong in (b"example.com..", b".", b"127.0.0.1.."):
        assert http(client.connect(wrong + b":80")) == 400


def test_brackets_go_around_no_name(lab, client) -> None:
    for host in (b"[example.com]", b"[93.184.215.14]"):
        assert http(client.connect(host + b":443")) == 400
        assert http(client.get(b"http://" + host + b"/", host)) == 400
    assert lab.asked() == {} and lab.accepted() == {}


def test_a_refused_unicode_name_has_no_other_spelling(lab, start_proxy) -> None:
    client = Client(start_proxy(WEB + '[[refuse]]\nhosts = ["bücher.example.net"]\n'))
    for name in (b"xn--bcher-kva.example.net", b"XN--BCHER-KVA.example.NET", b"xn--Bcher-Kva.example.net."):
        assert http(client.connect(name + b":443")) == 403
        assert client.socks_name(name, 443)[1:2] == b"\x02"
        assert client.proxy.verdict()["reason"] == "refused-by-rule"
    for text in ("bücher", "BÜCHER", "bu\u0308cher", "stra\u00dfe", "b\u0131cher", "b\u3002cher"):
        name = f"{text}.example.net".encode()
        assert http(client.connect(name + b":443")) == 400
        assert client.socks_name(name, 443)[1:2] == b"\x01"
    assert lab.asked() == {}


# --- addresses


def test_a_name_that_moves_is_followed_at_once(lab, client) -> None:
    for address in ("93.184.215.14", "93.184.215.15"):
        lab.write_names({"moving.example.net": {"A": [address], "ttl": 0}})
        assert http(client.get(b"http://moving.example.net/", b"moving.example.net")) == 200
        assert lab.requests()[-1]["address"] == address
    assert http(client.connect(b"93.184.215.14:80")) == 403


def test_the_edges_of_carrier_nat(lab, start_proxy) -> None:
    client = Client(start_proxy(WEB + '[[grant]]\nname = "names"\nhosts = ["*.example.net"]\n'))
    outside, inside = ("100.63.255.255", "100.128.0.0"), ("100.64.0.1", "100.100.100.200", "100.127.255.255")
    lab.write_names({f"h{number}.example.net": {"A": [address]} for number, address in enumerate((*outside, *inside))})
    for number, address in enumerate((*outside, *inside)):
        name = f"h{number}.example.net".encode()
        if address in outside:
            lab.serve_address(address)
        for answer in (
            client.get(b"http://" + name + b"/", name),
            client.get(f"http://{address}/".encode(), address.encode()),
        ):
            assert http(answer) == (200 if address in outside else 403), address
            if address in inside:
                wanted = "address-metadata" if address == "100.100.100.200" else "address-private"
                assert client.proxy.verdict()["reason"] == wanted
    assert lab.canaries() == {}


def test_loopback_has_no_exception_in_any_form() -> None:
    for network in (
        "127.0.0.1/32",
        "127.0.0.0/8",
        "::1/128",
        "::ffff:127.0.0.1/128",
        "169.254.169.254/32",
        "0.0.0.0/0",
        "::/0",
    ):
        said = problems(f'version = 1\n[[grant]]\nname = "x"\naddresses = ["{network}"]\n')
        assert "p.toml:4" in said, network


def test_the_narrower_refusal_wins_over_the_wider_grant(lab, start_proxy) -> None:
    client = Client(start_proxy(
        'version = 1\n[[grant]]\nname = "inside"\naddresses = ["10.0.0.0/8"]\nports = [80]\n'
        '[[refuse]]\naddresses = ["10.9.0.0/16"]\n'
    ))  # fmt: skip
    lab.serve_address("10.8.1.1")
    assert http(client.get(b"http://10.8.1.1/", b"10.8.1.1")) == 200
    assert http(client.get(b"http://10.9.1.1/", b"10.9.1.1")) == 403
    assert client.proxy.verdict()["reason"] == "refused-by-rule"
    assert lab.canaries() == {}


def test_a_granted_name_opens_no_address_by_literal(lab, client) -> None:
    for address in ("93.184.215.14", "93.184.215.15", "151.101.0.223"):
        assert http(client.connect(f"{address}:443".encode())) == 403
        assert client.socks_address(address, 443)[1:2] == b"\x02"
        assert client.proxy.verdict()["reason"] == "not-granted"
    assert lab.accepted() == {}


def test_an_ipv6_literal_asks_no_dns_and_keeps_its_brackets(lab, start_proxy) -> None:
    client = Client(start_proxy(WEB))
    literal = b"[2606:2800:21f:cb07:6820:80da:af6b:8b2c]"
    assert http(client.get(b"http://" + literal + b"/", literal)) == 200
    assert f"Host: {literal.decode()}\r\n".lower() in lab.requests()[-1]["head"].lower()
    assert client.socks_address(literal.decode().strip("[]"), 80)[:2] == b"\x05\x00"
    with client.proxy.connect() as connection:
        connection.sendall(b"CONNECT " + literal + b":443 HTTP/1.1\r\nHost: " + literal + b":443\r\n\r\n")
        assert http(connection.recv(4096)) == 200
    assert lab.asked() == {}


# --- ports and entries


def test_only_the_granted_ports(lab, start_proxy) -> None:
    client = Client(start_proxy(
        'version = 1\n[[grant]]\nname = "a"\nhosts = ["example.com"]\n'
        '[[grant]]\nname = "b"\nhosts = ["example.net"]\nports = [8443]\n'
    ))  # fmt: skip
    for port in (22, 25, 8443):
        assert http(client.connect(f"example.com:{port}".encode())) == 403
        assert client.proxy.verdict()["reason"] == "port-not-granted"
    for port in (b"0", b"65536", b"-1", b"+443", b"0443", b"443 ", b""):
        assert http(client.connect(b"example.com:" + port)) == 400
    for port in (80, 443, 65_535):
        assert http(client.connect(f"example.net:{port}".encode())) == 403
    assert lab.asked() == {}
    with client.proxy.connect() as connection:
        connection.sendall(b"CONNECT example.net:8443 HTTP/1.1\r\nHost: example.net:8443\r\n\r\n")
        assert http(connection.recv(4096)) == 200


def test_every_entry_gives_the_same_verdict(lab, client) -> None:
    denied = b"attacker.org"
    said = [
        client.get(b"http://attacker.org/", denied),
        client.connect(b"attacker.org:80"),
        client.connect(b"attacker.org:443"),
        client.socks_name(denied, 80),
        client.say(b"GET http://attacker.org/ HTTP/1.0\r\n\r\n"),
        client.say(b"GET http://attacker.org/ HTTP/1.1\r\nHost: attacker.org\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
        client.say(b"GET http://attacker.org/ HTTP/1.1\r\nHost: attacker.org\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n"
                   b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"),
        client.say(b"OPTIONS http://attacker.org HTTP/1.1\r\nHost: attacker.org\r\n\r\n"),
    ]  # fmt: skip
    assert [answer[1:2] == b"\x02" if answer[:1] == b"\x05" else http(answer) == 403 for answer in said] == [True] * len(said)
    verdicts = client.proxy.records("verdict")[-len(said) :]
    assert {record["reason"] for record in verdicts} == {"not-granted"}
    assert lab.asked() == {}


def test_plain_http_inside_a_tunnel_is_judged_like_any(lab, client) -> None:
    opening = b"CONNECT example.com:80 HTTP/1.1\r\nHost: example.com:80\r\n\r\n"
    for inner in (
        b"GET / HTTP/1.1\r\nHost: attacker.org\r\n\r\n",
        b"GET http://attacker.org/ HTTP/1.1\r\nHost: attacker.org\r\n\r\n",
    ):
        with client.proxy.connect() as connection:
            connection.sendall(opening)
            assert http(connection.recv(4096)) == 200
            connection.sendall(inner)
            assert http(read_all(connection)) in {403, 421}
    assert lab.requests() == []
    with client.proxy.connect() as connection:
        connection.sendall(opening)
        assert http(connection.recv(4096)) == 200
        connection.sendall(b"GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
        assert http(read_all(connection)) == 200


def test_one_port_speaks_both_to_curl(lab, client, ca_file) -> None:
    for way in (
        ("-x", client.proxy.url()),
        ("-x", client.proxy.url("socks5h")),
        ("--socks5-hostname", client.proxy.url().removeprefix("http://")),
    ):
        done = lab.run(["curl", "-sS", "--max-time", "10", "--cacert", str(ca_file), *way, "https://example.com/"])
        assert "This is example.com" in done.stdout, done.stderr
        denied = lab.run(["curl", "-sS", "--max-time", "10", *way, "https://attacker.org/"])
        assert denied.returncode != 0 and denied.stderr


# --- requests


def test_an_upload_to_a_denied_host_is_refused_before_its_body(client) -> None:
    head = b"PUT http://attacker.org/x HTTP/1.1\r\nHost: attacker.org\r\nContent-Length: 50000000\r\nExpect: 100-continue\r\n\r\n"
    answer = client.say(head)
    assert http(answer) == 403
    assert b"100 Continue" not in answer


def test_expect_continue_is_the_origins_to_answer(lab, client) -> None:
    def put(path: bytes) -> bytes:
        with client.proxy.connect() as connection:
            connection.sendall(
                b"PUT http://example.com" + path + b" HTTP/1.1\r\nHost: example.com\r\nContent-Length: 5\r\n"
                b"Expect: 100-continue\r\nConnection: close\r\n\r\n"
            )
            answer = connection.recv(4096)
            if http(answer) == 100:
                connection.sendall(b"hello")
                answer = read_all(connection)
            return answer

    assert b'"body_bytes": 5' in put(b"/lab/continue-late?after_s=0.3")
    assert http(put(b"/lab/status?code=417&early=1&close=1")) == 417
    assert http(put(b"/lab/status?code=401&early=1&close=1")) == 401


def test_a_websocket_passes_by_upgrade_and_by_tunnel(client) -> None:
    def upgrade(target: bytes) -> bytes:
        return (
            b"GET " + target + b" HTTP/1.1\r\nHost: example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )

    openings = {
        "absolute": ((), upgrade(b"http://example.com/lab/websocket")),
        "ws": ((), upgrade(b"ws://example.com/lab/websocket")),
        "tunnel": ((b"CONNECT example.com:80 HTTP/1.1\r\nHost: example.com:80\r\n\r\n",), upgrade(b"/lab/websocket")),
    }
    for before, request in openings.values():
        with client.proxy.connect() as connection:
            for piece in before:
                connection.sendall(piece)
                assert http(connection.recv(4096)) == 200
            connection.sendall(request)
            assert http(connection.recv(4096)) == 101
            for size in (1, 300_000):
                sent = os.urandom(size)
                connection.sendall(sent)
                got = b""
                while len(got) < size:
                    got += connection.recv(65_536)
                assert got == sent
    for target in (b"http://attacker.org/lab/websocket", b"ws://attacker.org/lab/websocket"):
        assert http(client.say(upgrade(target).replace(b"Host: example.com", b"Host: attacker.org"))) == 403


def test_the_origins_own_certificate_is_seen(lab, client, ca_file) -> None:
    with client.proxy.connect() as connection:
        connection.sendall(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
        assert http(connection.recv(4096)) == 200
        with ssl.create_default_context(cafile=str(ca_file)).wrap_socket(connection, server_hostname="example.com") as tls:
            seen = tls.getpeercert(binary_form=True)
    with lab.socket("gateway") as direct:
        direct.connect(("93.184.215.14", 443))
        with ssl.create_default_context(cafile=str(ca_file)).wrap_socket(direct, server_hostname="example.com") as tls:
            assert tls.getpeercert(binary_form=True) == seen


# --- endurance


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def settle(pid: int, most_count: int, within_s: float = 5.0) -> int:
    until_s = time.monotonic() + within_s
    while (count := descriptors(pid)) > most_count and time.monotonic() < until_s:
        time.sleep(0.05)
    return count


def test_a_client_that_resets_at_any_moment_hurts_nobody(lab, client) -> None:
    proxy = client.proxy
    assert http(client.get(b"http://example.com/", b"example.com")) == 200
    before_count = settle(proxy.pid, 0, 0.5)
    talks = (
        (b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"),
        (b"POST http://example.com/lab/echo HTTP/1.1\r\nHost: example.com\r\nContent-Length: 100000\r\n\r\n" + b"a" * 100,),
        (b"CONNECT attacker.org:443 HTTP/1.1\r\nHost: attacker.org:443\r\n\r\n",),
        (b"\x05\x01\x00", b"\x05\x01\x00\x03\x0bexample.com\x00\x50", b"GET / HT"),
        (b"GET http://example.com/lab/bytes?n=5000000 HTTP/1.1\r\nHost: example.com\r\n\r\n",),
        (b"GET http://example.com/lab/never HTTP/1.1\r\nHost: example.com\r\n\r\n",),
    )
    for number in range(2_000):
        talk = talks[number % len(talks)]
        whole = b"".join(talk)
        connection = proxy.connect()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        cut = len(whole) if number % 3 == 0 else number * 37 % (len(whole) + 1)
        connection.sendall(whole[:cut])
        if number % 20 == 0:
            time.sleep(0.01)
        connection.close()
    assert http(client.get(b"http://example.com/", b"example.com")) == 200
    assert settle(proxy.pid, before_count) <= before_count
    assert proxy.process.poll() is None
    assert "Traceback" not in proxy.error_file.read_text()


def test_every_phase_of_setting_up_has_its_deadline(lab, start_proxy) -> None:
    client = Client(start_proxy(
        POLICY + "[limits]\ngreeting_s = 1\nconnect_s = 1\nresolve_s = 1\nclient_hello_s = 1\n"
    ))  # fmt: skip
    lab.write_names({"silent.example.net": {"A": ["93.184.216.1"]}})
    lab.break_network("93.184.216.1/32", "blackhole")

    def timed(*pieces: bytes) -> tuple[bytes, float]:
        began_s = time.monotonic()
        with client.proxy.connect() as connection:
            for piece in pieces:
                connection.sendall(piece)
            connection.settimeout(10)
            got = b""
            try:
                while piece := connection.recv(65_536):
                    got += piece
            except ConnectionResetError:
                assert not any(pieces), "only who said nothing is cut without a word"
        return got, time.monotonic() - began_s

    answer, took_s = timed(b"CONNECT silent.example.net:443 HTTP/1.1\r\nHost: silent.example.net:443\r\n\r\n")
    assert http(answer) == 504 and b"connect" in answer.lower() and took_s < 5
    answer, took_s = timed(b"\x05\x01\x00", b"\x05\x01\x00\x03\x12silent.example.net\x01\xbb")
    assert answer[2:4] == b"\x05\x06" and took_s < 5
    for half, said in (
        (b"", b""),
        (b"\x05", b"\x05\xff"),
        (b"\x05\x01\x00\x05\x01", b"\x05\x00\x05\x01"),
        (b"GET http://exa", b"HTTP/1.1 4"),
    ):
        answer, took_s = timed(half)
        assert took_s < 5 and answer.startswith(said)
    lab.mute("9.9.9.9", "149.112.112.112", "2620:fe::fe")
    answer, took_s = timed(b"CONNECT other.example.net:443 HTTP/1.1\r\nHost: other.example.net:443\r\n\r\n")
    assert http(answer) == 504 and took_s < 5


def test_many_quick_requests_get_no_error_of_our_own(lab, client) -> None:
    def one(number: int) -> bool:
        if number % 10 == 9:  # an origin that resets keeps its own failure
            answer = client.get(b"http://example.com/lab/reset", b"example.com")
            return http(answer) == 502
        return http(client.get(b"http://example.com/", b"example.com")) == 200

    assert all(one(number) for number in range(500))
    with ThreadPoolExecutor(16) as pool:
        # lab.socket is one conversation with the lab: the sockets are made before the threads start
        connections = [client.proxy.connect() for _ in range(200)]

        def tunnel(connection: socket.socket) -> bool:
            with connection:
                connection.sendall(b"CONNECT example.com:80 HTTP/1.1\r\nHost: example.com:80\r\n\r\n")
                if http(connection.recv(4096)) != 200:
                    return False
                connection.sendall(b"GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
                return b"This is example.com" in read_all(connection)

        assert all(pool.map(tunnel, connections))


def test_a_password_for_the_proxy_is_written_nowhere(client) -> None:
    secret = b"aHVudGVyMjpodW50ZXIy"
    answers = client.say(
        b"CONNECT attacker.org:443 HTTP/1.1\r\nHost: attacker.org\r\nProxy-Authorization: Basic " + secret + b"\r\n\r\n"
    )
    answers += client.say(b"GET http://hunter2:hunter2@example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n")
    answers += client.say(b"\x05\x01\x02", b"\x01\x07hunter2\x07hunter2", b"\x05\x01\x00\x03\x0cattacker.org\x01\xbb")
    for text in (answers, client.proxy.journal_file.read_bytes(), client.proxy.error_file.read_bytes()):
        assert secret not in text
        assert b"hunter2" not in text.replace(b'"label": "hunter2"', b"")


def test_the_proxy_ends_with_its_parent_and_takes_a_free_port(lab, tmp_path) -> None:
    """The parent is killed; the proxy goes within three seconds; a second one finds its port although the first is there."""
    policy = tmp_path / "p.toml"
    policy.write_text(POLICY)
    started = stockade("proxy", "--policy", str(policy), "--resolver", lab.resolver, "--exit-with-parent")
    script = f"import subprocess, time; subprocess.Popen({started!r}); time.sleep(60)"
    ports, parents = set(), []
    for _ in range(2):
        parent = lab.popen([sys.executable, "-I", "-c", script], stdout=subprocess.PIPE)
        parents.append((parent, json.loads(parent.stdout.readline())))
        ports.add(parents[-1][1]["listen"])
    assert len(ports) == 2
    for parent, ready in parents:
        assert Path(f"/proc/{ready['pid']}").exists()
        parent.kill()
        parent.wait()
        parent.stdout.close()
        until_s = time.monotonic() + 3
        while is_alive(ready["pid"]) and time.monotonic() < until_s:
            time.sleep(0.02)
        assert not is_alive(ready["pid"])


def is_alive(pid: int) -> bool:
    """Whether it still runs: one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# --- policy files


def test_a_star_alone_is_an_error_that_says_what_to_write() -> None:
    for table in ("grant", "refuse"):
        said = problems(f'version = 1\n[[{table}]]\nname = "x"\nhosts = ["*"]\n')
        assert "p.toml:4" in said and "write" in said


def test_each_bad_entry_is_named_with_its_line() -> None:
    bad = ("https://a.example.net", "a.example.net/path", "a.example.net:443", "*.com", "*", "", " a.example.net ", "10.0.0.0/8",
           "[::1]", "user@a.example.net", "a.*.example.net", "**.example.net", "a..example.net", "2130706433")  # fmt: skip
    lines = "".join(f"  {entry!r},\n" for entry in bad)
    said = problems(f'version = 1\n[[grant]]\nname = "x"\nhosts = [\n  "good.example.net",\n{lines}]\n')
    for number, entry in enumerate(bad):
        assert f"p.toml:{6 + number}:" in said, (entry, said)
    assert "p.toml:5:" not in said
    assert parse('version = 1\n[[grant]]\nname = "x"\nhosts = ["a_b.example.net"]\n', "p.toml")


@pytest.mark.parametrize("how", ["half a file", "renamed over", "unreadable", "gone"])
def test_no_moment_of_a_reload_opens_the_filter(lab, client, how) -> None:
    import signal

    proxy = client.proxy
    (file,) = proxy.policy_files
    good = file.read_text()
    match how:
        case "half a file":
            file.write_text(good[: len(good) // 2])
        case "renamed over":
            other = file.with_name("new.toml")
            other.write_text(good + '[[refuse]]\nhosts = ["www.example.net"]\n')
            shutil.move(other, file)
        case "unreadable":
            file.unlink()
            file.mkdir()
        case "gone":
            file.unlink()
    revision = proxy.ready["revision"]
    proxy.process.send_signal(signal.SIGHUP)
    until_s = time.monotonic() + 1.0
    while time.monotonic() < until_s:
        assert http(client.connect(b"attacker.org:443")) == 403
    assert http(client.get(b"http://example.com/", b"example.com")) == 200
    assert (proxy.verdict()["revision"] != revision) == (how == "renamed over")
    if how != "renamed over":
        assert Path(file).name in proxy.error_file.read_text()
