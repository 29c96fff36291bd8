"""Runs `stockade run` for tests, as root and as an ordinary user where the suite runs as root, and counts what is left."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AS_ROOT = os.geteuid() == 0
ORDINARY_UID = 62_001
WAYS = ("root", "ordinary") if AS_ROOT else ("ordinary",)
"""`way` of every test that starts something: both where both can be had."""
KEYS = {
    *("exit", "signal", "timed_out", "stdout", "stderr", "truncated", "log", "backend", "network", "duration_s"),
    *("refusals", "acknowledged"),
}


def as_way(way, command):
    """`command` as that user; only root can become the ordinary one, and an ordinary one is that already."""
    if way == "root" or os.geteuid() != 0:
        return list(command)
    become = [str(Path(sys.base_prefix, "bin", "python3")), "-I", str(ROOT / "tests" / "as_ordinary_user.py")]
    readable = sorted({str(ROOT), sys.prefix, sys.base_prefix})
    return [*become, str(ORDINARY_UID), str(ORDINARY_UID), *readable, "--", *command]


def stockade(*words):
    """The command line that runs these sources' `stockade`, whatever is installed."""
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from stockade.cli import main; main()"
    return [sys.executable, "-I", "-c", start, *words]


def run(way, *words, cwd="/", **more):
    """`stockade run WORDS` to its end; its status and output as bytes."""
    more.setdefault("stdin", None if "input" in more else subprocess.DEVNULL)
    if "input" in more:
        more.pop("stdin")
    return subprocess.run(
        as_way(way, stockade("run", *words)), cwd=cwd, capture_output=True, timeout=60, check=False, **more
    )


def run_json(way, *words, **more):
    """`stockade run --json WORDS`: the object, after a look at its keys."""
    ended = run(way, "--json", *words, **more)
    assert ended.stdout, ended.stderr.decode()
    told = json.loads(ended.stdout)
    assert set(told) == KEYS
    assert told["exit"] == ended.returncode
    return told


@contextmanager
def scratch(way, mode=0o755):
    """A directory that `way` owns, outside every directory that only root may enter."""
    made = Path(tempfile.mkdtemp(prefix="work-"))
    made.chmod(mode)
    if way == "ordinary" and os.geteuid() == 0:
        os.chown(made, ORDINARY_UID, ORDINARY_UID)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def living(mark, starts=b""):
    """Pids of processes whose command line begins with `starts` and holds `mark`, ended ones not among them."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if line.startswith(starts) and mark.encode() in line and state != "Z":
            found.append(int(entry.name))
    return found


def gone(mark, within_s=5.0):
    """Wait until no process with `mark` is left; what is left when that does not happen."""
    until_s = time.monotonic() + within_s
    while (left := living(mark)) and time.monotonic() < until_s:
        time.sleep(0.01)
    return left


def appears(mark, starts, within_s=20.0):
    """Wait until a process with `mark` is there, one whose command line begins with `starts`: not who starts it."""
    until_s = time.monotonic() + within_s
    while not (there := living(mark, starts)) and time.monotonic() < until_s:
        time.sleep(0.01)
    return there
