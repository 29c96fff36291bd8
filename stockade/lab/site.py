"""The lab's web server: plain pages, packages, and each misbehaviour that a test asks for in the path."""

import asyncio
import base64
import hashlib
import json
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from stockade.lab.goods import Files

_HEAD_BYTES: Final = 131_072
_PIECE: Final = bytes(range(256)) * 256
_WEBSOCKET_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455 §1.3."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived; `head` is every byte up to and with the empty line."""

    head: bytes
    method: str
    path: str
    query: dict[str, str]
    headers: tuple[tuple[str, str], ...]

    def header(self, name: str) -> str | None:
        """First value of a header, by lower-case name."""
        return next((value for key, value in self.headers if key == name), None)

    def number(self, key: str, default: float) -> float:
        """Return a number of the query string."""
        return float(self.query.get(key, default))


@dataclass(frozen=True, slots=True)
class Visit:
    """One connection to the site."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    sites: dict[str, Files]
    saw: Callable[[bytes], None]
    """Told the head of each request."""


async def serve(visit: Visit) -> None:
    """Serve requests until the peer or a misbehaviour ends the connection (RFC 9112)."""
    while True:
        head = await visit.reader.readuntil(b"\r\n\r\n")
        visit.saw(head)
        request = _read_head(head)
        keep = await _respond(visit, request)
        await visit.writer.drain()
        if not keep:
            return


def _read_head(head: bytes) -> Request:
    lines = head.decode("latin-1").split("\r\n")
    method, target, _ = (lines[0] + "  ").split(" ", 2)
    headers = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers.append((name.strip().lower(), value.strip()))
    url = urlsplit(target)
    return Request(head, method, url.path or "/", dict(parse_qsl(url.query)), tuple(headers))


async def _respond(visit: Visit, request: Request) -> bool:
    """Answer one request; False ends the connection."""
    special = _SPECIAL.get(request.path)
    if special is not None:
        return await special(visit, request)
    body = await _read_body(visit, request)
    host = (request.header("host") or "").partition(":")[0].lower().rstrip(".")
    page = visit.sites.get(host, {}).get(request.path)
    if page is None and request.path == "/":
        page = f"This is {host}, in the lab.\n".encode()
    if page is None:
        return _say(visit, request, 404, b"The lab has no such page.\n")
    return _say(visit, request, 200, page, received=len(body))


async def _read_body(visit: Visit, request: Request) -> bytes:
    if "chunked" in (request.header("transfer-encoding") or "").lower():
        parts = []
        while size := int((await visit.reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append(await visit.reader.readexactly(size))
            await visit.reader.readexactly(2)
        while await visit.reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return b"".join(parts)
    return await visit.reader.readexactly(int(request.header("content-length") or 0))


def _say(visit: Visit, request: Request, status: int, body: bytes, *, received: int = 0, more: str = "") -> bool:
    close = (request.header("connection") or "").lower() == "close" or "close" in request.query
    ending = "Connection: close\r\n" if close else ""
    kind = "text/html" if body.startswith(b"<") else "application/json" if body.startswith(b"{") else "text/plain"
    visit.writer.write(
        f"HTTP/1.1 {status} Lab\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"X-Lab-Received: {received}\r\n{more}{ending}\r\n".encode()
    )
    if request.method != "HEAD":
        visit.writer.write(body)
    return not close


async def _echo(visit: Visit, request: Request) -> bool:
    """Return every byte of the request's head, and its body's size and SHA-256."""
    body = await _read_body(visit, request)
    held = {
        "head": request.head.decode("latin-1"),
        "body_bytes": len(body),
        "body_sha256": hashlib.sha256(body).hexdigest(),
    }
    return _say(visit, request, 200, json.dumps(held).encode())


async def _bytes(visit: Visit, request: Request) -> bool:
    """Send `n` bytes: with a length, in chunks (`chunked=1`), or ended by the close (`unsized=1`)."""
    left = int(request.number("n", 1024))
    chunked, unsized = "chunked" in request.query, "unsized" in request.query
    framing = "Transfer-Encoding: chunked\r\n" if chunked else "" if unsized else f"Content-Length: {left}\r\n"
    visit.writer.write(f"HTTP/1.1 200 Lab\r\nContent-Type: application/octet-stream\r\n{framing}\r\n".encode())
    while left:
        piece = _PIECE[: min(left, len(_PIECE))]
        left -= len(piece)
        visit.writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" if chunked else piece)
        await visit.writer.drain()
        if pause_s := request.number("pause_s", 0):
            await asyncio.sleep(pause_s)
    if chunked:
        visit.writer.write(b"0\r\n\r\n")
    return not unsized


async def _drip(visit: Visit, request: Request) -> bool:
    """Send `n` bytes, one every `every_s` seconds."""
    n = int(request.number("n", 10))
    visit.writer.write(f"HTTP/1.1 200 Lab\r\nContent-Length: {n}\r\n\r\n".encode())
    for _ in range(n):
        visit.writer.write(b".")
        await visit.writer.drain()
        await asyncio.sleep(request.number("every_s", 0.05))
    return True


async def _status(visit: Visit, request: Request) -> bool:
    """Say the status `code`, after reading the body unless `early=1`; `header` is added as it is."""
    if "early" not in request.query:
        await _read_body(visit, request)
    more = request.query["header"] + "\r\n" if "header" in request.query else ""
    return _say(visit, request, int(request.number("code", 200)), b"As you asked.\n", more=more)


async def _raw(visit: Visit, request: Request) -> bool:
    """Send the bytes of `b64` (URL-safe base64) and nothing else; then `end`: keep, close or reset."""
    await _read_body(visit, request)
    visit.writer.write(base64.urlsafe_b64decode(request.query.get("b64", "") + "=="))
    await visit.writer.drain()
    end = request.query.get("end", "close")
    if end == "reset":
        reset(visit.writer)
    return end == "keep"


async def _never(visit: Visit, _request: Request) -> bool:
    """Answer never; end when the peer does."""
    while await visit.reader.read(65_536):
        pass
    return False


async def _reset(visit: Visit, _request: Request) -> bool:
    reset(visit.writer)
    return False


async def _close(_visit: Visit, _request: Request) -> bool:
    return False


async def _continue_late(visit: Visit, request: Request) -> bool:
    """Wait `after_s` before the 100 that an `Expect: 100-continue` asks for (RFC 9110 §10.1.1)."""
    await asyncio.sleep(request.number("after_s", 0.5))
    visit.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return await _echo(visit, request)


async def _websocket(visit: Visit, request: Request) -> bool:
    """Upgrade (RFC 6455 §4), then return every byte: an echo without frames."""
    key = (request.header("sec-websocket-key") or "").encode()
    accept = base64.b64encode(hashlib.sha1(key + _WEBSOCKET_GUID, usedforsecurity=False).digest()).decode()
    visit.writer.write(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
    )
    while data := await visit.reader.read(65_536):
        visit.writer.write(data)
        await visit.writer.drain()
    return False


_SPECIAL: Final[dict[str, Callable[[Visit, Request], Awaitable[bool]]]] = {
    "/lab/echo": _echo,
    "/lab/bytes": _bytes,
    "/lab/drip": _drip,
    "/lab/status": _status,
    "/lab/raw": _raw,
    "/lab/never": _never,
    "/lab/reset": _reset,
    "/lab/close": _close,
    "/lab/continue-late": _continue_late,
    "/lab/websocket": _websocket,
}


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with a RST (SO_LINGER of zero, socket(7))."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(1, 13, struct.pack("ii", 1, 0))
    writer.transport.abort()
