"""Methods and paths: the normal form, what has none, and the patterns matched on it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.errors import BadClient
from policy.request import PathPattern, read_method, read_path, read_path_pattern
from policy.verdict import Reason


@pytest.mark.parametrize(
    ("raw", "segments"),
    [
        ("/", ("",)),
        ("/a/b", ("a", "b")),
        ("/a/b/", ("a", "b", "")),
        ("/a?x=/../y", ("a",)),
        ("/%61%2D%7e", ("a-~",)),
        ("/a%20b%c3%bc", ("a%20b%C3%BC",)),
        ("/a;b=c/.x/..y/...", ("a;b=c", ".x", "..y", "...")),
        ("/@scope/pkg:1", ("@scope", "pkg:1")),
    ],
)
def test_normal_form(raw, segments):
    assert read_path(raw) == segments


@pytest.mark.parametrize(
    "raw",
    [
        "", "*", "a/b", "?x", "http://a/", "/a/../b", "/a/./b", "/..", "/a/%2e%2E/b", "/a/.%2e", "/a/..;x/b", "/a/%2e;/b", "//a", "/a//b", "/a//",
        "/a%2fb", "/a%2Fb", "/a%5cb", "/a\\b", "/a%00b", "/a%0d%0ab", "/a%7f", "/a%", "/a%2", "/a%zz", "/a b", "/a\tb", "/ü", "/a\0",
    ],
)  # fmt: skip
def test_b23_no_normal_form(raw):
    """Field list B-23: a path that two servers read in two ways is refused where a rule looks at it."""
    with pytest.raises(BadClient) as error:
        read_path(raw)
    assert error.value.reason is Reason.REQUEST_INVALID


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (
            "/repos/acme/*",
            ["/repos/acme/x", "/repos/acme/%78"],
            ["/repos/acme", "/repos/acme/", "/repos/acme/x/y", "/repos/acme/x/", "/repos/Acme/x"],
        ),
        ("/**", ["/", "/a", "/a/b/c"], []),
        ("/a/**", ["/a", "/a/", "/a/b/c"], ["/", "/ab", "/b/a"]),
        ("/a/**/z", ["/a/z", "/a/b/z", "/a/b/c/z"], ["/a", "/a/z/b", "/z"]),
        ("/**/x/**", ["/x", "/a/x", "/x/a", "/a/x/b"], ["/a", "/xx"]),
        ("/*/b", ["/a/b"], ["/b", "/a/a/b"]),
        ("/", ["/", "/?q"], ["/a"]),
    ],
)
def test_patterns(pattern, matching, others):
    read = read_path_pattern(pattern)
    assert str(read) == pattern
    assert [path for path in matching if not read.covers(read_path(path))] == []
    assert [path for path in others if read.covers(read_path(path))] == []


@pytest.mark.parametrize("text", ["/a*", "/a/*b", "/***", "repos", "/a?b", "/a#b", "/../a", "/a//b", "*"])
def test_no_pattern(text):
    with pytest.raises(BadClient):
        read_path_pattern(text)


def naive(pattern, path):
    """Every way to give each `**` a number of segments."""
    stars = pattern.count("**")
    for counts in itertools.product(range(len(path) + 1), repeat=stars):
        widths = iter(counts)
        flat = [part for segment in pattern for part in (["?"] * next(widths) if segment == "**" else [segment])]
        if len(flat) == len(path) and all(
            p == "?" or p == q or (p == "*" and q) for p, q in zip(flat, path, strict=True)
        ):
            return True
    return False


@given(
    st.lists(st.sampled_from(["*", "**", "a", "b"]), max_size=5).filter(lambda it: it.count("**") < 4),
    st.lists(st.sampled_from(["a", "b", ""]), max_size=5),
)
def test_matcher_and_its_naive_twin(pattern, path):
    assert PathPattern(tuple(pattern)).covers(tuple(path)) == naive(pattern, path)


def test_a_pattern_of_stars_takes_no_time():
    assert not PathPattern(("**", "a") * 40).covers(("a", "b") * 2000 + ("b",))


def test_methods():
    for text in ("GET", "get", "M-SEARCH", "X"):
        assert read_method(text) == text
    for text in ("", "GET ", "G T", "GET\r\n", "GÉT", "A" * 33, "GET/"):
        with pytest.raises(BadClient):
            read_method(text)


@given(st.one_of(st.text(max_size=60), st.text("/%.;2eEfF5c\\a", max_size=30)))
def test_nothing_but_bad_client(raw):
    for read in (read_path, read_path_pattern, read_method):
        try:
            found = read(raw)
        except BadClient as error:
            assert error.reason is Reason.REQUEST_INVALID
        else:
            if read is read_path:
                assert read_path("/" + "/".join(found)) == found, "normal form is normal"
