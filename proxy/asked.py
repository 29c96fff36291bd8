"""What a client asked for, once its first bytes have been read: the value every entry ends in."""

from dataclasses import dataclass

from policy.destination import Destination
from proxy.http1 import RequestHead


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to go somewhere, by whichever protocol it came."""

    entry: str
    """`socks5`, `connect` or `http`."""
    destination: Destination
    rest: bytes
    """Bytes that came glued behind the request: the tunnel's first data, or the body and what follows it."""
    head: RequestHead | None = None
    """The HTTP head; None for SOCKS5."""
    label: str | None = None
    """User name of the proxy credential: a label for the record, never an identity (POLICY §7)."""
    path: str | None = None
    """Origin-form target (path and query) for `http`; None for tunnels."""

    @property
    def accepts_json(self) -> bool:
        """The client would rather have a refusal as `application/problem+json`."""
        return self.head is not None and self.head.accepts_json


@dataclass(frozen=True, slots=True)
class Step:
    """What one feed of a reader led to: bytes to send back now, and the request once it is whole."""

    send: bytes = b""
    asked: Asked | None = None
