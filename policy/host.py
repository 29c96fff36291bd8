"""A host in its one normal form: a DNS name or an address."""

from ipaddress import IPv4Address, IPv6Address
from typing import NewType

Name = NewType("Name", str)
"""Lower-case LDH labels and underscores, 1-63 octets each, 1-253 in all, no trailing dot, never a number (POLICY §2)."""

type Address = IPv4Address | IPv6Address
"""Never an IPv4-mapped IPv6 address (that becomes the IPv4 it carries), never with a zone id."""

type Host = Name | IPv4Address | IPv6Address
