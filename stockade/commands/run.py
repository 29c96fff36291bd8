"""`stockade run`."""

import typer

app = typer.Typer()
