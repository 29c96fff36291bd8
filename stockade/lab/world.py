"""The lab's own process: builds the namespaces, serves in them, takes orders, dies with its owner."""

import asyncio
import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

from firewall.link import LOOPBACK, TABLE_LOCAL, Links, Route
from policy.errors import Broken
from stockade.lab import places
from stockade.lab.authority import Authority
from stockade.lab.dns_server import DnsServer, plain_address
from stockade.lab.goods import sites
from stockade.lab.origins import CANARY_WORDS, Origins
from stockade.lab.topology import Topology, build
from stockade.lab.watch import Watch
from stockade.lab.zone import Zone

_PARENT_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG (prctl(2)): the second string; the first is the end of the control socket."""

_FORWARDING: Final = ("/proc/sys/net/ipv4/conf/all/forwarding", "/proc/sys/net/ipv6/conf/all/forwarding")


def main(control_fd: int) -> None:
    """Say `{"ready": ...}`, then be the lab until the control socket ends."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a test may keep thousands of connections open
    control = socket.socket(fileno=control_fd)
    try:
        topology = build()
        asyncio.run(_serve(control, topology))
    except (Broken, OSError) as fault:
        control.sendall(json.dumps({"ready": False, "fault": str(fault)}).encode() + b"\n")
        sys.exit(1)


async def _serve(control: socket.socket, topology: Topology) -> None:
    world = World(topology)
    await world.start()
    fds = [topology.gateway_fd, topology.internet_fd]
    if topology.user_fd is not None:
        fds.append(topology.user_fd)
    socket.send_fds(control, [_line({"ready": True, "root_pem": world.root_pem})], fds)
    control.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=control, limit=1 << 24)
    while order := await reader.readline():
        answer, descriptor = await world.obey(json.loads(order))
        if descriptor is None:
            writer.write(_line(answer))
            await writer.drain()
        else:
            with descriptor:
                raw = writer.get_extra_info("socket")
                socket.send_fds(socket.socket(fileno=os.dup(raw.fileno())), [_line(answer)], [descriptor.fileno()])


def _line(answer: object) -> bytes:
    return json.dumps(answer).encode() + b"\n"


class World:
    """Everything that answers or counts, and the orders that change it."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        authority = Authority()
        self.root_pem = authority.root_pem
        self._zone = Zone(places.NAMES)
        self._dns = DnsServer(self._zone, frozenset(places.RESOLVERS))
        self._origins = Origins(authority, self._dns, sites())
        self._watch = Watch()
        self._expected: set[str] = set()
        self._routes: list[Route] = []
        self._orders: dict[str, Callable[..., Any]] = {
            "names": self._zone.write,
            "asked": lambda: dict(self._zone.asked),
            "attempts": lambda: dict(self._watch.seen),
            "canaries": self._canaries,
            "requests": lambda: list(self._origins.requests),
            "accepted": lambda: dict(self._origins.accepted),
            "expect": self._expected.add,
            "mute": self._mute,
            "asked_of": lambda: dict(self._dns.asked_of),
            "serve_address": self._origins.addresses.add,
            "close_port": self._origins.close_port,
            "open_port": self._origins.open_port,
            "route": self._route,
            "start_over": self._start_over,
        }

    async def start(self) -> None:
        """Open every socket, each in the namespace it belongs to; ends in `internet`."""
        self._topology.enter(places.GATEWAY)
        self._watch.start((LOOPBACK, places.GATEWAY_LINK))
        for port in places.CANARY_PORTS:
            listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("::", port))
            await asyncio.start_server(_canary, sock=listener)
        self._topology.enter(places.INTERNET)
        self._dns.start()
        await self._origins.start()

    async def obey(self, order: dict[str, Any]) -> tuple[dict[str, Any], socket.socket | None]:
        """Carry out one order: `{"ok": value}` or `{"fault": text}`, and the socket that was ordered."""
        try:
            if order["do"] == "socket":
                return {"ok": None}, self._socket(*order["with"])
            done = self._orders[order["do"]](*order.get("with", ()), **order.get("by", {}))
            if asyncio.iscoroutine(done):
                done = await done
            return {"ok": done}, None
        except (Broken, OSError, KeyError, TypeError, ValueError) as fault:
            return {"fault": f"{type(fault).__name__}: {fault}"}, None

    def _socket(self, where: str, family: int, kind: int) -> socket.socket:
        self._topology.enter(where)
        try:
            return socket.socket(family, kind)
        finally:
            self._topology.enter(places.INTERNET)

    def _canaries(self) -> dict[str, int]:
        """Return the attempts at addresses where nothing answers, without listeners that a test expects."""
        self._watch.check_nothing_was_lost()
        return {place: count for place, count in self._watch.seen.items() if self._is_canary(place)}

    def _is_canary(self, place: str) -> bool:
        endpoint = place.rpartition("/")[0]
        address, _, port = endpoint.rpartition(":")
        address = plain_address(address.strip("[]")) if ":" in address else address
        if endpoint in self._expected or address in self._origins.addresses:
            return False
        return not (address in self._dns.resolvers and port == "53")

    def _mute(self, *resolvers: str) -> None:
        self._dns.muted = frozenset(resolvers)

    async def _route(self, network: str, kind: str | None) -> None:
        """Make a network `blackhole` (silent), `unreachable` or `prohibit` (ICMP), or whole (None)."""
        where = ip_network(network)
        if kind is None:
            gone = [route for route in self._routes if route.network == where]
            self._routes = [route for route in self._routes if route.network != where]
            await asyncio.to_thread(_remove, gone)
        else:
            for switch in _FORWARDING:  # only a router sends ICMP unreachable for what it cannot deliver
                Path(switch).write_text("1", encoding="ascii")
            route = Route(where, kind=kind, table=TABLE_LOCAL)
            await asyncio.to_thread(_add, route)
            self._routes.append(route)

    async def _start_over(self) -> None:
        """Forget every count and every change: the lab is as it was when it started."""
        self._zone.write(places.NAMES, only=True)
        self._zone.forget_counts()
        self._watch.seen.clear()
        self._origins.requests.clear()
        self._origins.accepted.clear()
        self._origins.addresses.clear()
        self._origins.addresses.update(places.ORIGIN_ADDRESSES)
        self._expected.clear()
        self._dns.muted = frozenset()
        self._dns.asked_of = dict.fromkeys(self._dns.resolvers, 0)
        await asyncio.to_thread(_remove, self._routes)
        self._routes = []
        await self._origins.start()


async def _canary(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        writer.write(CANARY_WORDS)
        await writer.drain()
    writer.close()


# pyroute2 runs a loop of its own, so these run in a thread; a thread is born in its maker's namespace.
def _add(route: Route) -> None:
    with Links() as links:
        links.add_route(route)


def _remove(routes: list[Route]) -> None:
    with Links() as links:
        for route in routes:
            links.remove_route(route)
