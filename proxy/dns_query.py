"""One family's records for one name: asks the servers in turn until one replies, and follows an alias left open."""

from collections.abc import Callable
from typing import Any

from policy.answer import NOERROR, Reply, Rr
from policy.host import Name
from policy.limits import CNAME_LINKS_COUNT, DNS_RETRY_FIRST_S, DNS_TRIES_COUNT
from policy.special import special
from proxy.dns_exchange import Exchange, Server
from proxy.dns_message import Read, ask
from proxy.dns_servers import DnsServers
from proxy.loop import Loop, Timer

type Finished = Callable[[Reply, int], None]
"""Called once with the family's reply and the TTL of "there is nothing", in seconds."""


class Query:
    """Every exchange stays open until one replies, so a slow server's late reply still counts."""

    def __init__(self, loop: Loop, servers: DnsServers, name: Name, kind: Any, finished: Finished) -> None:
        self._loop = loop
        self._servers = servers
        self._name = name
        self._kind = kind
        self._finished: Finished | None = finished
        self._records: tuple[Rr, ...] = ()
        self._asked: set[Name] = set()
        self._exchanges: list[Exchange] = []
        self._order: list[Server] = []
        self._tried: list[Server] = []
        self._worst = Reply(timed_out=True)
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin with the name itself."""
        self._ask(self._name)

    def cancel(self) -> None:
        """Stop asking and call nobody. Harmless to repeat."""
        self._finished = None
        self._stop()

    def give_up(self) -> None:
        """The time is over: count against each server that stayed silent, and finish with what was learnt."""
        for server in self._tried:
            self._servers.note_silence(server)
        self._finish(self._worst, 0)

    def fail(self, error: Exception) -> None:
        """A callback raised: no reply can be used (see `proxy.loop.Fails`)."""
        self._finish(Reply(fault=f"{type(error).__name__} while asking"), 0)

    def _ask(self, name: Name) -> None:
        """Ask for `name`, every server afresh."""
        self._stop()
        self._asked.add(name)
        self._target = name
        order = self._servers.in_order()
        self._order = (order * DNS_TRIES_COUNT)[: max(DNS_TRIES_COUNT, len(order))]
        self._wait_s = DNS_RETRY_FIRST_S
        self._try_next()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for exchange in self._exchanges:
            exchange.cancel()
        self._exchanges = []
        self._tried = []

    def _try_next(self) -> None:
        """Ask one more server; another follows when this one is slow."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._finished is None or not self._order:
            return
        server = self._order.pop(0)
        question = ask(self._target, self._kind)
        exchange = Exchange(self._loop, server, question, lambda said: self._told(server, exchange, said))
        self._exchanges.append(exchange)
        self._tried.append(server)
        if self._order:
            self._timer = self._loop.call_after(self._wait_s, self._try_next)
            self._wait_s *= 2
        exchange.start()

    def _told(self, server: Server, exchange: Exchange, said: Read | None) -> None:
        if self._finished is None:
            return
        at = self._exchanges.index(exchange)
        earlier = self._tried[:at]
        del self._exchanges[at], self._tried[at]
        if said is None:
            self._servers.note_silence(server)
        elif said.reply.fault or said.reply.rcode in {NOERROR, "NXDOMAIN"}:
            for silent in earlier:
                if silent != server:
                    self._servers.note_silence(silent)
            self._servers.note_reply(server)
            self._take(said)
            return
        else:  # SERVFAIL, REFUSED and the like: this server cannot say, another may
            self._worst = said.reply
            self._order = [other for other in self._order if other != server]
        if self._order:
            self._try_next()
        elif not self._exchanges:
            self._finish(self._worst, 0)

    def _take(self, said: Read) -> None:
        """Finish with a reply, or go on to the target of an alias that it left without an address."""
        if said.reply.fault or said.reply.rcode != NOERROR:
            if self._records and said.reply.rcode == "NXDOMAIN":  # the alias's target does not exist
                self._finish(Reply("NXDOMAIN"), said.negative_ttl_s)
                return
            self._finish(said.reply, said.negative_ttl_s)
            return
        self._records += said.reply.records
        end = _open_end(self._name, self._records)
        is_open = end is not None and end not in self._asked and not said.negative_ttl_s
        if end is not None and is_open and special(end) is None:  # a special name is refused, so nobody is asked for it
            self._ask(end)
            return
        self._finish(Reply(NOERROR, self._records), said.negative_ttl_s)

    def _finish(self, reply: Reply, negative_ttl_s: int) -> None:
        finished, self._finished = self._finished, None
        self._stop()
        if finished is not None:
            finished(reply, negative_ttl_s)


def _open_end(name: Name, records: tuple[Rr, ...]) -> Name | None:
    """Where the aliases from `name` lead when no record says anything about that name; None otherwise."""
    owners = {record.owner: record.data for record in records}
    at: Name = name
    for _ in range(CNAME_LINKS_COUNT + 1):
        data = owners.get(at)
        if data is None:
            return None if at == name else at
        if not isinstance(data, str):
            return None
        at = data
    return None
