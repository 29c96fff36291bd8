"""Every module keeps every rule; and every rule is seen to fail on a module that breaks it."""

import pytest

from tests.structure.rules import RULES, product, read

BROKEN = [
    # rule, module, text, words of the problem
    ("layers", "policy.judge", "from proxy import gate", "policy must not import proxy"),
    ("layers", "policy.judge", "def f():\n    import stockade.cli", "policy must not import stockade.cli"),
    ("layers", "firewall.link", "from importlib import import_module\nimport_module('sandbox.plan')", "sandbox.plan"),
    ("layers", "firewall.link", "import importlib\nimportlib.import_module(f'sandbox.{1}')", "sandbox."),
    ("layers", "proxy.gate", "import importlib\nimportlib.import_module(name)", "absolute"),
    ("layers", "proxy.gate", "from . import loop", "absolute"),
    ("layers", "proxy.gate", "from tests.structure import rules", "tests"),
    ("purity", "policy.judge", "import time", "must not import time"),
    ("purity", "policy.judge", "def f():\n    from os import path", "must not import os"),
    ("purity", "policy.judge", "import datetime\ndatetime.datetime.now()", "now()"),
    ("purity", "policy.document", "open('x')", "open()"),
    ("doors", "proxy.gate", "import dns.message", "dns is imported only by proxy.dns_message"),
    ("doors", "proxy.gate", "from pydantic import BaseModel", "pydantic"),
    ("doors", "stockade.cli", "import mitmproxy", "nobody"),
    ("doors", "stockade.cli", "import requests", "nobody"),
    ("doors", "sandbox.plan", "import typer", "typer"),
    ("docstring", "policy.judge", "import re", "no docstring"),
    ("docstring", "policy.judge", '"""The judge"""', "not a sentence"),
    ("docstring", "policy.judge", '"""One. Two."""', "more than one"),
    ("size", "policy.judge", '"""One."""\n' + "x = 1\n" * 400, "401 lines"),
    ("state", "proxy.gate", "open_ones = {}", "open_ones"),
    ("state", "proxy.gate", "OPEN = []", "OPEN"),
    ("state", "proxy.gate", "open_ones: Final = set()", "open_ones"),
    ("state", "proxy.gate", "class Gate:\n    open_ones: dict = {}", "open_ones"),
    ("state", "proxy.gate", "A: Final = {}\ndef f():\n    A['x'] = 1", "changes a constant"),
    ("state", "proxy.gate", "A: Final = {}\ndef f():\n    del A['x']", "changes a constant"),
    ("state", "proxy.gate", "A: Final = []\ndef f():\n    A.append(1)", "changes a constant"),
    ("state", "proxy.gate", "x = 1\ndef f():\n    global x\n    x = 2", "global"),
    ("state", "proxy.gate", "numbers = itertools.count()", "numbers"),
    ("state", "proxy.gate", "@functools.lru_cache(9)\ndef f(x):\n    return x", "keeps results"),
    ("state", "policy.document", "import pydantic\nclass Grants:\n    hosts: dict = {}", "hosts"),
    ("state", "policy.document", "import pydantic\nhosts = {}", "hosts"),
    ("names", "proxy.gate", "class FlowManager: pass", "manager"),
    ("names", "proxy.gate", "def on_info(): pass", "info"),
    ("names", "proxy.gate", "context = 1", "context"),
    ("names", "proxy.gate", "def f(handler): pass", "handler"),
    ("names", "proxy.utils", "", "util"),
    ("dialling", "proxy.gate", "import socket\nsocket.getaddrinfo('a', 1)", "getaddrinfo"),
    ("dialling", "proxy.gate", "from socket import create_connection as c", "create_connection"),
    ("dialling", "proxy.gate", "import socket\ngetattr(socket, 'gethostbyname')('a')", "gethostbyname"),
    ("catching", "proxy.gate", "try:\n    f()\nexcept:\n    raise", "bare"),
    ("catching", "proxy.gate", "try:\n    f()\nexcept Exception:\n    pass", "swallowed"),
]

SOUND = '''"""One module that keeps every rule.

And says more below its first sentence. It may.
"""

from functools import cache
from typing import Final

from policy.verdict import Reason

TABLE: Final[dict[str, int]] = {"a": 1}
PAIRS = (("a", 1),)


class Gate:
    """A gate."""

    __slots__ = ("flows",)

    def __init__(self) -> None:
        self.flows: list[int] = []

    def open(self, now_s: float) -> None:
        self.flows.append(TABLE["a"])


@cache
def suffixes() -> Reason:
    try:
        return Reason.GRANTED
    except Exception as fault:
        raise SystemExit from fault
'''


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps(rule) -> None:
    problems = [f"{module.name}:{problem}" for module in product() for problem in rule(module)]
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize(("rule", "module", "text", "said"), BROKEN)
def test_a_broken_rule_is_seen(rule: str, module: str, text: str, said: str) -> None:
    check = next(one for one in RULES if one.__name__ == rule)
    problems = list(check(read(module, text)))
    assert problems
    assert said in " ".join(problems)


def test_each_rule_is_shown_to_fail() -> None:
    assert {row[0] for row in BROKEN} == {rule.__name__ for rule in RULES}


def test_a_sound_module_breaks_nothing() -> None:
    module = read("proxy.gate", SOUND)
    assert [problem for rule in RULES for problem in rule(module)] == []


def test_the_product_is_looked_at() -> None:
    assert {module.layer for module in product()} >= {"policy", "proxy", "firewall", "sandbox", "stockade"}
    assert "policy.verdict" in {module.name for module in product()}
