"""Every number of the product, with its unit and its reason; policy files override the fields of `Limits` in `[limits]`."""

from dataclasses import dataclass
from typing import Final

# --- from a specification

NAME_MAX_BYTES: Final = 253
"""A DNS name in text form (RFC 1035 §3.1: 255 octets on the wire)."""
LABEL_MAX_BYTES: Final = 63
"""One label (RFC 1035 §2.3.4)."""
EDNS_PAYLOAD_BYTES: Final = 1232
"""UDP size offered to DNS servers (DNS flag day 2020; no fragment at IPv6's least MTU)."""

# --- our choice

CNAME_LINKS_COUNT: Final = 8
"""Links of one CNAME chain; public names stay under 6."""
HTTP_HEAD_BYTES: Final = 32_768
"""One HTTP/1.1 head, request line included. Longer: 431."""
REQUEST_LINE_BYTES: Final = 8_192
"""One HTTP/1.1 request line (RFC 9112 §3 asks for at least 8,000). Longer: 414."""
HTTP_KEPT_S: Final = 75.0
"""A kept HTTP connection without a request; clients open another when it is gone."""
CLIENT_HELLO_BYTES: Final = 65_536
"""One ClientHello over all its records; post-quantum key shares need about 2 KiB."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits a policy file may set; each default is the product's."""

    greeting_s: float = 10.0
    """From accept to a whole SOCKS or HTTP request head."""
    resolve_s: float = 5.0
    """All DNS for one destination, every server and family together."""
    connect_s: float = 10.0
    """All dialling for one destination, every address together."""
    client_hello_s: float = 10.0
    """From the tunnel's start to a whole ClientHello, where the SNI is judged."""
    idle_s: float = 900.0
    """No byte either way; never under 600 for a tunnel."""
    drain_s: float = 60.0
    """From one side's end of data to the other's, with no byte moving."""
    connections_count: int = 4_096
    """Client connections of one session at a time; above it 503."""
