"""Every number of the product, with its unit and its reason; a policy's `[limits]` sets the fields of `Limits`."""

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
REFUSAL_TEXT_CHARS: Final = 512
"""One sentence of a refusal that a client may have had a hand in."""
REASON_PHRASE_CHARS: Final = 160
"""Reason phrase of a refusal; curl, git and pip show it, and cut status lines at about 200."""
HTTP_INTERIM_COUNT: Final = 256
"""Interim (1xx) responses before the final one; each costs a whole head, so an endless row of them would hold up everybody."""
HTTP_TURN_COUNT: Final = 16
"""Pipelined requests begun in one turn, so that a client that sends a thousand to be refused holds up nobody."""
HTTP_KEPT_S: Final = 75.0
"""A kept HTTP connection without a request; clients open another when it is gone."""
CLIENT_HELLO_BYTES: Final = 65_536
"""One ClientHello over all its records; post-quantum key shares need about 2 KiB."""
CONNECT_STAGGER_S: Final = 0.25
"""From one connection attempt to the next address's, while none has answered (RFC 8305 §5 recommends 250 ms)."""
GREETING_READ_BYTES: Final = 16_384
"""Most bytes read at once while a request is awaited."""
COPY_BYTES: Final = 65_536
"""Most bytes read at once, and so the most one stalled direction of a tunnel holds."""
LINGER_S: Final = 5.0
"""From our last words to a client until it must have closed; its bytes are dropped, so that no reset eats the words."""
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
OVER_LIMIT_COUNT: Final = 256
"""Clients above `connections_count` still listened to, so that each is told 503 in its protocol; more are reset."""
ACCEPT_PAUSE_S: Final = 0.1
"""No accepting after the kernel had no memory or descriptor for one more."""
RESET_POLL_S: Final = 0.02
"""Between two looks whether what was written before a reset has left."""
EXPIRY_LOOK_S: Final = 60.0
"""Longest sleep until a grant's `until` is looked at again: the wall clock may be set, the loop's cannot."""
PARENT_POLL_S: Final = 1.0
"""Between two looks whether the parent process lives; the kernel's own signal comes sooner, this one always."""
DEAD_TIMERS_COUNT: Final = 64
"""Cancelled timers that may always lie in the loop's heap."""
CRASH_REPEAT_S: Final = 60.0
"""Least time between two traces from the same line."""
CRASH_PLACES_COUNT: Final = 256
"""Lines remembered for that."""
DNS_CACHE_COUNT: Final = 4_096
"""Names whose answers are kept at a time; 2 MB when each has two addresses."""
DNS_TTL_MOST_S: Final = 300
"""Longest an answer is believed, whatever its TTL: a host that moved is found again within five minutes."""
DNS_NEGATIVE_MOST_S: Final = 60
"""The same for "there is nothing" (RFC 2308 §5 allows hours)."""
DNS_RETRY_FIRST_S: Final = 0.8
"""Silence until another server is asked; twice as long before the next."""
DNS_TRIES_COUNT: Final = 3
"""Questions for one name and family, over all servers, when there are fewer servers than that."""
DNS_OTHER_FAMILY_S: Final = 0.5
"""What the second family gets once the first has addresses (RFC 8305 §3: 50 ms; we refuse mixed answers, so longer)."""
DNS_BACK_OFF_FIRST_S: Final = 2.0
"""A silent server is asked last for this long; twice as long each further time."""
DNS_BACK_OFF_MOST_S: Final = 60.0
"""Longest a silent server is asked last."""
DNS_FLIGHTS_COUNT: Final = 512
"""Names looked up at the same time; each takes two sockets or more."""
DNS_NAMES_COUNT: Final = 64
"""Different names decoded from one DNS message; each may have 127 labels and then takes a third of a millisecond."""
DNS_ADDRESSES_COUNT: Final = 256
"""Addresses of one family for one name: every one of them is judged, and written to the journal."""
DNS_KEPT_ADDRESSES_COUNT: Final = 32
"""An answer with more is used and not kept, so that the cache stays below 16 MB whoever fills it."""
DNS_ONE_FAMILY_MOST_S: Final = 5
"""Longest an answer is believed in which one family failed; else every connection would wait for that family afresh."""
DNS_STRAYS_COUNT: Final = 16
"""Datagrams that are no reply to the question, until it is asked over TCP, where nobody can guess (RFC 5452 §9)."""
DNS_TCP_BYTES: Final = 65_537
"""Largest DNS message over TCP with its length (RFC 1035 §4.2.2)."""
NETLINK_BYTES: Final = 65_536
"""One read from netlink; the kernel's dump buffers are half of that."""
NETLINK_S: Final = 2.0
"""Longest the kernel may take to list the addresses."""


# --- our choice: the sandbox

PROXY_PORT: Final = 3_128
"""Where the session's listener stands in its namespace, on 127.0.0.1 and ::1; squid's port, known to every client."""
NAMESPACE_S: Final = 5.0
"""From asking for a network namespace to holding it; measured 1.3 ms, so this only ends a hung kernel or runtime."""
PROBE_S: Final = 4.0
"""A sandbox that runs `true` must end by then, or the backend does not work here; measured 10 ms."""
COMMAND_S: Final = 120.0
"""A command's time when nobody says otherwise."""
COMMAND_MAX_S: Final = 3_600.0
"""The most that may be asked for one command."""
ACKNOWLEDGE_S: Final = 5.0
"""From the kill to the last process gone; above it the end is reported as not acknowledged. Measured under 0.1 s."""
OUTPUT_HEAD_BYTES: Final = 524_288
"""The first part of each of stdout and stderr that is kept."""
OUTPUT_TAIL_BYTES: Final = 524_288
"""The last part of each that is kept; what lies between is in the log only."""
OUTPUT_LOG_BYTES: Final = 268_435_456
"""The log of one stream that outgrew head and tail; a flood for a whole COMMAND_S would fill any disk otherwise."""
OUTPUT_LAST_S: Final = 2.0
"""For whoever reads the output to take the rest of it, when the command did not end by itself."""
ARGUMENT_BYTES: Final = 122_880
"""One argument of a command; the kernel's MAX_ARG_STRLEN is 128 KiB (execve(2)) and fails with a bare E2BIG."""
SANDBOX_TMP_BYTES: Final = 536_870_912
"""The sandbox's own /tmp, in memory."""
SANDBOX_SHM_BYTES: Final = 67_108_864
"""The sandbox's own /dev/shm; bubblewrap's default is half of the machine's memory."""
FRONT_START_S: Final = 10.0
"""From forking the front of a run to its listening: importing it takes 0.2 s, opening a journal on a busy disk longer."""
FRONT_STOP_S: Final = 2.0
"""From telling it to end to killing it; the command is gone by then, and with it every connection."""
FRONT_UID: Final = 1_999_999
"""Who a front is when root started it: the uid below those of workspaces, with a file or a process of its own nowhere."""
REFUSALS_COUNT: Final = 1_000
"""Refusals told when a run ends; all are in the journal. A command could ask for millions."""
WORKSPACE_UID_FIRST: Final = 2_000_000
"""First uid for workspaces of root: above login users, /etc/subuid's usual ranges and systemd's dynamic users."""
WORKSPACE_UID_COUNT: Final = 1_000_000
"""How many uids from there; the real path's hash chooses one."""


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
