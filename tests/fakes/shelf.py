"""Sessions on a disk: logs that were built line by line, where `cookie` looks for them."""

import os
from pathlib import Path

from msgspec import structs

from ipc.disk.files import prepare_workspace
from ipc.disk.metadata import write_metadata
from ipc.disk.paths import TreePaths, workspace_paths
from ipc.events import FallbackTitle, SessionTitleCommitted
from ipc.events.codec import encode
from ipc.fold import fold
from ipc.ids import SessionId
from ipc.seams.fs import REAL
from tests.fakes.logs import Log
from workers.store.summary import summarise


def session_id(number: int) -> SessionId:
    """Different from the first digit on, so that a prefix of four names one."""
    return SessionId(f"0{number:x}900000-0000-7000-8000-00000000000{number:x}")


def titled(log: Log, title: str) -> Log:
    """The log with a title in it."""
    log.add(SessionTitleCommitted(input_through_seq=0, change=FallbackTitle(title=title)))
    return log


class Shelf:
    """The sessions of one folder."""

    def __init__(self, data: Path, cwd: Path) -> None:
        cwd.mkdir(parents=True, exist_ok=True)
        self.data, self.cwd = data, cwd
        self.workspace = workspace_paths(data, cwd)
        prepare_workspace(REAL, self.workspace, cwd)

    def put(
        self, number: int, log: Log, *, age_s: float = 0, now: float = 0, metadata: bool = True
    ) -> TreePaths:
        """Session `number`, whose log last changed `age_s` seconds before `now` (of the epoch)."""
        tree = self.workspace.tree(session_id(number))
        tree.directory.mkdir(mode=0o700)
        events = [structs.replace(event, session_id=session_id(number)) for event in log.events]
        tree.root.events.write_bytes(b"".join(encode(event) + b"\n" for event in events))
        tree.lock.touch(0o600)
        if metadata:
            write_metadata(tree.root.metadata, summarise(fold(events).view()))
        os.utime(tree.root.events, (now - age_s, now - age_s))
        return tree
