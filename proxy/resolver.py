"""Resolves names that were judged: both families at once, one flight per name, answers kept for their TTL (DESIGN §4).

Only A and AAAA are asked for. No hosts file, no search list, no getaddrinfo; HTTPS and SVCB records play no part.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from policy.answer import Answer, Reply, assemble
from policy.host import Name
from policy.limits import DNS_FLIGHTS_COUNT, DNS_ONE_FAMILY_MOST_S, DNS_OTHER_FAMILY_S, Limits
from policy.verdict import Reason
from proxy.dns_cache import DnsCache
from proxy.dns_exchange import Server
from proxy.dns_message import AAAA, A
from proxy.dns_query import Query
from proxy.dns_servers import DnsServers, read_server, system_servers
from proxy.loop import Loop, Timer

__all__ = ["Resolver", "read_server", "resolve_now", "system_servers"]

type Answered = Callable[[Answer], None]


class Resolver:
    """On `loop`, by `servers`. Every answer comes within `limits.resolve_s`; none ever raises."""

    def __init__(self, loop: Loop, servers: Sequence[Server], limits: Limits) -> None:
        self.loop = loop
        self.limits = limits
        self.servers = DnsServers(servers, lambda: loop.now_s)
        self._cache = DnsCache()
        self._flights: dict[Name, _Flight] = {}

    def lookup(self, name: Name, done: Answered) -> Callable[[], None]:
        """Call `done` once with the answer, possibly before this returns; what is returned cancels it."""
        kept = self._cache.get(name, self.loop.now_s)
        if kept is not None:
            done(kept)
            return _nothing
        flight = self._flights.get(name)
        if flight is None:
            if len(self._flights) >= DNS_FLIGHTS_COUNT:
                detail = f"{DNS_FLIGHTS_COUNT} names are being looked up already"
                done(Answer(name, failed=Reason.LIMIT_REACHED, detail=detail))
                return _nothing
            flight = self._flights[name] = _Flight(self, name)
            ticket = flight.join(done)
            flight.start()
        else:
            ticket = flight.join(done)
        return lambda: flight.leave(ticket)

    def stop(self) -> None:
        """End every flight and call nobody."""
        for flight in tuple(self._flights.values()):
            flight.cancel()

    def landed(self, answer: Answer) -> None:
        """A flight is over; keep its answer for as long as it says."""
        self._flights.pop(answer.name, None)
        self._cache.put(answer, self.loop.now_s)

    def forget(self, name: Name) -> None:
        """A flight was cancelled."""
        self._flights.pop(name, None)


def _nothing() -> None:
    """There is nothing to cancel."""


class _Flight:
    """One name being looked up, and everyone who waits for it."""

    def __init__(self, resolver: Resolver, name: Name) -> None:
        self._resolver = resolver
        self._name = name
        self._waiters: dict[object, Answered] = {}
        self._replies: list[Reply | None] = [None, None]
        self._negative_ttls: list[int] = []
        self._queries: list[Query] = []
        self._deadline: Timer | None = None
        self._over = False

    def start(self) -> None:
        """Ask for both families."""
        loop = self._resolver.loop
        self._deadline = loop.call_after(self._resolver.limits.resolve_s, self._too_late)
        servers = self._resolver.servers
        self._queries = [
            Query(loop, servers, self._name, A, lambda reply, ttl_s: self._replied(0, reply, ttl_s)),
            Query(loop, servers, self._name, AAAA, lambda reply, ttl_s: self._replied(1, reply, ttl_s)),
        ]
        for query in tuple(self._queries):
            query.start()

    def join(self, done: Answered) -> object:
        """Wait for the answer too; the ticket lets one leave."""
        ticket = object()
        self._waiters[ticket] = done
        return ticket

    def leave(self, ticket: object) -> None:
        """Wait no longer; when nobody waits, nobody asks."""
        self._waiters.pop(ticket, None)
        if not self._waiters and not self._over:
            self.cancel()

    def cancel(self) -> None:
        """Stop, and call nobody."""
        self._end()
        self._resolver.forget(self._name)

    def fail(self, error: Exception) -> None:
        """A callback of ours raised: there is no answer (see `proxy.loop.Fails`)."""
        self._land(Answer(self._name, failed=Reason.DNS_FAILED, detail=type(error).__name__))

    def _end(self) -> None:
        self._over = True
        if self._deadline is not None:
            self._deadline.cancel()
        for query in self._queries:
            query.cancel()

    def _replied(self, family: int, reply: Reply, negative_ttl_s: int) -> None:
        """Land when both families are in; when one has addresses, the other has little time left (RFC 8305 §3)."""
        self._replies[family] = reply
        self._negative_ttls.append(negative_ttl_s)
        if all(each is not None for each in self._replies):
            self._finish()
        elif assemble(self._name, [reply]).addresses and self._deadline is not None:
            self._deadline.cancel()
            wait_s = min(DNS_OTHER_FAMILY_S, self._resolver.limits.resolve_s)
            self._deadline = self._resolver.loop.call_after(wait_s, self._too_late)

    def _too_late(self) -> None:
        for family, query in enumerate(self._queries):
            if self._replies[family] is None and not self._over:
                query.give_up()
        if not self._over:  # a reply raised on its way
            self._land(Answer(self._name, failed=Reason.DNS_TIMEOUT, detail="no usable reply in time"))

    def _finish(self) -> None:
        replies = [reply for reply in self._replies if reply is not None]
        answer = assemble(self._name, replies)
        whole = not any(reply.timed_out or reply.rcode not in {"NOERROR", "NXDOMAIN"} for reply in replies)
        if answer.failed is not None:
            answer = replace(answer, ttl_s=min(self._negative_ttls, default=0) if whole else 0)
        elif not whole:
            answer = replace(answer, ttl_s=min(answer.ttl_s, DNS_ONE_FAMILY_MOST_S))
        self._land(answer)

    def _land(self, answer: Answer) -> None:
        if self._over:
            return
        self._end()
        self._resolver.landed(answer)
        waiters, self._waiters = tuple(self._waiters.values()), {}
        for done in waiters:
            try:
                done(answer)
            except Exception as error:  # noqa: BLE001 - one waiter's bug must not keep the answer from the others
                self._resolver.loop.crashed(done, error)


def resolve_now(name: Name, servers: Sequence[Server], limits: Limits) -> Answer:
    """Ask once and wait, on a loop of its own; for a command line."""
    answers: list[Answer] = []
    loop = Loop()
    resolver = Resolver(loop, servers, limits)
    try:
        resolver.lookup(name, answers.append)
        while not answers:
            loop.turn()
    finally:
        resolver.stop()
        loop.close()
    return answers[0]
