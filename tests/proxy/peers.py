"""Real peers for the data plane's tests: TCP pairs over loopback, threads that talk, and ClientHellos that OpenSSL wrote."""

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable

from proxy.loop import Loop


def pair() -> tuple[socket.socket, socket.socket]:
    """A connected TCP pair: the far end (blocking, with a time-out) and the near end (non-blocking)."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
    far.settimeout(20)
    near.setblocking(False)
    return far, near


def client_hello(name: str | None) -> bytes:
    """What OpenSSL would send to `name`."""
    context = ssl.create_default_context()
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def turn_until(loop: Loop, true: Callable[[], object], most_s: float = 20.0) -> None:
    """Turn the loop until `true()`; fails the test when that takes longer than `most_s`."""
    until_s = time.monotonic() + most_s
    while not true():
        assert time.monotonic() < until_s, "the loop did not get there in time"
        loop.turn(0.02)


class Talk(threading.Thread):
    """Runs one blocking conversation beside the loop; `result` is what it returned or raised."""

    def __init__(self, talk: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._talk = talk
        self.result: object = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._talk()
        except Exception as error:
            self.result = error


def read_all(sock: socket.socket) -> bytes:
    """Everything up to the end of data."""
    parts = []
    while part := sock.recv(262_144):
        parts.append(part)
    return b"".join(parts)


def read_exactly(sock: socket.socket, count: int) -> bytes:
    """`count` bytes, or fewer when the data ends. (MSG_WAITALL does nothing on a socket with a time-out.)"""
    parts = []
    while count and (part := sock.recv(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def closed(sock: socket.socket) -> str:
    """How the peer ended: `eof`, `reset`, or `open`."""
    sock.settimeout(0.2)
    try:
        return "eof" if sock.recv(65_536) == b"" else "data"
    except ConnectionResetError:
        return "reset"
    except TimeoutError:
        return "open"
