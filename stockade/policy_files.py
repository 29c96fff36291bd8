"""Policy files on disk: read, parsed and tried out before anything is allowed by them."""

import os
from collections.abc import Sequence
from pathlib import Path

from policy.errors import BadPolicy
from policy.explain import run_trial
from policy.layers import Layer, Policy, combine
from policy.limits import POLICY_CHARS


def load(paths: Sequence[Path], now_s: float) -> Policy:
    """The policy of these files, whose every `[[test]]` holds at `now_s` (Unix time).

    Raises BadPolicy with every problem of every file.
    """
    layers = read_layers(paths)
    problems = [problem for layer in layers for problem in failing(layer, now_s)]
    if problems:
        raise BadPolicy(tuple(problems))
    return combine(layers)


def failing(layer: Layer, now_s: float) -> list[str]:
    """One line for each `[[test]]` of `layer` that does not hold."""
    problems = []
    for trial in layer.trials:
        holds, found = run_trial(layer, trial, now_s)
        if not holds:
            wanted = trial.expect + (f" ({trial.reason})" if trial.reason else "")
            problems.append(
                f"{layer.file}:{trial.line}:test: {trial.to} must be {wanted} and is {found.word}"
                f" ({found.verdict.reason}); {found.because[-1]}"
            )
    return problems


def read_layers(paths: Sequence[Path]) -> list[Layer]:
    """Every file as a layer, in the order given. Raises BadPolicy with every problem of every file."""
    from policy.document import parse  # its models are most of the cost of a short command that reads no policy

    layers: list[Layer] = []
    problems: list[str] = []
    for path in paths:
        try:
            layers.append(parse(read_text(path), str(path)))
        except BadPolicy as error:
            problems += error.problems
    if problems:
        raise BadPolicy(tuple(problems))
    return layers


def read_text(path: Path, most_bytes: int = 4 * POLICY_CHARS + 1) -> str:
    """The text of a file that a person named. Raises BadPolicy saying what is wrong and what to do.

    `most_bytes` are more than any valid policy has, so a file that is cut there is refused for its length; -1: all.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(most_bytes)
    except FileNotFoundError:
        like = f", or write one like {_EXAMPLE}" if path.suffix == ".toml" else ""
        raise _problem(path, f"there is no such file; check the path{like}") from None
    except IsADirectoryError:
        raise _problem(path, "this is a directory; name the policy file in it") from None
    except PermissionError:
        raise _problem(path, f"not readable for this user; {_opened(path)}") from None
    except OSError as error:
        raise _problem(path, f"not readable: {error.strerror}") from None
    try:
        return raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        fault = f"byte {error.start + 1} is 0x{raw[error.start]:02x}, which is not UTF-8; save the file as UTF-8"
        raise BadPolicy((f"{path}:{line}:file: {fault}",)) from None


_EXAMPLE = "examples/minimal.toml"


def _opened(path: Path) -> str:
    """What makes a file readable for this user."""
    try:
        owner = path.stat().st_uid
    except OSError:
        return "a directory above it is closed to this user; have it opened, or copy the file to one that is not"
    return f"run: chmod u+r {path}" if owner == os.geteuid() else f"it is uid {owner}'s; have the owner let this user read it"


def _problem(path: Path, words: str) -> BadPolicy:
    return BadPolicy((f"{path}:1:file: {words}",))
