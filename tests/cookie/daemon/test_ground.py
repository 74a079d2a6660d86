"""Where sessions may lie: the data directory's file system, and a lock that is tried out."""

import os
from pathlib import Path

import pytest

from cookie.config.filesystems import FUSE
from cookie.daemon import locks
from ipc.disk.paths import TreePaths, WorkspacePaths, workspace_paths
from ipc.seams.fs import REAL, Fs, StrPath

NFS = 0x6969


class On(Fs):
    """A disk that says it is of another kind; `asked` is what was asked about."""

    def __init__(self, magic: int | None) -> None:
        self._magic = magic
        self.asked: list[str] = []

    def magic(self, path: StrPath) -> int | None:
        self.asked.append(os.fspath(path))
        return self._magic


class Open(Fs):
    """A flock that always succeeds and keeps nobody out."""

    def flock(self, fd: int) -> None:
        pass


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspacePaths:
    (tmp_path / "ws").mkdir()
    return workspace_paths(tmp_path / "data", tmp_path / "ws")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_network_file_system_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(locks.WrongGround) as refused:
        locks.check_ground(tmp_path, On(NFS))

    assert str(refused.value) == (
        f"{tmp_path} is no place for sessions: NFS can't promise that one process alone writes a "
        "session; choose a local disk with --data-dir"
    )
    assert refused.value.code == "wrong_file_system"


def test_it_is_the_sessions_folder_that_is_asked_about_wherever_it_leads(tmp_path: Path) -> None:
    data = tmp_path / "data"
    asked = On(None)

    locks.check_ground(data / "not" / "yet", asked)
    (tmp_path / "elsewhere").mkdir()
    data.mkdir()
    locks.check_ground(data, asked)
    (data / "sessions").symlink_to(tmp_path / "elsewhere")
    locks.check_ground(data, asked)

    assert asked.asked == [str(tmp_path), str(data), str(data / "sessions")]
    assert not (data / "not").exists()


def test_a_dangling_link_is_judged_by_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "sessions").symlink_to(tmp_path / "nowhere")
    asked = On(None)

    locks.check_ground(tmp_path, asked)

    assert asked.asked == [str(tmp_path)]


def test_what_a_real_disk_says_is_known(tmp_path: Path) -> None:
    magic = REAL.magic(tmp_path)
    assert magic is None or 0 < magic <= 0xFFFFFFFF
    assert locks.ground(tmp_path).refusal is None
    with pytest.raises(FileNotFoundError):
        REAL.magic(tmp_path / "nothing")


def test_fuse_is_judged_by_the_mount_table(tmp_path: Path) -> None:
    """Which says here that it is no FUSE at all, so nothing allows it."""
    found = locks.ground(tmp_path, On(FUSE))

    assert found.refusal == f"{found.name} may keep its files on another machine"


def test_a_lock_that_keeps_nobody_out_is_no_lock(tmp_path: Path) -> None:
    tree = TreePaths(tmp_path)
    before = descriptors()

    with pytest.raises(locks.WrongGround, match="its flock keeps nobody out"):
        locks.take(tree, Open())
    assert descriptors() == before

    os.close(locks.take(tree))  # the real one does, and it is not held


def test_nothing_is_born_opened_swept_or_deleted_under_such_a_lock(
    workspace: WorkspacePaths, tmp_path: Path
) -> None:
    cwd = str(tmp_path / "ws")
    lock = locks.birth(workspace, cwd, "run")
    lock.place.directory.rename(lock.final.directory)
    lock.close()
    before = descriptors()
    workspace.staging(lock.root).directory.mkdir()

    with pytest.raises(locks.WrongGround):
        locks.birth(workspace, cwd, "run", fs=Open())
    with pytest.raises(locks.WrongGround):
        locks.open_existing(workspace, cwd, "run", lock.root, Open())
    with pytest.raises(locks.WrongGround):
        locks.delete(lock.final, Open())
    assert locks.sweep_unborn(workspace, Open()) == 0

    assert lock.final.directory.is_dir()
    assert not [one.name for one in workspace.directory.iterdir() if one.name.startswith(".new-")]
    assert descriptors() == before


def test_a_file_that_is_replaced_while_its_lock_is_tried_is_taken_anew(tmp_path: Path) -> None:
    """A second file that opens is another file: no fault of the lock."""
    tree = TreePaths(tmp_path)

    class Replacing(Fs):
        left = 2

        def open(self, path: StrPath, flags: int, mode: int = 0o600) -> int:
            if not flags & os.O_CREAT and self.left:
                self.left -= 1
                tree.lock.unlink()
                if self.left:
                    tree.lock.touch(0o600)
            return super().open(path, flags, mode)

    fs = Replacing()
    fd = locks.take(tree, fs)

    assert (fs.left, os.fstat(fd).st_ino) == (0, tree.lock.stat().st_ino)
    os.close(fd)
