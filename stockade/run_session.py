"""One `stockade run`: the workspace, the namespace, the front and the sandbox, put together and taken apart again."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from firewall import namespace, standing
from policy.errors import Broken
from policy.layers import Policy
from policy.limits import COMMAND_S, PROXY_PORT
from proxy.loop import Loop
from sandbox import account, bwrap, plan, probe, workspace
from sandbox.child import Launch
from sandbox.outcome import Outcome
from sandbox.plan import Network
from sandbox.supervisor import Supervisor
from stockade.run_front import Front, Served

ENDPOINTS: Final = (("127.0.0.1", PROXY_PORT), ("::1", PROXY_PORT))
BACKENDS: Final = ("bwrap",)
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked on the command line."""

    command: tuple[str, ...]
    policies: tuple[str, ...] = ()
    """Policy files, one layer each."""
    workspace: str | None = None
    """None: a fresh directory, removed afterwards."""
    network: Network | None = None
    """None: proxied when there is a policy, offline otherwise."""
    timeout_s: float = COMMAND_S
    captured: bool = False
    """Keep the output for the outcome; else it passes through as it comes."""
    resolvers: tuple[tuple[str, int], ...] = ()
    journal: str | None = None

    @property
    def effective_network(self) -> Network:
        """The network the command gets."""
        return self.network or ("proxied" if self.policies else "offline")


@dataclass(frozen=True, slots=True)
class Ran:
    """How it ended, and what the command was refused on the way."""

    outcome: Outcome
    refusals: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    """What a person should be told once, one line each."""


def run(request: Request) -> Ran:
    """Run the request's command to its end. Raises `Broken` or `BadPolicy` where it could not be started as asked."""
    _watch_signals(None)
    policy = _load(request)
    network = request.effective_network
    with ExitStack() as stack:
        space = workspace.make() if request.workspace is None else workspace.open_at(request.workspace)
        stack.callback(space.close)
        program = bwrap.find(os.environ.get("PATH", os.defpath), space.fd)
        mine = (os.geteuid(), os.getegid())
        who = account.choose(standing.read(), mine, space.owner, space.path, account.taken_uids())
        made = plan.lay(
            request.command,
            workspace=space.path,
            account=who,
            network=network,
            host=plan.read_host(),
            caller=os.environ,
            timeout_s=request.timeout_s,
        )
        endpoints: Sequence[namespace.Endpoint] = () if policy is None else ENDPOINTS
        cordon = namespace.make(endpoints, account=(who.uid, who.gid) if who.switched else None)
        stack.callback(cordon.close)
        claimed = space.claim(who)
        launch = Launch(made, program, cordon, space)
        probe.require(launch)
        loop = Loop()
        stack.callback(loop.close)
        supervisor = Supervisor(loop, launch, live=None if request.captured else (1, 2), stdin=0)
        exposed = _exposed(request, space.path)  # told afterwards, when the command may have hidden it
        front = None
        if policy is not None:
            served = Served(cordon.listeners, space.path, policy, request.resolvers, request.journal)
            front = Front(loop, served, lambda why: supervisor.end(failure=why))
            front.start()
            stack.callback(front.stop)
        _watch_signals(supervisor)
        supervisor.start()
        while supervisor.outcome is None:
            loop.turn()
        notes = [*([] if claimed is None else [claimed]), *_unused(request), *exposed]
        if front is None:
            return Ran(supervisor.outcome, notes=tuple(notes))
        front.stop()
        if front.untold_count:
            notes.append(f"{front.untold_count} more refusals are in the journal alone")
        return Ran(supervisor.outcome, tuple(front.refusals), tuple(notes))


def _load(request: Request) -> Policy | None:
    """Read and check the policy; None where the network needs none."""
    if request.effective_network == "proxied" and not request.policies:
        raise Broken(
            "network proxied: no policy was given, so nothing could be reached; add --policy FILE, or use --net offline"
        )
    if not request.policies:
        return None
    from stockade.policy_files import load

    policy = load([Path(file) for file in request.policies], time.time())
    return policy if request.effective_network == "proxied" else None


def _unused(request: Request) -> list[str]:
    """Say which options an offline run has no use for."""
    given = {"policy": request.policies, "resolver": request.resolvers, "journal": request.journal}
    words = [f"--{option}" for option, value in given.items() if value]
    if request.effective_network == "proxied" or not words:
        return []
    return [f"the network is offline, so nothing asked {', '.join(words)}; use --net proxied, or drop it"]


def _exposed(request: Request, workspace_path: str) -> list[str]:
    """Say which files that confine or witness a command lie where it can change them for the next one."""
    files = [*(("policy", file) for file in request.policies), *([("journal", request.journal)] if request.journal else [])]
    files += [("code of Stockade in", str(Path(__file__).parents[1])), ("Python in", sys.prefix)]
    return [
        f"the {what} {file} lies in the workspace, where the command can change it; keep it outside"
        for what, file in files
        if any(place.is_relative_to(workspace_path) for place in (Path(file).resolve(), Path(file).parent.resolve()))
    ]


def _watch_signals(supervisor: Supervisor | None) -> None:
    """Let SIGINT, SIGTERM and SIGHUP end the command and everything in it; after a second the keeper does it alone.

    Before there is a command, and when only its output's reader is waited for, they raise KeyboardInterrupt with their
    number, so that whatever was made is removed. One that the caller ignores (nohup(1), a job in the background) stays
    ignored.
    """
    asked: list[int] = []

    def end(number: int, _frame: object) -> None:
        if supervisor is None or supervisor.waits_for_reader:
            raise KeyboardInterrupt(number)
        if asked:
            os._exit(128 + number)
        asked.append(number)
        supervisor.end(by_signal=number)

    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    for number in (signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)  # in the background, reading the terminal fails instead of stopping us
