"""One log on the disk as its writer sees it: checked, written, cut back, synced.

What goes wrong, and what it means:

- *A write fails* (disk full). The file is cut back to where it was: AppendFailed, try again when
  the cause is gone. Can it not be cut back, the log is poisoned.
- *A sync fails.* The kernel may have dropped the pages and called them clean; a second sync
  would lie (hazard 3). The log is poisoned; only a fresh open may look at the file again.
- *The lock or the log is not what we left*: Fenced, for good, and not a byte is touched.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ipc.disk.files import FILE_MODE, make_private, sync_dir, write_all
from ipc.disk.log import NEWLINE, LogRead
from ipc.disk.paths import SessionPaths
from ipc.seams.failpoints import ARMED, hit
from workers.store.tree import Fenced, LogBroken, OwnedTree

_FLAGS: Final = os.O_WRONLY | os.O_APPEND  # append: not even a bug may write over a record


class AppendFailed(LogBroken):
    """Nothing of this append is in the log; it may be tried again when the cause is gone."""

    code = "append_failed"


class LogPoisoned(LogBroken):
    """What is on the disk is not known any more; this process writes this log no further."""

    code = "log_poisoned"


class LogFile:
    """A log open for appending. Blocks; belongs to one thread at a time."""

    def __init__(self, tree: OwnedTree, relative: Path, fd: int, size: int, *, torn: bool) -> None:
        self.size = size  # bytes, as we left it
        self.stopped: LogBroken | None = None  # set once, for good
        self._tree = tree
        self._fs = tree.fs
        self._relative = relative  # of the tree's directory, which may be renamed
        self._directory: Path | None = None  # what `_text` was made for
        self._text = ""
        self._fd = fd
        self._ours: tuple[int, int] | None = None  # device and inode of the log
        self._torn = torn  # the last line has no newline
        self._dirty = False  # written and not yet synced

    @classmethod
    def create(cls, tree: OwnedTree, where: SessionPaths) -> "LogFile":
        """Make an empty log, durable in its directory; raises OSError, FileExistsError too."""
        make_private(tree.fs, where.directory)
        fd = tree.fs.open(where.events, _FLAGS | os.O_CREAT | os.O_EXCL, FILE_MODE)
        sync_dir(tree.fs, where.directory)
        return cls(tree, where.events.relative_to(tree.paths.directory), fd, 0, torn=False)

    @classmethod
    def reopen(cls, tree: OwnedTree, where: SessionPaths, read: LogRead) -> "LogFile":
        """Open a log behind what `read`, read to its end, has seen of it; raises OSError.

        What was read is made durable first: the last writer may have died between write and
        sync, and from here on its events are acted upon.
        """
        fd = tree.fs.open(where.events, _FLAGS)
        try:
            tree.fs.fdatasync(fd)
        except OSError:
            tree.fs.close(fd)
            raise
        torn = read.tail == "unended"
        relative = where.events.relative_to(tree.paths.directory)
        return cls(tree, relative, fd, read.size, torn=torn)

    def append(self, lines: Sequence[bytes]) -> None:
        """Write lines, each with its newline; all or none. Raises LogBroken, which may be kept."""
        self._guard()
        if not lines:
            return
        data = NEWLINE.join(lines) + NEWLINE
        if self._torn:  # the torn line stays as it is and becomes a line of its own (hazard 1)
            data = NEWLINE + data
        self._dirty = True
        try:
            rest = memoryview(data)
            if ARMED and (short := hit("log.write")) is not None:
                rest = rest[self._fs.write(self._fd, rest[:short]) :]
            write_all(self._fs, self._fd, rest)
        except OSError as error:
            self._cut_back(error)
            raise self._not_written(error) from error
        self.size += len(data)
        self._torn = False

    def sync(self) -> None:
        """Make durable what was written; raises LogPoisoned and never tries twice."""
        try:
            if ARMED:
                hit("log.sync")
            self._fs.fdatasync(self._fd)
        except OSError as error:
            raise self.poison(f"sync failed: {error}") from error
        self._dirty = False

    def poison(self, reason: str) -> LogPoisoned:
        """Write no further, for a reason; the fault to raise."""
        fault = LogPoisoned(path=self._path, reason=reason)
        self.stopped = self.stopped or fault
        return fault

    def close(self) -> None:
        """Sync what has not been and close; an error has nobody left to tell."""
        with contextlib.suppress(OSError, LogBroken):
            if self._dirty and self.stopped is None:
                self.sync()
        with contextlib.suppress(OSError):
            self._fs.close(self._fd)

    @property
    def _path(self) -> str:
        directory = self._tree.paths.directory
        if directory is not self._directory:  # as text: it is looked at before each write
            self._directory, self._text = directory, str(directory / self._relative)
        return self._text

    def _guard(self) -> None:
        """Before each write: are we still the owner, is the log as we left it (hazard 10)?"""
        if self.stopped is not None:
            raise type(self.stopped)(**self.stopped.facts)
        try:
            self._tree.check()
            self._check_log()
        except Fenced as fenced:
            self.stopped = fenced
            raise
        except OSError as error:
            raise self._not_written(error) from error

    def _check_log(self) -> None:
        if self._ours is None:  # what an open descriptor is of never changes
            ours = self._fs.fstat(self._fd)
            self._ours = (ours.st_dev, ours.st_ino)
        try:
            there = self._fs.stat(self._path, follow=False)
        except (FileNotFoundError, NotADirectoryError) as gone:
            raise Fenced(path=self._path, reason="the log is gone") from gone
        if self._ours != (there.st_dev, there.st_ino):
            raise Fenced(path=self._path, reason="the log was replaced")
        if there.st_size != self.size:
            raise Fenced(
                path=self._path, reason="the log changed", left=self.size, found=there.st_size
            )

    def _cut_back(self, cause: OSError) -> None:
        try:
            self._fs.ftruncate(self._fd, self.size)
            found = self._fs.fstat(self._fd).st_size
        except OSError as error:
            raise self.poison(f"{cause}; not cut back: {error}") from error
        if found != self.size:
            raise self.poison(f"{cause}; cut back to {self.size}, found {found}")

    def _not_written(self, error: OSError) -> AppendFailed:
        return AppendFailed(path=self._path, reason=str(error), errno=error.errno or 0)
