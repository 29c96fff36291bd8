"""The pages say what the code does: the map, the commands, their options and exit codes, every reason and every limit."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def load_printer():
    spec = importlib.util.spec_from_file_location("reprint", ROOT / "docs" / "reprint.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REPRINT = "it is not what the code says; run ./.venv/bin/python -I docs/reprint.py"


def test_the_map_is_current() -> None:
    assert (ROOT / "docs" / "map.md").read_text() == load_printer().map_page(), REPRINT


def test_the_option_tables_are_current() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    assert text == load_printer().commands_page(text), REPRINT


def test_every_command_has_its_section_and_table() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    commands = set(load_printer().commands())
    assert set(re.findall(r"^## `stockade ([a-z ]+)`$", text, re.MULTILINE)) == commands
    assert set(re.findall(r"<!-- options: ([a-z ]+) -->", text)) == commands


def test_every_option_has_help() -> None:
    for words, command in load_printer().commands().items():
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"stockade {words}: {parameter.name} has no help"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)|src=\"([^\"]+)\"", page.read_text()):
        link = target[0] or target[1]
        if "://" not in link and not link.startswith("mailto:"):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_reason_is_explained() -> None:
    from policy.verdict import Reason

    text = (ROOT / "docs" / "policy.md").read_text()
    assert [reason for reason in Reason if f"`{reason}`" not in text] == []


def test_every_limit_is_explained() -> None:
    from dataclasses import fields

    from policy.limits import Limits

    text = (ROOT / "docs" / "policy.md").read_text()
    assert [field.name for field in fields(Limits) if f"`{field.name}`" not in text] == []


def exit_statuses(text: str) -> set[int]:
    """The numbers of everything that a help text says after `Exit status`."""
    told = " ".join(re.findall(r"Exit status(?: of [^:]*)?:?(.*?)(?:Example|\Z)", text, re.DOTALL))
    return {int(number) for number in re.findall(r"\b\d{1,3}\b", told)}


def test_exit_statuses_are_those_of_the_help() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    for words, command in load_printer().commands().items():
        section = page.partition(f"## `stockade {words}`\n")[2].partition("\n## ")[0]
        table = section.partition("| exit status | when |")[2].partition("\n\n")[0]
        told = exit_statuses(f"{command.help or ''}\n{command.epilog or ''}")
        documented = {int(number) for number in re.findall(r"^\| (\d+)(?: \+ n)? \|", table, re.MULTILINE)}
        assert documented == told, f"stockade {words}"
        assert documented


# --- blocks that are run: `<!-- run -->` before a block of sh, `<!-- output -->` before what it prints,
#     `<!-- file: NAME -->` before a block that shows a file


def blocks(text: str) -> list[tuple[str, str]]:
    return re.findall(r"<!-- ([^>]+?) -->\n```\w*\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_that_show_a_file_are_that_file(page: Path) -> None:
    for mark, text in blocks(page.read_text()):
        if mark.startswith("file: "):
            assert text == (ROOT / mark.removeprefix("file: ")).read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_that_are_marked_run_and_print_what_is_shown(page: Path) -> None:
    marked = blocks(page.read_text())
    for number, (mark, script) in enumerate(marked):
        if mark != "run":
            continue
        runnable = script.replace("./dev stockade", '"$PYTHON" -I -m stockade')
        done = subprocess.run(
            ["sh", "-eu", "-c", runnable],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "PYTHON": sys.executable, "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        if number + 1 < len(marked) and marked[number + 1][0] == "output":
            assert marked[number + 1][1] == done.stdout


def test_the_readme_runs_something() -> None:
    marks = [mark for mark, _ in blocks((ROOT / "README.md").read_text())]
    assert "run" in marks and "output" in marks and "file: docs/example.toml" in marks
