"""Warnings on policies that are right and yet not meant."""

import time

import pytest

from policy.document import parse
from policy.review import review

NOW_S = 1_800_000_000.0
A = '[[grant]]\nname = "a"\nhosts = ["a.example.com"]\n'


def warnings(text):
    return review(parse("version = 1\n" + text, "p.toml"), NOW_S)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "nothing may leave"),
        (
            A + '[[refuse]]\nhosts = ["a.example.com"]\n',
            2,
            "a.example.com never speaks: the refuse rule a.example.com wins",
        ),
        (A + '[[refuse]]\nname = "r"\nhosts = ["*.example.com"]\n', 2, "the refuse rule r wins"),
        (
            '[[grant]]\nhosts = ["*.b.example.com"]\n[[refuse]]\nname = "r"\nhosts = ["*.example.com"]\n',
            2,
            "*.b.example.com never speaks",
        ),
        (
            '[[grant]]\naddresses = ["10.9.1.0/24"]\n[[refuse]]\nname = "r"\naddresses = ["10.9.0.0/16"]\n',
            2,
            "10.9.1.0/24 never speaks",
        ),
        ('[[grant]]\nhosts = ["x.net", "x.net", "X.net."]\n', 2, "x.net is said 3 times"),
        ('[[grant]]\naddresses = ["10.1.0.0/16", "10.1.0.0/16"]\n', 2, "10.1.0.0/16 is said 2 times"),
        (
            A + '[[grant]]\nname = "b"\nhosts = ["A.example.com"]\n',
            5,
            "the grant b says nothing that a (line 2) does not",
        ),
        (
            '[[grant]]\nname = "b"\nhosts = ["x.a.net"]\nports = [443]\n[[grant]]\nname = "w"\nhosts = ["*.a.net", "q.net"]\n',
            2,
            "nothing that w (line 6) does not",
        ),
        (
            '[[grant]]\nname = "n"\naddresses = ["10.1.2.3/32"]\n[[grant]]\nname = "w"\naddresses = ["10.0.0.0/8"]\n',
            2,
            "nothing that w (line 5) does not",
        ),
        (
            A + '[[refuse]]\nname = "r"\nhosts = ["x.b.net"]\n[[refuse]]\nhosts = ["*.b.net"]\n',
            5,
            "the refuse rule r says nothing that the others do not",
        ),
        (
            A + '[[refuse]]\nname = "r"\nhosts = ["b.net"]\n[[refuse]]\nname = "s"\nhosts = ["b.net"]\n',
            5,
            "the refuse rule r says nothing",
        ),
        (
            '[[grant]]\nname = "old"\nhosts = ["x.net"]\nuntil = 2026-01-01T00:00:00Z\n',
            2,
            "the grant old ended at 2026-01-01T00:00:00Z",
        ),
        ('[[grant]]\nhosts = ["db.internal"]\n', 2, "it needs its exact host and private"),
        ('[[grant]]\nhosts = ["*.corp.lan"]\nprivate = ["10.0.0.0/8"]\n', 2, "*.corp.lan is a special name"),
        ('[[grant]]\nhosts = ["x.net"]\nprivate = ["93.184.215.0/24"]\n', 2, "93.184.215.0/24 is public"),
    ],
)
def test_one_warning(text, line, words):
    found = warnings(text)
    assert found, text
    assert found[0].startswith(f"p.toml:{line}:") and words in found[0], found


@pytest.mark.parametrize(
    "text",
    [
        A,
        A + '[[grant]]\nhosts = ["a.example.com"]\nports = [8443]\n',
        A + '[[grant]]\nhosts = ["*.example.com"]\nuntil = 2030-01-01T00:00:00Z\n',
        A + '[[grant]]\nhosts = ["a.example.com"]\nprivate = ["10.0.0.0/8"]\nports = [22]\n',
        A + '[[refuse]]\nhosts = ["x.a.example.com"]\n',
        '[[grant]]\nhosts = ["*.example.com"]\n[[refuse]]\nhosts = ["admin.example.com"]\n',
        '[[grant]]\npreset = "public-web"\n[[grant]]\nhosts = ["a.net"]\nprivate = ["10.0.0.0/8"]\n',
        '[[grant]]\naddresses = ["10.0.0.0/8"]\n[[refuse]]\naddresses = ["10.9.0.0/16"]\n',
    ],
)
def test_ac06_nothing_is_said_about_what_is_meant(text):
    """AC-06: a rule that is dead prints a warning, one that is not prints none."""
    assert warnings(text) == []


def test_nf01_thousands_are_reviewed_quickly():
    """NF-01: 5,000 entries load and are reviewed, with the overlaps named."""
    networks = ", ".join(f'"10.{at // 256}.{at % 256}.0/24"' for at in range(5000))
    grants = "".join(f'[[grant]]\nhosts = ["h{at}.example.com"]\n' for at in range(1000))
    started_s = time.monotonic()
    found = warnings(
        f'[[grant]]\nname = "many"\naddresses = [{networks}, "10.1.2.0/24"]\n[[refuse]]\naddresses = ["10.9.9.0/24"]\n{grants}'
    )
    assert time.monotonic() - started_s < 10
    assert [warning.partition(": ")[2] for warning in found] == [
        "10.9.9.0/24 never speaks: the refuse rule 10.9.9.0/24 wins; remove one of them",
        "10.1.2.0/24 is said 2 times; remove all but one",
    ]
