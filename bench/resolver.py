"""CPU per name looked up and not kept: both families, on a loop, against a server in a process of its own.

Run as `python bench/resolver.py`; it talks to loopback only. It prints one line; the server's CPU is not in it.
"""

import multiprocessing
import socket
import statistics
import time

from policy.answer import Answer
from policy.host import Name
from policy.limits import Limits
from proxy.loop import Loop
from proxy.resolver import Resolver

LOOKUPS_COUNT = 1_000
ROUNDS_COUNT = 5
AT_ONCE_COUNT = 32


def serve(sock: socket.socket) -> None:
    """Answer every A with one address and a TTL of 0, every other question with nothing, until an empty datagram."""
    while True:
        wire, peer = sock.recvfrom(4096)
        if not wire:
            return
        end = wire.index(b"\0", 12) + 5
        question = wire[12:end]
        is_a = question[-3] == 1
        head = wire[:2] + b"\x81\x80\0\1" + (b"\0\1" if is_a else b"\0\0") + b"\0\0\0\0"
        answer = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4\xc0\0\2\1" if is_a else b""
        sock.sendto(head + question + answer, peer)


def measure(server: tuple[str, int]) -> float:
    """Seconds of CPU of one lookup."""
    loop = Loop()
    resolver = Resolver(loop, [server], Limits())
    answers: list[Answer] = []
    began_s = time.process_time()
    asked = 0
    while len(answers) < LOOKUPS_COUNT:
        while asked < LOOKUPS_COUNT and asked - len(answers) < AT_ONCE_COUNT:
            resolver.lookup(Name(f"n{asked}.example.com"), answers.append)
            asked += 1
        loop.turn(1.0)
    spent_s = time.process_time() - began_s
    assert all(answer.addresses for answer in answers)
    resolver.stop()
    loop.close()
    return spent_s / LOOKUPS_COUNT


def main() -> None:
    """Print the median of the rounds."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    server: tuple[str, int] = sock.getsockname()
    child = multiprocessing.get_context("fork").Process(target=serve, args=(sock,))
    child.start()
    try:
        rounds = [measure(server) for _ in range(ROUNDS_COUNT)]
    finally:
        sock.sendto(b"", server)
        child.join(5)
        sock.close()
    print(f"{statistics.median(rounds) * 1e6:.0f} us of CPU a lookup (A and AAAA), rounds {min(rounds) * 1e6:.0f}", end="")
    print(f" to {max(rounds) * 1e6:.0f}")


if __name__ == "__main__":
    main()
