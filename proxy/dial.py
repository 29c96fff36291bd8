"""Dials a pin, never a name: its addresses in RFC 8305 order, staggered, under one deadline."""

import errno
import os
import socket
from collections.abc import Callable
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import Final, NamedTuple

from policy.answer import Pin
from policy.destination import Destination
from policy.host import Address
from policy.limits import CONNECT_STAGGER_S, KEEPALIVE_COUNT, KEEPALIVE_EACH_S, KEEPALIVE_IDLE_S
from policy.verdict import Reason
from proxy.loop import OUT, Loop, Timer


class Dialled(NamedTuple):
    """How dialling ended: a connected, non-blocking socket and the peer read back from it, or why there is none."""

    upstream: socket.socket | None
    peer: Destination | None
    reason: Reason
    detail: str


_REASONS: Final = {
    errno.ECONNREFUSED: Reason.CONNECT_REFUSED,
    errno.ECONNRESET: Reason.CONNECT_REFUSED,
    errno.ETIMEDOUT: Reason.CONNECT_TIMEOUT,
    errno.EMFILE: Reason.LIMIT_REACHED,
    errno.ENFILE: Reason.LIMIT_REACHED,
    errno.ENOBUFS: Reason.LIMIT_REACHED,
    errno.ENOMEM: Reason.LIMIT_REACHED,
}
"""What connect(2) and socket(2) say, as a reason; everything else is `connect-unreachable`."""

_TELLING: Final = (
    Reason.LIMIT_REACHED,
    Reason.CONNECT_REFUSED,
    Reason.CONNECT_TIMEOUT,
    Reason.CONNECT_UNREACHABLE,
)
"""When the addresses failed differently, the first of these that happened is the answer: it says most."""


def interleave(addresses: tuple[Address, ...]) -> list[Address]:
    """Alternate the families, IPv6 first, each family in the order given (RFC 8305 §4, first family count 1)."""
    sixes = [address for address in addresses if address.version == 6]
    fours = [address for address in addresses if address.version == 4]
    return [address for address in chain.from_iterable(zip_longest(sixes, fours)) if address is not None]


def keep_alive(sock: socket.socket) -> None:
    """Send without delay, and find a dead peer within about two minutes. An accepted socket inherits it (tcp(7))."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_EACH_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT)


def dial(loop: Loop, pin: Pin, connect_s: float, done: Callable[[Dialled], None]) -> Callable[[], None]:
    """Connect to one of the pin's addresses and nothing else; returns what cancels it.

    `done` is called exactly once unless cancelled, possibly before `dial` returns. A cancelled dial leaves
    no descriptor behind.
    """
    race = _Race(loop, pin, connect_s, done)
    race.start()
    return race.cancel


class _Race:
    """All attempts for one pin; the first to connect wins and the others are closed."""

    __slots__ = (
        "_attempts",
        "_connect_s",
        "_deadline",
        "_done",
        "_failures",
        "_next_timer",
        "_waiting",
        "loop",
        "pin",
    )

    def __init__(self, loop: Loop, pin: Pin, connect_s: float, done: Callable[[Dialled], None]) -> None:
        self.loop = loop
        self.pin = pin
        self._connect_s = connect_s
        self._done: Callable[[Dialled], None] | None = done
        self._waiting = interleave(pin.addresses)
        self._waiting.reverse()
        self._attempts: list[_Attempt] = []
        self._failures: list[tuple[Reason, str]] = []
        self._deadline: Timer | None = None
        self._next_timer: Timer | None = None

    def start(self) -> None:
        """Start the first attempt, and the clock when it did not end at once."""
        self.start_next()
        if self._done is not None:
            self._deadline = self.loop.call_after(self._connect_s, self._too_late)

    def start_next(self) -> None:
        """Start attempts until one is under way; when none is and none is left, report the failure."""
        if self._next_timer is not None:
            self._next_timer.cancel()
            self._next_timer = None
        while self._done is not None and self._waiting:
            attempt = _Attempt(self, self._waiting.pop())
            self._attempts.append(attempt)
            if attempt.start():
                if self._waiting:
                    self._next_timer = self.loop.call_after(CONNECT_STAGGER_S, self.start_next)
                return
        if not self._attempts:
            self._end(self._failure())

    def failed(self, attempt: "_Attempt", code: int) -> None:
        """Note why one attempt failed; its socket is closed."""
        self._attempts.remove(attempt)
        where = Destination(attempt.address, self.pin.port)
        self._failures.append((_REASONS.get(code, Reason.CONNECT_UNREACHABLE), f"{where}: {os.strerror(code)}"))

    def won(self, attempt: "_Attempt", upstream: socket.socket, peer: Destination) -> None:
        """Hand over the connected socket; the other attempts are closed."""
        self._attempts.remove(attempt)
        asked = Destination(attempt.address, self.pin.port)
        if peer != asked:
            upstream.close()
            self._end(Dialled(None, peer, Reason.INTERNAL_ERROR, f"connected to {peer} where {asked} was dialled"))
            return
        self._end(Dialled(upstream, peer, Reason.GRANTED, ""))

    def cancel(self) -> None:
        """Close every attempt and call nobody."""
        self._done = None
        for timer in (self._deadline, self._next_timer):
            if timer is not None:
                timer.cancel()
        for attempt in self._attempts:
            attempt.close()
        self._attempts.clear()

    def fail(self, error: Exception) -> None:
        """A callback of this race raised: refuse (see `proxy.loop.Fails`)."""
        self._end(Dialled(None, None, Reason.INTERNAL_ERROR, type(error).__name__))

    def _too_late(self) -> None:
        tried = ", ".join(str(attempt.address) for attempt in self._attempts)
        detail = "; ".join([f"no answer within {self._connect_s:g} s from {tried}", *(text for _, text in self._failures)])
        self._end(Dialled(None, None, Reason.CONNECT_TIMEOUT, detail))

    def _failure(self) -> Dialled:
        happened = {reason for reason, _ in self._failures}
        reason = next((reason for reason in _TELLING if reason in happened), Reason.CONNECT_UNREACHABLE)
        return Dialled(None, None, reason, "; ".join(text for _, text in self._failures) or "the pin holds no address")

    def _end(self, dialled: Dialled) -> None:
        done = self._done
        self.cancel()
        if done is not None:
            done(dialled)
        elif dialled.upstream is not None:
            dialled.upstream.close()


class _Attempt:
    """One non-blocking connect(2) to one address."""

    __slots__ = ("_race", "_socket", "address")

    def __init__(self, race: _Race, address: Address) -> None:
        self._race = race
        self._socket: socket.socket | None = None
        self.address = address

    def start(self) -> bool:
        """Begin; False when it failed at once. The address goes in as a number, so nothing is looked up."""
        family = socket.AF_INET6 if self.address.version == 6 else socket.AF_INET
        try:
            self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            keep_alive(self._socket)
            code = self._socket.connect_ex((str(self.address), self._race.pin.port))
        except OSError as error:
            code = error.errno or errno.EIO
        if code not in {0, errno.EINPROGRESS} or self._socket is None:
            self.close()
            self._race.failed(self, code)
            return False
        self._race.loop.watch(self._socket.fileno(), OUT, self._ready)
        return True

    def close(self) -> None:
        """Give the socket back. Harmless to repeat."""
        if self._socket is not None:
            self._race.loop.forget(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def fail(self, error: Exception) -> None:
        """Our callback raised: so fails the race."""
        self._race.fail(error)

    def _ready(self, _mask: int) -> None:
        upstream = self._socket
        assert upstream is not None
        code = upstream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        try:
            host, port = ("", 0) if code else upstream.getpeername()[:2]
        except OSError as error:  # reset between the two calls
            code = error.errno or errno.EIO
        if code:
            self.close()
            self._race.failed(self, code)
            self._race.start_next()
            return
        self._race.loop.forget(upstream.fileno())
        self._socket = None
        self._race.won(self, upstream, Destination(ip_address(host), port))
