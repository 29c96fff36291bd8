"""Hostile text is quoted on one line, bounded, and without what may be a credential."""

import pytest

from policy.limits import SHOWN_CHARS
from policy.quote import quote


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("example.com", '"example.com"'),
        (b"a\r\nb\x00", '"a\\r\\nb\\x00"'),
        ('a"b', '"a\\"b"'),
        ("http://user:pass@example.com/", '"http://***@example.com/"'),
        (b"user:pass@example.com:443", '"***@example.com:443"'),
        ("http://a:b@c:d@e/", '"http://***@e/"'),
        ("http:/user:pass@example.com", '"***@example.com"'),
        ("pass@" + "a" * 1_000, '"***@' + "a" * (SHOWN_CHARS - 4) + '…"'),
        ("pass" * 1_000 + "@x", '"***@x"'),
        ("", '""'),
    ],
)
def test_quote(raw: bytes | str, shown: str) -> None:
    assert quote(raw) == shown
