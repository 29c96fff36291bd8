"""What the confined shell tries, in order, and what has to come of each: a table to read."""

from dataclasses import dataclass
from typing import Final, Literal

from policy.verdict import Reason
from stockade.lab.zone import Script

type Fate = Literal["allowed", "refused", "no way"]
"""Let through by the proxy; refused by it; never reached it, because the kernel has no way there."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One line of the table."""

    title: str
    shell: str
    """What the shell runs, as a person would type it (see script.PRELUDE for the few words it may use)."""
    fate: Fate
    says: str
    """Text that the client must show: the thing itself, or why not."""
    reason: Reason = Reason.GRANTED
    """What the journal must say; nothing for `no way`."""
    host: str = ""
    """The destination's host in the journal; empty where it was too wrong to be one."""


DEMO_NAMES: Final[dict[str, Script]] = {
    "rebind.example.org": {"seq": [{"A": ["93.184.215.14"], "ttl": 0}, {"A": ["127.0.0.1"], "ttl": 0}]},
    "mixed.example.org": {"A": ["93.184.215.14", "10.0.0.5"]},
    "tracker.example.org": {"A": ["93.184.215.14"]},
    "evil.example.net": {"A": ["93.184.215.15"]},
}
"""What the lab's DNS is told besides its own names."""

ATTEMPTS: Final = (
    Attempt("HTTPS", "curl https://pypi.org/simple/", "allowed", "stockade-greeting", host="pypi.org"),
    Attempt("plain HTTP", "curl http://example.com/", "allowed", "This is example.com", host="example.com"),
    Attempt(
        "HTTPS through SOCKS5",
        "curl --proxy socks5h://$PROXY https://example.com/",
        "allowed",
        "This is example.com",
        host="example.com",
    ),
    Attempt(
        "git clone",
        "git clone https://github.com/acme/greeting.git && cat greeting/README",
        "allowed",
        "Hello from inside the lab.",
        host="github.com",
    ),
    Attempt(
        "pip download",
        "pip download stockade-greeting",
        "allowed",
        "Successfully downloaded stockade-greeting",
        host="files.pythonhosted.org",
    ),
    Attempt(
        "ssh through SOCKS5",
        "ssh_banner github.com",
        "allowed",
        "remote software version Stockade_lab",
        host="github.com",
    ),
    Attempt(
        "a name with IPv6 only",
        "curl https://six.example.net/",
        "allowed",
        "This is six.example.net",
        host="six.example.net",
    ),
    Attempt(
        "trailing dot, granted name",
        "curl https://pypi.org./simple/",
        "allowed",
        "stockade-greeting",
        host="pypi.org",
    ),
    Attempt(
        "rebinding, first answer public",
        "curl http://rebind.example.org/",
        "allowed",
        "This is rebind.example.org",
        host="rebind.example.org",
    ),
    Attempt(
        "rebinding, then 127.0.0.1",
        "curl http://rebind.example.org/",
        "refused",
        "address-loopback",
        Reason.ADDRESS_LOOPBACK,
        "rebind.example.org",
    ),
    Attempt(
        "unlisted name",
        "curl https://evil.example.net/",
        "refused",
        "403",
        Reason.NOT_GRANTED,
        "evil.example.net",
    ),
    Attempt(
        "trailing dot, refused name",
        "curl http://tracker.example.org./",
        "refused",
        "refused-by-rule",
        Reason.REFUSED_BY_RULE,
        "tracker.example.org",
    ),
    Attempt(
        "cloud metadata",
        "curl http://169.254.169.254/latest/meta-data/",
        "refused",
        "address-link-local",
        Reason.ADDRESS_LINK_LOCAL,
        "169.254.169.254",
    ),
    Attempt(
        "cloud metadata over IPv6",
        "curl http://[fd00:ec2::254]/latest/meta-data/",
        "refused",
        "address-metadata",
        Reason.ADDRESS_METADATA,
        "fd00:ec2::254",
    ),
    Attempt(
        "cloud metadata by name",
        "curl http://metadata.google.internal/",
        "refused",
        "name-special",
        Reason.NAME_SPECIAL,
        "metadata.google.internal",
    ),
    Attempt("RFC 1918", "curl http://10.0.0.5/", "refused", "address-private", Reason.ADDRESS_PRIVATE, "10.0.0.5"),
    Attempt(
        "loopback",
        "curl --noproxy '' http://127.0.0.1:8080/",
        "refused",
        "address-loopback",
        Reason.ADDRESS_LOOPBACK,
        "127.0.0.1",
    ),
    Attempt(
        "IPv4-mapped IPv6",
        "curl http://[::ffff:169.254.169.254]/",
        "refused",
        "address-link-local",
        Reason.ADDRESS_LINK_LOCAL,
        "169.254.169.254",
    ),
    Attempt(
        "an address as one number",
        r"tell_proxy 'CONNECT 2852039166:80 HTTP/1.1\r\nHost: x\r\n\r\n'",
        "refused",
        "host-invalid",
        Reason.HOST_INVALID,
    ),
    Attempt(
        "NUL in a SOCKS name",
        r"tell_proxy_hex '\005\001\000\005\001\000\003\032evil.example.net\000.pypi.org\001\273'",
        "refused",
        "05 00 05 01",
        Reason.HOST_INVALID,
    ),
    Attempt(
        "an unlisted IPv6 address",
        "curl http://[2606:4700:4700::1111]/",
        "refused",
        "not-granted",
        Reason.NOT_GRANTED,
        "2606:4700:4700::1111",
    ),
    Attempt(
        "port 22 where 443 is granted",
        r"tell_proxy 'CONNECT pypi.org:22 HTTP/1.1\r\nHost: pypi.org:22\r\n\r\n'",
        "refused",
        "port-not-granted",
        Reason.PORT_NOT_GRANTED,
        "pypi.org",
    ),
    Attempt(
        "a mixed answer",
        "curl http://mixed.example.org/",
        "refused",
        "address-private",
        Reason.ADDRESS_PRIVATE,
        "mixed.example.org",
    ),
    Attempt(
        "SNI is not the CONNECT name",
        "curl --connect-to evil.example.net:443:pypi.org:443 https://evil.example.net/",
        "refused",
        "curl: (35)",
        Reason.SNI_MISMATCH,
        "pypi.org",
    ),
    Attempt("raw TCP around the proxy", "tcp_to 93.184.215.14 443", "no way", "unreachable"),
    Attempt("raw TCP over IPv6", "tcp_to 2606:2800:21f:cb07::6 443", "no way", "unreachable"),
    Attempt("UDP (QUIC)", "udp_to 93.184.215.14 443", "no way", "unreachable"),
    Attempt("DNS to 8.8.8.8", "udp_to 8.8.8.8 53", "no way", "unreachable"),
)
