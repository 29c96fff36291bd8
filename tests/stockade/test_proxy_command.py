"""`stockade proxy` as a process: its ready line, its signals, its exit statuses, and what it says when it cannot start.

Destinations that are let out are dialled in the lab's gateway only; everywhere else nothing is granted.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.proxy.peers import closed, read_all, read_exactly
from tests.proxy.rig import CONNECT_OK, connect_request
from tests.walk.conftest import ca_file, lab, one_lab, start_proxy, stockade

__all__ = ["ca_file", "lab", "one_lab", "start_proxy"]

NOTHING = 'version = 1\n[[grant]]\nname = "nobody"\nhosts = ["nobody.example.org"]\n'
DENIED = connect_request("denied.example.net:443")


class Started:
    """A `stockade proxy` of which nothing is granted that a test asks for."""

    def __init__(self, *arguments: str, **fields) -> None:
        self.process = subprocess.Popen(
            stockade("proxy", *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **fields
        )

    def ready(self) -> dict:
        return json.loads(self.process.stdout.readline())

    def end(self, number: int = signal.SIGTERM, within_s: float = 10) -> tuple[int, str]:
        self.process.send_signal(number)
        return self.ended(within_s)

    def ended(self, within_s: float = 10) -> tuple[int, str]:
        out, errors = self.process.communicate(timeout=within_s)
        assert out == ""
        return self.process.returncode, errors


@pytest.fixture
def start():
    running = []

    def make(*arguments: str, **fields) -> Started:
        running.append(Started(*arguments, **fields))
        return running[-1]

    yield make
    for started in running:
        if started.process.poll() is None:
            started.process.kill()
        started.process.communicate()


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    file = tmp_path / "policy.toml"
    file.write_text(NOTHING)
    return file


def connect(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=10)


def ask(listen: str, request: bytes = DENIED) -> bytes:
    with connect(listen) as client:
        client.sendall(request)
        return read_all(client)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_ready_line_then_it_serves_then_it_ends(start, policy_file, number):
    proxy = start("--policy", str(policy_file))
    ready = proxy.ready()
    assert sorted(ready) == ["ca", "listen", "pid", "ready", "revision"]
    assert (ready["ready"], ready["pid"], ready["ca"]) == (True, proxy.process.pid, None)
    assert ready["listen"].startswith("127.0.0.1:") and len(ready["revision"]) == 12
    assert ask(ready["listen"]).startswith(b"HTTP/1.1 403 ")
    assert ask(ready["listen"], b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x01\xbb")[2:4] == b"\x05\x02"
    assert proxy.end(number) == (0, "")


def test_the_ready_line_goes_to_the_descriptor_named(start, policy_file):
    reader, writer = os.pipe()
    proxy = start("--policy", str(policy_file), "--listen", "[::1]:0", "--ready-fd", str(writer), pass_fds=[writer])
    os.close(writer)
    with os.fdopen(reader) as lines:
        ready = json.loads(lines.readline())
        assert lines.read() == ""  # it closed its end: whoever waits for more sees the end
    assert ready["listen"].startswith("[::1]:")
    assert ask(ready["listen"]).startswith(b"HTTP/1.1 403 ")
    assert proxy.end() == (0, "")


def test_the_reason_is_the_one_that_explain_gives(start, policy_file):
    """127.0.0.1 is one of our own addresses, and yet loopback: one decision, one reason."""
    proxy = start("--policy", str(policy_file))
    assert b"address-loopback" in ask(proxy.ready()["listen"], connect_request("127.0.0.1:443"))


def test_a_bad_policy_names_every_problem_and_starts_nothing(start, tmp_path):
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text('version = 1\n[[grant]]\nname = "a"\nhosts = ["*"]\nport = [443]\n')
    two.write_text('version = 1\nmode = "off"\n')
    status, said = start("--policy", str(one), "--policy", str(two), "--policy", str(tmp_path / "none.toml")).ended()
    assert status == 2
    assert "one.toml:4:" in said and "one.toml:5:" in said and "two.toml:2:" in said and "none.toml:1:" in said
    assert "Traceback" not in said


def test_a_policy_whose_own_test_fails_is_not_loaded(start, policy_file):
    policy_file.write_text(NOTHING + '[[test]]\nto = "https://evil.example.net/"\nexpect = "allow"\n')
    status, said = start("--policy", str(policy_file)).ended()
    assert status == 2 and "evil.example.net" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("--listen", "localhost:0"),
        ("--listen", "127.0.0.1"),
        ("--listen", "127.0.0.1:70000"),
        ("--listen", "::1:0"),
        ("--resolver", "dns.example.com"),
        ("--resolver", "192.0.2.1:0"),
    ],
)
def test_an_endpoint_that_cannot_be_read(start, policy_file, arguments):
    status, said = start("--policy", str(policy_file), *arguments).ended()
    assert status == 2 and arguments[0] in said and "Traceback" not in said


def test_without_a_policy_it_does_not_start(start):
    status, said = start().ended()
    assert status == 2 and "--policy" in said


def test_a_port_that_is_taken_is_named_with_the_remedy(start, policy_file):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        status, said = start("--policy", str(policy_file), "--listen", f"127.0.0.1:{port}").ended()
    assert status == 1
    assert f"127.0.0.1:{port}" in said and "in use" in said and "--listen 127.0.0.1:0" in said


def test_an_address_of_another_machine_is_named_with_its_own_remedy(start, policy_file):
    status, said = start("--policy", str(policy_file), "--listen", "192.0.2.1:3128").ended()
    assert status == 1 and "choose an address of this machine" in said and "ss -ltnp" not in said


def test_two_instances_take_two_ports(start, policy_file):
    first, second = start("--policy", str(policy_file)), start("--policy", str(policy_file))
    assert first.ready()["listen"] != second.ready()["listen"]


def test_a_journal_that_cannot_be_opened_stops_the_start(start, policy_file, tmp_path):
    status, said = start("--policy", str(policy_file), "--journal", str(tmp_path / "no" / "journal")).ended()
    assert status == 1 and str(tmp_path / "no" / "journal") in said and "Traceback" not in said


# --- reload


def test_a_reload_swaps_the_policy_and_a_bad_file_keeps_the_old_one(start, policy_file, tmp_path):
    """PS-05: whatever happens to the file, what was refused stays refused, and the revision in force is told."""
    journal = tmp_path / "journal"
    proxy = start("--policy", str(policy_file), "--journal", str(journal))
    ready = proxy.ready()
    revisions = [ready["revision"]]

    def reload() -> str:
        proxy.process.send_signal(signal.SIGHUP)
        assert select.select([proxy.process.stderr], [], [], 5)[0]
        said = os.read(proxy.process.stderr.fileno(), 65_536).decode()
        assert ask(ready["listen"]).startswith(b"HTTP/1.1 403 ")
        revisions.append(json.loads(journal.read_text().splitlines()[-1])["revision"])
        return said

    policy_file.write_text(NOTHING + "[limits]\nidle_s = 800\n")
    assert "is in force" in reload() and revisions[-1] != revisions[-2]
    for bad in (NOTHING[: len(NOTHING) // 2], "nonsense", "", 'version = 1\nmode = "off"\n'):
        policy_file.write_text(bad)
        said = reload()
        if bad:
            assert f"revision {revisions[1]} stays in force" in said and "policy.toml:" in said
            assert revisions[-1] == revisions[1]
    policy_file.unlink()
    assert "stays in force" in reload()
    renamed = tmp_path / "new.toml"
    renamed.write_text(NOTHING)
    os.replace(renamed, policy_file)
    assert "is in force" in reload() and revisions[-1] == revisions[0]
    assert proxy.end()[0] == 0


GRANTS = 'version = 1\n[[grant]]\nname = "example"\nhosts = ["example.com", "app.example.com"]\nports = [22]\n'


def test_a_reload_cuts_the_live_tunnels_that_it_refuses_and_no_other(lab, start_proxy):
    proxy = start_proxy(GRANTS)
    with proxy.connect() as kept, proxy.connect() as cut:
        for client, name in ((kept, "example.com"), (cut, "app.example.com")):
            client.sendall(connect_request(f"{name}:22"))
            assert read_exactly(client, len(CONNECT_OK)) == CONNECT_OK
            assert client.recv(4) == b"SSH-"
        proxy.policy_files[0].write_text(GRANTS.replace(', "app.example.com"', ""))
        proxy.process.send_signal(signal.SIGHUP)
        cut_record = proxy.wait_for(lambda record: record.get("reason") == "policy-changed")
        assert cut_record["destination"]["host"] == "app.example.com"
        while (end := closed(cut)) == "data":
            pass
        assert end == "reset"
        while (end := closed(kept)) == "data":
            pass
        assert end == "open"
        kept.sendall(b"SSH-2.0-still-here\r\n")
    with proxy.connect() as late:
        late.sendall(connect_request("app.example.com:22"))
        assert read_all(late).startswith(b"HTTP/1.1 403 ")


def test_sigterm_lets_tunnels_end_and_sigterm_again_does_not_wait(lab, start_proxy):
    for again in (False, True):
        proxy = start_proxy(GRANTS)
        with proxy.connect() as client:
            client.sendall(connect_request("example.com:22"))
            assert read_exactly(client, len(CONNECT_OK)) == CONNECT_OK
            proxy.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            assert proxy.process.poll() is None
            with pytest.raises(ConnectionRefusedError):
                proxy.connect()
            if again:
                proxy.process.send_signal(signal.SIGTERM)
                assert proxy.process.wait(5) == 0
        assert proxy.process.wait(5) == 0
        assert proxy.records("end")[0]["closed_by"] == ("stopped" if again else "client")


def test_a_journal_that_is_full_refuses_and_says_so(lab, start_proxy):
    proxy = start_proxy(GRANTS, wrapper=("prlimit", "--fsize=3000"))
    answers = []
    for _ in range(12):
        with proxy.connect() as client:
            client.sendall(connect_request("example.com:22"))
            client.shutdown(socket.SHUT_WR)
            answers.append(read_all(client)[:12])
    assert answers[0] == b"HTTP/1.1 200" and answers[-1] == b"HTTP/1.1 503"
    assert all(json.loads(line) for line in proxy.journal_file.read_text().splitlines())


def test_listening_for_everybody_is_warned_of(lab, start_proxy):
    proxy = start_proxy(NOTHING, arguments=("--listen", "0.0.0.0:0"))
    assert "WARNING" in proxy.error_file.read_text()


# --- the parent (LC-08)

PARENT = """
import subprocess, sys, threading, time
started = []
def begin():
    started.append(subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE))
    print(started[0].pid, flush=True)
    started[0].stdout.readline()
if sys.argv[1] == "thread":
    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
else:
    begin()
print("ready", flush=True)
time.sleep(60)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("starter", ["main", "thread"])
def test_it_ends_with_its_parent_and_not_with_a_thread_of_it(policy_file, starter):
    command = stockade("proxy", "--policy", str(policy_file), "--exit-with-parent")
    parent = subprocess.Popen([sys.executable, "-I", "-c", PARENT, starter, *command], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    try:
        assert parent.stdout.readline() == "ready\n"
        time.sleep(1.2)
        assert is_alive(pid)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    until_s = time.monotonic() + 3
    while is_alive(pid) and time.monotonic() < until_s:
        time.sleep(0.02)
    assert not is_alive(pid)
