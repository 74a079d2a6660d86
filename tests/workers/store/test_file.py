"""One log file and the birth of its tree: what is durable at which moment."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipc.disk.log import read_log
from ipc.disk.paths import WorkspacePaths
from ipc.events import StoredEvent
from ipc.events.codec import encode
from tests.fakes.fs import RecordingFs
from tests.fakes.store import CREATED, SESSION, staged
from workers.store.file import LogFile
from workers.store.publish import publish
from workers.store.tree import Fenced, OwnedTree

LINE = encode(
    StoredEvent(
        session_id=SESSION,
        run_id=None,
        seq=1,
        timestamp="2026-01-01T00:00:00.000Z",
        payload=CREATED,
    )
)


class Birth:
    """A staged tree on a file system that remembers what a crash could take back."""

    def __init__(self, workspace: Path) -> None:
        self.fs = RecordingFs()
        self.paths, self.lock = staged(workspace)
        self.tree = OwnedTree(self.paths.directory, self.lock, self.fs)
        self.final = WorkspacePaths(workspace).tree(SESSION)

    @property
    def events(self) -> Path:
        return self.tree.paths.root.events

    def create(self) -> LogFile:
        return LogFile.create(self.tree, self.tree.paths.root)

    def calls(self, call: str, path: Path) -> int:
        """Where the last such call stands among all of them; -1 when there was none."""
        found = [n for n, op in enumerate(self.fs.ops) if (op.call, op.path) == (call, str(path))]
        return found[-1] if found else -1


@pytest.fixture
def birth(tmp_path: Path) -> Iterator[Birth]:
    born = Birth(tmp_path / "ws")
    yield born
    os.close(born.lock)


def test_a_new_log_is_durable_in_its_directory_at_once(birth: Birth) -> None:
    birth.create().close()

    assert str(birth.events) not in birth.fs.loose


def test_what_was_written_and_not_synced_is_synced_by_the_close(birth: Birth) -> None:
    file = birth.create()
    file.append([LINE])
    assert birth.fs.synced[str(birth.events)] == 0
    file.close()

    assert birth.fs.synced[str(birth.events)] == birth.events.stat().st_size


def test_what_the_last_writer_did_not_sync_is_durable_before_the_next_one_writes(
    birth: Birth,
) -> None:
    birth.create().close()
    birth.events.write_bytes(LINE + b"\n")
    read = read_log(birth.events, SESSION).drain()
    birth.fs.synced.clear()
    LogFile.reopen(birth.tree, birth.tree.paths.root, read).close()

    assert birth.fs.synced[str(birth.events)] == read.size


def test_a_tree_is_durable_before_it_gets_its_name_and_the_name_after(birth: Birth) -> None:
    log, staged_in, final = birth.events, birth.paths.directory, birth.final.directory
    file = birth.create()
    file.append([LINE])
    file.close()
    publish(birth.tree, final)

    closed, renamed = birth.calls("fdatasync", log), birth.calls("rename", final)
    # Once for the log that was made in it, once more for all that came after.
    assert closed < birth.calls("fsync", staged_in) < renamed < birth.calls("fsync", final.parent)


def test_a_tree_whose_lock_is_not_ours_is_not_published(birth: Birth) -> None:
    birth.create().close()
    birth.paths.lock.unlink()
    birth.paths.lock.touch()

    with pytest.raises(Fenced, match="replaced"):
        publish(birth.tree, birth.final.directory)
    assert birth.paths.directory.is_dir()
    assert not birth.final.directory.exists()
