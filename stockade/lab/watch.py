"""Counts every attempt that leaves the gateway, whatever the port: one packet socket per link (packet(7))."""

import asyncio
import socket
import struct
from collections import Counter
from ipaddress import ip_address
from typing import Final

_ALL: Final = 0x0003
_OUTGOING: Final = 4
_TCP, _UDP, _ICMP, _ICMP6 = 6, 17, 1, 58
_ECHO: Final = {_ICMP: 8, _ICMP6: 128}
"""The requests; the kernel's own neighbour and error messages are no attempt of anybody's."""
_SYN_OR_ACK: Final = 0x12
_SYN: Final = 0x02
_BUFFER_BYTES: Final = 8 << 20


class Watch:
    """Connection attempts (SYN), datagrams and pings, by the `address:port/protocol` they were going to."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def start(self, links: tuple[str, ...]) -> None:
        """Open the sockets in the namespace the calling thread is in (needs CAP_NET_RAW there)."""
        for link in links:
            tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL))
            tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            tap.bind((link, _ALL))
            tap.setblocking(False)
            asyncio.get_running_loop().add_reader(tap, self._read, tap)

    def _read(self, tap: socket.socket) -> None:
        while True:
            try:
                packet, place = tap.recvfrom(128)
            except BlockingIOError:
                return
            if place[2] == _OUTGOING and (attempt := describe(packet)):
                self.seen[attempt] += 1


def describe(packet: bytes) -> str | None:
    """Name where an IP packet that begins something was going; None for one that continues or answers."""
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= 20:
        protocol, address, rest = packet[9], packet[16:20], packet[(packet[0] & 15) * 4 :]
    elif version == 6 and len(packet) >= 40:
        protocol, address, rest = packet[6], packet[24:40], packet[40:]
    else:
        return None
    there = ip_address(address)
    host = f"[{there}]" if there.version == 6 else str(there)
    if protocol == _TCP and len(rest) >= 14:
        port, flags = struct.unpack(">H", rest[2:4])[0], rest[13]
        return f"{host}:{port}/tcp" if flags & _SYN_OR_ACK == _SYN else None
    if protocol == _UDP and len(rest) >= 4:
        return f"{host}:{struct.unpack('>H', rest[2:4])[0]}/udp"
    if protocol in _ECHO:
        return f"{host}:0/ping" if rest and rest[0] == _ECHO[protocol] else None
    # MLD reports carry a hop-by-hop header (0) before ICMPv6: the kernel's own housekeeping.
    return f"{host}:0/{protocol}" if protocol not in (0, 2) else None
