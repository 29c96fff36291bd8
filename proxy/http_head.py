"""The HTTP entry: a request head becomes a destination, or the 400 that says what to send instead."""

import base64
import binascii
from dataclasses import replace
from typing import Final

from policy.destination import Destination, read_authority, read_url
from policy.errors import BadClient
from policy.limits import VIA_COUNT
from policy.verdict import Reason
from proxy.asked import Asked, Step
from proxy.http1 import HeadBuffer, RequestHead, read_request

PSEUDONYMS: Final = frozenset({b"stockade", b"self"})
"""Names by which a Via field means this proxy (RFC 9110 §7.6.3): its own, and the one all proxies share."""


class HttpReader:
    """Reads one client up to the end of one request head; bytes in, the Asked out.

    With `within`, the client speaks through a tunnel to that destination and takes us for it: requests come
    in origin form, and none may name anything else.
    """

    def __init__(self, within: Destination | None = None) -> None:
        self._within = within
        self._buffer = HeadBuffer()
        self._read = b""
        self.head: RequestHead | None = None

    @property
    def entry(self) -> str:
        """`connect` or `http`, by the method as far as it has come."""
        return "connect" if (self._read or self._buffer.start).startswith(b"CONNECT ") else "http"

    @property
    def accepts_json(self) -> bool:
        """How to say a refusal, once the head has been read."""
        return self.head is not None and self.head.accepts_json

    @property
    def is_empty(self) -> bool:
        """No byte of a head has come yet: the moment at which a kept connection may end."""
        return len(self._buffer) == 0

    def feed(self, data: bytes) -> Step:
        """Read on. Raises BadClient."""
        whole = self._buffer.feed(data)
        if whole is None:
            return Step()
        self._read, rest = whole
        self.head = read_request(self._read)
        return Step(asked=ask(self.head, rest, self._within))


def ask(head: RequestHead, rest: bytes, within: Destination | None = None) -> Asked:
    """Say where `head` wants to go; `rest` is what came behind it. Raises BadClient."""
    names = {field[0] for field in head.fields}
    if b"via" in names:
        _refuse_loop(head)
    label = _label(head) if b"proxy-authorization" in names else None
    if head.method == "CONNECT" and within is not None:
        raise _bad("no CONNECT inside a tunnel")
    if head.method == "CONNECT":
        if head.has_body:
            raise _bad("CONNECT has no body (RFC 9110 §9.3.6)")
        # Host says nothing here: the target decides (RFC 9112 §3.2.3).
        return Asked("connect", read_authority(head.target), rest, head, label)
    if within is not None and not head.target.lower().startswith((b"http://", b"ws://")):
        destination, path = within, _origin(head)
    else:
        destination, path = _absolute(head)
    if within is not None and destination != within:
        raise BadClient(Reason.HOST_MISMATCH, f"this tunnel leads to {within}, not to {destination}")
    _compare_host(head, destination)
    return Asked("http", destination, rest, _fewer_hops(head), label, path)


def _absolute(head: RequestHead) -> tuple[Destination, str]:
    """RFC 9112 §3.2.2: the absolute form, of a scheme that can be forwarded in the clear."""
    target = head.target
    if target.startswith(b"/"):
        raise _bad("this is a proxy: ask for the whole URL (`GET http://host/path`) or `CONNECT host:443`")
    if target == b"*":
        raise _bad("this is a proxy: `*` names no host to forward to")
    if b"#" in target:
        raise _bad("a request target has no fragment")
    scheme = target.split(b":", 1)[0].lower()
    if scheme in (b"https", b"wss"):
        raise _bad(f"{scheme.decode()}:// cannot be forwarded in the clear: use `CONNECT host:443`")
    if scheme not in (b"http", b"ws"):
        raise _bad("only http:// and ws:// are forwarded; for anything else use CONNECT or SOCKS5")
    url = read_url(target)
    path = url.path if url.path.startswith("/") else "/" + url.path
    if head.method == "OPTIONS" and path == "/" and target.count(b"/") == 2:
        path = "*"  # RFC 9112 §3.2.4: the last proxy turns an empty path into the asterisk form
    return url.destination, path


def _origin(head: RequestHead) -> str:
    """RFC 9112 §3.2.1 and §3.2.4: path and query, or `*` for OPTIONS."""
    target = head.target
    if b"#" in target or not target.isascii():
        raise _bad("a request target is ASCII without a fragment")
    if not target.startswith(b"/") and (target != b"*" or head.method != "OPTIONS"):
        raise _bad("a request target is a path")
    return target.decode("ascii")


def _compare_host(head: RequestHead, destination: Destination) -> None:
    """RFC 9112 §3.2: exactly one Host in HTTP/1.1; here it must also say what the target says."""
    hosts = head.values(b"host")
    if not hosts and head.minor == 0:
        return  # HTTP/1.0 has no Host; what goes on names the destination
    if len(hosts) != 1:
        raise _bad("HTTP/1.1 wants exactly one Host field")
    if _is_written_alike(head.target, hosts[0]):
        return
    if read_authority(hosts[0], 80) != destination:
        detail = f"the Host field does not name the target {destination}"
        raise BadClient(Reason.HOST_MISMATCH, detail)


def _is_written_alike(target: bytes, host: bytes) -> bool:
    """Tell whether the target is `http://`, these very bytes, and a path: then both read alike."""
    end = 7 + len(host)
    same = target[:7] == b"http://" and target[7:end] == host
    return same and target.find(b"/", 7) == end and b"?" not in host


def _refuse_loop(head: RequestHead) -> None:
    hops = [value.split() for value in head.tokens(b"via")]
    if len(hops) > VIA_COUNT or any(len(hop) > 1 and hop[1] in PSEUDONYMS for hop in hops):
        raise _bad("proxy loop: the Via field says this request has been here before")


def _fewer_hops(head: RequestHead) -> RequestHead:
    """RFC 9110 §7.6.2: Max-Forwards counts down for OPTIONS and TRACE, and ends here at zero."""
    if head.method not in ("OPTIONS", "TRACE") or not (hops := head.values(b"max-forwards")):
        return head
    if len(hops) != 1 or not hops[0].isdigit() or int(hops[0][:9]) == 0:
        raise _bad("Max-Forwards ends this request at the proxy")
    left = b"%d" % (int(hops[0][:9]) - 1)
    fields = tuple((lower, name, left if lower == b"max-forwards" else value) for lower, name, value in head.fields)
    return replace(head, fields=fields)


def _label(head: RequestHead) -> str | None:
    """User name of a Basic proxy credential (RFC 7617); the password goes no further than this line."""
    for value in head.values(b"proxy-authorization"):
        scheme, _, encoded = value.partition(b" ")
        if scheme.lower() == b"basic":
            try:
                decoded = base64.b64decode(encoded.strip(), validate=True)
            except (binascii.Error, ValueError):
                return None
            return decoded.partition(b":")[0].decode("utf-8", "replace")
    return None


def _bad(detail: str) -> BadClient:
    return BadClient(Reason.REQUEST_INVALID, detail)
