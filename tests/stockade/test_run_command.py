"""`stockade run` as a person and as a program use it: statuses, output, time, signals."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.confined import AS_ROOT, WAYS, appears, as_way, gone, run, run_json, scratch, stockade

both = pytest.mark.parametrize("way", WAYS)


@both
@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 3"), 3),
        (("sh", "-c", "exit 255"), 255),
        (("no-such-program",), 127),
        (("./missing",), 127),
        (("/etc/passwd",), 126),
        (("sh", "-c", "kill -TERM $$"), 143),
        (("sh", "-c", "kill -KILL $$"), 137),
    ],
)
def test_the_status_is_the_commands_own(way, command, status):
    assert run(way, "--", *command).returncode == status


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "none was given"),
        (("--nonsense",), "No such option"),
        (("--timeout", "soon", "true"), "timeout"),
        (("--timeout", "0", "true"), "not between"),
        (("--timeout", "1e9", "true"), "not between"),
        (("--net", "bridge", "true"), "there is `proxied`"),
        (("--net", "proxied", "true"), "add --policy FILE"),
        (("--backend", "docker", "true"), "this version has bwrap"),
        (("--workspace", "/nonexistent", "true"), "existing directory"),
        (("--workspace", "/etc", "true"), "system directory"),
        (("--workspace", "", "true"), "its path is empty"),
        (("--resolver", "dns.example:53", "true"), "write its address"),
        (("--resolver", "192.0.2.1:0", "true"), "write ADDR:PORT"),
        (("--", "echo", "x" * 122_881), "standard input"),
    ],
)
def test_what_cannot_be_started_is_125_with_the_remedy(words, said):
    ended = run(WAYS[-1], *words)
    assert ended.returncode == 125
    assert said in " ".join(ended.stderr.decode().replace("│", " ").split())
    assert ended.stdout == b""


def test_a_refusal_to_start_is_an_object_too():
    told = run_json(WAYS[-1], "--workspace", "/etc", "true")
    assert (told["exit"], told["acknowledged"], told["refusals"]) == (125, True, [])
    assert "system directory" in told["stderr"]


@both
def test_the_object(way):
    told = run_json(way, "--", "sh", "-c", "echo out; echo err >&2; exit 4")
    told.pop("duration_s")
    assert told == {
        "exit": 4,
        "signal": None,
        "timed_out": False,
        "stdout": "out\n",
        "stderr": "err\n",
        "truncated": False,
        "log": None,
        "backend": "bwrap",
        "network": "offline",
        "refusals": [],
        "acknowledged": True,
    }


@both
def test_the_time_is_up_for_everything(way):
    mark = f"stockade-test-sleep-{os.getpid()}-{way}"
    script = f"trap '' TERM HUP; exec 3>&1; setsid sh -c 'sleep 300; : {mark}' & nohup sh -c 'sleep 301; : {mark}' & sleep 302; : {mark}"
    told = run_json(way, "--timeout", "1", "--", "sh", "-c", script)
    assert (told["exit"], told["signal"], told["timed_out"], told["acknowledged"]) == (124, 9, True, True)
    assert told["duration_s"] < 10
    assert gone(mark) == []


@both
def test_what_a_command_leaves_behind_ends_with_it(way):
    mark = f"stockade-test-left-{os.getpid()}-{way}"
    script = f"setsid sh -c 'sleep 300; : {mark}' & (nohup sh -c 'sleep 301; : {mark}' &) ; echo x; exit 3"
    told = run_json(way, "--", "sh", "-c", script)
    assert (told["exit"], told["stdout"], told["acknowledged"]) == (3, "x\n", True)
    assert gone(mark) == []


@both
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_ends_the_command_and_everything_in_it(way, number):
    mark = f"stockade-test-signal-{os.getpid()}-{way}-{number}"
    script = f"trap '' INT TERM HUP; setsid sh -c 'sleep 300; : {mark}' & echo up; sleep 301; : {mark}"
    with subprocess.Popen(
        as_way(way, stockade("run", "--json", "--", "sh", "-c", script)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        assert appears(mark, b"sh\0-c\0sleep 300")
        process.send_signal(number)
        said, _ = process.communicate(timeout=20)
    assert gone(mark) == []
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
        return
    assert process.returncode == 128 + number
    told = json.loads(said)
    assert (told["exit"], told["signal"], told["acknowledged"]) == (128 + number, number, True)


@both
def test_output_streams_through_as_it_comes(way):
    with subprocess.Popen(
        as_way(way, stockade("run", "--", "sh", "-c", 'echo first; read line; echo "$line" >&2; exit 5')),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"first\n"  # while the command waits
        process.stdin.write(b"second\n")
        process.stdin.flush()
        assert process.stderr.readline() == b"second\n"
        assert process.wait(20) == 5


@both
def test_standard_input_of_any_kind_is_copied(way):
    content = os.urandom(2_000_000)
    ended = run(way, "--", "cat", input=content)
    assert ended.stdout == content
    with scratch(way) as directory:
        (directory / "in").write_bytes(content)
        with open(directory / "in", "rb") as source:
            assert run(way, "--", "wc", "-c", stdin=source).stdout.split() == [b"2000000"]


def test_a_reader_that_leaves_ends_the_writer():
    with subprocess.Popen(
        as_way(WAYS[-1], stockade("run", "--", "yes")),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout.read(2) == b"y\n"
        process.stdout.close()
        assert process.wait(20) == 128 + signal.SIGPIPE


@both
def test_a_long_output_keeps_head_and_tail_and_names_the_whole(way):
    with scratch(way) as directory:
        script = "seq 1 400000; echo short >&2"
        told = run_json(way, "--workspace", str(directory), "--", "sh", "-c", script)
        whole = "".join(f"{n}\n" for n in range(1, 400_001))
        assert told["truncated"] is True
        assert told["stdout"].startswith(whole[:524_288])
        assert told["stdout"].endswith(whole[-524_288:])
        assert len(told["stdout"]) < 1_048_576 + 200
        assert told["stderr"] == "short\n"
        assert Path(told["log"]).parent == directory / ".stockade" / "outputs"
        assert Path(told["log"]).read_text() == whole


def test_a_long_output_names_no_log_that_is_gone_with_a_fresh_workspace():
    told = run_json(WAYS[-1], "--", "seq", "1", "400000")
    assert (told["truncated"], told["log"]) == (True, None)
    assert "left out here; no log: the workspace is removed with the command; name one with --workspace]" in told["stdout"]


@both
def test_a_short_output_leaves_nothing_in_the_workspace(way):
    with scratch(way) as directory:
        told = run_json(way, "--workspace", str(directory), "--", "true")
        assert told["log"] is None
        assert list(directory.iterdir()) == []


def test_the_log_cannot_be_redirected_by_the_command():
    way = WAYS[0]
    with scratch(way) as directory, scratch(way) as outside:
        script = f"ln -s {outside} .stockade; seq 1 400000"
        told = run_json(way, "--workspace", str(directory), "--", "sh", "-c", script)
        assert (told["exit"], told["truncated"], told["log"]) == (0, True, None)
        assert list(outside.iterdir()) == []


def test_a_flood_is_drained_in_bounded_memory():
    way = WAYS[-1]
    process = subprocess.Popen(
        as_way(way, stockade("run", "--json", "--timeout", "2", "--", "sh", "-c", "yes 1>&2 & yes")),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    most_kib = 0
    until_s = time.monotonic() + 1.5
    while time.monotonic() < until_s:
        status = Path(f"/proc/{process.pid}/status").read_text()
        most_kib = max(most_kib, int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]))
        time.sleep(0.05)
    told = json.loads(process.communicate(timeout=40)[0])
    assert told["timed_out"]
    assert told["truncated"]
    assert len(told["stdout"]) < 1_048_576 + 300
    assert most_kib < 120_000


def test_bytes_that_are_no_text_never_break_the_object():
    told = run_json(WAYS[-1], "--", "printf", r"a\377\000\033[31mb")
    assert told["stdout"] == "a\\xff\0\x1b[31mb"


@both
def test_a_workspace_that_is_a_link_works_at_its_real_path(way):
    with scratch(way) as directory:
        (directory / "real").mkdir()
        if way == "ordinary" and os.geteuid() == 0:
            os.chown(directory / "real", *(os.stat(directory).st_uid,) * 2)
        (directory / "link").symlink_to("real")
        ended = run(way, "--workspace", str(directory / "link"), "--", "sh", "-c", "pwd; echo made > file")
        assert ended.stdout.decode() == f"{directory}/real\n"
        assert (directory / "real" / "file").read_text() == "made\n"


@both
def test_a_relative_workspace_and_a_path_with_spaces(way):
    with scratch(way) as directory:
        odd = directory / "a b\n'c"
        odd.mkdir()
        if way == "ordinary" and os.geteuid() == 0:
            os.chown(odd, *(os.stat(directory).st_uid,) * 2)
        ended = run(way, "--workspace", odd.name, "--", "sh", "-c", 'echo "$HOME" > made', cwd=str(directory))
        assert ended.returncode == 0, ended.stderr
        assert (odd / "made").read_text() == f"{odd}\n"


@both
def test_without_a_workspace_a_fresh_one_is_made_and_removed(way):
    told = run_json(way, "--", "sh", "-c", "pwd; mkdir -p shut/in; chmod 0 shut; stat -c %a .")
    path, mode = told["stdout"].split()
    assert mode == "700"
    assert not os.path.exists(path)


if AS_ROOT:

    def test_a_workspace_of_root_is_given_to_a_uid_of_its_own_and_said_once():
        with scratch("root", mode=0o700) as directory:
            (directory / "mine").write_text("root's\n")
            (directory / "mine").chmod(0o600)
            first = run("root", "--workspace", str(directory), "--", "sh", "-c", "id -u; cat mine; touch made")
            uid = int(first.stdout.split()[0])
            assert 2_000_000 <= uid < 3_000_000
            assert f"chown -R {uid}:{uid} {directory}" in first.stderr.decode()
            assert b"Permission denied" in first.stderr
            assert os.stat(directory).st_uid == uid
            assert os.stat(directory / "mine").st_uid == 0
            assert os.stat(directory / "made").st_uid == uid
            second = run("root", "--workspace", str(directory), "--", "id", "-u")
            assert second.stderr == b""
            assert int(second.stdout) == uid


if AS_ROOT:

    def test_the_chown_that_a_person_is_told_of_names_one_directory():
        with scratch("root", mode=0o700) as directory:
            (directory / "a b").mkdir()
            ended = run("root", "--workspace", str(directory / "a b"), "--", "true")
            assert ended.stderr.decode().endswith(f" '{directory}/a b'\n")


if AS_ROOT:

    def test_a_workspace_below_a_directory_that_only_root_may_enter():
        with scratch("root", mode=0o700) as above:
            (above / "job").mkdir()
            ended = run("root", "--workspace", str(above / "job"), "--", "sh", "-c", "echo made > file; ls -a ..")
            assert ended.stdout.split() == [b".", b"..", b"job"]
            assert (above / "job" / "file").read_text() == "made\n"


def without_bwrap(directory):
    return {"PATH": str(directory), "HOME": "/"}


def test_a_machine_without_bubblewrap_is_told_what_to_install(tmp_path):
    started_s = time.monotonic()
    ended = subprocess.run(
        stockade("run", "true"),
        env=without_bwrap(tmp_path),
        capture_output=True,
        timeout=30,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == 125
    assert b"apt-get install bubblewrap" in ended.stderr
    assert time.monotonic() - started_s < 5


@pytest.mark.parametrize("limit", ["max_user_namespaces", "max_net_namespaces"])
def test_a_host_that_forbids_namespaces_is_named_within_five_seconds(limit):
    """The limits are per user namespace, so one of our own is given none."""
    script = f'echo 0 > /proc/sys/user/{limit}; exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh", *stockade("run", "--json", "true")]
    started_s = time.monotonic()
    ended = subprocess.run(
        as_way("ordinary", command), capture_output=True, timeout=30, check=False, stdin=subprocess.DEVNULL
    )
    assert ended.returncode == 125, ended.stderr
    assert f"sysctl user.{limit}=" in ended.stderr.decode()
    assert time.monotonic() - started_s < 5
    assert json.loads(ended.stdout)["exit"] == 125


def test_a_bubblewrap_that_is_too_old_or_broken_is_said_in_its_words():
    with scratch("root") as directory:
        (directory / "bwrap").write_text("#!/bin/sh\necho 'bwrap: Unknown option --bind-fd' >&2\nexit 1\n")
        (directory / "bwrap").chmod(0o755)
        ended = subprocess.run(
            stockade("run", "true"),
            env={"PATH": f"{directory}:/usr/bin:/bin"},
            capture_output=True,
            timeout=30,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    assert ended.returncode == 125
    assert b"Unknown option --bind-fd" in ended.stderr
    assert b"too old" in ended.stderr


REFUSING = r"""
import ctypes, os, platform, struct, sys
# Classic BPF (seccomp(2)): load the system call's number; unshare and setns answer EPERM, everything else is allowed.
unshare, setns = {"x86_64": (272, 308), "aarch64": (97, 268)}[platform.machine()]
code = [(0x20, 0, 0, 0), (0x15, 1, 0, unshare), (0x15, 0, 1, setns), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
text = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in code))
program = struct.pack("@HP", len(code), ctypes.addressof(text))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""


@both
def test_a_container_that_denies_namespaces_is_named_within_five_seconds(way):
    command = [sys.executable, "-I", "-c", REFUSING, *stockade("run", "--json", "true")]
    started_s = time.monotonic()
    ended = subprocess.run(as_way(way, command), capture_output=True, timeout=30, check=False, stdin=subprocess.DEVNULL)
    assert ended.returncode == 125, ended.stderr
    assert b"Operation not permitted" in ended.stderr
    assert b"allow unshare, setns" in ended.stderr
    assert time.monotonic() - started_s < 5


@both
def test_what_programs_do_among_themselves_works(way):
    """Socket pairs, unix sockets in the workspace, and Python's multiprocessing, which needs semaphores in /dev/shm."""
    script = (
        "import multiprocessing, socket\n"
        "near, far = socket.socketpair(); near.send(b'x'); assert far.recv(1) == b'x'\n"
        "server = socket.socket(socket.AF_UNIX); server.bind('own.sock'); server.listen()\n"
        "socket.socket(socket.AF_UNIX).connect('own.sock')\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))\n"
    )
    assert run(way, "--", "python3", "-I", "-c", script).stdout == b"[1, 2]\n"


@both
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_standard_stream_that_the_caller_closed_takes_nothing_with_it(way, closed):
    script = f'exec "$@" {closed}'
    command = ["sh", "-c", script, "sh", *stockade("run", "--", "sh", "-c", "cat; exit 7")]
    ended = subprocess.run(as_way(way, command), capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    assert ended.returncode == 7, ended.stderr


@both
def test_a_caller_that_ignores_its_children_gets_the_status_all_the_same(way):
    ignoring = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-I", "-c", ignoring, *stockade("run", "--", "sh", "-c", "exit 3")]
    ended = subprocess.run(as_way(way, command), capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    assert ended.returncode == 3, ended.stderr


@both
def test_output_that_is_lost_is_stockades_own_failure(way):
    command = ["sh", "-c", 'exec "$@" >/dev/full', "sh", *stockade("run", "--", "echo", "hi")]
    ended = subprocess.run(as_way(way, command), capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    assert ended.returncode == 125
    assert b"could not be written: No space left on device" in ended.stderr


@both
def test_a_reader_that_never_reads_does_not_keep_it_beyond_the_time(way):
    with subprocess.Popen(
        as_way(way, stockade("run", "--timeout", "1", "--", "yes")),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.wait(15) == 124
        finally:
            process.kill()


@both
def test_a_signal_ends_the_wait_for_a_reader_that_never_reads(way):
    """The command ended by itself, and what it wrote fills the reader's pipe and its own."""
    with subprocess.Popen(
        as_way(way, stockade("run", "--", "sh", "-c", "echo up >&2; head -c 131000 /dev/zero; echo over >&2; exit 3")),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stderr.readline() == b"up\n"
            assert process.stderr.readline() == b"over\n"
            time.sleep(1)
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 143
        finally:
            process.kill()


@both
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_the_caller_ignores_stays_ignored(way, number):
    """As under nohup(1), or in the background of a script."""
    ignoring = f"import os, signal, sys; signal.signal({int(number)}, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-I", "-c", ignoring, *stockade("run", "--", "sh", "-c", "echo up; read line; exit 3")]
    with subprocess.Popen(as_way(way, command), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"up\n"
        process.send_signal(number)
        time.sleep(0.3)
        process.stdin.close()
        assert process.wait(20) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_command_leaves_no_directory_and_prints_the_object(number):
    """A bwrap that never becomes a sandbox holds it in its trial."""
    with scratch("root") as programs, scratch("root") as made:
        (programs / "bwrap").write_text("#!/bin/sh\nexec sleep 300\n")
        (programs / "bwrap").chmod(0o755)
        with subprocess.Popen(
            stockade("run", "--json", "--", "true"),
            env={"PATH": f"{programs}:/usr/bin:/bin", "TMPDIR": str(made)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            until_s = time.monotonic() + 20
            while not list(made.iterdir()) and time.monotonic() < until_s:
                time.sleep(0.01)
            time.sleep(0.2)
            process.send_signal(number)
            said, _ = process.communicate(timeout=20)
        assert process.returncode == 128 + number
        told = json.loads(said)
        assert (told["exit"], told["signal"], told["acknowledged"]) == (128 + number, number, True)
        assert list(made.iterdir()) == []


@pytest.mark.skipif(not AS_ROOT, reason="mounts over /proc")
def test_a_machine_without_proc_is_stockades_own_failure():
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc; exec "$@"', "sh"]
    command = [*hidden, *stockade("run", "--json", "--", "true")]
    ended = subprocess.run(command, capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    assert ended.returncode == 125
    assert b"Traceback" not in ended.stderr
    assert json.loads(ended.stdout)["exit"] == 125


@both
def test_too_few_descriptors_are_stockades_own_failure(way):
    command = ["sh", "-c", 'ulimit -n 12; exec "$@"', "sh", *stockade("run", "--json", "--", "true")]
    ended = subprocess.run(as_way(way, command), capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    assert ended.returncode == 125, ended.stderr
    assert b"Traceback" not in ended.stderr
    told = json.loads(ended.stdout)
    assert (told["exit"], told["acknowledged"]) == (125, True)


@both
def test_an_object_that_cannot_be_written_is_stockades_own_failure(way):
    command = ["sh", "-c", 'exec "$@" >/dev/full', "sh", *stockade("run", "--json", "--", "true")]
    ended = subprocess.run(as_way(way, command), capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    assert ended.returncode == 125
    assert b"Traceback" not in ended.stderr


def test_a_temporary_directory_that_is_refused_is_not_left_behind():
    command = ["sh", "-c", 'TMPDIR=/dev exec "$@"', "sh", *stockade("run", "--", "true")]
    ended = subprocess.run(command, capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    assert ended.returncode in (0, 125), ended.stderr  # who may not write to /dev gets /tmp
    assert not list(Path("/dev").glob("stockade-*"))
