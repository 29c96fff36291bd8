"""Says on standard error what went wrong inside, once a minute for each place: a bug is seen, and floods nothing."""

import sys
import time
import traceback
from collections.abc import Callable

from policy.limits import CRASH_PLACES_COUNT, CRASH_REPEAT_S


class Crashes:
    """Prints the trace of an exception nobody expected. `write` takes the text; the clock is monotonic."""

    def __init__(self, write: Callable[[str], object] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._printed_at_s: dict[tuple[str, int], float] = {}
        self.count = 0

    def report(self, error: BaseException) -> None:
        """Print the trace of `error` unless the same place printed one within CRASH_REPEAT_S."""
        self.count += 1
        frames = traceback.extract_tb(error.__traceback__)
        place = (frames[-1].filename, frames[-1].lineno or 0) if frames else (type(error).__name__, 0)
        now_s = self._clock()
        if now_s - self._printed_at_s.get(place, float("-inf")) < CRASH_REPEAT_S:
            return
        if len(self._printed_at_s) >= CRASH_PLACES_COUNT:
            self._printed_at_s.clear()
        self._printed_at_s[place] = now_s
        trace = "".join(traceback.format_exception(error))
        (self._write or say)(f"stockade: internal error, the connection was refused:\n{trace}")


class Complaint:
    """One kind of trouble, told on standard error at most once in CRASH_REPEAT_S; the clock is monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_at_s = float("-inf")

    def tell(self, words: str) -> None:
        """Say it, unless it was said just now."""
        now_s = self._clock()
        if now_s - self._told_at_s >= CRASH_REPEAT_S:
            self._told_at_s = now_s
            say(f"stockade: {words}\n")


def say(text: str) -> None:
    """Write to standard error. When nobody holds its other end any more, that is no reason to stop serving."""
    try:
        sys.stderr.write(text)
    except (OSError, ValueError):
        pass
