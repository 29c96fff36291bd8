"""This machine's addresses, against what `ip` says in a network namespace of the test's own."""

import errno
import json
import multiprocessing
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

import pytest

from policy.errors import Broken
from policy.host import Address
from proxy import own
from proxy.crash import Crashes
from proxy.loop import Loop
from proxy.own import OwnAddresses, own_addresses

type Said = Callable[[int], bytes]


def inside() -> None:
    """In a forked child: a user and network namespace with nothing in it."""
    uid, gid = os.geteuid(), os.getegid()
    os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNET)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    assert own_addresses() == frozenset()
    loop = Loop()
    told: list[frozenset[Address]] = []
    watched = OwnAddresses(loop, told.append)
    watched.start()
    assert told == [frozenset()]
    steps = ["link set lo up", "addr add 10.1.2.3/24 dev lo", "addr add 2001:db8::5/64 dev lo"]
    steps += [f"addr add 10.2.{at}.1/32 dev lo" for at in range(150)]
    for step in steps:
        subprocess.run(["ip", *step.split()], check=True)
        end = time.monotonic() + 5
        while told[-1] != own_addresses() and time.monotonic() < end:
            loop.turn(0.2)
        assert told[-1] == own_addresses(), step
    subprocess.run(["ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"], check=True)
    subprocess.run(["ip", "addr", "add", "10.9.0.1", "peer", "10.9.0.2", "dev", "v0"], check=True)
    said = json.loads(subprocess.run(["ip", "-j", "addr"], check=True, capture_output=True).stdout)
    theirs = {ip_address(each["local"]) for link in said for each in link["addr_info"]}
    assert own_addresses() == theirs
    assert len(theirs) == 5 + 150
    assert ip_address("10.9.0.1") in theirs
    assert ip_address("10.9.0.2") not in theirs
    watched.stop()
    watched.stop()
    loop.close()


def test_own_addresses_are_what_ip_lists_and_changes_are_told() -> None:
    child = multiprocessing.get_context("fork").Process(target=inside)
    child.start()
    child.join(60)
    assert child.exitcode == 0


def test_loopback_is_own() -> None:
    assert ip_address("127.0.0.1") in own_addresses()


def test_a_list_that_cannot_be_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(crashes=Crashes())
    told: list[frozenset[Address]] = []
    watched = OwnAddresses(loop, told.append)
    watched.start()
    monkeypatch.setattr(own, "NETLINK_S", 0.05)
    watched.fail(Broken("netlink"))
    end = time.monotonic() + 5
    while len(told) < 2 and time.monotonic() < end:
        loop.turn(0.2)
    watched.stop()
    loop.close()
    assert len(told) == 2


def message(kind: int, body: bytes = b"", flags: int = 0, sequence: int | None = None, length: int | None = None) -> Said:
    """A netlink message of this kind in reply to a request's sequence number (netlink(7))."""

    def build(asked: int) -> bytes:
        number = asked if sequence is None else sequence
        return struct.pack("=IHHII", 16 + len(body) if length is None else length, kind, flags, number, 0) + body

    return build


def address(packed: bytes, kind: int = 2) -> bytes:
    """An ifaddrmsg with one attribute, IFA_LOCAL or IFA_ADDRESS (1)."""
    return struct.pack("=BBBBI", 2, 24, 0, 0, 1) + struct.pack("=HH", 4 + len(packed), kind) + packed


DONE = message(3, b"\0\0\0\0")
ONE = message(20, address(b"\x0a\1\2\3"))

KERNELS: list[tuple[str, list[Said], set[str] | str]] = [
    # what, what the kernel says to each request, addresses or part of the error
    ("one", [ONE, DONE], {"10.1.2.3"}),
    ("nothing", [DONE], set()),
    ("another request's", [message(20, address(b"\x0a\1\2\4"), sequence=77), message(3, sequence=77), ONE, DONE], {"10.1.2.3"}),
    ("a mapped one", [message(20, address(bytes(10) + b"\xff\xff\x0a\1\2\3")), DONE], {"10.1.2.3"}),
    ("IFA_ADDRESS alone", [message(20, address(b"\x0a\1\2\3", 1)), DONE], {"10.1.2.3"}),
    ("an attribute without a length", [message(20, struct.pack("=BBBBIHH", 2, 24, 0, 0, 1, 0, 2)), DONE], set()),
    ("refused", [message(2, struct.pack("=i", -errno.EPERM))], "Operation not permitted"),
    ("a message without a length", [message(20, length=0)], "without a length"),
    ("changing all the time", [message(20, address(b"\x0a\1\2\3"), flags=0x10), message(3, flags=0x10)], "changed faster"),
    ("silent", [], "timed out"),
    ("unfinished", [ONE], "timed out"),
]


@pytest.mark.parametrize(("what", "says", "expected"), KERNELS, ids=[row[0] for row in KERNELS])
def test_what_the_kernel_may_say(what: str, says: list[Said], expected: set[str] | str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    def answer() -> None:
        while request := kernel.recv(100):
            asked = struct.unpack_from("=I", request, 8)[0]
            for said in says:
                kernel.send(said(asked))

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    monkeypatch.setattr(own, "_open", lambda: ours)
    monkeypatch.setattr(own, "NETLINK_S", 0.2)
    try:
        if isinstance(expected, str):
            with pytest.raises(Broken, match=expected):
                own_addresses()
        else:
            assert own_addresses() == {ip_address(text) for text in expected}, what
        assert ours.fileno() == -1
    finally:
        kernel.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        kernel.close()
        ours.close()


def test_lost_messages_are_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOBUFS: the kernel dropped messages, so the list is read afresh all the same (netlink(7))."""

    class Losing(socket.socket):
        def recv(self, *_: object) -> bytes:
            raise OSError(errno.ENOBUFS, "No buffer space available")

    ours, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    losing = Losing(fileno=ours.detach())
    real = own._open
    monkeypatch.setattr(own, "_open", lambda groups=0: losing if groups else real())
    loop = Loop()
    told: list[frozenset[Address]] = []
    watched = OwnAddresses(loop, told.append)
    watched.start()
    kernel.send(b"x")
    loop.turn(1)
    watched.stop()
    kernel.close()
    loop.close()
    assert told == [own_addresses()] * 2
