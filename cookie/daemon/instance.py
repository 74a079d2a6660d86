"""Instance directory: where a supervisor puts its sockets, one place per data directory and name.

`<base>/cookie/<16 hex of the data directory>/<name>/<pid>-<nonce>/` (docs/protocol.md). The name's
directory is stable; the last one is an *incarnation*, new for every process, so that a path is
never bound twice: a second bind on one ipc path succeeds and steals the first one's peers. Each
incarnation holds a locked file `alive`; an incarnation whose `alive` can be locked is dead, and
only who holds that lock may remove it.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Final

from ipc.faults import Fault
from ipc.seams.fs import REAL, Fs

LINK_BYTES_MAX: Final = 100  # of a socket's path; the kernel's own limit is 107, macOS' 103
SWEEP_MAX: Final = 16  # dead incarnations removed by one start
SWEEP_LOOK_MAX: Final = 256  # incarnations looked at by one start
ENTER_TRIES_MAX: Final = 32  # a sweeper may take a newborn for dead; then we make another
RUN_NAME: Final = "run"  # all `cookie run` share it: they need no door and so no instance.lock
MAIN_NAME: Final = "main"

_ALIVE: Final = "alive"
_LINK: Final = "w"
_LOCK: Final = "instance.lock"
_ROOMY_NONCE: Final = "4194304-00000000"  # the longest `<pid>-<nonce>`


class BadInstance(Fault):
    """No directory for sockets can be had, or one that is there is not ours alone."""

    code = "bad_instance"

    def __init__(self, reason: str, path: str | Path) -> None:
        super().__init__(reason=reason, path=str(path))
        self.args = (f"{path}: {reason}",)


class NoRoom(BadInstance):
    """A directory could not be made; the next base may do."""


class InstanceHeld(Fault):
    """Another supervisor of the same data directory and name is running."""

    code = "instance_held"

    def __init__(self, name: str, holder: str) -> None:
        super().__init__(name=name, holder=holder)
        self.args = (f"a cookie daemon named {name!r} is already running ({holder})",)


class Places:
    """What the surroundings offer as a base, best first."""

    __slots__ = ("candidates", "temporary", "uid")

    def __init__(
        self, runtime_dir: str | None, temporary: str, uid: int, run_user: str = "/run/user"
    ) -> None:
        self.uid = uid
        self.candidates = [runtime_dir] if runtime_dir and runtime_dir.startswith("/") else []
        self.candidates.append(f"{run_user}/{uid}")
        self.temporary = [temporary] + (["/tmp"] if temporary != "/tmp" else [])  # noqa: S108


class Incarnation:
    """One process's own directory below the instance, alive for as long as its lock is open."""

    __slots__ = ("_alive", "_fs", "path")

    def __init__(self, path: Path, alive: int, fs: Fs) -> None:
        self.path = path
        self._alive = alive
        self._fs = fs

    @property
    def link_path(self) -> str:
        """Where the ROUTER binds; at most LINK_BYTES_MAX bytes."""
        return f"{self.path}/{_LINK}"

    def close(self) -> None:
        """Remove the directory, then let go of its lock."""
        if self._alive >= 0:
            _remove(self.path, self._fs)
            with contextlib.suppress(OSError):  # it is closed all the same
                self._fs.close(self._alive)
            self._alive = -1


def instance_dir(places: Places, data_dir: str | Path, name: str, fs: Fs = REAL) -> Path:
    """The instance directory of `data_dir` and `name`, made if need be; raises BadInstance.

    A base that is missing, not ours, read-only or too long is passed over; the folder under the
    temporary directory is the last one, and is refused when somebody else could write in it.
    """
    tail = f"cookie/{data_key(data_dir)}/{name}"
    for base in places.candidates:
        if _fits(base, tail) and _usable_base(base, places.uid, fs):
            with contextlib.suppress(NoRoom):  # a read-only mount
                return _make_down(Path(base), tail, places.uid, fs)
    for temporary in places.temporary:
        base = f"{temporary}/cookie-{places.uid}"
        if _fits(base, tail) and Path(temporary).is_dir():
            home = _private(Path(base), places.uid, fs)
            return _make_down(home, tail, places.uid, fs)
    reason = "no directory with a path short enough for a socket; set XDG_RUNTIME_DIR to one"
    raise BadInstance(reason, places.temporary[0])


def data_key(data_dir: str | Path) -> str:
    """16 hex digits that stand for a data directory, however its path was written."""
    real = os.path.realpath(data_dir)
    return blake2b(os.fsencode(real), digest_size=8).hexdigest()


def enter(directory: Path, fs: Fs = REAL) -> Incarnation:
    """A new incarnation below `directory`, locked; raises BadInstance or OSError."""
    for _ in range(ENTER_TRIES_MAX):
        path = directory / f"{os.getpid()}-{os.urandom(4).hex()}"
        alive = -1
        try:
            fs.mkdir(path)
            alive = fs.open(path / _ALIVE, os.O_RDWR | os.O_CREAT)
            fs.flock(alive)
            if _same(alive, path / _ALIVE, fs):
                return Incarnation(path, alive, fs)
        except (BlockingIOError, FileNotFoundError, FileExistsError):
            pass  # a sweeper came between our steps and took the newborn for dead
        except OSError:
            _remove(path, fs)
            if alive >= 0:
                fs.close(alive)
            raise
        if alive >= 0:
            fs.close(alive)
    reason = f"could not make a directory of our own in {ENTER_TRIES_MAX} tries"
    raise BadInstance(reason, directory)


def sweep(directory: Path, fs: Fs = REAL) -> int:
    """Remove dead incarnations below `directory`, a bounded number; returns how many."""
    removed = 0
    for name in fs.listdir(directory)[:SWEEP_LOOK_MAX]:
        pid, dash, _nonce = name.partition("-")
        if dash and pid.isdecimal() and _sweep_one(directory / name, fs):
            removed += 1
            if removed >= SWEEP_MAX:
                break
    return removed


def hold(directory: Path, name: str, hint: str, fs: Fs = REAL) -> int:
    """Take `instance.lock` before anything is bound; the descriptor is the hold.

    `hint` is one line for people. Raises InstanceHeld naming the holder's hint.
    """
    path = directory / _LOCK
    while True:
        fd = fs.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        try:
            fs.flock(fd)
        except BlockingIOError:
            holder = fs.pread(fd, 256, 0).decode("utf-8", "replace").partition("\n")[0]
            fs.close(fd)
            raise InstanceHeld(name, holder or "holder unknown") from None
        if _same(fd, path, fs):
            fs.ftruncate(fd, 0)
            fs.write(fd, f"{hint}\n".encode())
            return fd
        fs.close(fd)


def _sweep_one(path: Path, fs: Fs) -> bool:
    try:
        # Made if it is missing: a process died between its first two steps. Who makes it and
        # locks it first decides; the other one makes a new directory.
        alive = fs.open(path / _ALIVE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fs.flock(alive)
        return _same(alive, path / _ALIVE, fs) and _remove(path, fs)
    except OSError:
        return False
    finally:
        fs.close(alive)


def _remove(path: Path, fs: Fs) -> bool:
    """Empty and remove an incarnation. The caller holds its lock."""
    try:
        names = sorted(fs.listdir(path), key=lambda name: name == _ALIVE)  # the lock goes last
        for name in names:
            fs.unlink(path / name)
        fs.rmdir(path)
    except OSError:
        return False
    return True


def _same(fd: int, path: Path, fs: Fs) -> bool:
    """Whether `path` still leads to the file that `fd` is: a lock on a removed file is none."""
    mine = fs.fstat(fd)
    try:
        there = fs.stat(path, follow=False)
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def _fits(base: str, tail: str) -> bool:
    return len(os.fsencode(f"{base}/{tail}/{_ROOMY_NONCE}/{_LINK}")) <= LINK_BYTES_MAX


def _usable_base(base: str, uid: int, fs: Fs) -> bool:
    """Whether a runtime directory is there, ours, and nobody else may write in it.

    One that is not is passed over, since `sudo -u` and containers leave a stranger's behind.
    """
    try:
        status = fs.stat(base)
    except OSError:
        return False
    closed = not stat.S_IMODE(status.st_mode) & 0o022
    return stat.S_ISDIR(status.st_mode) and status.st_uid == uid and closed


def _make_down(base: Path, tail: str, uid: int, fs: Fs) -> Path:
    here = base
    for part in tail.split("/"):
        here = _private(here / part, uid, fs)
    return here


def _private(path: Path, uid: int, fs: Fs) -> Path:
    """`path` as a directory that is ours alone, made if need be; raises BadInstance."""
    try:
        fs.mkdir(path)
    except FileExistsError:
        pass
    except OSError as no:
        raise NoRoom(f"can't be made: {os.strerror(no.errno or errno.EIO)}", path) from no
    status = fs.stat(path, follow=False)
    for wrong, reason in _complaints(status, uid):
        if wrong:
            raise BadInstance(reason, path)
    return path


def _complaints(status: os.stat_result, uid: int) -> Iterable[tuple[bool, str]]:
    mode = stat.S_IMODE(status.st_mode)
    yield stat.S_ISLNK(status.st_mode), "is a symbolic link; remove it"
    yield not stat.S_ISDIR(status.st_mode), "is not a directory; remove it"
    yield status.st_uid != uid, f"belongs to user {status.st_uid}; remove it or set XDG_RUNTIME_DIR"
    yield bool(mode & 0o077), f"is open to others (mode {mode:04o}); run chmod 700 on it"
