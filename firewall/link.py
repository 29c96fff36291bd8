"""The links, addresses and routes of a network namespace, over rtnetlink: the one door to pyroute2."""

from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network, ip_address
from typing import Any, Final, Self

from pyroute2.iproute.linux import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from policy.errors import Broken
from policy.host import Address

LOOPBACK: Final = "lo"
TABLE_MAIN: Final = 254
TABLE_LOCAL: Final = 255
"""Asked before every other table (ip-rule(8))."""
_ADDRESS_NODAD: Final = 0x02
"""IFA_F_NODAD: usable at once; a namespace of ours has nobody to collide with."""
_LINK_UP: Final = 1
"""IFF_UP."""

type Network = IPv4Network | IPv6Network
type Interface = IPv4Interface | IPv6Interface


@dataclass(frozen=True, slots=True)
class Link:
    """One network interface, as the kernel tells it."""

    name: str
    index: int
    kind: str
    """`veth`, `bridge`...; empty for loopback and hardware."""
    is_up: bool
    """Administratively up (IFF_UP); one that is not carries nothing."""


@dataclass(frozen=True, slots=True)
class Route:
    """One route. `network` of prefix 0 is the default route; `link` is the interface it leaves by."""

    network: Network
    via: Address | None = None
    link: str | None = None
    kind: str = "unicast"
    """`unicast`, `local` (AnyIP: all of `network` is ours), `unreachable`, `blackhole`, `prohibit`."""
    table: int = TABLE_MAIN


class Links:
    """One rtnetlink socket in the network namespace that the calling thread is in when this is made.

    Every method raises Broken with the kernel's words when the kernel says no (rtnetlink(7)).
    """

    def __init__(self) -> None:
        self._kernel: Any = IPRoute()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the socket back."""
        self._kernel.close()

    def _ask(self, what: str, call: str, *args: object, **fields: object) -> Any:
        try:
            return getattr(self._kernel, call)(*args, **fields)
        except (NetlinkError, OSError) as fault:
            raise Broken(f"{what}: the kernel said {fault}") from fault

    def _index(self, name: str) -> int:
        for link in self.all():
            if link.name == name:
                return link.index
        raise Broken(f"there is no network interface {name!r} in this namespace")

    def all(self) -> tuple[Link, ...]:
        """Every interface of the namespace."""
        return tuple(
            Link(
                name=row.get_attr("IFLA_IFNAME"),
                index=row["index"],
                kind=about.get_attr("IFLA_INFO_KIND") or "" if (about := row.get_attr("IFLA_LINKINFO")) else "",
                is_up=bool(row["flags"] & _LINK_UP),
            )
            for row in self._ask("list links", "get_links")
        )

    def add_veth(self, name: str, peer_name: str, peer_namespace_fd: int) -> None:
        """Make a veth(4) pair: `name` here, `peer_name` in the namespace of the descriptor."""
        peer = {"ifname": peer_name, "net_ns_fd": peer_namespace_fd}
        self._ask(f"add veth {name}", "link", "add", ifname=name, kind="veth", peer=peer)

    def bring_up(self, name: str) -> None:
        """Set the interface up."""
        self._ask(f"bring up {name}", "link", "set", index=self._index(name), state="up")

    def add_address(self, name: str, address: Interface) -> None:
        """Give the interface an address with its prefix; an IPv6 one is usable at once."""
        fields: dict[str, object] = {"flags": _ADDRESS_NODAD} if address.version == 6 else {}
        self._ask(
            f"add address {address} to {name}",
            "addr",
            "add",
            index=self._index(name),
            address=str(address.ip),
            prefixlen=address.network.prefixlen,
            **fields,
        )

    def add_route(self, route: Route) -> None:
        """Add one route."""
        self._route("add", route)

    def remove_route(self, route: Route) -> None:
        """Remove one route."""
        self._route("del", route)

    def _route(self, verb: str, route: Route) -> None:
        fields: dict[str, object] = {
            "family": 2 if route.network.version == 4 else 10,
            "dst": str(route.network),
            "type": route.kind,
            "table": route.table,
        }
        if route.kind == "local":
            fields["scope"] = 254
        if route.via is not None:
            fields["gateway"] = str(route.via)
        if route.link is not None:
            fields["oif"] = self._index(route.link)
        self._ask(f"{verb} route {route.network}", "route", verb, **fields)

    def addresses(self) -> frozenset[Address]:
        """Every address of the namespace's interfaces."""
        rows = self._ask("list addresses", "get_addr")
        return frozenset(ip_address(row.get_attr("IFA_ADDRESS")) for row in rows)
