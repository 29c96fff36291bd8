"""A refusal in the client's protocol: what was asked, why not, the record, and what would grant it."""

import json
from typing import Final

from policy.destination import Destination
from policy.errors import BadClient
from policy.limits import REASON_PHRASE_CHARS, REFUSAL_TEXT_CHARS
from policy.remedy import remedy
from policy.verdict import CODES, Codes, Reason, Verdict

REQUEST_SLOW: Final = Codes(408, "http_request_error", None, None)
"""A client that stopped in the middle of its request."""
UPSTREAM_UNREADABLE: Final = Codes(502, "http_protocol_error", None, None)
UPSTREAM_CLOSED: Final = Codes(502, "connection_terminated", None, None)
UPSTREAM_SILENT: Final = Codes(504, "http_response_timeout", None, None)
"""Errors of RFC 9209 §2.3 for an upstream that was reached and then failed; POLICY §5 ends before that."""

ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
"""The only good answer to CONNECT (RFC 9110 §9.3.6: no Content-Length, no body)."""

TLS_NOT_SPOKEN: Final = b"\x15\x03\x01\x00\x02\x02\x28"
"""TLS alert, fatal, handshake_failure (RFC 8446 §6): for a client that speaks TLS to the proxy itself."""
TLS_NAME_REFUSED: Final = b"\x15\x03\x03\x00\x02\x02\x70"
"""TLS alert, fatal, unrecognized_name (RFC 6066 §3): for a tunnel whose server name is another."""

SOCKS4_REFUSED: Final = b"\x00\x5b\x00\x00\x00\x00\x00\x00"
"""SOCKS4 reply 91, request rejected or failed."""

_TITLES: Final = {
    400: "Bad request",
    403: "Refused by policy",
    408: "Request timeout",
    414: "URI too long",
    421: "Misdirected request",
    429: "Too many requests",
    431: "Request header fields too large",
    502: "Bad gateway",
    503: "Service unavailable",
    504: "Gateway timeout",
}


class Unspeakable(BadClient):
    """A BadClient whose answer is not the one its reason has in POLICY §5; `codes` says which."""

    def __init__(self, reason: Reason, detail: str, codes: Codes) -> None:
        super().__init__(reason, detail)
        self.codes = codes


def render(
    entry: str,
    verdict: Verdict,
    destination: Destination | None,
    record_id: str,
    *,
    accepts_json: bool = False,
    codes: Codes | None = None,
    keep: bool = False,
    body: bool = True,
) -> bytes:
    """Say `verdict` to a client of `entry`; empty where its protocol has no words and the connection ends.

    `codes` replaces what POLICY §5 has for the reason; `keep` leaves an HTTP connection open for the next
    request; `body` is False in answer to HEAD.
    """
    said = codes or CODES[verdict.reason]
    if entry == "socks5":
        return b"" if said.socks is None else socks5(said.socks)
    if entry == "socks4":
        return SOCKS4_REFUSED
    if entry == "tls":
        return TLS_NOT_SPOKEN
    if said.http is None:
        return b""
    record_id = printable(record_id, 80)
    if accepts_json:
        text = _problem(said, verdict, destination, record_id)
    else:
        text = _text(verdict, destination, record_id)
    title = _TITLES.get(said.http, "Refused")
    subject = f" {destination}" if destination else ""
    phrase = f"{title}: {verdict.reason}{subject}"
    if verdict.rule:
        phrase += f" ({printable(verdict.rule)})"
    elif destination is None and verdict.detail:
        phrase += f" ({printable(verdict.detail)})"
    details = f"{verdict.reason}{subject}: {_why(verdict).rstrip('.')}; record {record_id}"
    lines = [
        f"HTTP/1.1 {said.http} {phrase[:REASON_PHRASE_CHARS]}",
        f'Proxy-Status: stockade; error={said.proxy_status}; details="{_sf_string(details)}"',
        f"Content-Type: {'application/problem+json' if accepts_json else 'text/plain; charset=utf-8'}",
        f"Content-Length: {len(text)}",
        "Cache-Control: no-store",
    ]
    if said.http in (429, 503):
        lines.append("Retry-After: 1")
    if not keep:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (text if body else b"")


def socks5(reply: int) -> bytes:
    """One reply of RFC 1928 §6. The bound address is left zero: what the proxy bound is nobody's business."""
    return bytes((5, reply, 0, 1, 0, 0, 0, 0, 0, 0))


def printable(text: str, most: int = REFUSAL_TEXT_CHARS) -> str:
    """Escape all of `text` that is not printable ASCII, as Python does, and cut it to `most` characters."""
    text = text.replace("…", "...")
    safe = "".join(
        char if " " <= char <= "~" else ascii(char)[1:-1]
        for char in text[: most + 1].encode("utf-8", "backslashreplace").decode("utf-8")
    )
    return safe if len(safe) <= most else safe[: most - 3] + "..."


def _why(verdict: Verdict) -> str:
    words = printable(verdict.detail) if verdict.detail else verdict.reason.replace("-", " ")
    if verdict.address is not None and str(verdict.address) not in words:
        words += f" ({verdict.address})"
    return words


def _remedy(verdict: Verdict, destination: Destination | None) -> str | None:
    wanted = destination and remedy(verdict, destination)
    return printable(wanted) if wanted else None


def _text(verdict: Verdict, destination: Destination | None, record_id: str) -> bytes:
    lines = [f"Stockade refused {destination or 'this request'}: {verdict.reason}.", f"Why: {_why(verdict)}"]
    if verdict.rule:
        lines.append(f"Rule: {printable(verdict.rule)}")
    if verdict.grant:
        lines.append(f"Grant: {printable(verdict.grant)}")
    if verdict.layer:
        lines.append(f"Policy: {printable(verdict.layer)}")
    lines.append(f"Record: {record_id}")
    wanted = _remedy(verdict, destination)
    if wanted:
        lines.append(wanted)
    return ("\n".join(lines) + "\n").encode("ascii", "backslashreplace")


def _problem(said: Codes, verdict: Verdict, destination: Destination | None, record_id: str) -> bytes:
    """RFC 9457; members beyond its own are `asked`, `reason`, `rule`, `grant`, `layer`, `record`, `write`."""
    members = {
        "title": _TITLES.get(said.http or 0, "Refused"),
        "status": said.http,
        "detail": _why(verdict),
        "asked": str(destination) if destination else None,
        "reason": str(verdict.reason),
        "rule": printable(verdict.rule) if verdict.rule else None,
        "grant": printable(verdict.grant) if verdict.grant else None,
        "layer": printable(verdict.layer) if verdict.layer else None,
        "record": record_id,
        "write": _remedy(verdict, destination),
    }
    present = {key: value for key, value in members.items() if value is not None}
    return json.dumps(present).encode("ascii") + b"\n"


def _sf_string(text: str) -> str:
    """Escape printable ASCII for a String of RFC 8941 §3.3.3."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
