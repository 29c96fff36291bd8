"""Prints the pages that are made from the code: docs/map.md from docstrings, the option tables of docs/commands.md from typer.

`./.venv/bin/python -I docs/reprint.py` writes both; a test holds that they are current.
"""

import ast
import re
from pathlib import Path

import typer.main
from typer.core import TyperCommand, TyperGroup, TyperOption

from stockade.cli import application

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("stockade", "browser", "sandbox", "firewall", "proxy", "policy")
TABLE = re.compile(r"(<!-- options: (?P<command>[a-z ]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def caption(path: Path) -> str:
    """First paragraph of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def map_page() -> str:
    """Every module and its caption, the top layer first."""
    lines = [
        "# Map",
        "",
        "Every module and what it is, printed from their docstrings by `docs/reprint.py`. A package may import itself and",
        "those below it, never one above.",
    ]
    for layer in LAYERS:
        if not (ROOT / layer).is_dir():
            continue
        lines += ["", f"## {layer}/", "", caption(ROOT / layer / "__init__.py"), "", "| module | what it is |", "| --- | --- |"]
        for path in sorted((ROOT / layer).rglob("*.py")):
            if path.name != "__init__.py" or path.parent != ROOT / layer:
                inside = path.relative_to(ROOT / layer).as_posix()
                lines.append(f"| [`{inside}`](../{layer}/{inside}) | {caption(path).replace('|', '\\|')} |")
    return "\n".join(lines) + "\n"


def commands() -> dict[str, TyperCommand | TyperGroup]:
    """Every command of the command line by its words, `policy explain` for instance."""
    found: dict[str, TyperCommand | TyperGroup] = {}

    def walk(words: str, command: TyperCommand | TyperGroup) -> None:
        for name, below in getattr(command, "commands", {}).items():
            walk(f"{words} {name}".strip(), below)
        if not getattr(command, "commands", {}):
            found[words] = command

    walk("", typer.main.get_command(application()))
    return found


def options_table(command: TyperCommand | TyperGroup) -> str:
    """Arguments and options of one command, as its --help tells them."""
    rows = ["| argument or option | default | what it is |", "| --- | --- | --- |"]
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        if isinstance(parameter, TyperOption):
            value = f" {parameter.metavar}" if parameter.metavar else ""
            spelled = ", ".join(f"`{option}{value}`" for option in [*parameter.opts, *parameter.secondary_opts])
        else:
            spelled = f"`{parameter.metavar or str(parameter.name).upper()}`"
        default = parameter.default
        plain = isinstance(default, str | int | float | Path) and default is not False and default != ""
        shown = "required" if parameter.required else f"`{default}`" if plain else ""
        words = " ".join(str(getattr(parameter, "help", None) or "").split()).replace("|", "\\|")
        spelled = spelled.replace("|", "\\|")
        rows.append(f"| {spelled} | {shown} | {words} |")
    return "\n".join(rows) + "\n"


def commands_page(text: str) -> str:
    """The page with every table between its markers printed anew."""
    every = commands()
    return TABLE.sub(lambda found: found[1] + options_table(every[found["command"]]) + found[4], text)


def main() -> None:
    (ROOT / "docs" / "map.md").write_text(map_page())
    page = ROOT / "docs" / "commands.md"
    page.write_text(commands_page(page.read_text()))


if __name__ == "__main__":
    main()
