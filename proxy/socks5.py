"""SOCKS5 as a client speaks it to us: greeting, optional user name, one CONNECT (RFC 1928, RFC 1929)."""

from enum import Enum
from typing import Final

from policy.destination import read_name, read_packed
from policy.errors import BadClient
from policy.verdict import Codes, Reason
from proxy.asked import Asked, Step
from proxy.refusal import Unspeakable, socks5

VERSION: Final = 5
METHOD_NONE: Final = 0x00
METHOD_PASSWORD: Final = 0x02
METHOD_NO_ACCEPTABLE: Final = 0xFF
COMMAND_CONNECT: Final = 0x01
REPLY_GENERAL: Final = 0x01
REPLY_COMMAND: Final = 0x07
REPLY_ADDRESS: Final = 0x08

_ATYP_NAME: Final = 0x03
_ATYP_BYTES: Final = {0x01: 4, 0x04: 16}


class Phase(Enum):
    """Which message of the client is awaited."""

    GREETING = "greeting"
    PASSWORD = "password"  # noqa: S105 - a phase, not a secret
    REQUEST = "request"


class Socks5Reader:
    """Reads one client up to its request; bytes in, bytes to send back and the Asked out."""

    entry = "socks5"

    def __init__(self) -> None:
        self._held = b""
        self._unsent = b""
        """Answers to the messages of this feed that were well; a refusal comes behind them."""
        self._phase = Phase.GREETING
        self._label: str | None = None

    def feed(self, data: bytes) -> Step:
        """Read on. Raises BadClient for what the protocol has no place for; say `refused` and close then."""
        self._held += data
        while True:
            if self._phase is Phase.GREETING:
                answer = self._greeting()
            elif self._phase is Phase.PASSWORD:
                answer = self._password()
            else:
                asked = self._request()
                break
            if answer is None:
                asked = None
                break
            self._unsent += answer
        send, self._unsent = self._unsent, b""
        return Step(send, asked)

    def refused(self, reply: int) -> bytes:
        """Say the error of the phase the client is in; `reply` is the REP field where there is one."""
        if self._phase is Phase.GREETING:
            return bytes((VERSION, METHOD_NO_ACCEPTABLE))
        if self._phase is Phase.PASSWORD:
            return self._unsent + b"\x01\x01"
        return self._unsent + socks5(reply)

    def _greeting(self) -> bytes | None:
        """RFC 1928 §3: version, count, methods. A credential is taken for its label when offered."""
        held = self._held
        if held[:1] not in (b"", b"\x05"):
            raise BadClient(Reason.NOT_HTTP, f"SOCKS version {held[0]} is not spoken here")
        if len(held) < 2 or len(held) < 2 + held[1]:
            return None
        methods = held[2 : 2 + held[1]]
        self._held = held[2 + held[1] :]
        if METHOD_PASSWORD in methods:
            self._phase = Phase.PASSWORD
            return bytes((VERSION, METHOD_PASSWORD))
        if METHOD_NONE in methods:
            self._phase = Phase.REQUEST
            return bytes((VERSION, METHOD_NONE))
        raise BadClient(Reason.PROTOCOL_REFUSED, "no SOCKS5 method in common: offer 0 (none) or 2 (user name)")

    def _password(self) -> bytes | None:
        """RFC 1929 §2: any name and password are accepted; the password is not kept."""
        held = self._held
        if held and held[0] != 1:
            raise BadClient(Reason.REQUEST_INVALID, f"version {held[0]} of user/password is not spoken here")
        if len(held) < 2 or len(held) < 3 + held[1]:
            return None
        name_end = 2 + held[1]
        end = name_end + 1 + held[name_end]
        if len(held) < end:
            return None
        self._label = held[2:name_end].decode("utf-8", "replace")
        self._held = held[end:]
        self._phase = Phase.REQUEST
        return b"\x01\x00"

    def _request(self) -> Asked | None:
        """RFC 1928 §4: CONNECT to a name or an address."""
        held = self._held
        if held and held[0] != VERSION:
            raise BadClient(Reason.REQUEST_INVALID, f"SOCKS version {held[0]} in the request")
        if len(held) > 1 and held[1] != COMMAND_CONNECT:
            raise _refuse(f"SOCKS5 command {held[1]} is not offered: only CONNECT (1) is", REPLY_COMMAND)
        if len(held) > 2 and held[2] != 0:
            raise BadClient(Reason.REQUEST_INVALID, "the reserved octet of a SOCKS5 request must be zero")
        if len(held) > 3 and held[3] != _ATYP_NAME and held[3] not in _ATYP_BYTES:
            raise _refuse(f"SOCKS5 address type {held[3]} is not known", REPLY_ADDRESS)
        if len(held) < 5:
            return None
        start, size = (5, held[4]) if held[3] == _ATYP_NAME else (4, _ATYP_BYTES[held[3]])
        end = start + size + 2
        if len(held) < end:
            return None
        host, port = held[start : end - 2], int.from_bytes(held[end - 2 : end])
        read = read_name if held[3] == _ATYP_NAME else read_packed
        self._held = b""
        return Asked(self.entry, read(host, port), held[end:], label=self._label)


def _refuse(detail: str, reply: int) -> Unspeakable:
    return Unspeakable(Reason.PROTOCOL_REFUSED, detail, Codes(None, None, reply, None))
