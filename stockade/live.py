"""What this machine would answer: its resolver and its own addresses, asked once for a person."""

from collections.abc import Callable

from policy.answer import Answer
from policy.host import Address, Name
from policy.limits import Limits


def ask_resolver(limits: Limits) -> Callable[[Name], Answer]:
    """Ask the servers of resolv.conf by the proxy's own resolver; returns when it answered or gave up.

    The callable raises Broken when no server can be asked.
    """

    def ask(name: Name) -> Answer:
        from proxy.loop import Loop
        from proxy.resolver import Resolver, system_servers

        answers: list[Answer] = []
        loop = Loop()
        resolver = Resolver(loop, system_servers(), limits)
        try:
            resolver.lookup(name, answers.append)
            while not answers:
                loop.turn()
        finally:
            resolver.stop()
            loop.close()
        return answers[0]

    return ask


def own_addresses() -> frozenset[Address]:
    """Every address of this machine, by rtnetlink. Raises Broken."""
    from proxy import own

    return own.own_addresses()
