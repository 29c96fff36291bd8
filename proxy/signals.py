"""Signals as events of the loop, so that none interrupts a decision half way."""

import signal
import socket
from collections.abc import Callable, Sequence

from proxy.loop import IN, Loop


class Signals:
    """Calls `caught(number)` in the loop for each of `numbers`, until closed (signal.set_wakeup_fd).

    Main thread only. Closing puts back what was to be done at each of them before.
    """

    def __init__(self, loop: Loop, numbers: Sequence[signal.Signals], caught: Callable[[int], None]) -> None:
        self._loop = loop
        self._caught = caught
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._wakeup_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._actions = {number: signal.signal(number, _leave_to_the_loop) for number in numbers}
        loop.watch(self._reader.fileno(), IN, self._ready)

    def close(self) -> None:
        """Take no more signals."""
        self._loop.forget(self._reader.fileno())
        signal.set_wakeup_fd(self._wakeup_fd)
        for number, action in self._actions.items():
            signal.signal(number, action)
        self._reader.close()
        self._writer.close()

    def _ready(self, _mask: int) -> None:
        try:
            numbers = self._reader.recv(4096)
        except BlockingIOError:
            return
        for number in numbers:
            if number in self._actions:
                self._loop.guard(self._caught, number)


def _leave_to_the_loop(_number: int, _frame: object) -> None:
    """Do nothing here: the wake-up descriptor has told the loop."""
