"""The environment is written from nothing."""

import pytest

from sandbox.environment import compose

FIXED = {"PATH", "HOME", "PWD", "TMPDIR", "LANG", "TERM"}
PROXY = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}


def test_nothing_of_the_callers_is_in_it():
    caller = dict.fromkeys(
        ("PATH", "HOME", "AWS_SECRET", "LD_PRELOAD", "PYTHONPATH", "HTTP_PROXY", "GIT_DIR"), "secret"
    )
    made = compose("/srv/job", proxied=False, caller=caller)
    assert set(made) == FIXED
    assert "secret" not in made.values()


def test_proxied_adds_the_proxys_address_in_every_spelling():
    made = compose("/srv/job", proxied=True, caller={})
    assert set(made) == FIXED | PROXY | {"NODE_USE_ENV_PROXY"}
    assert {made[name] for name in PROXY if "no" not in name.lower()} == {"http://127.0.0.1:3128"}
    assert made["no_proxy"] == made["NO_PROXY"] == "localhost,127.0.0.1,::1"


@pytest.mark.parametrize("zone", ["Europe/London", "America/Argentina/Buenos_Aires", "UTC", "Etc/GMT+3"])
def test_a_time_zones_name_is_kept(zone):
    assert compose("/w", proxied=False, caller={"TZ": zone})["TZ"] == zone


@pytest.mark.parametrize("zone", ["", "../../etc/shadow", ":/etc/shadow", "/etc/shadow", "A\nB", "UTC ", "Ä"])
def test_anything_else_in_tz_is_not(zone):
    assert "TZ" not in compose("/w", proxied=False, caller={"TZ": zone})
