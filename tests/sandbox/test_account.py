"""Who a workspace's commands run as: a table of who started it, whose the directory is, and what the kernel allows."""

import pytest

from firewall.standing import Range, Standing
from policy.errors import Broken
from policy.limits import WORKSPACE_UID_COUNT, WORKSPACE_UID_FIRST
from sandbox.account import Account, choose, taken_uids

ALL = (1 << 41) - 1
WHOLE = (Range(0, 0, 4_294_967_295),)
ROOT = Standing(ALL, WHOLE, WHOLE, True)
ORDINARY = Standing(0, WHOLE, WHOLE, True)
ALONE = Standing(ALL, (Range(0, 1000, 1),), (Range(0, 1000, 1),), False)
ALONE_AS_IS = Standing(ALL, (Range(1000, 1000, 1),), (Range(1000, 1000, 1),), False)
ROOT_ALONE = Standing(ALL, (Range(0, 0, 1),), (Range(0, 0, 1),), False)
CONTAINER = Standing(ALL, (Range(0, 100_000, 65_536),), (Range(0, 100_000, 65_536),), True)


@pytest.mark.parametrize(
    ("here", "mine", "owner", "expected"),
    [
        (ROOT, (0, 0), (1000, 100), Account(1000, 100, switched=True)),
        (ROOT, (0, 0), (1000, 0), Account(1000, 1000, switched=True)),
        (ORDINARY, (1000, 1000), (1000, 1000), Account(1000, 1000, switched=False, inner_uid=1000, inner_gid=1000)),
        (ORDINARY, (1000, 1000), (0, 0), Account(1000, 1000, switched=False, inner_uid=1000, inner_gid=1000)),
        (ALONE, (0, 0), (0, 0), Account(0, 0, switched=False, inner_uid=1000, inner_gid=1000)),
        (ALONE_AS_IS, (1000, 1000), (1000, 1000), Account(1000, 1000, switched=False, inner_uid=1000, inner_gid=1000)),
    ],
)
def test_the_account(here, mine, owner, expected):
    assert choose(here, mine, owner, "/srv/job") == expected


def test_a_workspace_of_root_gets_a_uid_of_its_own():
    first = choose(ROOT, (0, 0), (0, 0), "/srv/a")
    assert first.claims
    assert first.switched
    assert WORKSPACE_UID_FIRST <= first.uid < WORKSPACE_UID_FIRST + WORKSPACE_UID_COUNT
    assert first == choose(ROOT, (0, 0), (0, 0), "/srv/a")
    assert first.uid != choose(ROOT, (0, 0), (0, 0), "/srv/b").uid
    assert choose(ROOT, (0, 0), (0, 0), "/srv/a", {first.uid}).uid == first.uid + 1


def test_where_few_ids_are_mapped_the_uid_is_one_of_them():
    uid = choose(CONTAINER, (0, 0), (0, 0), "/srv/a").uid
    assert 32_768 <= uid < 65_536
    assert CONTAINER.outside_uid(uid) is not None


@pytest.mark.parametrize("here", [ROOT_ALONE, Standing(0, WHOLE, WHOLE, True)])
def test_the_hosts_root_is_refused(here):
    with pytest.raises(Broken, match="the host's root"):
        choose(here, (0, 0), (0, 0), "/srv/a")


def test_an_owner_without_a_uid_here_is_refused():
    with pytest.raises(Broken, match="no uid in this user namespace"):
        choose(CONTAINER, (0, 0), (70_000, 70_000), "/srv/a")


def test_taken_uids_are_those_of_passwd_and_subuid(tmp_path):
    (tmp_path / "passwd").write_text("root:x:0:0::/:/bin/sh\nbuild:x:2000005:100::/:/bin/sh\nbroken line\n")
    (tmp_path / "subuid").write_text("alice:1999999:4\n")
    assert taken_uids(tmp_path) == {2_000_000, 2_000_001, 2_000_002, 2_000_005}
