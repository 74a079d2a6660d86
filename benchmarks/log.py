"""Lines a second into a log: group commit against one fdatasync a line, alternating.

`python benchmarks/log.py [directory]`; the directory must lie on the disk that is meant, not on
a tmpfs. Prints medians of ROUNDS rounds and their ratio.
"""

import asyncio
import fcntl
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from ipc.content import user_text
from ipc.disk.paths import WorkspacePaths
from ipc.events import Payload, StoredEvent, TextDelta, UserInputSubmitted
from ipc.events.codec import encode
from ipc.ids import AttemptId, RunId, new_session_id
from workers.store.file import LogFile
from workers.store.log import LogWriter, WriterThread
from workers.store.tree import OwnedTree

ROUNDS = 5
WRITERS = 64  # appends in flight: what shares one sync
LINES_GROUPED = 20_000
LINES_SINGLE = 1_000
DELTAS = 50_000
RUN = RunId("01890000-0000-7000-8000-00000000000b")
PAYLOAD: Payload = UserInputSubmitted(input=user_text("x" * 200))
DELTA: Payload = TextDelta(attempt_id=AttemptId("01890000-0000-7000-8000-00000000000c"), text="abc")


def tree_in(place: Path) -> OwnedTree:
    """A fresh locked tree."""
    paths = WorkspacePaths(place).staging(new_session_id())
    paths.directory.mkdir(mode=0o700)
    fd = os.open(paths.lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return OwnedTree(paths.directory, fd)


async def grouped(place: Path) -> tuple[float, float]:
    """(lines a second, lines a sync) with WRITERS tasks that append one line at a time."""
    tree, thread = tree_in(place), WriterThread()
    log = LogWriter(
        thread, LogFile.create(tree, tree.paths.root), new_session_id(), 0, lambda _: None
    )

    async def writer(lines: int) -> None:
        for _ in range(lines):
            await log.append([(RUN, PAYLOAD)])

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(WRITERS):
            tasks.create_task(writer(LINES_GROUPED // WRITERS))
    took = time.perf_counter() - began
    await thread.close()
    tree.release()
    return log.last_seq / took, log.last_seq / thread.syncs


async def deltas(place: Path) -> float:
    """Deltas a second through one log, from the call to the last delivery."""
    tree, thread = tree_in(place), WriterThread()
    log = LogWriter(
        thread, LogFile.create(tree, tree.paths.root), new_session_id(), 0, lambda _: None
    )
    began = time.perf_counter()
    for _ in range(DELTAS):
        await log.delta(RUN, DELTA)
    await log.append([])
    took = time.perf_counter() - began
    await thread.close()
    tree.release()
    return DELTAS / took


def single(place: Path) -> float:
    """Lines a second with the same encoding, and a write and a sync for each line."""
    fd = os.open(place / "single.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    session = new_session_id()
    began = time.perf_counter()
    for seq in range(1, LINES_SINGLE + 1):
        event = StoredEvent(
            session_id=session,
            run_id=RUN,
            seq=seq,
            timestamp="2026-01-02T03:04:05.678Z",
            payload=PAYLOAD,
        )
        os.write(fd, encode(event) + b"\n")
        os.fdatasync(fd)
    took = time.perf_counter() - began
    os.close(fd)
    return LINES_SINGLE / took


def main() -> None:
    """Print one line a figure."""
    below = sys.argv[1] if len(sys.argv) > 1 else None
    groups, syncs, singles, streams = [], [], [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(dir=below) as name:
            rate, per_sync = asyncio.run(grouped(Path(name)))
            groups.append(rate)
            syncs.append(per_sync)
            singles.append(single(Path(name)))
            streams.append(asyncio.run(deltas(Path(name))))
    group, one = statistics.median(groups), statistics.median(singles)
    print(f"group commit, {WRITERS} waiting: {group:,.0f} lines/s")
    print(f"lines a sync: {statistics.median(syncs):.1f}")
    print(f"one sync a line: {one:,.0f} lines/s")
    print(f"ratio: {group / one:.1f}")
    print(f"deltas: {statistics.median(streams):,.0f} lines/s")


if __name__ == "__main__":
    main()
