"""A lab for each test worker, and a real `stockade proxy` inside its gateway."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stockade.lab.lab import Lab

ROOT = Path(__file__).resolve().parents[2]
START = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from stockade.cli import main; main()"
"""What `python -I -c` runs to be the command `stockade` of this very tree."""
START_S = 15.0


def stockade(*arguments: str) -> list[str]:
    """The argument list of `stockade ...` in this tree."""
    return [sys.executable, "-I", "-c", START, *arguments]


class RunningProxy:
    """A `stockade proxy` in the lab's gateway: where it listens, and what it recorded."""

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        policies: tuple[str, ...],
        arguments: tuple[str, ...],
        wrapper: tuple[str, ...],
    ) -> None:
        self.lab = lab
        self.policy_files = []
        for number, text in enumerate(policies):
            file = folder / f"policy{number}.toml"
            file.write_text(text)
            self.policy_files.append(file)
        self.journal_file = folder / "journal.jsonl"
        self.error_file = folder / "proxy.err"
        argv = stockade("proxy", "--listen", "127.0.0.1:0", "--journal", str(self.journal_file))
        if "--resolver" not in arguments:
            argv += ["--resolver", lab.resolver]
        for file in self.policy_files:
            argv += ["--policy", str(file)]
        with open(self.error_file, "wb") as errors:
            self.process = lab.popen([*wrapper, *argv, *arguments], stdout=subprocess.PIPE, stderr=errors)
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(5)
            raise AssertionError(f"the proxy did not start: {self.error_file.read_text()}")
        self.ready: dict[str, Any] = json.loads(line)
        host, _, port = self.ready["listen"].rpartition(":")
        self.address = (host, int(port))
        lab.expect(self.ready["listen"])

    @property
    def pid(self) -> int:
        return self.process.pid

    def connect(self, timeout: float = 10.0) -> socket.socket:
        """A client's TCP connection to the proxy, from inside the gateway."""
        client = self.lab.socket("gateway")
        client.settimeout(timeout)
        client.connect(self.address)
        return client

    def url(self, scheme: str = "http") -> str:
        return f"{scheme}://{self.address[0]}:{self.address[1]}"

    def records(self, event: str | None = None) -> list[dict[str, Any]]:
        """Everything in the journal so far, or only its `verdict` or `end` lines."""
        lines = self.journal_file.read_text().splitlines() if self.journal_file.exists() else []
        records = [json.loads(line) for line in lines]
        return [record for record in records if event in (None, record["event"])]

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool], within_s: float = 5.0) -> dict[str, Any]:
        """The first record that `wanted` takes, waiting for it."""
        until_s = time.monotonic() + within_s
        while True:
            for record in self.records():
                if wanted(record):
                    return record
            assert time.monotonic() < until_s, f"no such record in {self.records()}"
            time.sleep(0.02)

    def verdict(self) -> dict[str, Any]:
        """The newest verdict."""
        return self.records("verdict")[-1]

    def stop(self) -> int:
        """End it as an operator does (SIGTERM), by force after 5 s; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.stdout.close()
        return self.process.wait()


@pytest.fixture(scope="session")
def one_lab() -> Iterator[Lab]:
    """The lab of this test worker."""
    with Lab() as lab:
        yield lab


@pytest.fixture
def lab(one_lab: Lab) -> Lab:
    """The lab, with every count at zero and every name as it was."""
    one_lab.start_over()
    return one_lab


@pytest.fixture(scope="session")
def ca_file(one_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lab authority's certificate, for clients."""
    file = tmp_path_factory.mktemp("ca") / "lab.pem"
    file.write_text(one_lab.root_pem)
    os.chmod(file, 0o644)
    return file


@pytest.fixture
def start_proxy(lab: Lab, tmp_path: Path) -> Iterator[Callable[..., RunningProxy]]:
    """`start_proxy(policy_text, ..., arguments=("--x", "y"))` -> RunningProxy, stopped after the test.

    `wrapper` goes before the command: a program that becomes the one it is given.
    """
    running: list[RunningProxy] = []

    def start(*policies: str, arguments: tuple[str, ...] = (), wrapper: tuple[str, ...] = ()) -> RunningProxy:
        folder = tmp_path / f"proxy{len(running)}"
        folder.mkdir()
        running.append(RunningProxy(lab, folder, policies, arguments, wrapper))
        return running[-1]

    yield start
    for proxy in running:
        proxy.stop()
