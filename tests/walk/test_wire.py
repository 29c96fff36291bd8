"""Every line of the wire corpus that the policy language can say, over real sockets, against a real proxy."""

import json
import socket
import ssl
import struct
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

CORPUS = Path(__file__).resolve().parents[1] / "data" / "wire.jsonl"
CASES = {case["id"]: case for case in map(json.loads, CORPUS.read_text().splitlines())}

NOT_SAID = {
    "dns-short-search": "the language has no search list: a one-label name is refused by name (POLICY §3)",
    "http-inner-host": "unseen inside TLS; judged once a grant may say intercept (part 2)",
    "http-inner-absolute": "unseen inside TLS; judged once a grant may say intercept (part 2)",
}
"""Lines that the language cannot say yet, each with its reason; everything else runs."""

OTHERWISE = {
    "dns-hosts-file": "allow",
}
"""Lines whose verdict POLICY changes: §4, the hosts file is not read, so it sends nothing to loopback."""

PUBLIC = "93.184.215.14"


@dataclass
class Heard:
    """How one request ended, as its client saw it."""

    allowed: bool
    first: bytes
    """The first bytes of the answer, for the message of a failing test."""


def test_every_line_is_accounted_for():
    assert len(CASES) == 45 and NOT_SAID.keys() | OTHERWISE.keys() <= CASES.keys()
    assert {case["form"] for case in CASES.values()} == {"url", "socks5", "http"}


@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_SAID])
def test_wire(name, lab, start_proxy, ca_file, tmp_path):
    case = CASES[name]
    _write_names(lab, case["dns"])
    _break(lab, case)
    proxy = start_proxy(case["policy"], wrapper=_hosts_file(case, tmp_path))
    began_s = time.monotonic()
    heard = [one for target in _targets(case) for one in _ask(proxy, case["form"], target, ca_file)]
    took_s = time.monotonic() - began_s
    want = case.get("expect_each") or [OTHERWISE.get(name, "allow" if case["accept"] == ["allow"] else "deny")]
    assert ["allow" if one.allowed else "deny" for one in heard] == want, (heard, proxy.records())
    assert "internal-error" not in {record["reason"] for record in proxy.records("verdict")}, proxy.error_file.read_text()
    assert took_s < case.get("max_s", 10)
    _check_where_it_went(lab, case, want, proxy.address[1])
    if want[-1] == "deny" and (verdicts := proxy.records("verdict")):
        assert verdicts[-1]["verdict"] != "allow" and verdicts[-1]["reason"] != "granted"


def test_an_h2c_upgrade_does_not_reach_the_origin(lab, start_proxy, ca_file):
    case = CASES["http-upgrade-h2c"]
    _write_names(lab, case["dns"])
    (heard,) = _ask(start_proxy(case["policy"]), "http", case["target"], ca_file)
    assert heard.allowed
    (request,) = lab.requests()
    assert "upgrade" not in request["head"].lower() and "h2c" not in request["head"].lower()


# --- the world of a line


def _write_names(lab, dns):
    lab.write_names({name: {"ttl": 0, **script} for name, script in dns.items()}, only=True)
    for address in ("8.8.8.8", PUBLIC):
        lab.serve_address(address)


def _break(lab, case):
    if case.get("connect_fails"):
        assert case["connect_fails"] == [PUBLIC]
        lab.close_port(443)


def _hosts_file(case, folder):
    """A wrapper that gives the proxy a hosts file of the case's own, when it has one."""
    lines = [f"{a} {name}" for name, script in case["dns"].items() for a in script.get("hosts_file", ())]
    if not lines:
        return ()
    file = folder / "hosts"
    file.write_text("\n".join(lines) + "\n")
    inside = 'mount --bind "$1" /etc/hosts && grep -q "$2" /etc/hosts && shift 2 && exec "$@"'
    return ("unshare", "--map-root-user", "--mount", "sh", "-c", inside, "sh", str(file), lines[0])


def _targets(case):
    first = case["target"]
    if case.get("repeat_inputs") and case["form"] == "url":
        # Two requests on one kept connection: absolute form is what keeps one (each CONNECT has its own).
        return [[url.replace("https:", "http:") for url in case["repeat_inputs"]]]
    if case.get("repeat_inputs"):
        return [first, *({"target": url} for url in case["repeat_inputs"])]
    return [first]


def _check_where_it_went(lab, case, want, port):
    went = lab.attempts()
    for address in case.get("never_connect", ()):
        host = f"[{address}]" if ":" in address else address
        proxy_itself = f"{host}:{port}/tcp"
        assert not [place for place in went if place.startswith(f"{host}:") and place != proxy_itself]
    if "allow" in want and case.get("connect"):
        assert any(place.startswith(f"{case['connect']}:") for place in lab.accepted())
    assert lab.canaries() == {}
    if "allow" not in want and "connect_fails" not in case and case["id"] != "http-sni-other":
        assert lab.accepted() == {}, "something was dialled for a refused destination"


# --- the client of a line


def _ask(proxy, form, target, ca_file):
    """What each request of this target heard: one, or one for each URL of a kept connection."""
    try:
        if isinstance(target, list):
            return _kept(proxy, target)
        return [_ask_once(proxy, form, target, ca_file)]
    except (ConnectionError, ssl.SSLError) as fault:
        return [Heard(False, repr(fault).encode())]


def _ask_once(proxy, form, target, ca_file):
    if form == "socks5":
        return _socks(proxy, target)
    if form == "url":
        assert target.startswith("https://")
        host = target.removeprefix("https://").rstrip("/")
        return _connect(proxy, {"target": f"{host}:443"}, ca_file)
    if target.get("h2"):
        return _preface(proxy)
    if target.get("method") == "CONNECT":
        return _connect(proxy, target, ca_file)
    return _forward(proxy, target)


def _socks(proxy, target):
    host, port = target["host"].encode("latin-1"), struct.pack(">H", target["port"])
    command = {"CONNECT": b"\1", "BIND": b"\2"}[target["cmd"]]
    with proxy.connect() as client:
        if target.get("version") == "4a":
            client.sendall(b"\4" + command + port + b"\0\0\0\1user\0" + host + b"\0")
            reply = _read(client, 8)
            return Heard(reply[:2] == b"\0\x5a", reply)
        client.sendall(b"\5\1\0")
        assert _read(client, 2) == b"\5\0"
        kinds = {"domain": b"\3" + bytes([len(host)]) + host}
        if target["atyp"] == "ipv4":
            kinds["ipv4"] = b"\1" + socket.inet_aton(target["host"])
        if target["atyp"] == "ipv6":
            kinds["ipv6"] = b"\4" + socket.inet_pton(socket.AF_INET6, target["host"])
        client.sendall(b"\5" + command + b"\0" + kinds[target["atyp"]] + port)
        reply = _read(client, 10)
        assert not reply or reply[0] == 5
        return Heard(reply[:2] == b"\5\0", reply)


def _connect(proxy, target, ca_file):
    name = target["target"].rpartition(":")[0]
    with proxy.connect() as client:
        host = target.get("host", target["target"])
        client.sendall(f"CONNECT {target['target']} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = _read_head(client)
        if not head.startswith(b"HTTP/1.1 200"):
            return Heard(False, head)
        context = ssl.create_default_context(cafile=str(ca_file))
        with context.wrap_socket(client, server_hostname=target.get("sni", name)) as inside:
            inside.sendall(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            answer = _read(inside, 1 << 16)
        return Heard(f"This is {name}, in the lab".encode() in answer, answer)


def _request(target):
    url, hosts = target["target"], target.get("host")
    if "upstream" in target:
        assert target["upstream"] == "302 Location: http://127.0.0.1/"
        url = url.replace("/r", "/lab/status?code=302&header=Location:%20http://127.0.0.1/")
    authority = url.removeprefix("http://").partition("/")[0]
    hosts = [authority] if hosts is None else [hosts] if isinstance(hosts, str) else hosts
    lines = [f"{target.get('method', 'GET')} {url} HTTP/1.1", *(f"Host: {host}" for host in hosts)]
    lines += [f"{key}: {value}" for key, value in target.get("headers", {}).items()]
    return "\r\n".join([*lines, "", ""]).encode()


def _forward(proxy, target):
    with proxy.connect() as client:
        client.sendall(_request(target))
        head = _read_head(client)
    return Heard(head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 302")), head)


def _kept(proxy, urls):
    heard = []
    with proxy.connect() as client:
        for url in urls:
            client.sendall(_request({"target": url}))
            head = _read_head(client)
            heard.append(Heard(head.startswith(b"HTTP/1.1 200"), head))
            length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            _read(client, int(length or 0))
    return heard


def _preface(proxy):
    """HTTP/2 with prior knowledge: preface, SETTINGS, HEADERS that name the authority (RFC 9113 §3.4, §6)."""
    fields = b"\x82\x86\x84\x41\x10user@example.com"
    with proxy.connect() as client:
        headers = struct.pack(">I", len(fields))[1:] + b"\x01\x05\0\0\0\1" + fields
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + headers)
        answer = _read(client, 1 << 12)
    return Heard(b" 200" in answer or answer[3:4] == b"\1", answer)


def _read(client, most):
    got = b""
    while len(got) < most and (piece := client.recv(most - len(got))):
        got += piece
    return got


def _read_head(client):
    got = b""
    while b"\r\n\r\n" not in got and (piece := client.recv(1)):
        got += piece
    return got
