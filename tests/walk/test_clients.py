"""The clients people use, each let through once and refused once, with words that a person understands."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

POLICY = """
version = 1

[[grant]]
name = "what these clients need"
hosts = ["example.com", "github.com", "pypi.org", "files.pythonhosted.org", "registry.npmjs.org"]
"""

REFUSED = {
    "gitlab.com": {"A": ["93.184.215.14"]},
    "evil.example.net": {"A": ["93.184.215.14"]},
}
"""Names that would answer, were they granted."""

REQUESTS = """
import sys, requests
try:
    answer = requests.get(sys.argv[1], proxies={"http": sys.argv[2], "https": sys.argv[2]}, timeout=10)
    print(answer.status_code, answer.text)
    sys.exit(answer.status_code >= 400)
except requests.RequestException as fault:
    sys.exit(f"{type(fault).__name__}: {fault}")
"""
HTTPX = """
import ssl, sys, httpx
trust = ssl.create_default_context(cafile=sys.argv[3])
try:
    answer = httpx.Client(proxy=sys.argv[2], verify=trust, timeout=10).get(sys.argv[1])
    print(answer.status_code, answer.text)
    sys.exit(answer.status_code >= 400)
except httpx.HTTPError as fault:
    sys.exit(f"{type(fault).__name__}: {fault}")
"""
FETCH = """
const [url, proxy, npm] = process.argv.slice(2);
let undici;
try { undici = require("undici"); } catch { undici = require(npm + "/node_modules/undici"); }
undici.fetch(url, { dispatcher: new undici.ProxyAgent(proxy) }).then(
    async (answer) => {
        console.log(answer.status, await answer.text());
        process.exit(answer.status >= 400 ? 1 : 0);
    },
    (fault) => {
        for (let one = fault; one; one = one.cause) console.error(`${one.name}: ${one.message}`);
        process.exit(1);
    },
);
"""
"""Node's own fetch is undici's; its proxy agent comes from the same package, which npm brings along."""


@dataclass
class Bench:
    """One proxy, the lab's authority, and a folder for what clients write."""

    lab: object
    proxy: object
    ca_file: Path
    folder: Path

    def run(self, *argv, **more):
        """Run a client in the gateway with its own settings: no proxy variable, no file of the caller's."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8"} | more
        return self.lab.run(list(map(str, argv)), env=environment, cwd=self.folder, timeout=60)


@pytest.fixture
def bench(lab, start_proxy, ca_file, tmp_path):
    lab.write_names(REFUSED)
    return Bench(lab, start_proxy(POLICY), ca_file, tmp_path)


def allowed(bench, done, text, host):
    assert done.returncode == 0, done.stderr
    assert text in done.stdout
    verdict = bench.proxy.verdict()
    assert (verdict["reason"], verdict["destination"]["host"]) == ("granted", host)


def refused(bench, done, host, *words, said=None):
    """Not served, recorded as such, never resolved nor dialled; and the person reads every one of `words`."""
    said = done.stdout + done.stderr if said is None else said
    assert done.returncode != 0, said
    verdict = bench.proxy.verdict()
    assert (verdict["reason"], verdict["destination"]["host"]) == ("not-granted", host)
    assert not [word for word in words if word not in said], said
    assert not [question for question in bench.lab.asked() if question.split()[0] == host]
    assert bench.lab.canaries() == {}


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
def test_curl(bench, scheme):
    curl = ["curl", "-sS", "--fail-with-body", "--cacert", bench.ca_file, "--proxy", bench.proxy.url(scheme)]
    allowed(bench, bench.run(*curl, "https://example.com/"), "This is example.com, in the lab", "example.com")
    done = bench.run(*curl, "--verbose", "https://evil.example.net/")
    words = ["tunnel failed, response 403", "Refused by policy: not-granted"] if scheme == "http" else ["evil.example.net", "(2)"]
    refused(bench, done, "evil.example.net", *words)


def test_curl_plain_http_reads_why_and_what_would_grant_it(bench):
    curl = ["curl", "-sS", "--fail-with-body", "--proxy", bench.proxy.url()]
    allowed(bench, bench.run(*curl, "http://example.com/"), "This is example.com, in the lab", "example.com")
    done = bench.run(*curl, "http://evil.example.net/")
    refused(bench, done, "evil.example.net", "not-granted", "[[grant]]", 'hosts = ["evil.example.net"]')
    asked = bench.run(*curl, "-H", "Accept: application/json", "http://evil.example.net/")
    assert json.loads(asked.stdout)["reason"] == "not-granted"


def test_git(bench):
    git = ["git", "-c", f"http.proxy={bench.proxy.url()}", "-c", f"http.sslCAInfo={bench.ca_file}", "clone"]
    settings = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    done = bench.run(*git, "https://github.com/acme/greeting.git", "there", **settings)
    assert done.returncode == 0, done.stderr
    assert (bench.folder / "there" / "README").read_text() == "Hello from inside the lab.\n"
    assert bench.proxy.verdict()["reason"] == "granted"
    done = bench.run(*git, "https://gitlab.com/acme/greeting.git", "elsewhere", **settings)
    refused(bench, done, "gitlab.com", "tunnel failed, response 403")


def test_pip(bench):
    pip = [sys.executable, "-I", "-m", "pip", "download", "--no-cache-dir", "--no-deps", "--retries", "1"]
    pip += ["--disable-pip-version-check", "--cert", bench.ca_file, "--proxy", bench.proxy.url()]
    done = bench.run(*pip, "stockade-greeting")
    allowed(bench, done, "Successfully downloaded stockade-greeting", "files.pythonhosted.org")
    assert list(bench.folder.glob("*.whl"))
    done = bench.run(*pip, "--index-url", "https://evil.example.net/simple/", "stockade-greeting")
    refused(bench, done, "evil.example.net", "403 Refused by policy: not-granted")


def test_npm(bench):
    npm = [
        "npm",
        "pack",
        "--proxy",
        bench.proxy.url(),
        "--https-proxy",
        bench.proxy.url(),
        "--fetch-retries",
        "0",
    ]
    npm += ["--cafile", bench.ca_file, "--no-update-notifier", "--cache", bench.folder / "cache"]
    done = bench.run(*npm, "stockade-greeting")
    allowed(bench, done, "stockade-greeting-1.0.0.tgz", "registry.npmjs.org")
    done = bench.run(*npm, "--registry", "https://evil.example.net/", "stockade-greeting")
    refused(bench, done, "evil.example.net", "403")


@pytest.mark.parametrize("program", [REQUESTS, HTTPX], ids=["requests", "httpx"])
@pytest.mark.parametrize("scheme", ["http", "socks5h"])
def test_python(bench, program, scheme):
    python = [sys.executable, "-I", "-c", program]
    more = [bench.proxy.url(scheme), bench.ca_file]
    trust = {"REQUESTS_CA_BUNDLE": str(bench.ca_file)}
    done = bench.run(*python, "https://example.com/", *more, **trust)
    allowed(bench, done, "200 This is example.com, in the lab", "example.com")
    done = bench.run(*python, "https://evil.example.net/", *more, **trust)
    words = ["403", "not-granted"] if scheme == "http" else ["not allowed by ruleset"]
    refused(bench, done, "evil.example.net", *words)


def test_node_fetch(bench):
    npm = Path(shutil.which("npm")).resolve().parents[1]
    (bench.folder / "fetch.js").write_text(FETCH)
    node, more = ["node", "fetch.js"], [bench.proxy.url(), npm]
    trust = {"NODE_EXTRA_CA_CERTS": str(bench.ca_file), "NODE_PATH": "/usr/share/nodejs"}
    done = bench.run(*node, "https://example.com/", *more, **trust)
    allowed(bench, done, "200 This is example.com, in the lab", "example.com")
    refused(bench, bench.run(*node, "https://evil.example.net/", *more, **trust), "evil.example.net", "403")


def test_ssh_hears_the_banner_and_not_of_a_port_that_is_not_granted(bench, start_proxy):
    bench.proxy = start_proxy('version = 1\n[[grant]]\nhosts = ["github.com"]\nports = [22]\n')
    said = subprocess.run(["nc", "-h"], capture_output=True, text=True, check=False)
    host, port = bench.proxy.address
    through = f"ncat --proxy-type socks5 --proxy {host}:{port} --proxy-dns remote %h %p"
    if "-X" in said.stdout + said.stderr:  # OpenBSD's nc says it in its own words
        through = f"nc -X 5 -x {host}:{port} %h %p"
    # OpenBSD's nc outlives the server's goodbye as long as ssh holds its standard input.
    ssh = ["timeout", "8", "ssh", "-v", "-F", "/dev/null", "-o", "BatchMode=yes", "-o", f"ProxyCommand={through}"]
    done = bench.run(*ssh, "nobody@github.com")
    assert "remote software version Stockade_lab" in done.stderr
    assert bench.proxy.verdict()["reason"] == "granted"
    done = bench.run(*ssh, "-p", "2222", "nobody@github.com")
    assert done.returncode != 0 and "remote software version" not in done.stderr
    assert bench.proxy.verdict()["reason"] == "port-not-granted"
