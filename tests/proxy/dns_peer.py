"""A scripted DNS server on loopback, UDP and TCP on one port, in a thread that ends with the test."""

import select
import socket
import struct
import threading
from collections.abc import Callable, Mapping

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

SOA = "example.com. 60 IN SOA ns.example.com. root.example.com. 1 60 60 60 30"

type Script = Callable[[dns.message.Message, bytes, str], list[bytes]]
"""Query, its wire form and "udp" or "tcp" in; wire replies out."""


class DnsPeer:
    """`asked` lists (name, type, transport) in order."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[tuple[str, str, str]] = []
        self.ids: list[int] = []
        self.ports: list[int] = []
        self.spellings: list[str] = []
        while True:
            self.tcp = socket.create_server(("127.0.0.1", 0))
            self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                self.udp.bind(self.tcp.getsockname())
                break
            except OSError:
                self.tcp.close()
                self.udp.close()
        self.server: tuple[str, int] = self.udp.getsockname()
        self._end, self._end_peer = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> "DnsPeer":
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()
        self._thread.join(5)
        for sock in (self.tcp, self.udp, self._end_peer):
            sock.close()

    def _serve(self) -> None:
        while True:
            ready, _, _ = select.select([self.tcp, self.udp, self._end_peer], [], [], 30)
            if not ready or self._end_peer in ready:
                return
            if self.udp in ready:
                wire, peer = self.udp.recvfrom(4096)
                for reply in self._answer(wire, "udp", peer[1]):
                    self.udp.sendto(reply, peer)
            if self.tcp in ready:
                conn, peer = self.tcp.accept()
                with conn:
                    conn.settimeout(2)
                    data = conn.recv(4096)
                    for reply in self._answer(data[2:], "tcp", peer[1]):
                        framed = struct.pack(">H", len(reply)) + reply
                        for at in range(0, len(framed), 700):
                            conn.sendall(framed[at : at + 700])

    def _answer(self, wire: bytes, transport: str, port: int) -> list[bytes]:
        query = dns.message.from_wire(wire)
        question = query.question[0]
        self.asked.append((question.name.to_text().lower(), dns.rdatatype.to_text(question.rdtype), transport))
        self.ids.append(query.id)
        self.ports.append(port)
        self.spellings.append(question.name.to_text())
        return self.script(query, wire, transport)


def reply(query: dns.message.Message, *records: str, rcode: str = "NOERROR", soa: bool = False) -> dns.message.Message:
    """A reply to `query` with `records` ("owner ttl IN TYPE data") in its answer."""
    message = dns.message.make_response(query)
    message.set_rcode(dns.rcode.from_text(rcode))
    for record in records:
        owner, ttl, cls, kind, data = record.split(" ", 4)
        message.answer.append(dns.rrset.from_text(owner, int(ttl), cls, kind, data))
    if soa:
        owner, ttl, cls, kind, data = SOA.split(" ", 4)
        message.authority.append(dns.rrset.from_text(owner, int(ttl), cls, kind, data))
    return message


def zone(table: Mapping[tuple[str, str], list[str] | str]) -> Script:
    """Records or an rcode for (name, type); what the table lacks is NODATA with an SOA, or NXDOMAIN for a name it lacks."""
    names = {name for name, _ in table}

    def script(query: dns.message.Message, _wire: bytes, _transport: str) -> list[bytes]:
        question = query.question[0]
        name = question.name.to_text().lower()
        said = table.get((name, dns.rdatatype.to_text(question.rdtype)))
        if said is None:
            known = name in names
            return [reply(query, rcode="NOERROR" if known else "NXDOMAIN", soa=True).to_wire()]
        if isinstance(said, str):
            return [] if said == "silence" else [reply(query, rcode=said).to_wire()]
        return [reply(query, *said).to_wire()]

    return script
