"""owner.lock with real flock and real processes."""

import ast
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cookie.daemon import locks
from ipc.disk.paths import TreePaths, WorkspacePaths, workspace_paths
from ipc.ids import SessionId, new_session_id
from tests.fakes.lockers import HOLD, KEEP, RACE, ROOT, running, said

DEADLINE_S = 10.0


@pytest.fixture
def tree(tmp_path: Path) -> TreePaths:
    directory = tmp_path / "root"
    directory.mkdir()
    return TreePaths(directory)


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspacePaths:
    (tmp_path / "ws").mkdir()
    return workspace_paths(tmp_path / "data", tmp_path / "ws")


def is_free(tree: TreePaths) -> bool:
    try:
        os.close(locks.take(tree))
    except locks.ForeignOwner:
        return False
    return True


def soon_free(tree: TreePaths) -> bool:
    until = time.monotonic() + DEADLINE_S
    while not is_free(tree):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def test_a_held_tree_is_refused_with_the_holder_named(tree: TreePaths) -> None:
    with running(HOLD, tree.directory) as holder:
        assert said(holder) == "held"

        with pytest.raises(locks.ForeignOwner) as refused:
            locks.take(tree)

    named = f"a `cookie run` with pid {holder.pid}"
    assert str(refused.value) == f"session is owned by another cookie process: {named}"
    assert refused.value.code == "foreign_owner"


def test_a_killed_holder_frees_the_tree_and_its_hint_is_not_believed(tree: TreePaths) -> None:
    with running(HOLD, tree.directory) as holder:
        assert said(holder) == "held"
        holder.send_signal(signal.SIGKILL)
        holder.wait()

        assert soon_free(tree)
    fd = locks.take(tree)
    hint = locks.read_hint(fd)
    assert hint is not None
    assert (hint.pid, hint.epoch, hint.lives()) == (holder.pid, 3, False)
    os.close(fd)


def test_an_inherited_descriptor_keeps_the_tree_after_its_taker_closed_it(tree: TreePaths) -> None:
    fd = locks.take(tree)
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        pass_fds=[fd],
    )
    os.close(fd)

    assert not is_free(tree)
    child.kill()
    child.communicate()
    assert soon_free(tree)


def test_a_descriptor_sent_over_a_socket_keeps_the_tree(tree: TreePaths) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        fd = locks.take(tree)
        child = subprocess.Popen(
            [sys.executable, "-c", KEEP, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[theirs.fileno()],
        )
        socket.send_fds(ours, [b"x"], [fd])
        assert said(child) == "got"
        os.close(fd)

        assert not is_free(tree)
        child.kill()
        child.communicate()
        assert soon_free(tree)


def test_a_descriptor_nobody_received_frees_the_tree_with_its_socket(tree: TreePaths) -> None:
    ours, theirs = socket.socketpair()
    fd = locks.take(tree)
    socket.send_fds(ours, [b"x"], [fd])
    os.close(fd)

    assert not is_free(tree)
    ours.close()
    theirs.close()
    assert soon_free(tree)


def test_a_child_started_in_the_common_way_inherits_no_lock(tree: TreePaths) -> None:
    fd = locks.take(tree)
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    os.close(fd)

    assert is_free(tree)
    child.kill()
    child.wait()


def test_of_eight_racing_lockers_never_two_hold(tree: TreePaths, tmp_path: Path) -> None:
    book = tmp_path / "book"
    book.touch()
    racers = [running(RACE, tree.directory, "40", book) for _ in range(8)]
    processes = [racer.__enter__() for racer in racers]
    try:
        assert [said(process) for process in processes] == ["done"] * 8
    finally:
        for racer in racers:
            racer.__exit__(None, None, None)

    assert book.read_text() == "+-" * 320


def test_a_lock_file_that_is_replaced_while_it_is_taken_is_taken_anew(tree: TreePaths) -> None:
    """The thief that hazard 8 describes: a lock on a removed file keeps nobody out."""

    class Replacing(locks.Fs):
        left = 3

        def flock(self, fd: int) -> None:
            super().flock(fd)
            if self.left:
                self.left -= 1
                tree.lock.unlink()

    fs = Replacing()
    fd = locks.take(tree, fs)

    assert (fs.left, os.fstat(fd).st_ino) == (0, tree.lock.stat().st_ino)
    assert not is_free(tree)
    os.close(fd)


def test_a_lock_file_that_is_always_replaced_is_a_fault_and_not_a_loop(tree: TreePaths) -> None:
    class Replacing(locks.Fs):
        def flock(self, fd: int) -> None:
            super().flock(fd)
            tree.lock.unlink()

    with pytest.raises(locks.LockLost):
        locks.take(tree, Replacing())


def test_a_tree_is_born_private_locked_and_hidden(
    workspace: WorkspacePaths, tmp_path: Path
) -> None:
    lock = locks.birth(workspace, str(tmp_path / "ws"), "run")

    assert lock.place == workspace.staging(lock.root)
    assert (lock.final, lock.published) == (workspace.tree(lock.root), False)
    assert lock.place.directory.stat().st_mode & 0o777 == 0o700
    assert lock.place.lock.stat().st_mode & 0o777 == 0o600
    assert not is_free(lock.place)
    assert sorted(path.name for path in workspace.directory.iterdir()) == sorted(
        [lock.place.directory.name, "cwd", "layout.json"]
    )
    lock.close()


def test_a_tree_nobody_published_leaves_with_its_owner(
    workspace: WorkspacePaths, tmp_path: Path
) -> None:
    lock = locks.birth(workspace, str(tmp_path / "ws"), "run")
    (lock.place.directory / "artifacts").mkdir()
    (lock.place.directory / "artifacts" / "x").write_text("x")
    (lock.place.directory / "loop").symlink_to(lock.place.directory)

    lock.close()

    assert sorted(path.name for path in workspace.directory.iterdir()) == ["cwd", "layout.json"]


def test_a_published_tree_stays_and_its_lock_is_free(
    workspace: WorkspacePaths, tmp_path: Path
) -> None:
    lock = locks.birth(workspace, str(tmp_path / "ws"), "run")
    lock.place.directory.rename(lock.final.directory)

    assert lock.look() == lock.final
    assert not is_free(lock.final)
    lock.close()

    assert is_free(lock.final)


def test_workers_are_numbered_across_owners(workspace: WorkspacePaths, tmp_path: Path) -> None:
    cwd = str(tmp_path / "ws")
    first = locks.birth(workspace, cwd, "run")
    numbers = [first.next_epoch(), first.next_epoch()]
    first.place.directory.rename(first.final.directory)
    first.close()

    second = locks.open_existing(workspace, cwd, "run", first.root)
    numbers.append(second.next_epoch())
    second.close()

    assert numbers == [1, 2, 3]


def test_a_hint_that_makes_no_sense_costs_nothing(tree: TreePaths) -> None:
    for text in (b"", b"\xff\xfe", b"{", b'{"pid":"x"}', b"[" * 600):
        tree.lock.write_bytes(text)
        fd = locks.take(tree)
        assert locks.read_hint(fd) is None
        with pytest.raises(locks.ForeignOwner, match=r"owned by another cookie process$"):
            locks.take(tree)
        os.close(fd)


def test_a_session_of_another_workspace_says_where_it_belongs(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    data = tmp_path / "data"
    lock = locks.birth(workspace_paths(data, there), str(there), "run")
    lock.place.directory.rename(lock.final.directory)
    lock.close()

    with pytest.raises(locks.NoSuchSession) as refused:
        locks.open_existing(workspace_paths(data, here), str(here), "run", lock.root)

    belongs = f"it belongs to {there}; start cookie there"
    assert str(refused.value) == f"no session {lock.root} in {here}: {belongs}"


def test_a_session_nobody_has_is_said_to_be_nowhere(
    workspace: WorkspacePaths, tmp_path: Path
) -> None:
    with pytest.raises(locks.NoSuchSession, match=r"no workspace has it$"):
        locks.open_existing(workspace, str(tmp_path), "run", new_session_id())


def test_the_sweeper_takes_the_dead_and_spares_the_living(
    workspace: WorkspacePaths, tmp_path: Path
) -> None:
    cwd = str(tmp_path / "ws")
    living = locks.birth(workspace, cwd, "run")
    published = locks.birth(workspace, cwd, "run")
    published.place.directory.rename(published.final.directory)
    published.close()
    for dead in (
        workspace.new(4242, "00"),
        workspace.staging(SessionId("old")),
        workspace.dead("ff"),
    ):
        dead.directory.mkdir()
        (dead.directory / "events.jsonl").write_text("{}\n")

    assert locks.sweep_unborn(workspace) == 3

    assert {path.name for path in workspace.directory.iterdir()} == {
        living.place.directory.name,
        published.final.directory.name,
        "cwd",
        "layout.json",
    }
    living.close()


def test_a_tree_swept_while_it_is_born_is_born_again(
    workspace: WorkspacePaths, tmp_path: Path
) -> None:
    class Unlucky(locks.Fs):
        left = 3

        def mkdir(self, path: object, mode: int = 0o700) -> None:
            super().mkdir(path, mode)  # type: ignore[arg-type]
            if self.left and ".new-" in str(path):
                self.left -= 1
                locks.sweep_unborn(workspace)

    fs = Unlucky()
    lock = locks.birth(workspace, str(tmp_path / "ws"), "run", fs=fs)

    assert (fs.left, is_free(lock.place)) == (0, False)
    lock.close()


def test_one_sweep_takes_a_bounded_number(workspace: WorkspacePaths, tmp_path: Path) -> None:
    locks.birth(workspace, str(tmp_path / "ws"), "run").close()
    for number in range(locks.SWEEP_MAX + 3):
        workspace.dead(f"{number:02}").directory.mkdir()

    assert [locks.sweep_unborn(workspace) for _ in range(3)] == [locks.SWEEP_MAX, 3, 0]


def test_nothing_in_the_house_unlocks_otherwise_than_by_closing() -> None:
    floors = ("cookie", "workers", "ipc")
    sources = [path for floor in floors for path in (ROOT / floor).rglob("*.py")]
    unlocking = [
        str(path)
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if getattr(node, "attr", getattr(node, "id", "")) == "LOCK_UN"
    ]

    assert sources
    assert unlocking == []
