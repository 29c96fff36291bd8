"""Everything about one command before it runs, checked: nothing after this decides anything."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from policy.errors import Broken
from policy.limits import (
    ARGUMENT_BYTES,
    COMMAND_MAX_S,
    COMMAND_S,
    OUTPUT_HEAD_BYTES,
    OUTPUT_LOG_BYTES,
    OUTPUT_TAIL_BYTES,
    SANDBOX_SHM_BYTES,
    SANDBOX_TMP_BYTES,
)
from sandbox.account import Account
from sandbox.environment import compose

type Network = Literal["proxied", "offline"]

_LINKS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
_MASKED: Final = (
    *(
        "keys",
        "key-users",
        "kallsyms",
        "timer_list",
        "sched_debug",
        "kpagecount",
        "kpageflags",
        "kpagecgroup",
    ),
    *("vmallocinfo", "slabinfo", "config.gz", "latency_stats"),
)


@dataclass(frozen=True, slots=True)
class Host:
    """What differs between machines in how their system directories are laid out."""

    links: tuple[tuple[str, str | None], ...]
    """`/bin` and its like that exist: with a link's text where /usr is merged, None for a directory of its own."""
    masked: tuple[str, ...]
    """Files of /proc that tell about the machine or other users."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One command, who runs it, where, with what and for how long."""

    command: tuple[str, ...]
    workspace: str
    account: Account
    environment: Mapping[str, str]
    network: Network
    host: Host
    timeout_s: float = COMMAND_S
    tmp_bytes: int = SANDBOX_TMP_BYTES
    shm_bytes: int = SANDBOX_SHM_BYTES
    head_bytes: int = OUTPUT_HEAD_BYTES
    tail_bytes: int = OUTPUT_TAIL_BYTES
    log_bytes: int = OUTPUT_LOG_BYTES


def read_host(root: Path = Path("/")) -> Host:
    """Read the layout of this machine."""
    links: list[tuple[str, str | None]] = []
    for name in _LINKS:
        entry = root / name[1:]
        if entry.is_symlink():
            links.append((name, str(entry.readlink())))
        elif entry.is_dir():
            links.append((name, None))
    masked = tuple(f"/proc/{name}" for name in _MASKED if (root / "proc" / name).exists())
    return Host(tuple(links), masked)


def lay(
    command: Sequence[str],
    *,
    workspace: str,
    account: Account,
    network: Network,
    host: Host,
    caller: Mapping[str, str],
    timeout_s: float = COMMAND_S,
) -> Plan:
    """Make a plan for `command`; raises `Broken` for one that could not be started as it is written."""
    if not command:
        raise Broken("command: none was given; write it after `--`")
    if command[0].startswith("-") or not command[0]:
        raise Broken(f"command: {command[0]!r} is not a program's name")
    for word in command:
        encoded = os.fsencode(word)
        if b"\0" in encoded:
            raise Broken("command: an argument holds a NUL byte, which no program can be given")
        if len(encoded) > ARGUMENT_BYTES:
            raise Broken(
                f"command: an argument has {len(encoded)} bytes and the kernel takes no more than {ARGUMENT_BYTES}; "
                "put it into a file in the workspace or send it on standard input"
            )
    if not 0 < timeout_s <= COMMAND_MAX_S:
        raise Broken(f"timeout: {timeout_s:g} s is not between 0 and {COMMAND_MAX_S:.0f} s")
    environment = compose(workspace, proxied=network == "proxied", caller=caller)
    return Plan(tuple(command), workspace, account, environment, network, host, timeout_s)
