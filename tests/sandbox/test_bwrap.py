"""Bubblewrap's arguments under a plan, one option a line, as a reader would check them."""

import os
from contextlib import contextmanager

import pytest

from policy.errors import Broken
from sandbox import bwrap
from sandbox.account import Account
from sandbox.plan import Host, lay

PLAN = lay(
    ("make", "test"),
    workspace="/srv/job one",
    account=Account(2_000_007, 2_000_007, switched=True),
    network="offline",
    host=Host((("/bin", "usr/bin"), ("/lib", None)), ("/proc/keys",)),
    caller={},
)

GOLDEN = """\
--unshare-user
--unshare-pid
--unshare-ipc
--unshare-uts
--unshare-cgroup-try
--disable-userns
--uid 2000007
--gid 2000007
--hostname sandbox
--die-with-parent
--new-session
--cap-drop ALL
--json-status-fd 8
--ro-bind /usr /usr
--symlink usr/bin /bin
--ro-bind /lib /lib
{etc}
--perms 0444
--ro-bind-data 9 /etc/passwd
--proc /proc
--ro-bind /proc/sys /proc/sys
--ro-bind /dev/null /proc/keys
--dev /dev
--perms 1777
--size 67108864
--tmpfs /dev/shm
--remount-ro /dev
--perms 1777
--size 536870912
--tmpfs /tmp
--bind-fd 7 /srv/job one
--remount-ro /
--chdir /srv/job one"""


def one_a_line(arguments):
    lines = []
    for word in arguments:
        if word.startswith("--"):
            lines.append(word)
        else:
            lines[-1] += " " + word
    return "\n".join(lines)


def test_the_arguments_of_a_plan():
    made = bwrap.arguments(PLAN, workspace_fd=7, status_fd=8, files={"/etc/passwd": 9})
    etc = "\n".join(f"--ro-bind-try {path} {path}" for path in bwrap.ETC)
    assert one_a_line(made) == GOLDEN.format(etc=etc)


def test_nothing_shown_may_hold_a_credential():
    words = ("gitconfig", "npmrc", "pip.conf", "shadow", "ssl/private", "netrc", "krb5", "docker", "kubernetes")
    assert not [path for path in bwrap.ETC if any(word in path for word in words)]
    assert "/etc/ssl" not in bwrap.ETC


def test_whoever_it_runs_as_has_a_name_and_a_home():
    made = bwrap.contents(PLAN)
    assert "sandbox:x:2000007:2000007:sandbox:/srv/job one:/bin/sh\n" in made["/etc/passwd"]
    assert "sandbox:x:2000007:\n" in made["/etc/group"]
    assert "nameserver 127.0.0.1\n" in made["/etc/resolv.conf"]


@contextmanager
def open_directory(path):
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def test_bwrap_is_looked_for_in_absolute_directories_only(tmp_path, monkeypatch):
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    with open_directory("/usr") as elsewhere:
        assert bwrap.find(f"/nonexistent:{tmp_path}", elsewhere) == str(program)
        for path in ("", ".", ":", "/nonexistent"):
            with pytest.raises(Broken, match="apt-get install bubblewrap"):
                bwrap.find(path, elsewhere)


@pytest.mark.parametrize("entry", ["work/bin", "to-the-directory", "to-the-program"])
def test_a_bwrap_in_the_workspace_is_passed_over(tmp_path, entry):
    (tmp_path / "work" / "bin").mkdir(parents=True)
    (tmp_path / "work" / "bin" / "bwrap").write_text("#!/bin/sh\n")
    (tmp_path / "work" / "bin" / "bwrap").chmod(0o755)
    (tmp_path / "to-the-directory").symlink_to("work/bin")
    (tmp_path / "to-the-program").mkdir()
    (tmp_path / "to-the-program" / "bwrap").symlink_to("../work/bin/bwrap")
    with open_directory(tmp_path / "work") as fd, pytest.raises(Broken, match="apt-get install bubblewrap"):
        bwrap.find(str(tmp_path / entry), fd)
