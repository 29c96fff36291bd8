"""A relayed stream: every byte, in order, whatever the two ends are."""

import os
import threading

import pytest

from proxy.loop import Loop
from sandbox.relay import Relay

AMOUNT = 300_000


def turn_until(loop, relay):
    for _ in range(100_000):
        if relay.ended:
            return
        loop.turn(1.0)
    raise AssertionError("the relay never ended")


@pytest.fixture
def loop():
    made = Loop()
    yield made
    made.close()


@pytest.mark.parametrize("from_file", [True, False])
@pytest.mark.parametrize("to_file", [True, False])
def test_every_byte_arrives(loop, tmp_path, from_file, to_file):
    content = os.urandom(AMOUNT)
    threads, heard = [], []
    if from_file:
        (tmp_path / "in").write_bytes(content)
        source = os.open(tmp_path / "in", os.O_RDONLY)
    else:
        source, far = os.pipe()
        threads.append(threading.Thread(target=lambda: (open(far, "wb").write(content),)))
    if to_file:
        target = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    else:
        near, target = os.pipe()
        threads.append(threading.Thread(target=lambda: heard.append(open(near, "rb").read())))
    for thread in threads:
        thread.start()
    ended = []
    relay = Relay(loop, source, target, owned=(source, target), done=lambda: ended.append(True))
    turn_until(loop, relay)
    for thread in threads:
        thread.join(10)
    assert ended == [True]
    assert ((tmp_path / "out").read_bytes() if to_file else heard[0]) == content


def test_a_reader_that_left_ends_it_and_closes_the_writers_end(loop):
    source, far = os.pipe()
    near, target = os.pipe()
    os.write(far, b"x")
    os.close(near)
    relay = Relay(loop, source, target, owned=(source, target), done=lambda: None)
    turn_until(loop, relay)
    with pytest.raises(BrokenPipeError):
        os.write(far, b"y")
    os.close(far)


def test_a_source_that_is_not_open_is_an_end(loop):
    near, target = os.pipe()
    relay = Relay(loop, 9_999, target, owned=(target,), done=lambda: None)
    turn_until(loop, relay)
    assert os.read(near, 1) == b""
    os.close(near)
