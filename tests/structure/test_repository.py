"""The tracked files: no path of one machine, no index host in what installs, an executable ./dev, no shadowing, claims with tests."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.structure.rules import LAYERS, ROOT, product

OF_ONE_MACHINE = re.compile(r"(?<![\w.])/(?:work|root|farm[-\w]*|home/\w+|tmp/(?:wt|t)|opt/pypi[-\w]*)/")
"""Paths that exist where somebody happened to write a file."""

TEXT_SUFFIXES = {"", ".py", ".md", ".toml", ".lock", ".svg", ".txt", ".json", ".jsonl", ".cfg", ".yml", ".sh"}


def tracked() -> list[Path]:
    """Every file of the repository that a person wrote."""
    tops = [*LAYERS, "tests", "docs", "bench", ".ci"]
    found = [path for top in tops for path in sorted((ROOT / top).rglob("*")) if path.is_file()]
    found += [path for path in sorted(ROOT.iterdir()) if path.is_file() and not path.name.startswith(".venv")]
    return [p for p in found if p.suffix in TEXT_SUFFIXES and "__pycache__" not in p.parts and p.name != ".git"]


def test_no_path_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in tracked()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if OF_ONE_MACHINE.search(line) and "# any machine:" not in line
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("line", ["open('/root/x')", "cp /work/shared/a b", "file:///opt/pypi/simple", '"/home/me/x"'])
def test_a_path_of_one_machine_is_seen(line: str) -> None:
    assert OF_ONE_MACHINE.search(line)


@pytest.mark.parametrize("line", ["/workspace/a", "/roots/", "mount /tmp/x", "http://a.test/work/"])
def test_other_paths_are_not(line: str) -> None:
    assert not OF_ONE_MACHINE.search(line)


CONFLICT = re.compile(r"^(?:<{7} |={7}$|>{7} )", re.MULTILINE)


def test_no_merge_was_left_half_done() -> None:
    """A marker inside a docstring breaks nothing else (it happened)."""
    found = [str(path.relative_to(ROOT)) for path in tracked() if CONFLICT.search(path.read_text(errors="replace"))]
    assert not found
    assert CONFLICT.search("a\n" + "<" * 7 + " HEAD\nb\n")


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml", "dev", ".ci/run"])
def test_what_installs_names_no_host(name: str) -> None:
    assert "://" not in (ROOT / name).read_text()
    assert "index-url" not in (ROOT / name).read_text().replace("--no-emit-index-url", "")


def test_every_locked_package_has_a_version_and_a_hash() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    blocks = re.split(r"\n(?=\S)", lock.strip())
    assert len(blocks) > 20
    for block in blocks:
        assert re.match(r"[a-z0-9-]+==\S+ ", block), block
        assert "--hash=sha256:" in block, block


def test_the_lock_holds_every_dependency() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [
        *project["project"]["dependencies"],
        *project["dependency-groups"]["dev"],
        *project["build-system"]["requires"],
    ]
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    assert {re.split(r"[\[<>=~!]", name)[0] for name in asked} <= locked


@pytest.mark.parametrize("name", ["dev", ".ci/run"])
def test_scripts_are_executable_and_plain_sh(name: str) -> None:
    assert (ROOT / name).stat().st_mode & 0o111
    assert (ROOT / name).read_text().startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", str(ROOT / name)], check=True)


def test_every_python_child_is_isolated() -> None:
    """A child interpreter that the product starts gets -I; an argument list that holds sys.executable shows it next."""
    for module in product():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.List | ast.Tuple):
                texts = [ast.unparse(element) for element in node.elts]
                if "sys.executable" in texts:
                    following = texts[texts.index("sys.executable") + 1 :]
                    assert following and following[0] in {"'-I'", "'-IB'", "'-IS'"}, f"{module.name}:{node.lineno}"


# --- SECURITY.md: a claim is a list item that ends in its test's name


CLAIM = re.compile(r"^- (?P<claim>.+?) `(?P<test>test_\w+)`$")


def attack_tests() -> set[str]:
    found = set()
    for path in (ROOT / "tests" / "attack").glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found.add(node.name)
    return found


def unproved(text: str, tests: set[str]) -> list[str]:
    """Claims of the section `What it promises` without a test that exists."""
    section = text.partition("## What it promises")[2].partition("\n## ")[0]
    items = [" ".join(item.split()) for item in re.split(r"^(?=- )", section, flags=re.MULTILINE) if item.startswith("- ")]
    assert items, "SECURITY.md makes no claim"
    problems = []
    for item in items:
        found = CLAIM.match(item)
        if found is None or found["test"] not in tests:
            problems.append(item)
    return problems


def test_every_claim_has_its_attack_test() -> None:
    problems = unproved((ROOT / "SECURITY.md").read_text(), attack_tests())
    assert not problems, "claims without a test under tests/attack/:\n" + "\n".join(problems)


def test_a_claim_without_a_test_is_seen() -> None:
    text = "## What it promises\n\n- A is so. `test_a`\n- B is\n  so. `test_b`\n- C is so.\n\n## Next\n- no claim\n"
    assert unproved(text, {"test_a"}) == ["- B is so. `test_b`", "- C is so."]
    assert unproved(text, {"test_a", "test_b"}) == ["- C is so."]


def test_every_attack_test_is_a_claim() -> None:
    """The other way round: a test that no claim names would be dropped unseen."""
    claimed = set(re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text()))
    assert attack_tests() <= claimed
