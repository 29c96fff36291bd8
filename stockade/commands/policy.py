"""`stockade policy`: check, test, explain and show policy files."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn

import typer

from policy.answer import Answer
from policy.errors import BadPolicy, Broken
from policy.explain import Explanation, explain, run_trial
from policy.host import Name
from policy.layers import Layer, Policy, combine
from policy.limits import Limits
from policy.script import read_script
from stockade.policy_files import read_layers, read_text

app = typer.Typer(no_args_is_help=True)

INVALID: Final = 2
"""Exit status of a policy or a target that cannot be read."""
_STATUS: Final = {"allow": 0, "refuse": 1, "invalid": INVALID}
_COLOURS: Final = {"allow": "bold green", "refuse": "bold red", "invalid": "bold yellow", "ok": "bold green"}

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", readable=False, help="Policy files, one for each layer.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@app.command(epilog="Example: stockade policy check organisation.toml team.toml")
def check(files: Files) -> None:
    """Read policy files and say everything that is wrong with them, and what to write instead.

    Exit status 0 when they are valid (warnings included), 2 when not.
    """
    from policy.review import review

    layers = _read(files)
    for layer in layers:
        warnings = review(layer, time.time())
        for warning in warnings:
            _say(warning, file=sys.stderr)
        counts = f"{_count(len(layer.grants), 'grant')}, {_count(len(layer.refuses), 'refuse rule')}"
        tests = f"{_count(len(layer.trials), 'test')}, {_count(len(warnings), 'warning')}"
        _say(f"{layer.file}: ok ({layer.mode}): {counts}, {tests}", lead="ok")
    if len(layers) > 1:
        _say(f"{len(layers)} layers, revision {combine(layers).revision}: allowed is what every layer allows")


@app.command(epilog="Example: stockade policy test allow.toml")
def test(files: Files, as_json: Json = False) -> None:
    """Run the tests inside policy files, each with the DNS that it brings along.

    Exit status 0 when every test holds, 1 when one does not, 2 when a file is invalid.
    """
    rows = [_run(layer, at) for layer in _read(files) for at in range(len(layer.trials))]
    failed = sum(not row["holds"] for row in rows)
    if as_json:
        _print(json.dumps({"tests": len(rows), "failed": failed, "results": rows}))
    else:
        _table(rows)
        _say(f"{_count(len(rows), 'test')}, {failed} failed")
    raise typer.Exit(1 if failed else 0)


@app.command(
    name="explain",
    epilog="Example: stockade policy explain --policy allow.toml https://pypi.org/simple/",
)
def explain_command(
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="A URL, or host:port with --form connect.")
    ] = None,
    policy: Annotated[
        list[Path] | None,
        typer.Option("--policy", metavar="FILE", readable=False, help="A policy file; once for each layer."),
    ] = None,
    dns: Annotated[
        Path | None, typer.Option(metavar="FILE", readable=False, help="JSON to ask instead of the real resolver.")
    ] = None,
    form: Annotated[str, typer.Option(metavar="url|connect", help="How the target is written.")] = "url",
    method: Annotated[
        str | None, typer.Option(metavar="M", help="The method of a plain HTTP request. Default: GET.")
    ] = None,
    as_json: Json = False,
    batch: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", readable=False, help="JSON lines, each a target with its own form, method, dns and policy."
        ),
    ] = None,
) -> None:
    """Say what becomes of one target, and why, by the very functions that the proxy runs.

    Exit status 0 allow, 1 refuse, 2 invalid (target or policy).
    """
    if (target is None) == (batch is None):
        _fail("one TARGET is wanted, or --batch FILE; see stockade policy explain --help")
    if form not in ("url", "connect"):
        _fail(f"--form {form} is neither url nor connect")
    layers = _read(policy or [], as_json=as_json and batch is None)
    script = None if dns is None else _read_dns(dns)
    if batch is not None:
        for line in _batch(batch, layers, script):
            _print(json.dumps(line))
        return
    assert target is not None
    found = _explain(combine(layers), target, script, "connect" if form == "connect" else "url", method)
    if as_json:
        _print(json.dumps(found.to_json()))
    else:
        _show_explanation(found, target)
    raise typer.Exit(_STATUS[found.word])


@app.command(epilog="Example: stockade policy show --json organisation.toml team.toml")
def show(files: Files, as_json: Json = False) -> None:
    """Show the policy that the files make together: what each layer says, and the limits that hold.

    Exit status 0, or 2 when a file is invalid.
    """
    merged = combine(_read(files))
    if as_json:
        _print(json.dumps(_to_json(merged)))
        return
    _say(f"revision {merged.revision}, mode {merged.mode}")
    for layer in merged.layers:
        _show_layer(layer)
    own = ", ".join(sorted(map(str, merged.own)))
    if own:
        _say(f"own addresses: {own}")
    for name, value in asdict(merged.limits).items():
        changed = "" if value == getattr(Limits(), name) else f"  (default {getattr(Limits(), name):g})"
        _say(f"limit {name} = {value:g}{changed}")


# --- explaining


def _explain(
    policy: Policy,
    target: str,
    script: Callable[[Name], Answer] | None,
    form: Literal["url", "connect"],
    method: str | None,
) -> Explanation:
    """By the script when there is one, else as this machine would: its resolver, its own addresses."""
    if script is not None:
        return explain(policy, target, script, time.time(), form=form, method=method)
    from stockade.live import ask_resolver, own_addresses

    answers: dict[Name, Answer] = {}

    def ask(name: Name) -> Answer:
        if name not in answers:
            answers[name] = ask_resolver(name, policy.limits)
        return answers[name]

    try:
        found = explain(policy, target, ask, time.time(), form=form, method=method)
        if found.word != "allow":
            return found
        # Netlink is asked only now: own addresses make a verdict stricter, never wider.
        return explain(policy.with_own(own_addresses()), target, ask, time.time(), form=form, method=method)
    except Broken as error:
        _fail(str(error))


def _batch(path: Path, layers: list[Layer], script: Callable[[Name], Answer] | None) -> Iterator[dict[str, Any]]:
    """One verdict object for each line of the file, in its order; a line that is no request is invalid."""
    from policy.document import parse

    given = combine(layers)
    for number, line in _lines(path):
        try:
            asked = json.loads(line)
            if not isinstance(asked, dict):
                raise TypeError("not an object")
            target, form = asked.get("target"), asked.get("form", "url")
            if not isinstance(target, str) or form not in ("url", "connect"):
                raise TypeError('target must be text, form "url" or "connect"')
            policy = combine([parse(asked["policy"], f"line {number}")]) if "policy" in asked else given
            answers = read_script(asked["dns"]) if "dns" in asked else script
            yield _explain(policy, target, answers, form, asked.get("method")).to_json()
        except BadPolicy as error:
            yield _invalid(error.problems)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            yield _invalid((f'{path}:{number}: not a request: {error}; write {{"target": "https://pypi.org/"}}',))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Every line that says something, with its number."""
    try:
        text = read_text(path, -1)
    except BadPolicy as error:
        _refuse(error)
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _read_dns(path: Path) -> Callable[[Name], Answer]:
    try:
        names = json.loads(read_text(path))
        if not isinstance(names, Mapping):
            _fail(f'{path}:1: not an object of names; write {{"pypi.org": {{"A": ["151.101.0.223"]}}}}')
    except BadPolicy as error:
        _refuse(error)
    except (ValueError, RecursionError) as error:
        _fail(f"{path}:{getattr(error, 'lineno', 1)}: not JSON: {error}")
    try:
        return read_script(names)
    except BadPolicy as error:
        _refuse(BadPolicy(tuple(f"{path}:1:{problem}" for problem in error.problems)))


def _invalid(problems: tuple[str, ...]) -> dict[str, Any]:
    """The verdict object when the policy cannot be read: the same keys, and no reason of a connection."""
    from policy.address import REGISTRY_DATE

    return {
        "verdict": "invalid",
        **dict.fromkeys(("reason", "grant", "rule", "layer", "host", "port")),
        "addresses": [],
        "would_refuse": None,
        "revision": "none",
        "registry": REGISTRY_DATE,
        "because": list(problems),
    }


def _show_explanation(found: Explanation, target: str) -> None:
    verdict = found.verdict
    _say(f"{found.word}  {target if found.destination is None else found.destination}", lead=found.word)
    _say(f"  reason  {verdict.reason}")
    if verdict.would_refuse:
        _say(f"  report mode: enforce mode would refuse it, {verdict.would_refuse}")
    for key in ("grant", "rule", "layer"):
        if getattr(verdict, key):
            _say(f"  {key:<7} {getattr(verdict, key)}")
    if found.addresses:
        _say(f"  dials   {', '.join(map(str, found.addresses))}")
    for step in found.because:
        _say(f"  - {step}")


# --- testing


def _run(layer: Layer, at: int) -> dict[str, Any]:
    trial = layer.trials[at]
    try:
        holds, found = run_trial(layer, trial, time.time())
    except BadPolicy as error:
        _refuse(error)
    return {
        "file": layer.file,
        "line": trial.line,
        "to": trial.to,
        "expect": trial.expect,
        "expect_reason": trial.reason,
        "verdict": found.word,
        "reason": found.verdict.reason,
        "holds": holds,
        "because": list(found.because),
    }


def _table(rows: list[dict[str, Any]]) -> None:
    width = max((len(row["to"]) for row in rows), default=0)
    for row in rows:
        word = "ok" if row["holds"] else "FAIL"
        expected = row["expect"] + (f" {row['expect_reason']}" if row["expect_reason"] else "")
        _say(f"{word:<4}  {row['to']:<{width}}  {expected}", lead="ok" if row["holds"] else "refuse")
        if not row["holds"]:
            _say(f"      {row['file']}:{row['line']}: is {row['verdict']} {row['reason']}")
            for step in row["because"]:
                _say(f"      - {step}")


# --- showing


def _show_layer(layer: Layer) -> None:
    _say(f"{layer.file} ({layer.mode})", lead="ok")
    for grant in _grants(layer):
        said = {key: value for key, value in grant.items() if value and key not in ("name", "line")}
        _say(f"  grant {grant['name']} (line {grant['line']}): " + "; ".join(_pair(*it) for it in said.items()))
    for rule in layer.refuses:
        _say(f"  refuse {rule.name} (line {rule.line}): {', '.join(map(str, (*rule.hosts, *rule.addresses)))}")
    if layer.nat64:
        _say(f"  nat64 prefixes: {', '.join(map(str, layer.nat64))}")


def _pair(key: str, value: object) -> str:
    return f"{key} {', '.join(map(str, value)) if isinstance(value, list) else value}"


def _grants(layer: Layer) -> Iterator[dict[str, Any]]:
    from policy.record import moment

    for grant in layer.grants:
        yield {
            "name": grant.name,
            "line": grant.line,
            "hosts": [str(pattern) for pattern in grant.hosts],
            "addresses": [str(network) for network in grant.addresses],
            "preset": "public-web" if grant.public_web else None,
            "ports": [ports[0] if len(ports) == 1 else f"{ports[0]}-{ports[-1]}" for ports in grant.ports],
            "private": [str(network) for network in grant.private],
            "until": moment(grant.until_s) if grant.until_s is not None else None,
            "intercept": grant.intercept,
            "methods": list(grant.methods),
            "paths": [str(path) for path in grant.paths],
            # The header's name only: somebody may have written the secret itself into the file.
            "inject": grant.inject.header if grant.inject else None,
        }


def _to_json(policy: Policy) -> dict[str, Any]:
    return {
        "revision": policy.revision,
        "mode": policy.mode,
        "layers": [
            {
                "file": layer.file,
                "mode": layer.mode,
                "grants": list(_grants(layer)),
                "refuses": [
                    {
                        "name": rule.name,
                        "line": rule.line,
                        "hosts": [str(pattern) for pattern in rule.hosts],
                        "addresses": [str(network) for network in rule.addresses],
                    }
                    for rule in layer.refuses
                ],
                "nat64_prefixes": [str(prefix) for prefix in layer.nat64],
                "tests": len(layer.trials),
            }
            for layer in policy.layers
        ],
        "own": sorted(map(str, policy.own)),
        "limits": asdict(policy.limits),
    }


# --- printing


def _read(files: list[Path], *, as_json: bool = False) -> list[Layer]:
    try:
        return read_layers(files)
    except BadPolicy as error:
        if as_json:
            _print(json.dumps(_invalid(error.problems)))
            raise typer.Exit(INVALID) from None
        _refuse(error)


def _refuse(error: BadPolicy) -> NoReturn:
    for problem in error.problems:
        _say(problem, file=sys.stderr)
    raise typer.Exit(INVALID)


def _fail(words: str) -> NoReturn:
    _say(words, file=sys.stderr)
    raise typer.Exit(INVALID)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


def _say(line: str, *, lead: str = "", file: Any = None) -> None:
    """One line for a person; the leading word coloured when a terminal listens."""
    out = file or sys.stdout
    if lead and out.isatty():
        from rich.console import Console
        from rich.text import Text

        Console(file=out).print(Text(line, style=_COLOURS[lead]), soft_wrap=True)
    else:
        out.write(line + "\n")
