"""What a confined command tries in order to send one packet past the proxy. It all happens where there is no way out."""

import json
import os
import socket

import pytest

from tests.confined import WAYS, run, run_json, scratch

both = pytest.mark.parametrize("way", WAYS)

REACH = r"""
import errno, json, os, socket, sys
told = {}
host_port, host_path = int(sys.argv[1]), sys.argv[2]
def attempt(name, family, kind, place, protocol=0):
    try:
        client = socket.socket(family, kind, protocol)
    except OSError as error:
        told[name] = errno.errorcode[error.errno]
        return
    client.settimeout(2)
    try:
        client.connect(place)
        client.send(b"x")
        told[name] = "REACHED"
    except TimeoutError:
        told[name] = "SILENCE"
    except OSError as error:
        told[name] = errno.errorcode.get(error.errno, str(error))
four, six, unix, tcp, udp = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.SOCK_STREAM, socket.SOCK_DGRAM
for address in ("203.0.113.9", "198.51.100.1", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254",
                "168.63.129.16", "224.0.0.1", "255.255.255.255"):
    attempt("tcp " + address, four, tcp, (address, 443))
    attempt("udp " + address, four, udp, (address, 53))
for address in ("2001:db8::1", "fd00:ec2::254", "fe80::1", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"):
    attempt("tcp " + address, six, tcp, (address, 443))
    attempt("udp " + address, six, udp, (address, 53))
for port in (22, 53, 80, 443, 3128, 8080, host_port):
    attempt(f"tcp 127.0.0.1:{port}", four, tcp, ("127.0.0.1", port))
    attempt(f"tcp ::1:{port}", six, tcp, ("::1", port))
attempt("icmp", four, socket.SOCK_DGRAM, ("203.0.113.9", 0), socket.IPPROTO_ICMP)
attempt("raw", four, socket.SOCK_RAW, ("203.0.113.9", 0), socket.IPPROTO_ICMP)
attempt("sctp", four, socket.SOCK_STREAM, ("203.0.113.9", 443), 132)
attempt("mptcp", four, socket.SOCK_STREAM, ("203.0.113.9", 443), 262)
attempt("packet", socket.AF_PACKET, socket.SOCK_RAW, ("lo", 0))
# No AF_VSOCK: a network namespace does not confine it, and without a loopback transport every CID is the hypervisor's.
attempt("abstract", unix, tcp, "\0" + host_path)
for path in (host_path, "/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"):
    attempt("unix " + path, unix, tcp, path)
try:
    socket.getaddrinfo("example.com", 443)
    told["dns"] = "REACHED"
except OSError as error:
    told["dns"] = "EAI"
links = open("/proc/net/dev").read().splitlines()[2:]
routes = open("/proc/net/route").read().splitlines()[1:]
routes6 = [r for r in open("/proc/net/ipv6_route").read().splitlines() if not r.endswith(" lo")]
print(json.dumps([told, [l.split(":")[0].strip() for l in links], routes, routes6]))
"""


@both
def test_nothing_is_reached_around_the_proxy(way):
    with (
        scratch(way) as directory,
        socket.create_server(("127.0.0.1", 0)) as host,
        socket.socket(socket.AF_UNIX) as local,
    ):
        path = str(directory / "host.sock")
        local.bind(path)
        local.listen()
        os.chmod(path, 0o777)
        with socket.socket(socket.AF_UNIX) as abstract:
            abstract.bind("\0" + path)
            abstract.listen()
            ended = run(way, "--", "python3", "-I", "-c", REACH, str(host.getsockname()[1]), path)
    told, links, routes, routes6 = json.loads(ended.stdout)
    assert len(told) > 50
    assert [name for name, how in told.items() if how in ("REACHED", "SILENCE")] == []
    assert "lo" in links
    assert (routes, routes6) == ([], [])


@both
def test_no_right_inside_can_change_the_network(way):
    script = """
    ip link add veth0 type veth peer name veth1 2>/dev/null && echo LINK
    ip route add default dev lo 2>/dev/null && echo ROUTE
    ip addr add 10.0.0.1/8 dev lo 2>/dev/null && echo ADDRESS
    ip link set lo down 2>/dev/null && echo DOWN
    nft add table inet x 2>/dev/null && echo TABLE
    unshare --user --map-root-user ip link set lo down 2>/dev/null && echo NESTED
    nsenter --net=/proc/1/ns/net ip link set lo down 2>/dev/null && echo ENTERED
    (echo 1 > /proc/sys/net/ipv4/ip_forward) 2>/dev/null && echo FORWARD
    exit 0
    """
    told = run_json(way, "--", "sh", "-c", script)
    assert (told["exit"], told["stdout"]) == (0, "")


@both
def test_the_offline_network_has_no_proxy_at_all(way):
    script = "env | grep -i proxy; bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128' 2>/dev/null && echo REACHED; exit 0"
    told = run_json(way, "--", "sh", "-c", script)
    assert (told["network"], told["stdout"]) == ("offline", "")


@both
def test_the_commands_own_loopback_works(way):
    script = """
import socket
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    with socket.create_server((address, 8000), family=family) as server, socket.create_connection((address, 8000)) as client:
        client.sendall(b"hello"); peer, _ = server.accept(); print(peer.recv(10).decode())
"""
    assert run(way, "--", "python3", "-I", "-c", script).stdout == b"hello\nhello\n"
