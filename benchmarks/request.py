"""From exec of `cookie run` to the first byte of its first model request, against bare imports.

Prints both medians and their ratio; the runs alternate, so that a busy machine hurts both. The bar
is 1.5 times the baseline. Exit 1 when it is missed.

    python benchmarks/request.py [rounds]
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from model import ENVIRONMENT, Model, text

BASELINE = "import typer, msgspec, zmq, aiohttp, uvloop"
BAR = 1.5
ROUNDS = 15


def baseline() -> float:
    """Milliseconds of an interpreter that imports what such a run needs."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", BASELINE], check=True)
    return (time.monotonic() - begun) * 1e3


def request(home: Path, model: Model) -> float:
    """Milliseconds from exec to the first byte at the model."""
    command = [sys.executable, "-P", "-m", "cookie", "run", "--data-dir", str(home)]
    command += ["-m", "bench/one", "-o", "none", "hi"]
    env = {**ENVIRONMENT, "HOME": str(home)}
    begun = time.monotonic()
    subprocess.run(command, check=True, env=env, cwd=home)
    return (model.asked[-1].first_byte - begun) * 1e3


def main() -> int:
    """Measure and print one line."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    model = Model(lambda connection, _n: connection.sendall(text("hello")))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        model.configure(home)
        ours, theirs = [], []
        request(home, model)  # compiles what an installer would have
        for _ in range(rounds):
            theirs.append(baseline())
            ours.append(request(home, model))
    mine, bare = statistics.median(ours), statistics.median(theirs)
    print(f"first byte {mine:.0f} ms, bare imports {bare:.0f} ms, ratio {mine / bare:.2f} ({BAR})")
    return 0 if mine / bare <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
