"""One epoll loop with timers: file descriptors and deadlines in, callbacks out, one thread, nothing that blocks."""

import heapq
import select
import time
from collections.abc import Callable
from typing import Final, Protocol

from policy.limits import DEAD_TIMERS_COUNT
from proxy.crash import Crashes

IN: Final = select.EPOLLIN
OUT: Final = select.EPOLLOUT
ERR: Final = select.EPOLLERR
HUP: Final = select.EPOLLHUP
RDHUP: Final = select.EPOLLRDHUP

type Ready = Callable[[int], None]
"""Called with the epoll mask that is ready (epoll_wait(2))."""


class Fails(Protocol):
    """Whose bound methods are called back may say `fail`: how it ends when one of them raises."""

    def fail(self, error: Exception) -> None:
        """Refuse what was asked, record `internal-error`, and give every descriptor back."""


class Timer:
    """A callback due at a moment; `cancel` is harmless to repeat and after the call."""

    __slots__ = ("_loop", "at_s", "call")

    def __init__(self, at_s: float, call: Callable[[], None], loop: "Loop") -> None:
        self.at_s = at_s
        self.call: Callable[[], None] | None = call
        self._loop: Loop | None = loop

    def cancel(self) -> None:
        """Never call it; the heap forgets it when its moment comes, or earlier when many are dead."""
        self.call = None
        loop = self.unqueue()
        if loop is not None:
            loop.count_dead()

    def unqueue(self) -> "Loop | None":
        """Note that it left the heap, and say which loop's heap it was in; None when it was in none."""
        loop, self._loop = self._loop, None
        return loop


class Loop:
    """Level-triggered epoll and a heap of timers. `now_s` is the monotonic clock, read once a turn.

    A callback that raises ends its own connection and no other: the descriptor is forgotten, the trace is
    printed once, and the callback's owner is told by `Fails.fail`. KeyboardInterrupt and SystemExit pass.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, crashes: Crashes | None = None) -> None:
        self._clock = clock
        self._crashes = Crashes() if crashes is None else crashes
        self._epoll = select.epoll()
        self._ready: dict[int, Ready] = {}
        self._fresh: set[int] = set()
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_number = 0
        self._dead_count = 0
        self._stopped = False
        self.now_s = clock()

    def watch(self, fd: int, mask: int, ready: Ready) -> None:
        """Call `ready(mask)` whenever `fd` is ready for any bit of `mask`; ERR and HUP are always reported."""
        self._epoll.register(fd, mask)
        self._ready[fd] = ready
        self._fresh.add(fd)

    def modify(self, fd: int, mask: int, ready: Ready | None = None) -> None:
        """Change what `fd` is watched for, and who is called when `ready` is given."""
        self._epoll.modify(fd, mask)
        if ready is not None:
            self._ready[fd] = ready

    def forget(self, fd: int) -> None:
        """Stop watching `fd`; call it before closing the descriptor. Harmless for one that is not watched."""
        if self._ready.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def call_at(self, at_s: float, call: Callable[[], None]) -> Timer:
        """Call once, at the first turn after the monotonic moment `at_s`."""
        timer = Timer(at_s, call, self)
        self._timer_number += 1
        heapq.heappush(self._timers, (at_s, self._timer_number, timer))
        return timer

    def call_after(self, delay_s: float, call: Callable[[], None]) -> Timer:
        """Call once, `delay_s` seconds from now."""
        return self.call_at(self._clock() + delay_s, call)

    def count_dead(self) -> None:
        """Note one cancelled timer in the heap; when more than half are dead, sweep them out."""
        self._dead_count += 1
        if self._dead_count > DEAD_TIMERS_COUNT and self._dead_count * 2 > len(self._timers):
            self._timers = [queued for queued in self._timers if queued[2].call is not None]
            heapq.heapify(self._timers)
            self._dead_count = 0

    @property
    def timers_count(self) -> int:
        """How many timers the heap holds, the dead among them."""
        return len(self._timers)

    def stop(self) -> None:
        """Let `run` return at the end of this turn."""
        self._stopped = True

    def run(self) -> None:
        """Turn until `stop` is called."""
        self._stopped = False
        while not self._stopped:
            self.turn()

    def turn(self, most_s: float | None = None) -> None:
        """Wait for descriptors or the next timer (at most `most_s`), then make every call that is due."""
        events = self._epoll.poll(self._wait_s(most_s), 512)
        self.now_s = self._clock()
        fresh = self._fresh
        fresh.clear()
        for fd, mask in events:
            ready = self._ready.get(fd)
            if ready is None or fd in fresh:
                continue  # closed in this turn; when the number was used again, the event was the old one's
            try:
                ready(mask)
            except Exception as error:  # noqa: BLE001 - one connection's bug must not end the others
                if self._ready.get(fd) is ready:
                    self.forget(fd)
                self.crashed(ready, error)
        for timer in self._due():
            if timer.call is not None:
                self.guard(timer.call)

    def guard(self, call: Callable[..., None], *values: object) -> None:
        """Call somebody back; when that raises, it ends what `call` belongs to, and the caller goes on."""
        try:
            call(*values)
        except Exception as error:  # noqa: BLE001
            self.crashed(call, error)

    def crashed(self, call: Callable[..., None], error: Exception) -> None:
        """Print the trace, and end what `call` belongs to. Also for those who call back on a loop's behalf."""
        self._crashes.report(error)
        fail = getattr(getattr(call, "__self__", None), "fail", None)
        if fail is not None:
            try:
                fail(error)
            except Exception as worse:  # noqa: BLE001
                self._crashes.report(worse)

    def close(self) -> None:
        """Give the epoll descriptor back; the watched descriptors stay their owners'."""
        self._epoll.close()
        self._ready.clear()
        self._timers.clear()

    def _wait_s(self, most_s: float | None) -> float:
        """How long to sleep: to the first live timer, at most `most_s`; -1 for ever."""
        timers = self._timers
        while timers and timers[0][2].call is None:
            heapq.heappop(timers)
            self._dead_count -= 1
        if not timers:
            return -1.0 if most_s is None else most_s
        due_s = max(0.0, timers[0][0] - self._clock())
        return due_s if most_s is None else min(due_s, most_s)

    def _due(self) -> list[Timer]:
        """Take the live timers whose moment has come. Those that they start are for the next turn."""
        timers = self._timers
        due: list[Timer] = []
        while timers and timers[0][0] <= self.now_s:
            timer = heapq.heappop(timers)[2]
            if timer.unqueue() is None:
                self._dead_count -= 1
            else:
                due.append(timer)
        return due
