"""Single values of a policy file that are no host and no network: ports, moments, names, headers, reasons."""

import re
from datetime import datetime
from difflib import get_close_matches
from typing import Final

from policy.pattern import BadSpelling, read_ports
from policy.quote import quote
from policy.verdict import Reason

_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_OWNED_HEADERS: Final = re.compile(
    r"host|content-length|transfer-encoding|connection|keep-alive|te|trailer|upgrade|proxy-.*", re.IGNORECASE
)
"""Headers that say where a message ends or goes; a policy that set them could move the request."""
_INJECTED: Final = re.compile(r"(?:[\x20-\x7a|\x7e]|\{secret:[A-Za-z0-9_.-]{1,64}\})+")
_FIRST_YEAR, _LAST_YEAR = 1970, 9998
"""What Unix time and calendars can both say in any time zone."""
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,80}")


def read_port_value(value: object) -> range:
    """A port or a range of ports. Raises BadSpelling."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise BadSpelling(f'{describe(value)} where a port is wanted; write 443, or "9000-9010"')
    return read_ports(value)


def read_moment(value: object) -> float:
    """A moment with its offset, as Unix time. Raises BadSpelling."""
    if not isinstance(value, datetime):
        raise BadSpelling(f"{describe(value)} where a moment is wanted; write it without quotes: 2027-01-31T00:00:00Z")
    if value.tzinfo is None:
        raise BadSpelling(f"a moment without its offset from UTC; write {value.isoformat()}Z")
    if not _FIRST_YEAR <= value.year <= _LAST_YEAR:
        raise BadSpelling(f"a moment outside the years {_FIRST_YEAR} to {_LAST_YEAR}; leave until out for one that never ends")
    return value.timestamp()


def read_title(value: str) -> str:
    """What a grant or a rule is called: 1-80 characters, no controls. Raises BadSpelling."""
    if not _NAME.fullmatch(value):
        raise BadSpelling("a name that is empty, longer than 80 characters or has controls; write a short phrase")
    return value


def read_header(value: str) -> str:
    """The name of a header (RFC 9110 §5.1) that may be added to a request. Raises BadSpelling."""
    if not _HEADER.fullmatch(value) or _OWNED_HEADERS.fullmatch(value):
        raise BadSpelling(f'{quote(value)} is no header that may be added; write one such as "Authorization"')
    return value


def read_injected(value: str) -> str:
    """The value of such a header: printable ASCII, secrets as `{secret:name}`. Raises BadSpelling."""
    if not _INJECTED.fullmatch(value):
        raise BadSpelling("a value with characters no header may have; write plain ASCII, secrets as {secret:name}")
    return value


def read_reason(value: str) -> Reason:
    """One of the closed list. Raises BadSpelling, with the nearest one."""
    if value not in list(Reason):
        close = get_close_matches(value, list(Reason), n=1)
        raise BadSpelling(f"{quote(value)} is no reason; write {quote(close[0]) if close else 'one of docs/policy.md'}")
    return Reason(value)


def shown(value: object) -> str:
    """Any value of a TOML file, fit to print."""
    return quote(value) if isinstance(value, str) else quote(repr(value))[1:-1]


def describe(value: object) -> str:
    """What sort of value it is, for a sentence that says what is wanted instead."""
    sorts = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}
    other = "a moment" if isinstance(value, datetime) else "a date or time"
    return f"{sorts.get(type(value), other)} ({shown(value)})"
