"""./dev on machines that lack something: it says what, installs what it may, and stops where it must."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PLAIN = ("sh", "dirname", "readlink", "cksum", "cat", "grep", "tail", "rm", "id", "env", "flock")
CLIENTS = ("bwrap", "curl", "git", "ssh", "nc")


@dataclass
class Machine:
    """A clone of what ./dev reads, and a PATH on which there is only what the test puts there."""

    clone: Path
    bin: Path

    def put(self, name: str, text: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def link(self, *names: str) -> None:
        for name in names:
            found = shutil.which(name)
            assert found, f"this machine has no {name}"
            (self.bin / name).symlink_to(found)

    def dev(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": str(self.bin),
            "HOME": str(self.clone / "home"),
            "PYTHONPATH": "/nonexistent",
            "PYTHONHOME": "/",
        }
        return subprocess.run(
            [str(self.clone / "dev"), *arguments],
            cwd="/",
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    clone = tmp_path / "a clone"
    clone.mkdir()
    for name in ("dev", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, clone / name)
    (tmp_path / "bin").mkdir()
    made = Machine(clone, tmp_path / "bin")
    made.link(*PLAIN)
    made.put("python3", "echo 'pyenv: python3: command not found' >&2; exit 127")
    return made


def test_without_arguments_it_helps(machine: Machine) -> None:
    done = machine.dev()
    assert done.returncode == 0
    assert "demo" in done.stdout and "test" in done.stdout and "lock" in done.stdout


def test_an_unknown_command_is_refused(machine: Machine) -> None:
    done = machine.dev("instal")
    assert done.returncode == 2
    assert "Usage" in done.stderr


def test_a_shim_that_does_not_start_is_no_python(machine: Machine) -> None:
    machine.link(*CLIENTS)
    machine.put("python3.13", "exit 1")
    old = machine.clone / "home" / ".pyenv" / "versions" / "3.9.1" / "bin"
    old.mkdir(parents=True)
    machine.put("old", "case $* in *version_info*) exit 1;; esac")
    (machine.bin / "old").rename(old / "python3")
    machine.put("apt-get", "exit 0")
    machine.put("id", "echo 0")
    done = machine.dev("stockade", "--help")
    assert done.returncode == 1
    assert "no Python 3.12 or newer that starts was found" in done.stderr
    assert not (machine.clone / ".venv").exists()


def test_a_python_that_starts_is_used_whatever_the_shims_say(machine: Machine) -> None:
    """The second candidate is asked when the first refuses; its failure to make a venv is shown with the log's path."""
    machine.link(*CLIENTS)
    machine.put("apt-get", "exit 0")
    machine.put("id", "echo 0")
    machine.put("python3.12", 'case $* in *venv\\ /*) echo "disk is full"; exit 1;; *-V*) echo Python 3.12.9;; esac')
    done = machine.dev("stockade", "--help")
    assert done.returncode == 1
    assert "making .venv with Python 3.12.9" in done.stderr
    assert "disk is full" in done.stderr
    assert str(machine.clone / ".venv.log") in done.stderr


def test_without_root_it_prints_the_exact_command(machine: Machine) -> None:
    machine.link("curl", "git", "ssh")
    machine.put("apt-get", "echo must not be called; exit 1")
    machine.put("id", "echo 1000")
    done = machine.dev("demo")
    assert done.returncode == 1
    assert "sudo apt-get update && sudo apt-get install -y --no-install-recommends bubblewrap netcat-openbsd" in done.stderr
    assert "must not be called" not in done.stderr


@pytest.mark.parametrize("sudo", [False, True])
def test_with_root_or_sudo_it_installs_what_lacks(machine: Machine, sudo: bool) -> None:
    machine.link("curl", "git", "ssh", "nc")
    machine.put("apt-get", f'echo "$DEBIAN_FRONTEND $*" >>"{machine.clone}/asked"')
    machine.put("id", f"echo {1000 if sudo else 0}")
    if sudo:
        machine.put("sudo", 'shift; exec "$@"')
        machine.link("true")
    machine.dev("demo")
    asked = (machine.clone / "asked").read_text().splitlines()
    assert len(asked) == 2
    assert asked[0].startswith("noninteractive ") and asked[0].endswith(" update")
    assert " install -y --no-install-recommends bubblewrap" in asked[1]
    assert "curl" not in asked[1]


def test_only_test_asks_for_the_tools_of_the_tests(machine: Machine) -> None:
    machine.link(*CLIENTS)
    machine.put("apt-get", "exit 1")
    machine.put("id", "echo 1000")
    assert "nodejs" not in machine.dev("demo").stderr
    said = machine.dev("test").stderr
    assert "nftables" in said and "nodejs" in said and "iproute2" in said


def test_a_failing_install_is_shown(machine: Machine) -> None:
    machine.link("curl", "git", "ssh", "nc")
    machine.put("apt-get", 'case $* in *update*) ;; *) echo "E: no such package"; exit 100;; esac')
    machine.put("id", "echo 0")
    done = machine.dev("demo")
    assert done.returncode == 1
    assert "E: no such package" in done.stderr


def test_the_second_time_is_silent_and_asks_nothing(machine: Machine) -> None:
    """A .venv whose stamps are current is used as it is: its python is run with -I, with none of the caller's variables."""
    machine.link(*CLIENTS)
    (machine.clone / ".venv" / "bin").mkdir(parents=True)
    machine.put("fake", 'case $* in *editables*) ;; *) echo "$* PYTHONPATH=${PYTHONPATH-} PYTHONHOME=${PYTHONHOME-}";; esac')
    (machine.bin / "fake").rename(machine.clone / ".venv" / "bin" / "python")

    def stamp(name: str) -> str:
        with (machine.clone / name).open("rb") as file:
            return subprocess.run(["cksum"], stdin=file, capture_output=True, text=True, check=True).stdout

    (machine.clone / ".venv" / "lock.stamp").write_text(f"{machine.clone} {stamp('requirements.lock')}")
    (machine.clone / ".venv" / "project.stamp").write_text(stamp("pyproject.toml"))
    machine.put("id", "echo 1000")
    machine.put("apt-get", "exit 1")
    missing_pip = not Path("/usr/bin/python3").exists()
    assert not missing_pip, "this machine has no /usr/bin/python3"
    done = machine.dev("stockade", "policy", "two words")
    assert done.stderr == ""
    assert done.stdout == "-I -m stockade policy two words PYTHONPATH= PYTHONHOME=\n"
    with (machine.clone / "requirements.lock").open("a") as lock:
        lock.write("# renewed\n")
    assert "no Python 3.12" in machine.dev("stockade").stderr, "a changed lock must set up anew"


def test_it_works_through_a_symbolic_link(machine: Machine) -> None:
    link = machine.bin / "st"
    os.symlink(machine.clone / "dev", link)
    done = subprocess.run([str(link)], env={"PATH": str(machine.bin)}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
