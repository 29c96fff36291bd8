"""The journal keeps every record whole, or says that it could not."""

import json
import multiprocessing
import os
import resource
import stat
import subprocess
import threading
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
    records: list[dict[str, Any]] = [{"n": 1, "text": 'a\r\nALLOW "admin" \x1b[31m \u202e'}, {"n": 2}]
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


def on_a_full_disk(disk: Path) -> None:
    """In a process of its own: a file system of 64 KB, of which the journal fills every byte."""
    uid, gid = os.geteuid(), os.getegid()
    os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(disk)], check=True)
    file = disk / "journal"
    other = disk / "other"
    other.write_bytes(b"x" * 16_384)
    journal = Journal(str(file))
    kept: list[Any] = []
    failures: list[str] = []

    def fill_up(name: str) -> None:
        for number in range(600):
            try:
                journal.write({"n": [name, number], "pad": "x" * (number % 300)})
                kept.append([name, number])
            except Broken as error:
                failures.append(str(error))
                break
        assert failures

    fill_up("first")
    assert len(kept) > 100
    for _ in range(50):  # each says so, and leaves the file as it was
        size = file.stat().st_size
        with pytest.raises(Broken, match=r"ENOSPC|bytes fitted"):
            journal.write({"n": "no", "pad": "x" * 9000})
        assert file.stat().st_size == size
    assert [record["n"] for record in lines(file)] == kept
    other.unlink()
    failures.clear()
    journal.write({"n": "room again"})
    kept.append("room again")
    fill_up("second")
    journal.close()
    assert [record["n"] for record in lines(file)] == kept
    assert file.read_bytes().count(b"\n") == len(kept)
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=on_a_full_disk, args=(tmp_path,))
    child.start()
    child.join(30)
    assert child.exitcode == 0


@pytest.mark.parametrize("stump", [b'{"n": 0, "pad', b'{"n": 0}'])
def test_the_stump_of_a_writer_that_died_spoils_no_line(tmp_path: Path, stump: bytes) -> None:
    file = tmp_path / "j"
    file.write_bytes(b'{"n": 1}\n' + stump)
    journal = Journal(str(file))
    journal.write({"n": 2})
    journal.write({"n": 3})
    journal.close()
    assert file.read_bytes() == b'{"n": 1}\n' + stump + b'\n{"n":2}\n{"n":3}\n'


def test_what_json_cannot_say_is_never_written(tmp_path: Path) -> None:
    file = tmp_path / "j"
    told: list[Mapping[str, Any]] = []
    journal = Journal(str(file), [told.append])
    for bad in (float("nan"), float("inf"), b"bytes", object()):
        with pytest.raises((ValueError, TypeError)):
            journal.write({"n": bad})
    journal.close()
    assert file.read_bytes() == b""
    assert not told


def test_a_report_that_raises_is_not_hidden(tmp_path: Path) -> None:
    def bug(_: Mapping[str, Any]) -> None:
        raise RuntimeError("a report's bug")

    journal = Journal(str(tmp_path / "j"), [bug])
    with pytest.raises(RuntimeError):
        journal.write({"n": 1})
    journal.close()


def test_each_record_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    write = os.write

    def counted(fd: int, data: bytes) -> int:
        sizes.append(len(data))
        return write(fd, data)

    journal = Journal(str(tmp_path / "j"))
    monkeypatch.setattr(os, "write", counted)
    journal.write({"pad": "x" * 5000})
    journal.close()
    assert sizes == [5000 + len('{"pad":""}\n')]


def test_taking_off_a_stump_takes_nobody_elses_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer comes between the short write and the cut; it must wait."""
    file = tmp_path / "j"
    ours, theirs = Journal(str(file)), Journal(str(file))
    theirs.write({"n": 1})
    write, ftruncate = os.write, os.ftruncate
    other = threading.Thread(target=theirs.write, args=({"n": 2, "pad": "x" * 100},))

    def short(fd: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", write)
        return write(fd, data[:10])

    def late(fd: int, size: int) -> None:
        other.start()
        other.join(0.3)
        ftruncate(fd, size)

    monkeypatch.setattr(os, "write", short)
    monkeypatch.setattr(os, "ftruncate", late)
    with pytest.raises(Broken, match="only 10 of"):
        ours.write({"n": "ours", "pad": "y" * 100})
    other.join(10)
    ours.close()
    theirs.close()
    assert [record["n"] for record in lines(file)] == [1, 2]


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
