"""Peak memory of `cookie run` and its worker, in PSS, over a tool round of 10,000 deltas.

Once with a scripted model and once with one that is asked over HTTP.

Both are sampled every 20 ms from exec to exit; tools are left out. Beside it, in turns, two
interpreters that only import what every `cookie run` needs. PSS shares a page of a library out
among all who map it, so other Pythons on the machine flatter the figure: the line `alone` counts
each such page of the peak once and whole, whoever else has it. Exit 1 when the bar is missed.

    python benchmarks/memory.py [rounds]

The processes are not dumpable, so only root may look; others: `unshare -r python benchmarks/...`.
"""

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from model import Model, call, event, last
from start import BASELINE, CONFIG

BAR_MIB = {"scripted model": 60.0, "model over HTTP": 85.0}
EVERY_S = 0.02
ROUNDS = 7
MIB = 1024  # KiB, which is what the kernel counts in
BASELINE_SETTLES_S = 1.0
SCRIPT = """
- - {say: "a word ", repeat: 5000}
  - call: {name: bash, args: {command: "seq 2000; sleep 0.3"}}
- - {say: "a word ", repeat: 5000}
"""


class Sample(NamedTuple):
    """Some processes at one moment, in MiB: `alone` is the PSS they had if nobody else were."""

    pss: float
    alone: float


class Process(NamedTuple):
    """One process, in KiB; `files` maps what it has of a file to how much of it is resident."""

    pss: int
    anonymous: int
    files: dict[str, int]


def look(pid: int) -> Process | None:
    """None when it is gone; raises PermissionError where we may not look."""
    try:
        text = Path(f"/proc/{pid}/smaps").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    pss = anonymous = 0
    files: dict[str, int] = {}
    region = ""
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name == "Pss":
            pss += int(rest.split()[0])
        elif name == "Rss":
            resident = int(rest.split()[0])
        elif name == "Anonymous":
            own = int(rest.split()[0])
            anonymous += own
            if resident > own:
                files[region] = files.get(region, 0) + resident - own
        elif "-" in name.split(" ", 1)[0]:
            region = " ".join(line.split()[2:])  # its place in a file, not in memory
    return Process(pss, anonymous, files)


def together(pids: list[int]) -> Sample:
    """What these processes have at this moment."""
    found = [process for pid in pids if (process := look(pid)) is not None]
    files: dict[str, int] = {}
    for process in found:
        for region, resident in process.files.items():
            files[region] = max(files.get(region, 0), resident)
    alone = sum(process.anonymous for process in found) + sum(files.values())
    return Sample(sum(process.pss for process in found) / MIB, alone / MIB)


def workers(pid: int) -> list[int]:
    """The children of `cookie run` that are workers; each of their children is a tool's."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in children if is_worker(child)]
    except (FileNotFoundError, ProcessLookupError):
        return []


def is_worker(pid: str) -> bool:
    try:
        return b"workers" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False


def answer(connection: socket.socket, number: int) -> None:
    """What the script says, said over HTTP."""
    connection.sendall(event({"role": "assistant", "content": "a word "}) * 5000)
    done = last("stop")
    connection.sendall(call(1, "seq 2000; sleep 0.3") if number == 1 else done)


def run(home: Path) -> Sample:
    """The peak of one `cookie run`."""
    command = [sys.executable, "-P", "-m", "cookie", "run", "--data-dir", str(home)]
    command += ["-m", "bench/one", "--permission-mode", "yolo", "--stream", "hi"]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    peak = Sample(0, 0)
    with subprocess.Popen(command, env=env, cwd=home, stdout=subprocess.DEVNULL) as running:
        while running.poll() is None:
            due = time.monotonic() + EVERY_S
            peak = max(peak, together([running.pid, *workers(running.pid)]))
            time.sleep(max(0.0, due - time.monotonic()))
    assert running.returncode == 0, running.returncode
    return peak


def baseline() -> Sample:
    """Two interpreters that import the same libraries and do nothing with them."""
    command = [sys.executable, "-c", f"{BASELINE}; print(1, flush=True); input()"]
    pair = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)
    ]
    for one in pair:
        assert one.stdout is not None
        one.stdout.readline()
    sample = together([one.pid for one in pair])
    for one in pair:
        one.communicate(b"\n")
    return sample


def main() -> int:
    """Measure and print a line for each, and one for the bars."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    samples: dict[str, list[Sample]] = {name: [] for name in (*BAR_MIB, "two bare imports")}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        script = home / "one.yaml"
        script.write_text(SCRIPT)
        try:
            for _ in range(rounds):
                (home / "config.toml").write_text(CONFIG.format(script=script))
                samples["scripted model"].append(run(home))
                model = Model(answer)
                model.configure(home)
                samples["model over HTTP"].append(run(home))
                model.close()
                samples["two bare imports"].append(baseline())
        except PermissionError:
            print(__doc__.rpartition("\n\n")[2].strip())  # how to look
            return 2
    for name, found in samples.items():
        pss = statistics.median(sample.pss for sample in found)
        alone = statistics.median(sample.alone for sample in found)
        spread = " ".join(f"{sample.pss:.1f}" for sample in sorted(found))
        bar = f", bar {BAR_MIB[name]:.0f}" if name in BAR_MIB else ""
        print(f"{name:16} {pss:5.1f} MiB{bar}  (alone {alone:.1f}; {spread})")
    fits = [
        statistics.median(one.pss for one in samples[name]) <= BAR_MIB[name] for name in BAR_MIB
    ]
    return 0 if all(fits) else 1


if __name__ == "__main__":
    sys.exit(main())
