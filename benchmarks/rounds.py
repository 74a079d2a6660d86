"""From the end of a model's answer to its next request, over rounds of `bash true`.

Beside it, in the same run: medians of an fdatasync of a line and of spawning `bash -c true`. The
bar is 4 ms + 2 syncs + 1 spawn at the median. Also the size of the first request and what a round
adds to it (bars 6,000 and 220 bytes). Exit 1 when one is missed.

    python benchmarks/rounds.py [rounds]
"""

import itertools
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from model import ENVIRONMENT, Model, call, text

ROUNDS = 20
RUNS = 5
BAR_MS = 4.0
FIRST_BYTES, ROUND_BYTES = 6_000, 220
LINE = b"x" * 400 + b"\n"


def sync_ms(home: Path) -> float:
    """The median of appending a line and syncing it."""
    found = []
    fd = os.open(home / "line", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(40):
        os.write(fd, LINE)
        begun = time.perf_counter()
        os.fdatasync(fd)
        found.append(time.perf_counter() - begun)
    os.close(fd)
    return statistics.median(found) * 1e3


def spawn_ms() -> float:
    """The median of a `bash -c true`, waited for."""
    found = []
    for _ in range(20):
        begun = time.perf_counter()
        subprocess.run(["bash", "-c", "true"], check=True)
        found.append(time.perf_counter() - begun)
    return statistics.median(found) * 1e3


def run(home: Path, rounds: int) -> Model:
    def answer(connection: socket.socket, number: int) -> None:
        connection.sendall(call(number, "true") if number <= rounds else text("done"))

    model = Model(answer)
    model.configure(home)
    command = [sys.executable, "-P", "-m", "cookie", "run", "--data-dir", str(home)]
    command += ["-m", "bench/one", "-o", "none", "--permission-mode", "yolo"]
    command += ["--allowed-tools", "bash", "hi"]
    env = {**ENVIRONMENT, "HOME": str(home)}
    subprocess.run(command, check=True, env=env, cwd=home)
    model.close()
    assert len(model.asked) == rounds + 1, len(model.asked)
    return model


def main() -> int:
    """Measure and print two lines."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    turns, syncs, spawns = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        model = run(home, 1)
        for _ in range(RUNS):
            model = run(home, rounds)
            pairs = itertools.pairwise(model.asked)
            turns += [(after.first_byte - before.answered) * 1e3 for before, after in pairs]
            syncs.append(sync_ms(home))
            spawns.append(spawn_ms())
    sync, spawn, turn = map(statistics.median, (syncs, spawns, turns))
    bar = BAR_MS + 2 * sync + spawn
    print(
        f"answer to next request {turn:.2f} ms; sync {sync:.2f}, spawn {spawn:.2f}, bar {bar:.2f}"
    )
    sizes = [len(one.body) for one in model.asked]
    # The median: a few rounds also carry the reminder that the model goes round in a circle.
    growth = statistics.median(after - before for before, after in itertools.pairwise(sizes))
    print(f"first request {sizes[0]} bytes ({FIRST_BYTES}), a round {growth:.0f} ({ROUND_BYTES})")
    fits = turn <= bar and sizes[0] <= FIRST_BYTES and growth <= ROUND_BYTES
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
