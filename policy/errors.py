"""The errors that say whose fault it was; a refusal is a Verdict, not one of these."""

from policy.verdict import Reason


class BadClient(Exception):  # noqa: N818 - STYLE's names say whose fault it is
    """The peer said something that cannot be read; `reason` is what to answer, `detail` a sentence for a person."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class BadPolicy(Exception):  # noqa: N818
    """The operator's file is wrong; `problems` holds every problem found, one printable line each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Broken(Exception):  # noqa: N818
    """The kernel, the disk or the network failed us; the message names the thing, the reason and the remedy."""
