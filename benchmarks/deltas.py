"""CPU that one streamed text delta costs, over HTTP, with the log written and the output shown.

At full speed (5,000 deltas as fast as the model sends them) and at the pace of a person's reading
(50 a second), in microseconds of the worker and of worker and command together, without start and
end. Beside it, in the same run, what waking up that often costs a process that does nothing else.
Bars: 25 and 40 at full speed, 400 together at 50 a second. Exit 1 when one is missed.

    python benchmarks/deltas.py [rounds]
"""

import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from memory import workers
from model import ENVIRONMENT, Model, event, last

FAST, SLOW = 5_000, 250
PACE_S = 0.02
ROUNDS = 5
SETTLE_S = 0.3
BARS = {"fast worker": 25.0, "fast both": 40.0, "slow both": 400.0}


def cpu_us(pids: Iterable[int]) -> float:
    """CPU time of all threads of these processes so far."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e3


def settled(pids: list[int]) -> float:
    """Wait until these processes do nothing any more; the CPU time they have used."""
    before = -1.0
    while (now := cpu_us(pids)) - before > 2_000 * SETTLE_S * len(pids):
        before = now
        time.sleep(SETTLE_S)
    return now


class Stream:
    """Answers with deltas, and looks at the processes before the first and after the last."""

    def __init__(self, send: Callable[[socket.socket], int]) -> None:
        self.running: subprocess.Popen[bytes] | None = None
        self.found = (0.0, 0.0)  # microseconds a delta: worker, both
        self._send = send

    def answer(self, connection: socket.socket, _n: int) -> None:
        assert self.running is not None
        connection.sendall(event({"role": "assistant", "content": "first "}))
        time.sleep(SETTLE_S)
        command, worker = [self.running.pid], workers(self.running.pid)
        begun = settled(worker), settled(command)
        count = self._send(connection)
        used = settled(worker) - begun[0], settled(command) - begun[1]
        self.found = used[0] / count, sum(used) / count
        connection.sendall(last("stop"))


def fast(connection: socket.socket) -> int:
    """Everything at once; the kernel and the client cut it as they like."""
    connection.sendall(event({"content": "word "}) * FAST)
    return FAST


def slow(connection: socket.socket) -> int:
    due = time.monotonic()
    for _ in range(SLOW):
        connection.sendall(event({"content": "word "}))
        due += PACE_S
        time.sleep(max(0.0, due - time.monotonic()))
    return SLOW


def run(home: Path, send: Callable[[socket.socket], int]) -> tuple[float, float]:
    stream = Stream(send)
    model = Model(stream.answer)
    model.configure(home)
    command = [sys.executable, "-P", "-m", "cookie", "run", "--data-dir", str(home)]
    command += ["-m", "bench/one", "-o", "text", "hi"]
    env = {**ENVIRONMENT, "HOME": str(home)}
    with subprocess.Popen(command, env=env, cwd=home, stdout=subprocess.DEVNULL) as running:
        stream.running = running
    model.close()
    assert running.returncode == 0, running.returncode
    return stream.found


def waking() -> float:
    """Microseconds of CPU of one wake-up from a sleep as long as the pace."""
    begun = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(SLOW // 5):
        time.sleep(PACE_S)
    ended = resource.getrusage(resource.RUSAGE_SELF)
    return (ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime) / (SLOW // 5) * 1e6


def main() -> int:
    """Measure and print three lines."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    figures: dict[str, list[float]] = {name: [] for name in (*BARS, "slow worker", "waking")}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        run(home, fast)  # compiles what an installer would have
        for _ in range(rounds):
            for name, send in (("fast", fast), ("slow", slow)):
                worker, both = run(home, send)
                figures[f"{name} worker"].append(worker)
                figures[f"{name} both"].append(both)
            figures["waking"].append(waking())
    found = {name: statistics.median(values) for name, values in figures.items()}
    print(
        f"as fast as sent: worker {found['fast worker']:.1f} us, both {found['fast both']:.1f} us"
    )
    print(f"50 a second: worker {found['slow worker']:.0f} us, both {found['slow both']:.0f} us")
    print(f"one bare wake-up: {found['waking']:.0f} us; bars {BARS}")
    return 0 if all(found[name] <= bar for name, bar in BARS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
