"""docs/policy.md tells every key of the models, every reason, and every limit with its default."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from policy.document import AddressesTable, DnsTable, FileTable, GrantTable, InjectTable, RefuseTable, TrialTable
from policy.limits import CNAME_LINKS_COUNT, IDLE_LEAST_S, POLICY_CHARS, Limits
from policy.verdict import Reason

PAGE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")


def section(title):
    """Text from a heading to the next of its own or a higher level."""
    level = title.partition(" ")[0]
    start = PAGE.index(f"{title}\n")
    end = re.compile(rf"^#{{2,{len(level)}}} ", re.MULTILINE).search(PAGE, start + len(title))
    return PAGE[start : end.start() if end else None]


def rows(title):
    """First cells of the table under a heading."""
    return re.findall(r"^\| `([^`]+)` \|", section(title), re.MULTILINE)


@pytest.mark.parametrize(
    ("title", "model"),
    [("## The file", FileTable), ("### `[[grant]]`", GrantTable), ("### `[[refuse]]`", RefuseTable), ("### `[addresses]`", AddressesTable), ("### `[[test]]`", TrialTable)],
)
def test_every_key_has_its_row(title, model):
    said = [re.sub(r"[\[\]]", "", key).removeprefix("grant.") for key in rows(title)]
    wanted = list(model.model_fields)
    missing = [key for key in wanted if key not in said]
    if model is not FileTable:
        assert sorted(said) == sorted(wanted)
    assert missing == []


def test_keys_of_inner_tables_are_told():
    for key in InjectTable.model_fields:
        assert f"`inject.{key}`" in section("### `[[grant]]`")
    for key in DnsTable.model_fields:
        assert f"`{key}`" in section("### `[[test]]`")


def test_every_reason_has_its_row_and_no_other():
    assert rows("## Reasons") == list(Reason)


def test_every_limit_has_its_row_with_its_default():
    table = dict(re.findall(r"^\| `([a-z_]+)` \| ([0-9.]+) \|", section("## Limits"), re.MULTILINE))
    assert {name: float(value) for name, value in table.items()} == {field.name: float(field.default) for field in fields(Limits)}


def test_numbers_on_the_page():
    assert f"at most {POLICY_CHARS:,} characters" in PAGE
    assert f"`idle_s` at least {IDLE_LEAST_S}" in PAGE
    assert f"longer than {CNAME_LINKS_COUNT} links" in PAGE


def test_links_inside_the_page_lead_somewhere():
    heads = {re.sub(r"[^a-z0-9 -]", "", head.lower()).strip().replace(" ", "-") for head in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= heads
