"""Names are looked up only when a grant speaks for them, once for each connection's pin, and by nobody but the resolver."""

POLICY = """
version = 1
[[grant]]
hosts = ["rebind.example.org", "example.com"]
[[refuse]]
hosts = ["evil.example.net"]
"""
NAMES = {
    "rebind.example.org": {"seq": [{"A": ["93.184.215.14"], "ttl": 0}, {"A": ["127.0.0.1"], "ttl": 0}]},
    "evil.example.net": {"A": ["93.184.215.14"]},
    "unlisted.example.net": {"A": ["93.184.215.14"]},
}


def get(client, url, host):
    client.sendall(f"GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer and (piece := client.recv(65_536)):
        answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length and (piece := client.recv(65_536)):
        body += piece
    return head + body


def test_a_name_without_a_grant_is_never_looked_up(lab, start_proxy):
    lab.write_names(NAMES)
    proxy = start_proxy(POLICY)
    for host in ("unlisted.example.net", "evil.example.net", "sub.example.com", "localhost", "10.0.0.5", "[::1]"):
        for request in (f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n", f"CONNECT {host}:443 HTTP/1.1\r\n\r\n"):
            with proxy.connect() as client:
                client.sendall(request.encode())
                assert client.recv(65_536).split()[1] in {b"400", b"403"}
    assert lab.asked() == {} and lab.canaries() == {}
    assert not [place for place in lab.attempts() if place.endswith("/udp")]


def test_a_rebinding_name_is_looked_up_once_for_each_pin_and_kept_by_its_connection(lab, start_proxy):
    """Three requests on one connection: one look-up, one upstream; a new connection asks anew and is refused."""
    lab.write_names(NAMES)
    proxy = start_proxy(POLICY)
    with proxy.connect() as client:
        for _ in range(3):
            assert get(client, "http://rebind.example.org/", "rebind.example.org").startswith(b"HTTP/1.1 200")
    assert lab.asked() == {"rebind.example.org A": 1, "rebind.example.org AAAA": 1}
    assert lab.accepted() == {"93.184.215.14:80": 1}
    with proxy.connect() as client:
        assert b"address-loopback" in get(client, "http://rebind.example.org/", "rebind.example.org")
    assert lab.asked() == {"rebind.example.org A": 2, "rebind.example.org AAAA": 2}
    assert lab.canaries() == {} and lab.accepted() == {"93.184.215.14:80": 1}
    assert proxy.verdict()["reason"] == "address-loopback" and proxy.verdict()["address"] == "127.0.0.1"


def test_the_machine_s_own_hosts_file_and_search_list_are_not_read(lab, start_proxy, tmp_path):
    """A proxy whose machine says otherwise about a name still asks DNS, and for that name only."""
    (tmp_path / "hosts").write_text("127.0.0.1 example.com\n")
    (tmp_path / "resolv.conf").write_text("nameserver 8.8.8.8\nsearch example.org\n")
    mounts = "".join(f'mount --bind "{tmp_path}/{name}" /etc/{name} && ' for name in ("hosts", "resolv.conf"))
    proxy = start_proxy(POLICY, wrapper=("unshare", "--map-root-user", "--mount", "sh", "-c", mounts + 'exec "$@"', "sh"))
    with proxy.connect() as client:
        assert get(client, "http://example.com/", "example.com").startswith(b"HTTP/1.1 200")
    assert lab.asked() == {"example.com A": 1, "example.com AAAA": 1} and lab.canaries() == {}
