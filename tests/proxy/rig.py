"""A whole front over loopback: real sockets and real reading, with names and addresses that lead to origins of the test.

The policy judges public names and addresses as it would anywhere; only the last step, the dial, goes to a loopback
port in place of the pinned address, since the floor admits no loopback.
"""

import socket
import threading
import time
from collections.abc import Callable
from ipaddress import ip_address

from policy.answer import Answer, Pin
from policy.destination import Destination
from policy.document import parse
from policy.host import Name
from policy.layers import Policy, combine
from policy.limits import COPY_BYTES
from policy.verdict import Reason
from proxy.crash import Crashes
from proxy.dial import Dialled, dial
from proxy.flow import Plane
from proxy.front import Front, Listener
from proxy.gate import Gate
from proxy.loop import IN, Loop
from proxy.session import Session

PUBLIC = "93.184.215.14"
GRANTS = """
version = 1
[[grant]]
name = "example"
hosts = ["example.com", "two.example.com"]
ports = [443, 80, 22]
[[grant]]
name = "one address"
addresses = ["93.184.215.14/32"]
ports = [443, 22]
"""


def policy(text: str = GRANTS, **limits: float) -> Policy:
    lines = "".join(f"{name} = {value}\n" for name, value in limits.items())
    return combine([parse(f"{text}\n[limits]\n{lines}", "test.toml")])


class Names:
    """Every name asked for has PUBLIC, at once."""

    def __init__(self) -> None:
        self.asked: list[Name] = []

    def lookup(self, name: Name, done: Callable[[Answer], None]) -> Callable[[], None]:
        self.asked.append(name)
        done(Answer(name, (ip_address(PUBLIC),)))
        return lambda: None


class Lines(list):
    """A journal in a list."""

    def write(self, entry) -> None:
        self.append(entry)

    def reasons(self) -> list[str]:
        return [line["reason"] for line in self if line["event"] == "verdict"]

    def ends(self) -> list[dict]:
        return [line for line in self if line["event"] == "end"]


class Rig:
    """A running front: its loop turns in a thread of its own until the `with` block is left."""

    def __init__(self, rules: Policy | None = None) -> None:
        self.printed: list[str] = []
        self.loop = Loop(crashes=Crashes(self.printed.append))
        self.names, self.journal = Names(), Lines()
        self.origin_port = 0
        """Where every dial goes; 0: nowhere, until `release`."""
        self.held = []
        self.gate = Gate(self.loop, self.names, self.journal, dials=self._dial)
        self.session = Session("s1", rules or policy())
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        plane = Plane(self.loop, self.gate, memoryview(bytearray(COPY_BYTES)))
        self.front = Front(plane, (Listener(listener, self.session),))
        self._orders: list[tuple[Callable[[], object], threading.Event, list]] = []
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self.loop.watch(self._woken.fileno(), IN, self._obey)
        self._thread = threading.Thread(target=self.loop.run, daemon=True)

    def __enter__(self) -> "Rig":
        self.front.start()
        self._thread.start()
        return self

    def __exit__(self, *_exc) -> None:
        self.order(lambda: (self.front.close("stopped"), self.loop.stop()))
        self._thread.join(5)
        assert not self._thread.is_alive()
        self.loop.close()
        self._wake.close()
        self._woken.close()

    def order(self, call: Callable[[], object]) -> object:
        """Run something in the loop's thread, and wait for it."""
        done, result = threading.Event(), []
        self._orders.append((call, done, result))
        self._wake.send(b"x")
        assert done.wait(10)
        return result[0]

    def _obey(self, _mask: int) -> None:
        self._woken.recv(100)
        while self._orders:
            call, done, result = self._orders.pop(0)
            try:
                result.append(call())
            finally:
                done.set()

    def _dial(self, loop, pin: Pin, connect_s, done):
        def told(dialled: Dialled) -> None:
            peer = Destination(pin.addresses[0], pin.port) if dialled.upstream else None
            done(Dialled(dialled.upstream, peer, dialled.reason, dialled.detail))

        if not self.origin_port:
            self.held.append((pin, told))
            return lambda: None
        there = Pin(pin.host, (ip_address("127.0.0.1"),), self.origin_port)
        return dial(loop, there, connect_s, told)

    def refuse_held(self, reason: Reason) -> None:
        self.order(lambda: self.held.pop(0)[1](Dialled(None, None, reason, "as told")))

    def client(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port))
        client.settimeout(10)
        return client

    def until(self, true: Callable[[], object], most_s: float = 10.0) -> None:
        until_s = time.monotonic() + most_s
        while not true():
            assert time.monotonic() < until_s, "it did not come to that in time"
            time.sleep(0.005)


class Origin:
    """Accepts on a loopback port, and keeps what it accepted for the test to talk on."""

    def __init__(self, rig: Rig | None = None, backlog: int = 4096) -> None:
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(backlog)
        self.listener.settimeout(10)
        self.port = self.listener.getsockname()[1]
        self.accepted: list[socket.socket] = []
        if rig is not None:
            rig.origin_port = self.port

    def accept(self) -> socket.socket:
        sock, _ = self.listener.accept()
        sock.settimeout(10)
        self.accepted.append(sock)
        return sock

    def close(self) -> None:
        for sock in (self.listener, *self.accepted):
            sock.close()


def socks_request(host: str, port: int) -> bytes:
    return b"\x05\x01\x00\x03" + bytes([len(host)]) + host.encode("latin-1") + port.to_bytes(2)


def connect_request(target: str, more: str = "") -> bytes:
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{more}\r\n".encode()


SOCKS_OK = b"\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
"""The method chosen, and the reply that the upstream is connected."""
CONNECT_OK = b"HTTP/1.1 200 Connection established\r\n\r\n"
