"""Which HTTP/1.1 parser: httptools (llhttp) against h11, by what each refuses and by microseconds a head.

Run as `python bench/http_parser.py`; needs httptools and h11. It prints one table. `proxy/http1.py` stands on
httptools and refuses the rest itself; its column says so.
"""

import timeit
from collections.abc import Callable

import h11
import httptools

from policy.errors import BadClient
from proxy.http1 import read_request
from tests.proxy.test_http1 import SMUGGLED

REQUEST = (
    b"GET http://example.com/a HTTP/1.1\r\nHost: example.com\r\nUser-Agent: curl/8.5.0\r\n"
    b"Accept: */*\r\nProxy-Connection: Keep-Alive\r\n\r\n"
)


class Fields:
    """The least that httptools wants to tell."""

    def __init__(self) -> None:
        self.url = b""
        self.fields: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))


def by_httptools(head: bytes) -> bool:
    try:
        httptools.HttpRequestParser(Fields()).feed_data(head)
    except httptools.HttpParserUpgrade:
        return True
    except httptools.HttpParserError:
        return False
    return True


def by_h11(head: bytes) -> bool:
    connection = h11.Connection(h11.SERVER)
    try:
        connection.receive_data(head)
        return isinstance(connection.next_event(), h11.Request)
    except h11.RemoteProtocolError:
        return False


def by_http1(head: bytes) -> bool:
    try:
        read_request(head[: head.index(b"\r\n\r\n") + 4])
    except (BadClient, ValueError):  # no CRLF CRLF: HeadBuffer refuses the bare LF
        return False
    return True


READERS: dict[str, Callable[[bytes], bool]] = {"httptools": by_httptools, "h11": by_h11, "http1": by_http1}


def main() -> None:
    print(f"{'passes':28}" + "".join(f"{name:>12}" for name in READERS))
    passed = dict.fromkeys(READERS, 0)
    for case, head in SMUGGLED.items():
        verdicts = {name: read(head) for name, read in READERS.items()}
        for name, passes in verdicts.items():
            passed[name] += passes
        if any(verdicts.values()):
            print(f"{case:28}" + "".join(f"{'PASSES' if passes else '-':>12}" for passes in verdicts.values()))
    print(f"{f'of {len(SMUGGLED)} hostile heads':28}" + "".join(f"{count:>12}" for count in passed.values()))
    times = [min(timeit.repeat(lambda read=read: read(REQUEST), number=2_000, repeat=9)) * 500 for read in READERS.values()]
    print(f"{'us a good head':28}" + "".join(f"{time:>12.1f}" for time in times))


if __name__ == "__main__":
    main()
