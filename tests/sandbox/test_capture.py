"""A captured stream against a naive twin that keeps everything."""

import io

from hypothesis import given
from hypothesis import strategies as st

from sandbox.capture import Capture

HEAD, TAIL, LOG = 7, 5, 40


def make(log_bytes=LOG):
    files = []

    def spool():
        files.append(io.BytesIO())
        return files[-1]

    return Capture(HEAD, TAIL, log_bytes, spool), files


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_head_tail_and_log_are_those_of_the_whole(pieces):
    capture, files = make()
    for piece in pieces:
        capture.add(piece)
    whole = b"".join(pieces)
    assert capture.count == len(whole)
    if len(whole) <= HEAD + TAIL:
        assert not capture.truncated
        assert capture.kept() == whole
        assert files == []
        return
    assert capture.truncated
    kept = capture.kept("see there")
    assert kept.startswith(whole[:HEAD] + b"\n[stockade: ")
    assert kept.endswith(b"see there]\n" + whole[-TAIL:])
    assert f"{len(whole) - HEAD - TAIL} bytes".encode() in kept
    assert files[0].getvalue() == whole[:LOG]
    assert capture.logged == min(len(whole), LOG)


def test_a_flood_is_held_in_a_bounded_space():
    capture, files = make()
    for _ in range(10_000):
        capture.add(b"y\n" * 4)
    assert len(capture._head) + len(capture._tail) <= HEAD + 2 * TAIL + 8
    assert len(files[0].getvalue()) == LOG


def test_a_full_disk_ends_the_log_and_not_the_command():
    class Full(io.BytesIO):
        def write(self, piece):
            raise OSError(28, "No space left on device")

    capture = Capture(HEAD, TAIL, LOG, Full)
    capture.add(b"x" * 100)
    capture.add(b"y" * 100)
    assert capture.file is None
    assert capture.fault.errno == 28
    assert capture.kept().startswith(b"xxxxxxx\n[stockade: 188 bytes")
