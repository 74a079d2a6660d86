"""Frames a second over `ipc/link`, and the ratio to plain zmq.asyncio in the same run.

Both ends are on one loop, so it is the cost of the code that is compared and not of scheduling.
`python benchmarks/link.py` prints medians of alternating rounds.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import uvloop
import zmq
import zmq.asyncio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ipc.link import Bodies, Hub, Spoke
from ipc.orders import Hello, Pong, Up, encode

BODY = b"x" * 120  # about one text delta


async def ours(path: str, frames: int) -> float:
    """Seconds to send `frames` frames up the link."""
    done = asyncio.Event()
    got = 0

    def take(_identity: str, order: Up, _bodies: Bodies) -> None:
        nonlocal got
        got += isinstance(order, Pong)
        if got == frames:
            done.set()

    hub = Hub(path, take)
    hub.expect("t.1", "nonce")
    spoke = Spoke(path, Hello("t.1", "nonce", os.getpid(), 0, "bench"))
    await spoke.ready()
    began = time.perf_counter()
    for n in range(frames):
        await spoke.send(Pong(n), BODY)
    await done.wait()
    took = time.perf_counter() - began
    spoke.close()
    hub.close()
    return took


async def theirs(path: str, frames: int) -> float:
    """The same with zmq.asyncio and its own queues."""
    context = zmq.asyncio.Context()
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    router.bind(f"ipc://{path}")
    dealer.connect(f"ipc://{path}")

    async def take() -> None:
        for _ in range(frames):
            await router.recv_multipart()

    taking = asyncio.get_running_loop().create_task(take())
    began = time.perf_counter()
    for n in range(frames):
        await dealer.send_multipart([encode(Pong(n)), BODY])
    await taking
    took = time.perf_counter() - began
    context.destroy(linger=0)
    return took


def measured(
    side: Callable[[str, int], Coroutine[None, None, float]], frames: int, *, fast: bool
) -> float:
    """Frames a second of one round on a path of its own."""
    with tempfile.TemporaryDirectory(prefix="ck") as folder:
        run = uvloop.run if fast else asyncio.run
        return frames / run(side(f"{folder}/w", frames))


def main() -> None:
    """Measure both, alternating, on both loops."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--frames", type=int, default=30_000)
    asked.add_argument("--rounds", type=int, default=5)
    options = asked.parse_args()
    for fast in (False, True):
        rounds = [
            [measured(side, options.frames, fast=fast) for side in (ours, theirs)]
            for _ in range(options.rounds)
        ]
        link, plain = (statistics.median(column) for column in zip(*rounds, strict=True))
        name = "uvloop" if fast else "asyncio"
        print(
            f"{name:8} link {link:9,.0f} frames/s, zmq.asyncio {plain:9,.0f}, "
            f"ratio {link / plain:.2f}"
        )


if __name__ == "__main__":
    main()
