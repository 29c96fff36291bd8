"""What every test obeys: no skip, nothing left behind; and the fixtures that more than one folder uses."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ORDINARY_UID = 47_811
PR_SET_CHILD_SUBREAPER = 36
LEAVE_S = 5.0
"""How long processes that were told to end may take to do so after the last test."""


# --- a skip is a failure: a kernel feature or a tool that is absent must be seen


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.outcome == "skipped":
        report.outcome = "failed"
        report.longrepr = f"skipped or expected to fail, which counts as a failure here: {report.longrepr}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    refuse_skip(report)
    return report


# --- nothing is left behind: processes and temporary files always; namespaces, mounts and tables under ./dev test,
#     which runs the tests in a network and a mount namespace of their own, so that a neighbour's are not taken for ours


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def descendants() -> dict[int, str]:
    """Living processes below this one, by id, each with its command line; orphans among them, as we are their subreaper."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state not in "ZX":
                parents[int(entry.name)] = int(parent)
    found: dict[int, str] = {}
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours and pid not in ours}:
        ours |= more
        for pid in more:
            try:
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
    return found


def mounts() -> set[str]:
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def tables() -> set[str]:
    said = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True)
    return set(said.stdout.splitlines())


def interfaces() -> set[str]:
    """Of this process's own network namespace (a neighbour's /sys may show another's)."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    return {line.partition(":")[0].strip() for line in lines}


def named_namespaces() -> set[str]:
    return set(os.listdir("/run/netns")) if Path("/run/netns").is_dir() else set()


def kernel_state() -> dict[str, set[str]]:
    if os.environ.get("STOCKADE_TESTS_ENCLOSED") != "1":
        return {}
    return {
        "mount": mounts(),
        "interface": interfaces(),
        "named network namespace": named_namespaces(),
        "nftables table": tables() if os.geteuid() == 0 else set(),
    }


@dataclass
class Before:
    """What there was before the first test."""

    temporary: Path
    kernel: dict[str, set[str]]


BEFORE = pytest.StashKey[Before]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if is_worker(config):
        return
    temporary = Path(tempfile.mkdtemp(prefix="st-"))
    temporary.chmod(0o1777)
    os.environ["TMPDIR"] = str(temporary)
    tempfile.tempdir = None
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    config.stash[BEFORE] = Before(temporary, kernel_state())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """After the last fixture and the last worker are gone, and before the closing summary is printed."""
    if is_worker(session.config):
        return
    before = session.config.stash[BEFORE]
    until_s = time.monotonic() + LEAVE_S
    while (running := descendants()) and time.monotonic() < until_s:
        time.sleep(0.05)
    left = [f"process {pid}: {line}" for pid, line in running.items()]
    after = kernel_state()
    left += [f"{kind} {name}" for kind, names in before.kernel.items() for name in sorted(after[kind] - names)]
    left += [f"file {path}" for path in before.temporary.iterdir() if not path.name.startswith("pytest-of-")]
    if left:
        name, text = "what the tests left behind", "\n".join(left)
        report = pytest.TestReport(name, ("", None, name), {}, "failed", text, "teardown")
        session.config.pluginmanager.get_plugin("terminalreporter").stats.setdefault("error", []).append(report)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    if BEFORE in config.stash:
        shutil.rmtree(config.stash[BEFORE].temporary, ignore_errors=True)


# --- fixtures


@dataclass(frozen=True)
class OrdinaryUser:
    """Somebody without privilege, with a directory of their own; ourselves when we have none."""

    uid: int
    gid: int
    home: Path
    wrap: Callable[[Sequence[str]], list[str]]
    """Turns an argument list into one that runs as this user; `sys.executable` and this clone are readable to it."""

    def run(self, command: Sequence[str], **options: object) -> subprocess.CompletedProcess[str]:
        """Run to the end in `home`, with text captured; never more than a minute."""
        options = {"cwd": self.home, "capture_output": True, "text": True, "timeout": 60, "check": False} | options
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", "TMPDIR": str(self.home)}
        environment["PYTHONPATH"] = str(ROOT)  # for a child without -I; python -I finds us through the editable install
        options = {"env": environment} | options
        return subprocess.run(self.wrap(command), **options)  # noqa: PLW1510 - options says check


@pytest.fixture
def ordinary_user() -> Iterator[OrdinaryUser]:
    """An ordinary user, whoever runs the tests."""
    home = Path(tempfile.mkdtemp(prefix="home-"))
    if os.geteuid() != 0:
        yield OrdinaryUser(os.geteuid(), os.getegid(), home, list)
    else:
        os.chown(home, ORDINARY_UID, ORDINARY_UID)
        readable = sorted({str(ROOT), sys.prefix, sys.base_prefix})
        base = Path(sys.base_prefix, "bin", "python3")
        before = [
            str(base), "-I", str(ROOT / "tests" / "as_ordinary_user.py"),
            str(ORDINARY_UID), str(ORDINARY_UID), *readable, "--",
        ]  # fmt: skip
        yield OrdinaryUser(ORDINARY_UID, ORDINARY_UID, home, lambda command: [*before, *command])
    shutil.rmtree(home)
