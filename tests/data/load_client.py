"""A client that holds idle tunnels while it opens, uses and closes others at a steady rate; prints a JSON summary."""

import asyncio
import json
import sys
import time

HOST, PORT, IDLE, RATE, SECONDS, TARGET, TARGET_PORT = sys.argv[1:8]
NAME = TARGET.encode()
ASK = b"\5\1\0" + b"\5\1\0\3" + bytes([len(NAME)]) + NAME + int(TARGET_PORT).to_bytes(2)


async def tunnel() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(HOST, int(PORT))
    writer.write(ASK)
    answer = await asyncio.wait_for(reader.readexactly(6), 20)
    if answer[:5] != b"\5\0\5\0\0":
        raise OSError(f"refused: {answer.hex()}")
    await reader.readexactly({1: 6, 4: 18}[answer[5]])
    return reader, writer


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes) -> None:
    writer.write(text)
    if await asyncio.wait_for(reader.readexactly(len(text)), 20) != text:
        raise OSError("another text came back")


async def once(errors: list[str], times: list[float], number: int) -> None:
    began = time.monotonic()
    try:
        reader, writer = await tunnel()
        await echo(reader, writer, b"%08d" % number * 8)
        writer.close()
        await writer.wait_closed()
        times.append(time.monotonic() - began)
    except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
        errors.append(repr(error))


async def main() -> None:
    errors: list[str] = []
    times: list[float] = []
    idle = []
    for _ in range(0, int(IDLE), 50):
        idle += await asyncio.gather(*(tunnel() for _ in range(50)))
    print(json.dumps({"idle": len(idle)}), flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    tasks = []
    for number in range(int(RATE) * int(SECONDS)):
        tasks.append(asyncio.create_task(once(errors, times, number)))
        late = began + (number + 1) / int(RATE) - time.monotonic()
        if late > 0:
            await asyncio.sleep(late)
    await asyncio.gather(*tasks)
    took = time.monotonic() - began
    for number, (reader, writer) in enumerate(idle):
        await echo(reader, writer, b"%08d" % number)
    for _, writer in idle:
        writer.close()
    times.sort()
    print(json.dumps({"errors": errors[:5], "failed": len(errors), "done": len(times), "seconds": round(took, 1),
                      "median_ms": round(times[len(times) // 2] * 1e3, 1) if times else None}), flush=True)  # fmt: skip
    sys.stdin.readline()


asyncio.run(main())
