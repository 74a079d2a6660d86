"""Deltas a second from a scripted model to the observer of `cookie run`, against a bare loop.

Ours: provider, fold, log, link, a second process that folds them again. The baseline writes the
same lines with json.dumps and a buffered file, and does nothing else. The runs alternate; what a
run costs without its deltas is measured and taken off. Usage: python benchmarks/stream.py [deltas]
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DELTAS = 200_000
ROUNDS = 3
WORD = "word "
SCRIPT = '- when: {{}}\n  steps:\n    - say: "{word}"\n      repeat: {deltas}\n'
CONFIG = """
[providers.bench]
source = "custom"
adaptor = "scripted"
setup = {{ script = "{script}" }}

[providers.bench.models.one]
"""


def ours(home: Path, deltas: int) -> float:
    """Seconds of one whole command."""
    script = home / "script.yaml"
    script.write_text(SCRIPT.format(word=WORD, deltas=deltas))
    (home / "config.toml").write_text(CONFIG.format(script=script))
    command = [sys.executable, "-P", "-m", "cookie", "run", "--data-dir", str(home)]
    command += ["-m", "bench/one", "-o", "none", "hi"]
    begun = time.perf_counter()
    subprocess.run(command, check=True, env={"PATH": "/usr/bin:/bin", "HOME": str(home)}, cwd=home)
    return time.perf_counter() - begun


def bare(home: Path, deltas: int) -> float:
    """Seconds of a loop that writes the lines of as many deltas."""
    ids = dict.fromkeys(("session_id", "run_id"), "01890000-0000-7000-8000-000000000000")
    begun = time.perf_counter()
    with (home / "bare.jsonl").open("w") as file:
        for seq in range(deltas):
            payload = {"type": "text_delta", "attempt_id": ids["run_id"], "text": WORD}
            event = {"seq": seq, "timestamp": "2026-01-02T03:04:05.678Z", "payload": payload}
            file.write(json.dumps({**ids, **event}) + "\n")
    return time.perf_counter() - begun


def main() -> None:
    """Measure and print one line."""
    deltas = int(sys.argv[1]) if len(sys.argv) > 1 else DELTAS
    rates, bares = [], []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        ours(home, 1)
        for _ in range(ROUNDS):
            nothing = ours(home, 1)
            rates.append(deltas / (ours(home, deltas) - nothing))
            bares.append(deltas / bare(home, deltas))
    rate, loop = statistics.median(rates), statistics.median(bares)
    print(f"stream {rate:,.0f} deltas/s, bare loop {loop:,.0f} lines/s, ratio {rate / loop:.2f}")


if __name__ == "__main__":
    main()
