"""Counts every attempt that leaves the gateway, whatever the port: one packet socket per link (packet(7))."""

import asyncio
import ctypes
import socket
import struct
from collections import Counter
from ipaddress import ip_address
from typing import Final

from policy.errors import Broken

_ALL: Final = 0x0003
_OUTGOING: Final = 4
_TCP, _UDP, _ICMP, _ICMP6 = 6, 17, 1, 58
_ECHO: Final = {_ICMP: 8, _ICMP6: 128}
"""The requests; the kernel's own neighbour and error messages are no attempt of anybody's."""
_SYN_OR_ACK: Final = 0x12
_SYN: Final = 0x02
_BUFFER_BYTES: Final = 8 << 20
_ATTACH_FILTER: Final = 26
"""SO_ATTACH_FILTER (socket(7))."""
_SOL_PACKET: Final = 263
_STATISTICS: Final = 6
"""PACKET_STATISTICS: packets passed and packets dropped since it was last asked."""

_PASS: Final = (0x06, 0, 0, 128)
_DROP: Final = (0x06, 0, 0, 0)
FIRST_PACKETS: Final = (
    (0x30, 0, 0, 0xFFFFF004),  # ldb  packet type
    (0x15, 0, 15, _OUTGOING),  # jeq  outgoing, else drop
    (0x30, 0, 0, 0),  # ldb  version and header length
    (0x54, 0, 0, 0xF0),  # and  version
    (0x15, 0, 5, 0x40),  # jeq  IPv4, else on to IPv6
    (0x30, 0, 0, 9),  # ldb  protocol
    (0x15, 0, 9, _TCP),  # jeq  TCP, else pass
    (0xB1, 0, 0, 0),  # ldxb 4 * header length
    (0x50, 0, 0, 13),  # ldb  [x + 13]: flags
    (0x05, 0, 0, 4),  # ja   to the flags
    (0x15, 0, 6, 0x60),  # jeq  IPv6, else drop (ARP)
    (0x30, 0, 0, 6),  # ldb  next header
    (0x15, 0, 3, _TCP),  # jeq  TCP, else pass
    (0x30, 0, 0, 53),  # ldb  [40 + 13]: flags
    (0x54, 0, 0, _SYN_OR_ACK),  # and  SYN and ACK
    (0x15, 0, 1, _SYN),  # jeq  SYN alone, else drop
    _PASS,
    _DROP,
)
"""Classic BPF (code, jump if true, jump if false, operand): only what `describe` may name reaches us, so that a bulk
transfer costs nothing and cannot crowd out the one packet that matters."""


class Watch:
    """Connection attempts (SYN), datagrams and pings, by the `address:port/protocol` they were going to."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._taps: list[socket.socket] = []

    def start(self, links: tuple[str, ...]) -> None:
        """Open the sockets in the namespace the calling thread is in (needs CAP_NET_RAW there)."""
        for link in links:
            tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
            tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            _attach(tap)
            tap.bind((link, _ALL))
            self._taps.append(tap)
            tap.setblocking(False)
            asyncio.get_running_loop().add_reader(tap, self._read, tap)

    def check_nothing_was_lost(self) -> None:
        """Raise Broken when the kernel had to drop packets before they were counted."""
        for tap in self._taps:
            _, dropped = struct.unpack("II", tap.getsockopt(_SOL_PACKET, _STATISTICS, 8))
            if dropped:
                raise Broken(f"{dropped} packets left the gateway uncounted: the lab was too slow")

    def _read(self, tap: socket.socket) -> None:
        while True:
            try:
                packet, place = tap.recvfrom(128)
            except BlockingIOError:
                return
            if place[2] == _OUTGOING and (attempt := describe(packet)):
                self.seen[attempt] += 1


def _attach(tap: socket.socket) -> None:
    program = b"".join(struct.pack("HBBI", *instruction) for instruction in FIRST_PACKETS)
    held = ctypes.create_string_buffer(program, len(program))
    tap.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", len(FIRST_PACKETS), ctypes.addressof(held)))


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
