"""One epoll loop with timers: file descriptors and deadlines in, callbacks out, one thread, nothing that blocks."""

import heapq
import select
import time
from collections.abc import Callable
from typing import Final

IN: Final = select.EPOLLIN
OUT: Final = select.EPOLLOUT
ERR: Final = select.EPOLLERR
HUP: Final = select.EPOLLHUP
RDHUP: Final = select.EPOLLRDHUP

type Ready = Callable[[int], None]
"""Called with the epoll mask that is ready (epoll_wait(2))."""


class Timer:
    """A callback due at a moment; `cancel` is harmless to repeat and after the call."""

    __slots__ = ("at_s", "call")

    def __init__(self, at_s: float, call: Callable[[], None] | None) -> None:
        self.at_s = at_s
        self.call = call

    def __lt__(self, other: "Timer") -> bool:
        """Order by due moment, for the heap."""
        return self.at_s < other.at_s

    def cancel(self) -> None:
        """Never call it; the heap forgets it when its moment comes."""
        self.call = None


class Loop:
    """Level-triggered epoll and a heap of timers. `now_s` is the monotonic clock, read once a turn."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._epoll = select.epoll()
        self._ready: dict[int, Ready] = {}
        self._timers: list[Timer] = []
        self._stopped = False
        self.now_s = clock()

    def watch(self, fd: int, mask: int, ready: Ready) -> None:
        """Call `ready(mask)` whenever `fd` is ready for any bit of `mask`; ERR and HUP are always reported."""
        self._epoll.register(fd, mask)
        self._ready[fd] = ready

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
        timer = Timer(at_s, call)
        heapq.heappush(self._timers, timer)
        return timer

    def call_after(self, delay_s: float, call: Callable[[], None]) -> Timer:
        """Call once, `delay_s` seconds from now."""
        return self.call_at(self._clock() + delay_s, call)

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
        timers = self._timers
        while timers and timers[0].call is None:
            heapq.heappop(timers)
        wait_s = -1.0 if most_s is None else most_s
        if timers:
            due_s = max(0.0, timers[0].at_s - self._clock())
            wait_s = due_s if wait_s < 0 else min(wait_s, due_s)
        events = self._epoll.poll(wait_s, 512)
        self.now_s = self._clock()
        for fd, mask in events:
            ready = self._ready.get(fd)
            if ready is not None:
                ready(mask)
        while timers and timers[0].at_s <= self.now_s:
            call = heapq.heappop(timers).call
            if call is not None:
                call()

    def close(self) -> None:
        """Give the epoll descriptor back; the watched descriptors stay their owners'."""
        self._epoll.close()
        self._ready.clear()
        self._timers.clear()
