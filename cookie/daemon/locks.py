"""owner.lock of a session tree: taken by the supervisor, kept alive by the worker's duplicate.

The lock is the flock of an open file, so it lives as long as any descriptor of that open file: ours
across a worker's crash, the worker's across ours. It is given back by closing and by nothing else,
since unlocking through one duplicate would unlock it for all. The file is never removed from a tree
that can be opened, since a lock on a removed file keeps nobody out. The text in it is a hint for
people and decides nothing.
"""

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from cookie.config import filesystems
from cookie.config.filesystems import FileSystem
from ipc.disk.files import prepare_workspace
from ipc.disk.paths import (
    DEAD_PREFIX,
    NEW_PREFIX,
    STAGING_PREFIX,
    TreePaths,
    WorkspacePaths,
    sessions_dir,
)
from ipc.faults import Fault
from ipc.ids import SessionId, new_session_id
from ipc.seams import proc
from ipc.seams.fs import REAL, Fs

TAKE_TRIES_MAX: Final = 64  # a lock file that is replaced under our hands this often is a fault
BIRTH_TRIES_MAX: Final = 32  # a sweeper may take a newborn for dead; then we make another
SWEEP_MAX: Final = 8  # dead trees removed by one sweep
HINT_BYTES_MAX: Final = 512
WORKSPACES_LOOK_MAX: Final = 4096

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS: Final = Path("/proc/self/mountinfo")
_UNBORN: Final = (NEW_PREFIX, STAGING_PREFIX, DEAD_PREFIX)


class Holder(Struct, frozen=True, kw_only=True):
    """Who says it holds a tree: what owner.lock's text tells people."""

    instance: str  # "run", or the name of a daemon
    boot_id: str
    pid: int  # of the supervisor
    started: int  # its start time in clock ticks since boot; tells a reused pid
    epoch: int  # of the tree's newest worker

    def lives(self) -> bool:
        """Whether the process that wrote this still runs on this machine's present boot."""
        process = proc.read_process(self.pid) if self.boot_id == boot_id() else None
        return process is not None and process.start == self.started

    def fate(self) -> str:
        """What became of its worker, for the next one; only asked when the tree is ours."""
        if self.boot_id != boot_id():
            return "the machine was restarted"
        return f"the process that had this session open (pid {self.pid}) is gone"

    def __str__(self) -> str:
        who = "a `cookie run`" if self.instance == "run" else f"the daemon {self.instance!r}"
        if self.lives():
            return f"{who} with pid {self.pid}"
        return f"{who} with pid {self.pid} that is gone; its worker is still ending, try again soon"


class ForeignOwner(Fault):
    """Another process holds the tree. Its text is what every client shows (spec 1.2)."""

    code = "foreign_owner"

    def __init__(self, root: str, holder: Holder | None) -> None:
        super().__init__(root=root, pid=holder.pid if holder else 0)
        text = "session is owned by another cookie process"
        self.args = (f"{text}: {holder}" if holder else text,)


class NoSuchSession(Fault):
    """No tree with this id in the workspace."""

    code = "session_not_found"

    def __init__(self, root: str, cwd: str, hint: str) -> None:
        super().__init__(session=root, cwd=cwd)
        self.args = (f"no session {root} in {cwd}: {hint}",)


class Changed(Fault):
    """The session went on while it was looked at."""

    code = "session_changed"

    def __init__(self, root: str) -> None:
        super().__init__(root=root)
        self.args = ("it has changed meanwhile",)


class LockLost(Fault):
    """The lock file is replaced again and again; somebody else works on this directory."""

    code = "lock_lost"


class WrongGround(Fault):
    """The data directory lies on a file system where a lock can't be trusted."""

    code = "wrong_file_system"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path=path, reason=why)
        self.args = (
            f"{path} is no place for sessions: {why}; choose a local disk with --data-dir",
        )


class TreeLock:
    """The hold on one tree. `place` is where it is now, `final` where it is once published."""

    __slots__ = ("_fs", "epoch", "fd", "final", "instance", "last", "place", "published", "root")

    def __init__(
        self, root: SessionId, place: TreePaths, final: TreePaths, fd: int, instance: str, fs: Fs
    ) -> None:
        self.root = root
        self.place = place
        self.final = final
        self.published = place == final
        self.fd = fd
        self.instance = instance
        self._fs = fs
        self.last = old = read_hint(fd, fs)  # who had it before us
        # Goes on counting where the last owner stopped, so that no two workers of one tree ever
        # had the same number, whoever started them.
        self.epoch = old.epoch if old is not None else 0

    def next_epoch(self) -> int:
        """Number the tree's next worker and say so in the hint."""
        self.epoch += 1
        write_hint(self.fd, me(self.instance, self.epoch), self._fs)
        return self.epoch

    def look(self) -> TreePaths:
        """Where the tree is now: its worker may have published it since. Updates `place`."""
        # A look that the disk refuses changes nothing; the next one may see.
        with contextlib.suppress(OSError):
            if not self.published and _leads_to(self.fd, self.final.lock, self._fs):
                self.place, self.published = self.final, True
        return self.place

    def close(self) -> None:
        """Let go. The tree stays locked for as long as a worker of it lives.

        Only to be called when no worker lives: a tree nobody published is deleted with it.
        """
        if self.fd < 0:
            return
        self.look()
        with contextlib.suppress(OSError):  # a sweeper finds what is left
            if not self.published and _leads_to(self.fd, self.place.lock, self._fs):
                _bury(self.place, self._fs)
        with contextlib.suppress(OSError):  # it is closed all the same
            self._fs.close(self.fd)
        self.fd = -1


def ground(data_dir: Path, fs: Fs = REAL) -> FileSystem:
    """The file system that sessions lie on, or would; raises OSError."""
    here = sessions_dir(data_dir)
    while not os.path.exists(here) and here.parent != here:  # noqa: PTH110 - also a dangling link
        here = here.parent
    magic = fs.magic(here)
    mounts = ""
    if magic == filesystems.FUSE:
        with contextlib.suppress(OSError):
            mounts = _MOUNTS.read_text("utf-8", "surrogateescape")
    return filesystems.judge(magic, mounts, os.path.realpath(here))


def check_ground(data_dir: Path, fs: Fs = REAL) -> None:
    """Before anything is locked there: raises WrongGround on a network file system, or OSError."""
    if (refusal := ground(data_dir, fs).refusal) is not None:
        raise WrongGround(str(data_dir), refusal)


def try_out(directory: Path, fs: Fs = REAL) -> None:
    """See whether flock works in `directory`, also between two processes.

    Raises WrongGround, or OSError when nothing can be made there. Leaves nothing.
    """
    tree = TreePaths(directory / f".try-{os.getpid()}-{os.urandom(4).hex()}")
    fd = -1
    try:
        fs.mkdir(tree.directory)
        fd = take(tree, fs)
        pid = os.fork()
        if not pid:
            os._exit(_as_a_stranger(tree, fs))
        if proc.wait_status(pid, block=True) != 0:
            raise WrongGround(str(directory), "its flock keeps no other process out")
    finally:
        with contextlib.suppress(OSError):
            fs.unlink(tree.lock)
        with contextlib.suppress(OSError):
            fs.rmdir(tree.directory)
        if fd >= 0:
            fs.close(fd)


def _as_a_stranger(tree: TreePaths, fs: Fs) -> int:
    """In a forked child, through an open file of its own: 0 when the lock keeps it out."""
    try:
        fs.flock(fs.open(tree.lock, os.O_RDWR))
    except BlockingIOError:
        return 0
    except BaseException:  # noqa: BLE001 - a child of a fork must not return into its parent's code
        return 2
    return 1


def birth(
    workspace: WorkspacePaths, cwd: str, instance: str, root: SessionId | None = None, fs: Fs = REAL
) -> TreeLock:
    """A new, locked and unpublished tree in `workspace`; raises OSError.

    It is never visible under a name of its own without being locked.
    """
    prepare_workspace(fs, workspace, cwd)
    for _ in range(BIRTH_TRIES_MAX):
        new = workspace.new(os.getpid(), os.urandom(4).hex())
        fd = -1
        try:
            fs.mkdir(new.directory)
            fd = take(new, fs)
            root = root or new_session_id()
            staging = workspace.staging(root)
            fs.rename(new.directory, staging.directory)
        except (ForeignOwner, NoSuchSession):
            continue  # a sweeper came between our two steps
        except (OSError, WrongGround):
            with contextlib.suppress(OSError):  # a sweeper finds what is left
                _bury(new, fs)
            if fd >= 0:
                fs.close(fd)
            raise
        return TreeLock(root, staging, workspace.tree(root), fd, instance, fs)
    raise LockLost(directory=str(workspace.directory), tries=BIRTH_TRIES_MAX)


def open_existing(
    workspace: WorkspacePaths, cwd: str, instance: str, root: SessionId, fs: Fs = REAL
) -> TreeLock:
    """Lock the published tree `root`; raises NoSuchSession, ForeignOwner or OSError.

    A tree of another workspace is not opened from here, since its agent would work on the wrong
    files; the fault says which directory it belongs to.
    """
    tree = workspace.tree(root)
    if not tree.directory.is_dir():
        raise NoSuchSession(root, cwd, whereabouts(workspace, root))
    return TreeLock(root, tree, tree, take(tree, fs), instance, fs)


def take(tree: TreePaths, fs: Fs = REAL) -> int:
    """Lock a tree and return the descriptor its worker will be given a duplicate of.

    Raises ForeignOwner when somebody has it, NoSuchSession when it went away, WrongGround when the
    lock keeps nobody out, or OSError.
    """
    name = tree.directory.name
    for _ in range(TAKE_TRIES_MAX):
        try:
            fd = fs.open(tree.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise NoSuchSession(name, str(tree.directory.parent), "it was removed") from None
        try:
            fs.flock(fd)
            if _leads_to(fd, tree.lock, fs) and _is_shut(tree, fd, fs):
                return fd
        except BlockingIOError:
            holder = read_hint(fd, fs)
            fs.close(fd)
            raise ForeignOwner(name, holder) from None
        except (OSError, WrongGround):
            fs.close(fd)
            raise
        fs.close(fd)  # the file was removed or replaced between open and flock
    raise LockLost(root=name, tries=TAKE_TRIES_MAX)


def _is_shut(tree: TreePaths, fd: int, fs: Fs) -> bool:
    """Try the lock that `fd` has from outside, by a second open file; raises WrongGround.

    False when the file was replaced meanwhile. There are file systems and sandboxes in which flock
    succeeds and does nothing, and nobody is told (hazard 9).
    """
    try:
        other = fs.open(tree.lock, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fs.flock(other)
        same = os.path.sameopenfile(fd, other)
    except BlockingIOError:
        return True
    finally:
        fs.close(other)
    if same:
        raise WrongGround(str(tree.directory.parent), "its flock keeps nobody out")
    return False


def delete(tree: TreePaths, fs: Fs = REAL, *, unchanged_since_ns: int | None = None) -> None:
    """Delete a published tree for good; raises ForeignOwner, NoSuchSession, Changed or OSError.

    Under its lock, and out of the way by one rename first: whoever comes now finds no session,
    and not half of one. `unchanged_since_ns` (wall clock) is looked at under the lock too: somebody
    may have gone on with the session after the caller found it old.
    """
    fd = take(tree, fs)
    try:
        if unchanged_since_ns is not None:
            with contextlib.suppress(FileNotFoundError):
                if fs.stat(tree.root.events).st_mtime_ns > unchanged_since_ns:
                    raise Changed(tree.directory.name)
        _bury(tree, fs)
    finally:
        fs.close(fd)


def sweep_unborn(workspace: WorkspacePaths, fs: Fs = REAL) -> int:
    """Delete trees that were never published and whose owners are gone; returns how many.

    At most SWEEP_MAX. A tree is judged by its lock alone.
    """
    try:
        names = fs.listdir(workspace.directory)
    except OSError:
        return 0
    buried = 0
    for name in names:
        if name.startswith(_UNBORN) and _sweep_one(TreePaths(workspace.directory / name), fs):
            buried += 1
            if buried >= SWEEP_MAX:
                break
    return buried


def me(instance: str, epoch: int) -> Holder:
    """This process as a holder."""
    process = proc.read_process(os.getpid())
    started = process.start if process is not None else 0
    return Holder(
        instance=instance, boot_id=boot_id(), pid=os.getpid(), started=started, epoch=epoch
    )


def boot_id() -> str:
    """The kernel's name for this boot; empty where there is none."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


def read_hint(fd: int, fs: Fs = REAL) -> Holder | None:
    """What the holder of an open lock file says about itself; None when it makes no sense."""
    try:
        return msgspec.json.decode(fs.pread(fd, HINT_BYTES_MAX, 0), type=Holder)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def write_hint(fd: int, holder: Holder, fs: Fs = REAL) -> None:
    """Say who holds the lock. Never fails: a full disk must not cost a lock that is held."""
    with contextlib.suppress(OSError):
        fs.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        fs.write(fd, msgspec.json.encode(holder) + b"\n")


def _leads_to(fd: int, path: Path, fs: Fs) -> bool:
    """Whether `path` still names the file that `fd` is."""
    mine = fs.fstat(fd)
    try:
        there = fs.stat(path, follow=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def _sweep_one(tree: TreePaths, fs: Fs) -> bool:
    try:
        fd = take(tree, fs)
    except (Fault, OSError):
        return False
    try:
        _bury(tree, fs)
    except OSError:
        return False
    finally:
        fs.close(fd)
    return True


def _bury(tree: TreePaths, fs: Fs) -> None:
    """Delete a tree. The caller holds its lock."""
    workspace = WorkspacePaths(tree.directory.parent)
    dead = workspace.dead(os.urandom(8).hex())
    fs.rename(tree.directory, dead.directory)  # from here on nobody can open it by its name
    _empty(dead.directory, dead.lock.name, fs)
    fs.unlink(dead.lock)
    fs.rmdir(dead.directory)


def _empty(directory: Path, spared: str | None, fs: Fs) -> None:
    for name in fs.listdir(directory):
        path = directory / name
        if name == spared:
            continue
        if stat.S_ISDIR(fs.stat(path, follow=False).st_mode):
            _empty(path, None, fs)
            fs.rmdir(path)
        else:
            fs.unlink(path)


def whereabouts(workspace: WorkspacePaths, root: SessionId) -> str:
    """Which other workspace has the tree, or that none has."""
    sessions = workspace.directory.parent
    try:
        names = sorted(os.listdir(sessions))[:WORKSPACES_LOOK_MAX]  # noqa: PTH208 - names
    except OSError:
        names = []
    for name in names:
        other = WorkspacePaths(sessions / name)
        if other.tree(root).directory.is_dir():
            try:
                cwd = os.fsdecode(other.cwd.read_bytes())
            except OSError:
                cwd = name
            return f"it belongs to {cwd}; start cookie there"
    return "no workspace has it"
