"""A plan is refused before anything starts when its command could not be started as written."""

import pytest

from policy.errors import Broken
from policy.limits import ARGUMENT_BYTES
from sandbox.account import Account
from sandbox.plan import Host, lay, read_host

HOST = Host((("/bin", "usr/bin"),), ())


def make(*command, timeout_s=5.0, network="offline"):
    return lay(
        command,
        workspace="/srv/job",
        account=Account(1000, 1000, switched=False),
        network=network,
        host=HOST,
        caller={},
        timeout_s=timeout_s,
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ((), "none was given"),
        (("",), "not a program's name"),
        (("-rf",), "not a program's name"),
        (("echo", "a\0b"), "NUL"),
        (("echo", "x" * (ARGUMENT_BYTES + 1)), "file in the workspace"),
        (("echo", "é" * (ARGUMENT_BYTES // 2 + 1)), "file in the workspace"),
    ],
)
def test_a_command_that_cannot_start_is_refused(command, said):
    with pytest.raises(Broken, match=said):
        make(*command)


def test_the_longest_argument_is_taken():
    assert len(make("echo", "x" * ARGUMENT_BYTES).command[1]) == ARGUMENT_BYTES


@pytest.mark.parametrize("timeout_s", [0, -1, 3601, float("nan"), float("inf")])
def test_a_timeout_outside_the_limits_is_refused(timeout_s):
    with pytest.raises(Broken, match="timeout"):
        make("true", timeout_s=timeout_s)


def test_the_environment_knows_the_proxy_only_when_there_is_one():
    assert not [name for name in make("true").environment if "proxy" in name.lower()]
    assert make("true", network="proxied").environment["https_proxy"] == "http://127.0.0.1:3128"


def test_the_hosts_layout(tmp_path):
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "lib").mkdir()
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "keys").touch()
    assert read_host(tmp_path) == Host((("/bin", "usr/bin"), ("/lib", None)), ("/proc/keys",))
