"""`stockade demo`: a private internet, a confined shell, and a table of what it could and could not reach."""

import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer

from policy.errors import BadPolicy, Broken

app = typer.Typer(subcommand_metavar="")

_FAILED: Final = 125
_FILE_COLUMNS: Final = 160
"""Width of the table where no terminal says its own."""


_EPILOG: Final = """Exit status: 0 when everything came out as it has to, 1 when anything did not, 125 when it could not start.

Example: stockade demo --json | jq .canaries"""


@app.callback(invoke_without_command=True, epilog=_EPILOG)
def command(
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Where the journal and the script stay. Default: a fresh directory."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> None:
    """Build a private internet and show what a confined shell can and cannot reach.

    Everything happens in network namespaces with no way out of this machine. As root or as anybody.
    """
    from rich.console import Console

    from stockade.demo import report, stage

    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # so that the stage is cleared
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=_FILE_COLUMNS)
    folder = None
    try:
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="stockade-demo-journal-")) if keep is None else keep.resolve()
        with console.status("building a private internet") as status:

            def progress(done: int, of: int) -> None:
                status.update(f"the confined shell has tried {done} of {of}")

            if not console.is_terminal or as_json:
                status.stop()
            played = stage.play(folder, progress)
    except (Broken, BadPolicy, OSError) as fault:
        if folder is not None and keep is None:
            shutil.rmtree(folder)
        print(f"stockade demo: {fault}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(_FAILED) from None
    if as_json:
        print(json.dumps(report.as_object(played)))  # noqa: T201
    else:
        report.show(played, console)
    raise typer.Exit(0 if played.as_expected else 1)
