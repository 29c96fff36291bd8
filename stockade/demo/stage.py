"""Sets the stage: a lab, a workspace, and `stockade run` in its gateway with the shell in it."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from policy.destination import Destination
from policy.document import parse
from policy.errors import Broken
from policy.host import Name
from policy.judge import judge
from policy.layers import combine
from stockade.demo import outcome, script
from stockade.demo.attempts import ATTEMPTS, DEMO_NAMES
from stockade.demo.outcome import Outcome
from stockade.lab.lab import Lab

POLICY_FILE: Final = Path(__file__).resolve().parents[1] / "lab" / "demo.toml"
_ROOT: Final = Path(__file__).resolve().parents[2]
_START: Final = "import sys; sys.path.insert(0, sys.argv.pop(1)); from stockade.cli import main; main()"
_SHELL_S: Final = 60.0
_LOOK_S: Final = 0.1
_USUAL_PORTS: Final = (443, 80, 22)
_FAILED: Final = 125
"""What `stockade run` exits with when it could not start the command."""


@dataclass(frozen=True, slots=True)
class Played:
    """Everything that happened."""

    outcomes: tuple[Outcome, ...]
    canaries: dict[str, int]
    """`address:port/protocol` -> attempts that came where none should; empty is what had to come."""
    asked_in_vain: tuple[str, ...]
    """DNS questions that reached a server for names that no grant speaks for; empty is what had to come."""
    faults: tuple[str, ...]
    """What went wrong besides single attempts."""
    policy_file: Path
    journal_file: Path
    script_file: Path
    duration_s: float
    set_up_s: float
    """Of `duration_s`: until the shell was started."""

    @property
    def as_expected(self) -> bool:
        """Every attempt came out as it had to, and nothing touched a canary."""
        faults = [one for one in self.outcomes if one.fault]
        return not (faults or self.canaries or self.asked_in_vain or self.faults)


def play(folder: Path, progress: Callable[[int, int], None], policy_file: Path = POLICY_FILE) -> Played:
    """Build the lab, run every attempt, judge it; `progress(done, all)` is called as they go.

    `folder` gets the journal and the script; `policy_file` is the policy it runs under. Raises Broken when the lab
    or the sandbox cannot be had here.
    """
    began_s = time.monotonic()
    journal_file = folder / "journal.jsonl"
    with (
        Lab() as lab,
        tempfile.TemporaryDirectory(prefix="stockade-demo-", ignore_cleanup_errors=True) as space,
    ):
        lab.write_names(DEMO_NAMES)
        workspace = Path(space)
        _furnish(workspace, lab.root_pem)
        script_file = folder / script.NAME
        script_file.write_text((workspace / script.NAME).read_text())
        set_up_s = time.monotonic() - began_s
        said = _run_shell(lab, workspace, policy_file, journal_file, progress)
        outcomes = outcome.judge(ATTEMPTS, workspace / script.RESULTS, outcome.read_journal(journal_file))
        canaries, asked = lab.canaries(), lab.asked()
    return Played(
        tuple(outcomes),
        canaries,
        _asked_in_vain(policy_file, asked),
        () if said["exit"] == 0 else (f"the shell ended with status {said['exit']}: {said['stderr'][-500:]}",),
        policy_file,
        journal_file,
        script_file,
        time.monotonic() - began_s,
        set_up_s,
    )


def _asked_in_vain(policy_file: Path, asked: dict[str, int]) -> tuple[str, ...]:
    """Names that were asked of DNS though the policy lets none of their usual ports be reached."""
    policy = combine([parse(policy_file.read_text(), str(policy_file))])
    names = sorted({question.split()[0] for question in asked})
    return tuple(
        name
        for name in names
        if not any(judge(policy, Destination(Name(name), port), time.time()).allowed for port in _USUAL_PORTS)
    )


def _furnish(workspace: Path, root_pem: str) -> None:
    (workspace / script.AUTHORITY).write_text(root_pem)
    (workspace / script.NAME).write_text(script.write(ATTEMPTS))
    results = workspace / script.RESULTS
    results.mkdir()
    if os.geteuid() == 0:
        results.chmod(0o777)  # the sandbox's shell has a uid of its own


def _run_shell(
    lab: Lab,
    workspace: Path,
    policy_file: Path,
    journal_file: Path,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    argv = [
        *(sys.executable, "-I", "-c", _START, str(_ROOT)),
        *("run", "--json", "--policy", str(policy_file), "--workspace", str(workspace)),
        *("--resolver", lab.resolver, "--journal", str(journal_file), "--timeout", f"{_SHELL_S:g}"),
        *("--", "/bin/bash", script.NAME),
    ]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        running = lab.popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, cwd="/")
        results = workspace / script.RESULTS
        try:
            while running.poll() is None:
                progress(len(list(results.glob("*.ended"))), len(ATTEMPTS))
                time.sleep(_LOOK_S)
        finally:
            running.kill()
            running.wait()
        text, why = _whole(output), _whole(errors)
    try:
        said: dict[str, Any] = json.loads(text)
    except ValueError:
        raise Broken(f"`stockade run` did not say how it ended: {(why or text)[-2_000:].strip()}") from None
    if said["exit"] == _FAILED:
        raise Broken(f"`stockade run` could not start the shell: {(why + said['stderr'])[-2_000:].strip()}")
    return said


def _whole(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "backslashreplace")
