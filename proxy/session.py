"""One sandbox's identity for one run: who asks, under which policy, and which of its connections live now."""

from typing import Protocol

from policy.layers import Policy


class Live(Protocol):
    """A connection that was let through and is judged again when the policy changes."""

    def rejudge(self) -> None:
        """End it, recorded as `policy-changed` or `session-revoked`, when it would not be let through now."""

    def fail(self, error: Exception) -> None:
        """End it: judging it again raised, and what is not judged is not let through."""


class Session:
    """Identity is the listener that accepted the connection (POLICY §7); `policy` is whole and never half swapped."""

    __slots__ = ("_live", "clients_count", "name", "policy", "revoked")

    def __init__(self, name: str, policy: Policy) -> None:
        self.name = name
        self.policy = policy
        self.revoked = False
        self.clients_count = 0
        """Client connections open now; the front keeps it."""
        self._live: set[Live] = set()

    def keep(self, live: Live) -> None:
        """Judge this connection again at each change, until `forget`."""
        self._live.add(live)

    def forget(self, live: Live) -> None:
        """It ended. Harmless to repeat."""
        self._live.discard(live)

    def adopt(self, policy: Policy) -> None:
        """Swap in a policy for all that is asked from now on, and cut the live connections it refuses.

        Raises ExceptionGroup for connections that could not be judged; they are cut, and the policy is in force.
        """
        self.policy = policy
        self._judge_again()

    def revoke(self) -> None:
        """Let nothing through from now on, and cut every live connection. Raises as `adopt` does."""
        self.revoked = True
        self._judge_again()

    def _judge_again(self) -> None:
        bugs: list[Exception] = []
        for live in tuple(self._live):
            try:
                live.rejudge()
            except Exception as bug:  # noqa: BLE001 - the others must be judged all the same
                live.fail(bug)
                bugs.append(bug)
        if bugs:
            raise ExceptionGroup(f"{self.name}: connections that could not be judged again were cut", bugs)
