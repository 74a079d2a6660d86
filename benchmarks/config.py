"""What reading the configuration costs: nothing, a small file, a big one, and hostile ones.

Prints the import and the load of each against bars, in milliseconds of CPU; `cookie config check`
against `python -c "import typer"` in wall time, the runs alternating.
Usage: python benchmarks/config.py [rounds]
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cookie.config.files import BadConfig
from cookie.config.settings import load_config

ROUNDS = 15
CHECK_BAR = 2.5  # times the import of typer
REFUSAL_BAR_MS = 100
SCRIPTED = '[providers.p]\nsource = "custom"\nadaptor = "scripted"\nsetup = { script = "t.yaml" }\n'
MODEL = "[providers.p.models.m{}]\ncapabilities = {{ context_tokens = 10, output_tokens = 10 }}\n"
FILES = {
    "no file": None,
    "an empty file": "",
    "one table": "[tool_output]\nmax_lines = 5\n",
    "a scripted provider": SCRIPTED + "[providers.p.models.m]\n",
    "1,000 models": SCRIPTED + "".join(MODEL.format(n) for n in range(1000)),
}
HOSTILE = {
    "deep brackets": "a = " + "[" * 1_000_000,
    "deep tables": "a = " + "{a=" * 300_000,
    "deep keys": "a." * 500_000 + "a = 1",
    "many keys": "".join(f"a.b{n}=1\n" for n in range(90_000)),
    "one text of 1 MB": 'a = "' + "x" * 1_000_000 + '"',
    "one number of 1 MB": "a = " + "9" * 1_000_000,
    "escaped quotes without an end": 'a = "' + '\\"' * 500_000,
    "300 MB": None,
}


def cpu_ms(what: Callable[[], object], rounds: int) -> float:
    """The median CPU time of a call."""
    taken = []
    for _ in range(rounds):
        begun = time.process_time_ns()
        what()
        taken.append((time.process_time_ns() - begun) / 1e6)
    return statistics.median(taken)


def refused(data: Path) -> None:
    """Load a file that must not load."""
    try:
        load_config(data, data / "ws", {})
    except BadConfig:
        return
    raise AssertionError("a hostile file was loaded")


def loads(rounds: int) -> None:
    """Files that load, in this process, everything imported."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        for name, text in FILES.items():
            if text is not None:
                (data / "config.toml").write_text(text)
            took = cpu_ms(lambda: load_config(data, data / "ws", {}), rounds)
            print(f"{name}: {took:.2f} ms")


def refusals(rounds: int) -> bool:
    """Files that must be refused in no time; whether one was not."""
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        for name, text in HOSTILE.items():
            if text is None:
                with (data / "config.toml").open("wb") as file:
                    file.truncate(300 << 20)
            else:
                (data / "config.toml").write_text(text)
            took = cpu_ms(lambda: refused(data), min(rounds, 5))
            print(f"refused, {name}: {took:.1f} ms ({REFUSAL_BAR_MS})")
            missed = missed or took > REFUSAL_BAR_MS
    return missed


def imports(rounds: int) -> None:
    """What a fresh interpreter pays for the modules of a file like each."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        for name, text in list(FILES.items())[:4]:
            if text is not None:
                (data / "config.toml").write_text(text)
            code = (
                "import time, sys, msgspec; from pathlib import Path\n"
                "import ipc.ids, ipc.faults, ipc.disk.paths\n"
                "begun = time.process_time_ns()\n"
                "from cookie.config.settings import load_config\n"
                f"load_config(Path({str(data)!r}), Path({str(data / 'ws')!r}), {{}})\n"
                "print((time.process_time_ns() - begun) / 1e6)"
            )
            taken = [
                float(
                    subprocess.run(
                        [sys.executable, "-c", code], capture_output=True, check=True
                    ).stdout
                )
                for _ in range(rounds)
            ]
            print(f"import and load, {name}: {statistics.median(taken):.1f} ms")


def check(rounds: int) -> bool:
    """`cookie config check` on a small file against the import of typer; whether it is too slow."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.toml").write_text(FILES["a scripted provider"] or "")
        ours = [sys.executable, "-P", "-m", "cookie", "config", "check", "--data-dir", folder]
        bare = [sys.executable, "-c", "import typer"]
        mine, theirs = [], []
        for _ in range(rounds):
            for command, into in ((bare, theirs), (ours, mine)):
                begun = time.monotonic_ns()
                subprocess.run(command, check=True, capture_output=True, cwd=folder)
                into.append((time.monotonic_ns() - begun) / 1e6)
    check_ms, typer_ms = statistics.median(mine), statistics.median(theirs)
    ratio = check_ms / typer_ms
    print(
        f"config check {check_ms:.0f} ms, typer {typer_ms:.0f} ms, ratio {ratio:.2f} ({CHECK_BAR})"
    )


def main() -> None:
    """Measure and print a line each."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    loads(rounds)
    imports(rounds)
    missed = [refusals(rounds), check(rounds)]
    sys.exit(any(missed))


if __name__ == "__main__":
    main()
