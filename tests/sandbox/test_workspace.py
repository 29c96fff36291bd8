"""A workspace is resolved once, and never a system directory."""

import os

import pytest

from policy.errors import Broken
from sandbox import workspace


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
