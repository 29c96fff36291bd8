"""Explanations: the proxy's own functions, a line for each step, and what a person would write."""

import pytest

from policy.address import REGISTRY_DATE
from policy.destination import read_authority
from policy.document import parse
from policy.explain import explain, run_trial
from policy.judge import judge
from policy.layers import combine
from policy.remedy import remedy
from policy.script import read_script
from policy.verdict import Reason

NOW_S = 1_800_000_000.0
RULES = """\
version = 1
[[grant]]
name = "site"
hosts = ["a.example.com", "*.b.example.com"]
[[grant]]
name = "read"
hosts = ["r.example.com"]
intercept = true
methods = ["GET"]
paths = ["/pub/**"]
[[grant]]
name = "over"
hosts = ["o.example.com"]
until = 2026-01-01T00:00:00Z
[[refuse]]
name = "no"
hosts = ["bad.b.example.com"]
"""
LAYER = parse(RULES, "p.toml")
DNS = {
    "a.example.com": {"CNAME": "edge.example.net"},
    "edge.example.net": {"A": ["93.184.215.14"]},
    "r.example.com": {"A": ["93.184.215.14"]},
    "x.b.example.com": {"A": ["10.0.0.5"]},
}


def said(target, **more):
    asked = []
    script = read_script(DNS)

    def ask(name):
        asked.append(name)
        return script(name)

    found = explain(combine([LAYER]), target, ask, NOW_S, **more)
    return found, asked


def test_an_allowed_target_step_by_step():
    found, asked = said("https://A.example.com/x")
    assert found.to_json() == {
        "verdict": "allow", "reason": "granted", "grant": "site", "rule": None, "layer": "p.toml", "host": "a.example.com", "port": 443,
        "addresses": ["93.184.215.14"], "would_refuse": None, "revision": combine([LAYER]).revision, "registry": REGISTRY_DATE,
        "because": [
            "The target is a.example.com:443.",
            "The proxy carries a tunnel and does not read what is in it.",
            "a.example.com may be resolved by the grant site of p.toml.",
            "It is an alias of edge.example.net.",
            "Its addresses: 93.184.215.14.",
            "Allowed by the grant site of p.toml.",
        ],
    }  # fmt: skip
    assert asked == ["a.example.com"]


@pytest.mark.parametrize(
    ("target", "more", "word", "reason", "remedy"),
    [
        ("https://c.example.com/", {}, "refuse", "not-granted", 'write in a [[grant]]: hosts = ["c.example.com"]'),
        ("tcp://c.example.com:22", {}, "refuse", "not-granted", 'hosts = ["c.example.com"], ports = [22]'),
        ("https://93.184.215.14/", {}, "refuse", "not-granted", 'addresses = ["93.184.215.14"]'),
        (
            "a.example.com:22",
            {"form": "connect"},
            "refuse",
            "port-not-granted",
            "add 22 to the ports of the grant site",
        ),
        ("https://bad.b.example.com/", {}, "refuse", "refused-by-rule", "out of the refuse rule no"),
        ("https://o.example.com/", {}, "refuse", "grant-expired", "a later until"),
        ("https://r.example.com/pub/x", {}, "refuse", "not-granted", "without intercept"),
        ("https://r.example.com/pub/x", {"method": "GET"}, "refuse", "not-granted", "without intercept"),
        ("http://r.example.com/pub/x", {}, "allow", "granted", "Allowed by the grant read"),
        ("ws://r.example.com/pub/x", {}, "allow", "granted", "Allowed by the grant read"),
        ("http://r.example.com/pub/x", {"method": "PUT"}, "refuse", "method-not-granted", "to the methods of read"),
        ("http://r.example.com/x", {}, "refuse", "path-not-granted", "to the paths of read"),
        ("https://db.internal/", {}, "refuse", "name-special", "private = [its network]"),
        ("https://x.b.example.com/", {}, "refuse", "address-private", 'private = ["10.0.0.5"]'),
        ("https://10.0.0.5/", {}, "refuse", "address-private", 'addresses = ["10.0.0.5"]'),
        ("https://127.0.0.1/", {}, "refuse", "address-loopback", "127.0.0.0/8"),
        ("https://y.b.example.com/", {}, "refuse", "dns-failed", "NXDOMAIN"),
        ("https://user@a.example.com/", {}, "invalid", "host-invalid", "user information"),
        ("a.example.com", {"form": "connect"}, "invalid", "port-invalid", "has no port"),
        ("https://a.example.com/", {"method": "G T"}, "invalid", "request-invalid", "no HTTP token"),
    ],
)
def test_words_and_remedies(target, more, word, reason, remedy):
    found, _ = said(target, **more)
    assert (found.word, found.verdict.reason) == (word, reason)
    assert remedy in found.because[-1], found.because


def test_only_a_name_that_may_be_resolved_is_asked_for():
    for target in (
        "https://c.example.com/",
        "https://bad.b.example.com/",
        "https://o.example.com/",
        "https://10.0.0.5/",
        "https://localhost/",
        "http://r.example.com/x",
        "nonsense",
    ):
        assert said(target)[1] == [], target


def test_every_refusal_says_how_to_grant_it_or_that_nobody_can():
    destination = read_authority("a.example.com:443")
    for reason in Reason:
        verdict = judge(combine([]), destination, NOW_S)
        words = remedy(type(verdict)(False, reason, "g", "r", "l", address=None), destination)
        never = reason.startswith(("address-l", "address-m", "address-o", "address-e"))
        assert not (never and words), reason


def test_a_suggestion_is_a_policy_that_grants():
    """What is printed can be written: the suggested grant makes the refused target pass."""
    for target in ("https://c.example.com/", "tcp://c.example.com:22", "https://93.184.215.14/", "https://10.0.0.5/"):
        found, _ = said(target)
        text = found.because[-1].partition("[[grant]]: ")[2].replace(", ports", "\nports")
        policy = combine([parse(f"version = 1\n[[grant]]\n{text}\n", "new.toml")])
        assert judge(policy, found.destination, NOW_S).allowed, text


def test_nothing_is_suggested_that_no_policy_may_say():
    for target in ("http://0.0.0.0/", "http://255.255.255.255/", "http://[2002:a00:1::1]/", "http://100.100.100.200/"):
        found, _ = said(target)
        assert found.because[-1] == found.verdict.detail, target


def test_report_mode_says_so():
    layer = parse(RULES.replace("version = 1", 'version = 1\nmode = "report"'), "p.toml")
    dns = read_script({"c.example.com": {"A": ["93.184.215.14"]}})
    found = explain(combine([layer]), "https://c.example.com/", dns, NOW_S)
    assert (found.word, found.to_json()["would_refuse"]) == ("allow", "not-granted")
    assert any("enforce mode would say not-granted" in step for step in found.because)


def test_trials():
    text = RULES + '[[test]]\nto = "{}"\nexpect = "{}"\n{}\n'
    for to, expect, more, holds in (
        ("https://a.example.com/", "allow", 'dns = { "a.example.com" = { A = ["1.1.1.1"] } }', True),
        ("https://a.example.com/", "allow", "", False),
        ("https://a.example.com/", "refuse", 'reason = "dns-failed"', True),
        ("https://c.example.com/", "refuse", 'reason = "not-granted"', True),
        ("https://c.example.com/", "refuse", 'reason = "refused-by-rule"', False),
        ("https://c.example.com/", "allow", "", False),
        ("https://user@c.example.com/", "invalid", "", True),
        ("https://user@c.example.com/", "refuse", "", False),
    ):
        layer = parse(text.format(to, expect, more), "p.toml")
        assert run_trial(layer, layer.trials[0], NOW_S)[0] is holds, (to, expect, more)
