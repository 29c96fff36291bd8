"""`stockade demo`."""

import typer

app = typer.Typer()
