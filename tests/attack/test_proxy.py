"""What a client of the proxy tries in order to reach what no policy gave it."""

import re
import signal
import socket
import ssl
import subprocess
import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.attack.conftest import POLICY, Client, read_all

FORBIDDEN = (
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.254", "192.168.1.1", "100.64.0.1",
    "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.1",
    "240.0.0.1", "255.255.255.255", "192.0.2.2",
    "::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8:1ab::2",
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::127.0.0.1", "::a9fe:a9fe",
    "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b:1::a00:1", "2002:a9fe:a9fe::", "2002:7f00:1::1",
    "2001:0:a9fe:a9fe::1", "::ffff:0:127.0.0.1", "fe80::5efe:a9fe:a9fe",
)  # fmt: skip
"""Each packed as it is; a policy that grants the whole public web does not lift one of them."""

SPELLED = (
    b"2130706433", b"0x7f000001", b"0x7f.1", b"0177.0.0.1", b"017700000001", b"127.1", b"127.0.1", b"127.0.0.1.",
    b"127.0.0.01", b"2852039166", b"0xa9fea9fe", b"169.254.43518", b"0251.0376.0251.0376", b"0", b"0.0", b"[::1]",
    b"[::ffff:127.0.0.1]", b"[::1%25lo]", b"[::1%lo]", b"[0:0:0:0:0:0:0:1]", b"[127.0.0.1]", b"localhost", b"LOCALHOST",
    b"localhost.", b"x.localhost", b"metadata.google.internal", b"metadata", b"kubernetes.default.svc",
    b"kubernetes.default.svc.cluster.local", b"example.com@127.0.0.1", b"127.0.0.1#.example.com", b"127.0.0.1?.example.com",
    b"127.0.0.1/.example.com", b"127.0.0.1\\.example.com", "①27.0.0.1".encode(), "127。0。0。1".encode(),
)  # fmt: skip
"""Forms that one parser or another takes for a loopback, link-local or metadata address."""

WEB = """
version = 1
[[grant]]
preset = "public-web"
"""


def refused(answer: bytes) -> bool:
    """Nothing was promised: an HTTP error of the 400s, a SOCKS reply other than 0, or silence."""
    if answer.startswith(b"HTTP/1.1 "):
        return answer[9:10] in {b"4", b"5"}
    return not answer or (answer[:1] == b"\x05" and answer[1:2] != b"\x00")


def test_no_address_of_the_floor_is_reached(lab, start_proxy) -> None:
    client = Client(start_proxy(WEB))
    for address in FORBIDDEN:
        authority = f"[{address}]" if ":" in address else address
        assert refused(client.socks_address(address, 80)), address
        assert refused(client.connect(f"{authority}:443".encode())), address
        assert refused(client.get(f"http://{authority}/".encode(), authority.encode())), address
        assert refused(client.socks_name(address.encode(), 80)), address
    assert lab.canaries() == {}
    assert not any(record["verdict"] == "allow" for record in client.proxy.records("verdict"))
    assert b"200" in client.get(b"http://93.184.215.14/", b"93.184.215.14")[:16], "the way itself must work"


def test_no_spelling_reaches_the_floor(lab, start_proxy) -> None:
    client = Client(start_proxy(WEB))
    for spelled in SPELLED:
        assert refused(client.connect(spelled + b":80")), spelled
        assert refused(client.get(b"http://" + spelled + b"/", b"example.com")), spelled
        assert refused(client.socks_name(spelled, 80)), spelled
    assert lab.canaries() == {}
    assert lab.attempts().keys() <= {f"{client.proxy.ready['listen']}/tcp"}, "nothing was dialled, nothing was asked"


def test_a_name_without_a_grant_is_never_looked_up(lab, client) -> None:
    for name in (
        b"secret-data.attacker.org",
        b"pypi.org",
        b"example.org",
        b"examplecom",
        b"xexample.com",
        b"example.net",
    ):
        assert refused(client.connect(name + b":443"))
        assert refused(client.get(b"http://" + name + b"/", name))
        assert refused(client.socks_name(name, 443))
    assert refused(client.connect(b"example.com:22")), "a port without a grant"
    assert lab.asked() == {}
    assert b"200" in client.get(b"http://example.com/", b"example.com")[:16], "the way itself must work"
    assert lab.asked() != {}


def test_no_spelling_hides_a_name(lab, client) -> None:
    for name in (
        b"attacker.org\x00.example.net", b"attacker.org\x00example.com", b"[attacker.org]", b"attacker.org#.example.net",
        b"attacker.org%00.example.net", b"attacker.org/.example.net", b"example.com@attacker.org", b"attacker.org .example.net",
        b"example.com%20@attacker.org", b"attacker.org\r\n.example.net", b"a" * 64 + b".example.net", b"..example.net",
        b"attacker.org\xe3\x80\x82example.net", b"example.com..", b".", b"*.example.net", b"-.example.net",
    ):  # fmt: skip
        assert refused(client.socks_name(name, 80)), name
        if b"\r" not in name:
            assert refused(client.connect(name + b":80")), name
            assert refused(client.get(b"http://" + name + b"/", b"example.com")), name
    assert lab.asked() == {}
    assert lab.canaries() == {}


def test_a_refusal_holds_in_every_spelling(lab, start_proxy) -> None:
    client = Client(start_proxy(POLICY + '[[refuse]]\nhosts = ["bad.example.net", "*.bad.example.net"]\n'))
    lab.write_names({"bad.example.net": {"A": ["93.184.215.15"]}, "ok.example.net": {"A": ["93.184.215.15"]}})
    for name in (
        b"bad.example.net",
        b"bad.example.net.",
        b"BAD.example.net",
        b"bAd.eXample.NET.",
        b"x.bad.example.net",
    ):
        assert refused(client.connect(name + b":443"))
        assert refused(client.get(b"http://" + name + b"/", name))
        assert refused(client.socks_name(name, 80))
    assert lab.asked() == {}
    assert b"200" in client.get(b"http://OK.example.net./", b"OK.example.net.")[:16], "the way itself must work"


def test_an_answer_with_one_forbidden_address_is_refused_whole(lab, client) -> None:
    lab.write_names({
        "mixed.example.net": {"A": ["93.184.215.15", "169.254.169.254"]},
        "mixed6.example.net": {"A": ["93.184.215.15"], "AAAA": ["::ffff:127.0.0.1"]},
        "inside.example.net": {"A": ["10.0.0.1"]},
        "own.example.net": {"A": ["192.0.2.2"]},
    })  # fmt: skip
    for name in (b"mixed.example.net", b"mixed6.example.net", b"inside.example.net", b"own.example.net"):
        assert refused(client.connect(name + b":80"))
        assert client.proxy.verdict()["reason"].startswith("address-")
    assert lab.canaries() == {}
    assert lab.accepted() == {}


def test_a_rebinding_name_moves_no_connection(lab, client) -> None:
    lab.write_names({"rebind.example.net": {"seq": [{"A": ["93.184.215.15"], "ttl": 0}, {"A": ["127.0.0.1"], "ttl": 0}]}})
    answer = client.get(b"http://rebind.example.net/", b"rebind.example.net")
    assert b"200" in answer[:16]
    assert lab.asked()["rebind.example.net A"] == 1, "one question for one connection"
    for _ in range(3):
        assert refused(client.get(b"http://rebind.example.net/", b"rebind.example.net"))
    assert lab.canaries() == {}


def test_another_name_inside_a_tunnel_does_not_pass(lab, client, ca_file) -> None:
    """The tunnel was opened for example.com; the TLS inside asks for somebody else, or for nobody."""
    for wanted in ("attacker.org", "www.example.com", None):
        with client.proxy.connect() as connection:
            connection.sendall(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
            assert b" 200 " in connection.recv(4096)
            tls = ssl.create_default_context()
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
            with pytest.raises((ssl.SSLError, ConnectionError, OSError)):
                tls.wrap_socket(connection, server_hostname=wanted)
    assert lab.requests() == []
    with client.proxy.connect() as connection:
        connection.sendall(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
        assert b" 200 " in connection.recv(4096)
        with ssl.create_default_context(cafile=str(ca_file)).wrap_socket(connection, server_hostname="example.com") as tls:
            tls.sendall(b"GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
            assert b"200" in tls.recv(4096)[:16], "the way itself must work"


def test_each_request_of_a_kept_connection_is_judged(lab, client) -> None:
    first = b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n"
    second = b"GET http://attacker.org/ HTTP/1.1\r\nHost: attacker.org\r\n\r\n"
    mixed = b"GET http://example.com/ HTTP/1.1\r\nHost: attacker.org\r\n\r\n"
    for other in (second, mixed):
        for pieces in ((first, other), (first + other,)):
            answer = client.say(*pieces)
            assert answer.startswith(b"HTTP/1.1 200")
            assert b"HTTP/1.1 403" in answer or b"HTTP/1.1 421" in answer or b"HTTP/1.1 400" in answer
    assert all("example.com" in request["head"] and "attacker" not in request["head"] for request in lab.requests())


def test_a_request_that_two_parsers_read_two_ways_is_refused(lab, client) -> None:
    start = b"POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\n"
    hidden = b"GET http://attacker.org/ HTTP/1.1\r\nHost: attacker.org\r\n\r\n"
    for head in (
        b"Content-Length: 0\r\nContent-Length: 38\r\n\r\n",
        b"Content-Length: 38\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"Content-Length: +5\r\n\r\nabcde",
        b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        b"X: a\nContent-Length: 0\n\n",
        b"X: a\x00b\r\nContent-Length: 0\r\n\r\n",
        b"Host: attacker.org\r\nContent-Length: 0\r\n\r\n",
    ):
        answer = client.say(start + head + hidden)
        assert answer.startswith(b"HTTP/1.1 400"), (head, answer[:200])
        assert len(re.findall(rb"HTTP/1\.1 \d\d\d ", answer)) == 1, "it closes; nothing after is read"
    assert client.say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert lab.requests() == []


def test_credentials_for_the_proxy_reach_no_origin(lab, client) -> None:
    answer = client.say(
        b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nProxy-Authorization: Basic c2VjcmV0OnNlY3JldA==\r\n"
        b"Proxy-Connection: keep-alive\r\nX-Hop: hop-secret\r\nConnection: close, X-Hop\r\n\r\n"
    )
    assert b"200" in answer[:16]
    (request,) = lab.requests()
    assert "c2VjcmV0" not in request["head"]
    assert "hop-secret" not in request["head"]
    assert "proxy-" not in request["head"].lower()
    assert "c2VjcmV0" not in client.proxy.journal_file.read_text()


def test_hostile_text_stays_inside_its_record(client) -> None:
    before_count = len(client.proxy.records())
    names = (
        b'a"\r\n{"verdict":"allow"}',
        b"\x1b[2J\x1b]0;owned\x07.example.net",
        "\u202egro.live".encode(),
        b"\xff\xfe" * 40,
    )
    for name in names:
        client.socks_name(name, 443)
    text = client.proxy.journal_file.read_bytes()
    records = client.proxy.records("verdict")
    assert len(client.proxy.records()) >= before_count + len(names)
    assert all(record["verdict"] != "allow" for record in records)
    assert not set(text) & set(range(32)) - {10}, "no control byte but the line end"
    assert "\u202e".encode() not in text
    assert all(len(line) < 4_096 for line in text.splitlines())


@pytest.mark.parametrize("text", ["", "version = 1\n", "version = 1\n[[grant]]\nname='x'\n", "not toml", None])
def test_no_policy_permits_nothing(lab, start_proxy, tmp_path, text) -> None:
    """Missing, empty of grants, invalid: it does not start, or it refuses."""
    try:
        if text is None:
            proxy = start_proxy(arguments=("--policy", str(tmp_path / "missing.toml")))
        else:
            proxy = start_proxy(text)
    except AssertionError as ended:
        assert "did not start" in str(ended)
    else:
        assert refused(Client(proxy).connect(b"example.com:443"))
        assert refused(Client(proxy).socks_address("93.184.215.14", 443))
    assert lab.asked() == {}
    assert lab.accepted() == {}


def test_a_further_layer_only_narrows(lab, start_proxy) -> None:
    wide = '[[grant]]\npreset = "public-web"\n[[grant]]\nname = "in"\naddresses = ["10.0.0.0/8"]\nports = [80]\n'
    for layers in ((POLICY, "version = 1\n" + wide), ("version = 1\n" + wide, POLICY)):
        client = Client(start_proxy(*layers))
        assert refused(client.connect(b"pypi.org:443"))
        assert refused(client.socks_address("10.0.0.1", 80))
        assert b"200" in client.get(b"http://example.com/", b"example.com")[:16]
    assert lab.canaries() == {}


def test_a_bad_reload_keeps_the_last_good_policy(client) -> None:
    proxy = client.proxy
    (file,) = proxy.policy_files
    for text in ("", "version = 1\n[[grant", 'version = 1\n[[grant]]\nname = "all"\nhosts = ["*"]\n'):
        file.write_text(text)
        proxy.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert refused(client.connect(b"pypi.org:443")), text
        assert b"200" in client.get(b"http://example.com/", b"example.com")[:16], "the good one still stands"
        assert proxy.verdict()["revision"] == proxy.ready["revision"]


def test_nothing_outlives_its_grant(lab, start_proxy) -> None:
    """A tunnel that was open when its grant's `until` came is cut; one of a grant without end goes on."""
    lab.write_names({"www.example.net": {"A": ["93.184.215.14"]}})
    until = datetime.now(UTC) + timedelta(seconds=4)
    ending = f'[[grant]]\nname = "ending"\nhosts = ["example.com"]\nuntil = {until:%Y-%m-%dT%H:%M:%SZ}\n'
    client = Client(start_proxy("version = 1\n" + ending + '[[grant]]\nname = "staying"\nhosts = ["*.example.net"]\n'))
    with client.proxy.connect() as cut, client.proxy.connect() as staying:
        for connection, name in ((cut, b"example.com"), (staying, b"www.example.net")):
            connection.sendall(b"CONNECT " + name + b":443 HTTP/1.1\r\n\r\n")
            assert b" 200 " in connection.recv(4096)
        try:
            assert cut.recv(1) == b"", "nobody said anything in it"
        except ConnectionResetError:
            pass
        assert datetime.now(UTC) >= until.replace(microsecond=0), "not before its time"
        staying.settimeout(0.5)
        with pytest.raises(TimeoutError):
            staying.recv(1)
    client.proxy.wait_for(lambda it: it["event"] == "end" and it["closed_by"] == "policy-changed")
    assert refused(client.connect(b"example.com:443"))


def test_a_journal_that_cannot_be_kept_lets_nothing_pass(lab, start_proxy) -> None:
    try:
        proxy = start_proxy(POLICY, arguments=("--journal", "/dev/full"))
    except AssertionError as ended:
        assert "did not start" in str(ended)
    else:
        assert refused(Client(proxy).connect(b"example.com:443"))
    assert lab.accepted() == {}


def test_a_hostile_client_harms_no_other(lab, client) -> None:
    """Garbage, half sentences, silence, endless heads and resets on 60 connections; one honest client is served meanwhile."""
    hostile = []
    for number in range(60):
        connection = client.proxy.connect()
        said = (b"\x05", b"\x16\x03\x01", b"GET /", b"\xff" * 5_000, b"CONNECT a", b"")[number % 6]
        if said:
            connection.sendall(said)
        hostile.append(connection)
    began_s = time.monotonic()
    assert b"200" in client.get(b"http://example.com/", b"example.com")[:16]
    assert time.monotonic() - began_s < 5
    for connection in hostile:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        connection.close()
    endless = client.proxy.connect()
    with endless:
        try:
            for _ in range(200):
                endless.sendall(b"GET http://example.com/" + b"a" * 8_000)
        except OSError:
            pass
        assert b"200" not in read_all(endless)[:16]
    assert b"200" in client.get(b"http://example.com/", b"example.com")[:16]
    assert client.proxy.process.poll() is None


def test_other_commands_of_socks_are_refused(lab, client) -> None:
    for command in (b"\x02", b"\x03", b"\x00", b"\x09"):
        answer = client.say(b"\x05\x01\x00", b"\x05" + command + b"\x00\x01\x5d\xb8\xd7\x0e\x00\x50")[2:]
        assert refused(answer) and answer[:1] == b"\x05"
    assert not client.say(b"\x04\x01\x00\x50\x5d\xb8\xd7\x0ex\x00").startswith(b"\x00\x5a"), "SOCKS4 is not granted"
    assert lab.accepted() == {}


def test_the_proxy_never_asks_the_system_for_a_name(lab, client) -> None:
    """Its own resolver asks the lab's servers by number; the hosts file and nsswitch are not read."""
    traced = f"/proc/{client.proxy.pid}/maps"
    assert b"200" in client.get(b"http://example.com/", b"example.com")[:16]
    loaded = subprocess.run(["cat", traced], capture_output=True, text=True, check=True).stdout
    assert "libnss_dns" not in loaded and "libnss_files" not in loaded and "libresolv" not in loaded
    assert set(lab.asked_of()) and all(
        place.endswith((":53/tcp", ":53/udp", ":80/tcp")) or place.startswith("127.") for place in lab.attempts()
    )
