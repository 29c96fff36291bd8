"""Who a workspace's commands run as: the workspace's own user, and never root outside."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from firewall.standing import Range, Standing
from policy.errors import Broken
from policy.limits import WORKSPACE_UID_COUNT, WORKSPACE_UID_FIRST


@dataclass(frozen=True, slots=True)
class Account:
    """The ids a sandbox's processes have, outside and inside."""

    uid: int
    gid: int
    """Ids in the user namespace we are in; the sandbox's processes have these on the host."""
    switched: bool
    """Whether the child must become them; else it has them already."""
    claims: bool = False
    """The workspace belongs to root and must be given to `uid`, its top directory only."""
    inner_uid: int = -1
    inner_gid: int = -1
    """Ids as the command sees them; the same, unless ours is 0 in a user namespace that maps nothing else."""

    @property
    def seen_as(self) -> tuple[int, int]:
        """`(uid, gid)` inside the sandbox."""
        return (
            self.uid if self.inner_uid < 0 else self.inner_uid,
            self.gid if self.inner_gid < 0 else self.inner_gid,
        )


def choose(
    standing: Standing, mine: tuple[int, int], owner: tuple[int, int], path: str, taken: Collection[int] = ()
) -> Account:
    """Choose the account for the workspace at the real `path`, owned by `owner`, for a process with the ids `mine`.

    A process that may switch users becomes the workspace's owner, or, where root owns it, a uid of its own derived
    from the path and not among `taken`. One that may not stays who it is. Raises `Broken` where that would be the
    host's root.
    """
    uid, gid = mine
    if not standing.may_switch:
        outside = standing.outside_uid(uid)
        if outside in (0, None):
            raise Broken(
                "account: commands would run as the host's root, because this process is root but may not become "
                "anybody else (no CAP_SETUID, or a user namespace that maps root alone); start it as an ordinary user"
            )
        return Account(uid, gid, switched=False, inner_uid=uid or outside or -1, inner_gid=gid or outside or -1)
    if owner[0] != 0:
        if standing.outside_uid(owner[0]) is None:
            raise Broken(f"workspace {path}: its owner has no uid in this user namespace; chown it to one that has")
        return Account(owner[0], owner[1] or owner[0], switched=True)
    own = _derive(standing.uids, path, taken)
    return Account(own, own, switched=True, claims=True)


def _derive(ranges: tuple[Range, ...], path: str, taken: Collection[int]) -> int:
    first, count = WORKSPACE_UID_FIRST, WORKSPACE_UID_COUNT
    if not any(each.inside <= first and first + count <= each.inside + each.size for each in ranges):
        widest = max(ranges, key=lambda each: each.size)
        first, count = (
            widest.inside + widest.size // 2,
            max(1, widest.size // 2 - 1),
        )  # the upper half: no login users
    start = int.from_bytes(hashlib.sha256(path.encode("utf-8", "surrogateescape")).digest()[:8], "big")
    for step in range(count):
        uid = first + (start + step) % count
        if uid not in taken and uid != 0:
            return uid
    raise Broken(f"workspace {path}: no uid is free for it between {first} and {first + count}")


def taken_uids(etc: Path = Path("/etc")) -> frozenset[int]:
    """Read which of the uids meant for workspaces are in /etc/passwd, /etc/subuid or /etc/subgid already."""
    first, after = WORKSPACE_UID_FIRST, WORKSPACE_UID_FIRST + WORKSPACE_UID_COUNT
    found: set[int] = set()
    for name, start_at, count_at in (("passwd", 2, None), ("subuid", 1, 2), ("subgid", 1, 2)):
        try:
            lines = (etc / name).read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        for line in lines:
            fields = line.split(":")
            try:
                start = int(fields[start_at])
                count = 1 if count_at is None else int(fields[count_at])
            except (IndexError, ValueError):
                continue
            found.update(range(max(first, start), min(after, start + count)))
    return frozenset(found)
