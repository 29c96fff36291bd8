"""A plan as bubblewrap's arguments: what the command sees of the machine, in mounts."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from policy.errors import Broken
from sandbox import ssh
from sandbox.plan import Plan

ETC: Final = (
    *(
        "/etc/alternatives",
        "/etc/ca-certificates",
        "/etc/ca-certificates.conf",
        "/etc/crypto-policies",
        "/etc/pki/tls",
    ),
    *(
        "/etc/pki/ca-trust",
        "/etc/ld.so.cache",
        "/etc/ld.so.conf",
        "/etc/ld.so.conf.d",
        "/etc/localtime",
        "/etc/timezone",
    ),
    *(
        "/etc/mime.types",
        "/etc/protocols",
        "/etc/services",
        "/etc/ssl/certs",
        "/etc/ssl/openssl.cnf",
        "/etc/os-release",
    ),
    "/etc/ssh/ssh_known_hosts",
)
"""Shown read-only where they exist. None may hold a credential: no gitconfig, no pip.conf, no npmrc, no ssl/private."""


def find(search_path: str, workspace_fd: int) -> str:
    """Find the real path of bwrap by the caller's PATH, its absolute entries only. Raises `Broken`.

    What lies in the workspace is passed over, whichever link or mount leads there: an earlier command may have put it
    into some `.venv/bin` or `node_modules/.bin`, and it would run outside the sandbox.
    """
    for directory in search_path.split(":"):
        candidate = Path(directory, "bwrap")
        if directory.startswith("/") and os.access(candidate, os.X_OK):
            real = candidate.resolve()
            if not any(os.path.samestat(above.stat(), os.fstat(workspace_fd)) for above in real.parents):
                return str(real)
    raise Broken(
        "backend bwrap: bubblewrap is not installed (no bwrap in PATH); install it, "
        "on Debian with `apt-get install bubblewrap`"
    )


def contents(plan: Plan) -> dict[str, str]:
    """Write the sandbox's own files, by path: whoever it runs as has a name, and no name resolves by DNS."""
    uid, gid = plan.account.seen_as
    made = {
        "/etc/passwd": (
            f"root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
            f"sandbox:x:{uid}:{gid}:sandbox:{_field(plan.workspace)}:/bin/sh\n"
            f"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        ),
        "/etc/group": f"root:x:0:\nsandbox:x:{gid}:\nnogroup:x:65534:\n",
        "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
        # Nobody listens on this port 53, so a look-up fails at once; names are resolved by the proxy.
        "/etc/resolv.conf": "# The proxy resolves names.\nnameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
    }
    if plan.network == "proxied":
        made |= {ssh.CONFIG_FILE: ssh.CONFIG, ssh.CONNECT_FILE: ssh.CONNECT}
    return made


def _field(path: str) -> str:
    """Write a path as a field of passwd(5), which cannot hold a colon or the end of a line."""
    return "/" if ":" in path or "\n" in path else path


def arguments(plan: Plan, *, workspace_fd: int, status_fd: int, files: Mapping[str, int]) -> list[str]:
    """Write bubblewrap's options for `plan` (bwrap(1)), without its name and the command.

    The network namespace is joined before bubblewrap starts, so it is not unshared here. `files` maps a path of
    `contents` to a descriptor that holds it.
    """
    uid, gid = map(str, plan.account.seen_as)
    made = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    made += ["--disable-userns", "--uid", uid, "--gid", gid, "--hostname", "sandbox"]
    made += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--json-status-fd", str(status_fd)]
    made += ["--ro-bind", "/usr", "/usr"]
    for path, text in plan.host.links:
        made += ["--symlink", text, path] if text is not None else ["--ro-bind", path, path]
    for path in ETC:
        made += ["--ro-bind-try", path, path]
    for path, fd in files.items():
        made += ["--perms", "0555" if path == ssh.CONNECT_FILE else "0444", "--ro-bind-data", str(fd), path]
    made += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    for path in plan.host.masked:
        made += ["--ro-bind", "/dev/null", path]
    made += ["--dev", "/dev", "--perms", "1777", "--size", str(plan.shm_bytes), "--tmpfs", "/dev/shm"]  # noqa: S108
    made += ["--remount-ro", "/dev", "--perms", "1777", "--size", str(plan.tmp_bytes), "--tmpfs", "/tmp"]  # noqa: S108
    made += ["--bind-fd", str(workspace_fd), plan.workspace, "--remount-ro", "/", "--chdir", plan.workspace]
    return made


LAUNCH: Final = ("/bin/sh", "-c", 'exec "$@"', "stockade")
"""A shell that only becomes the command: 126 and 127 then mean what they mean there; bubblewrap says 1 for both."""
