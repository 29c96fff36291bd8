"""What of an HTTP head goes on: everything but what belongs to one connection (RFC 9110 §7.6.1)."""

from typing import Final

from proxy.asked import Asked
from proxy.http1 import Field, RequestHead, ResponseHead

LAST_CHUNK: Final = b"0\r\n\r\n"

_OURS: Final = frozenset(
    {
        b"connection",
        b"content-length",
        b"host",
        b"http2-settings",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Written by us or not at all. `TE` goes too: trailers are dropped on the way back."""
_WEBSOCKET: Final = (b"Connection: Upgrade", b"Upgrade: websocket")


def wants_websocket(head: RequestHead) -> bool:
    """Tell whether it asks for a WebSocket (RFC 6455 §4.1). No other upgrade passes, h2c least of all."""
    return (
        head.method == "GET"
        and head.minor == 1
        and not head.has_body
        and b"upgrade" in head.tokens(b"connection")
        and b"websocket" in head.tokens(b"upgrade")
    )


def request(asked: Asked, *, websocket: bool) -> bytes:
    """Write the head for the upstream: origin form, our Host, one framing, no hop-by-hop field."""
    head = asked.head
    assert head is not None
    lines = [
        f"{head.method} {asked.path} HTTP/1.1".encode("ascii"),
        b"Host: " + str(asked.destination).removesuffix(":80").encode("ascii"),
    ]
    for lower, name, value in _end_to_end(head.fields, head.tokens(b"connection")):
        if head.minor == 1 or lower != b"expect":  # RFC 9110 §10.1.1: HTTP/1.0 knows no 100
            lines.append(name + b": " + value)
    if head.chunked:
        lines.append(b"Transfer-Encoding: chunked")
    elif head.values(b"content-length"):
        lines.append(b"Content-Length: %d" % head.length)
    if websocket:
        lines += _WEBSOCKET
    return b"\r\n".join(lines) + b"\r\n\r\n"


def response(head: ResponseHead, *, minor: int, keep: bool, websocket: bool = False) -> bytes:
    """Write the head for a client of HTTP/1.`minor`; `keep` is False when the connection ends after it."""
    lines = [b"HTTP/1.1 %d %b" % (head.status, head.phrase)]
    counted = head.status >= 200 and head.status != 204
    for lower, name, value in head.fields:
        if lower == b"content-length" and counted:
            lines.append(name + b": " + value)
    lines += [name + b": " + value for _, name, value in _end_to_end(head.fields, head.tokens(b"connection"))]
    if head.chunked and minor == 1:
        lines.append(b"Transfer-Encoding: chunked")
    if websocket:
        lines += _WEBSOCKET
    elif not keep and head.status >= 200:
        lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def chunk(payload: bytes) -> bytes:
    """One chunk (RFC 9112 §7.1); empty for no payload, as an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(payload), payload) if payload else b""


def _end_to_end(fields: tuple[Field, ...], named: list[bytes]) -> list[Field]:
    """Leave out our own fields, those that Connection names, and every `Proxy-` field."""
    return [field for field in fields if field[0] not in _OURS and field[0] not in named and not field[0].startswith(b"proxy-")]
