"""Judges what a tunnel's client says first: a ClientHello's SNI is a claim that must equal the destination (POLICY §5).

The rules, in full. A first byte of 0x16 is TLS on every port:

- to a name, the SNI must be that name: another one is `sni-mismatch`, none is `sni-missing`;
- to an address, there must be no SNI: RFC 6066 §3 forbids literals in it, and a name is a second claim that the
  grant of the address does not speak for (`sni-mismatch`); who wants the name asks the proxy for the name;
- with Encrypted ClientHello the outer SNI is judged; the inner one can only be known where TLS ends here.

Anything else is refused on port 443 (`not-tls`), is read as HTTP on port 80, and passes on other ports.
A server that speaks first is never waited for, and never waits.
"""

from enum import Enum
from typing import Final

from policy.destination import Destination
from policy.errors import BadClient
from policy.verdict import Reason
from proxy.client_hello import ClientHelloReader, Hello
from proxy.refusal import TLS_NAME_REFUSED

TLS_PORT: Final = 443
HTTP_PORT: Final = 80
TLS_HANDSHAKE: Final = 0x16
"""ContentType of a record that holds a ClientHello (RFC 8446 §5.1)."""

ALERTS: Final = {Reason.SNI_MISMATCH: TLS_NAME_REFUSED, Reason.SNI_MISSING: b"\x15\x03\x03\x00\x02\x02\x6d"}
"""The fatal alert that tells a TLS client the cause (RFC 8446 §6.2): unrecognized_name, missing_extension."""


class Next(Enum):
    """What to do after some of the first bytes."""

    WAIT = "more bytes are needed"
    PASS = "the bytes and all that follow may go on"  # noqa: S105 - no password
    HTTP = "it is HTTP in the clear: each request must be judged"


class Claim:
    """Fed the client's bytes until it answers something else than WAIT; raises BadClient for a claim that fails."""

    __slots__ = ("_destination", "_fed_bytes", "_reader")

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._reader: ClientHelloReader | None = None
        self._fed_bytes = 0

    @property
    def has_deadline(self) -> bool:
        """The client owes a ClientHello: TLS is demanded, or was begun."""
        return self._destination.port == TLS_PORT or self._reader is not None

    def feed(self, data: bytes) -> Next:
        """Take more of the client's bytes, never none."""
        if self._fed_bytes == 0 and data[0] != TLS_HANDSHAKE:
            return self._untold(data)
        if self._reader is None:
            self._reader = ClientHelloReader()
        self._fed_bytes += len(data)
        hello = self._reader.feed(data)
        if hello is None:
            return Next.WAIT
        self._judge(hello)
        return Next.PASS

    def end(self) -> None:
        """The client said all it will say; half a ClientHello is no claim."""
        if self._fed_bytes:
            raise BadClient(Reason.NOT_TLS, "The client closed in the middle of its ClientHello.")

    def _untold(self, data: bytes) -> Next:
        if self._destination.port == TLS_PORT:
            raise BadClient(Reason.NOT_TLS, f"A tunnel to port 443 must speak TLS; the first byte was 0x{data[0]:02x}.")
        return Next.HTTP if self._destination.port == HTTP_PORT else Next.PASS

    def _judge(self, hello: Hello) -> None:
        name = self._destination.name
        if name is None:
            if hello.sni is not None:
                raise BadClient(
                    Reason.SNI_MISMATCH,
                    f"The tunnel was opened to the address {self._destination.host}, "
                    f"but the ClientHello names {hello.sni}; ask the proxy for the name.",
                )
        elif hello.sni is None:
            raise BadClient(Reason.SNI_MISSING, f"The tunnel was opened to {name}, but the ClientHello names no server.")
        elif hello.sni != name:
            raise BadClient(
                Reason.SNI_MISMATCH,
                f"The tunnel was opened to {name}, but the ClientHello names {hello.sni}.",
            )
