"""The rules of the tests themselves: a skip fails, a leak fails, an ordinary user really is one."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SKIPS = """
import pytest

def test_skips():
    pytest.skip("no such tool")

@pytest.mark.skipif(True, reason="old kernel")
def test_marked():
    pass

@pytest.mark.xfail(reason="some day")
def test_expected_to_fail():
    assert False
"""
LEAKS = {
    "process": """
import subprocess
def test_leaves():
    subprocess.Popen(["setsid", "sleep", "30"])
""",
    "orphan": """
import subprocess
def test_leaves():
    subprocess.run(["sh", "-c", "env -i setsid sleep 30 >/dev/null 2>&1 &"])
""",
    "file": """
import tempfile
def test_leaves():
    tempfile.mkdtemp()
""",
}
CLEAN = """
import subprocess, tempfile
def test_leaves_nothing(tmp_path):
    (tmp_path / "x").write_text("x")
    subprocess.Popen(["sleep", "0.2"])
    with tempfile.TemporaryDirectory():
        pass
"""


def run_inner(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    """One pytest of its own, under our conftest, over one file; what it leaves running is ended by its reaper."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text().replace("LEAVE_S = 5.0", "LEAVE_S = 0.4"))
    (tmp_path / "test_inner.py").write_text(text)
    return subprocess.run(
        [
            sys.executable,
            "-I",
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(tmp_path),
            str(tmp_path),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_skip_is_a_failure(tmp_path: Path) -> None:
    done = run_inner(tmp_path, SKIPS)
    assert done.returncode == 1
    assert "passed" not in done.stdout and "skipped in" not in done.stdout and "xfailed" not in done.stdout
    assert done.stdout.count("counts as a failure here") >= 3
    assert "no such tool" in done.stdout


def test_a_skipped_module_is_a_failure(tmp_path: Path) -> None:
    done = run_inner(tmp_path, "import pytest\npytest.importorskip('no_such_library')\n")
    assert done.returncode != 0
    assert "counts as a failure" in done.stdout


@pytest.mark.parametrize("kind", LEAKS)
def test_a_leak_is_a_failure(tmp_path: Path, kind: str) -> None:
    done = run_inner(tmp_path, LEAKS[kind].replace("30", "4"))
    assert done.returncode == 1, done.stdout
    assert "what the tests left behind" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 passed, 1 error")


def test_leaving_nothing_passes(tmp_path: Path) -> None:
    done = run_inner(tmp_path, CLEAN)
    assert done.returncode == 0, done.stdout


def test_an_ordinary_user_has_no_privilege_and_reads_this_clone(ordinary_user) -> None:
    script = f"""
import os, sys
import policy.verdict, stockade.cli
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(os.getuid(), os.getgid(), os.getgroups(), int(status["CapEff"], 16), sys.flags.isolated)
open("{ROOT}/dev").close()
open("mine", "w").close()
"""
    done = ordinary_user.run([sys.executable, "-I", "-c", f"import sys; sys.path.append({str(ROOT)!r})\n{script}"])
    assert done.stderr == ""
    uid, gid = ordinary_user.uid, ordinary_user.gid
    assert uid != 0
    assert done.stdout.split() == [str(uid), str(gid), "[]", "0", "1"] or done.stdout.startswith(f"{uid} {gid} ")
    assert (ordinary_user.home / "mine").stat().st_uid == uid
