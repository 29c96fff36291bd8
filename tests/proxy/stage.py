"""A stage for forwarding: the real gate and forwarder in a thread, raw clients, and scripted origins."""

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address

from policy.answer import Answer, Pin
from policy.destination import Destination, read_authority
from policy.document import parse
from policy.host import Name
from policy.layers import combine
from policy.verdict import Reason
from proxy.crash import Crashes
from proxy.dial import Dialled
from proxy.forward import Forward
from proxy.gate import Gate, Opened
from proxy.loop import IN, Loop
from proxy.session import Session

POLICY = """
version = 1
[[grant]]
hosts = ["a.example.com", "b.example.com", "read.example.com"]
ports = [80, 8080]
[[refuse]]
hosts = ["evil.example.com"]
"""
ADDRESSES = {"a.example.com": "93.184.215.14", "b.example.com": "93.184.215.15"}


class Conn:
    """One accepted connection of an origin, read by what it should have got."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock = sock
        self.number = number
        self.buffer = bytearray()
        self.seen = bytearray()

    def more(self, most: int = 65_536) -> bytes:
        data = self.sock.recv(most)
        self.seen += data
        self.buffer += data
        return data

    def until(self, mark: bytes) -> bytes:
        """Through the next `mark`; what there is, when the end comes first."""
        while mark not in self.buffer:
            if not self.more():
                return self.take(len(self.buffer))
        return self.take(self.buffer.index(mark) + len(mark))

    def take(self, count: int) -> bytes:
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken

    def exactly(self, count: int) -> bytes:
        while len(self.buffer) < count and self.more(count - len(self.buffer)):
            pass
        return self.take(count)

    def request(self) -> tuple[bytes, bytes] | None:
        """Head and payload of the next request, read the naive way; None at the end."""
        head = self.until(b"\r\n\r\n")
        if not head:
            return None
        return head, self.payload(head)

    def payload(self, head: bytes) -> bytes:
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            pieces = []
            while size := int(self.until(b"\r\n"), 16):
                pieces.append(self.exactly(size))
                assert self.exactly(2) == b"\r\n"
            assert self.until(b"\r\n") == b"\r\n"
            return b"".join(pieces)
        if b"content-length: " in lower:
            return self.exactly(int(lower.split(b"content-length: ")[1].split(b"\r\n")[0]))
        return b""

    def say(self, *parts: bytes) -> None:
        for part in parts:
            self.sock.sendall(part)


type Script = Callable[[Conn], None]


class Origin:
    """A listener on loopback; every connection runs `script` in a thread of its own."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.conns: list[Conn] = []
        self.faults: list[BaseException] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.settimeout(30)
            conn = Conn(sock, len(self.conns))
            self.conns.append(conn)
            thread = threading.Thread(target=self._run, args=(conn,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, conn: Conn) -> None:
        try:
            self.script(conn)
        except (OSError, AssertionError, ValueError) as fault:
            self.faults.append(fault)
        finally:
            conn.sock.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for conn in self.conns:
            try:
                conn.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join(10)


class Stage:
    """Proxy and origin; `client()` connects to the proxy. Close it, and nothing is left."""

    def __init__(self, script: Script, *, within: str | None = None, **limits: float) -> None:
        self.origin = Origin(script)
        self.records: list[dict[str, object]] = []
        self.dialled: list[Pin] = []
        self.live_count = 0
        self.loop = Loop(crashes=Crashes(write=self._crashed))
        self.crashes: list[str] = []
        policy = combine([parse(POLICY, "test.toml")])
        limits = {"greeting_s": 5.0, "idle_s": 20.0, "drain_s": 4.0, **limits}
        # A policy file may not ask for so little: it would cut tunnels that are only quiet.
        policy = replace(policy, limits=replace(policy.limits, **limits))
        self.session = Session("test", policy)
        self.gate = Gate(self.loop, self, self, dials=self._dial)
        self._within = read_authority(within) if within else None
        self._buffer = memoryview(bytearray(65_536))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._wake, self._woken = socket.socketpair()
        self._calls: list[Callable[[], None]] = []
        self._clients: list[socket.socket] = []
        self.loop.watch(self._listener.fileno(), IN, self._accept)
        self.loop.watch(self._woken.fileno(), IN, self._call)
        self._thread = threading.Thread(target=self.loop.run, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        self.origin.close()
        self.wait(lambda: self.live_count == 0)
        self.do(self.loop.stop)
        self._thread.join(10)
        self.loop.forget(self._listener.fileno())
        self.loop.forget(self._woken.fileno())
        self.loop.close()
        for sock in (self._listener, self._wake, self._woken):
            sock.close()
        assert self.crashes == []

    def do(self, call: Callable[[], None]) -> None:
        """Call in the loop's thread."""
        self._calls.append(call)
        self._wake.send(b"x")

    def wait(self, true: Callable[[], object], most_s: float = 10.0) -> None:
        until_s = time.monotonic() + most_s
        while not true():
            assert time.monotonic() < until_s, "it did not come about in time"
            time.sleep(0.005)

    def client(self) -> socket.socket:
        client = socket.create_connection(self._listener.getsockname())
        client.settimeout(30)
        self._clients.append(client)
        return client

    def ask(self, *parts: bytes, ends: bool = True) -> bytes:
        """Send all of it, and return all that comes until the proxy closes."""
        client = self.client()
        for part in parts:
            client.sendall(part)
        if ends:
            client.shutdown(socket.SHUT_WR)
        return everything(client)

    def events(self, event: str) -> list[dict[str, object]]:
        return [record for record in self.records if record["event"] == event]

    # --- what the gate asks of a resolver, a journal and a dialler

    def lookup(self, name: Name, done: Callable[[Answer], None]) -> Callable[[], None]:
        address = ADDRESSES.get(name, "93.184.215.16")
        done(Answer(name, (ip_address(address),)))
        return lambda: None

    def write(self, record: dict[str, object]) -> None:
        self.records.append(record)

    def _dial(self, _loop: Loop, pin: Pin, _connect_s: float, done: Callable[[Dialled], None]) -> Callable[[], None]:
        self.dialled.append(pin)
        upstream = socket.create_connection(self.origin.address)
        upstream.setblocking(False)
        done(Dialled(upstream, Destination(pin.addresses[0], pin.port), Reason.GRANTED, ""))
        return lambda: None

    def _accept(self, _mask: int) -> None:
        client, _ = self._listener.accept()
        client.setblocking(False)
        self.live_count += 1
        if self._within is None:
            self._forward(client)
        else:
            self.gate.open(self.session, self._within, "connect", lambda opened: self._forward(client, opened))

    def _forward(self, client: socket.socket, within: Opened | None = None) -> None:
        entry = "connect" if within else "http"
        flow = Forward(
            self.loop, self.gate, self.session, client,
            buffer=self._buffer, done=self._ended, entry=entry, within=within,
        )  # fmt: skip
        flow.start(b"")

    def _ended(self) -> None:
        self.live_count -= 1

    def _call(self, _mask: int) -> None:
        self._woken.recv(1)
        self._calls.pop(0)()

    def _crashed(self, text: str) -> None:
        self.crashes.append(text)


def everything(client: socket.socket) -> bytes:
    """All that comes until the end; a reset raises."""
    got = bytearray()
    while data := client.recv(65_536):
        got += data
    return bytes(got)


def get(host: str = "a.example.com", path: str = "/", *fields: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} http://{host}{path} HTTP/1.1", f"Host: {host}", *fields, "", ""]).encode()


def echo(conn: Conn) -> None:
    """Answers each request with `METHOD target payload`."""
    while request := conn.request():
        head, payload = request
        body = head.split(b" HTTP/")[0] + b" " + payload
        conn.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def response(client: socket.socket, *, head_only: bool = False) -> tuple[bytes, bytes]:
    """The next whole response, read the naive way."""
    conn = Conn(client, 0)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        octet = client.recv(1)
        if not octet:
            raise ConnectionError(f"the connection ended inside a head: {head!r}")
        head += octet
    return head, b"" if head_only else conn.payload(head)
