"""Where everything of the lab lives: its names and their addresses, its resolvers, its own two links."""

from ipaddress import ip_interface
from typing import Final

GATEWAY: Final = "gateway"
"""The namespace where a proxy runs and dials from: a default route to the other one, nothing else."""
INTERNET: Final = "internet"
"""The namespace that owns every address there is, and answers for some."""

GATEWAY_LINK: Final = "up"
INTERNET_LINK: Final = "net"
GATEWAY_ADDRESSES: Final = (ip_interface("192.0.2.2/30"), ip_interface("2001:db8:1ab::2/64"))
INTERNET_ADDRESSES: Final = (ip_interface("192.0.2.1/30"), ip_interface("2001:db8:1ab::1/64"))
"""Documentation blocks (RFC 5737, RFC 3849): nobody's, so no name of the lab resolves to them."""

RESOLVERS: Final = ("9.9.9.9", "149.112.112.112", "2620:fe::fe")
"""The lab's DNS servers, all with the same contents. 8.8.8.8 is none of them: it is a canary."""

NAMES: Final[dict[str, dict[str, object]]] = {
    "example.com": {"A": ["93.184.215.14"], "AAAA": ["2606:2800:21f:cb07:6820:80da:af6b:8b2c"]},
    "www.example.com": {"CNAME": "example.com"},
    "app.example.com": {"A": ["93.184.215.14"]},
    "example.net": {"A": ["93.184.215.15"]},
    "pypi.org": {"A": ["151.101.0.223"], "AAAA": ["2a04:4e42::223"]},
    "files.pythonhosted.org": {"A": ["151.101.64.223"], "AAAA": ["2a04:4e42:200::223"]},
    "github.com": {"A": ["140.82.121.3"]},
    "registry.npmjs.org": {"A": ["104.16.0.35"], "AAAA": ["2606:4700::6810:23"]},
    "six.example.net": {"AAAA": ["2606:2800:21f:cb07::6"]},
}
"""The names the lab starts with. A test adds its own, and addresses with `serve_address`."""

ORIGIN_ADDRESSES: Final = frozenset(
    address
    for answer in NAMES.values()
    for family in ("A", "AAAA")
    if isinstance(found := answer.get(family), list)
    for address in found
)
"""Addresses where an origin answers from the start; everything else is a canary."""

CANARY_PORTS: Final = (21, 22, 25, 53, 80, 443, 853, 2375, 3306, 5432, 6379, 8000, 8080, 8443, 9200)
"""Ports where a canary accepts; an attempt on any other port is counted too, and meets a reset."""
