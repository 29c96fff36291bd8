"""`stockade proxy`."""

import typer

app = typer.Typer()
