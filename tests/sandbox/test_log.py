"""The log of a long output goes where it says, or nowhere."""

import io
import os

import pytest

from sandbox import log, workspace
from sandbox.account import Account

ME = Account(os.geteuid(), os.getegid(), switched=False)


@pytest.fixture
def space(tmp_path):
    (tmp_path / "work").mkdir()
    opened = workspace.open_at(str(tmp_path / "work"))
    yield opened
    opened.close()


def test_it_is_in_the_workspace(space):
    path = log.save(io.BytesIO(b"x" * 3_000_000), space, ME, "one.stdout")
    assert path == f"{space.path}/.stockade/outputs/one.stdout"
    with open(path, "rb") as kept:
        assert kept.read() == b"x" * 3_000_000
    assert os.stat(path).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("link", [".stockade", ".stockade/outputs", ".stockade/outputs/one.stdout"])
def test_a_link_left_by_the_command_is_not_followed(space, tmp_path, link):
    outside = tmp_path / "outside"
    outside.mkdir()
    place = os.path.join(space.path, link)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    os.symlink(outside / "one.stdout" if link.endswith("stdout") else outside, place)
    with pytest.raises(OSError):
        log.save(io.BytesIO(b"x"), space, ME, "one.stdout")
    assert list(outside.iterdir()) == []


def test_an_existing_file_is_not_written_over(space):
    log.save(io.BytesIO(b"first"), space, ME, "one.stdout")
    with pytest.raises(FileExistsError):
        log.save(io.BytesIO(b"second"), space, ME, "one.stdout")


def test_the_spool_has_no_name(space):
    with log.spool(space) as spool:
        spool.write(b"x")
        assert os.listdir(space.path) == []
