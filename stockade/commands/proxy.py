"""`stockade proxy`: one port that speaks SOCKS5, CONNECT and plain HTTP, under a policy."""

import contextlib
import ctypes
import errno
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Final

import typer

from policy.errors import BadPolicy, Broken
from policy.host import Address
from policy.layers import Policy
from stockade.policy_files import load

app = typer.Typer(subcommand_metavar="")

PR_SET_PDEATHSIG: Final = 1
BAD_INPUT: Final = 2
"""Exit status for a policy or an option that is wrong."""

_REMEDIES: Final = {
    errno.EADDRINUSE: "see who has it with `ss -ltnp sport = :{port}`, or ",
    errno.EADDRNOTAVAIL: "choose an address of this machine, or ",
    errno.EACCES: "ports below 1024 are root's, choose a higher one, or ",
}
"""What to do about an address that cannot be bound."""

EPILOG: Final = """Exit status: 0 when it was told to end, 1 when it could not start, 2 when a policy or an option is wrong.

Example: stockade proxy --policy allow.toml --listen 127.0.0.1:3128

Then: curl --proxy http://127.0.0.1:3128 https://pypi.org/"""


@app.callback(invoke_without_command=True, epilog=EPILOG)
def proxy(
    policy: Annotated[
        list[Path],
        typer.Option(
            "--policy",
            metavar="FILE",
            readable=False,
            help="A policy file; may be given several times, and every one must allow.",
        ),
    ],
    listen: Annotated[str, typer.Option(metavar="ADDR:PORT", help="Where to listen; port 0 takes a free one.")] = "127.0.0.1:0",
    resolver: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDR:PORT", help="DNS server in place of the system's; may be given several times."),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="FILE", readable=False, help="Append one JSON line for each verdict and each connection's end."),
    ] = None,
    ready_fd: Annotated[int, typer.Option(metavar="N", help="Descriptor for the one line that says where it listens.")] = 1,
    exit_with_parent: Annotated[
        bool, typer.Option("--exit-with-parent", help="End when the process that started this one has ended.")
    ] = False,
) -> None:
    """Serve SOCKS5, CONNECT and plain HTTP on one port, and let out only what the policy names.

    Writes one JSON line when it is ready. SIGHUP reads the policy files again, SIGTERM lets connections end,
    SIGINT stops at once.
    """
    parent_pid = os.getppid() if exit_with_parent else None
    with _faults_told():
        if exit_with_parent:
            _follow_parent()
        rules = load(policy, time.time())
        where = _listen_at(listen)
        servers = _servers(resolver or [])
        _serve(rules, lambda: load(policy, time.time()), where, servers, journal, ready_fd, parent_pid)


def _serve(
    rules: Policy,
    reload: Callable[[], Policy],
    where: tuple[Address, int],
    servers: tuple[tuple[str, int], ...],
    journal_file: Path | None,
    ready_fd: int,
    parent_pid: int | None,
) -> None:
    from proxy.journal import Journal
    from proxy.session import Session
    from proxy.worker import Listener, serve

    listener = _bind(*where)
    journal = Journal(str(journal_file) if journal_file else None)
    try:
        serve(
            [Listener(listener, Session("proxy", rules))],
            servers=servers,
            journal=journal,
            started=lambda: _say_ready(ready_fd, listener, rules),
            reload=reload,
            parent_pid=parent_pid,
        )
    finally:
        journal.close()


def _bind(address: Address, port: int) -> socket.socket:
    """Bind the listening socket. Raises Broken that names the port and the remedy."""
    where = _shown(address, port)
    if not address.is_loopback:
        sys.stderr.write(
            f"stockade: WARNING: {where} is not a loopback address. Whoever reaches this port is let out under "
            "this policy; there is no password. Use --listen 127.0.0.1:0 unless a firewall guards it.\n"
        )
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((str(address), port))
    except OSError as error:
        listener.close()
        remedy = _REMEDIES.get(error.errno or 0, "").format(port=port)
        raise Broken(f"cannot listen on {where}: {error.strerror}; {remedy}use --listen 127.0.0.1:0 for a free port") from None
    return listener


def _say_ready(ready_fd: int, listener: socket.socket, rules: Policy) -> None:
    """Write the ready line (DESIGN §9). Raises Broken when nobody can read it."""
    host, port = listener.getsockname()[:2]
    line = {
        "ready": True,
        "listen": _shown(ip_address(host), port),
        "pid": os.getpid(),
        "revision": rules.revision,
        "ca": None,
    }
    data = json.dumps(line).encode("ascii") + b"\n"
    try:
        while data:
            data = data[os.write(ready_fd, data) :]
    except OSError as error:
        raise Broken(f"the ready line cannot be written to descriptor {ready_fd}: {error.strerror}; see --ready-fd") from None
    if ready_fd > 2:
        os.close(ready_fd)


def _listen_at(text: str) -> tuple[Address, int]:
    """Read ADDR:PORT, IPv6 in brackets, port 0 for a free one. Raises BadPolicy."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    try:
        if not (port.isascii() and port.isdecimal() and int(port) <= 65_535):
            raise ValueError(port)
        return ip_address(host), int(port)
    except ValueError:
        raise BadPolicy((f"--listen {text}: write an address and a port, as in 127.0.0.1:3128 or [::1]:0; no name",)) from None


def _servers(texts: list[str]) -> tuple[tuple[str, int], ...]:
    """Read the DNS servers to ask; the system's when none is named. Raises BadPolicy or Broken."""
    from proxy.dns_servers import read_server, system_servers

    if not texts:
        return system_servers()
    try:
        return tuple(read_server(text) for text in texts)
    except Broken as error:
        raise BadPolicy((f"--resolver: {error}",)) from None


def _shown(address: Address, port: int) -> str:
    return f"[{address}]:{port}" if isinstance(address, IPv6Address) else f"{address}:{port}"


def _follow_parent() -> None:
    """Have the kernel send SIGUSR1 when the thread that started us ends; the worker then looks at its process.

    A signal that kills (PR_SET_PDEATHSIG's usual one) would end us with a thread of a parent that lives on.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGUSR1), 0, 0, 0):
        raise Broken(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")


@contextlib.contextmanager
def _faults_told() -> Iterator[None]:
    """Say whose fault it was, and exit with its status."""
    try:
        yield
    except BadPolicy as error:
        sys.stderr.write("".join(f"stockade: {problem}\n" for problem in error.problems))
        raise typer.Exit(BAD_INPUT) from None
    except Broken as error:
        sys.stderr.write(f"stockade: {error}\n")
        raise typer.Exit(1) from None
