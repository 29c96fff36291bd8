"""The verdict on one target step by step, by the very functions that the proxy runs (POLICY §8)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from policy.address import REGISTRY_DATE
from policy.answer import Answer
from policy.destination import Destination, read_authority, read_url
from policy.errors import BadClient
from policy.host import Address, Name
from policy.judge import admit, judge
from policy.layers import Layer, Policy, combine
from policy.remedy import remedy
from policy.request import read_method
from policy.script import read_script
from policy.trial import Trial
from policy.verdict import Verdict

type Word = Literal["allow", "refuse", "invalid"]
type Ask = Callable[[Name], Answer]

_READABLE: Final = ("http", "ws")
"""Schemes whose request head reaches the proxy in clear text."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A verdict and how it came about; `because` has one line for each step."""

    word: Word
    verdict: Verdict
    destination: Destination | None
    addresses: tuple[Address, ...]
    because: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The object that `explain --json` prints."""
        verdict, destination = self.verdict, self.destination
        return {
            "verdict": self.word,
            "reason": verdict.reason.value,
            "grant": verdict.grant,
            "rule": verdict.rule,
            "layer": verdict.layer,
            "host": str(destination.host) if destination else None,
            "port": destination.port if destination else None,
            "addresses": [str(address) for address in self.addresses],
            "would_refuse": verdict.would_refuse.value if verdict.would_refuse else None,
            "revision": verdict.revision,
            "registry": REGISTRY_DATE,
            "because": list(self.because),
        }


def explain(
    policy: Policy,
    target: str,
    ask: Ask,
    now_s: float,
    *,
    form: Literal["url", "connect"] = "url",
    method: str | None = None,
) -> Explanation:
    """What becomes of `target`, a URL or `host:port`; `ask` is asked only for a name that may be resolved.

    `method` (GET without it) is judged where the proxy reads the request: plain HTTP.
    """
    try:
        asked = None if method is None else read_method(method)
        path, scheme = None, "tcp"
        if form == "connect":
            destination = read_authority(target)
        else:
            url = read_url(target)
            destination, path, scheme = url.destination, url.path, url.scheme
    except BadClient as error:
        return invalid(error, policy.revision)
    because = [f"The target is {destination}."]
    if scheme in _READABLE:
        method = asked or "GET"
        because.append(f"The proxy reads the request: {method} {path}.")
    else:
        method = path = None
        because.append("The proxy carries a tunnel and does not read what is in it.")
    verdict = judge(policy, destination, now_s, method=method, path=path)
    if not verdict.allowed:
        return Explanation("refuse", verdict, destination, (), (*because, *_say(verdict, destination)))
    name = destination.name
    if name is None:
        verdict, pin = admit(policy, destination, None, now_s, method=method, path=path)
    else:
        because.append(f"{name} may be resolved{_by(verdict)}.")
        answer = ask(name)
        because += _say_answer(answer)
        verdict, pin = admit(policy, destination, answer, now_s, method=method, path=path)
    addresses = pin.addresses if pin else ()
    return Explanation(
        "allow" if verdict.allowed else "refuse",
        verdict,
        destination,
        addresses,
        (*because, *_say(verdict, destination)),
    )


def invalid(error: BadClient, revision: str = "none") -> Explanation:
    """The explanation of a target that cannot be read."""
    verdict = Verdict(False, error.reason, revision=revision, detail=f"{error.detail[:1].upper()}{error.detail[1:]}.")
    return Explanation("invalid", verdict, None, (), (verdict.detail,))


def run_trial(layer: Layer, trial: Trial, now_s: float) -> tuple[bool, Explanation]:
    """Whether one `[[test]]` of `layer` holds; it is judged by that layer alone, whose author wrote it."""
    found = explain(combine([layer]), trial.to, read_script(trial.dns), now_s)
    holds = found.word == trial.expect and trial.reason in (None, found.verdict.reason)
    return holds, found


def _by(verdict: Verdict) -> str:
    if verdict.would_refuse:
        return f": report mode lets it pass, enforce mode would say {verdict.would_refuse}"
    return f" by the grant {verdict.grant} of {verdict.layer}"


def _say_answer(answer: Answer) -> list[str]:
    said = [f"It is an alias of {link}." for link in answer.chain]
    if answer.failed:
        return [*said, f"DNS has no address: {answer.detail}."]
    return [*said, f"Its addresses: {', '.join(map(str, answer.addresses))}."]


def _say(verdict: Verdict, destination: Destination) -> list[str]:
    if verdict.allowed:
        return [verdict.detail or f"Allowed by the grant {verdict.grant} of {verdict.layer}."]
    wanted = remedy(verdict, destination)
    return [verdict.detail, *([wanted] if wanted else [])]
