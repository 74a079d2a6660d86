"""The tree this worker owns: what its directory is called now, its lock, and whether both hold."""

from pathlib import Path

from ipc.disk.paths import TreePaths
from ipc.faults import Fault
from ipc.seams.fs import REAL, Fs


class LogBroken(Fault):
    """An append that did not happen. Which kind it is says what may be done about it."""

    code = "log_broken"


class Fenced(LogBroken):
    """This process is no longer the tree's writer; it must not write again, whatever happens."""

    code = "fenced"


class OwnedTree:
    """A tree's directory and the descriptor of its locked `owner.lock`.

    The lock was taken by the supervisor and inherited; several processes hold it through
    duplicates of one open file. It is given back by closing, never by LOCK_UN, which would
    unlock it for all of them (hazard 6), and the file is never unlinked (hazard 8).
    """

    def __init__(self, directory: Path, lock_fd: int, fs: Fs = REAL) -> None:
        self.fs = fs
        self._lock_fd = lock_fd
        self._held: tuple[int, int] | None = None  # device and inode of the lock
        self.moved(directory)

    def check(self) -> None:
        """Raise Fenced unless the lock we hold is the file at the lock's path; else OSError."""
        if self._lock_fd < 0:
            raise Fenced(path=self._lock_path, reason="the lock was given back")
        if self._held is None:  # what an open descriptor is of never changes
            held = self.fs.fstat(self._lock_fd)
            self._held = (held.st_dev, held.st_ino)
        try:
            there = self.fs.stat(self._lock_path, follow=False)
        except (FileNotFoundError, NotADirectoryError) as gone:
            raise Fenced(path=self._lock_path, reason="the lock file is gone") from gone
        if self._held != (there.st_dev, there.st_ino):
            raise Fenced(path=self._lock_path, reason="the lock file was replaced")

    def moved(self, directory: Path) -> None:
        """The directory was renamed by us; open descriptors are not affected."""
        self.paths = TreePaths(directory)
        self._lock_path = str(self.paths.lock)  # as text: it is looked at before each write

    def release(self) -> None:
        """Close our descriptor of the lock. The tree opens to others when the last one closes."""
        if self._lock_fd >= 0:
            fd, self._lock_fd = self._lock_fd, -1
            self.fs.close(fd)
