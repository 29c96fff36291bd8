"""The DNS servers to ask, and which of them stayed silent lately."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from policy.destination import read_authority
from policy.errors import BadClient, Broken
from policy.host import read_address
from policy.limits import DNS_BACK_OFF_FIRST_S, DNS_BACK_OFF_MOST_S
from proxy.dns_exchange import Server

DNS_PORT: Final = 53
_MOST_COUNT: Final = 3
"""Like the C library's (resolv.conf(5), MAXNS)."""


class DnsServers:
    """Servers in the order given, those that stayed silent last; none is ever left out altogether."""

    def __init__(self, servers: Sequence[Server], clock: Callable[[], float]) -> None:
        self._servers = tuple(servers)
        self._clock = clock
        self._silences: dict[Server, tuple[int, float]] = {}

    def in_order(self) -> list[Server]:
        """Every server, the likeliest to reply first."""
        now_s = self._clock()
        return sorted(self._servers, key=lambda server: self._silences.get(server, (0, 0.0))[1] > now_s)

    def note_silence(self, server: Server) -> None:
        """It did not reply: ask others first for a while, twice as long each time."""
        count = self._silences.get(server, (0, 0.0))[0]
        away_s = min(DNS_BACK_OFF_FIRST_S * 2**count, DNS_BACK_OFF_MOST_S)
        self._silences[server] = min(count + 1, 16), self._clock() + away_s

    def note_reply(self, server: Server) -> None:
        """It replied: ask it in its turn again."""
        self._silences.pop(server, None)


def read_server(text: str) -> Server:
    """`ADDR`, `ADDR:PORT` or `[v6]:PORT`, an address literal, port 53 without one. Raises Broken."""
    try:
        return str(read_address(text)), DNS_PORT
    except BadClient:
        pass
    try:
        destination = read_authority(text, DNS_PORT)
    except BadClient as error:
        raise Broken(f"DNS server {text!r}: {error.detail}; write ADDR:PORT or [v6]:PORT") from None
    if destination.address is None:
        raise Broken(f"DNS server {text!r} is a name; write its address, as in 192.0.2.53:53")
    return str(destination.address), destination.port


def system_servers(file: str = "/etc/resolv.conf") -> tuple[Server, ...]:
    """The first three `nameserver` lines (resolv.conf(5)); search lists and options are not read. Raises Broken."""
    try:
        lines = Path(file).read_text("utf-8", "replace").splitlines()
    except OSError as error:
        raise Broken(f"{file}: {error.strerror}; name DNS servers with --resolver ADDR:PORT") from None
    words = [line.split() for line in lines]
    texts = [each[1] for each in words if len(each) > 1 and each[0] == "nameserver"]
    servers: list[Server] = []
    for text in texts:
        try:
            servers.append((str(read_address(text)), DNS_PORT))
        except BadClient:
            continue  # a zone id (fe80::1%eth0) or what no resolver could use
    if not servers:
        raise Broken(f"{file}: no usable nameserver line; name DNS servers with --resolver ADDR:PORT")
    return tuple(servers[:_MOST_COUNT])
