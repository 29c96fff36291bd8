"""The same bytes for a reader whole, cut at every offset, and octet by octet: its answer must not differ."""

from collections.abc import Callable, Iterator

from policy.errors import BadClient


def ways(data: bytes) -> Iterator[list[bytes]]:
    """The whole, every cut in two, and single octets."""
    yield [data]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]
    yield [data[at : at + 1] for at in range(len(data))]


def outcome[T](feed: Callable[[list[bytes]], T]) -> Callable[[list[bytes]], T | str]:
    """`feed`'s result, or the reason it raised."""

    def fed(parts: list[bytes]) -> T | str:
        try:
            return feed(parts)
        except BadClient as bad:
            return f"bad: {bad.reason}"

    return fed
