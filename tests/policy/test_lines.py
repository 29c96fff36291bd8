"""Where keys stand: every path that tomllib finds has its line, and no other path has one."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.lines import locate

TEXT = '''\
# a comment with [brackets] and "quotes"
version = 1   # trailing
[[grant]]
hosts = ["a", # comment, ] here
  "b]",
  'c',
]
"quoted key" = """
[[grant]] in a string
\\""" still """
inject.header = "x"
[[grant]]
[grant.inject]
value = \'\'\'
a = 1
\'\'\'
[grant.inject."d.e".f]
x = { y = [1, [2,
  3]], "z.w" = {} }
[[ grant . rules ]]
a=1979-05-27T07:32:00Z
[[grant.rules]]
"\\u0061b" = 1e3
[[test]]
dns = { "pypi.org" = { A = ["1.1.1.1"] } }
'''


def paths(value, path=()):
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from paths(each, (*path, key))


def test_every_line():
    found = locate(TEXT)
    assert set(found) == set(paths(tomllib.loads(TEXT)))
    assert found["version",] == 2
    assert found["grant",] == found["grant", 0] == 3
    assert found["grant", 0, "hosts"] == found["grant", 0, "hosts", 0] == 4
    assert found["grant", 0, "hosts", 1] == 5
    assert found["grant", 0, "hosts", 2] == 6
    assert found["grant", 0, "quoted key"] == 8
    assert found["grant", 0, "inject", "header"] == 11
    assert found["grant", 1] == 12
    assert found["grant", 1, "inject"] == 13
    assert found["grant", 1, "inject", "value"] == 14
    assert found["grant", 1, "inject", "d.e", "f", "x", "y", 1, 1] == 19
    assert found["grant", 1, "inject", "d.e", "f", "x", "z.w"] == 19
    assert found["grant", 1, "rules", 0, "a"] == 21
    assert found["grant", 1, "rules", 1] == 22
    assert found["grant", 1, "rules", 1, "ab"] == 23
    assert found["test", 0, "dns", "pypi.org", "A", 0] == 25


def test_windows_line_ends():
    assert locate(TEXT.replace("\n", "\r\n")) == locate(TEXT)


@pytest.mark.parametrize(
    "text",
    ["", "#", "a=1", "[a]", "[[a]]", "a.b.c=1", "a=[]", "a={}", "a=[[],[{}]]", "a = ''", 'a = ""', "a=''''''", 'a="""x"" """', "a = '''x'''''", 'a="""\\\\"""', '"" = 1', "a = [\n# c\n]", "[a.b]\n[a]\nc=1\n[a.b.d]"],
)  # fmt: skip
def test_small_texts(text):
    assert set(locate(text)) == set(paths(tomllib.loads(text)))


KEY = st.sampled_from(["a", "b-c", '"d e"', "'f.g'", '"\\""', "1"])
SCALAR = st.sampled_from(["1", "true", "1.5", '"x # ] }"', "'y'", '"""\nm\n"""', "1979-05-27", "inf"])
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda it: "[\n" + " ,# c\n".join(it) + "\n]"),
        st.lists(inner, max_size=2).map(
            lambda it: "{" + ", ".join(f"k{at} = {each}" for at, each in enumerate(it)) + "}"
        ),
    ),
    max_leaves=6,
)
LINE = st.one_of(
    st.builds(lambda keys, value: " . ".join(keys) + " = " + value, st.lists(KEY, min_size=1, max_size=3), VALUE),
    st.lists(KEY, min_size=1, max_size=3).map(lambda it: "[" + ".".join(it) + "]"),
    st.lists(KEY, min_size=1, max_size=3).map(lambda it: "[[" + ".".join(it) + "]]"),
    st.sampled_from(["", "# x = 1", "  "]),
)


@given(st.lists(LINE, max_size=8).map("\n".join))
def test_every_path_of_any_document(text):
    try:
        parsed = tomllib.loads(text)
    except ValueError:
        return
    found = locate(text)
    assert set(found) == set(paths(parsed))
    assert all(1 <= line <= text.count("\n") + 1 for line in found.values())
