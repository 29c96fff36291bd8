"""A request's method and path in the one form that rules are matched on; what could be read two ways is refused."""

import re
from dataclasses import dataclass
from typing import Final

from policy.errors import BadClient
from policy.quote import quote
from policy.verdict import Reason

_METHOD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")
"""RFC 9110 §5.6.2 `token`; no registered method is longer than 17."""
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})|%")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SEPARATORS: Final = frozenset("/\\")


@dataclass(frozen=True, slots=True)
class PathPattern:
    """Segments between slashes: `*` is one segment that is not empty, `**` any number of segments, none too."""

    segments: tuple[str, ...]

    def __str__(self) -> str:
        return "/" + "/".join(self.segments)

    def covers(self, path: tuple[str, ...]) -> bool:
        """Whether the path (from `read_path`) matches. Steps: segments of the pattern times segments of the path."""
        pattern = self.segments
        at = seen = 0
        star, restart = -1, 0
        while seen < len(path):
            if at < len(pattern) and pattern[at] == "**":
                star, restart = at, seen
                at += 1
            elif at < len(pattern) and (pattern[at] == path[seen] or (pattern[at] == "*" and path[seen])):
                at += 1
                seen += 1
            elif star >= 0:
                restart += 1
                at, seen = star + 1, restart
            else:
                return False
        return all(segment == "**" for segment in pattern[at:])


def read_method(text: str) -> str:
    """A method, which is case-sensitive (RFC 9110 §9.1). Raises BadClient(REQUEST_INVALID)."""
    if not _METHOD.fullmatch(text):
        raise BadClient(Reason.REQUEST_INVALID, f"the method {quote(text)} is no HTTP token")
    return text


def read_path(raw: str) -> tuple[str, ...]:
    """The segments of a path in normal form (RFC 3986 §6.2.2).

    The query is dropped, unreserved escapes are decoded, others are in upper case. Two servers read dot segments, empty
    segments, encoded slashes, backslashes, controls and broken escapes in two ways, so a path with one of them has no
    normal form. Raises BadClient(REQUEST_INVALID).
    """
    path = raw.partition("?")[0]
    if not path.startswith("/"):
        raise _ambiguous(raw, "does not begin with /")
    if not path.isascii() or not path.isprintable() or " " in path:
        raise _ambiguous(raw, "has characters that a client must percent-encode")
    segments = tuple(_ESCAPE.sub(_decode, segment) for segment in path[1:].split("/"))
    if "\\" in path or any(_is_encoded_separator(escape) for escape in _ESCAPE.findall(path)):
        raise _ambiguous(raw, "has a backslash or an encoded slash")
    for segment in segments:
        # Some servers cut path parameters off first, so "..;x" is a dot segment to them.
        if segment.partition(";")[0] in (".", ".."):
            raise _ambiguous(raw, "has a dot segment")
    if "" in segments[:-1]:
        raise _ambiguous(raw, "has an empty segment")
    return segments


def read_path_pattern(text: str) -> PathPattern:
    """A pattern of a policy. Raises BadClient(REQUEST_INVALID) with the reason in words."""
    segments = read_path(text)
    for segment in segments:
        if "*" in segment and segment not in ("*", "**"):
            raise _ambiguous(text, "has a star beside other characters; '*' is one whole segment, '**' any number")
    if "?" in text or "#" in text:
        raise _ambiguous(text, "has a query or a fragment; rules are matched on the path alone")
    return PathPattern(segments)


def _decode(match: re.Match[str]) -> str:
    digits = match.group(1)
    if digits is None:
        raise BadClient(Reason.REQUEST_INVALID, "the path has a % without two hexadecimal digits")
    code = int(digits, 16)
    if code < 0x20 or code == 0x7F:
        raise BadClient(Reason.REQUEST_INVALID, "the path has an encoded control character")
    return chr(code) if chr(code) in _UNRESERVED else match.group().upper()


def _is_encoded_separator(digits: str) -> bool:
    return bool(digits) and chr(int(digits, 16)) in _SEPARATORS


def _ambiguous(raw: str, fault: str) -> BadClient:
    return BadClient(Reason.REQUEST_INVALID, f"the path {quote(raw)} {fault}")
