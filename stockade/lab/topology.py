"""The lab's two network namespaces and the one cable between them, built and checked: no way out."""

import os
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from firewall.link import LOOPBACK, TABLE_LOCAL, Links, Route
from policy.errors import Broken
from stockade.lab import places

_EVERYTHING: Final = (ip_network("0.0.0.0/0"), ip_network("::/0"))
_NETWORK: Final = Path("/proc/self/ns/net")
_USER: Final = Path("/proc/self/ns/user")


@dataclass(frozen=True, slots=True)
class Topology:
    """Open descriptors of the namespaces, which live as long as a descriptor or a process holds them."""

    user_fd: int | None
    """The user namespace that owns the others; None when it needed none (root)."""
    gateway_fd: int
    internet_fd: int

    def enter(self, where: str) -> None:
        """Move the calling thread into `gateway` or `internet` (setns(2))."""
        os.setns({places.GATEWAY: self.gateway_fd, places.INTERNET: self.internet_fd}[where], os.CLONE_NEWNET)


def build() -> Topology:
    """Build both namespaces and leave the calling, single-threaded process in `internet`.

    Who may not make network namespaces gets a user namespace with the identity mapping first (user_namespaces(7)).
    Raises Broken when the kernel refuses, or when a namespace came out with any link but its own end.
    """
    outside = _NETWORK.stat().st_ino
    user_fd = None
    try:
        gateway_fd = _new_namespace()
    except PermissionError:
        _own_user_namespace()
        user_fd = os.open(_USER, os.O_RDONLY | os.O_CLOEXEC)
        gateway_fd = _new_namespace()
    internet_fd = _new_namespace()
    topology = Topology(user_fd, gateway_fd, internet_fd)
    with Links() as links:
        links.bring_up(LOOPBACK)
        links.add_veth(places.INTERNET_LINK, places.GATEWAY_LINK, gateway_fd)
        for address in places.INTERNET_ADDRESSES:
            links.add_address(places.INTERNET_LINK, address)
        links.bring_up(places.INTERNET_LINK)
        # AnyIP: every address is this namespace's own, except those of the cable (same table, longer prefix).
        for everything, cable in zip(_EVERYTHING, places.INTERNET_ADDRESSES, strict=True):
            links.add_route(Route(cable.network, link=places.INTERNET_LINK, table=TABLE_LOCAL))
            links.add_route(Route(everything, link=LOOPBACK, kind="local", table=TABLE_LOCAL))
    topology.enter(places.GATEWAY)
    with Links() as links:
        links.bring_up(LOOPBACK)
        for address in places.GATEWAY_ADDRESSES:
            links.add_address(places.GATEWAY_LINK, address)
        links.bring_up(places.GATEWAY_LINK)
        for everything, there in zip(_EVERYTHING, places.INTERNET_ADDRESSES, strict=True):
            links.add_route(Route(everything, via=there.ip, link=places.GATEWAY_LINK))
    for where, cable_end in ((places.GATEWAY, places.GATEWAY_LINK), (places.INTERNET, places.INTERNET_LINK)):
        topology.enter(where)
        _check_no_way_out(where, cable_end, outside)
    return topology


def _own_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    try:
        os.unshare(os.CLONE_NEWUSER)
        for file, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{file}", "w", encoding="ascii") as kernel:
                kernel.write(text)
    except OSError as fault:
        raise Broken(
            f"this user may not make a user namespace ({fault}): raise user.max_user_namespaces, "
            "set kernel.apparmor_restrict_unprivileged_userns=0, or run as root"
        ) from fault


def _new_namespace() -> int:
    os.unshare(os.CLONE_NEWNET)
    return os.open(_NETWORK, os.O_RDONLY | os.O_CLOEXEC)


def _check_no_way_out(where: str, cable_end: str, outside: int) -> None:
    if _NETWORK.stat().st_ino == outside:
        raise Broken(f"the lab's {where} is the namespace it was started in; refusing to start")
    with Links() as links:
        # Kernels put fall-back tunnel links (sit0, tunl0...) into every namespace; down, they carry nothing.
        found = {(link.name, link.kind) for link in links.all() if link.is_up}
    if found != {(LOOPBACK, ""), (cable_end, "veth")}:
        names = ", ".join(sorted(name for name, _ in found))
        raise Broken(f"the lab's {where} has links it should not have ({names}); refusing to start")
