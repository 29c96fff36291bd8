"""What a process may do is read from the kernel's own words."""

import pytest

from firewall.standing import CAP_SETUID, Range, Standing, read_ranges, remedy

ALL = (1 << 41) - 1
WHOLE = (Range(0, 0, 4_294_967_295),)


def standing(capabilities=ALL, uids=WHOLE, groups=True):
    return Standing(capabilities, uids, uids, groups)


@pytest.mark.parametrize(
    ("here", "may_switch"),
    [
        (standing(), True),
        (standing(capabilities=0), False),
        (standing(capabilities=ALL & ~(1 << CAP_SETUID)), False),
        (standing(uids=(Range(0, 1000, 1),)), False),
        (standing(uids=(Range(0, 1000, 1), Range(1, 100_000, 65_536))), True),
        (standing(groups=False), False),
    ],
)
def test_switching_users_needs_the_right_the_ids_and_the_groups(here, may_switch):
    assert here.may_switch is may_switch


def test_a_map_reads_back():
    ranges = read_ranges("         0       1000          1\n         1     100000      65536\n")
    assert ranges == (Range(0, 1000, 1), Range(1, 100_000, 65_536))
    here = standing(uids=ranges)
    assert [here.outside_uid(uid) for uid in (0, 1, 65_536, 65_537)] == [1000, 100_000, 165_535, None]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces="),
        ("user/max_net_namespaces", "0", "sysctl user.max_net_namespaces="),
        ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor"),
    ],
)
def test_the_remedy_names_the_switch_that_is_off(tmp_path, name, value, said):
    switch = tmp_path / name
    switch.parent.mkdir(parents=True)
    switch.write_text(value + "\n")
    assert said in remedy(None, tmp_path)


def test_without_a_switch_the_error_decides(tmp_path):
    assert "used up" in remedy(OSError(28, "No space left on device"), tmp_path)
    assert "seccomp" in remedy(PermissionError(1, "Operation not permitted"), tmp_path)
    assert "bwrap" in remedy(None, tmp_path)
