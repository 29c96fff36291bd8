"""Answers that may still be believed, by name; bounded in time by their TTL and in number by us."""

from policy.answer import Answer
from policy.host import Name
from policy.limits import DNS_CACHE_COUNT, DNS_KEPT_ADDRESSES_COUNT, DNS_NEGATIVE_MOST_S, DNS_TTL_MOST_S


class DnsCache:
    """First in, first out when full; a TTL of 0 is never kept, so such a name is asked for at every pin."""

    def __init__(self) -> None:
        self._kept: dict[Name, tuple[float, Answer]] = {}

    def get(self, name: Name, now_s: float) -> Answer | None:
        """The answer, when one is kept and its time is not over. `now_s` is the monotonic clock."""
        kept = self._kept.get(name)
        if kept is None:
            return None
        if now_s >= kept[0]:
            del self._kept[name]
            return None
        return kept[1]

    def put(self, answer: Answer, now_s: float) -> None:
        """Keep an answer for its TTL, at most DNS_TTL_MOST_S; a failure at most DNS_NEGATIVE_MOST_S."""
        ttl_s = min(answer.ttl_s, DNS_NEGATIVE_MOST_S if answer.failed else DNS_TTL_MOST_S)
        if ttl_s <= 0 or len(answer.addresses) > DNS_KEPT_ADDRESSES_COUNT:
            return
        self._kept.pop(answer.name, None)
        while len(self._kept) >= DNS_CACHE_COUNT:
            del self._kept[next(iter(self._kept))]
        self._kept[answer.name] = now_s + ttl_s, answer

    def __len__(self) -> int:
        return len(self._kept)
