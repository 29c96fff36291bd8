"""A tree that a command left is removed whatever it looks like, and nothing that it points at."""

import os
import subprocess

import pytest

from sandbox.remove import remove
from tests.confined import WAYS, as_way, scratch, stockade

DEEP = """
import os, sys
os.chdir(sys.argv[1])
for _ in range(1500):
    os.mkdir("d" * 60)
    os.chdir("d" * 60)
open("file", "w").close()
os.mkdir("shut")
os.chmod("shut", 0)
os.chmod(".", 0)
"""


def test_links_and_what_they_point_at_are_told_apart(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    for above in (tmp_path / "job", tmp_path / "job" / "in"):
        above.mkdir()
        (above / "link").symlink_to(tmp_path / "kept")
        os.mkfifo(above / "fifo")
        (above / "hard").hardlink_to(tmp_path / "kept" / "file")
    remove(str(tmp_path / "job"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "file").exists()
    remove(str(tmp_path / "job"))


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "job").symlink_to("kept")
    with pytest.raises(OSError, match=r"Not a directory|symbolic"):
        remove(str(tmp_path / "job"))
    assert (tmp_path / "kept").is_dir()


@pytest.mark.parametrize("way", WAYS)
def test_a_tree_deeper_than_a_path_is_long_leaves_nothing_and_keeps_the_status(way):
    with scratch(way, mode=0o777) as directory:
        command = ["env", f"TMPDIR={directory}", *stockade("run", "--", "python3", "-I", "-c", f"{DEEP}\nsys.exit(3)", ".")]
        ended = subprocess.run(as_way(way, command), capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
        left = list(directory.iterdir())
        for path in left:
            subprocess.run(["rm", "-rf", str(path)], check=False, stdout=subprocess.DEVNULL)
        assert (ended.returncode, left) == (3, []), ended.stderr[-300:]
