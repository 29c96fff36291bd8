"""The front of one run: the proxy in a process of its own, with its listeners, its journal and a channel to us."""

import codecs
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from firewall import prctl, standing
from policy.errors import Broken
from policy.layers import Policy
from policy.limits import FRONT_START_S, FRONT_STOP_S, FRONT_UID, REFUSALS_COUNT
from proxy.loop import IN, Loop
from sandbox.child import close_all_but

_MESSAGE_BYTES: Final = 262_144
"""More than any record has."""
_CODECS: Final = ("ascii", "latin-1", "utf-8", "unicode-escape", "raw-unicode-escape", "punycode", "idna")


@dataclass(frozen=True, slots=True)
class Served:
    """What a front needs to serve one session."""

    listeners: tuple[socket.socket, ...]
    name: str
    """The session's name in records."""
    policy: Policy
    servers: tuple[tuple[str, int], ...]
    """DNS servers; empty: the system's."""
    journal: str | None


class Front:
    """A running front, seen from its parent. `died` is called once, should it end before `stop`."""

    def __init__(self, loop: Loop, served: Served, died: Callable[[str], None]) -> None:
        self._loop = loop
        self._served = served
        self._died = died
        self._stopped = False
        self._ready = False
        self._fault = ""
        self.refusals: list[dict[str, Any]] = []
        """Records of what was refused, in order; the first REFUSALS_COUNT."""
        self.untold_count = 0
        """How many more were refused: those are in the journal alone."""

    def start(self) -> None:
        """Fork it and wait until it listens. Raises `Broken` with its reason when it cannot."""
        self._reports, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            self._reports.close()
            _serve(self._served, theirs, parent)
        theirs.close()
        for listener in self._served.listeners:
            listener.close()  # only the front holds them: should it end, whoever connects is refused at once
        until_s = time.monotonic() + FRONT_START_S
        while not self._ready:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not select.select([self._reports], [], [], left_s)[0]:
                self._end()
                raise Broken(f"proxy: it did not start within {FRONT_START_S:.0f} s")
            if not self._read():
                self._end()
                raise Broken(f"proxy: {self._fault or 'it ended before it listened; standard error has more'}")
        self._loop.watch(self._reports.fileno(), IN, self._hear)

    def stop(self) -> None:
        """End it, and take what it still had to say. Harmless to repeat."""
        if self._stopped:
            return
        self._stopped = True
        self._loop.forget(self._reports.fileno())
        os.kill(self._pid, signal.SIGINT)
        until_s = time.monotonic() + FRONT_STOP_S
        while (left_s := until_s - time.monotonic()) > 0 and select.select([self._reports], [], [], left_s)[0]:
            if not self._read():
                break
        self._end()

    def fail(self, error: Exception) -> None:
        """Say that it is lost: our own side of its reports failed (see `proxy.loop.Fails`)."""
        self._lost(f"its reports cannot be read: {error}")

    def _hear(self, _mask: int) -> None:
        if not self._read():
            self._lost(self._fault or "its process ended")

    def _lost(self, why: str) -> None:
        if not self._stopped:
            self._stopped = True
            self._loop.forget(self._reports.fileno())
            self._end()
            self._died(f"proxy: {why}; the command was ended, as it had no network any more")

    def _read(self) -> bool:
        """Take one message; False at the end."""
        try:
            message = self._reports.recv(_MESSAGE_BYTES)
        except ConnectionResetError:
            return False
        if not message:
            return False
        said = json.loads(message)
        if "record" in said:
            self.untold_count += said["dropped"]
            if len(self.refusals) < REFUSALS_COUNT:
                self.refusals.append(said["record"])
            else:
                self.untold_count += 1
        elif "fault" in said:
            self._fault = said["fault"]
        else:
            self._ready = True
        return True

    def _end(self) -> None:
        self._reports.close()
        try:
            os.kill(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(self._pid, 0)


class _Reports:
    """The front's end of the channel; what does not fit at once is counted and dropped: a slow parent delays nobody."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._dropped = 0

    def say(self, **said: object) -> bool:
        """Send one object, whole or not at all; False when it does not fit."""
        try:
            self._channel.send(json.dumps(said).encode())
        except OSError:
            return False
        return True

    def ready(self) -> None:
        """Say that every listener listens."""
        self.say(ready=True)

    def record(self, entry: Mapping[str, Any]) -> None:
        """Pass on the record of a refusal."""
        if entry["event"] != "verdict" or entry["verdict"] == "allow":
            return
        if self.say(record=entry, dropped=self._dropped):
            self._dropped = 0
        else:
            self._dropped += 1


def _serve(served: Served, channel: socket.socket, parent: int) -> NoReturn:
    """In the child: open the journal, give up every right that serving does not need, and serve to the end."""
    status = 1
    reports = _Reports(channel)
    try:
        os.setsid()  # a Ctrl-C in the terminal is the parent's to act on
        from proxy.dns_servers import system_servers
        from proxy.journal import Journal
        from proxy.session import Session
        from proxy.worker import Listener, serve

        _let_go(served, channel)
        journal = Journal(served.journal, [reports.record])
        servers = served.servers or system_servers()
        _drop_rights()
        prctl.die_with_parent(parent)
        channel.setblocking(False)
        session = Session(served.name, served.policy)
        serve(
            [Listener(each, session) for each in served.listeners],
            servers=servers,
            journal=journal,
            started=reports.ready,
            parent_pid=parent,
        )
        journal.close()
        status = 0
    except Broken as broken:
        reports.say(fault=str(broken))
    except BaseException as bug:  # noqa: BLE001 - a forked child must not return into its parent's frames
        reports.say(fault=repr(bug))
    finally:
        os._exit(status)


def _let_go(served: Served, channel: socket.socket) -> None:
    """Hold no descriptor but the listeners, the channel and standard error."""
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    close_all_but({0, 1, 2, channel.fileno(), *(each.fileno() for each in served.listeners)})


def _drop_rights() -> None:
    """Be nobody in particular, for good, where this process may choose.

    Python's own files may lie where only root may read (a home directory), so what it loads late is loaded now.
    """
    for codec in _CODECS:
        codecs.lookup(codec)
    prctl.gain_nothing()
    here = standing.read()
    if here.may_switch and here.outside_uid(FRONT_UID) is not None:
        prctl.become(FRONT_UID, FRONT_UID)


def told(refusals: Sequence[dict[str, Any]]) -> list[str]:
    """One line for each destination and reason that was refused, with what a person would write to grant it."""
    counts: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in refusals:
        counts.setdefault((_destination(record), record["reason"]), []).append(record)
    lines = []
    for (place, reason), records in counts.items():
        times = "once" if len(records) == 1 else f"{len(records)} times"
        remedy = _remedy(records[0])
        lines.append(f"refused {times}: {place} ({reason})" + (f". {remedy}" if remedy else ""))
    return lines


def _destination(record: dict[str, Any]) -> str:
    where = record["destination"]
    if where is None:
        return str(record["detail"] or "a request that could not be read")
    host = where["host"]
    return f"[{host}]:{where['port']}" if ":" in host else f"{host}:{where['port']}"


def _remedy(record: dict[str, Any]) -> str | None:
    from ipaddress import ip_address

    from policy.destination import read_authority
    from policy.remedy import remedy
    from policy.verdict import Reason, Verdict

    if record["destination"] is None:
        return None
    verdict = Verdict(
        False,
        Reason(record["reason"]),
        grant=record["grant"],
        rule=record["rule"],
        layer=record["layer"],
        detail=record["detail"] or "",
        address=ip_address(record["address"]) if record["address"] else None,
    )
    return remedy(verdict, read_authority(_destination(record)))
