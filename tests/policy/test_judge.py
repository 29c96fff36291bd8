"""Verdicts, case by case: before DNS and after it, with layers, in report mode, at the end of a grant."""

from ipaddress import IPv4Address, ip_address

import pytest

from policy.answer import Answer
from policy.destination import Destination, read_authority, read_name, read_packed
from policy.document import parse
from policy.host import plain
from policy.judge import admit, judge
from policy.layers import combine
from policy.verdict import Reason

NOW_S = 1_800_000_000.0
PUBLIC = "93.184.215.14"


def policy(*texts, own=()):
    layers = [parse("version = 1\n" + text, f"{name}.toml") for name, text in zip("abcdef", texts, strict=False)]
    return combine(layers, frozenset(map(ip_address, own)))


def ask(rules, authority, *, method=None, path=None, now_s=NOW_S):
    return judge(rules, read_authority(authority), now_s, method=method, path=path)


def answer(rules, authority, *addresses, chain=(), now_s=NOW_S, **head):
    destination = read_authority(authority)
    found = Answer(destination.host, tuple(plain(ip_address(it)) for it in addresses), chain)
    return admit(rules, destination, found, now_s, **head)


GRANT = '[[grant]]\nname = "it"\nhosts = ["a.example.com", "*.b.example.com"]\n'
WEB = '[[grant]]\npreset = "public-web"\n'


@pytest.mark.parametrize(
    ("authority", "reason"),
    [
        ("a.example.com:443", Reason.GRANTED),
        ("A.example.com.:80", Reason.GRANTED),
        ("x.b.example.com:443", Reason.GRANTED),
        ("x.y.b.example.com:443", Reason.GRANTED),
        ("b.example.com:443", Reason.NOT_GRANTED),
        ("xb.example.com:443", Reason.NOT_GRANTED),
        ("xa.example.com:443", Reason.NOT_GRANTED),
        ("x.a.example.com:443", Reason.NOT_GRANTED),
        ("a.example.com.evil.net:443", Reason.NOT_GRANTED),
        ("a.example.com:22", Reason.PORT_NOT_GRANTED),
        ("x.b.example.com:8443", Reason.PORT_NOT_GRANTED),
        ("93.184.215.14:443", Reason.NOT_GRANTED),
        ("127.0.0.1:443", Reason.ADDRESS_LOOPBACK),
        ("10.0.0.1:443", Reason.ADDRESS_PRIVATE),
        ("localhost:443", Reason.NAME_SPECIAL),
        ("metadata.google.internal:80", Reason.NAME_SPECIAL),
        ("api.metadata.cloud.ibm.com:443", Reason.NAME_SPECIAL),
        ("metadata.exoscale.com:80", Reason.NAME_SPECIAL),
        ("100.96.0.96:80", Reason.ADDRESS_METADATA),
    ],
)
def test_before_dns(authority, reason):
    verdict = ask(policy(GRANT), authority)
    assert verdict.reason is reason
    assert verdict.allowed == (reason is Reason.GRANTED)
    assert verdict.layer == "a.toml" and verdict.revision == policy(GRANT).revision
    if verdict.allowed:
        assert verdict.grant == "it"
    else:
        assert verdict.detail


def test_no_policy_permits_nothing():
    empty = combine([])
    assert ask(empty, "example.com:443").reason is Reason.NOT_GRANTED
    assert ask(empty, f"{PUBLIC}:443").reason is Reason.NOT_GRANTED
    assert answer(empty, "example.com:443", PUBLIC)[1] is None
    assert empty.revision == "none"
    for mode in ("enforce", "report"):
        assert not ask(policy(f'mode = "{mode}"'), "example.com:443").allowed, "empty of grants"


@pytest.mark.parametrize(
    ("addresses", "reason", "offender"),
    [
        ((PUBLIC,), Reason.GRANTED, None),
        ((PUBLIC, "2606:4700::1111"), Reason.GRANTED, None),
        (("64:ff9b::808:808",), Reason.GRANTED, None),
        ((PUBLIC, "10.0.0.5"), Reason.ADDRESS_PRIVATE, "10.0.0.5"),
        (("10.0.0.5", PUBLIC), Reason.ADDRESS_PRIVATE, "10.0.0.5"),
        ((PUBLIC, "fd00::5"), Reason.ADDRESS_PRIVATE, "fd00::5"),
        (("127.0.0.1",), Reason.ADDRESS_LOOPBACK, "127.0.0.1"),
        (("::ffff:127.0.0.1",), Reason.ADDRESS_LOOPBACK, "127.0.0.1"),
        (("64:ff9b::7f00:1",), Reason.ADDRESS_LOOPBACK, "64:ff9b::7f00:1"),
        (("64:ff9b::a00:1",), Reason.ADDRESS_PRIVATE, "64:ff9b::a00:1"),
        (("169.254.169.254",), Reason.ADDRESS_LINK_LOCAL, "169.254.169.254"),
        (("100.100.100.200",), Reason.ADDRESS_METADATA, "100.100.100.200"),
        (("224.0.0.1",), Reason.ADDRESS_MULTICAST, "224.0.0.1"),
        (("192.0.2.1",), Reason.ADDRESS_RESERVED, "192.0.2.1"),
        (("2002:a00:1::1",), Reason.ADDRESS_EMBEDDED, "2002:a00:1::1"),
        (("203.0.113.9", "127.0.0.1"), Reason.ADDRESS_LOOPBACK, "127.0.0.1"),
    ],
)
def test_after_dns(addresses, reason, offender):
    verdict, pin = answer(policy(GRANT), "a.example.com:443", *addresses)
    assert verdict.reason is reason
    if reason is Reason.GRANTED:
        assert pin.host == "a.example.com" and pin.port == 443
        assert pin.addresses == tuple(plain(ip_address(it)) for it in addresses)
    else:
        assert pin is None and str(verdict.address) == offender and offender in verdict.detail
        assert verdict.rule and "RFC" in verdict.rule or "metadata" in verdict.rule


def test_dns_that_says_nothing():
    rules, destination = policy(GRANT), read_authority("a.example.com:443")
    for found, reason in (
        (Answer(destination.host, failed=Reason.DNS_FAILED, detail="NXDOMAIN"), Reason.DNS_FAILED),
        (Answer(destination.host, failed=Reason.DNS_TIMEOUT, detail="no reply in time"), Reason.DNS_TIMEOUT),
        (Answer(destination.host), Reason.DNS_FAILED),
        (Answer("other.example.com", (IPv4Address(PUBLIC),)), Reason.DNS_FAILED),
        (None, Reason.DNS_FAILED),
    ):
        verdict, pin = admit(rules, destination, found, NOW_S)
        assert (verdict.allowed, verdict.reason, pin) == (False, reason, None)
        assert found is None or found.detail in verdict.detail


def test_an_answer_never_helps_what_was_refused_before_it():
    verdict, pin = answer(policy(GRANT), "c.example.com:443", PUBLIC)
    assert verdict.reason is Reason.NOT_GRANTED and pin is None


# --- refuse rules


REFUSE = (
    '[[refuse]]\nname = "no"\nhosts = ["bad.b.example.com", "*.worse.example.net"]\naddresses = ["93.184.215.0/24"]\n'
)


def test_a_refuse_rule_beats_every_grant():
    rules = policy(GRANT + WEB + REFUSE)
    for authority in (
        "bad.b.example.com:443",
        "BAD.b.example.com.:443",
        "x.worse.example.net:443",
        f"{PUBLIC}:443",
        f"[::ffff:{PUBLIC}]:443",
        f"[64:ff9b::{PUBLIC}]:443",
    ):
        verdict = ask(rules, authority)
        assert (verdict.reason, verdict.rule) == (Reason.REFUSED_BY_RULE, "no"), authority
    assert ask(rules, "worse.example.net:443").allowed
    assert ask(rules, "x.bad.b.example.com:443").allowed
    verdict, pin = answer(rules, "a.example.com:443", "1.1.1.1", PUBLIC)
    assert (verdict.reason, str(verdict.address), pin) == (Reason.REFUSED_BY_RULE, PUBLIC, None)


def test_a_refuse_rule_that_names_a_link_of_the_chain_wins():
    rules = policy(GRANT + REFUSE)
    assert answer(rules, "a.example.com:443", "1.1.1.1", chain=("cdn.example.net", "e.example.net"))[0].allowed
    for chain in (("x.worse.example.net",), ("cdn.example.net", "bad.b.example.com")):
        verdict, pin = answer(rules, "a.example.com:443", "1.1.1.1", chain=chain)
        assert (verdict.reason, pin) == (Reason.REFUSED_BY_RULE, None)
        assert chain[-1] in verdict.detail


def test_a_chain_over_eight_links_is_refused():
    links = tuple(f"c{at}.example.net" for at in range(9))
    assert answer(policy(GRANT), "a.example.com:443", "1.1.1.1", chain=links[:8])[0].allowed
    assert answer(policy(GRANT), "a.example.com:443", "1.1.1.1", chain=links)[0].reason is Reason.DNS_FAILED


def test_pd04_trailing_dot_and_pd06_case_read_as_one_name():
    """PD-04, PD-06: no spelling of a refused name slips past its rule."""
    rules = policy(WEB + '[[refuse]]\nhosts = ["bad.example.com", "xn--bcher-kva.example.com"]\n')
    for authority in (
        "bad.example.com:443",
        "bad.example.com.:443",
        "BAD.EXAMPLE.COM:443",
        "bAd.example.com.:443",
        "bücher.example.com:443",
        "XN--BCHER-KVA.example.com.:443",
    ):
        assert ask(rules, authority).reason is Reason.REFUSED_BY_RULE, authority
    assert ask(rules, "good.example.com.:443").allowed


def test_ac06_a_narrower_refuse_inside_a_granted_network():
    """AC-06: the refuse rule wins, and its neighbours stay granted."""
    rules = policy('[[grant]]\naddresses = ["10.0.0.0/8"]\n[[refuse]]\naddresses = ["10.9.0.0/16"]\n')
    assert ask(rules, "10.9.1.1:443").reason is Reason.REFUSED_BY_RULE
    assert ask(rules, "10.8.1.1:443").allowed


def test_td05_a_granted_name_opens_no_address():
    """TD-05: a literal needs a grant of addresses, even one that a granted name has."""
    rules = policy(GRANT)
    for authority in (f"{PUBLIC}:443", "1.1.1.1:443", "[2606:4700::1111]:443"):
        assert ask(rules, authority).reason is Reason.NOT_GRANTED


def test_ps02_only_the_ports_that_are_granted():
    """PS-02: without `ports` 443 and 80, with them nothing else."""
    rules = policy(
        '[[grant]]\nhosts = ["a.example.com"]\n[[grant]]\nhosts = ["b.example.com"]\nports = [8443, "9000-9010"]\n'
    )
    for port in (22, 25, 444, 8443, 65535):
        assert ask(rules, f"a.example.com:{port}").reason is Reason.PORT_NOT_GRANTED
    for port in (22, 80, 443, 8999, 9011, 65535):
        assert ask(rules, f"b.example.com:{port}").reason is Reason.PORT_NOT_GRANTED
    for authority in (
        "a.example.com:443",
        "a.example.com:80",
        "b.example.com:8443",
        "b.example.com:9000",
        "b.example.com:9010",
    ):
        assert ask(rules, authority).allowed


def test_ac04_loopback_has_no_exception():
    """AC-04: no policy opens loopback in any form; a mapped literal is never more open than its IPv4."""
    rules = policy(WEB + '[[grant]]\nname = "net"\naddresses = ["10.1.0.0/16"]\nports = [9000]\n')
    for authority in ("127.0.0.1:9000", "[::1]:9000", "[::ffff:127.0.0.1]:9000"):
        assert ask(rules, authority).reason is Reason.ADDRESS_LOOPBACK
    assert ask(rules, "localhost:9000").reason is Reason.NAME_SPECIAL
    assert ask(rules, "10.1.2.3:9000").allowed
    assert ask(rules, "10.1.2.3:9001").reason is Reason.PORT_NOT_GRANTED
    assert ask(rules, "[::ffff:10.1.2.3]:9000").reason is Reason.ADDRESS_PRIVATE


# --- floor exceptions


PRIVATE = '[[grant]]\nname = "mirror"\nhosts = ["pypi.corp.example", "*.int.example.com", "svc.example.com"]\nprivate = ["10.20.0.0/16", "fd12::/16"]\n'


@pytest.mark.parametrize(
    ("authority", "addresses", "reason"),
    [
        ("svc.example.com:443", ("10.20.1.1",), Reason.GRANTED),
        ("svc.example.com:443", ("10.20.1.1", "fd12::1", PUBLIC), Reason.GRANTED),
        ("svc.example.com:443", ("64:ff9b::a14:101",), Reason.GRANTED),
        ("svc.example.com:443", ("10.21.1.1",), Reason.ADDRESS_PRIVATE),
        ("svc.example.com:443", ("10.20.1.1", "10.21.1.1"), Reason.ADDRESS_PRIVATE),
        ("svc.example.com:443", ("10.20.1.1", "127.0.0.1"), Reason.ADDRESS_LOOPBACK),
        ("svc.example.com:443", ("10.20.1.1", "169.254.169.254"), Reason.ADDRESS_LINK_LOCAL),
        ("svc.example.com:443", ("10.20.1.1", "fd00:ec2::254"), Reason.ADDRESS_METADATA),
        ("x.int.example.com:443", ("10.20.1.1",), Reason.GRANTED),
        ("pypi.corp.example:443", ("10.20.1.1",), Reason.GRANTED),
        ("pypi.corp.example:22", ("10.20.1.1",), Reason.NAME_SPECIAL),
        ("other.corp.example:443", ("10.20.1.1",), Reason.NAME_SPECIAL),
    ],
)
def test_private_lifts_the_soft_floor_for_its_hosts(authority, addresses, reason):
    verdict, pin = answer(policy(PRIVATE), authority, *addresses)
    assert verdict.reason is reason
    assert (pin is not None) == (reason is Reason.GRANTED)


def test_a_special_name_needs_its_exact_host_and_private():
    for rule in (
        'hosts = ["db.internal"]',
        'hosts = ["*.internal.example"]\nprivate = ["10.0.0.0/8"]',
        'hosts = ["x.db.internal"]\nprivate = ["10.0.0.0/8"]',
    ):
        assert ask(policy(f"[[grant]]\n{rule}\n"), "db.internal:443").reason is Reason.NAME_SPECIAL
    assert ask(policy('[[grant]]\nhosts = ["db.internal"]\nprivate = ["10.0.0.0/8"]\n'), "db.internal:443").allowed


def test_a_chain_through_a_special_name():
    assert answer(policy(GRANT), "a.example.com:443", PUBLIC, chain=("lb.internal",))[0].reason is Reason.NAME_SPECIAL
    assert answer(policy(PRIVATE), "svc.example.com:443", "10.20.0.1", chain=("lb.internal",))[0].allowed
    for link in ("metadata.google.internal", "metadata.packet.net"):
        assert (
            answer(policy(PRIVATE), "svc.example.com:443", "10.20.0.1", chain=(link,))[0].reason is Reason.NAME_SPECIAL
        )


def test_a_name_is_not_opened_by_a_grant_of_addresses():
    rules = policy(GRANT + '[[grant]]\naddresses = ["10.1.2.3/32"]\n')
    assert ask(rules, "10.1.2.3:443").allowed
    assert answer(rules, "a.example.com:443", "10.1.2.3")[0].reason is Reason.ADDRESS_PRIVATE


def test_private_of_another_port_or_name_does_not_count():
    rules = policy(GRANT + '[[grant]]\nhosts = ["a.example.com"]\nports = [8443]\nprivate = ["10.0.0.0/8"]\n')
    assert answer(rules, "a.example.com:443", "10.1.2.3")[0].reason is Reason.ADDRESS_PRIVATE
    assert answer(rules, "a.example.com:8443", "10.1.2.3")[0].allowed


def test_own_addresses_are_never_reached():
    for rules in (
        policy(WEB + f'[addresses]\nown = ["{PUBLIC}"]\n'),
        policy(WEB, own=[PUBLIC]),
        policy(WEB).with_own(frozenset([ip_address(PUBLIC)])),
    ):
        assert ask(rules, f"{PUBLIC}:443").reason is Reason.ADDRESS_OWN
        assert ask(rules, f"[64:ff9b::{PUBLIC}]:443").reason is Reason.ADDRESS_OWN
        assert answer(rules, "a.example.net:443", PUBLIC)[0].reason is Reason.ADDRESS_OWN
        assert ask(rules, "93.184.215.15:443").allowed
    private = policy('[[grant]]\naddresses = ["10.0.0.0/8"]\n', own=["10.0.0.1", "2a00::1"])
    assert ask(private, "10.0.0.1:443").reason is Reason.ADDRESS_OWN
    assert ask(private, "10.0.0.2:443").allowed
    assert ask(policy(WEB, own=["2a00::1"]), "[2a00::1]:443").reason is Reason.ADDRESS_OWN


def test_site_nat64_prefixes_count_as_what_they_carry():
    rules = policy(
        WEB + '[[grant]]\naddresses = ["10.1.0.0/16"]\n[addresses]\nnat64_prefixes = ["2a00:1450:6400::/56"]\n'
    )
    for inner, reason in (
        ("8:8:808::", Reason.GRANTED),
        ("7f:0:1::", Reason.ADDRESS_LOOPBACK),
        ("a:1:203::", Reason.GRANTED),
        ("a:2:203::", Reason.ADDRESS_PRIVATE),
        ("8:108:808::", Reason.ADDRESS_EMBEDDED),
    ):
        assert ask(rules, f"[2a00:1450:6400:{inner}]:443").reason is reason, inner


def test_of_nested_nat64_prefixes_the_longest_one_counts():
    """A router takes the most specific route, in whatever order the file names them."""
    prefixes = ["2a00:1450::/32", "2a00:1450:808:808::/96"]
    for order in (prefixes, prefixes[::-1]):
        rules = policy(WEB + f"[addresses]\nnat64_prefixes = {order}\n".replace("'", '"'))
        assert ask(rules, "[2a00:1450:808:808::7f00:1]:443").reason is Reason.ADDRESS_LOOPBACK
        assert ask(rules, "[2a00:1450:808:808::808:808]:443").allowed


def test_a_mapped_literal_is_judged_alike_by_every_entry():
    rules = policy('[[grant]]\naddresses = ["10.1.0.0/16"]\n')
    mapped = "::ffff:10.1.2.3"
    for destination in (
        read_authority(f"[{mapped}]:443"),
        read_name(mapped.encode(), 443),
        read_packed(ip_address(mapped).packed, 443),
    ):
        assert judge(rules, destination, NOW_S).reason is Reason.ADDRESS_PRIVATE
    assert judge(rules, read_packed(ip_address("10.1.2.3").packed, 443), NOW_S).allowed


# --- time, requests, report mode


def test_a_grant_ends_at_its_moment():
    rules = policy(
        '[[grant]]\nname = "soon"\nhosts = ["a.example.com"]\naddresses = ["10.1.2.3/32"]\nuntil = 2027-01-31T00:00:00Z\n'
    )
    end_s = 1_801_353_600.0
    for authority in ("a.example.com:443", "10.1.2.3:443"):
        assert ask(rules, authority, now_s=end_s - 0.001).allowed
        verdict = ask(rules, authority, now_s=end_s)
        assert (verdict.reason, verdict.grant) == (Reason.GRANT_EXPIRED, "soon")
    assert answer(rules, "a.example.com:443", PUBLIC, now_s=end_s)[1] is None


READ = '[[grant]]\nname = "read"\nhosts = ["a.example.com"]\nintercept = true\nmethods = ["GET", "HEAD"]\npaths = ["/repos/acme/*", "/pub/**"]\n'


@pytest.mark.parametrize(
    ("method", "path", "reason"),
    [
        (None, None, Reason.NOT_GRANTED),
        ("GET", "/repos/acme/x?y=/../z", Reason.GRANTED),
        ("HEAD", "/pub/a/b/c", Reason.GRANTED),
        ("POST", "/repos/acme/x", Reason.METHOD_NOT_GRANTED),
        ("get", "/repos/acme/x", Reason.METHOD_NOT_GRANTED),
        ("GET", "/repos/acme/x/y", Reason.PATH_NOT_GRANTED),
        ("GET", "/repos/other/x", Reason.PATH_NOT_GRANTED),
        ("GET", "/pub/../repos/other", Reason.REQUEST_INVALID),
        ("GET", "/pub/%2e%2e/repos/other", Reason.REQUEST_INVALID),
        ("GET", "/pub/a%2fb", Reason.REQUEST_INVALID),
        ("GET", "/pub//a", Reason.REQUEST_INVALID),
        ("GET", "*", Reason.REQUEST_INVALID),
        ("GET", None, Reason.REQUEST_INVALID),
    ],
)
def test_intercept_speaks_only_for_requests_that_can_be_read(method, path, reason):
    verdict = ask(policy(READ), "a.example.com:80", method=method, path=path)
    assert verdict.reason is reason
    assert verdict.grant == "read"
    admitted, pin = answer(policy(READ), "a.example.com:80", PUBLIC, method=method, path=path)
    assert (admitted.reason, pin is not None) == (reason, reason is Reason.GRANTED)


def test_a_tunnel_is_not_widened_by_a_grant_with_intercept():
    rules = policy(READ.replace("paths", 'private = ["10.0.0.0/8"]\npaths') + GRANT)
    assert ask(rules, "a.example.com:80").grant == "it"
    assert answer(rules, "a.example.com:80", "10.1.1.1")[0].reason is Reason.ADDRESS_PRIVATE
    assert answer(rules, "a.example.com:80", "10.1.1.1", method="GET", path="/pub/x")[0].grant == "read"
    assert (
        answer(rules, "a.example.com:80", "10.1.1.1", method="PUT", path="/pub/x")[0].reason is Reason.ADDRESS_PRIVATE
    )


def test_paths_do_not_matter_to_grants_without_them():
    assert ask(policy(GRANT), "a.example.com:80", method="GET", path="//../%2f").allowed


def test_report_mode_passes_what_no_grant_names_and_nothing_else():
    rules = policy('mode = "report"\n' + GRANT + REFUSE + '[[grant]]\naddresses = ["10.1.2.3/32"]\nports = [1]\n')
    for authority, would in (
        ("c.example.com:443", Reason.NOT_GRANTED),
        ("a.example.com:22", Reason.PORT_NOT_GRANTED),
        ("1.1.1.1:443", Reason.NOT_GRANTED),
    ):
        verdict = ask(rules, authority)
        assert (verdict.allowed, verdict.would_refuse, verdict.grant) == (True, would, None)
    verdict, pin = answer(rules, "c.example.com:443", "1.1.1.1")
    assert (verdict.would_refuse, pin.addresses) == (Reason.NOT_GRANTED, (IPv4Address("1.1.1.1"),))
    assert ask(rules, "a.example.com:443").would_refuse is None
    for authority, reason in (
        ("bad.b.example.com:443", Reason.REFUSED_BY_RULE), (f"{PUBLIC}:443", Reason.REFUSED_BY_RULE), ("localhost:443", Reason.NAME_SPECIAL),
        ("127.0.0.1:443", Reason.ADDRESS_LOOPBACK), ("10.0.0.1:443", Reason.ADDRESS_PRIVATE), ("10.1.2.3:443", Reason.PORT_NOT_GRANTED),
    ):  # fmt: skip
        assert (ask(rules, authority).allowed, ask(rules, authority).reason) == (False, reason)
    assert answer(rules, "c.example.com:443", "10.0.0.1")[0].reason is Reason.ADDRESS_PRIVATE
    assert answer(rules, "c.example.com:443", PUBLIC)[0].reason is Reason.REFUSED_BY_RULE


# --- layers


def test_every_layer_must_allow():
    rules = policy(WEB, GRANT)
    assert ask(rules, "a.example.com:443").allowed
    assert answer(rules, "a.example.com:443", PUBLIC)[1] is not None
    verdict = ask(rules, "c.example.com:443")
    assert (verdict.reason, verdict.layer) == (Reason.NOT_GRANTED, "b.toml")
    assert ask(policy(GRANT, WEB), "c.example.com:443").layer == "a.toml"


def test_a_refuse_in_any_layer_wins_and_is_what_is_said():
    for texts in ((GRANT + REFUSE, WEB), (WEB, GRANT + REFUSE), (GRANT, REFUSE)):
        assert ask(policy(*texts), "bad.b.example.com:443").reason is Reason.REFUSED_BY_RULE


def test_a_floor_exception_counts_only_where_every_layer_makes_it():
    narrower = PRIVATE.replace("10.20.0.0/16", "10.20.1.0/24")
    assert answer(policy(PRIVATE, PRIVATE), "svc.example.com:443", "10.20.9.9")[0].allowed
    for texts in ((PRIVATE, WEB), (WEB, PRIVATE), (PRIVATE, narrower), (narrower, PRIVATE)):
        assert answer(policy(*texts), "svc.example.com:443", "10.20.9.9")[0].reason is Reason.ADDRESS_PRIVATE
    assert answer(policy(PRIVATE, narrower), "svc.example.com:443", "10.20.1.9")[0].allowed
    nat64 = '[addresses]\nnat64_prefixes = ["64:ff9b:1::/96"]\n'
    assert ask(policy(WEB + nat64, WEB + nat64), "[64:ff9b:1::808:808]:443").allowed
    assert ask(policy(WEB + nat64, WEB), "[64:ff9b:1::808:808]:443").reason is Reason.ADDRESS_EMBEDDED


def test_a_layer_in_report_mode_widens_no_other():
    report = 'mode = "report"\n' + GRANT
    assert ask(policy(report, WEB), "c.example.com:443").would_refuse is Reason.NOT_GRANTED
    assert ask(policy(report, GRANT), "c.example.com:443").reason is Reason.NOT_GRANTED
    assert policy(report, WEB).mode == "report" and policy(WEB).mode == "enforce"


def test_own_addresses_of_any_layer_hold_for_all():
    assert ask(policy(WEB, WEB + f'[addresses]\nown = ["{PUBLIC}"]\n'), f"{PUBLIC}:443").reason is Reason.ADDRESS_OWN


def test_a_higher_limit_needs_every_layer():
    high, low = "[limits]\nconnect_s = 30\n", "[limits]\nconnect_s = 3\n"
    for texts, connect_s in (
        ((high,), 30),
        ((high, high), 30),
        ((high, GRANT), 10),
        ((GRANT, high), 10),
        ((low, high), 3),
        ((low, GRANT), 3),
    ):
        assert policy(*texts).limits.connect_s == connect_s


def test_literals_are_final_and_pinned_to_themselves():
    rules = policy(WEB)
    destination = Destination(IPv4Address(PUBLIC), 443)
    verdict, pin = admit(rules, destination, None, NOW_S)
    assert verdict.allowed and pin.addresses == (IPv4Address(PUBLIC),) and pin.host == IPv4Address(PUBLIC)
    assert admit(rules, Destination(IPv4Address("10.0.0.1"), 443), None, NOW_S)[1] is None
