"""The demonstration comes out as it has to, as root and as an ordinary user, and says so when it does not."""

import io
import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from policy.verdict import Reason
from stockade.demo import outcome, report, script, stage
from stockade.demo.attempts import ATTEMPTS, Attempt
from stockade.demo.outcome import Outcome
from stockade.demo.stage import Played
from tests.confined import WAYS, as_way, scratch, stockade

WANTED = {
    "unlisted name",
    "cloud metadata",
    "RFC 1918",
    "loopback",
    "IPv4-mapped IPv6",
    "an address as one number",
    "trailing dot, granted name",
    "port 22 where 443 is granted",
    "NUL in a SOCKS name",
    "rebinding, then 127.0.0.1",
    "a mixed answer",
    "SNI is not the CONNECT name",
    "raw TCP around the proxy",
    "raw TCP over IPv6",
    "UDP (QUIC)",
    "DNS to 8.8.8.8",
}
CURL = Attempt("x", "curl", "refused", "403", Reason.NOT_GRANTED, "evil.example.net")
GOT = Attempt("x", "curl", "allowed", "hello", host="example.com")
RAW = Attempt("x", "tcp_to", "no way", "unreachable")


def test_demo_as_root_where_we_can_be(run_as):
    with scratch(WAYS[0]) as folder:
        done = run_as(WAYS[0], *stockade("demo", "--json", "--keep", str(folder)))
        assert done.returncode == 0, done.stderr + done.stdout
        told = json.loads(done.stdout)
        assert Path(told["journal"]) == folder / "journal.jsonl"
        assert (folder / "journal.jsonl").read_text().count('"verdict"') > 16
        assert "curl https://pypi.org/simple/" in Path(told["script"]).read_text()
        assert "[[grant]]" in Path(told["policy"]).read_text()
    assert told["as_expected"] is True and told["canaries"] == {} and told["faults"] == []
    assert told["asked_in_vain"] == []
    assert {one["title"] for one in told["attempts"]} >= WANTED
    assert told["duration_s"] < 20 * 2  # twenty on a quiet machine; tests share theirs
    for one in told["attempts"]:
        assert one["fault"] is None
        if one["expected"] == "allowed":
            assert one["received_bytes"] > 0 and one["record"]["grant"]
        elif one["expected"] == "refused":
            assert one["record"]["reason"] == one["reason"] and one["reason"] in one["why"]
        else:
            assert one["record"] is None


def test_demo_as_an_ordinary_user_prints_a_table(run_as):
    with scratch(WAYS[-1]) as folder:
        done = run_as(WAYS[-1], *stockade("demo", "--keep", str(folder)))
        assert done.returncode == 0, done.stdout + done.stderr
        for text in (*WANTED, "not-granted", "Canaries touched: 0", f"journal: {folder}/journal.jsonl"):
            assert text in done.stdout
        assert (folder / "journal.jsonl").read_text().count('"verdict"') > 16


def test_demo_says_so_when_a_policy_lets_too_much_through(tmp_path):
    """The same stage under a policy that forgot its refuse rule and granted another name: both are found."""
    text = stage.POLICY_FILE.read_text().partition("[[refuse]]")[0]
    loose = tmp_path / "loose.toml"
    loose.write_text(text.replace('"six.example.net"]', '"six.example.net", "evil.example.net"]'))
    played = stage.play(tmp_path, lambda _done, _of: None, loose)
    assert not played.as_expected
    assert {one.attempt.title for one in played.outcomes if one.fault} == {
        "unlisted name",
        "trailing dot, refused name",
    }
    assert len(report.wrong(played)) == 2
    for columns in (80, 160):
        shown = io.StringIO()
        report.show(played, Console(file=shown, width=columns))
        assert shown.getvalue().count("UNEXPECTED") == 2 and shown.getvalue().count("NOT AS EXPECTED") == 2
        reasons = [line for line in shown.getvalue().splitlines() if line.startswith("      ")]
        assert all(line.startswith("        ") for line in reasons), "every line of a reason is set in, not only its first"


@pytest.fixture
def run_as():
    def run(way, *argv):
        with tempfile.TemporaryDirectory(dir="/tmp") as home:
            os.chmod(home, 0o777)
            return subprocess.run(
                as_way(way, argv),
                env={"PATH": os.environ["PATH"], "HOME": home, "TMPDIR": home, "COLUMNS": "200"},
                cwd="/",
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )

    return run


# --- the judging, without a network


def leave(folder, said, began_ms=1_000, ended_ms=2_000, status=0):
    for part, text in (("began", began_ms * 10**6), ("ended", ended_ms * 10**6), ("status", status), ("said", said)):
        (folder / f"0.{part}").write_text(f"{text}\n")


def record(reason, host, at="1970-01-01T00:00:01.500Z", event="verdict", **more):
    destination = {"host": host, "port": 443}
    return {"id": "1", "event": event, "at": at, "reason": reason, "destination": destination, **more}


@pytest.mark.parametrize(
    "attempt, said, records, fault",
    [
        (CURL, "403", [record("not-granted", "evil.example.net")], ""),
        (CURL, "403", [], "the journal has no record of it"),
        (CURL, "200", [record("not-granted", "evil.example.net")], "the client did not show '403'"),
        (CURL, "403", [record("granted", "evil.example.net")], "the journal says granted"),
        (CURL, "403", [record("not-granted", "other.example.net")], "the journal says not-granted for 'other"),
        (CURL, "403", [record("not-granted", "evil.example.net", "1970-01-01T00:00:03Z")], "no record"),
        (GOT, "hello", [record("granted", "example.com")], ""),
        (GOT, "hello", [record("not-granted", "x.com"), record("granted", "example.com")], "was refused on the"),
        (RAW, "Network is unreachable", [], ""),
        (RAW, "hello", [], "the client did not show 'unreachable'"),
        (RAW, "unreachable", [record("granted", "example.com")], "it reached the proxy"),
    ],
)
def test_an_attempt_is_judged_by_what_was_shown_and_what_was_recorded(tmp_path, attempt, said, records, fault):
    leave(tmp_path, said)
    (judged,) = outcome.judge([attempt], tmp_path, records)
    assert judged.fault == "" if fault == "" else fault in judged.fault


def test_an_attempt_that_did_not_end_is_a_fault(tmp_path):
    (judged,) = outcome.judge([CURL], tmp_path, [record("not-granted", "evil.example.net")])
    assert judged.fault == "it did not end"


@pytest.mark.parametrize(
    "change", [{"canaries": {"10.0.0.5:80/tcp": 1}}, {"asked_in_vain": ("evil.example.net",)}, {"faults": ("shell",)}]
)
def test_anything_beside_the_attempts_counts_too(tmp_path, change):
    whole = {"canaries": {}, "asked_in_vain": (), "faults": ()}
    files = (tmp_path, tmp_path, tmp_path, 1.0, 0.5)

    def played(whole):
        return Played((Outcome(RAW, ""),), whole["canaries"], whole["asked_in_vain"], whole["faults"], *files)

    assert played(whole).as_expected and report.wrong(played(whole)) == []
    assert not played(whole | change).as_expected and len(report.wrong(played(whole | change))) == 1


def test_the_script_is_a_shell_script_with_every_attempt():
    text = script.write(ATTEMPTS)
    for number, attempt in enumerate(ATTEMPTS):
        assert f"attempt {number} try_{number}\n" in text and attempt.shell in text
