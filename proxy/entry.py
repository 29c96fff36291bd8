"""One port for every client: the first byte says which protocol it speaks, whose reader then goes on."""

from typing import Final

from policy.errors import BadClient
from policy.verdict import CODES, Reason, Verdict
from proxy.asked import Asked, Step
from proxy.http_head import HttpReader
from proxy.refusal import Unspeakable, render
from proxy.socks5 import REPLY_GENERAL, Socks5Reader

__all__ = ["Asked", "EntryReader", "HttpReader", "Socks5Reader", "Step"]

SPOKEN: Final = "this port speaks SOCKS5, and HTTP/1.1 as a proxy (CONNECT, or a whole http:// URL)"

_SOCKS4: Final = 0x04
_SOCKS5: Final = 0x05
_TLS: Final = 0x16


class EntryReader:
    """Reads one client from its first byte to its request, whichever protocol it speaks."""

    def __init__(self) -> None:
        self._reader: Socks5Reader | HttpReader | None = None
        self._foreign = ""

    @property
    def entry(self) -> str:
        """`socks5`, `connect`, `http`, `socks4` or `tls`; `http` before the first byte."""
        return self._foreign or (self._reader.entry if self._reader else "http")

    @property
    def accepts_json(self) -> bool:
        """How to say a refusal, once the head has been read."""
        return isinstance(self._reader, HttpReader) and self._reader.accepts_json

    def feed(self, data: bytes) -> Step:
        """Read on: bytes to send back now, and the request once it is whole.

        Raises BadClient; send what `refused` returns and close then.
        """
        if self._reader is None:
            if not data:
                return Step()
            self._reader = self._sniff(data[0])
        return self._reader.feed(data)

    def refused(self, bad: BadClient, verdict: Verdict, record_id: str) -> bytes:
        """Say `bad` in the client's protocol; `verdict` is what was recorded of it."""
        codes = bad.codes if isinstance(bad, Unspeakable) else CODES[bad.reason]
        if isinstance(self._reader, Socks5Reader):
            return self._reader.refused(codes.socks or REPLY_GENERAL)
        return render(self.entry, verdict, None, record_id, accepts_json=self.accepts_json, codes=codes)

    def _sniff(self, first: int) -> Socks5Reader | HttpReader:
        if first == _SOCKS5:
            return Socks5Reader()
        if chr(first).isascii() and chr(first).isalpha():
            return HttpReader()
        if first == _SOCKS4:
            self._foreign = "socks4"
            raise BadClient(Reason.PROTOCOL_REFUSED, f"SOCKS4 carries no names and is not spoken; {SPOKEN}")
        if first == _TLS:
            self._foreign = "tls"
            raise BadClient(Reason.PROTOCOL_REFUSED, f"TLS to the proxy itself is not spoken; {SPOKEN}")
        raise BadClient(Reason.NOT_HTTP, f"no protocol known here begins with 0x{first:02x}; {SPOKEN}")
