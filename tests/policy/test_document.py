"""Policy files: what is read, and every way to be wrong with its line, key and remedy."""

from dataclasses import fields
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.document import DnsTable, FileTable, GrantTable, InjectTable, LimitsTable, parse
from policy.errors import BadPolicy
from policy.grant import DEFAULT_PORTS, HostPattern, Inject
from policy.limits import POLICY_CHARS, Limits
from policy.verdict import Reason

WHOLE = """\
version = 1
mode = "report"
[[grant]]
name = "python packages"
hosts = ["PyPI.org", "*.pythonhosted.org.", "bücher.example.com"]
ports = [443, "9000-9010"]
private = ["10.20.0.0/16"]
until = 2027-01-31T00:00:00+01:00
intercept = true
methods = ["GET"]
paths = ["/simple/**"]
[grant.inject]
header = "Authorization"
value = "Bearer {secret:pypi}"
[[grant]]
addresses = ["10.1.2.3/32", "10.1.2.4", "2606:4700::/32"]
[[grant]]
preset = "public-web"
[[refuse]]
name = "trackers"
hosts = ["*.tracker.example.net"]
addresses = ["127.0.0.0/8", "0.0.0.0/0"]
[addresses]
own = ["93.184.215.14", "2606:4700::1"]
nat64_prefixes = ["2a00:1450:64::/96"]
[limits]
connect_s = 3
idle_s = 600.5
connections_count = 7
[[test]]
to = "https://pypi.org/"
expect = "refuse"
reason = "dns-failed"
dns = { "pypi.org" = { rcode = "SERVFAIL" } }
"""


def test_everything_that_the_language_says():
    layer = parse(WHOLE, "whole.toml")
    first, second, third = layer.grants
    assert (first.name, first.line) == ("python packages", 3)
    assert first.hosts == (
        HostPattern("pypi.org"), HostPattern("pythonhosted.org", below=True), HostPattern("xn--bcher-kva.example.com"),
    )  # fmt: skip
    assert first.ports == (range(443, 444), range(9000, 9011)) and first.private == (ip_network("10.20.0.0/16"),)
    assert first.until_s == 1_801_350_000.0
    assert first.intercept and first.methods == ("GET",) and list(map(str, first.paths)) == ["/simple/**"]
    assert first.inject == Inject("Authorization", "Bearer {secret:pypi}")
    assert list(map(str, second.addresses)) == ["10.1.2.3/32", "10.1.2.4/32", "2606:4700::/32"]
    assert second.name == "10.1.2.3/32, 10.1.2.4/32, 2606:4700::/32" and second.ports == DEFAULT_PORTS
    assert third.public_web and third.name == "public-web"
    (rule,) = layer.refuses
    assert (rule.name, rule.line) == ("trackers", 19) and list(map(str, rule.addresses)) == ["127.0.0.0/8", "0.0.0.0/0"]
    assert layer.mode == "report" and layer.file == "whole.toml" and layer.text == WHOLE
    assert layer.own == {ip_address("93.184.215.14"), ip_address("2606:4700::1")}
    assert layer.nat64 == (ip_network("2a00:1450:64::/96"),)
    assert dict(layer.limits) == {"connect_s": 3, "idle_s": 600.5, "connections_count": 7}
    (trial,) = layer.trials
    assert (trial.to, trial.expect, trial.reason, trial.line) == ("https://pypi.org/", "refuse", Reason.DNS_FAILED, 30)
    assert trial.dns == {"pypi.org": {"rcode": "SERVFAIL", "A": [], "AAAA": []}}


def problems(text):
    with pytest.raises(BadPolicy) as error:
        parse(text, "p.toml")
    return error.value.problems


def one(text):
    (problem,) = problems(text)
    return problem


GRANT = 'version = 1\n[[grant]]\nhosts = ["a.example.com"]\n'


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("", "1:version", "missing; write version = 1"),
        ("version = 2", "1:version", "write 1"),
        ('version = "1"', "1:version", "write 1"),
        ("version = 1\nmod = 1", "2:mod", "unknown key; write mode"),
        ("version = 1\nxyzzy = 1", "2:xyzzy", "known here: version, mode, grant"),
        ('version = 1\nmode = "audit"', "2:mode", 'write "enforce" or "report"'),
        ("version = 1\ngrant = 1", "2:grant", "a number (1) where a list in [ ] is wanted"),
        ("version = 1\ngrant = [1]", "2:grant[1]", "where a table is wanted"),
        ("version = 1\n[grant]\n", "2:grant", "where a list in [ ] is wanted; write [[grant]], with two brackets"),
        ("version = 1\n[test]\n", "2:test", "write [[test]], with two brackets"),
        (GRANT + "port = [443]", "4:grant[1].port", "unknown key; write ports"),
        (GRANT + 'hosts2 = "x"', "4:grant[1].hosts2", "write hosts"),
        (GRANT + "ports = 443", "4:grant[1].ports", "a number (443) where a list in [ ] is wanted"),
        (GRANT + "ports = []", "4:grant[1].ports", "an empty list; remove the key"),
        (GRANT + "ports = [0]", "4:grant[1].ports[1]", "write a number from 1 to 65535"),
        (GRANT + "ports = [443, 65536]", "4:grant[1].ports[2]", "write a number from 1 to 65535"),
        (GRANT + 'ports = ["443"]', "4:grant[1].ports[1]", "write it without quotes"),
        (GRANT + 'ports = ["9-8"]', "4:grant[1].ports[1]", "lower one first"),
        (GRANT + 'ports = ["1-99999"]', "4:grant[1].ports[1]", "from 1 to 65535"),
        (GRANT + 'ports = ["-5"]', "4:grant[1].ports[1]", "write the lower one first"),
        (GRANT + 'ports = ["a-b"]', "4:grant[1].ports[1]", 'write "9000-9010"'),
        (GRANT + "ports = [true]", "4:grant[1].ports[1]", "where a port is wanted"),
        (GRANT + "ports = [443.0]", "4:grant[1].ports[1]", "where a port is wanted"),
        (GRANT + "name = 5", "4:grant[1].name", "write it in quotes"),
        (GRANT + 'name = ""', "4:grant[1].name", "write a short phrase"),
        (GRANT + 'name = "a\\nb"', "4:grant[1].name", "write a short phrase"),
        (GRANT + "until = 2027-01-31T00:00:00", "4:grant[1].until", "write 2027-01-31T00:00:00Z"),
        (GRANT + "until = 2027-01-31", "4:grant[1].until", "write it without quotes: 2027-01-31T00:00:00Z"),
        (GRANT + 'until = "2027-01-31T00:00:00Z"', "4:grant[1].until", "write it without quotes"),
        (GRANT + "until = 1801353600", "4:grant[1].until", "where a moment is wanted"),
        (GRANT + "until = 9999-12-31T23:59:59-12:00", "4:grant[1].until", "outside the years"),
        (GRANT + "until = 0001-01-01T00:00:00+12:00", "4:grant[1].until", "outside the years"),
        (GRANT + "intercept = 1", "4:grant[1].intercept", "where true or false is wanted"),
        (GRANT + 'methods = ["GET"]', "4:grant[1].methods", "write intercept = true"),
        (GRANT + 'intercept = false\nmethods = ["GET"]', "5:grant[1].methods", "write intercept = true"),
        (GRANT + 'paths = ["/a"]', "4:grant[1].paths", "write intercept = true"),
        (GRANT + '[grant.inject]\nheader = "A"\nvalue = "b"', "4:grant[1].inject", "write intercept = true"),
        (GRANT + 'intercept = true\nmethods = ["G T"]', "5:grant[1].methods[1]", "no HTTP token"),
        (GRANT + 'intercept = true\nmethods = []', "5:grant[1].methods", "an empty list"),
        (GRANT + 'intercept = true\npaths = ["/a/../b"]', "5:grant[1].paths[1]", "dot segment"),
        (GRANT + 'intercept = true\npaths = ["a"]', "5:grant[1].paths[1]", "does not begin with /"),
        (GRANT + 'intercept = true\n[grant.inject]\nheader = "Host"\nvalue = "b"', "6:grant[1].inject.header", "no header that may be added"),
        (GRANT + 'intercept = true\n[grant.inject]\nheader = "A"\nvalue = "a\\r\\nb"', "7:grant[1].inject.value", "write plain ASCII"),
        (GRANT + 'intercept = true\n[grant.inject]\nheader = "A"\nvalue = "{secret}"', "7:grant[1].inject.value", "{secret:name}"),
        (GRANT + 'intercept = true\n[grant.inject]\nheader = "A"', "5:grant[1].inject.value", "missing"),
        (GRANT + 'private = ["10.0.0.0/8"]\nprivate = []', "5", "not TOML"),
        (GRANT + 'private = ["127.0.0.1/32"]', "4:grant[1].private[1]", "which no policy may open; remove it"),
        (GRANT + 'private = ["169.254.0.0/16"]', "4:grant[1].private[1]", "no policy may open"),
        (GRANT + 'private = ["100.100.100.192/28"]', "4:grant[1].private[1]", 'write "100.100.100.192/29", "100.100.100.201/32", "100.100.100.202/31"'),
        (GRANT + 'private = ["fc00::/7"]', "4:grant[1].private[1]", "write only the subnets that are needed"),
        (GRANT + 'private = ["10.1.2.3/16"]', "4:grant[1].private[1]", 'write "10.1.0.0/16"'),
        (GRANT + 'private = ["10.0.0.0/255.0.0.0"]', "4:grant[1].private[1]", 'write "10.0.0.0/8"'),
        (GRANT + 'private = ["fe80::1%eth0/64"]', "4:grant[1].private[1]", "is no network"),
        (GRANT + 'private = ["mirror.example.com"]', "4:grant[1].private[1]", "names under hosts"),
        (GRANT + 'private = ["::ffff:10.1.0.0/112"]', "4:grant[1].private[1]", 'write "10.1.0.0/16"'),
        (GRANT + 'private = ["0.0.0.0/0"]', "4:grant[1].private[1]", 'write preset = "public-web"'),
        (GRANT + 'private = ["::/0"]', "4:grant[1].private[1]", 'write preset = "public-web"'),
        (GRANT + 'preset = "public-web"', "4:grant[1].preset", "in a grant of their own"),
        ('version = 1\n[[grant]]\npreset = "web"', "3:grant[1].preset", 'write "public-web"'),
        ('version = 1\n[[grant]]\nname = "x"', "2:grant[1]", "write hosts, addresses or preset"),
        ("version = 1\n[[grant]]\nhosts = []", "2:grant[1]", "write hosts, addresses or preset"),
        ("version = 1\n[[grant]]\nhosts = [5]", "3:grant[1].hosts[1]", "write it in quotes"),
        ("version = 1\n[[refuse]]", "2:refuse[1]", "write hosts or addresses"),
        ('version = 1\n[[refuse]]\nhosts = ["*"]', "3:refuse[1].hosts[1]", "what no grant names is refused already"),
        ('version = 1\n[[grant]]\naddresses = ["10.0.0.0/8"]\nprivate = ["10.0.0.0/8"]', "4:grant[1].private", "write hosts, or use addresses"),
        ('version = 1\n[addresses]\nown = ["me"]', "3:addresses.own[1]", "is a name where an address is wanted"),
        ('version = 1\n[addresses]\nnat64_prefixes = ["2001:db8::/97"]', "3:addresses.nat64_prefixes[1]", "one of 32, 40, 48, 56, 64, 96"),
        ('version = 1\n[addresses]\nnat64_prefixes = ["10.0.0.0/8"]', "3:addresses.nat64_prefixes[1]", "no IPv6 network"),
        ('version = 1\n[addresses]\nnat64_prefixes = ["fe80::/32"]', "3:addresses.nat64_prefixes[1]", "which is no NAT64's"),
        ('version = 1\n[addresses]\nnat64_prefixes = ["::/96"]', "3:addresses.nat64_prefixes[1]", "which is no NAT64's"),
        ("version = 1\n[limits]\nidle_s = 599", "3:limits.idle_s", "write 600 or more"),
        ("version = 1\n[limits]\nconnect_s = 0", "3:limits.connect_s", "write a number above 0"),
        ("version = 1\n[limits]\nconnect_s = -1", "3:limits.connect_s", "write a number above 0"),
        ("version = 1\n[limits]\nconnect_s = inf", "3:limits.connect_s", "write a number above 0"),
        ("version = 1\n[limits]\nconnect_s = nan", "3:limits.connect_s", "write a number above 0"),
        ('version = 1\n[limits]\nconnect_s = "5"', "3:limits.connect_s", "a number"),
        ("version = 1\n[limits]\nconnections_count = 1.5", "3:limits.connections_count", "a whole number"),
        ("version = 1\n[limits]\nconect_s = 1", "3:limits.conect_s", "write connect_s"),
        ('version = 1\n[[test]]\nto = "x"\nexpect = "deny"', "4:test[1].expect", '"refuse"'),
        ('version = 1\n[[test]]\nto = "x"', "2:test[1].expect", "missing"),
        ('version = 1\n[[test]]\nto = "x"\nexpect = "refuse"\nreason = "address-lopback"', "5:test[1].reason", 'write "address-loopback"'),
        ('version = 1\n[[test]]\nto = "x"\nexpect = "allow"\ndns = { a = { MX = [] } }', "5:test[1].dns.a.MX", "unknown key"),
        ("version = 1\nx = ", "2", "not TOML: invalid value"),
        ("version = 1\n[[grant", "2", "not TOML"),
        ("a = " + "[" * 5000, "1", ""),
        ("a = " + "9" * 5000, "1", "not TOML"),
        ("version = 1 # " + "x" * POLICY_CHARS, "1", "split it into several files"),
    ],
)  # fmt: skip
def test_one_problem_its_place_and_its_remedy(text, where, words):
    problem = one(text)
    assert problem.startswith(f"p.toml:{where}: "), problem
    assert words in problem
    assert "\n" not in problem and len(problem) < 500


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("https://a.example.com", 'is a URL; write only its host, "a.example.com"'),
        ("https://user:pw@a.example.com:8443/x", '"a.example.com"'),
        ("a.example.com/path", 'write only the host "a.example.com"'),
        ("a.example.com:8443", 'write the host "a.example.com" and ports = [8443]'),
        ("*.com", '"*.name.com"'),
        ("*.co.uk", '"*.name.co.uk"'),
        ("*.github.io", '"*.name.github.io"'),
        ("*.s3.amazonaws.com", "public suffix"),
        ("*.test", "public suffix"),
        ("*.xn--p1ai", "public suffix"),
        ("*.рф", "public suffix"),
        ("*", 'write preset = "public-web"'),
        ("*.", 'write preset = "public-web"'),
        ("api.*.example.com", "name the hosts"),
        ("*a.example.com", "name the hosts"),
        ("*.*.example.com", "name the hosts"),
        ("", "an empty host"),
        ("  ", "an empty host"),
        (" a.example.com ", 'write "a.example.com"'),
        ("a b.example.com", "write a plain name"),
        ("10.0.0.0/8", 'write addresses = ["10.0.0.0/8"]'),
        ("10.1.2.3", 'write addresses = ["10.1.2.3/32"]'),
        ("[2606:4700::1]", 'write addresses = ["2606:4700::1/128"]'),
        ("2606:4700::1", 'write addresses = ["2606:4700::1/128"]'),
        ("[::1]", "remove it: no policy may open ::1/128"),
        ("127.0.0.1", "remove it: no policy may open 127.0.0.0/8"),
        ("127.1", "ends in a number"),
        ("[a.example.com]", "write the name alone"),
        ("user@a.example.com", 'write only the host "a.example.com"'),
        ("ⓐ.example.com", "IDNA 2008"),
        ("a..example.com", "empty label"),
        ("x" * 64 + ".com", "longer than 63"),
        ("xn--a.example.com", "A-label"),
    ],
)
def test_ps10_each_bad_host_is_named_with_its_line_and_fix(host, words):
    """PS-10: one bad entry is one line, with the spelling to use; nothing is dropped quietly."""
    problem = one(f'version = 1\n[[grant]]\nhosts = ["a.example.com",\n  "{host}"]')
    assert problem.startswith("p.toml:4:grant[1].hosts[2]: ") and words in problem, problem


def test_hosts_that_are_fine():
    layer = parse(
        'version = 1\n[[grant]]\nhosts = ["*.example.com", "a_b.test", "localhost", "*.a.github.io", "x.com"]', "p"
    )
    assert [str(pattern) for pattern in layer.grants[0].hosts] == [
        "*.example.com",
        "a_b.test",
        "localhost",
        "*.a.github.io",
        "x.com",
    ]


def test_every_problem_in_one_run():
    found = problems(
        'version = 1\ncolour = "red"\n[[grant]]\nname = "same"\nhosts = ["*", "a.b:1"]\nports = [0]\n[[grant]]\nname = "same"\n'
        'addresses = ["127.0.0.1"]\n[[grant]]\n[limits]\nidle_s = 1\nconnect_s = "x"\n[[test]]\nto = 1\nexpect = "allow"\n'
    )
    assert [problem.rpartition(": ")[0].partition(": ")[0] for problem in found] == [
        "p.toml:2:colour", "p.toml:5:grant[1].hosts[1]", "p.toml:5:grant[1].hosts[2]", "p.toml:6:grant[1].ports[1]",
        "p.toml:8:grant[2].name", "p.toml:9:grant[2].addresses[1]", "p.toml:10:grant[3]", "p.toml:12:limits.idle_s",
        "p.toml:13:limits.connect_s", "p.toml:15:test[1].to",
    ]  # fmt: skip
    assert str(BadPolicy(found)) == "\n".join(found)


def test_ps09_refusing_everything_is_told_apart_from_refusing_by_default():
    """PS-09: a refuse rule of * would block every grant, so it is refused at load with the reason."""
    assert "refused already" in one(GRANT + '[[refuse]]\nhosts = ["*"]')


def test_b62_a_bad_end_is_an_error_and_never_no_end():
    """Field list B-62."""
    for value in ('"never"', '"2027-01-31"', "2027-01-31", "07:00:00", "[]", "{}", "false"):
        assert "until" in one(GRANT + f"until = {value}")


def test_limits_are_those_of_the_product():
    assert set(LimitsTable.model_fields) == {field.name for field in fields(Limits)}


def test_models_refuse_what_they_do_not_know():
    for model in (FileTable, GrantTable, InjectTable, LimitsTable, DnsTable):
        assert model.model_config["extra"] == "forbid" and model.model_config["strict"]


def test_windows_line_ends_and_lines():
    assert one((GRANT + "port = 1").replace("\n", "\r\n")).startswith("p.toml:4:grant[1].port")


PIECES = st.sampled_from(
    ["version = 1", "[[grant]]", "[[refuse]]", "[limits]", "[addresses]", "[[test]]", "[grant.inject]", 'hosts = ["a.b", "*.c.d"]', "hosts = [[]]",
     "ports = [1, {}]", "ports = {a = 1}", 'name = "x"', "until = 1979-05-27T07:32:00Z", "idle_s = nan", "private = [1979-05-27]", "inject = 5",
     "grant = {}", 'dns = {"a" = 1}', 'to = "\\u0000"', 'hosts = ["\\U0010FFFF", "fe80::1%eth0", "1.2.3.4/33", "[", "://", "@", "*.[", "x:y:z"]', "[", '"', "intercept = true"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=10).map("\n".join)))
def test_nothing_but_bad_policy(text):
    try:
        parse(text, "p.toml")
    except BadPolicy as error:
        assert error.problems and all(problem.startswith("p.toml:") for problem in error.problems)


@given(
    st.one_of(st.text(max_size=60), st.text("*.:/@[]%a1 ", max_size=20)),
    st.sampled_from(["hosts", "addresses", "private", "ports", "name", "until"]),
)
def test_no_value_raises_anything_else(value, key):
    quoted = (
        '"' + "".join(f"\\U{ord(letter):08x}" if not "\ud800" <= letter <= "\udfff" else "" for letter in value) + '"'
    )
    text = f"version = 1\n[[grant]]\n{key} = {quoted if key in ('name', 'until') else f'[{quoted}]'}\n"
    try:
        parse(text, "p.toml")
    except BadPolicy:
        pass
