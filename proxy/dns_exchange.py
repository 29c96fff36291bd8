"""One question to one server: UDP from a port of its own, then TCP when the reply does not fit or was respelled."""

import socket
import struct
from collections.abc import Callable
from errno import EINPROGRESS

from policy.limits import DNS_STRAYS_COUNT, DNS_TCP_BYTES
from proxy.dns_message import Question, Read, read
from proxy.loop import ERR, HUP, IN, OUT, Loop

type Server = tuple[str, int]
"""Address literal and port of a DNS server."""

type Told = Callable[[Read | None], None]
"""Called once: with the reply, or with None when this server can give none."""


class Exchange:
    """Each exchange has a connected socket of its own.

    So the kernel picks a random source port and drops what others send (RFC 5452). It has no clock; whoever
    started it cancels it.
    """

    def __init__(self, loop: Loop, server: Server, question: Question, told: Told) -> None:
        self._loop = loop
        self._server = server
        self._question = question
        self._told: Told | None = told
        self._socket: socket.socket | None = None
        self._strays_count = 0
        self._unsent = b""
        self._received = bytearray()

    def start(self) -> None:
        """Send the question; `told` may be called before this returns."""
        try:
            sock = self._open(socket.SOCK_DGRAM)
            sock.connect(self._server)
            sock.send(self._question.wire)
        except OSError:
            self._tell(None)
            return
        self._loop.watch(sock.fileno(), IN, self._heard_datagram)

    def cancel(self) -> None:
        """Give the socket back and call nobody. Harmless to repeat."""
        self._told = None
        self._close()

    def fail(self, _error: Exception) -> None:
        """A callback raised: this server gives no reply (see `proxy.loop.Fails`)."""
        self._tell(None)

    def _open(self, kind: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._server[0] else socket.AF_INET
        self._socket = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        return self._socket

    def _close(self) -> None:
        if self._socket is not None:
            self._loop.forget(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _tell(self, said: Read | None) -> None:
        told, self._told = self._told, None
        self._close()
        if told is not None:
            told(said)

    def _heard_datagram(self, _mask: int) -> None:
        sock = self._socket
        assert sock is not None
        try:
            wire = sock.recv(65_535)
        except BlockingIOError:
            return
        except OSError:  # the server's machine said that nothing listens there (ICMP)
            self._tell(None)
            return
        said = read(self._question, wire)
        if said is None:  # a guess, or garbage; the true one may still come
            self._strays_count += 1
            if self._strays_count >= DNS_STRAYS_COUNT:
                self._ask_by_stream()
            return
        if said.is_truncated or said.is_respelled:
            self._ask_by_stream()
            return
        self._tell(said)

    def _ask_by_stream(self) -> None:
        """RFC 7766: the same question with its length before it, on a connection of its own."""
        self._close()
        self._unsent = struct.pack(">H", len(self._question.wire)) + self._question.wire
        try:
            sock = self._open(socket.SOCK_STREAM)
            code = sock.connect_ex(self._server)
        except OSError:
            self._tell(None)
            return
        if code not in {0, EINPROGRESS}:
            self._tell(None)
            return
        self._loop.watch(sock.fileno(), OUT, self._stream_ready)

    def _stream_ready(self, mask: int) -> None:
        sock = self._socket
        assert sock is not None
        try:
            if self._unsent:
                if mask & (ERR | HUP):
                    self._tell(None)
                    return
                self._unsent = self._unsent[sock.send(self._unsent) :]
                if not self._unsent:
                    self._loop.modify(sock.fileno(), IN)
                return
            piece = sock.recv(DNS_TCP_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._tell(None)
            return
        self._received += piece
        whole = len(self._received) >= 2 and len(self._received) >= 2 + int.from_bytes(self._received[:2])
        if whole:
            said = read(self._question, bytes(self._received[2 : 2 + int.from_bytes(self._received[:2])]))
            self._tell(None if said is None or said.is_truncated else said)
        elif not piece:
            self._tell(None)
