"""A command's environment, written from nothing: what programs need to start, and where the proxy is."""

import re
from collections.abc import Mapping
from typing import Final

from policy.limits import PROXY_PORT

SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NO_PROXY: Final = "localhost,127.0.0.1,::1"
"""The sandbox's own loopback, as whole names and addresses: clients disagree about networks, stars and dots."""
_ZONE: Final = re.compile(r"[A-Za-z0-9_+\-]+(/[A-Za-z0-9_+\-]+){0,2}", re.ASCII)


def compose(workspace: str, *, proxied: bool, caller: Mapping[str, str]) -> dict[str, str]:
    """Write the whole environment. Of the caller's, only TZ is read, and only a zone's name.

    One HTTP proxy URL in every variable, upper and lower case: it is the one spelling that curl, git, pip, npm,
    Python, Go, Java's tools and gRPC all read alike. The variables are comfort; the namespace has no other way out
    with or without them.
    """
    made = {
        "PATH": SEARCH_PATH,
        "HOME": workspace,
        "PWD": workspace,
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }
    zone = caller.get("TZ", "")
    if _ZONE.fullmatch(zone):
        made["TZ"] = zone
    if proxied:
        url = f"http://127.0.0.1:{PROXY_PORT}"
        for name, value in (
            ("HTTP_PROXY", url),
            ("HTTPS_PROXY", url),
            ("ALL_PROXY", url),
            ("NO_PROXY", NO_PROXY),
        ):
            made[name] = made[name.lower()] = value
        made["NODE_USE_ENV_PROXY"] = "1"  # Node's fetch reads the variables only when told to (Node 22.21 and 24)
    return made
