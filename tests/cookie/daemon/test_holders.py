"""Who holds a tree, seen from outside: the kernel's list, the text in the lock, or neither."""

import os
from pathlib import Path

import pytest

from cookie.daemon import holders, locks
from ipc.disk.paths import WorkspacePaths, workspace_paths
from tests.fakes.lockers import HOLD, running, said

LOCKS = """\
1: FLOCK  ADVISORY  WRITE 1234 fe:00:10166550 0 EOF
2: POSIX  ADVISORY  WRITE 1235 fe:00:77 0 EOF
3: FLOCK  ADVISORY  WRITE 0 08:11:42 0 EOF
3: -> FLOCK  ADVISORY  WRITE 1236 08:11:43 0 EOF
"""


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspacePaths:
    (tmp_path / "ws").mkdir()
    return workspace_paths(tmp_path / "data", tmp_path / "ws")


def test_the_kernels_list_is_read_by_device_and_inode() -> None:
    assert holders.parsed(LOCKS) == {(os.makedev(0xFE, 0), 10166550), (os.makedev(8, 0x11), 42)}
    assert holders.parsed("x\n1: FLOCK\n1: FLOCK A W 1 nonsense 0 EOF\n") == set()


def test_a_held_tree_names_its_holder_and_a_free_one_is_not_held(
    workspace: WorkspacePaths, tmp_path: Path
) -> None:
    cwd = str(tmp_path / "ws")
    free, taken = (locks.birth(workspace, cwd, "run") for _ in range(2))
    for lock in (free, taken):
        lock.place.directory.rename(lock.final.directory)
        lock.close()

    with running(HOLD, taken.final.directory) as holder:
        assert said(holder) == "held"
        (found,) = holders.held(workspace)
        assert found.tree == taken.final
        assert found.who == f"a `cookie run` with pid {holder.pid}"
        with pytest.raises(locks.ForeignOwner):  # nobody was disturbed, and it is still held
            locks.take(taken.final)

    assert list(holders.held(workspace)) == []


def test_a_lock_that_does_not_say_who_holds_it_is_held_all_the_same(
    workspace: WorkspacePaths, tmp_path: Path
) -> None:
    lock = locks.birth(workspace, str(tmp_path / "ws"), "run")
    lock.place.lock.write_text("?")
    if holders.flocked() is None:
        pytest.skip("this system has no list of locks")

    (found,) = holders.held(workspace)

    assert (found.holder, found.who) == (None, "a process that does not say who")
    lock.close()


def test_a_workspace_that_is_not_there_has_no_holders(workspace: WorkspacePaths) -> None:
    assert list(holders.held(workspace)) == []
