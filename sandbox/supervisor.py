"""One command from plan to outcome: its streams, its keeper and its end, on the caller's loop."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from firewall import prctl
from policy.limits import ACKNOWLEDGE_S, OUTPUT_LAST_S
from proxy.loop import IN, Loop
from sandbox import keeper, log
from sandbox.capture import Capture
from sandbox.child import Ends, Launch
from sandbox.outcome import FAILED, TIMED_OUT, Outcome, signal_of
from sandbox.relay import Relay, waiting_bytes

_READ_BYTES: Final = 65_536


class _Taking:
    """Takes a captured stream to its end, or until its own code fails: the writer is then told by a closed pipe."""

    def __init__(self, loop: Loop, fd: int, capture: Capture, done: Callable[[], None]) -> None:
        self._loop = loop
        self._fd = fd
        self._capture = capture
        self._done = done
        self._ended = False
        loop.watch(fd, IN, self._ready)

    def fail(self, _error: Exception) -> None:
        self._end()

    def finish(self) -> None:
        """Take what waits in the pipe by now, and end: whoever may write to it has ended."""
        if self._ended:
            return
        os.set_blocking(self._fd, False)
        left_bytes = waiting_bytes(self._fd)
        while left_bytes:
            try:
                piece = os.read(self._fd, min(_READ_BYTES, left_bytes))
            except BlockingIOError:
                break
            self._capture.add(piece)
            left_bytes -= len(piece)
        self._end()

    def _ready(self, _mask: int) -> None:
        piece = os.read(self._fd, _READ_BYTES)
        if piece:
            self._capture.add(piece)
        else:
            self._end()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._loop.forget(self._fd)
        os.close(self._fd)
        self._done()


class Supervisor:
    """Runs one plan. `start` it, turn the loop until `outcome` is there.

    `live` holds the caller's own (stdin, stdout, stderr), to and from which the streams are copied: the command never
    holds a descriptor of the caller's, which could be a terminal, a file it may not write or a connected socket. With
    `live` None the command's stdin is at its end and stdout and stderr are captured; `stdin` alone may still be
    given.
    """

    def __init__(
        self,
        loop: Loop,
        launch: Launch,
        *,
        live: tuple[int, int] | None = None,
        stdin: int | None = None,
    ) -> None:
        self._loop = loop
        self._launch = launch
        self._plan = launch.plan
        self._workspace = launch.workspace
        self._live = live
        self._stdin = stdin
        self._relays: list[Relay] = []
        self._outputs: list[Relay | _Taking] = []
        self._captures = [self._capture(), self._capture()]
        self._open_streams = 0
        self._report: dict[str, int | bool | None] | None = None
        self._keeper_gone = False
        self._ending = False
        self._signal: int | None = None
        self._failure: str | None = None
        self._started_s = 0.0
        self.outcome: Outcome | None = None

    def start(self) -> None:
        """Fork the keeper, which forks the command; this process must have one thread."""
        self._started_s = time.monotonic()
        prctl.adopt_orphans()
        self._spare = keeper.children()
        stdin_end, stdin_ours = os.pipe2(os.O_CLOEXEC)
        stdout_ours, stdout_end = os.pipe2(os.O_CLOEXEC)
        stderr_ours, stderr_end = os.pipe2(os.O_CLOEXEC)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._keeper = os.fork()
        if self._keeper == 0:
            self._channel.close()
            ends = Ends(stdin_end, stdout_end, stderr_end)
            keeper.keep(self._launch, ends, theirs)
        theirs.close()
        for fd in (stdin_end, stdout_end, stderr_end):
            os.close(fd)
        self._loop.watch(self._channel.fileno(), IN, self._hear)
        self._feed(stdin_ours)
        for number, fd in enumerate((stdout_ours, stderr_ours)):
            self._open_streams += 1
            if self._live is None:
                self._outputs.append(_Taking(self._loop, fd, self._captures[number], self._stream_ended))
            else:
                relay = Relay(self._loop, fd, self._live[number], owned=(fd,), done=self._stream_ended)
                self._relays.append(relay)
                self._outputs.append(relay)

    @property
    def waits_for_reader(self) -> bool:
        """The command is over, and whoever reads its output has yet to take the rest."""
        return self._keeper_gone and self.outcome is None

    def end(self, *, by_signal: int | None = None, failure: str | None = None) -> None:
        """End the command and everything in it now; the outcome names the signal or the failure that asked for it."""
        if self._report is not None or self._ending:
            return
        self._ending = True
        self._signal, self._failure = by_signal, failure
        try:
            self._channel.send(b"end")
        except OSError:
            pass  # the keeper is ending already

    def fail(self, error: Exception) -> None:
        """End it as Stockade's own failure: one of our callbacks raised (see `proxy.loop.Fails`)."""
        if self.outcome is not None:
            return
        self._loop.forget(self._channel.fileno())
        self._channel.close()  # the keeper ends everything when its other side is gone
        try:
            os.waitpid(self._keeper, 0)
        except ChildProcessError:
            pass
        said = f"{type(error).__name__} inside the supervisor; standard error has the trace"
        spent_s = time.monotonic() - self._started_s
        self.outcome = Outcome(FAILED, None, False, b"", b"", True, (), spent_s, False, said)

    def _capture(self) -> Capture:
        plan = self._plan
        return Capture(plan.head_bytes, plan.tail_bytes, plan.log_bytes, self._spool)

    def _spool(self) -> BinaryIO:
        return log.spool(self._workspace)

    def _feed(self, target: int) -> None:
        if self._stdin is None:
            os.close(target)
            return
        os.set_blocking(target, False)
        self._relays.append(Relay(self._loop, self._stdin, target, owned=(target,), done=lambda: None))

    def _stream_ended(self) -> None:
        self._open_streams -= 1
        self._finish()

    def _hear(self, _mask: int) -> None:
        """Take the keeper's report, or its end without one: then what it held came to us, and we end it."""
        try:
            message = self._channel.recv(4096)
        except ConnectionResetError:
            return  # it left before it read our "end"; what it said before comes with the next turn (unix(7))
        if message:
            said = json.loads(message)
            if "fault" in said:
                self._failure = f"the keeper of the command's processes failed: {said['fault']}"
            else:
                self._report = said
            return
        self._loop.forget(self._channel.fileno())
        self._channel.close()
        os.waitpid(self._keeper, 0)
        if self._report is None:
            gone = keeper.end_children(time.monotonic() + ACKNOWLEDGE_S, self._spare)
            self._failure = self._failure or "the keeper of the command's processes was killed"
            self._report = {"status": None, "timed_out": False, "acknowledged": gone}
        self._keeper_gone = True
        # Nothing of the command is left to write, though a stranger may hold its end of a pipe: it can be sent to
        # another sandbox over a socket in a workspace that both have.
        for output in self._outputs:
            output.finish()
        if self._report["status"] is None:
            self._loop.call_after(OUTPUT_LAST_S, self._drop_output)
        self._finish()

    def _drop_output(self) -> None:
        for relay in self._relays:
            relay.stop()

    def _finish(self) -> None:
        if not self._keeper_gone or self._open_streams or self._report is None or self.outcome is not None:
            return
        for relay in self._relays:
            relay.stop()
        status = self._report["status"]
        timed_out = bool(self._report["timed_out"])
        failure = self._failure or self._lost()
        if status is not None and self._signal is None and failure is None:
            code, by_signal = int(status), signal_of(int(status))
        elif failure is not None:
            code, by_signal = FAILED, None
        elif self._signal is not None:
            code, by_signal = 128 + self._signal, self._signal
        elif timed_out:
            code, by_signal = TIMED_OUT, int(signal.SIGKILL)
        else:
            code, by_signal = FAILED, None
            failure = "the sandbox could not be set up; bubblewrap said so on standard error"
        (stdout, first), (stderr, second) = (
            self._keep(capture, name) for capture, name in zip(self._captures, ("stdout", "stderr"), strict=True)
        )
        self.outcome = Outcome(
            exit=code,
            signal=by_signal,
            timed_out=timed_out,
            stdout=stdout,
            stderr=stderr,
            truncated=any(capture.truncated for capture in self._captures),
            logs=(*first, *second),
            duration_s=time.monotonic() - self._started_s,
            acknowledged=bool(self._report["acknowledged"]),
            failure=failure,
        )

    def _lost(self) -> str | None:
        """Say that output was lost, where somebody was to have it."""
        faults = [relay.fault for relay in self._relays if relay.fault is not None]
        return f"the command's output could not be written: {faults[0].strerror}" if faults else None

    def _keep(self, capture: Capture, name: str) -> tuple[bytes, tuple[str, ...]]:
        """Give a stream's bytes, and its log's path when it was too long: written now that nothing can redirect it."""
        if not capture.truncated:
            return capture.kept(), ()
        where: str | None = None
        fault = capture.fault
        if self._workspace.fresh:  # a log in it would be gone before anybody read its path
            if capture.file is not None:
                capture.file.close()
            return capture.kept("no log: the workspace is removed with the command; name one with --workspace"), ()
        if capture.file is not None and self._report is not None and self._report["acknowledged"]:
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
            try:
                where = log.save(capture.file, self._workspace, self._plan.account, f"{stamp}-{os.getpid()}.{name}")
            except OSError as error:
                fault = error
        if capture.file is not None:
            capture.file.close()
        if where is None:
            return capture.kept(f"no log: {fault.strerror if fault else 'the end was not acknowledged'}"), ()
        part = "the whole is" if capture.logged == capture.count else f"the first {capture.logged} bytes are"
        return capture.kept(f"{part} in {Path(where).relative_to(self._workspace.path)}"), (where,)
