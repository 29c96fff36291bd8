"""`stockade run`: one command in a sandbox, its exit status, and what it was refused."""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from policy.errors import BadPolicy, Broken
from policy.limits import ACKNOWLEDGE_S, COMMAND_MAX_S, COMMAND_S
from sandbox import keeper
from sandbox.outcome import FAILED, Outcome
from stockade.run_session import BACKENDS, Ran, Request, run

_USAGE: Final = 2
"""The status of a usage error in click, which typer may or may not hold a copy of."""


class _Group(TyperGroup):
    """Its own mistakes in the command line exit with 125, since 2 is a status that a command may have."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; a usage error leaves with Stockade's status."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(error, "exit_code", None) == _USAGE:
                vars(error)["exit_code"] = FAILED
            raise


app = typer.Typer(cls=_Group, subcommand_metavar="")

_EPILOG = """
Exit status: the command's own; 124 when the time was up; 125 when Stockade failed or refused to start; 126 and 127
when the command cannot be executed or found; 128 + n after signal n.

Example: stockade run --policy ../allow.toml --workspace . -- pip download requests
"""


@app.callback(invoke_without_command=True, epilog=_EPILOG)
def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="CMD...", help="The command and its arguments, best after `--`."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="FILE", help="A policy file; each further one is a layer."),
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The directory the command may write, at its own path. Without it: a fresh one, removed afterwards. "
            "As root: commands run as its owner; one that root owns is given to a uid of its own.",
        ),
    ] = None,
    net: Annotated[
        str | None,
        typer.Option(metavar="proxied|offline", help="Default: proxied when a policy is given, offline otherwise."),
    ] = None,
    backend: Annotated[
        str, typer.Option(metavar="NAME", help=f"What confines the command: {', '.join(BACKENDS)}.")
    ] = BACKENDS[0],
    timeout: Annotated[
        float,
        typer.Option(metavar="S", help=f"Seconds until everything is killed, up to {COMMAND_MAX_S:.0f}."),
    ] = COMMAND_S,
    as_json: Annotated[
        bool, typer.Option("--json", help="Keep the output and print one JSON object about how it ended.")
    ] = False,
    resolver: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDR[:PORT]", help="Ask these DNS servers instead of /etc/resolv.conf's."),
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Append one JSON line for each verdict and each connection's end."),
    ] = None,
) -> None:
    """Run one command in a sandbox whose only way out is the proxy.

    It sees /usr and a few files of /etc read-only, a /tmp of its own and the workspace; it has no network but the
    proxy, no descriptor and no variable of yours. Standard input is copied to it; use `</dev/null` when it should get
    none.
    """
    request = Request(
        command=tuple(words or ()),
        policies=tuple(policy or ()),
        workspace=workspace,
        timeout_s=timeout,
        captured=as_json,
        journal=journal,
    )
    spare: frozenset[int] | None = None
    try:
        spare = keeper.children()
        request = replace(request, network=_network(net), resolvers=tuple(map(_server, resolver or ())))
        _require_backend(backend)
        ran = run(request)
    except (Broken, BadPolicy) as error:
        ran = Ran(_never_ran(error))
    except OSError as error:  # no descriptor, process or room left for us: whatever was started ends here
        ran = Ran(replace(_never_ran(error), acknowledged=_ended(spare)))
    except KeyboardInterrupt as asked:
        number = int(asked.args[0]) if asked.args else int(signal.SIGINT)
        said = _never_ran(Broken(f"interrupted by {signal.Signals(number).name}"))
        ran = Ran(replace(said, exit=128 + number, signal=number, acknowledged=_ended(spare)))
    status = ran.outcome.exit
    try:
        _tell(ran, as_json=as_json)
        if as_json:
            sys.stdout.write(json.dumps(describe(ran, request, backend)) + "\n")
            sys.stdout.flush()
    except OSError:  # what was to be told was not: a full disk, a reader that is gone
        if as_json:
            status = FAILED
        with open(os.devnull, "w", encoding="ascii") as null:  # what is still buffered shall not fail a second time
            os.dup2(null.fileno(), sys.stdout.fileno())
    raise typer.Exit(status)


def describe(ran: Ran, request: Request, backend: str) -> dict[str, Any]:
    r"""Write the object that `--json` prints (DESIGN §9).

    Bytes of the output that are not UTF-8 appear as the four characters `\xNN`: every JSON parser reads those, while
    a lone surrogate stops some.
    """
    outcome = ran.outcome
    return {
        "exit": outcome.exit,
        "signal": outcome.signal,
        "timed_out": outcome.timed_out,
        "stdout": outcome.stdout.decode("utf-8", "backslashreplace"),
        "stderr": outcome.stderr.decode("utf-8", "backslashreplace"),
        "truncated": outcome.truncated,
        "log": os.fsencode(outcome.logs[0]).decode("utf-8", "backslashreplace") if outcome.logs else None,
        "backend": backend,
        "network": request.effective_network,
        "duration_s": round(outcome.duration_s, 4),
        "refusals": list(ran.refusals),
        "acknowledged": outcome.acknowledged,
    }


def _network(word: str | None) -> Any:
    if word not in (None, "proxied", "offline"):
        raise Broken(f"--net {word}: there is `proxied` (the policy decides) and `offline` (nothing)")
    return word


def _require_backend(word: str) -> None:
    if word not in BACKENDS:
        raise Broken(f"--backend {word}: this version has {', '.join(BACKENDS)}")


def _server(text: str) -> tuple[str, int]:
    from proxy.dns_servers import read_server

    return read_server(text)


def _ended(spare: frozenset[int] | None) -> bool:
    """End whatever was started but not `spare`; None: nothing was, as there was no /proc to ask."""
    return spare is None or keeper.end_children(time.monotonic() + ACKNOWLEDGE_S, spare)


def _never_ran(error: Exception) -> Outcome:
    said = f"stockade: {error}"
    return Outcome(
        exit=FAILED,
        signal=None,
        timed_out=False,
        stdout=b"",
        stderr=os.fsencode(said) + b"\n",
        truncated=False,
        logs=(),
        duration_s=0.0,
        acknowledged=True,
        failure=said.removeprefix("stockade: "),
    )


def _tell(ran: Ran, *, as_json: bool) -> None:
    """Say on standard error whatever a person must know that is not the command's own output."""
    lines = [*ran.notes, *(ran.outcome.failure or "").splitlines()]
    if ran.outcome.timed_out:
        lines.append("the time was up; everything the command started was killed")
    if not ran.outcome.acknowledged:
        lines.append("the end was not acknowledged: processes of the command may still be alive")
    if ran.refusals and not as_json:
        from stockade.run_front import told

        lines += told(ran.refusals)
    for line in lines:
        sys.stderr.write(f"stockade: {line}\n")
