"""The closed list of reasons and what each looks like in each protocol, as POLICY §5's table has it."""

from policy.verdict import CODES, Reason

DENIED, PROHIBITED, PROTOCOL = "http_request_denied", "destination_ip_prohibited", "http_protocol_error"
TABLE = {
    (Reason.GRANTED,): (None, None, 0x00, None, None),
    (Reason.HOST_INVALID, Reason.PORT_INVALID, Reason.REQUEST_INVALID): (400, "http_request_error", 0x01, "FORMERR", None),
    (Reason.NOT_GRANTED, Reason.REFUSED_BY_RULE, Reason.PORT_NOT_GRANTED, Reason.GRANT_EXPIRED, Reason.NAME_SPECIAL): (403, DENIED, 0x02, "NXDOMAIN", 15),
    (Reason.METHOD_NOT_GRANTED, Reason.PATH_NOT_GRANTED): (403, DENIED, None, None, None),
    tuple(reason for reason in Reason if reason.startswith("address-")): (403, PROHIBITED, 0x02, None, None),
    (Reason.SNI_MISMATCH, Reason.SNI_MISSING, Reason.HOST_MISMATCH): (421, DENIED, None, None, None),
    (Reason.NOT_TLS, Reason.NOT_HTTP, Reason.PROTOCOL_REFUSED): (400, PROTOCOL, None, None, None),
    (Reason.DNS_FAILED,): (502, "dns_error", 0x04, "SERVFAIL", None),
    (Reason.DNS_TIMEOUT,): (504, "dns_timeout", 0x04, "SERVFAIL", None),
    (Reason.CONNECT_REFUSED,): (502, "connection_refused", 0x05, None, None),
    (Reason.CONNECT_UNREACHABLE,): (502, "destination_ip_unroutable", 0x04, None, None),
    (Reason.CONNECT_TIMEOUT,): (504, "connection_timeout", 0x06, None, None),
    (Reason.APPROVAL_PENDING, Reason.APPROVAL_REFUSED): (403, DENIED, 0x02, "NXDOMAIN", 15),
    (Reason.SESSION_REVOKED, Reason.POLICY_CHANGED): (None, DENIED, 0x02, "NXDOMAIN", 15),
    (Reason.LIMIT_REACHED,): (503, "connection_limit_reached", 0x01, None, None),
    (Reason.INTERNAL_ERROR,): (502, "proxy_internal_error", 0x01, "SERVFAIL", None),
}  # fmt: skip


def test_every_reason_has_its_codes():
    said = {reason: codes for reasons, codes in TABLE.items() for reason in reasons}
    assert set(said) == set(Reason) == set(CODES)
    assert {reason: tuple(CODES[reason]) for reason in Reason} == said
