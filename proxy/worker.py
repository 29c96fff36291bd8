"""One process's data plane, put together: listeners, gate, resolver and this machine's own addresses, on one loop."""

import os
import resource
import signal
from collections.abc import Callable, Sequence
from typing import Final

from policy.address import Floor, classify
from policy.errors import BadPolicy, Broken
from policy.host import Address
from policy.layers import Policy
from policy.limits import COPY_BYTES, EXPIRY_LOOK_S, PARENT_POLL_S, Limits
from proxy.crash import say
from proxy.flow import Plane
from proxy.front import Front, Listener
from proxy.gate import Gate, Keeps
from proxy.loop import Loop, Timer
from proxy.own import OwnAddresses
from proxy.resolver import Resolver
from proxy.signals import Signals

__all__ = ["Listener", "Worker", "serve"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class Worker:
    """Serves `listeners` on a loop that somebody else turns. The listening sockets are its own from now on.

    `servers` are DNS servers, address and port. The journal stays the caller's. Raises Broken when this machine's
    addresses cannot be learnt: without them its own services could be reached.
    """

    def __init__(self, loop: Loop, listeners: Sequence[Listener], *, servers: Sequence[tuple[str, int]], journal: Keeps) -> None:
        self._loop = loop
        self._policies = {listener.session: listener.session.policy for listener in listeners}
        """Each session's policy as it was loaded, without the addresses found here."""
        limits = listeners[0].session.policy.limits if listeners else Limits()
        self._resolver = Resolver(loop, servers, limits)
        self.gate = Gate(loop, self._resolver, journal)
        plane = Plane(loop, self.gate, memoryview(bytearray(COPY_BYTES)))
        self.front = Front(plane, tuple(listeners))
        self._own = OwnAddresses(loop, self._own_changed)
        self._own_addresses: frozenset[Address] = frozenset()
        self._expiry: Timer | None = None

    def start(self) -> None:
        """Learn this machine's addresses, and only then accept."""
        raise_file_limit()
        self._own.start()
        self.front.start()

    def adopt(self, policy: Policy) -> None:
        """Swap in a policy for every session; live connections that it refuses are cut."""
        self._policies = dict.fromkeys(self._policies, policy)
        self._resolver.limits = policy.limits
        self._apply()

    def drain(self, drained: Callable[[], None]) -> None:
        """Accept no more; `drained` is called when the last connection has ended, after drain_s at the latest."""
        drain_s = max((session.policy.limits.drain_s for session in self._policies), default=0.0)
        self._loop.call_after(drain_s, drained)
        self.front.drain(drained)

    def close(self) -> None:
        """Cut what still lives and give everything back but the loop."""
        self.front.close("stopped")
        self._resolver.stop()
        self._own.stop()
        if self._expiry is not None:
            self._expiry.cancel()

    @property
    def revision(self) -> str:
        """The policy in force, by the first session."""
        return next((policy.revision for policy in self._policies.values()), "none")

    def _own_changed(self, addresses: frozenset[Address]) -> None:
        """This machine's addresses are these now, and none of them may be reached.

        Those on the hard floor are refused anyway, and keep the reason that `explain` gives for them too.
        """
        self._own_addresses = frozenset(own for own in addresses if classify(own).floor is not Floor.HARD)
        self._apply()

    def _apply(self) -> None:
        for session, policy in self._policies.items():
            self._loop.guard(session.adopt, policy.with_own(self._own_addresses))
        self._await_end()

    def _await_end(self) -> None:
        """Have what lives judged again when the next grant ends: its tunnels end with it."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        now_s = self.gate.clock()
        ends = [end_s for policy in self._policies.values() if (end_s := policy.next_end_s(now_s)) is not None]
        if ends:
            end_s = min(ends)
            self._expiry = self._loop.call_after(min(end_s - now_s, EXPIRY_LOOK_S), lambda: self._look_at_end(end_s))

    def _look_at_end(self, end_s: float) -> None:
        if self.gate.clock() >= end_s:
            self._apply()
        else:
            self._await_end()


def serve(
    listeners: Sequence[Listener],
    *,
    servers: Sequence[tuple[str, int]],
    journal: Keeps,
    started: Callable[[], None] | None = None,
    reload: Callable[[], Policy] | None = None,
    parent_pid: int | None = None,
) -> None:
    """Serve until told to stop; blocks, and must be called in the main thread, for it takes the signals.

    SIGTERM stops accepting, lets connections end for drain_s and then cuts them; a second one, or SIGINT, cuts
    at once. SIGHUP calls `reload`, whose policy replaces every session's; when it raises BadPolicy or Broken the
    old one stays and standard error says so. With `parent_pid`, the worker stops when that process has ended
    (SIGUSR1 makes it look at once). `started` is called when every listener listens. Raises Broken when it
    cannot start.
    """
    loop = Loop()
    worker = Worker(loop, listeners, servers=servers, journal=journal)
    served = _Served(loop, worker, reload, parent_pid)
    signals = Signals(loop, _SIGNALS, served.signalled)
    try:
        worker.start()
        served.watch_parent()
        if started is not None:
            started()
        loop.run()
    finally:
        worker.close()
        signals.close()
        loop.close()


class _Served:
    """What the signals of a serving process do."""

    def __init__(self, loop: Loop, worker: Worker, reload: Callable[[], Policy] | None, parent_pid: int | None) -> None:
        self._loop = loop
        self._worker = worker
        self._reload = reload
        self._parent_pid = parent_pid
        self._is_draining = False

    def signalled(self, number: int) -> None:
        """Act on one signal."""
        if number == signal.SIGHUP:
            self._load()
        elif number == signal.SIGUSR1:
            self._look_for_parent()
        elif number == signal.SIGTERM and not self._is_draining:
            self._is_draining = True
            self._worker.drain(self._loop.stop)
        else:
            self._loop.stop()

    def watch_parent(self) -> None:
        """Look now and again whether the parent lives; the kernel's signal only makes it sooner (prctl(2))."""
        if self._parent_pid is not None:
            self._look_for_parent()
            self._loop.call_after(PARENT_POLL_S, self.watch_parent)

    def _look_for_parent(self) -> None:
        if self._parent_pid is not None and os.getppid() != self._parent_pid:
            self._loop.stop()

    def _load(self) -> None:
        """Swap the policy in, or keep the old one and say why."""
        if self._reload is None:
            return
        old = self._worker.revision
        try:
            policy = self._reload()
        except (BadPolicy, Broken) as error:
            say(f"stockade: the policy was not reloaded, revision {old} stays in force:\n{error}\n")
            return
        self._worker.adopt(policy)
        say(f"stockade: policy revision {policy.revision} is in force; it was {old}\n")


def raise_file_limit() -> None:
    """Let this process have as many descriptors as it may: a tunnel needs two."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError):
        pass  # it goes on with what it has; running out is handled where clients are accepted
