"""The command line: finds the command that was asked for and imports no other."""

import gc
import os
import signal
import sys
from importlib import import_module
from typing import Annotated, Final

# Most of a short command's time is importing: tens of thousands of new objects, none of them garbage to look for. And
# plugins of pydantic, which any installed package may bring, shall take no part in reading a policy or a command line.
gc.set_threshold(20_000)
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"

import typer  # noqa: E402

COMMANDS: Final = {
    "run": "Run one command in a sandbox whose only way out is the proxy.",
    "proxy": "Serve SOCKS5, CONNECT and plain HTTP on one port, under a policy.",
    "policy": "Check, test, explain and show policy files.",
    "demo": "Build a private internet and show what a confined shell can and cannot reach.",
}
"""Command and its one-line help; each lives in `stockade.commands.<command>` as `app`."""


def main() -> None:
    """Run the command named by the first argument; without one, list them all."""
    _occupy_standard_streams()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where a caller ignores it, the kernel reaps what we wait for
    asked = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    application(asked)(prog_name="stockade")


def _occupy_standard_streams() -> None:
    """Put something that fails into the place of a standard stream that the caller closed.

    Else the next file that is opened, a workspace or a journal, would be the stream.
    """
    for number, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            fd = os.open(os.devnull, flags)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for good
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def application(asked: str | None = None) -> typer.Typer:
    """The command line with only the command `asked`, or with every command when that names none."""
    app = typer.Typer(
        name="stockade",
        help="Nothing leaves a sandbox except what a policy names.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def root(
        version: Annotated[
            bool, typer.Option("--version", help="Print the version and leave.", callback=_version, is_eager=True)
        ] = False,
    ) -> None:
        """Nothing leaves a sandbox except what a policy names."""

    for name, summary in COMMANDS.items():
        if asked not in COMMANDS or asked == name:
            app.add_typer(import_module(f"stockade.commands.{name}").app, name=name, help=summary)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"stockade {version('stockade')}")
        raise typer.Exit
