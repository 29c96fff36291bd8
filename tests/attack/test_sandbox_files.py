"""What a confined command tries against the files, processes and descriptors of the machine."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.confined import AS_ROOT, WAYS, appears, as_way, gone, run, run_json, scratch, stockade

both = pytest.mark.parametrize("way", WAYS)


@both
def test_no_file_outside_the_workspace_can_be_written(way):
    with scratch(way) as directory, scratch(way) as outside:
        (outside / "open").write_text("before\n")
        (outside / "open").chmod(0o666)
        outside.chmod(0o777)
        script = f"""
        for place in / /usr /usr/bin /bin /lib /etc /etc/ssl/certs /dev /proc /proc/sys/kernel {outside} {directory}/..; do
          (echo x > "$place/stockade-was-here") 2>/dev/null && echo "WROTE $place"
        done
        for file in {outside}/open /etc/passwd /etc/hosts /etc/ld.so.cache /usr/bin/env /proc/self/exe /proc/1/exe \\
            /proc/sys/kernel/core_pattern /proc/sys/vm/overcommit_memory /proc/sysrq-trigger; do
          (exec 3>>"$file") 2>/dev/null && echo "OPENED $file"
        done
        mknod device c 1 1 2>/dev/null && echo MADE a device
        ln {outside}/open hard 2>/dev/null && echo LINKED
        exit 0
        """
        told = run_json(way, "--workspace", str(directory), "--", "sh", "-c", script)
        # Its own /tmp holds the way to the workspace, and is private and gone afterwards: writing there is no escape.
        said = [line for line in told["stdout"].splitlines() if line != f"WROTE {directory}/.."]
        assert (told["exit"], said) == (0, [])
        assert (outside / "open").read_text() == "before\n"
        assert [path.name for path in outside.iterdir()] == ["open"]
        assert not (directory.parent / "stockade-was-here").exists()


@both
def test_no_file_of_the_host_can_be_read(way):
    with scratch(way) as directory, scratch(way) as outside:
        (outside / "secret").write_text("stockade-secret-text\n")
        (directory / "link").symlink_to(outside / "secret")
        (directory / "up").symlink_to("../../../../../../../../.." + str(outside))
        script = f"""
        cat {outside}/secret link up/secret {directory}/../{outside.name}/secret /proc/1/root{outside}/secret \\
            /proc/self/cwd/../{outside.name}/secret 2>/dev/null
        ls /home /root /var /opt /run /srv /mnt /media /boot /sys 2>/dev/null
        cat /etc/shadow /etc/gshadow /etc/ssl/private/* /etc/sudoers 2>/dev/null
        exit 0
        """
        told = run_json(way, "--workspace", str(directory), "--", "sh", "-c", script)
        assert (told["exit"], told["stdout"]) == (0, "")


@both
def test_moving_the_workspace_does_not_lead_out(way):
    """`..` of a directory that was moved from under a process ends in the sandbox's own root."""
    with scratch(way) as directory, scratch(way) as outside:
        (outside / "secret").write_text("stockade-secret-text\n")
        script = f"""
        mkdir -p a/b/c && cd a/b/c && mv ../../b ../../../d && for step in 1 2 3 4 5 6 7 8; do cd -P ..; done
        cat {str(outside)[1:]}/secret 2>/dev/null; exit 0
        """
        told = run_json(way, "--workspace", str(directory), "--", "sh", "-c", script)
        assert (told["exit"], told["stdout"]) == (0, "")


@both
def test_a_workspace_that_is_replaced_by_a_link_is_not_followed(way):
    """The directory is held by a descriptor from the moment it was opened; what its name points at later does not count."""
    from sandbox import workspace

    with scratch(way) as directory, scratch(way) as outside:
        real = directory / "job"
        real.mkdir()
        opened = workspace.open_at(str(real))
        try:
            real.rename(directory / "moved")
            real.symlink_to(outside)
            assert os.path.samestat(os.fstat(opened.fd), os.stat(directory / "moved"))
            assert not os.path.samestat(os.fstat(opened.fd), os.stat(outside))
            with pytest.raises(NotADirectoryError):
                os.open(opened.path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        finally:
            opened.close()


@both
def test_nothing_of_the_callers_environment_is_inherited(way):
    environment = {
        **os.environ,
        "STOCKADE_SECRET": "stockade-secret-text",
        "AWS_SECRET_ACCESS_KEY": "stockade-secret-text",
    }
    script = "env; cat /proc/[0-9]*/environ /proc/self/task/*/environ 2>/dev/null | tr '\\0' '\\n'"
    told = run_json(way, "--", "sh", "-c", script, env=environment)
    assert "secret" not in told["stdout"].lower()
    assert {line.partition("=")[0] for line in told["stdout"].splitlines()} <= {
        *("PATH", "HOME", "PWD", "TMPDIR", "LANG", "TERM", "TZ", "OLDPWD", "_", "SHLVL")
    }


WITH_A_KEY = """
import ctypes, os, platform, sys
libc = ctypes.CDLL(None, use_errno=True)
keyctl, add_key = (250, 248) if platform.machine() == "x86_64" else (219, 217)
libc.syscall(keyctl, 1, None)
assert libc.syscall(add_key, b"user", b"stockade-bait", b"stockade-secret-text", 20, ctypes.c_int(-3)) > 0
os.execv(sys.argv[1], sys.argv[1:])
"""
SEEK_KEY = """
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
keyctl = 250 if platform.machine() == "x86_64" else 219
held = ctypes.create_string_buffer(64)
for ring in (-1, -2, -3, -4, -5):
    libc.syscall(keyctl, 11, libc.syscall(keyctl, 10, ctypes.c_int(ring), b"user", b"stockade-bait", 0), held, 64)
print(held.value.decode())
"""


@both
def test_no_key_of_the_callers_session_is_inherited(way):
    command = [sys.executable, "-I", "-c", WITH_A_KEY, sys.executable, "-I", "-c", SEEK_KEY]
    control = subprocess.run(as_way(way, command), capture_output=True, timeout=60, check=False)
    assert control.stdout == b"stockade-secret-text\n", "the bait must be found without a sandbox"
    command = [sys.executable, "-I", "-c", WITH_A_KEY, *stockade("run", "--", "python3", "-I", "-c", SEEK_KEY)]
    ended = subprocess.run(as_way(way, command), capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    assert (ended.returncode, ended.stdout) == (0, b"\n"), ended.stderr


@both
def test_no_program_that_a_command_left_behind_is_run(way):
    """A `bwrap` in the workspace, which the next caller has in PATH: an active virtual environment, say."""
    with scratch(way) as directory:
        plant = """mkdir bin; printf '#!/bin/sh\\n: >%s/it-ran\\nexec /usr/bin/bwrap "$@"\\n' "$PWD" >bin/bwrap; chmod 755 bin/bwrap"""
        run(way, "--workspace", str(directory), "--", "sh", "-c", plant)
        assert (directory / "bin" / "bwrap").exists()
        environment = {**os.environ, "PATH": f"{directory}/bin:{os.environ['PATH']}"}
        ended = run(way, "--workspace", str(directory), "--", "true", env=environment)
        assert (ended.returncode, [entry.name for entry in directory.iterdir()]) == (0, ["bin"])


@both
def test_no_process_of_the_host_is_seen_or_touched(way):
    with subprocess.Popen(
        as_way(way, [sys.executable, "-I", "-c", "input()", "stockade-bait"]), stdin=subprocess.PIPE
    ) as bait:
        script = f"""
        cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q 'stockade[-]bait' && echo SEEN
        ls -d /proc/[0-9]* | wc -l
        kill -9 {bait.pid} 2>/dev/null && [ {bait.pid} -gt 20 ] && echo SIGNALLED
        kill -9 -1 2>/dev/null
        echo still here
        """
        told = run_json(way, "--", "bash", "-c", script)
        assert bait.poll() is None
        bait.communicate(b"\n", timeout=20)
    count, *said = told["stdout"].split("\n")
    assert int(count) < 10
    assert not [line for line in said if line in ("SEEN", "SIGNALLED")]


@both
def test_no_descriptor_but_three_pipes_is_inherited(way):
    with scratch(way) as directory, open(directory / "secret", "w+") as secret, open("/dev/null", "rb") as null:
        os.set_inheritable(secret.fileno(), True)
        script = "import os; print(sorted((int(n), os.readlink('/proc/self/fd/' + n).partition(':')[0]) for n in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + n)))"
        ended = run(way, "--", "python3", "-I", "-c", script, stdin=null, pass_fds=[secret.fileno()])
        assert ended.stdout.decode() == "[(0, 'pipe'), (1, 'pipe'), (2, 'pipe')]\n", ended.stderr


@both
def test_a_descriptor_above_a_lowered_limit_is_not_inherited(way):
    opened = "import os, resource, sys; os.dup2(os.open('/etc/passwd', 0), 200); resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-I", "-c", opened, *stockade("run", "--", "ls", "/proc/self/fd")]
    ended = subprocess.run(as_way(way, command), capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    assert ended.stdout.split() == [b"0", b"1", b"2", b"3"], ended.stderr  # 3 is the listing's own


@both
def test_a_socket_or_a_file_on_standard_input_gives_no_way_out(way):
    """A connected socket would be a network, and a file could be opened again for writing through /proc."""
    script = "import os; print(os.readlink('/proc/self/fd/0')[:5], os.read(0, 9))"
    near, far = socket.socketpair()
    with near, far:
        far.sendall(b"hello")
        far.shutdown(socket.SHUT_WR)
        assert run(way, "--", "python3", "-I", "-c", script, stdin=near).stdout == b"pipe: b'hello'\n"
    with scratch(way) as directory:
        (directory / "notes").write_text("before")
        (directory / "notes").chmod(0o666)
        with open(directory / "notes", "rb") as source:
            ended = run(way, "--", "sh", "-c", "cat; echo x 2>/dev/null >/proc/self/fd/0; exit 0", stdin=source)
        assert ended.stdout == b"before"
        assert (directory / "notes").read_text() == "before"


@both
def test_the_command_has_no_capability_and_can_gain_none(way):
    script = "grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs' /proc/self/status"
    lines = run(way, "--", "sh", "-c", script).stdout.decode().split("\n")
    assert [line.split()[1] for line in lines if line] == ["0000000000000000"] * 5 + ["1"]


@both
def test_no_further_namespace_can_be_made(way):
    script = """
    for what in --user --net --mount --pid --ipc --uts '--user --net --map-root-user'; do
      unshare $what true 2>/dev/null && echo "MADE $what"
    done
    exit 0
    """
    assert run(way, "--", "sh", "-c", script).stdout == b""


@both
def test_memory_file_systems_are_bounded(way):
    script = "df --output=target,size -B1 /tmp /dev/shm | tail -n +2"
    sizes = dict(line.split() for line in run(way, "--", "sh", "-c", script).stdout.decode().splitlines())
    assert {target: int(size) for target, size in sizes.items()} == {"/tmp": 536_870_912, "/dev/shm": 67_108_864}


@both
def test_no_core_file_and_no_terminal(way):
    script = "ulimit -H -c; (exec 3<>/dev/tty) 2>/dev/null && echo TERMINAL; exit 0"
    assert run(way, "--", "sh", "-c", script).stdout == b"0\n"


@both
def test_two_commands_share_nothing_but_what_they_are_given(way):
    """Neither sees the other's processes, /tmp, shared memory or loopback."""
    with scratch(way) as one, scratch(way) as two:
        serve = (
            "import socket, time, pathlib; s = socket.create_server(('127.0.0.1', 8080));"
            "a = socket.socket(socket.AF_UNIX); a.bind('\\0stockade-abstract'); a.listen();"
            "pathlib.Path('/tmp/note').write_text('x'); pathlib.Path('/dev/shm/note').write_text('x');"
            "print('up', flush=True); time.sleep(60)"
        )
        look = (
            "import socket, os;"
            "t = socket.socket(); print('tcp', t.connect_ex(('127.0.0.1', 8080)) == 0);"
            "u = socket.socket(socket.AF_UNIX); print('abstract', u.connect_ex('\\0stockade-abstract') == 0);"
            "print('tmp', os.path.exists('/tmp/note'), os.path.exists('/dev/shm/note'));"
            "print('pids', len([n for n in os.listdir('/proc') if n.isdigit()]) > 8)"
        )
        with subprocess.Popen(
            as_way(way, stockade("run", "--workspace", str(one), "--", "python3", "-I", "-c", serve)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        ) as first:
            assert first.stdout.readline() == b"up\n"
            second = run(way, "--workspace", str(two), "--", "python3", "-I", "-c", look)
            first.send_signal(signal.SIGTERM)
            first.communicate(timeout=20)
    assert second.stdout.decode().splitlines() == ["tcp False", "abstract False", "tmp False False", "pids False"]


@both
def test_a_stream_that_another_sandbox_holds_keeps_nobody_waiting(way):
    """A command can send its end of a pipe to a command in another sandbox, over a socket in a workspace of both."""
    hold = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind('own.sock'); s.listen(); print('up', flush=True);"
        "c = s.accept()[0]; held = socket.recv_fds(c, 9, 9); sys.stdin.read()"
    )
    send = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('own.sock'); print('sent', flush=True);"
        "socket.send_fds(s, [b'x'], [1, 2])"
    )
    with scratch(way) as directory:
        for more in ((), ("--json",)):
            (directory / "own.sock").unlink(missing_ok=True)
            with subprocess.Popen(
                as_way(way, stockade("run", "--workspace", str(directory), "--", "python3", "-I", "-c", hold)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            ) as holder:
                assert holder.stdout.readline() == b"up\n"
                try:
                    ended = subprocess.run(
                        as_way(way, stockade("run", *more, "--workspace", str(directory), "--", "python3", "-I", "-c", send)),
                        stdin=subprocess.DEVNULL,
                        capture_output=True,
                        timeout=15,
                        check=False,
                    )
                finally:
                    holder.stdin.close()
                    holder.wait(20)
            assert ended.returncode == 0, ended.stderr
            assert b"sent" in ended.stdout


@both
def test_killing_stockade_itself_leaves_nothing_alive(way):
    """`kill -9` from before the sandbox stands to well after."""
    for step in range(4):
        mark = f"stockade-test-killed-{os.getpid()}-{way}-{step}"
        with scratch(way) as directory:
            script = f"setsid sh -c 'sleep 300; : {mark}' & sleep 301; : {mark}"
            with subprocess.Popen(
                as_way(way, stockade("run", "--workspace", str(directory), "--", "sh", "-c", script)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as process:
                if step:
                    appears(mark, b"sh\0-c\0setsid")
                    time.sleep(0.005 * (step - 1))
                process.kill()
            assert gone(mark) == []


@both
def test_killing_the_keeper_leaves_nothing_alive_and_is_said(way):
    mark = f"stockade-test-keeper-{os.getpid()}-{way}"
    script = f"setsid sh -c 'sleep 300; : {mark}' & sleep 301; : {mark}"
    with subprocess.Popen(
        as_way(way, stockade("run", "--", "sh", "-c", script)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert appears(mark, b"sh\0-c\0sleep 300")
        (keeper,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        os.kill(keeper, signal.SIGKILL)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 125
    assert b"keeper" in said
    assert gone(mark) == []


if AS_ROOT:

    def test_the_command_never_has_the_hosts_root_uid():
        """Seen from outside, where no user namespace hides it."""
        mark = f"stockade-test-uid-{os.getpid()}"
        with scratch("root") as directory:
            with subprocess.Popen(
                stockade("run", "--workspace", str(directory), "--", "sh", "-c", f"sleep 300; : {mark}"),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as process:
                (command,) = appears(mark, b"sh\0-c\0sleep 300")
                status = Path(f"/proc/{command}/status").read_text()
                process.send_signal(signal.SIGTERM)
                process.wait(20)
        ids = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:]
        assert len(set(ids)) == 1
        assert int(ids[0]) >= 2_000_000
