"""The journal keeps every record whole, or says that it could not."""

import json
import multiprocessing
import os
import resource
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from policy.errors import Broken
from proxy.journal import Journal


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines() if line]


def test_one_line_each_in_a_file_of_ours_alone(tmp_path: Path) -> None:
    file = tmp_path / "j"
    told: list[Mapping[str, Any]] = []
    journal = Journal(str(file), [told.append])
    records = [{"n": 1, "text": 'a\r\nALLOW "admin" \x1b[31m \u202e'}, {"n": 2}]
    for record in records:
        journal.write(record)
    journal.close()
    journal.close()
    assert lines(file) == records == told
    assert file.read_bytes().isascii()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = Journal(str(file))
    again.write({"n": 3})
    again.close()
    assert len(lines(file)) == 3


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "fifo")
    for name, word in (("link", "symbolic"), ("fifo", "--journal"), (".", "directory"), ("none/j", "No such")):
        with pytest.raises(Broken, match=word):
            Journal(str(tmp_path / name))
    with pytest.raises(Broken, match="regular"):
        Journal("/dev/full")


def test_without_a_file_reports_still_hear() -> None:
    told: list[Mapping[str, Any]] = []
    Journal(None, [told.append]).write({"n": 1})
    assert told == [{"n": 1}]


def fill(file: str, most: int) -> None:
    """In a process of its own: the file may grow to `most` bytes (RLIMIT_FSIZE), which the kernel says like a full disk."""
    told: list[Mapping[str, Any]] = []
    journal = Journal(file, [told.append])
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    kept = failed = 0
    for number in range(40):
        try:
            journal.write({"n": number, "pad": "x" * 100})
            kept += 1
        except Broken as error:
            failed += 1
            assert file in str(error)
            assert "--journal" in str(error)
    assert len(told) == kept
    assert failed > 5
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    journal.write({"n": "after"})
    numbers = [record["n"] for record in lines(Path(file))]
    assert numbers == [*range(kept), "after"]


@pytest.mark.parametrize("most", [1000, 1190, 1201])
def test_a_full_disk_is_said_and_no_line_is_torn(tmp_path: Path, most: int) -> None:
    child = multiprocessing.get_context("fork").Process(target=fill, args=(str(tmp_path / "j"), most))
    child.start()
    child.join(20)
    assert child.exitcode == 0


def scribble(file: str, who: int) -> None:
    journal = Journal(file)
    for number in range(500):
        journal.write({"who": who, "n": number, "pad": "y" * (number % 300)})


def test_several_writers_keep_lines_whole(tmp_path: Path) -> None:
    file = tmp_path / "j"
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=scribble, args=(str(file), who)) for who in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(30)
        assert child.exitcode == 0
    kept = lines(file)
    assert len(kept) == 2000
    assert {record["who"] for record in kept} == {0, 1, 2, 3}
