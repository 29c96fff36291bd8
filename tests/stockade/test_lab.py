"""The lab is a whole internet, is private, counts what leaves the gateway, and goes when its owner goes."""

import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firewall.link import Links
from policy.errors import Broken
from stockade.lab import places
from stockade.lab.lab import Lab
from stockade.lab.origins import CANARY_WORDS, DIGEST, ECHO, POURS, POURS_BYTES, SSH, SSH_BANNER
from stockade.lab.watch import describe

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def one_lab():
    with Lab() as lab:
        yield lab


@pytest.fixture
def lab(one_lab):
    one_lab.start_over()
    return one_lab


def query(lab, name, kind="A", resolver=places.RESOLVERS[0], tcp=False, within_s=3.0):
    number = {"A": 1, "AAAA": 28, "HTTPS": 65, "TXT": 16}[kind]
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    message = struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", number, 1)
    family = socket.AF_INET6 if ":" in resolver else socket.AF_INET
    with lab.socket("gateway", family, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as client:
        client.settimeout(within_s)
        client.connect((resolver, 53))
        client.sendall(struct.pack(">H", len(message)) + message if tcp else message)
        return client.recv(4096)[2 if tcp else 0 :]


def say(lab, address, port, data=b"", end=False, most=1 << 16):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with lab.socket("gateway", family) as client:
        client.settimeout(5)
        client.connect((address, port))
        client.sendall(data)
        if end:
            client.shutdown(socket.SHUT_WR)
        got = b""
        while len(got) < most and (piece := client.recv(1 << 18)):
            got += piece
        return got


def curl(lab, tmp_path, *arguments):
    ca = tmp_path / "ca.pem"
    ca.write_text(lab.root_pem)
    return lab.run(["curl", "-sS", "--max-time", "10", "--cacert", str(ca), *arguments])


def test_starts_in_under_two_seconds():
    began_s = time.monotonic()
    with Lab() as lab:
        assert lab.asked() == {}
    assert time.monotonic() - began_s < 2.0 * 3  # two seconds on a quiet machine; tests share theirs


def test_each_namespace_has_loopback_and_one_cable_and_none_is_ours(lab):
    ours = os.stat("/proc/self/ns/net").st_ino
    for where in (places.GATEWAY, places.INTERNET):
        program = "import os; print(os.stat('/proc/self/ns/net').st_ino)"
        inside = lab.run([sys.executable, "-I", "-c", program], where)
        assert inside.returncode == 0 and int(inside.stdout) != ours
        names = [line.split(":")[0].strip() for line in _proc(lab, where, "/proc/net/dev").splitlines()[2:]]
        cable = {places.GATEWAY: places.GATEWAY_LINK, places.INTERNET: places.INTERNET_LINK}[where]
        assert {"lo", cable} <= set(names) and not {"eth0", "docker0"} & set(names)


def _proc(lab, where, file):
    return lab.run(["cat", file], where).stdout


def test_refuses_to_start_with_a_second_cable(lab):
    """The check itself, run in a namespace that has one link more than it should."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import os\n"
        "from firewall.link import Links\n"
        "from stockade.lab import topology\n"
        "built = topology.build()\n"
        "with Links() as links:\n"
        "    links.add_veth('extra', 'away', built.gateway_fd); links.bring_up('extra')\n"
        "try:\n"
        "    topology._check_no_way_out('internet', 'net', 1)\n"
        "except Exception as fault:\n"
        "    print(type(fault).__name__, fault)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout.startswith("Broken the lab's internet has links it should not have (extra, lo, net)")


def test_names_resolve_over_udp_tcp_and_ipv6_and_are_counted(lab):
    for resolver in places.RESOLVERS:
        assert query(lab, "pypi.org", resolver=resolver)[-4:] == socket.inet_aton("151.101.0.223")
    assert query(lab, "pypi.org", tcp=True)[-4:] == socket.inet_aton("151.101.0.223")
    assert query(lab, "pypi.org", "AAAA")[-16:] == socket.inet_pton(socket.AF_INET6, "2a04:4e42::223")
    assert lab.asked() == {"pypi.org A": 4, "pypi.org AAAA": 1}
    assert lab.asked_of() == {"9.9.9.9": 3, "149.112.112.112": 1, "2620:fe::fe": 1}
    assert lab.canaries() == {}


def test_names_are_scripted(lab):
    lab.write_names(
        {
            "www.test1.com": {"CNAME": "End.test1.com", "ttl": 5},
            "end.test1.com": {"A": ["1.2.3.4", "1.2.3.5"]},
            "turns.test1.com": {"seq": [{"A": ["1.1.1.1"]}, {"A": ["127.0.0.1"]}]},
            "fails.test1.com": {"rcode": "SERVFAIL"},
            "half.test1.com": {"A": ["1.2.3.4"], "AAAA_rcode": "REFUSED"},
            "mute.test1.com": {"timeout": True},
            "big.test1.com": {"TXT": ["x" * 600]},
            "other.test1.com": {"records": [["elsewhere.test1.com", "A", "1.2.3.4"]]},
            "hint.test1.com": {"HTTPS": ["1 . ipv4hint=10.0.0.5"]},
        }
    )
    chain = query(lab, "www.test1.com")
    assert b"\3End\5test1\3com\0" in chain and socket.inet_aton("1.2.3.5") in chain and chain[7] == 3
    assert [query(lab, "turns.test1.com")[-4:] for _ in range(3)] == [
        b"\1\1\1\1",
        b"\x7f\0\0\1",
        b"\x7f\0\0\1",
    ]
    assert query(lab, "fails.test1.com")[3] & 15 == 2
    assert query(lab, "half.test1.com")[3] & 15 == 0 and query(lab, "half.test1.com", "AAAA")[3] & 15 == 5
    assert query(lab, "nobody.test1.com")[3] & 15 == 3
    with pytest.raises(TimeoutError):
        query(lab, "mute.test1.com", within_s=0.2)
    assert query(lab, "big.test1.com", "TXT")[2] & 2 and len(query(lab, "big.test1.com", "TXT", tcp=True)) > 600
    assert b"\11elsewhere" in query(lab, "other.test1.com")
    assert query(lab, "hint.test1.com", "HTTPS").endswith(b"\0\1\0\0\4\0\4\x0a\0\0\5")
    lab.start_over()
    assert query(lab, "www.test1.com")[3] & 15 == 3


def test_a_muted_resolver_hears_and_says_nothing(lab):
    lab.mute("9.9.9.9")
    with pytest.raises(TimeoutError):
        query(lab, "pypi.org", within_s=0.2)
    assert query(lab, "pypi.org", resolver="149.112.112.112")[-4:] == socket.inet_aton("151.101.0.223")
    assert lab.asked_of()["9.9.9.9"] == 1


def test_sites_serve_with_certificates_of_the_lab_authority(lab, tmp_path):
    page = curl(lab, tmp_path, "--resolve", "pypi.org:443:151.101.0.223", "https://pypi.org/simple/")
    assert (page.returncode, "stockade-greeting" in page.stdout) == (0, True)
    wrong = lab.run(["curl", "-sS", "--resolve", "pypi.org:443:151.101.0.223", "https://pypi.org/"])
    assert wrong.returncode == 60  # nobody trusts this authority who was not told to
    assert [(one["address"], one["port"]) for one in lab.requests()] == [("151.101.0.223", 443)]


def test_git_clones_from_the_lab(lab, tmp_path):
    ca = tmp_path / "ca.pem"
    ca.write_text(lab.root_pem)
    options = ["-c", f"http.sslCAInfo={ca}", "-c", "http.curloptResolve=github.com:443:140.82.121.3"]
    url, there = "https://github.com/acme/greeting.git", str(tmp_path / "clone")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_TERMINAL_PROMPT": "0"}
    done = lab.run(["git", *options, "clone", "-q", url, there], env=environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "clone" / "README").read_text() == "Hello from inside the lab.\n"


@pytest.mark.parametrize(
    "address, port",
    [
        ("169.254.169.254", 80),
        ("10.0.0.5", 443),
        ("100.100.100.200", 80),
        ("168.63.129.16", 80),
        ("fd00:ec2::254", 80),
        ("127.0.0.1", 80),
        ("127.8.8.8", 22),
        ("::1", 6379),
        ("192.0.2.2", 80),
        ("8.8.8.8", 53),
    ],
)
def test_a_canary_accepts_and_counts(lab, address, port):
    with lab.socket("gateway", socket.AF_INET6 if ":" in address else socket.AF_INET) as client:
        client.settimeout(5)
        client.connect((address, port))
        if port != 443:
            assert client.recv(100) == CANARY_WORDS
    host = f"[{address}]" if ":" in address else address
    assert lab.canaries() == {f"{host}:{port}/tcp": 1}


def test_canaries_count_any_port_any_datagram_and_pings(lab):
    with pytest.raises(ConnectionRefusedError):
        say(lab, "10.9.8.7", 4_321)
    with lab.socket("gateway", socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"x", ("8.8.8.8", 53))
        client.sendto(b"x", ("93.184.215.14", 443))  # to an origin: an attempt, and nobody's canary
    with lab.socket("gateway", socket.AF_INET6, socket.SOCK_DGRAM) as client:
        client.sendto(b"x", ("2001:4860:4860::8888", 53))
    assert lab.canaries() == {
        "10.9.8.7:4321/tcp": 1,
        "8.8.8.8:53/udp": 1,
        "[2001:4860:4860::8888]:53/udp": 1,
    }
    assert lab.attempts()["93.184.215.14:443/udp"] == 1
    lab.expect("10.9.8.7:4321")
    assert "10.9.8.7:4321/tcp" not in lab.canaries()


def test_peers_behave_and_misbehave(lab):
    data = bytes(range(256)) * 4_000
    assert say(lab, "93.184.215.14", ECHO, b"hello", end=True) == b"hello"
    assert say(lab, "140.82.121.3", SSH, b"SSH-2.0-x\r\n") == SSH_BANNER
    assert say(lab, "93.184.215.14", DIGEST, data, end=True).split()[0] == b"1024000"
    assert len(say(lab, "93.184.215.14", POURS, most=1 << 30)) == POURS_BYTES
    assert say(lab, "93.184.215.14", 1001) == b""
    with pytest.raises(ConnectionResetError):
        say(lab, "93.184.215.14", 1002)
    assert say(lab, "93.184.215.14", 1004, b"x", end=True) == b"That was all.\n"


def test_http_misbehaviour_is_asked_for_in_the_path(lab, tmp_path):
    site = "http://93.184.215.14"
    assert curl(lab, tmp_path, f"{site}/lab/status?code=417").stdout == "As you asked.\n"
    for how in ("", "&chunked=1", "&unsized=1"):
        sized = curl(lab, tmp_path, "-o", "/dev/null", "-w", "%{size_download}", f"{site}/lab/bytes?n=300000{how}")
        assert sized.stdout == "300000"
    echoed = curl(lab, tmp_path, "-H", "X-One: two", "-d", "abc", f"{site}/lab/echo").stdout
    assert "X-One: two" in echoed and '"body_bytes": 3' in echoed
    raw = say(lab, "93.184.215.14", 80, b"GET /lab/raw?b64=SFRUUC8xLjEgMjAwIE9LCgo HTTP/1.1\r\nHost: x\r\n\r\n")
    assert raw == b"HTTP/1.1 200 OK\n\n"
    assert curl(lab, tmp_path, f"{site}/lab/reset").returncode == 56
    assert curl(lab, tmp_path, f"{site}/lab/close").returncode == 52


def test_networks_break_and_mend(lab):
    lab.break_network("93.184.215.14/32", "unreachable")
    with pytest.raises(OSError, match="No route to host"):
        say(lab, "93.184.215.14", ECHO, b"x", end=True)
    lab.break_network("93.184.215.14/32", None)
    assert say(lab, "93.184.215.14", ECHO, b"x", end=True) == b"x"
    lab.close_port(ECHO)
    with pytest.raises(ConnectionRefusedError):
        say(lab, "93.184.215.14", ECHO)
    lab.break_network("93.184.215.14/32", "blackhole")
    lab.start_over()
    assert say(lab, "93.184.215.14", ECHO, b"x", end=True) == b"x"


def test_an_unknown_order_is_refused_and_the_lab_goes_on(lab):
    with pytest.raises(Broken, match="could not dance"):
        lab._order("dance")
    assert lab.asked() == {}


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_everything_dies_with_its_owner(how):
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from stockade.lab.lab import Lab\n"
        "lab = Lab(); child = lab.popen(['sleep', '60'])\n"
        "print(lab.pid, child.pid, flush=True); sys.stdin.readline(); lab.close(); child.kill()\n"
    )
    owner = subprocess.Popen([sys.executable, "-I", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pids = [int(word) for word in owner.stdout.readline().split()]
    assert all(_lives(pid) for pid in pids)
    if how == "killed":
        owner.send_signal(signal.SIGKILL)
    owner.communicate("\n" if how == "closed" else None, timeout=10)
    until_s = time.monotonic() + 5
    while any(_lives(pid) for pid in pids) and time.monotonic() < until_s:
        time.sleep(0.02)
    assert not [pid for pid in pids if _lives(pid)]


def _lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_links_say_what_the_kernel_said():
    with Links() as links:
        with pytest.raises(Broken, match="no network interface 'nonesuch'"):
            links.bring_up("nonesuch")
        assert "lo" in {link.name for link in links.all()}


def test_a_bulk_transfer_leaves_the_watch_alone(lab):
    for _ in range(2):
        assert len(say(lab, "93.184.215.14", POURS, most=1 << 30)) == POURS_BYTES
    for number in range(300):
        with lab.socket("gateway", socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"x", ("10.0.0.7", 1_000 + number))
    assert len(lab.canaries()) == 300
    assert lab.attempts()[f"93.184.215.14:{POURS}/tcp"] == 2


@pytest.mark.parametrize(
    "packet, named",
    [
        ("45000028000000004006000001020304 0a000005 0001 0050 00000000 00000000 5002", "10.0.0.5:80/tcp"),
        ("45000028000000004006000001020304 0a000005 0001 0050 00000000 00000000 5012", None),
        ("45000028000000004006000001020304 0a000005 0001 0050 00000000 00000000 5010", None),
        ("46000028000000004006000001020304 0a000005 00000000 0001 0050 00000000 00000000 5002", "10.0.0.5:80/tcp"),
        ("45000028000000004011000001020304 08080808 0001 0035 0008 0000", "8.8.8.8:53/udp"),
        ("45000028000000004001000001020304 08080808 0800 0000", "8.8.8.8:0/ping"),
        ("45000028000000004001000001020304 08080808 0301 0000", None),
        ("45000028000000004084000001020304 08080808 0001 0035", "8.8.8.8:0/132"),
        ("6000000000143a40" + "00" * 16 + "fd000ec2" + "00" * 10 + "0254 8000", "[fd00:ec2::254]:0/ping"),
        ("6000000000143a40" + "00" * 16 + "fd000ec2" + "00" * 10 + "0254 8700", None),
        ("", None),
        ("45", None),
    ],
)
def test_a_packet_is_named_by_where_it_begins_something(packet, named):
    assert describe(bytes.fromhex(packet)) == named


def test_a_thousand_idle_connections_are_held_and_let_go(lab):
    def held():
        return len(os.listdir(f"/proc/{lab.pid}/fd"))

    before = held()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    clients = [lab.socket("gateway") for _ in range(1_100)]
    for client in clients:
        client.settimeout(10)
        client.connect(("93.184.215.14", 1003))
    assert _within(10, lambda: held() >= before + 1_100)
    for client in clients:
        client.close()
    assert _within(10, lambda: held() <= before + 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _within(most_s, holds):
    until_s = time.monotonic() + most_s
    while not holds() and time.monotonic() < until_s:
        time.sleep(0.05)
    return holds()
