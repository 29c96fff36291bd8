"""A running lab, as its owner holds it: script its names, read its counters, start programs inside it."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from policy.errors import Broken
from stockade.lab import places
from stockade.lab.zone import Script

_START: Final = "import sys; sys.path.insert(0, sys.argv[1]); from stockade.lab.world import main; main(int(sys.argv[2]))"
"""What `python -I -c` runs: this same copy of the package, wherever it lies."""
_ROOT: Final = Path(__file__).resolve().parents[2]
_START_S: Final = 20.0
_ORDER_S: Final = 20.0
_PIECE_BYTES: Final = 1 << 16
_FDS_COUNT: Final = 4


class Lab:
    """One private internet, gone when it is closed, when its `with` is left, and when this process is killed.

    Its namespaces are `gateway` (run proxies and clients here) and `internet`. Methods raise Broken when the
    lab died.
    """

    def __init__(self) -> None:
        """Start the lab's process and wait until everything in it answers (under 2 s)."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.settimeout(_START_S)
        self._control = ours
        self._heard = b""
        self._fds: list[int] = []
        self._gone = False
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _START, str(_ROOT), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        try:
            ready, self._fds = self._hear()
        except BaseException:
            self.close()
            raise
        ours.settimeout(_ORDER_S)
        if not ready["ready"]:
            self.close()
            raise Broken(f"the lab could not start: {ready['fault']}")
        self.root_pem: str = ready["root_pem"]
        """The certificate that clients of the lab's sites must trust, PEM."""
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the lab's process and let its namespaces go; harmless to repeat."""
        if self._gone:
            return
        self._gone = True
        self._control.close()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for fd in self._fds:
            os.close(fd)

    @property
    def resolver(self) -> str:
        """The first of the lab's DNS servers, as `--resolver` takes it."""
        return f"{places.RESOLVERS[0]}:53"

    # --- what it answers

    def write_names(self, names: Mapping[str, Script], *, only: bool = False) -> None:
        """Set what DNS says of these names (zone.Script); `only` forgets every other name first."""
        self._order("names", dict(names), only=only)

    def serve_address(self, address: str) -> None:
        """Let an address answer as an origin, like those of `places.NAMES`."""
        self._order("serve_address", address)

    def close_port(self, port: int) -> None:
        """Refuse connections to this port at every origin, until `open_port`."""
        self._order("close_port", port)

    def open_port(self, port: int) -> None:
        """Accept connections to this port again."""
        self._order("open_port", port)

    def break_network(self, network: str, how: str | None) -> None:
        """Make a network `blackhole` (silent), `unreachable` or `prohibit` (ICMP says so); None mends it."""
        self._order("route", network, how)

    def mute(self, *resolvers: str) -> None:
        """Let exactly these resolvers never answer."""
        self._order("mute", *resolvers)

    def start_over(self) -> None:
        """Forget every count and change."""
        self._order("start_over")

    # --- what it saw

    def asked(self) -> dict[str, int]:
        """Return `name TYPE` -> DNS queries that arrived."""
        return self._counts("asked")

    def asked_of(self) -> dict[str, int]:
        """Return resolver address -> DNS queries that arrived there."""
        return self._counts("asked_of")

    def attempts(self) -> dict[str, int]:
        """Return `address:port/tcp|udp|ping` -> first packets that left the gateway, loopback included."""
        return self._counts("attempts")

    def canaries(self) -> dict[str, int]:
        """Return the attempts that went where none should: no origin, no resolver, no expected listener."""
        return self._counts("canaries")

    def expect(self, endpoint: str) -> None:
        """Count no attempt at `address:port` as a canary's: a listener that the test itself started."""
        self._order("expect", endpoint)

    def accepted(self) -> dict[str, int]:
        """Return `address:port` -> TCP connections accepted in `internet`."""
        return self._counts("accepted")

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests that reached web sites, oldest first: {"address", "port", "head"}."""
        heads: list[dict[str, Any]] = self._order("requests")
        return heads

    # --- being inside it

    def socket(self, where: str, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """Return a socket born in that namespace: whoever holds it talks from there."""
        _, fds = self._ask("socket", [where, int(family), int(kind)], {})
        return socket.socket(fileno=fds[0])

    def enter(self, where: str) -> Callable[[], None]:
        """Return what a child calls between fork and exec to live in that namespace and die with its parent.

        For an ordinary user: the user namespace first, as the same uid, without capabilities after exec.
        """
        gateway, internet, *user = self._fds
        network = {places.GATEWAY: gateway, places.INTERNET: internet}[where]
        libc = ctypes.CDLL(None)

        def move() -> None:
            for fd in user:
                os.setns(fd, os.CLONE_NEWUSER)
            os.setns(network, os.CLONE_NEWNET)
            libc.prctl(1, signal.SIGKILL)

        return move

    def popen(self, argv: Sequence[str], where: str = places.GATEWAY, **fields: Any) -> subprocess.Popen[Any]:
        """Start a program in that namespace; `fields` as for subprocess.Popen."""
        return subprocess.Popen(argv, preexec_fn=self.enter(where), **fields)  # noqa: PLW1509 - setns needs it

    def run(
        self, argv: Sequence[str], where: str = places.GATEWAY, timeout: float = 30.0, **fields: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in that namespace to its end and return its output as text."""
        return subprocess.run(
            argv,
            preexec_fn=self.enter(where),
            timeout=timeout,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            check=False,
            **{"stdin": subprocess.DEVNULL, **fields},
        )

    # --- orders

    def _counts(self, what: str) -> dict[str, int]:
        counts: dict[str, int] = self._order(what)
        return counts

    def _order(self, do: str, *arguments: Any, **by: Any) -> Any:
        answer, _ = self._ask(do, arguments, by)
        return answer["ok"]

    def _ask(self, do: str, arguments: Iterable[Any], by: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        order = {"do": do, "with": list(arguments), "by": by}
        try:
            self._control.sendall(json.dumps(order).encode() + b"\n")
        except OSError as fault:
            raise Broken(f"the lab is gone ({fault})") from fault
        answer, fds = self._hear()
        if "fault" in answer:
            raise Broken(f"the lab could not {do}: {answer['fault']}")
        return answer, fds

    def _hear(self) -> tuple[dict[str, Any], list[int]]:
        fds: list[int] = []
        while b"\n" not in self._heard:
            try:
                data, more, _, _ = socket.recv_fds(self._control, _PIECE_BYTES, _FDS_COUNT)
            except OSError as fault:
                raise Broken(f"the lab does not answer ({fault})") from fault
            fds += more
            if not data:
                raise Broken("the lab ended unexpectedly")
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer, fds
