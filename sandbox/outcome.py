"""How a command ended."""

from dataclasses import dataclass
from typing import Final

TIMED_OUT: Final = 124
FAILED: Final = 125
"""Exit statuses of `stockade run`, as timeout(1) has them: the time was up; Stockade failed or refused to start."""
_SIGNALS_FIRST: Final = 128
_SIGNALS_LAST: Final = 64


@dataclass(frozen=True, slots=True)
class Outcome:
    """One command's end. Output is bytes, as the command wrote it; empty when it was passed on as it came."""

    exit: int
    """As a shell would give it: the command's own, 128 + n after signal n; 124 and 125 as above."""
    signal: int | None
    timed_out: bool
    stdout: bytes
    stderr: bytes
    truncated: bool
    """Something of stdout or stderr is not in them."""
    logs: tuple[str, ...]
    """Paths in the workspace that hold the whole of a truncated stream."""
    duration_s: float
    acknowledged: bool
    """The kernel said that no process of the command is left."""
    failure: str | None = None
    """Why it never ran, or why it was ended, when that was Stockade's doing."""


def signal_of(status: int) -> int | None:
    """Give the signal that an exit status of 128 + n stands for."""
    number = status - _SIGNALS_FIRST
    return number if 0 < number <= _SIGNALS_LAST else None
