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
TLS_RECORD_BYTES: Final = 16_384
"""Plaintext of one TLS record (RFC 8446 §5.1)."""

# --- our choice

POLICY_CHARS: Final = 4_194_304
"""One policy file; 5,000 networks and as many hosts take about 0.3 MB."""
IDLE_LEAST_S: Final = 600
"""Least `idle_s` a policy may set: below ten minutes quiet tunnels that are alive get cut."""
SHOWN_CHARS: Final = 256
"""Hostile text in a message or a record: enough to recognise a name of 253 bytes, too little to fill a disk."""
CNAME_LINKS_COUNT: Final = 8
"""Links of one CNAME chain; public names stay under 6."""
HTTP_HEAD_BYTES: Final = 32_768
"""One HTTP/1.1 head, request line included. Longer: 431."""
REQUEST_LINE_BYTES: Final = 8_192
"""One HTTP/1.1 request line (RFC 9112 §3 asks for at least 8,000). Longer: 414."""
VIA_COUNT: Final = 16
"""Proxies a request may have passed; more is a loop through proxies that do not know each other."""
REFUSAL_TEXT_CHARS: Final = 300
"""One sentence of a refusal that a client may have had a hand in."""
REASON_PHRASE_CHARS: Final = 160
"""Reason phrase of a refusal; curl, git and pip show it, and cut status lines at about 200."""
HTTP_KEPT_S: Final = 75.0
"""A kept HTTP connection without a request; clients open another when it is gone."""
CLIENT_HELLO_BYTES: Final = 65_536
"""One ClientHello over all its records; post-quantum key shares need about 2 KiB."""
CONNECT_STAGGER_S: Final = 0.25
"""From one connection attempt to the next address's, while none has answered (RFC 8305 §5 recommends 250 ms)."""
COPY_BYTES: Final = 65_536
"""Most bytes read at once, and so the most one stalled direction of a tunnel holds."""
LINGER_S: Final = 5.0
"""From our last words to a client until it must have closed; its bytes are dropped meanwhile, so that no reset eats the words."""
LINGER_BYTES: Final = 1_048_576
"""Most bytes dropped while lingering; a client that still sends then is reset."""
KEEPALIVE_IDLE_S: Final = 60
"""Silence before TCP asks whether the peer still lives; under the least time-out of common NATs."""
KEEPALIVE_EACH_S: Final = 15
"""Between two such questions."""
KEEPALIVE_COUNT: Final = 4
"""Questions without an answer until the peer is dead: 2 minutes in all."""
LISTEN_BACKLOG_COUNT: Final = 4_096
"""Connections the kernel keeps until they are accepted; it takes the lesser of this and net.core.somaxconn."""
ACCEPT_COUNT: Final = 64
"""Connections accepted in one turn, so that accepting starves nobody."""
ACCEPT_PAUSE_S: Final = 0.1
"""No accepting after the kernel had no memory or descriptor for one more."""
RESET_POLL_S: Final = 0.02
"""Between two looks whether what was written before a reset has left."""
DEAD_TIMERS_COUNT: Final = 64
"""Cancelled timers that may always lie in the loop's heap."""
CRASH_REPEAT_S: Final = 60.0
"""Least time between two traces from the same line."""
CRASH_PLACES_COUNT: Final = 256
"""Lines remembered for that."""


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
