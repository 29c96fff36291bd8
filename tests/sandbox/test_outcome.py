"""Exit statuses that stand for signals."""

import pytest

from sandbox.outcome import signal_of


@pytest.mark.parametrize(
    ("status", "number"), [(0, None), (1, None), (128, None), (130, 2), (137, 9), (192, 64), (193, None), (255, None)]
)
def test_the_signal_of_a_status(status, number):
    assert signal_of(status) == number
