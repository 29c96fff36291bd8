"""tests/field_reports.toml: each report is held by tests that exist, or waits for a later part and says why."""

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPORTS = tomllib.loads((ROOT / "tests" / "field_reports.toml").read_text())
LATER = {2, 3, 4, 5, 6}


def problems(reports: dict[str, dict[str, object]]) -> list[str]:
    found = []
    for key, report in reports.items():
        held, part = report.get("held_by"), report.get("part")
        if not report.get("title") or not report.get("lane"):
            found.append(f"{key}: no title or lane")
        if (held is None) == (part is None) or held == []:
            found.append(f"{key}: either held_by or part")
        if part is not None and (part not in LATER or not report.get("because")):
            found.append(f"{key}: a later part, and because")
        found += [f"{key}: there is no {node}" for node in held or [] if not exists(str(node))]
    return found


def exists(node: str) -> bool:
    path, _, name = node.partition("::")
    file = ROOT / path
    if not (path.startswith("tests/") and file.is_file()):
        return False
    tree = ast.parse(file.read_text())
    return name in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")}


def test_each_report_is_held_or_waits() -> None:
    assert problems(REPORTS) == []
    assert len(REPORTS) >= 66


def test_a_report_that_is_not_held_is_seen() -> None:
    said = {"title": "t", "lane": "plain"}
    here = "tests/structure/test_reports.py"
    assert problems({"A": said}) and problems({"A": said | {"held_by": []}})
    assert problems({"A": said | {"part": 3}}) and problems({"A": said | {"part": 1, "because": "x"}})
    assert problems({"A": said | {"held_by": [f"{here}::test_nothing"]}})
    assert problems({"A": said | {"held_by": ["tests/none.py::test_each_report_is_held_or_waits"]}})
    assert not problems({"A": said | {"held_by": [f"{here}::test_each_report_is_held_or_waits"]}})
    assert not problems({"A": said | {"part": 3, "because": "the cordon is built there"}})
