"""Every reason for a refusal, what each looks like in each protocol, and the verdict that carries one."""

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple


class Reason(StrEnum):
    """The closed list of POLICY §5. The value is what records, messages and tests say."""

    GRANTED = "granted"
    HOST_INVALID = "host-invalid"
    PORT_INVALID = "port-invalid"
    REQUEST_INVALID = "request-invalid"
    NOT_GRANTED = "not-granted"
    REFUSED_BY_RULE = "refused-by-rule"
    PORT_NOT_GRANTED = "port-not-granted"
    GRANT_EXPIRED = "grant-expired"
    NAME_SPECIAL = "name-special"
    METHOD_NOT_GRANTED = "method-not-granted"
    PATH_NOT_GRANTED = "path-not-granted"
    ADDRESS_LOOPBACK = "address-loopback"
    ADDRESS_PRIVATE = "address-private"
    ADDRESS_LINK_LOCAL = "address-link-local"
    ADDRESS_METADATA = "address-metadata"
    ADDRESS_MULTICAST = "address-multicast"
    ADDRESS_RESERVED = "address-reserved"
    ADDRESS_OWN = "address-own"
    ADDRESS_EMBEDDED = "address-embedded"
    SNI_MISMATCH = "sni-mismatch"
    SNI_MISSING = "sni-missing"
    HOST_MISMATCH = "host-mismatch"
    NOT_TLS = "not-tls"
    NOT_HTTP = "not-http"
    PROTOCOL_REFUSED = "protocol-refused"
    DNS_FAILED = "dns-failed"
    DNS_TIMEOUT = "dns-timeout"
    CONNECT_REFUSED = "connect-refused"
    CONNECT_UNREACHABLE = "connect-unreachable"
    CONNECT_TIMEOUT = "connect-timeout"
    APPROVAL_PENDING = "approval-pending"
    APPROVAL_REFUSED = "approval-refused"
    SESSION_REVOKED = "session-revoked"
    POLICY_CHANGED = "policy-changed"
    LIMIT_REACHED = "limit-reached"
    INTERNAL_ERROR = "internal-error"


class Codes(NamedTuple):
    """How one reason is said in each protocol; None where the protocol has no words and the connection just ends."""

    http: int | None
    """HTTP status code (RFC 9110 §15)."""
    proxy_status: str | None
    """Error type of the Proxy-Status field (RFC 9209 §2.3)."""
    socks: int | None
    """Reply field of SOCKS5 (RFC 1928 §6)."""
    dns_rcode: str | None
    """RCODE of a DNS answer (RFC 1035 §4.1.1)."""
    dns_ede: int | None = None
    """Extended DNS Error INFO-CODE (RFC 8914 §4)."""


_INVALID = Codes(400, "http_request_error", 0x01, "FORMERR")
_DENIED = Codes(403, "http_request_denied", 0x02, "NXDOMAIN", 15)
_DENIED_REQUEST = Codes(403, "http_request_denied", None, None)
_ADDRESS = Codes(403, "destination_ip_prohibited", 0x02, None)
_MISDIRECTED = Codes(421, "http_request_denied", None, None)
_PROTOCOL = Codes(400, "http_protocol_error", None, None)
_ENDED = Codes(None, "http_request_denied", 0x02, "NXDOMAIN", 15)

CODES: Final[dict[Reason, Codes]] = {
    Reason.GRANTED: Codes(None, None, 0x00, None),
    Reason.HOST_INVALID: _INVALID,
    Reason.PORT_INVALID: _INVALID,
    Reason.REQUEST_INVALID: _INVALID,
    Reason.NOT_GRANTED: _DENIED,
    Reason.REFUSED_BY_RULE: _DENIED,
    Reason.PORT_NOT_GRANTED: _DENIED,
    Reason.GRANT_EXPIRED: _DENIED,
    Reason.NAME_SPECIAL: _DENIED,
    Reason.METHOD_NOT_GRANTED: _DENIED_REQUEST,
    Reason.PATH_NOT_GRANTED: _DENIED_REQUEST,
    Reason.ADDRESS_LOOPBACK: _ADDRESS,
    Reason.ADDRESS_PRIVATE: _ADDRESS,
    Reason.ADDRESS_LINK_LOCAL: _ADDRESS,
    Reason.ADDRESS_METADATA: _ADDRESS,
    Reason.ADDRESS_MULTICAST: _ADDRESS,
    Reason.ADDRESS_RESERVED: _ADDRESS,
    Reason.ADDRESS_OWN: _ADDRESS,
    Reason.ADDRESS_EMBEDDED: _ADDRESS,
    Reason.SNI_MISMATCH: _MISDIRECTED,
    Reason.SNI_MISSING: _MISDIRECTED,
    Reason.HOST_MISMATCH: _MISDIRECTED,
    Reason.NOT_TLS: _PROTOCOL,
    Reason.NOT_HTTP: _PROTOCOL,
    Reason.PROTOCOL_REFUSED: _PROTOCOL,
    Reason.DNS_FAILED: Codes(502, "dns_error", 0x04, "SERVFAIL"),
    Reason.DNS_TIMEOUT: Codes(504, "dns_timeout", 0x04, "SERVFAIL"),
    Reason.CONNECT_REFUSED: Codes(502, "connection_refused", 0x05, None),
    Reason.CONNECT_UNREACHABLE: Codes(502, "destination_ip_unroutable", 0x04, None),
    Reason.CONNECT_TIMEOUT: Codes(504, "connection_timeout", 0x06, None),
    Reason.APPROVAL_PENDING: _DENIED,
    Reason.APPROVAL_REFUSED: _DENIED,
    Reason.SESSION_REVOKED: _ENDED,
    Reason.POLICY_CHANGED: _ENDED,
    Reason.LIMIT_REACHED: Codes(503, "connection_limit_reached", 0x01, None),
    Reason.INTERNAL_ERROR: Codes(502, "proxy_internal_error", 0x01, "SERVFAIL"),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One decision. Only `allowed` lets anything pass; everything else says why."""

    allowed: bool
    reason: Reason
    grant: str | None = None
    """Name of the grant that allowed it (or came nearest: the expired one, the one with other ports)."""
    rule: str | None = None
    """The refuse rule, address block or name rule that refused it, in words."""
    layer: str | None = None
    """The policy file that decided."""
    revision: str = ""
    """Revision of the policy that was asked."""
    detail: str = ""
    """One sentence for a person."""
    address: IPv4Address | IPv6Address | None = None
    """The address that offended, where one did."""
    would_refuse: Reason | None = None
    """In report mode: the reason that enforce mode would have given."""
