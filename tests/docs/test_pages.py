"""The pages say what the code does: the map, the commands, their options and exit codes, every reason and every limit."""

import importlib.util
import re
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
