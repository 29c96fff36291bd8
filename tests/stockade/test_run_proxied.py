"""`stockade run` with a policy, in the lab: what a policy names is reached, and everything else is told."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.confined import AS_ROOT, KEYS, WAYS, appears, as_way, gone, run, scratch, stockade
from tests.walk.conftest import ca_file, lab, one_lab

__all__ = ["ca_file", "lab", "one_lab"]

both = pytest.mark.parametrize("way", WAYS)

POLICY = """
version = 1
[[grant]]
name = "pages"
hosts = ["example.com"]
"""


class Runner:
    """`stockade run` in the lab's gateway, as one of the users, with a policy and a journal."""

    def __init__(self, lab, way, directory):
        self.lab = lab
        self.way = way
        self.directory = directory
        self.policy_file = directory / "policy.toml"
        self.policy_file.write_text(POLICY)
        self.journal_file = directory / "journal.jsonl"

    def argv(self, *words, as_json=True):
        policy = [
            "--policy",
            str(self.policy_file),
            "--resolver",
            self.lab.resolver,
            "--journal",
            str(self.journal_file),
        ]
        return as_way(self.way, stockade("run", *(["--json"] if as_json else []), *policy, *words))

    def popen(self, *words, as_json=True, **more):
        more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": "/"} | more
        return self.lab.popen(self.argv(*words, as_json=as_json), **more)

    def run(self, *words, as_json=True):
        with self.popen(*words, as_json=as_json) as process:
            stdout, stderr = process.communicate(timeout=60)
        if not as_json:
            return process.returncode, stdout.decode(), stderr.decode()
        told = json.loads(stdout)
        assert set(told) == KEYS
        return told

    def shell(self, script, **more):
        return self.run("--", "bash", "-c", script, **more)

    def records(self, event):
        lines = self.journal_file.read_text().splitlines()
        return [each for each in map(json.loads, lines) if each["event"] == event]


@pytest.fixture
def runner(lab, request):
    with scratch(request.param) as directory:
        yield Runner(lab, request.param, directory)


each = pytest.mark.parametrize("runner", WAYS, indirect=True)


@each
def test_what_the_policy_names_is_reached_and_recorded(runner, ca_file):
    with scratch(runner.way) as workspace:
        (workspace / "ca.pem").write_text(Path(ca_file).read_text())
        script = "curl -sS -m 10 --cacert ca.pem -o page -w '%{http_code} %{size_download}' https://example.com/"
        told = runner.run("--workspace", str(workspace), "--", "sh", "-c", script)
        assert (told["exit"], told["network"], told["refusals"]) == (0, "proxied", []), told
        status, size = told["stdout"].split()
        assert status == "200"
        assert (workspace / "page").stat().st_size == int(size) > 0
    (verdict,) = runner.records("verdict")
    assert (verdict["verdict"], verdict["grant"], verdict["destination"]) == (
        "allow", "pages", {"host": "example.com", "port": 443},
    )  # fmt: skip
    (end,) = runner.records("end")
    assert end["received_bytes"] > int(size)


@each
def test_a_refusal_is_in_the_object_and_in_the_journal(runner):
    told = runner.shell("curl -sS -m 5 http://evil.example.net/; curl -sS -m 5 https://example.com:22/; exit 0")
    assert [
        (each["destination"]["host"], each["destination"]["port"], each["reason"]) for each in told["refusals"]
    ] == [
        ("evil.example.net", 80, "not-granted"),
        ("example.com", 22, "port-not-granted"),
    ]
    assert runner.records("verdict") == told["refusals"]
    assert runner.lab.asked() == {}


@each
def test_a_person_is_told_what_was_refused_and_what_to_write(runner):
    script = "for n in 1 2 3; do curl -s -m 5 -o page http://evil.example.net/; done; curl -s -m 5 -o page http://10.0.0.1/; echo done"
    status, stdout, stderr = runner.shell(script, as_json=False)
    assert (status, stdout) == (0, "done\n")
    assert stderr.splitlines()[0].startswith("stockade: refused 3 times: evil.example.net:80 (not-granted)")
    assert '[[grant]]: hosts = ["evil.example.net"]' in stderr.splitlines()[0]
    assert stderr.splitlines()[1].startswith("stockade: refused once: 10.0.0.1:80 (address-private)")
    assert len(stderr.splitlines()) == 2


@each
def test_no_other_way_out_without_the_variables_or_with_wrong_ones(runner):
    script = """
    for how in "env -i" "env HTTP_PROXY=http://93.184.215.14:3128 http_proxy=http://93.184.215.14:3128" "env -u http_proxy -u ALL_PROXY -u all_proxy"; do
      $how curl -s -m 3 -o page http://example.com/ && echo REACHED
      $how curl -s -m 3 -o page --noproxy '*' http://93.184.215.14/ && echo REACHED
      $how curl -s -m 3 -o page --noproxy '*' --resolve example.com:443:93.184.215.14 -k https://example.com/ && echo REACHED
    done
    bash -c 'exec 3<>/dev/tcp/93.184.215.14/80' 2>/dev/null && echo REACHED
    bash -c 'exec 3<>/dev/udp/8.8.8.8/53 && echo x >&3' 2>/dev/null && echo REACHED
    exit 0
    """
    told = runner.shell(script)
    assert (told["exit"], told["stdout"]) == (0, "")
    assert runner.lab.asked() == {}
    assert runner.lab.accepted() == {}
    assert runner.lab.canaries() == {}


@each
def test_a_service_of_the_commands_own_is_reached_beside_the_proxy(runner):
    script = """
    python3 -I -m http.server --bind 127.0.0.1 8000 >log 2>&1 &
    for n in $(seq 50); do curl -s -m 2 -o page http://127.0.0.1:8000/ && break; sleep 0.1; done
    curl -sS -m 5 -o page -w '%{http_code} ' http://127.0.0.1:8000/ && curl -sS -m 5 -o page -w '%{http_code}' http://localhost:8000/
    """
    told = runner.shell(script)
    assert (told["stdout"], told["refusals"]) == ("200 200", []), told


@each
def test_ssh_finds_its_way_without_being_told(runner):
    """The banner comes through; the lab's ssh server goes no further than that."""
    runner.policy_file.write_text(POLICY + "[[grant]]\nname = 'code'\nhosts = ['github.com']\nports = [22]\n")
    told = runner.shell(
        "timeout 4 ssh -v -o BatchMode=yes git@github.com true; timeout 4 ssh -v -o BatchMode=yes git@example.com true"
    )
    assert "Remote protocol version 2.0" in told["stderr"], told["stderr"]
    assert "HTTP/1.1 403" in told["stderr"]
    assert "add 22 to the ports of the grant pages" in told["stderr"]
    assert [(each["destination"]["host"], each["reason"]) for each in told["refusals"]] == [
        ("example.com", "port-not-granted")
    ]


@each
def test_node_reads_the_proxy_or_fails_at_once(runner):
    """Node's own fetch reads the variables from 22.21 and 24.5 on; before, it must not hang on a name nobody resolves."""
    script = """
    fetch("http://example.com/").then((a) => console.log(a.status), (e) => { console.log(String(e.cause)); process.exit(1); });
    """
    started_s = time.monotonic()
    told = runner.run("--", "node", "-e", script)
    assert told["stdout"].startswith(("200", "Error: getaddrinfo")), told
    assert told["duration_s"] < 5
    assert time.monotonic() - started_s < 20


@each
def test_when_the_front_dies_the_command_ends_and_it_is_said(runner):
    mark = f"stockade-test-front-{os.getpid()}-{runner.way}"
    with runner.popen("--", "sh", "-c", f"sleep 300; : {mark}") as process:
        assert appears(mark, b"sh\0-c\0sleep 300")
        for pid in map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()):
            if "socket:" in " ".join(os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()) and is_front(pid):
                os.kill(pid, signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=30)
    told = json.loads(stdout)
    assert (told["exit"], told["acknowledged"]) == (125, True)
    assert b"proxy: its process ended" in stderr
    assert gone(mark) == []


def is_front(pid):
    """It alone listens: some descriptor of it is an epoll set and it has no child."""
    return not Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@each
def test_killing_stockade_itself_ends_the_front_too(runner):
    mark = f"stockade-test-orphan-{os.getpid()}-{runner.way}"
    with scratch(runner.way) as workspace:
        with runner.popen("--workspace", str(workspace), "--", "sh", "-c", f"sleep 300; : {mark}") as process:
            assert appears(mark, b"sh\0-c\0sleep 300")
            process.kill()
            process.communicate(timeout=20)
        assert gone(mark) == []
        assert gone(str(runner.journal_file)) == []


if AS_ROOT:

    def test_the_front_has_no_right_that_serving_does_not_need(lab):
        mark = f"stockade-test-rights-{os.getpid()}"
        with scratch("root") as directory:
            runner = Runner(lab, "root", directory)
            with runner.popen("--", "sh", "-c", f"sleep 300; : {mark}") as process:
                assert appears(mark, b"sh\0-c\0sleep 300")
                children = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
                (front,) = [pid for pid in children if is_front(pid)]
                status = dict(line.split(":\t", 1) for line in Path(f"/proc/{front}/status").read_text().splitlines())
                links = sorted(os.readlink(fd).partition(":")[0] for fd in Path(f"/proc/{front}/fd").iterdir())
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=30)
        assert status["Uid"].split() == ["1999999"] * 4
        assert status["Gid"].split() == ["1999999"] * 4
        assert status["Groups"].strip() == ""
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
        assert status["NoNewPrivs"] == "1"
        assert not [
            link for link in links if link.startswith("/") and link not in ("/dev/null", str(runner.journal_file))
        ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version = 1\n[[grant]]\nname = 'x'\nhosts = ['*']\nport = 1\n", "policy.toml:"),
        ("not toml", "policy.toml:1"),
        ("version = 1\n[[test]]\nto = 'https://example.com/'\nexpect = 'allow'\n", "must be allow"),
        (None, "no such file"),
    ],
)
def test_a_bad_policy_starts_nothing(text, said):
    with scratch(WAYS[-1]) as directory:
        file = directory / "policy.toml"
        if text is not None:
            file.write_text(text)
        ended = run(WAYS[-1], "--policy", str(file), "--workspace", str(directory), "--", "touch", "started")
        assert ended.returncode == 125
        assert said in ended.stderr.decode()
        assert not (directory / "started").exists()


def test_every_problem_of_a_policy_is_told():
    with scratch(WAYS[-1]) as directory:
        (directory / "policy.toml").write_text("version = 1\nfoo = 1\n[[grant]]\nname = 'x'\nhosts = ['a b']\n")
        ended = run(WAYS[-1], "--policy", str(directory / "policy.toml"), "--", "true")
        assert ended.returncode == 125
        assert len([line for line in ended.stderr.decode().splitlines() if "policy.toml:" in line]) == 2


def test_what_an_offline_run_has_no_use_for_is_checked_and_said():
    with scratch(WAYS[-1]) as directory:
        file = directory / "policy.toml"
        file.write_text(POLICY)
        words = ("--net", "offline", "--policy", str(file), "--journal", str(directory / "j"), "--", "cat", "/proc/net/tcp")
        ended = run(WAYS[-1], *words)
        assert ended.returncode == 0
        assert len(ended.stdout.splitlines()) == 1, "a listener in an offline network"
        assert b"nothing asked --policy, --journal" in ended.stderr
        file.write_text("version = 2\n")
        assert run(WAYS[-1], *words).returncode == 125


def test_a_policy_or_a_journal_within_reach_of_the_command_is_said(lab):
    way = WAYS[-1]
    with scratch(way) as directory:
        runner = Runner(lab, way, directory)
        status, _, stderr = runner.run("--workspace", str(directory), "--", "true", as_json=False)
        assert status == 0
        for what in ("policy", "journal"):
            assert f"the {what} {directory}/{what}" in stderr
        with scratch(way) as workspace:
            assert "lies in the workspace" not in runner.run("--workspace", str(workspace), "--", "true", as_json=False)[2]


def test_what_was_within_reach_is_said_though_the_command_hid_it():
    way = WAYS[-1]
    with scratch(way) as directory:
        (directory / "policy.toml").write_text(POLICY)
        words = ["--net", "offline", "--policy", str(directory / "policy.toml"), "--workspace", str(directory)]
        ended = run(way, *words, "--", "sh", "-c", "rm -f policy.toml; ln -s /elsewhere policy.toml")
        assert (directory / "policy.toml").is_symlink()
        assert f"the policy {directory}/policy.toml lies in the workspace" in ended.stderr.decode()


def test_stockades_own_code_within_reach_is_said(tmp_path):
    from stockade import run_session

    root = Path(run_session.__file__).parents[1]
    request = run_session.Request(("true",))
    assert any(f"the code of Stockade in {root} lies" in note for note in run_session._exposed(request, str(root)))
    assert run_session._exposed(request, str(tmp_path)) == []


def test_a_journal_that_cannot_be_kept_starts_nothing(lab):
    way = WAYS[-1]
    with scratch(way) as directory:
        runner = Runner(lab, way, directory)
        runner.journal_file = Path("/nonexistent/journal.jsonl")
        with scratch(way) as workspace:
            told = runner.run("--workspace", str(workspace), "--", "touch", "started")
            assert told["exit"] == 125
            assert "journal /nonexistent/journal.jsonl" in told["stderr"]
            assert not (workspace / "started").exists()


def test_a_busy_client_loses_no_refusal_and_delays_nobody(lab):
    """More refusals than an object tells: the rest are counted, and all are in the journal."""
    way = WAYS[-1]
    with scratch(way) as directory:
        runner = Runner(lab, way, directory)
        script = (
            "import socket\n"
            "for n in range(1200):\n"
            "    s = socket.create_connection(('127.0.0.1', 3128)); s.sendall(b'CONNECT 10.0.0.%d:443 HTTP/1.1\\r\\n\\r\\n' % (n % 250))\n"
            "    assert b' 403 ' in s.recv(4096); s.close()\n"
        )
        started_s = time.monotonic()
        told = runner.run("--", "python3", "-I", "-c", script)
        assert (told["exit"], told["stderr"]) == (0, "")
        assert len(told["refusals"]) == 1000
        assert len(runner.records("verdict")) == 1200
        assert time.monotonic() - started_s < 50
