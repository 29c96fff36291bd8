"""HTTP/1.1 heads and chunked bodies: llhttp reads them, and nothing that two readers read two ways passes."""

import re
from dataclasses import dataclass
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, HttpResponseParser

from policy.errors import BadClient
from policy.limits import HTTP_HEAD_BYTES, REQUEST_LINE_BYTES
from policy.verdict import Codes, Reason
from proxy.refusal import Unspeakable

HEAD_END: Final = b"\r\n\r\n"
TOO_LONG_LINE: Final = Codes(414, "http_request_error", None, None)
TOO_LONG_HEAD: Final = Codes(431, "http_request_error", None, None)

_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_CHUNKED_HEAD: Final = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[^\r\n]*)?\r\n")
_NO_BODY_STATUSES: Final = frozenset({204, 304})

type Field = tuple[bytes, bytes, bytes]
"""One header field: its name in lower case, its name as it came, its value without the space around it."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request's line and fields, and how its body is framed."""

    method: str
    target: bytes
    minor: int
    """1 for HTTP/1.1, 0 for HTTP/1.0."""
    fields: tuple[Field, ...]
    length: int = 0
    """Bytes of body by Content-Length; 0 when there is none or it is chunked."""
    chunked: bool = False

    def values(self, name: bytes) -> list[bytes]:
        """Every value of the field `name` (lower case), in order."""
        return [value for lower, _, value in self.fields if lower == name]

    def tokens(self, name: bytes) -> list[bytes]:
        """Split a comma-separated list field (RFC 9110 §5.6.1) into its members, in lower case."""
        return _tokens(self.values(name))

    @property
    def has_body(self) -> bool:
        """A body of at least one byte, or a chunked one, follows the head."""
        return self.chunked or self.length > 0

    @property
    def keeps_alive(self) -> bool:
        """The client will send another request after this one (RFC 9112 §9.3); HTTP/1.0 is never kept."""
        return self.minor == 1 and b"close" not in self.tokens(b"connection")

    @property
    def accepts_json(self) -> bool:
        """Accept names JSON by itself; `*/*` is what every command line sends and reads as text."""
        return any(b"json" in value.lower() for value in self.values(b"accept"))


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """A response's line and fields, and how its body is framed for the request it answers."""

    status: int
    phrase: bytes
    minor: int
    fields: tuple[Field, ...]
    length: int | None = 0
    """Bytes of body; None when the body ends with the connection."""
    chunked: bool = False

    def tokens(self, name: bytes) -> list[bytes]:
        """Split a comma-separated list field (RFC 9110 §5.6.1) into its members, in lower case."""
        return _tokens([value for lower, _, value in self.fields if lower == name])


class HeadBuffer:
    """Collects bytes up to the empty line that ends a head, within the limits, and no byte further."""

    __slots__ = ("_bytes", "_is_request", "_searched")

    def __init__(self, *, is_request: bool = True) -> None:
        self._bytes = bytearray()
        self._searched = 0
        self._is_request = is_request

    @property
    def start(self) -> bytes:
        """The first eight bytes held, as far as they have come."""
        return bytes(self._bytes[:8])

    def __len__(self) -> int:
        """Bytes held that are no whole head yet."""
        return len(self._bytes)

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Read on: the head with its empty line, and the bytes behind it; None until it is whole.

        Raises BadClient for a head that is too long, or that a bare LF would end for another reader
        (RFC 9112 §2.2).
        """
        held = self._bytes
        if not held and not data.startswith(b"\r\n"):  # nearly always: the whole head at once
            end = data.find(HEAD_END) + len(HEAD_END)
            if len(HEAD_END) <= end <= REQUEST_LINE_BYTES:
                return data[:end], data[end:]
        held += data
        while self._is_request and held.startswith(b"\r\n"):
            del held[:2]  # RFC 9112 §2.2: empty lines before the request line are ignored
            self._searched = 0
        end = held.find(HEAD_END, max(0, self._searched - 3))
        if end < 0:
            if _BARE_LF.search(held, max(0, self._searched - 1)):
                raise _bad("a line ends with a bare LF")
            self._measure(len(held))
            self._searched = len(held)
            return None
        end += len(HEAD_END)
        self._measure(end)
        head, rest = bytes(held[:end]), bytes(held[end:])
        held.clear()
        self._searched = 0
        return head, rest

    def _measure(self, end: int) -> None:
        if self._is_request and end > REQUEST_LINE_BYTES:
            line_end = self._bytes.find(b"\r\n", 0, REQUEST_LINE_BYTES + 2)
            if line_end < 0:
                raise Unspeakable(
                    Reason.REQUEST_INVALID,
                    f"the request line is longer than {REQUEST_LINE_BYTES} bytes",
                    TOO_LONG_LINE,
                )
        if end > HTTP_HEAD_BYTES:
            detail = f"the head is longer than {HTTP_HEAD_BYTES} bytes"
            raise Unspeakable(Reason.REQUEST_INVALID, detail, TOO_LONG_HEAD)


class _Head:
    """What llhttp says about one head."""

    __slots__ = ("fields", "phrase", "url")

    def __init__(self) -> None:
        self.url = b""
        self.phrase = b""
        self.fields: list[Field] = []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_status(self, phrase: bytes) -> None:
        self.phrase += phrase

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), name, value.strip(b" \t")))


def read_request(head: bytes) -> RequestHead:
    """Read one request head, its empty line included.

    Raises BadClient for what two readers might take two ways: any framing but one Content-Length or one
    `chunked`, obsolete folding, controls, spacing in the request line, a version that is not 1.0 or 1.1.
    """
    seen = _Head()
    parser = HttpRequestParser(seen)
    try:
        parser.feed_data(head)
    except HttpParserUpgrade:
        pass  # CONNECT or Upgrade: the head is whole, and what follows it is ours to frame
    except HttpParserError as error:
        raise _bad(f"not readable as HTTP/1.1: {error}") from None
    method = parser.get_method().decode("ascii")
    version = parser.get_http_version()
    line = b"%b %b HTTP/%b\r\n" % (method.encode(), seen.url, version.encode())
    if version not in ("1.0", "1.1") or not head.startswith(line):
        raise _bad("the request line must be `METHOD target HTTP/1.1`, one space between")
    length, chunked = _framing(seen.fields, version)
    fields = tuple(seen.fields)
    return RequestHead(method, seen.url, int(version[-1]), fields, length or 0, chunked)


def read_response(head: bytes, method: str) -> ResponseHead:
    """Read one response head to a request of `method` (RFC 9112 §6.3); raises BadClient(NOT_HTTP)."""
    seen = _Head()
    parser = HttpResponseParser(seen)
    try:
        parser.feed_data(head)
    except HttpParserUpgrade:
        pass
    except HttpParserError as error:
        raise BadClient(Reason.NOT_HTTP, f"the response is not readable as HTTP/1.1: {error}") from None
    status, version = parser.get_status_code(), parser.get_http_version()
    if version not in ("1.0", "1.1") or any(octet < 0x20 and octet != 0x09 for octet in seen.phrase):
        raise BadClient(Reason.NOT_HTTP, "the response's status line is not HTTP/1.1")
    try:
        length, chunked = _framing(seen.fields, version)
    except BadClient as bad:
        raise BadClient(Reason.NOT_HTTP, bad.detail) from None
    if method == "HEAD" or status in _NO_BODY_STATUSES or status < 200:
        length, chunked = 0, False
    return ResponseHead(status, seen.phrase, int(version[-1]), tuple(seen.fields), length, chunked)


def _framing(fields: list[Field], version: str) -> tuple[int | None, bool]:
    """Content-Length (None without one), and whether it is chunked (RFC 9112 §6)."""
    length: int | None = None
    codings: list[bytes] = []
    for lower, _, value in fields:
        if lower == b"content-length":
            if length is not None or not value.isdigit():
                raise _bad("Content-Length must be one decimal number")
            length = int(value)
        elif lower == b"transfer-encoding":
            codings.append(value.lower())
    if not codings:
        return length, False
    if codings != [b"chunked"] or length is not None or version == "1.0":
        raise _bad("Transfer-Encoding must be `chunked`, alone, without Content-Length, in HTTP/1.1")
    return None, True


def _tokens(values: list[bytes]) -> list[bytes]:
    return [token for value in values for part in value.split(b",") if (token := part.strip(b" \t").lower())]


def _bad(detail: str) -> BadClient:
    return BadClient(Reason.REQUEST_INVALID, detail)


class _Pieces:
    """What llhttp says about one chunked body; apart from its reader, lest a cycle keep the parser alive."""

    __slots__ = ("begun", "done", "pieces")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.begun = 0
        self.done = False

    def on_message_begin(self) -> None:
        self.begun += 1

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.done = True


class ChunkedBody:
    """A chunked body, decoded piece by piece and ended at its exact last byte (RFC 9112 §7.1).

    llhttp decodes it, but does not say where in the bytes it ended. So its lines are followed here as well, and
    both must find the same end.
    """

    __slots__ = ("_dry_bytes", "_is_in_trailers", "_left_bytes", "_line", "_parser", "_seen", "done", "rest")

    def __init__(self) -> None:
        self._seen = _Pieces()
        self._parser = HttpRequestParser(self._seen)
        self._parser.feed_data(_CHUNKED_HEAD)
        self._left_bytes = 0
        """Of the present chunk and the CRLF behind it."""
        self._line = b""
        self._is_in_trailers = False
        self._dry_bytes = 0
        self.done = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Decode `data`; once `done`, `rest` holds the bytes behind the body. Trailers are read and dropped.

        Raises BadClient.
        """
        end = self._follow(data)
        seen = self._seen
        try:
            self._parser.feed_data(data if end == len(data) else data[:end])
        except HttpParserError as error:
            raise _bad(f"the chunked body is not readable: {error}") from None
        if seen.done != self.done or seen.begun > 1:
            raise _bad("the chunked body does not end where it says")
        self.rest = data[end:]
        payload = b"".join(seen.pieces)
        seen.pieces.clear()
        # Sizes, extensions and trailers are not payload: a peer may not send them for ever.
        self._dry_bytes = 0 if payload else self._dry_bytes + end
        if self._dry_bytes > HTTP_HEAD_BYTES:
            raise _bad(f"more than {HTTP_HEAD_BYTES} bytes of chunk extensions or trailers")
        return payload

    def _follow(self, data: bytes) -> int:
        """Follow the chunks' lines to the end of the body, or of `data`; sets `done`."""
        at = 0
        while at < len(data):
            if self._left_bytes:
                skipped = min(self._left_bytes, len(data) - at)
                self._left_bytes -= skipped
                at += skipped
                continue
            line_end = data.find(b"\n", at) + 1
            self._line += data[at : line_end or None]
            if not line_end:
                break
            line, self._line, at = self._line, b"", line_end
            if self._is_in_trailers:
                if line == b"\r\n":
                    self.done = True
                    return at
            elif match := _CHUNK_LINE.fullmatch(line):
                size = int(match[1], 16)
                self._is_in_trailers = size == 0
                self._left_bytes = size + 2 if size else 0
            else:
                raise _bad("the chunked body has a line that is no chunk size")
        return len(data)
