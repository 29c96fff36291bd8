"""A host in its one normal form: a DNS name or an address, and the only reader of host text (POLICY §2)."""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, NewType

from policy.errors import BadClient
from policy.limits import LABEL_MAX_BYTES, NAME_MAX_BYTES
from policy.quote import quote
from policy.verdict import Reason

Name = NewType("Name", str)
"""Lower-case letters, digits, `-`, `_`; labels of 1-63 octets, 1-253 in all; no trailing dot, no number (POLICY §2)."""

type Address = IPv4Address | IPv6Address
"""Never an IPv4-mapped IPv6 address (that becomes the IPv4 it carries), never with a zone id."""

type Host = Name | IPv4Address | IPv6Address

_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""What a WHATWG URL parser takes for a number at the end of a host ("ends in a number")."""
_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_QUAD: Final = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")
_V6_CHARACTERS: Final = re.compile(r"[0-9A-Fa-f:.]{2,45}")


def read_host(raw: bytes | str) -> Host:
    """A name or a dotted quad.

    Bytes are what a peer sent: ASCII only. Text comes from a person: a Unicode name becomes A-labels where IDNA 2008
    takes it unchanged (RFC 5891 §5). IPv6 needs brackets, which are the caller's (`read_v6`).
    Raises BadClient(HOST_INVALID).
    """
    if len(raw) > NAME_MAX_BYTES + 1:
        raise _invalid(raw, f"is longer than {NAME_MAX_BYTES} bytes")
    if isinstance(raw, bytes):
        try:
            text = raw.decode("ascii")
        except UnicodeDecodeError:
            raise _invalid(raw, "has bytes that are not ASCII; a client sends A-labels (xn--...)") from None
    else:
        text = raw if raw.isascii() else _a_labels(raw)
    text = text.lower()
    if _QUAD.fullmatch(text):
        return IPv4Address(text)
    return _name(text.removesuffix("."), raw)


def read_v6(raw: bytes | str) -> Address:
    """The text between the brackets of an IPv6 literal (RFC 4291 §2.2); IPv4-mapped becomes IPv4.

    Raises BadClient(HOST_INVALID), for zone ids (RFC 6874) and IPvFuture too.
    """
    text = raw.decode("latin-1") if isinstance(raw, bytes) else raw
    if "%" in text:
        raise _invalid(raw, "has a zone id, which names an interface of one machine")
    if not _V6_CHARACTERS.fullmatch(text) or ":" not in text:
        raise _invalid(raw, "is not an IPv6 address; brackets go around nothing else")
    try:
        return plain(IPv6Address(text))
    except AddressValueError as error:
        raise _invalid(raw, f"is not an IPv6 address ({quote(str(error))[1:-1]})") from None


def read_address(raw: str) -> Address:
    """An address as DNS data, a policy or a person gives it: a dotted quad or IPv6 without brackets."""
    host = read_v6(raw) if ":" in raw else read_host(raw)
    if isinstance(host, str):
        raise _invalid(raw, "is a name where an address is wanted")
    return host


def unpack(packed: bytes) -> Address:
    """4 or 16 octets in network order; IPv4-mapped becomes IPv4. Raises BadClient(HOST_INVALID) for other lengths."""
    if len(packed) == 4:
        return IPv4Address(packed)
    if len(packed) == 16:
        return plain(IPv6Address(packed))
    raise _invalid(packed, "is neither 4 nor 16 octets")


def plain(address: Address) -> Address:
    """`address`, or the IPv4 address that an IPv4-mapped one (::ffff:0:0/96, RFC 4291 §2.5.5.2) stands for."""
    if isinstance(address, IPv6Address) and int(address) >> 32 == 0xFFFF:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _name(text: str, raw: bytes | str) -> Name:
    if not text or len(text) > NAME_MAX_BYTES or not _NAME.fullmatch(text):
        raise _invalid(raw, _fault(text))
    last = text[text.rfind(".") + 1 :]
    if last[0].isdigit() and _NUMBER.fullmatch(last):
        raise _invalid(raw, "ends in a number and is not a plain dotted quad; two parsers would read it two ways")
    if len(text) > LABEL_MAX_BYTES or "xn--" in text:
        for label in text.split("."):
            if len(label) > LABEL_MAX_BYTES:
                raise _invalid(raw, f"has a label longer than {LABEL_MAX_BYTES} bytes")
            if label.startswith("xn--"):
                _check_a_label(label, raw)
    return Name(text)


def _fault(text: str) -> str:
    """Why `text` is no name, for a person."""
    if not text:
        return "is empty"
    if len(text) > NAME_MAX_BYTES:
        return f"is longer than {NAME_MAX_BYTES} bytes"
    if "" in text.split("."):
        return "has an empty label"
    strange = re.search(r"[^a-z0-9_.-]", text)
    if strange:
        return f"has the character {quote(strange.group())}; names are letters, digits, '-', '_' and dots"
    return "has a label that begins or ends with '-'"


def _check_a_label(label: str, raw: bytes | str) -> None:
    """An A-label must decode and encode back to itself (RFC 5891 §5.4)."""
    import idna

    try:
        again = idna.alabel(idna.ulabel(label)).decode("ascii")
    except (idna.IDNAError, UnicodeError) as error:
        raise _invalid(raw, f"has an A-label that IDNA 2008 refuses ({quote(str(error))[1:-1]})") from None
    if again != label:
        raise _invalid(raw, "has an A-label that does not encode back to itself")


def _a_labels(text: str) -> str:
    """Unicode from a person to A-labels; nothing is mapped, so what would have to be is an error that says so."""
    import unicodedata

    import idna

    if unicodedata.normalize("NFC", text) != text:
        raise _invalid(text, "is not in Unicode normal form C; write it composed")
    labels = []
    for label in text.split("."):
        try:
            # Only ASCII is folded: beyond it, lower case is a mapping (U+0130 becomes two characters).
            folded = "".join(letter.lower() if letter.isascii() else letter for letter in label)
            labels.append(folded if label.isascii() else idna.alabel(folded).decode("ascii"))
        except (idna.IDNAError, UnicodeError) as error:
            raise _invalid(text, f"is not valid under IDNA 2008 ({quote(str(error))[1:-1]})") from None
    return ".".join(labels)


def _invalid(raw: bytes | str, fault: str) -> BadClient:
    return BadClient(Reason.HOST_INVALID, f"the host {quote(raw)} {fault}")
