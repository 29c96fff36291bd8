"""Policy files on disk: read, parsed and tried out before anything is allowed by them."""

import gc
import os
from collections.abc import Callable, Sequence
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
    parse = _parser()
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


def _parser() -> Callable[[str, str], Layer]:
    """`policy.document.parse`, imported only now, since that is most of the cost of a short command."""
    # Plugins of pydantic, which any installed package may bring, shall not take part in reading a policy.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    gc.disable()  # tens of thousands of new objects, none of them garbage
    try:
        from policy.document import parse
    finally:
        gc.enable()
    return parse


def read_text(path: Path, most_bytes: int = 4 * POLICY_CHARS + 1) -> str:
    """The text of a file that a person named. Raises BadPolicy saying what is wrong and what to do.

    `most_bytes` are more than any valid policy has, so a file that is cut there is refused for its length; -1: all.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(most_bytes)
    except FileNotFoundError:
        raise _problem(path, f"there is no such file; check the path, or write one like {_EXAMPLE}") from None
    except IsADirectoryError:
        raise _problem(path, "this is a directory; name the policy file in it") from None
    except PermissionError:
        raise _problem(path, f"not readable for this user; run: chmod u+r {path}") from None
    except OSError as error:
        raise _problem(path, f"not readable: {error.strerror}") from None
    try:
        return raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        fault = f"byte {error.start + 1} is 0x{raw[error.start]:02x}, which is not UTF-8; save the file as UTF-8"
        raise BadPolicy((f"{path}:{line}:file: {fault}",)) from None


_EXAMPLE = "examples/minimal.toml"


def _problem(path: Path, words: str) -> BadPolicy:
    return BadPolicy((f"{path}:1:file: {words}",))
