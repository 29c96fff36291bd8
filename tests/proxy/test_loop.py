"""The loop: timers that do not pile up, events that never reach the wrong owner, crashes that end one connection."""

import os
import socket

import pytest

from proxy.crash import Crashes
from proxy.loop import IN, OUT, Loop


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def printed():
    return []


@pytest.fixture
def loop(printed):
    made = Loop(crashes=Crashes(printed.append))
    yield made
    made.close()


def test_timers_are_called_in_order_and_once():
    clock, called = Clock(), []
    loop = Loop(clock)
    loop.call_after(2, lambda: called.append("late"))
    loop.call_after(1, lambda: called.append("early"))
    loop.call_after(1, lambda: called.append("early too"))
    loop.turn(0)
    assert called == []
    clock.now_s += 5
    loop.turn(0)
    loop.turn(0)
    assert called == ["early", "early too", "late"]


def test_a_timer_cancelled_by_an_earlier_one_of_the_same_turn_is_not_called():
    clock, called = Clock(), []
    loop = Loop(clock)
    second = loop.call_after(2, lambda: called.append("second"))
    loop.call_after(1, second.cancel)
    clock.now_s += 5
    loop.turn(0)
    second.cancel()
    assert called == []


def test_a_timer_that_starts_itself_again_does_not_starve_the_turn():
    clock, called = Clock(), []
    loop = Loop(clock)

    def again() -> None:
        called.append(1)
        loop.call_after(0, again)

    loop.call_after(0, again)
    loop.turn(0)
    assert len(called) == 1


def test_cancelled_timers_do_not_pile_up():
    loop = Loop()
    kept = [loop.call_after(1000, lambda: None) for _ in range(100)]
    for _ in range(20_000):
        loop.call_after(900, lambda: None).cancel()
    assert loop.timers_count < 400
    for timer in kept:
        timer.cancel()
        timer.cancel()
    loop.turn(0)
    assert loop.timers_count <= 64


def test_counting_the_dead_survives_timers_that_ran(loop):
    for _ in range(1000):
        loop.call_after(0, lambda: None)
        loop.call_after(0, lambda: None).cancel()
        loop.turn(0)
    assert loop.timers_count <= 2


def test_an_event_of_a_closed_descriptor_never_reaches_the_next_owner_of_its_number(loop):
    """Both ends become ready in one turn; the first callback closes the second's and its number is used again."""
    reader_a, writer_a = os.pipe()
    reader_b, writer_b = os.pipe()
    wrong, opened = [], []

    def first_ready(_mask: int) -> None:
        victim = reader_b if first_ready.fd == reader_a else reader_a
        loop.forget(first_ready.fd)
        loop.forget(victim)
        os.close(victim)
        again = os.pipe()
        opened.extend(again)
        assert victim in again
        loop.watch(victim, IN if victim == again[0] else OUT, wrong.append)

    def ready_on(fd: int):
        def ready(mask: int) -> None:
            first_ready.fd = fd
            first_ready(mask)

        return ready

    loop.watch(reader_a, IN, ready_on(reader_a))
    loop.watch(reader_b, IN, ready_on(reader_b))
    os.write(writer_a, b"x")
    os.write(writer_b, b"x")
    loop.turn(1)
    assert wrong == []
    for fd in {*opened, writer_a, writer_b, first_ready.fd}:
        os.close(fd)


class Owner:
    def __init__(self) -> None:
        self.failed = []

    def ready(self, mask: int) -> None:
        raise ZeroDivisionError("a bug")

    def due(self) -> None:
        raise ZeroDivisionError("another bug")

    def fail(self, error: Exception) -> None:
        self.failed.append(error)


def test_a_callback_that_raises_ends_its_owner_and_nobody_else(loop, printed):
    near, far = socket.socketpair()
    owner, served = Owner(), []
    loop.watch(near.fileno(), IN, owner.ready)
    loop.call_after(0, owner.due)
    loop.call_after(0, lambda: served.append(1))
    far.send(b"x")
    loop.turn(1)
    loop.turn(0)
    assert [type(error) for error in owner.failed] == [ZeroDivisionError] * 2
    assert served == [1]
    assert len(printed) == 2 and "a bug" in printed[0]
    loop.turn(0)  # the descriptor is no longer watched: level-triggered readiness does not spin
    assert len(owner.failed) == 2
    near.close()
    far.close()


def test_an_owner_that_cannot_even_fail_does_not_stop_the_loop(loop, printed):
    class Worse(Owner):
        def fail(self, error: Exception) -> None:
            raise RuntimeError("worse")

    loop.call_after(0, Worse().due)
    loop.turn(1)
    assert "worse" in printed[-1]


def test_a_standard_error_that_nobody_reads_stops_nothing(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as closed_pipe:
        monkeypatch.setattr("sys.stderr", closed_pipe)
        crashes = Crashes()
        crashes.report(ValueError("unheard"))
        assert crashes.count == 1
        monkeypatch.undo()
        try:
            closed_pipe.close()
        except BrokenPipeError:
            pass


def test_the_same_place_prints_one_trace_a_minute():
    clock, printed = Clock(), []
    crashes = Crashes(printed.append, clock)
    for _ in range(50):
        try:
            raise ZeroDivisionError
        except ZeroDivisionError as error:
            crashes.report(error)
    assert (len(printed), crashes.count) == (1, 50)
    clock.now_s += 61
    crashes.report(error_of_here())
    assert len(printed) == 2


def error_of_here() -> Exception:
    try:
        raise ValueError("elsewhere")
    except ValueError as error:
        return error


def test_stop_ends_run_and_interrupts_pass(loop):
    loop.call_after(0, loop.stop)
    loop.run()

    def interrupt() -> None:
        raise KeyboardInterrupt

    loop.call_after(0, interrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.run()
