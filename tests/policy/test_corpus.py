"""Every line of the shared corpus of destinations has a verdict that the corpus accepts."""

import json
from collections import Counter
from pathlib import Path

import pytest

from policy.document import parse
from policy.errors import BadPolicy
from policy.explain import explain
from policy.layers import combine
from policy.script import read_script

CORPUS = Path(__file__).parent.parent / "data" / "destinations.jsonl"
LINES = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
ADDRESS_GROUPS = ("iana-v4", "iana-v6", "iana-dns", "embedding", "cloud-metadata", "kubernetes")
NOW_S = 1_800_000_000.0


def verdict(line):
    """Word and addresses of one line, in-process."""
    try:
        policy = combine([parse(line["policy"], "corpus.toml")])
    except BadPolicy as error:
        assert error.problems
        return "invalid", ()
    found = explain(policy, line["target"], read_script(line["dns"]), NOW_S, form=line["form"])
    assert found.verdict.allowed == (found.word == "allow")
    return found.word, tuple(map(str, found.addresses))


def test_the_corpus_is_whole():
    assert len(LINES) == len({line["id"] for line in LINES}) == 570


@pytest.mark.parametrize("group", sorted({line["group"] for line in LINES}))
def test_every_line_is_accepted(group):
    wrong = []
    for line in LINES:
        if line["group"] == group:
            word, addresses = verdict(line)
            if word not in line["accept"] or ("connect" in line and addresses != (line["connect"],)):
                wrong.append((line["id"], line["target"], word, addresses, line["why"]))
    assert wrong == []


def test_no_bad_address_is_admitted_and_no_public_one_refused():
    count = Counter()
    for line in LINES:
        if line["group"] in ADDRESS_GROUPS:
            word, _ = verdict(line)
            public = line["accept"] == ["allow"]
            count["public" if public else "bad"] += 1
            count["public refused"] += public and word != "allow"
            count["bad admitted"] += not public and word == "allow"
    assert count["public refused"] == count["bad admitted"] == 0
    assert count["public"] > 40 and count["bad"] > 150
