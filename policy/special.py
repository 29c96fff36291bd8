"""Names that are refused whatever they resolve to (POLICY §3, "Names")."""

from dataclasses import dataclass
from typing import Final

from policy.host import Name


@dataclass(frozen=True, slots=True)
class SpecialName:
    """One row: a name, refused with all that is below it."""

    suffix: str
    title: str
    source: str
    is_metadata: bool = False

    def __str__(self) -> str:
        return f"{self.suffix} ({self.title}, {self.source})"


SINGLE_LABEL: Final = SpecialName("single label", "looked up in local search domains", "RFC 7085")

_NAMES: Final = (
    SpecialName("localhost", "this host", "RFC 6761"),
    SpecialName("localdomain", "this host", "common host files"),
    SpecialName("local", "multicast DNS", "RFC 6762"),
    SpecialName("internal", "private use", "ICANN 2024-07-29"),
    SpecialName("intranet", "private networks", "RFC 6762 appendix G"),
    SpecialName("private", "private networks", "RFC 6762 appendix G"),
    SpecialName("corp", "private networks", "RFC 6762 appendix G"),
    SpecialName("home", "private networks", "RFC 6762 appendix G"),
    SpecialName("lan", "private networks", "RFC 6762 appendix G"),
    SpecialName("home.arpa", "home networks", "RFC 8375"),
    SpecialName("test", "testing", "RFC 6761"),
    SpecialName("example", "documentation", "RFC 6761"),
    SpecialName("invalid", "never a name", "RFC 6761"),
    SpecialName("onion", "Tor", "RFC 7686"),
    SpecialName("alt", "not DNS", "RFC 9476"),
    SpecialName("arpa", "infrastructure", "RFC 3172"),
    SpecialName("svc", "Kubernetes service", "Kubernetes DNS specification"),
    SpecialName("kubernetes.default", "Kubernetes service", "Kubernetes DNS specification"),
    SpecialName("consul", "Consul service", "Consul DNS interface"),
    SpecialName("metadata.google.internal", "Google Cloud", "cloud metadata", is_metadata=True),
    SpecialName("metadata.goog", "Google Cloud", "cloud metadata", is_metadata=True),
    SpecialName("instance-data.ec2.internal", "AWS", "cloud metadata", is_metadata=True),
    SpecialName("metadata.azure.internal", "Azure", "cloud metadata", is_metadata=True),
    SpecialName("metadata.tencentyun.com", "Tencent Cloud", "cloud metadata", is_metadata=True),
    SpecialName("metadata.packet.net", "Equinix Metal", "cloud metadata", is_metadata=True),
    SpecialName("metadata.platformequinix.com", "Equinix Metal", "cloud metadata", is_metadata=True),
    SpecialName("api.metadata.cloud.ibm.com", "IBM Cloud", "cloud metadata", is_metadata=True),
    SpecialName("metadata.exoscale.com", "Exoscale", "cloud metadata", is_metadata=True),
)
SPECIAL_NAMES: Final = {Name(row.suffix): row for row in _NAMES}
_DEPTH: Final = max(suffix.count(".") for suffix in SPECIAL_NAMES)


def special(name: Name) -> SpecialName | None:
    """The row that refuses `name`, the most specific one; None for an ordinary name. Compiled tables hold the same."""
    at = name.rfind(".")
    if at < 0:
        return SPECIAL_NAMES.get(name, SINGLE_LABEL)
    found = SPECIAL_NAMES.get(Name(name[at + 1 :]))
    for _ in range(_DEPTH):
        if at < 0:
            break
        at = name.rfind(".", 0, at)
        found = SPECIAL_NAMES.get(Name(name[at + 1 :]), found)
    return found
