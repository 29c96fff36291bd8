"""This machine's addresses, against what `ip` says in a network namespace of the test's own."""

import json
import multiprocessing
import os
import subprocess
import time
from ipaddress import ip_address
from pathlib import Path

import pytest

from policy.errors import Broken
from policy.host import Address
from proxy import own
from proxy.crash import Crashes
from proxy.loop import Loop
from proxy.own import OwnAddresses, own_addresses


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
