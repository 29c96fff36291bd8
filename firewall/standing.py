"""What this process may do here, read from the kernel and never guessed from its uid; and what would allow it more."""

from dataclasses import dataclass
from errno import EACCES, EINVAL, ENOSPC, ENOSYS, EPERM, EUSERS
from pathlib import Path
from typing import Final, NamedTuple

CAP_CHOWN: Final = 0
CAP_SETGID: Final = 6
CAP_SETUID: Final = 7
CAP_SYS_ADMIN: Final = 21


class Range(NamedTuple):
    """One line of a uid_map: `size` ids from `inside` are those from `outside` in the parent (user_namespaces(7))."""

    inside: int
    outside: int
    size: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Capabilities and id maps of the user namespace this process is in."""

    capabilities: int
    """Effective set, one bit each (capabilities(7))."""
    uids: tuple[Range, ...]
    gids: tuple[Range, ...]
    may_set_groups: bool

    def may(self, *capabilities: int) -> bool:
        """Tell whether every one of `capabilities` is effective."""
        return all(self.capabilities >> number & 1 for number in capabilities)

    @property
    def may_switch(self) -> bool:
        """Another uid exists here and this process can become it and give it a directory."""
        ids_count = sum(each.size for each in self.uids)
        return self.may(CAP_CHOWN, CAP_SETGID, CAP_SETUID) and self.may_set_groups and ids_count > 1

    def outside_uid(self, uid: int) -> int | None:
        """Give the uid that `uid` is in the parent user namespace; None when it is not mapped."""
        for each in self.uids:
            if each.inside <= uid < each.inside + each.size:
                return each.outside + uid - each.inside
        return None


def read_ranges(text: str) -> tuple[Range, ...]:
    """Read the lines of /proc/PID/uid_map or gid_map."""
    return tuple(Range(*map(int, line.split())) for line in text.splitlines() if line.strip())


def read(proc: Path = Path("/proc/self")) -> Standing:
    """Read the standing of this process now."""
    status = (proc / "status").read_text("ascii", "replace")
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return Standing(
        capabilities=int(effective.split()[1], 16),
        uids=read_ranges((proc / "uid_map").read_text("ascii")),
        gids=read_ranges((proc / "gid_map").read_text("ascii")),
        may_set_groups=(proc / "setgroups").read_text("ascii").strip() == "allow",
    )


def remedy(error: OSError | None = None, sysctls: Path = Path("/proc/sys")) -> str:
    """Say what most likely forbids a namespace here, and what a person would change; one sentence.

    Reads user.max_user_namespaces, user.max_net_namespaces and the two distributions' own switches.
    """

    def value(name: str) -> str:
        try:
            return (sysctls / name.replace(".", "/")).read_text("ascii").strip()
        except OSError:
            return ""

    for name in ("user.max_user_namespaces", "user.max_net_namespaces"):
        if value(name) == "0":
            return f"{name} is 0 here: set it with `sysctl {name}=15000`, or lift that limit from the container."
    if value("kernel.unprivileged_userns_clone") == "0":
        return (
            "ordinary users may not make user namespaces: `sysctl kernel.unprivileged_userns_clone=1`, or run as root."
        )
    if value("kernel.apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor restricts user namespaces: give bwrap and this Python a profile with `userns,`, "
            "or `sysctl kernel.apparmor_restrict_unprivileged_userns=0`."
        )
    if error is not None and error.errno in (ENOSPC, EUSERS):
        return (
            "the limit of namespaces is used up: end some, or raise user.max_user_namespaces, user.max_net_namespaces."
        )
    if error is not None and error.errno in (EPERM, EACCES, ENOSYS, EINVAL):
        return (
            "a container's seccomp profile or a missing kernel option forbids them: allow unshare, setns, mount and "
            "pivot_root in that profile, or run outside the container."
        )
    return "run `bwrap --ro-bind / / --unshare-user --unshare-net true` to see what is missing."
