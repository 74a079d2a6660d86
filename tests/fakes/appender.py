"""A process that appends to a tree and says what it was told: `python -m tests.fakes.appender`.

Arguments: the workspace directory, how many rounds. Each round is a delta and a commit. A told
line is written to stdout, whole, when it was delivered; `stdin` is read before each round if
`step` is the third argument.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ipc.disk.log import read_log
from ipc.disk.paths import WorkspacePaths
from ipc.events import is_commit
from ipc.seams.clock import REAL
from tests.fakes.store import CREATED, RUN, SESSION, delta, locked, staged, user
from workers.store.file import LogFile
from workers.store.log import LogWriter, Record, WriterThread
from workers.store.publish import publish
from workers.store.tree import LogBroken, OwnedTree


def tell(records: Sequence[Record]) -> None:
    """What an observer sees: only commit events, each in one write."""
    for event, line in records:
        if is_commit(event.payload):
            os.write(1, line + b"\n")


async def main(workspace: Path, rounds: int, *, step: bool) -> int:
    """Be born or go on, then append; 3 if the log refuses."""
    thread = WriterThread(REAL)
    final = WorkspacePaths(workspace).tree(SESSION)
    if final.directory.exists():
        tree = OwnedTree(final.directory, locked(final))
        read = read_log(final.root.events, SESSION).drain()
        log = LogWriter(
            thread, LogFile.reopen(tree, final.root, read), SESSION, read.last_seq, tell
        )
    else:
        paths, lock = staged(workspace)
        tree = OwnedTree(paths.directory, lock)
        log = LogWriter(thread, LogFile.create(tree, paths.root), SESSION, 0, tell)
        birth = [(None, CREATED), (None, user("hello"))]
        await log.append(birth, then=partial(publish, tree, final.directory))
    try:
        for n in range(rounds):
            if step:
                os.read(0, 1)
            await log.delta(RUN, delta(f"{os.getpid()} {n}"))
            await log.append([(RUN, user(f"{os.getpid()} {n} " + "x" * (n * 97 % 3000)))])
    except LogBroken as broken:
        os.write(2, f"{broken}\n".encode())
        return 3
    finally:
        await thread.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), step="step" in sys.argv[3:])))
