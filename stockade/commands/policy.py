"""`stockade policy`."""

import typer

app = typer.Typer()
