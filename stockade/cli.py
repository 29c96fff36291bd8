"""The command line: finds the command that was asked for and imports no other."""

import sys
from importlib import import_module
from typing import Final

import typer

COMMANDS: Final = {
    "run": "Run one command in a sandbox whose only way out is the proxy.",
    "proxy": "Serve SOCKS5, CONNECT and plain HTTP on one port, under a policy.",
    "policy": "Check, test, explain and show policy files.",
    "demo": "Build a private internet and show what a confined shell can and cannot reach.",
}
"""Command and its one-line help; each lives in `stockade.commands.<command>` as `app`."""


def main() -> None:
    """Run the command named by the first argument; without one, list them all."""
    asked = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    app = typer.Typer(
        name="stockade",
        help="Nothing leaves a sandbox except what a policy names.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def root() -> None:
        """Nothing leaves a sandbox except what a policy names."""

    for name, summary in COMMANDS.items():
        if asked in (name, None) or asked not in COMMANDS:
            app.add_typer(import_module(f"stockade.commands.{name}").app, name=name, help=summary)
    app(prog_name="stockade")
