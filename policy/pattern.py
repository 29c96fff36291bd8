"""What a person may write for a host, a network or ports in a policy, and what to write instead of the rest."""

import re
from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from policy.address import NAT64_LENGTHS, hard_blocks
from policy.errors import BadClient
from policy.grant import HostPattern
from policy.host import Name, read_host
from policy.networks import Network
from policy.quote import quote

_NETWORK: Final = re.compile(r"[0-9A-Fa-f:.]+(/[0-9]{1,3})?")
_NAT64_BLOCKS: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
"""The hard rows that are prefixes of NAT64 themselves (RFC 6052, RFC 8215)."""
_SUGGESTED_COUNT: Final = 4
"""Subnets worth spelling out in an error; more of them help nobody."""


class BadSpelling(ValueError):  # noqa: N818 - STYLE's names say whose fault it is
    """A value that means nothing or too much; the text says what is wrong and what to write instead."""


def read_pattern(text: str) -> HostPattern:
    """`name` or `*.name` (POLICY §1). Raises BadSpelling."""
    if not text.strip():
        raise BadSpelling('an empty host; write a name such as "pypi.org", or remove it')
    if text in ("*", "*."):
        raise BadSpelling(
            'a bare * would mean every host; write preset = "public-web" in a grant for every public host, and nothing'
            " in a refuse rule: what no grant names is refused already"
        )
    if "://" in text:
        raise BadSpelling(f"{quote(text)} is a URL; write only its host{_host_of(text)}")
    if text != text.strip():
        raise BadSpelling(f"{quote(text)} has spaces around it; write {quote(text.strip())}")
    if "@" in text:
        raise BadSpelling(f"{quote(text)} carries a user; write only the host {quote(text.rpartition('@')[2])}")
    if "/" in text:
        raise BadSpelling(f"{quote(text)} is {_slashed(text)}")
    below = text.startswith("*.")
    rest = text[2:] if below else text
    if "*" in rest:
        raise BadSpelling(f'{quote(text)} has a star that is not a leading "*."; name the hosts, or the domain above them')
    _refuse_literal(text, rest)
    try:
        host = read_host(rest)
    except BadClient as error:
        raise BadSpelling(f'{error.detail}; write a plain name such as "pypi.org"') from None
    assert isinstance(host, str)  # an address was refused above
    if below and is_public_suffix(host):
        raise BadSpelling(f'{quote(text)} is everybody under the public suffix {host}; name the owner too: "*.name.{host}"')
    return HostPattern(host, below)


def read_network(text: str) -> Network:
    """A network without host bits that does not touch the hard floor. Raises BadSpelling."""
    network = read_refused_network(text)
    if network.prefixlen == 0:
        raise BadSpelling(f'{quote(text)} is every address; write preset = "public-web" for every public one')
    blocks = hard_blocks(network)
    if blocks:
        raise BadSpelling(f"{quote(text)} touches {blocks[0]}, which no policy may open{_without(network)}")
    return network


def read_refused_network(text: str) -> Network:
    """A network that a refuse rule names: as `read_network`, and the hard floor and everything may be named."""
    if not _NETWORK.fullmatch(text):  # ip_network takes netmasks and zone ids too
        raise BadSpelling(_network_fault(text))
    try:
        network = ip_network(text)
    except ValueError:
        raise BadSpelling(_network_fault(text)) from None
    if isinstance(network, IPv6Network) and network.subnet_of(IPv6Network("::ffff:0:0/96")):
        inner = IPv4Network((int(network.network_address) & 0xFFFF_FFFF, network.prefixlen - 96))
        raise BadSpelling(f'{quote(text)} is IPv4 written as IPv6; write "{inner}"')
    return network


def read_nat64_prefix(text: str) -> IPv6Network:
    """A site's NAT64 prefix of an RFC 6052 §2.2 length. Raises BadSpelling."""
    try:
        prefix = IPv6Network(text)
    except ValueError:
        raise BadSpelling(f'{quote(text)} is no IPv6 network without host bits; write it as "2001:db8:64::/96"') from None
    if prefix.prefixlen not in NAT64_LENGTHS:
        lengths = ", ".join(map(str, NAT64_LENGTHS))
        raise BadSpelling(f"{quote(text)} has a length that RFC 6052 does not know; it is one of {lengths}")
    if prefix.prefixlen == 96 and (int(prefix.network_address) >> 56) & 0xFF:
        raise BadSpelling(f"{quote(text)} has bits 64 to 71 set, which RFC 6052 keeps zero; check the prefix")
    # An address under a prefix counts as what it carries, which must not be the way past the hard floor.
    blocks = [block for block in hard_blocks(prefix) if block.network not in _NAT64_BLOCKS]
    if blocks:
        raise BadSpelling(f"{quote(text)} touches {blocks[0]}, which is no NAT64's; check the prefix")
    return prefix


def read_ports(value: int | str) -> range:
    """A port, or `"9000-9010"`. Raises BadSpelling."""
    if isinstance(value, int):
        if not 1 <= value <= 65_535:
            raise BadSpelling(f"{value} is no port; write a number from 1 to 65535")
        return range(value, value + 1)
    if value.isascii() and value.isdecimal():
        raise BadSpelling(f"{quote(value)} is one port; write it without quotes")
    first, dash, last = value.partition("-")
    if not (dash and all(part.isascii() and part.isdecimal() and part[0] != "0" for part in (first, last) if part)):
        raise BadSpelling(f'{quote(value)} is no range of ports; write "9000-9010", and one port as a number without quotes')
    if not first or not last or not 1 <= int(first) <= int(last) <= 65_535:
        raise BadSpelling(f"{quote(value)} is no range of ports; write the lower one first, both from 1 to 65535")
    return range(int(first), int(last) + 1)


def is_public_suffix(name: Name) -> bool:
    """Whether names directly below `name` belong to different owners (publicsuffix.org, the packaged list)."""
    from publicsuffixlist import PSLFILE, PublicSuffixList

    # Only the rules of one top-level domain: reading the whole list costs 0.1 s.
    top = name.rpartition(".")[2]
    with open(PSLFILE, "rb") as rules:
        every = rules.read().decode("utf-8").splitlines()
    near = every if top.startswith("xn--") else [line for line in every if line.endswith(top)]
    lines = [line for line in near if _ends_in(line, top)]
    suffix = PublicSuffixList(lines).publicsuffix(name)
    return bool(suffix == name)


def _ends_in(line: str, top: str) -> bool:
    """Whether a rule of the list is about the top-level domain `top`; rules in Unicode are kept for their A-label."""
    rule = line.strip()
    if rule.startswith("//") or not rule:
        return False
    last = rule.rpartition(".")[2]
    return last == top or (top.startswith("xn--") and not last.isascii())


def _host_of(url: str) -> str:
    host = url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0]
    return f", {quote(host)}" if host else ""


def _slashed(text: str) -> str:
    try:
        return f"a network; {_as_network(ip_network(text, strict=False))}"
    except ValueError:
        return f"a host with a path; write only the host {quote(text.partition('/')[0])}"


def _as_network(network: Network) -> str:
    blocks = hard_blocks(network)
    return f"remove it: no policy may open {blocks[0]}" if blocks else f'write addresses = ["{network}"]'


def _refuse_literal(text: str, rest: str) -> None:
    bare = rest.removeprefix("[").partition("]")[0] if rest.startswith("[") else rest
    try:
        address = ip_address(bare)
    except ValueError:
        pass
    else:
        raise BadSpelling(f"{quote(text)} is an address; {_as_network(ip_network(address))}")
    if rest.startswith("["):
        raise BadSpelling(f"{quote(text)} has brackets, which are for IPv6 addresses; write the name alone")
    if ":" in rest:
        host, _, port = rest.rpartition(":")
        number = port if port.isdecimal() else "443"
        raise BadSpelling(f"{quote(text)} has a port; write the host {quote(host)} and ports = [{number}]")


def _network_fault(text: str) -> str:
    try:
        if "%" not in text:
            return f'{quote(text)} has host bits or a netmask; write "{ip_network(text, strict=False)}"'
    except ValueError:
        pass
    return f'{quote(text)} is no network; write it as "10.1.0.0/16" or "10.1.2.3/32", names under hosts'


def _without(network: Network) -> str:
    """The rest of `network` when the hard floor is cut out of it, if that can be said shortly."""
    rest: list[Network] = [network]
    for block in hard_blocks(network):
        rest = [part for left in rest for part in _cut(left, block.network)]
    if not rest:
        return "; remove it"
    if len(rest) > _SUGGESTED_COUNT:
        return "; write only the subnets that are needed"
    return "; write " + ", ".join(f'"{part}"' for part in sorted(rest, key=lambda part: int(part.network_address)))


def _cut(network: Network, hole: Network) -> Iterator[Network]:
    if isinstance(network, IPv4Network) and isinstance(hole, IPv4Network):  # noqa: SIM114 - mypy narrows each alone
        if network.subnet_of(hole):
            return
        yield from network.address_exclude(hole) if hole.subnet_of(network) else (network,)
    elif isinstance(network, IPv6Network) and isinstance(hole, IPv6Network):
        if network.subnet_of(hole):
            return
        yield from network.address_exclude(hole) if hole.subnet_of(network) else (network,)
