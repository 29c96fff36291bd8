"""What this machine would answer: its resolver and its own addresses, asked once for a person."""

from policy.answer import Answer
from policy.host import Address, Name
from policy.limits import Limits


def ask_resolver(name: Name, limits: Limits) -> Answer:
    """Ask the servers of resolv.conf by the proxy's own resolver, and wait. Raises Broken without a server."""
    from proxy.dns_servers import system_servers
    from proxy.resolver import resolve_now

    return resolve_now(name, system_servers(), limits)


def own_addresses() -> frozenset[Address]:
    """Every address of this machine, by rtnetlink. Raises Broken."""
    from proxy import own

    return own.own_addresses()
