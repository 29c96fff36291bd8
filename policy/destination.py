"""A destination is read once, here, from wire bytes or text; nothing after it sees text again (POLICY §2)."""

from dataclasses import dataclass
from ipaddress import IPv6Address

from policy.host import Address, Host, Name


@dataclass(frozen=True, slots=True)
class Destination:
    """Host and port as asked for, in normal form, before any name was resolved."""

    host: Host
    port: int

    @property
    def name(self) -> Name | None:
        """The host when it is a name."""
        return self.host if isinstance(self.host, str) else None

    @property
    def address(self) -> Address | None:
        """The host when it is an address literal."""
        return None if isinstance(self.host, str) else self.host

    def __str__(self) -> str:
        """`host:port`, IPv6 in brackets: the authority form of RFC 3986 §3.2, which reads back to an equal value."""
        return f"[{self.host}]:{self.port}" if isinstance(self.host, IPv6Address) else f"{self.host}:{self.port}"
