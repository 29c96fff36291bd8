"""The lab's DNS servers: port 53 over UDP and TCP, answering on the lab's resolvers and nowhere else."""

import asyncio
import socket
import struct
from collections.abc import Callable
from functools import partial
from ipaddress import IPv6Address
from typing import Final

from stockade.lab.zone import Zone, read_question

PORT: Final = 53
_MOST_BYTES: Final = 65_535
_IPV6_FREEBIND: Final = 78
"""Answer from addresses that are ours by route only (ipv6(7)); IPv4 needs no leave for that."""


def plain_address(text: str) -> str:
    """Return an address as a dual-stack socket tells it without its IPv4-mapped clothes and its zone."""
    address = IPv6Address(text.partition("%")[0])
    return str(address.ipv4_mapped or address)


class DnsServer:
    """Serves one zone; `muted` resolvers get every query and never answer."""

    def __init__(self, zone: Zone, resolvers: frozenset[str]) -> None:
        self._zone = zone
        self.resolvers = resolvers
        self.muted: frozenset[str] = frozenset()
        self.asked_of: dict[str, int] = dict.fromkeys(resolvers, 0)
        self._udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)

    def start(self) -> None:
        """Open the UDP socket in the calling thread's namespace. TCP connections come by `serve_tcp`."""
        self._udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        self._udp.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
        self._udp.setblocking(False)
        self._udp.bind(("::", PORT))
        asyncio.get_running_loop().add_reader(self._udp, self._read)

    def _read(self) -> None:
        while True:
            try:
                message, control, _, peer = self._udp.recvmsg(_MOST_BYTES, 256)
            except BlockingIOError:
                return
            for level, kind, data in control:
                if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
                    asked = plain_address(socket.inet_ntop(socket.AF_INET6, data[:16]))
                    if asked in self.resolvers:
                        self._answer(asked, message, partial(self._send, peer, data))

    def _send(self, peer: tuple[str, int, int, int], destination: bytes, payload: bytes) -> None:
        source = destination[:16] + struct.pack("=I", 0)
        self._udp.sendmsg([payload], [(socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, source)], 0, peer)

    def _answer(self, asked: str, message: bytes, send: Callable[[bytes], None], *, by_udp: bool = True) -> None:
        question = read_question(message)
        if question is None:
            return
        self.asked_of[asked] += 1
        response = self._zone.respond(question, by_udp=by_udp)
        if response.payload is None or asked in self.muted:
            return
        if response.delay_s:
            asyncio.get_running_loop().call_later(response.delay_s, send, response.payload)
        else:
            send(response.payload)

    async def serve_tcp(self, asked: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one TCP connection to a resolver address, question after question (RFC 7766)."""
        while True:
            length = struct.unpack(">H", await reader.readexactly(2))[0]
            message = await reader.readexactly(length)
            self._answer(
                asked,
                message,
                lambda payload: writer.write(struct.pack(">H", len(payload)) + payload),
                by_udp=False,
            )
            await writer.drain()
