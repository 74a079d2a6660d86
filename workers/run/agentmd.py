"""AGENTS.md: what a workspace tells its agents, read afresh for each run of a root session."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ipc.events import AgentMdEntry, AgentMdLoaded, AgentMdSkipped
from ipc.fold import InstructionsEntry, SessionView
from ipc.ids import PresetName

NAME: Final = "AGENTS.md"
FOLDER: Final = ".cookie-agent/agents"
FILE_BYTES_MAX: Final = 2 << 20  # a larger file is skipped whole (spec 1.10)


class Instructions(NamedTuple):
    """What was found, and what was there and could not be used."""

    entries: tuple[AgentMdEntry, ...]
    skipped: tuple[AgentMdSkipped, ...]


def read(workspace: Path, preset: PresetName | None, max_bytes: int) -> Instructions:
    """The files that hold for a run: the preset's or the shared one, then the workspace's own.

    Of each file at most `max_bytes`, cut between characters. Links are followed, each file is
    taken once. Blocks for as long as three small files take.
    """
    own = [f"{FOLDER}/{preset}/{NAME}"] if preset is not None else []
    project = next(
        (path for path in (*own, f"{FOLDER}/{NAME}") if (workspace / path).exists()), None
    )
    entries: list[AgentMdEntry] = []
    skipped: list[AgentMdSkipped] = []
    seen: set[tuple[int, int]] = set()
    for source in (project, NAME):
        if source is None:
            continue
        found = _read(workspace / source, source, max_bytes, seen)
        if isinstance(found, AgentMdEntry):
            entries.append(found)
        elif found is not None:
            skipped.append(found)
    return Instructions(tuple(entries), tuple(skipped))


def news(state: SessionView, found: Instructions) -> Sequence[AgentMdLoaded | AgentMdSkipped]:
    """The events to append: nothing when the history holds just this already."""
    told = next((e for e in reversed(state.entries) if isinstance(e, InstructionsEntry)), None)
    before = () if told is None else told.entries
    loaded = (AgentMdLoaded(entries=found.entries),) if found.entries != before else ()
    return (*found.skipped, *loaded)


def _read(
    path: Path, source: str, max_bytes: int, seen: set[tuple[int, int]]
) -> AgentMdEntry | AgentMdSkipped | None:
    try:
        # Not blocking: a named pipe in its place must not hold up the run.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as no:
        return AgentMdSkipped(source=source, reason=os.strerror(no.errno or 0))
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return AgentMdSkipped(source=source, reason="it is no regular file")
        if status.st_size > FILE_BYTES_MAX:
            return AgentMdSkipped(
                source=source,
                reason=f"it is larger than {FILE_BYTES_MAX} bytes",
                original_bytes=status.st_size,
            )
        if (status.st_dev, status.st_ino) in seen:
            return None
        seen.add((status.st_dev, status.st_ino))
        data = os.pread(fd, FILE_BYTES_MAX, 0)
    except OSError as no:
        return AgentMdSkipped(source=source, reason=os.strerror(no.errno or 0))
    finally:
        os.close(fd)
    if not data.strip():
        return None
    kept = data[:max_bytes]
    while kept and len(kept) < len(data) and data[len(kept)] & 0xC0 == 0x80:  # noqa: PLR2004
        kept = kept[:-1]  # a cut inside a character: back to where it begins
    return AgentMdEntry(
        source=source,
        text=kept.decode("utf-8", "replace"),
        original_bytes=len(data),
        truncated=len(kept) < len(data),
    )
