"""One `[[test]]` of a policy: a target, what must become of it, and the DNS it is tried with."""

from dataclasses import dataclass, field
from typing import Any, Literal

from policy.verdict import Reason


@dataclass(frozen=True, slots=True)
class Trial:
    """`dns` has the shape of the file of `explain --dns`: name to A, AAAA, CNAME, rcode, AAAA_rcode."""

    to: str
    expect: Literal["allow", "refuse", "invalid"]
    reason: Reason | None = None
    dns: dict[str, dict[str, Any]] = field(default_factory=dict)
    line: int = 0
