"""The namespace: a loopback, the listeners born in it, and nothing else, as root and as an ordinary user."""

import json
import subprocess
import sys

import pytest

from tests.confined import ROOT, WAYS, as_way

PROGRAM = f"""
import json, os, socket, sys
sys.path.insert(0, {str(ROOT)!r})
from firewall import namespace

def inside(made, what):
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            made.join()
            answer = what()
        except BaseException as error:
            answer = repr(error)
        os.write(theirs, json.dumps(answer).encode())
        os._exit(0)
    os.close(theirs)
    said = os.read(ours, 65536)
    os.close(ours)
    os.waitpid(pid, 0)
    return json.loads(said)
"""


def ask(way, body):
    ended = subprocess.run(
        as_way(way, [sys.executable, "-I", "-c", PROGRAM + body]), cwd="/", capture_output=True, timeout=30, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()
    return json.loads(ended.stdout)


@pytest.mark.parametrize("way", WAYS)
def test_a_listener_born_inside_is_served_from_outside(way):
    told = ask(
        way,
        """
made = namespace.make([("127.0.0.1", 3128), ("::1", 3128)])
def talk():
    with socket.socket() as client:
        client.connect(("127.0.0.1", 3128))
        client.sendall(b"hello")
    with socket.socket(socket.AF_INET6) as client:
        client.connect(("::1", 3128))
        client.sendall(b"six")
    return "sent"
sent = inside(made, talk)
heard = []
for listener in made.listeners:
    client, _ = listener.accept()
    heard.append(client.recv(100).decode())
print(json.dumps([sent, heard]))
""",
    )
    assert told == ["sent", ["hello", "six"]]


@pytest.mark.parametrize("way", WAYS)
def test_only_a_loopback_is_there_and_no_route(way):
    told = ask(
        way,
        """
made = namespace.make([("127.0.0.1", 3128)])
import fcntl, struct
def flags(name):  # SIOCGIFFLAGS; kernels may put fall-back tunnels (sit0, tunl0) into each namespace, down
    with socket.socket() as any_socket:
        return struct.unpack("16sH14x", fcntl.ioctl(any_socket, 0x8913, struct.pack("16sH14x", name.encode(), 0)))[1]
def look():
    up = [line.split(":")[0].strip() for line in open("/proc/self/net/dev").read().splitlines()[2:]]
    names = [name for name in up if flags(name) & 1]
    routes = open("/proc/self/net/route").read().splitlines()[1:]
    return [names, routes]
print(json.dumps(inside(made, look)))
""",
    )
    assert told == [["lo"], []]


REACH = """
def reach():
    refused = {}
    for kind, family, how, place in (
        ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("203.0.113.7", 443)),
        ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("10.0.0.1", 80)),
        ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80)),
        ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", PORT)),
        ("tcp6", socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::1", 443)),
        ("tcp6", socket.AF_INET6, socket.SOCK_STREAM, ("fd00:ec2::254", 80)),
        ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("203.0.113.7", 53)),
        ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("255.255.255.255", 67)),
        ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("224.0.0.251", 5353)),
        ("udp6", socket.AF_INET6, socket.SOCK_DGRAM, ("ff02::1%lo", 5353)),
    ):
        with socket.socket(family, how) as client:
            client.settimeout(2)
            try:
                client.connect(place)
                refused[kind + " " + place[0]] = "REACHED" if how == socket.SOCK_STREAM else client.send(b"x")
            except OSError as error:
                refused[kind + " " + place[0]] = error.strerror or "no answer"
    return refused
"""


@pytest.mark.parametrize("way", WAYS)
def test_nothing_else_answers_there(way):
    told = ask(
        way,
        """
host = socket.create_server(("127.0.0.1", 0))  # a service of the host, on the host's own loopback
PORT = host.getsockname()[1]
abstract = socket.socket(socket.AF_UNIX)
abstract.bind("\\0stockade-test-%d" % os.getpid())
abstract.listen()
made = namespace.make([("127.0.0.1", 3128)])
"""
        + REACH
        + """
def both():
    told = reach()
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(abstract.getsockname())
            told["abstract"] = "REACHED"
        except OSError as error:
            told["abstract"] = error.strerror
    return told
print(json.dumps(inside(made, both)))
""",
    )
    # Multicast on the loopback's own link goes nowhere but to itself; everything else must fail in the kernel.
    told.pop("udp6 ff02::1%lo", None)
    assert set(told.values()) <= {
        "Network is unreachable",
        "Connection refused",
        "Permission denied",
        "Cannot assign requested address",
    }, told
    assert len(told) == 10


@pytest.mark.parametrize("way", WAYS)
def test_it_vanishes_with_its_last_descriptor_and_leaks_none(way):
    told = ask(
        way,
        """
def count():
    return len(os.listdir("/proc/self/fd"))
before = count()
for _ in range(20):
    made = namespace.make([("127.0.0.1", 3128), ("::1", 3128)])
    made.close()
after = count()
children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
print(json.dumps([after - before, children, os.path.exists("/run/netns") and [n for n in os.listdir("/run/netns") if "stockade" in n]]))
""",
    )
    assert told[:2] == [0, []]
    assert not told[2]


def test_a_port_that_cannot_be_had_is_said_and_nothing_is_left():
    told = ask(
        WAYS[0],
        """
from policy.errors import Broken
before = len(os.listdir("/proc/self/fd"))
try:
    namespace.make([("127.0.0.1", 3128), ("127.0.0.1", 3128)])
    said = "made"
except Broken as error:
    said = str(error)
print(json.dumps([said, len(os.listdir("/proc/self/fd")) - before]))
""",
    )
    assert told[0].startswith("network namespace: Address already in use")
    assert told[1] == 0
