"""A workspace is resolved once, and never a system directory."""

import os

import pytest

from policy.errors import Broken
from sandbox import workspace
from sandbox.account import Account


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/usr",
        "/usr/share",
        "/etc",
        "/etc/ssl",
        "/home",
        "/root",
        "/var",
        "/tmp",
        "/var/tmp",
        "/dev/shm",
        "/proc/self",
        "/sys",
    ],
)
def test_a_system_directory_is_refused(path):
    with pytest.raises(Broken, match=r"system directory|Permission denied|No such file"):
        workspace.open_at(path)


def test_a_link_to_a_system_directory_is_refused(tmp_path):
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(Broken, match="system directory"):
        workspace.open_at(str(tmp_path / "link"))


@pytest.mark.parametrize("name", ["missing", "file", "loop", "nul\0"])
def test_what_is_no_directory_is_refused_with_a_remedy(tmp_path, name):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(Broken, match="existing directory that you own"):
        workspace.open_at(str(tmp_path / name))


def test_a_link_is_followed_once(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    opened = workspace.open_at(str(tmp_path / "link"))
    try:
        assert opened.path == str(tmp_path / "real")
        assert os.path.samestat(os.fstat(opened.fd), os.stat(tmp_path / "real"))
    finally:
        opened.close()


def test_a_fresh_one_is_private_and_removed_with_what_is_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    made = workspace.make()
    assert os.stat(made.path).st_mode & 0o777 == 0o700
    os.mkdir(os.path.join(made.path, "shut"))
    open(os.path.join(made.path, "shut", "file"), "w").close()
    os.symlink("/etc", os.path.join(made.path, "shut", "link"))
    os.chmod(os.path.join(made.path, "shut"), 0)
    made.close()
    assert os.listdir(tmp_path) == []
    assert os.path.isdir("/etc")


def test_the_way_is_the_one_that_the_kernel_takes(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to("a/b")
    opened = workspace.open_at(str(tmp_path / "link" / ".." / ".." / "." / "other") + "//")
    try:
        assert (opened.path, opened.through) == (str(tmp_path / "other"), None)
        assert os.path.samestat(os.fstat(opened.fd), os.stat(tmp_path / "other"))
    finally:
        opened.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
@pytest.mark.parametrize("way", ["link", "link/below", "to-it"])
def test_root_gives_nothing_away_by_the_link_of_a_stranger(tmp_path, way):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "of-root" / "below").mkdir(parents=True)
    (tmp_path / "theirs" / "link").symlink_to(tmp_path / "of-root")
    (tmp_path / "theirs" / "to-it").symlink_to("link")
    os.lchown(tmp_path / "theirs" / "link", 62_001, 62_001)
    opened = workspace.open_at(str(tmp_path / "theirs" / way))
    try:
        assert opened.through == str(tmp_path / "theirs" / "link")
        with pytest.raises(Broken, match="somebody else's link; name the directory itself"):
            opened.claim(Account(2_000_007, 2_000_007, switched=True, claims=True))
        assert os.stat(opened.path).st_uid == 0
        assert opened.claim(Account(62_001, 62_001, switched=True)) is None
    finally:
        opened.close()
