"""The lab's servers by port: web sites, an ssh banner, and TCP peers that behave well or badly on purpose."""

import asyncio
import contextlib
import hashlib
import os
import socket
import ssl
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from stockade.lab import places, site
from stockade.lab.authority import Authority
from stockade.lab.dns_server import DnsServer, plain_address
from stockade.lab.goods import Files

HTTP: Final = 80
HTTPS: Final = 443
SSH: Final = 22
ECHO: Final = 7
"""Returns every byte; ends when the client does."""
DIGEST: Final = 1007
"""Reads to the client's end, says `<count> <sha256>`, closes: proves that a half-close carried everything."""
CLOSES: Final = 1001
RESETS: Final = 1002
SILENT: Final = 1003
"""Reads everything and says nothing."""
HALF_CLOSES: Final = 1004
"""Greets, ends its own direction, then reads on to the client's end."""
DRIPS: Final = 1005
POURS: Final = 1006
"""Sends 30 MB and closes at once, reading nothing."""
POURS_BYTES: Final = 30_000_000
SSH_BANNER: Final = b"SSH-2.0-Stockade_lab\r\n"
CANARY_WORDS: Final = b"This is a canary: whoever reads this got out.\n"

_SEEN_COUNT: Final = 2_000
_BACKLOG: Final = 1_024

type Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Origins:
    """Every TCP server of `internet`: one listener per port; the address dialled decides who answers."""

    def __init__(self, authority: Authority, dns: DnsServer, sites: dict[str, Files]) -> None:
        self._authority = authority
        self._dns = dns
        self._sites = sites
        self.addresses: set[str] = set(places.ORIGIN_ADDRESSES)
        """Addresses that answer as origins; a connection to any other meets a canary."""
        self.requests: deque[dict[str, Any]] = deque(maxlen=_SEEN_COUNT)
        """Heads of HTTP requests, newest last: {"address", "port", "head"}."""
        self.accepted: Counter[str] = Counter()
        """`address:port` -> connections accepted."""
        self._leaves: dict[str, ssl.SSLContext] = {}
        self._servers: dict[int, asyncio.Server] = {}
        self._by_port: dict[int, Serve] = {
            HTTP: self._site,
            HTTPS: self._site,
            8080: self._site,
            8443: self._site,
            SSH: _ssh,
            ECHO: _echo,
            DIGEST: _digest,
            CLOSES: _nothing,
            RESETS: _reset,
            SILENT: _silent,
            HALF_CLOSES: _half_closes,
            DRIPS: _drips,
            POURS: _pours,
        }

    @property
    def ports(self) -> frozenset[int]:
        """Every port where something accepts."""
        return frozenset(self._by_port) | frozenset(places.CANARY_PORTS)

    async def start(self) -> None:
        """Listen on every port, in the namespace the calling thread is in."""
        for port in sorted(self.ports):
            await self.open_port(port)

    async def open_port(self, port: int) -> None:
        """Listen on a port of every address (again, after `close_port`)."""
        if port in self._servers:
            return
        listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("::", port))
        encrypted = self._tls() if port in (HTTPS, 8443) else None
        self._servers[port] = await asyncio.start_server(
            self._accepted, sock=listener, backlog=_BACKLOG, ssl=encrypted, limit=1 << 17
        )

    def close_port(self, port: int) -> None:
        """Stop listening: from now on a connection to this port is refused by the kernel."""
        if server := self._servers.pop(port, None):
            server.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = writer.get_extra_info("sockname")
        address, port = plain_address(name[0]), name[1]
        self.accepted[f"[{address}]:{port}" if ":" in address else f"{address}:{port}"] += 1
        # Peers go away in the middle of things: that is their right, and what many tests are about.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            if address in self._dns.resolvers and port == 53:
                await self._dns.serve_tcp(address, reader, writer)
            elif address in self.addresses and port in self._by_port:
                await self._by_port[port](reader, writer)
            else:
                writer.write(CANARY_WORDS)
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def _site(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, port = writer.get_extra_info("sockname")[:2]

        def saw(head: bytes) -> None:
            self.requests.append({"address": plain_address(address), "port": port, "head": head.decode("latin-1")})

        await site.serve(site.Visit(reader, writer, self._sites, saw))

    def _tls(self) -> ssl.SSLContext:
        settings = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load(settings, "no-server-name.example.net")
        settings.set_alpn_protocols(["http/1.1"])
        settings.sni_callback = self._certificate_for
        return settings

    def _certificate_for(self, connection: ssl.SSLObject, host: str | None, _settings: ssl.SSLContext) -> None:
        if host is None:
            return
        leaf = self._leaves.get(host)
        if leaf is None:
            leaf = self._leaves[host] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._load(leaf, host)
            leaf.set_alpn_protocols(["http/1.1"])
        connection.context = leaf

    def _load(self, settings: ssl.SSLContext, host: str) -> None:
        # ssl reads certificates from files only; this one has no name on any disk.
        file = os.memfd_create("leaf", os.MFD_CLOEXEC)
        try:
            os.write(file, self._authority.leaf_pem(host))
            settings.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)


async def _ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speak first (RFC 4253 §4.2), read the client's line, hang up."""
    writer.write(SSH_BANNER)
    await writer.drain()
    await reader.readuntil(b"\n")


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


async def _digest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    count, digest = 0, hashlib.sha256()
    while data := await reader.read(262_144):
        count += len(data)
        digest.update(data)
    writer.write(f"{count} {digest.hexdigest()}\n".encode())


async def _nothing(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    return


async def _reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    site.reset(writer)


async def _silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    while await reader.read(262_144):
        pass


async def _half_closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"That was all.\n")
    writer.write_eof()
    await _silent(reader, writer)


async def _drips(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for _ in range(100):
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0.05)


async def _pours(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    piece = bytes(range(256)) * 1024
    left = POURS_BYTES
    while left:
        writer.write(piece[: min(left, len(piece))])
        left -= min(left, len(piece))
        await writer.drain()
