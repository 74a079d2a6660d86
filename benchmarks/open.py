"""Opening a session of 100,000 events: `cookie run --resume-session`, from exec to the first part.

The log is of the recorded mix of `fold.py`, behind the first events of a real run. Beside it, in
turns: the same command with a new session, and in this process the fold of that log and plain
decoding of its lines. The bar is on the whole command. Exit 1 when it is missed.

    python benchmarks/open.py [rounds]
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fold import lines, payloads
from start import CONFIG, start

from ipc.disk.log import read_log
from ipc.disk.paths import workspace_paths
from ipc.events import RunCompleted, RunStarted, SessionCreated, StoredEvent
from ipc.events.codec import encode
from ipc.fold import fold
from ipc.ids import SessionId, new_run_id

EVENTS = 100_000
BAR_S = 1.5
ROUNDS = 21
SCRIPT = "- {steps: [say: hello], repeat: 10000}\n"
STAMP = "2026-01-02T03:04:05.678Z"


class Session(NamedTuple):
    """A session on disk, and how long its log is between two rounds."""

    id: SessionId
    log: Path
    events: int
    size: int


def behind(session: SessionId, last: int) -> Iterator[StoredEvent]:
    """Whole runs of the mix behind event number `last`, up to `EVENTS` or a little more."""
    run, seq = new_run_id(), last
    for inside, payload in payloads():
        if isinstance(payload, SessionCreated):
            continue
        if isinstance(payload, RunStarted):
            run = new_run_id()
        seq += 1
        yield StoredEvent(
            engine_version="0.1.0",
            session_id=session,
            run_id=run if inside else None,
            seq=seq,
            timestamp=STAMP,
            payload=payload,  # type: ignore[arg-type]
        )
        if seq >= EVENTS and isinstance(payload, RunCompleted):
            return


def build(home: Path) -> Session:
    """A session that `cookie run` made and that then went on for a long time."""
    start(home, home / "mark")
    [log] = workspace_paths(home, home).directory.glob("*/events.jsonl")
    read = read_log(log).drain()
    assert read.session_id is not None
    count = read.last_seq
    with log.open("ab") as file:
        for event in behind(read.session_id, count):
            file.write(encode(event) + b"\n")
            count = event.seq
    return Session(read.session_id, log, count, log.stat().st_size)


def reopened(home: Path, session: Session) -> float:
    """Seconds from exec to the first part; the log is put back to its length afterwards."""
    took = start(home, home / "mark", "--resume-session", session.id) / 1e3
    os.truncate(session.log, session.size)
    return took


def timed_fold(session: Session) -> float:
    begun = time.perf_counter()
    state = fold(read_log(session.log, session.id).events())
    took = time.perf_counter() - begun
    assert state.seq == session.events
    return took


def timed_decoding(session: Session) -> float:
    decode = msgspec.json.Decoder(StoredEvent).decode
    begun = time.perf_counter()
    for line in lines(session.log):
        decode(line)
    return time.perf_counter() - begun


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    took: dict[str, list[float]] = {"reopened": [], "new": [], "fold": [], "plain decoding": []}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        script = home / "one.yaml"
        script.write_text(SCRIPT)
        (home / "config.toml").write_text(CONFIG.format(script=script))
        session = build(home)
        print(f"log of {session.events:,} events, {session.size:,} bytes")
        for _ in range(rounds):
            took["new"].append(start(home, home / "mark") / 1e3)
            took["reopened"].append(reopened(home, session))
            took["plain decoding"].append(timed_decoding(session))
            took["fold"].append(timed_fold(session))
    for name, found in took.items():
        middle, low, high = statistics.median(found), min(found), max(found)
        print(f"{name:14} {middle:6.3f} s  ({low:.3f} to {high:.3f})")
    middle = statistics.median(took["reopened"])
    print(f"exec to the first part of a reopened session: {middle:.2f} s (bar {BAR_S})")
    return 0 if middle < BAR_S else 1


if __name__ == "__main__":
    sys.exit(main())
