"""Three commands that people wait for, against the bare import of what parses their flags.

`cookie run --help`, `cookie config check` with a provider of its own, and `cookie sessions list` of
2,000 sessions. Prints the medians and their ratios; the commands alternate with the baseline, so
that a busy machine hurts all of them. The bars are 2, 2.5 and 4 times `python -c "import typer"`.
Exit 1 when one is missed.

    python benchmarks/cli.py [rounds]
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ipc.ids import new_session_id

BASELINE = (sys.executable, "-c", "import typer")
COOKIE = (sys.executable, "-P", "-m", "cookie")
ROUNDS = 21
SESSIONS = 2000
CONFIG = """
[providers.bench]
source = "custom"
adaptor = "openai-compatible"
endpoint = "https://example.invalid/v1"
auth = { method = "bearer-api-key-v1", values = { api_key = "${env:BENCH_KEY}" } }

[providers.bench.models.one]
capabilities = { context_tokens = 128000, output_tokens = 8192 }

[providers.bench.models.two]
capabilities = { context_tokens = 128000, output_tokens = 8192 }

[tool_output]
max_lines = 1000
"""


class Home:
    """A data directory with a config and many sessions, and the folder they are of."""

    def __init__(self, path: Path) -> None:
        self.data, self.workspace = path / "data", path / "ws"
        self.workspace.mkdir()
        self.env = {"PATH": "/usr/bin:/bin", "HOME": str(path), "BENCH_KEY": "none"}

    def cookie(self, *words: str) -> list[str]:
        return [*COOKIE, *words, "--data-dir", str(self.data)]

    def fill(self) -> None:
        """One session that really ran, and others that look like it."""
        yolo = ("--permission-mode", "yolo", "-o", "none")
        run = self.cookie("run", "-m", "rehearsal/tour", *yolo, "Show me around")
        subprocess.run(run, check=True, env=self.env, cwd=self.workspace)
        (one,) = [tree for tree in (self.data / "sessions").glob("*/*") if tree.is_dir()]
        metadata = json.loads((one / "metadata").read_text())
        for number in range(SESSIONS - 1):
            metadata["session_id"] = session = new_session_id()
            metadata["title"] = f"Session number {number}, which was about something"
            tree = one.parent / session
            tree.mkdir(0o700)
            (tree / "metadata").write_text(json.dumps(metadata))
            (tree / "owner.lock").touch()
            shutil.copy(one / "events.jsonl", tree / "events.jsonl")
        (self.data / "config.toml").write_text(CONFIG)

    def took(self, command: list[str]) -> float:
        """Milliseconds from exec to exit."""
        begun = time.monotonic_ns()
        subprocess.run(
            command, check=True, env=self.env, cwd=self.workspace, stdout=subprocess.DEVNULL
        )
        return (time.monotonic_ns() - begun) / 1e6


def main() -> int:
    """Measure and print one line a command."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        home.fill()
        commands = {
            "run --help": ([*COOKIE, "run", "--help"], 2.0),
            "config check": (home.cookie("config", "check"), 2.5),
            f"sessions list of {SESSIONS}": (home.cookie("sessions", "list"), 4.0),
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        bare: list[float] = []
        for command, _bar in commands.values():
            home.took(command)  # compiles what an installer would have
        for _ in range(rounds):
            for name, (command, _bar) in commands.items():
                bare.append(home.took(list(BASELINE)))
                times[name].append(home.took(command))
    base = statistics.median(bare)
    missed = False
    for name, (_command, bar) in commands.items():
        mine = statistics.median(times[name])
        missed |= mine / base > bar
        print(f"cookie {name} {mine:.0f} ms, typer {base:.0f} ms, ratio {mine / base:.2f} ({bar})")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
