"""What the forked child looks for before it becomes bubblewrap."""

from sandbox import child


def test_a_machine_need_not_have_every_directory_that_could_be_mounted_on(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    paths = [str(tmp_path / name) for name in ("missing", "file", "link", "real", "last")]
    assert child.first_directory(paths) == paths[3]
    assert child.first_directory(paths[:1]) == paths[0]
