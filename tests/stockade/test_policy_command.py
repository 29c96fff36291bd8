"""`stockade policy` as a person runs it: exit statuses, what it prints, and where it prints it."""

import json
import os
import pty
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.confined import WAYS, as_way, scratch
from tests.confined import stockade as installed

ROOT = Path(__file__).resolve().parents[2]
CORPUS = [json.loads(line) for line in (ROOT / "tests" / "data" / "destinations.jsonl").read_text(encoding="utf-8").splitlines()]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
STATUS = {"allow": 0, "refuse": 1, "invalid": 2}
RULES = """\
version = 1
[[grant]]
name = "packages"
hosts = ["pypi.org", "*.pythonhosted.org"]
ports = [443]
[[grant]]
name = "api"
hosts = ["api.example.com"]
intercept = true
methods = ["GET"]
[grant.inject]
header = "Authorization"
value = "Bearer written-out-by-mistake"
[[grant]]
name = "build server"
addresses = ["10.1.2.3/32"]
ports = [8443]
until = 2100-01-31T00:00:00Z
[[refuse]]
hosts = ["ads.pythonhosted.org"]
[limits]
connect_s = 3
[[test]]
to = "https://pypi.org/"
expect = "allow"
dns = { "pypi.org" = { A = ["151.101.0.223"] } }
"""


def stockade(*words, stdin="", cwd=None):
    """One command with no network at all: nothing here may ask anybody."""
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); from stockade.cli import main; main()"]
    return subprocess.run([*command, *map(str, words)], input=stdin, capture_output=True, text=True, timeout=60, cwd=cwd, check=False)


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    return path


@pytest.fixture
def dns(tmp_path):
    path = tmp_path / "dns.json"
    path.write_text(json.dumps({"pypi.org": {"A": ["151.101.0.223"]}, "x.pythonhosted.org": {"A": ["10.0.0.1"]}, "api.example.com": {"A": ["93.184.215.14"]}}))
    return path


# --- check


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_shipped_examples_pass_their_own_checks(example):
    assert EXAMPLES
    checked = stockade("policy", "check", example)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.startswith(f"{example}: ok (") and "0 warnings" in checked.stdout
    tested = stockade("policy", "test", example)
    assert tested.returncode == 0 and tested.stdout.endswith(" 0 failed\n")


def test_check_says_everything_that_is_wrong(tmp_path):
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text('version = 1\n[[grant]]\nhosts = ["https://a.net/", "*"]\nport = 1\n')
    two.write_text("version = 1\nx =\n")
    found = stockade("policy", "check", one, two, tmp_path / "none.toml", tmp_path)
    assert (found.returncode, found.stdout) == (2, "")
    lines = found.stderr.splitlines()
    assert lines[0] == f'{one}:3:grant[1].hosts[1]: "https://a.net/" is a URL; write only its host, "a.net"'
    assert lines[1].startswith(f"{one}:3:grant[1].hosts[2]: a bare *")
    assert lines[2] == f"{one}:4:grant[1].port: unknown key; write ports"
    assert lines[3].startswith(f"{two}:2: not TOML: ")
    assert lines[4].startswith(f"{tmp_path}/none.toml:1:file: there is no such file; ")
    assert lines[5] == f"{tmp_path}:1:file: this is a directory; name the policy file in it"
    assert len(lines) == 6


def test_files_that_cannot_be_text(tmp_path):
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'version = 1\n# M\xfcnchen\n')
    assert stockade("policy", "check", latin).stderr == f"{latin}:2:file: byte 16 is 0xfc, which is not UTF-8; save the file as UTF-8\n"
    marked = tmp_path / "marked.toml"
    marked.write_bytes(b"\xef\xbb\xbf" + RULES.encode())
    assert stockade("policy", "check", marked).returncode == 0


def test_an_unreadable_file_as_an_ordinary_user(tmp_path):
    from policy.errors import BadPolicy
    from stockade.policy_files import read_text

    path = tmp_path / "closed.toml"
    path.write_text(RULES)
    path.chmod(0)
    if os.geteuid() != 0:
        with pytest.raises(BadPolicy) as error:
            read_text(path)
        assert f"chmod u+r {path}" in str(error.value)
        return
    child = os.fork()
    if child == 0:
        try:
            os.chmod(tmp_path, 0o755)
            os.seteuid(47_811)
            read_text(path)
        except BadPolicy as error:
            os._exit(0 if "not readable" in str(error) and "chmod u+r" not in str(error) else 3)
        except BaseException:
            os._exit(4)
        os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("words", [("policy", "check"), ("policy", "explain", "https://a.net/", "--policy"), ("proxy", "--policy"), ("run", "--policy")])
def test_an_unreadable_file_is_one_problem_with_its_place_for_every_command(words):
    with scratch(WAYS[-1]) as directory:
        path = directory / "closed.toml"
        path.write_text(RULES)
        path.chmod(0)
        asked = [*words, str(path), *(("--", "true") if words[0] == "run" else ())]
        done = subprocess.run(as_way(WAYS[-1], installed(*asked)), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in (2, 125)
        assert done.stderr.removeprefix("stockade: ").startswith(f"{path}:1:file: not readable for this user; "), done.stderr


def test_check_warns_and_still_passes(tmp_path):
    path = tmp_path / "dead.toml"
    path.write_text('version = 1\n[[grant]]\nhosts = ["a.net"]\n[[refuse]]\nhosts = ["a.net"]\n')
    found = stockade("policy", "check", path)
    assert found.returncode == 0 and "1 warning" in found.stdout
    assert found.stderr == f"{path}:2:grant: a.net never speaks: the refuse rule a.net wins; remove one of them\n"


# --- test


def test_tests_that_hold_and_fail(rules):
    assert stockade("policy", "test", rules).stdout == "ok    https://pypi.org/  allow\n1 test, 0 failed\n"
    rules.write_text(RULES + '[[test]]\nto = "https://ads.pythonhosted.org/"\nexpect = "allow"\n')
    found = stockade("policy", "test", rules)
    assert found.returncode == 1
    assert "FAIL  https://ads.pythonhosted.org/  allow" in found.stdout
    assert f"{rules}:27: is refuse refused-by-rule" in found.stdout
    assert found.stdout.endswith("2 tests, 1 failed\n")
    report = json.loads(stockade("policy", "test", "--json", rules).stdout)
    assert (report["tests"], report["failed"]) == (2, 1)
    assert [row["holds"] for row in report["results"]] == [True, False]
    assert report["results"][1]["reason"] == "refused-by-rule"


def test_a_failing_test_refuses_the_load(rules):
    from policy.errors import BadPolicy
    from stockade.policy_files import load

    assert load([rules], time.time()).limits.connect_s == 3
    rules.write_text(RULES.replace('expect = "allow"', 'expect = "refuse"'))
    with pytest.raises(BadPolicy) as error:
        load([rules], time.time())
    assert error.value.problems[0].startswith(f"{rules}:23:test: https://pypi.org/ must be refuse and is allow (granted)")


# --- explain


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (["https://pypi.org/simple/"], 0, "granted"),
        (["https://x.pythonhosted.org/"], 1, "address-private"),
        (["https://ads.pythonhosted.org/"], 1, "refused-by-rule"),
        (["http://pypi.org/"], 1, "port-not-granted"),
        (["https://example.com/"], 1, "not-granted"),
        (["https://api.example.com/"], 1, "not-granted"),
        (["http://api.example.com/"], 0, "granted"),
        (["--method", "POST", "http://api.example.com/"], 1, "method-not-granted"),
        (["--form", "connect", "pypi.org:443"], 0, "granted"),
        (["--form", "connect", "pypi.org"], 2, "port-invalid"),
        (["https://[::1]/"], 1, "address-loopback"),
        (["pypi.org"], 2, "request-invalid"),
    ],
)
def test_explain(rules, dns, words, status, reason):
    found = stockade("policy", "explain", "--policy", rules, "--dns", dns, "--json", *words)
    verdict = json.loads(found.stdout)
    assert (found.returncode, verdict["reason"], found.stderr) == (status, reason, "")
    assert STATUS[verdict["verdict"]] == status
    assert set(verdict) >= {"verdict", "reason", "grant", "layer", "host", "port", "addresses", "because"}
    assert verdict["registry"] == "2025-10-09"
    plain = stockade("policy", "explain", "--policy", rules, "--dns", dns, *words)
    assert plain.returncode == status
    assert plain.stdout.startswith(verdict["verdict"]) and reason in plain.stdout
    assert all(step in plain.stdout for step in verdict["because"])
    assert "\x1b" not in plain.stdout


def test_explain_for_a_terminal_is_coloured(rules, dns):
    leader, follower = pty.openpty()
    command = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from stockade.cli import main; main()"
    words = ["policy", "explain", "--policy", str(rules), "--dns", str(dns), "https://pypi.org/"]
    subprocess.run([sys.executable, "-I", "-c", command, *words], stdout=follower, env={"TERM": "xterm", "PATH": os.environ["PATH"]}, timeout=60, check=True)
    os.close(follower)
    shown = os.read(leader, 65536)
    os.close(leader)
    assert b"\x1b[" in shown and b"allow" in shown and b"pypi.org:443" in shown


def test_explain_without_a_policy_permits_nothing(dns):
    found = stockade("policy", "explain", "--dns", dns, "https://pypi.org/")
    assert found.returncode == 1 and "There is no policy" in found.stdout


def test_explain_with_a_policy_that_is_wrong(tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text("version = 3\n")
    found = stockade("policy", "explain", "--policy", path, "https://pypi.org/")
    assert (found.returncode, found.stdout) == (2, "") and found.stderr.startswith(f"{path}:1:version: ")
    told = json.loads(stockade("policy", "explain", "--json", "--policy", path, "https://pypi.org/").stdout)
    assert told["verdict"] == "invalid" and told["because"] == [found.stderr.rstrip()]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a.net": 5}', '{"a.net": {"A": [5]}}', "[" * 100_000])
def test_explain_with_dns_that_is_wrong(rules, tmp_path, text):
    path = tmp_path / "wrong.json"
    path.write_text(text)
    found = stockade("policy", "explain", "--policy", rules, "--dns", path, "https://pypi.org/")
    assert (found.returncode, found.stdout) == (2, "") and len(found.stderr.splitlines()) == 1
    assert found.stderr.startswith(f"{path}:1:")


def test_a_file_that_is_no_policy_is_not_told_to_be_like_one(rules, tmp_path):
    found = stockade("policy", "explain", "--policy", rules, "--dns", tmp_path / "none.json", "https://pypi.org/")
    assert (found.returncode, found.stderr) == (2, f"{tmp_path}/none.json:1:file: there is no such file; check the path\n")


def test_a_target_without_its_scheme_is_told_what_to_write(rules, dns):
    found = stockade("policy", "explain", "--policy", rules, "--dns", dns, "pypi.org")
    assert found.returncode == 2 and "write https://host/ or tcp://host:port" in found.stdout


@pytest.mark.parametrize("words", [[], ["--batch", "x", "y"], ["--form", "socks", "a"]])
def test_explain_asked_wrongly(words):
    found = stockade("policy", "explain", *words)
    assert found.returncode == 2 and found.stderr and "Traceback" not in found.stderr


def test_explain_as_this_machine_refuses_by_the_floor_without_asking_anybody(rules):
    """No `--dns`, in a namespace without any network: nothing is asked for what is refused before DNS."""
    unshare = shutil.which("unshare")
    command = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from stockade.cli import main; main()"
    words = [unshare, "--user", "--map-root-user", "--net", sys.executable, "-I", "-c", command, "policy", "explain", "--policy", str(rules)]
    refused = subprocess.run([*words, "https://example.com/"], capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1 and "not-granted" in refused.stdout
    literal = subprocess.run([*words, "tcp://10.1.2.3:8443"], capture_output=True, text=True, timeout=60, check=False)
    assert literal.returncode == 0 and "dials   10.1.2.3" in literal.stdout
    asked = subprocess.run([*words, "https://pypi.org/"], capture_output=True, text=True, timeout=60, check=False)
    assert asked.returncode in (1, 2) and "dns-" in asked.stdout + asked.stderr, "no server can be reached from there"


# --- the corpus


def test_fifty_lines_of_the_corpus_one_by_one(tmp_path):
    wrong = []
    policy, dns = tmp_path / "p.toml", tmp_path / "d.json"
    for line in random.Random(570).sample(CORPUS, 50):
        policy.write_text(line["policy"], encoding="utf-8")
        dns.write_text(json.dumps(line["dns"]))
        if "\0" in line["target"]:
            continue  # no argument of a command can hold NUL; the batch below has them all
        found = stockade("policy", "explain", "--policy", policy, "--dns", dns, "--form", line["form"], "--json", "--", line["target"])
        verdict = json.loads(found.stdout)
        if verdict["verdict"] not in line["accept"] or found.returncode != STATUS[verdict["verdict"]]:
            wrong.append((line["id"], found.stdout, found.stderr, found.returncode))
    assert wrong == []


def test_the_whole_corpus_in_one_batch(tmp_path):
    found = stockade("policy", "explain", "--batch", ROOT / "tests" / "data" / "destinations.jsonl")
    verdicts = [json.loads(line) for line in found.stdout.splitlines()]
    assert (found.returncode, found.stderr, len(verdicts)) == (0, "", len(CORPUS))
    assert [line["id"] for line, verdict in zip(CORPUS, verdicts, strict=True) if verdict["verdict"] not in line["accept"]] == []
    assert [line["id"] for line, verdict in zip(CORPUS, verdicts, strict=True) if "connect" in line and verdict["addresses"] != [line["connect"]]] == []


def test_a_batch_keeps_going_and_takes_defaults(rules, dns, tmp_path):
    batch = tmp_path / "batch.jsonl"
    lines = [
        {"target": "https://pypi.org/"}, {"target": "pypi.org:443", "form": "connect"}, {"target": 5}, [], {"target": "x", "form": "y"}, {"form": "url"},
        {"target": "https://pypi.org/", "policy": "version = 9"}, {"target": "https://pypi.org/", "dns": {"pypi.org": {"A": ["10.0.0.1"]}}},
        {"target": "http://api.example.com/", "method": "POST"}, {"target": "https://pypi.org/", "dns": 5},
    ]  # fmt: skip
    batch.write_text("\n".join([*map(json.dumps, lines), "not json", ""]))
    found = stockade("policy", "explain", "--policy", rules, "--dns", dns, "--batch", batch)
    words = [(verdict["verdict"], verdict["reason"]) for verdict in map(json.loads, found.stdout.splitlines())]
    assert words == [
        ("allow", "granted"), ("allow", "granted"), ("invalid", None), ("invalid", None), ("invalid", None), ("invalid", None), ("invalid", None),
        ("refuse", "address-private"), ("refuse", "method-not-granted"), ("invalid", None), ("invalid", None),
    ]  # fmt: skip


def test_a_batch_names_the_line_and_what_to_write(rules, dns, tmp_path):
    batch = tmp_path / "batch.jsonl"
    batch.write_text('\n{"tgt": 1}\n\n[]\nnot json\n{"target": "https://pypi.org/", "policy": "version = 9"}\n')
    found = stockade("policy", "explain", "--policy", rules, "--dns", dns, "--batch", batch)
    (first,), (second,), (third,), (fourth,) = (json.loads(line)["because"] for line in found.stdout.splitlines())
    assert first.startswith(f"{batch}:2: not a request: target must be text") and 'write {"target": "https://' in first
    assert second.startswith(f"{batch}:4: not a request: not an object; write ")
    assert third.startswith(f"{batch}:5: not a request: Expecting value") and "Error" not in third
    assert fourth.startswith("line 6:1:version: ")


def test_a_batch_is_read_to_its_end(tmp_path):
    from policy.limits import POLICY_CHARS

    batch = tmp_path / "batch.jsonl"
    line = json.dumps({"target": "https://" + "a" * 99_000 + "/"}) + "\n"
    count = 4 * POLICY_CHARS // len(line) + 5
    batch.write_text(line * count)
    found = stockade("policy", "explain", "--batch", batch)
    assert {json.loads(verdict)["reason"] for verdict in found.stdout.splitlines()} == {"host-invalid"}
    assert found.stdout.count("\n") == count


def test_every_verdict_object_has_the_same_keys(dns, tmp_path):
    batch = tmp_path / "batch.jsonl"
    batch.write_text('{"target": "https://[::1]/"}\n{"target": "::"}\n{"target": "https://a.net/", "policy": ""}\n5\n')
    found = stockade("policy", "explain", "--dns", dns, "--batch", batch)
    keys = [list(json.loads(verdict)) for verdict in found.stdout.splitlines()]
    assert len(keys) == 4 and all(each == keys[0] for each in keys)


# --- show


def test_show(rules, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text('version = 1\nmode = "report"\n[[grant]]\npreset = "public-web"\n[addresses]\nown = ["93.184.215.14"]\nnat64_prefixes = ["2a00::/96"]\n')
    found = stockade("policy", "show", rules, other)
    assert found.returncode == 0
    for words in (
        "mode report", f"{rules} (enforce)", "grant packages (line 2): hosts pypi.org, *.pythonhosted.org; ports 443", "until 2100-01-31",
        "refuse ads.pythonhosted.org (line 19)", "preset public-web", "own addresses: 93.184.215.14", "nat64 prefixes: 2a00::/96", "inject Authorization",
        "limit connect_s = 3  (default 10)",
    ):  # fmt: skip
        assert words in found.stdout, words
    told = json.loads(stockade("policy", "show", "--json", rules, other).stdout)
    assert [layer["file"] for layer in told["layers"]] == [str(rules), str(other)]
    assert told["layers"][0]["grants"][0]["hosts"] == ["pypi.org", "*.pythonhosted.org"]
    assert told["limits"]["connect_s"] == 3 and told["mode"] == "report" and told["own"] == ["93.184.215.14"]
    assert "written-out-by-mistake" not in found.stdout + json.dumps(told), "a secret stays in its file"


@pytest.mark.parametrize("command", ["check", "test", "explain", "show"])
def test_help_has_an_example(command):
    found = stockade("policy", command, "--help")
    assert found.returncode == 0 and f"Example: stockade policy {command}" in " ".join(found.stdout.split())


@pytest.mark.parametrize(("command", "words"), [("run", "[OPTIONS] [CMD...]..."), ("proxy", "[OPTIONS]"), ("demo", "[OPTIONS]")])
def test_help_names_no_command_below_one_that_has_none(command, words):
    found = stockade(command, "--help")
    assert f"Usage: stockade {command} {words}" in map(str.strip, found.stdout.splitlines())
    assert any(line.strip().startswith(f"Example: stockade {command} ") for line in found.stdout.splitlines())


def test_help_says_its_words_whole():
    assert "Run the tests inside policy files" in stockade("policy", "--help").stdout


def test_explain_reads_no_library_that_it_does_not_need(rules, dns):
    """Start-up is most of the cost of one explanation; the heavy libraries stay out of it."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom stockade.cli import main\n"
        "try: main()\nexcept SystemExit: pass\nprint(sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    words = ["policy", "explain", "--policy", str(rules), "--dns", str(dns), "--json", "https://pypi.org/"]
    done = subprocess.run([sys.executable, "-I", "-c", code, *words], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.splitlines()[-1]
    for library in ("dns", "pyroute2", "rich", "httptools", "cryptography", "idna", "mitmproxy", "z3", "asyncio", "proxy", "sandbox", "firewall", "socket"):
        assert f"'{library}'" not in loaded, library
