"""A thousand tunnels that lie idle, and two hundred new ones a second beside them: nobody fails, and nothing is kept."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.walk.conftest import RunningProxy

POLICY = 'version = 1\n[[grant]]\nhosts = ["example.com"]\nports = [7]\n'
CLIENT = Path(__file__).resolve().parents[1] / "data" / "load_client.py"
IDLE_COUNT, RATE, SECONDS = 1_000, 200, 30


def descriptors(proxy: RunningProxy) -> int:
    return len(os.listdir(f"/proc/{proxy.pid}/fd"))


def resident_kib(proxy: RunningProxy) -> int:
    status = Path(f"/proc/{proxy.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def settle(proxy: RunningProxy, count: int, within_s: float = 20.0) -> int:
    until = time.monotonic() + within_s
    while descriptors(proxy) > count and time.monotonic() < until:
        time.sleep(0.1)
    return descriptors(proxy)


def run(lab, proxy: RunningProxy, idle: int, seconds: int) -> dict[str, object]:
    host, port = proxy.address
    words = [sys.executable, "-I", str(CLIENT), host, str(port), str(idle), str(RATE), str(seconds), "example.com", "7"]
    client = lab.popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert json.loads(client.stdout.readline()) == {"idle": idle}
    held = descriptors(proxy)
    client.stdin.write(b"go\n")
    client.stdin.flush()
    result = json.loads(client.stdout.readline())
    client.stdin.close()
    client.wait(10)
    client.stdout.close()
    return {**result, "held": held}


def test_a_thousand_idle_tunnels_and_two_hundred_new_ones_a_second(lab, start_proxy) -> None:
    proxy = start_proxy(POLICY)
    at_rest = descriptors(proxy)
    warm = run(lab, proxy, 1_000, 2)  # the first thousand make the allocator's arenas, which stay
    assert settle(proxy, at_rest) == at_rest
    before_kib = resident_kib(proxy)
    result = run(lab, proxy, IDLE_COUNT, SECONDS)
    assert result["failed"] == 0, result
    assert result["done"] == RATE * SECONDS
    assert result["held"] >= at_rest + 2 * IDLE_COUNT
    assert settle(proxy, at_rest) == at_rest
    grown_kib = resident_kib(proxy) - before_kib
    print(json.dumps({"warm": warm, "load": result, "grown_kib": grown_kib, "rss_kib": before_kib}))
    assert grown_kib < 2_048
    ends = sum(record["event"] == "end" for record in proxy.records())
    assert ends == IDLE_COUNT + 1_000 + RATE * (SECONDS + 2)
