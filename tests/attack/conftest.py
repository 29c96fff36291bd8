"""The lab and the proxy in it, and clients that say exactly the bytes a test wants said."""

import socket
import struct
from ipaddress import ip_address

import pytest

from tests.walk.conftest import ca_file, lab, one_lab, start_proxy

__all__ = ["ca_file", "lab", "one_lab", "start_proxy"]

POLICY = """
version = 1
[[grant]]
name = "what the attacker may have"
hosts = ["example.com", "*.example.net"]
ports = [80, 443]
"""


class Client:
    """Says bytes to one proxy, a connection for each word, and gives back all that was said in return."""

    def __init__(self, proxy, within_s: float = 10.0) -> None:
        self.proxy = proxy
        self.within_s = within_s

    def say(self, *pieces: bytes, end: bool = False) -> bytes:
        """Everything the proxy answers until it closes, or stays silent for a second after its first byte."""
        with self.proxy.connect(self.within_s) as connection:
            for piece in pieces:
                connection.sendall(piece)
            if end:
                connection.shutdown(socket.SHUT_WR)
            return read_all(connection)

    def connect(self, authority: bytes, *after: bytes) -> bytes:
        return self.say(b"CONNECT " + authority + b" HTTP/1.1\r\nHost: " + authority + b"\r\n\r\n", *after)

    def get(self, url: bytes, host: bytes) -> bytes:
        return self.say(b"GET " + url + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")

    def socks_name(self, name: bytes, port: int) -> bytes:
        return self.say(b"\x05\x01\x00", b"\x05\x01\x00\x03" + bytes([len(name)]) + name + struct.pack(">H", port))[2:]

    def socks_address(self, address: str, port: int) -> bytes:
        packed = ip_address(address).packed
        kind = b"\x01" if len(packed) == 4 else b"\x04"
        return self.say(b"\x05\x01\x00", b"\x05\x01\x00" + kind + packed + struct.pack(">H", port))[2:]


def read_all(connection: socket.socket) -> bytes:
    got = b""
    try:
        while piece := connection.recv(65_536):
            got += piece
            connection.settimeout(1.0)
    except (TimeoutError, ConnectionResetError):
        pass
    return got


@pytest.fixture
def client(start_proxy) -> Client:
    """An attacker's client, of a proxy under POLICY."""
    return Client(start_proxy(POLICY))
