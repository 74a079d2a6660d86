"""From exec of `cookie run` to its provider being asked for the first part, against bare imports.

Prints both medians and their ratio; the runs alternate, so that a busy machine hurts both. The bar
is 1.6 times the baseline. Exit 1 when it is missed.

    python benchmarks/start.py [rounds]
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BASELINE = "import typer, msgspec, zmq, uvloop"
BAR = 1.6
ROUNDS = 21
SCRIPT = "- say: hello\n"
CONFIG = """
[providers.bench]
source = "custom"
adaptor = "scripted"
setup = {{ script = "{script}" }}

[providers.bench.models.one]
"""


def baseline() -> float:
    """Milliseconds of an interpreter that imports what every `cookie run` needs."""
    begun = time.monotonic_ns()
    subprocess.run([sys.executable, "-c", BASELINE], check=True)
    return (time.monotonic_ns() - begun) / 1e6


def start(home: Path, mark: Path, *flags: str) -> float:
    """Milliseconds from exec to the first part."""
    mark.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "cookie", "run", "--data-dir", str(home)]
    command += ["-m", "bench/one", "-o", "none", *flags, "hi"]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    env["COOKIE_FP"] = f"provider.first_part:1:mark={mark}"
    begun = time.monotonic_ns()
    subprocess.run(command, check=True, env=env, cwd=home)
    return (int(mark.read_text().split()[1]) - begun) / 1e6


def main() -> int:
    """Measure and print one line."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        script = home / "one.yaml"
        script.write_text(SCRIPT)
        (home / "config.toml").write_text(CONFIG.format(script=script))
        ours, theirs = [], []
        start(home, home / "mark")  # compiles what an installer would have
        for _ in range(rounds):
            theirs.append(baseline())
            ours.append(start(home, home / "mark"))
    mine, bare = statistics.median(ours), statistics.median(theirs)
    print(f"first part {mine:.0f} ms, bare imports {bare:.0f} ms, ratio {mine / bare:.2f} ({BAR})")
    return 0 if mine / bare <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
