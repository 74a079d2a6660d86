"""File systems for tests: one that remembers what was asked of it, one that fails on demand.

Both do the calls for real, on a real directory; what they add is the record and the fault.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ipc.seams.fs import Fs, StrPath


class Op(NamedTuple):
    """One call: its name, the path (of the descriptor, too), how many bytes."""

    call: str
    path: str
    size: int = 0


class RecordingFs(Fs):
    """Remembers calls in order, and what a crash could take back.

    `synced[path]` is how much of a file is durable, `loose` the names whose directory was not
    synced since they appeared, `hazards` what no order of syncs can make good any more.
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.synced: dict[str, int] = {}
        self.loose: set[str] = set()
        self.hazards: list[str] = []
        self._paths: dict[int, str] = {}

    def note(self, call: str, path: str, size: int = 0) -> None:
        """Called for every call before it is done; a subclass may raise here."""
        self.ops.append(Op(call, path, size))

    def open(self, path: StrPath, flags: int, mode: int = 0o600) -> int:
        name = os.fspath(path)
        self.note("open", name)
        existed = os.path.lexists(name)
        fd = super().open(path, flags, mode)
        self._paths[fd] = name
        if not existed:
            self.loose.add(name)
            self.synced[name] = 0
        return fd

    def close(self, fd: int) -> None:
        self.note("close", self._paths.get(fd, "?"))
        super().close(fd)

    def read(self, fd: int, count: int) -> bytes:
        self.note("read", self._paths.get(fd, "?"), count)
        return super().read(fd, count)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        self.note("pread", self._paths.get(fd, "?"), count)
        return super().pread(fd, count, offset)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self.note("write", self._paths.get(fd, "?"), len(data))
        return super().write(fd, data)

    def fsync(self, fd: int) -> None:
        path = self._paths.get(fd, "?")
        self.note("fsync", path)
        super().fsync(fd)
        self._became_durable(fd, path)

    def fdatasync(self, fd: int) -> None:
        path = self._paths.get(fd, "?")
        self.note("fdatasync", path)
        super().fdatasync(fd)
        self._became_durable(fd, path)

    def _became_durable(self, fd: int, path: str) -> None:
        if Path(path).is_dir():
            self.loose = {name for name in self.loose if os.path.dirname(name) != path}  # noqa: PTH120
        else:
            self.synced[path] = os.fstat(fd).st_size

    def ftruncate(self, fd: int, size: int) -> None:
        self.note("ftruncate", self._paths.get(fd, "?"), size)
        super().ftruncate(fd, size)

    def fstat(self, fd: int) -> os.stat_result:
        self.note("fstat", self._paths.get(fd, "?"))
        return super().fstat(fd)

    def stat(self, path: StrPath, *, follow: bool = True) -> os.stat_result:
        self.note("stat", os.fspath(path))
        return super().stat(path, follow=follow)

    def rename(self, source: StrPath, target: StrPath) -> None:
        old, new = os.fspath(source), os.fspath(target)
        self.note("rename", new)
        if not Path(old).is_dir() and self.synced.get(old, 0) < Path(old).stat().st_size:
            self.hazards.append(f"{old} renamed before it was synced")
        super().rename(source, target)
        moved = {name: _moved(name, old, new) for name in [*self.synced, *self.loose]}
        self.synced = {moved[name]: size for name, size in self.synced.items()}
        self.loose = {moved[name] for name in self.loose} | {new}
        self._paths = {fd: _moved(name, old, new) for fd, name in self._paths.items()}

    def link(self, source: StrPath, target: StrPath) -> None:
        self.note("link", os.fspath(target))
        super().link(source, target)
        self.loose.add(os.fspath(target))

    def unlink(self, path: StrPath) -> None:
        self.note("unlink", os.fspath(path))
        super().unlink(path)
        self.loose.discard(os.fspath(path))

    def mkdir(self, path: StrPath, mode: int = 0o700) -> None:
        self.note("mkdir", os.fspath(path))
        super().mkdir(path, mode)
        self.loose.add(os.fspath(path))

    def rmdir(self, path: StrPath) -> None:
        self.note("rmdir", os.fspath(path))
        super().rmdir(path)
        self.loose.discard(os.fspath(path))

    def listdir(self, path: StrPath) -> list[str]:
        self.note("listdir", os.fspath(path))
        return super().listdir(path)

    def utime(self, path: StrPath) -> None:
        self.note("utime", os.fspath(path))
        super().utime(path)

    def flock(self, fd: int) -> None:
        self.note("flock", self._paths.get(fd, "?"))
        super().flock(fd)

    def loose_above(self, path: Path, top: Path) -> set[str]:
        """The names from `top` down to `path` that a crash could still take away."""
        line = {str(path), *(str(p) for p in path.parents if p.is_relative_to(top) and p != top)}
        return self.loose & line


def _moved(name: str, old: str, new: str) -> str:
    return new + name[len(old) :] if name == old or name.startswith(old + "/") else name


class Fault(NamedTuple):
    """Which calls go wrong and how: an errno to raise, or a byte count that a write stops at."""

    first: int  # index of the first call that goes wrong, from 0
    number: int = errno.EIO
    sticky: bool = False  # all from there on, not only that one
    short: int | None = None
    then: int | None = None  # after a short write: the errno of the next one


class FaultyFs(RecordingFs):
    """Goes wrong at the chosen call among those that `counts` picks (all, if not given)."""

    def __init__(self, fault: Fault, counts: Callable[[Op], bool] = lambda op: True) -> None:
        super().__init__()
        self.fault = fault
        self.calls = 0  # counted so far
        self.failed: list[Op] = []
        self._counts = counts
        self._short: int | None = None
        self._then: int | None = None

    def note(self, call: str, path: str, size: int = 0) -> None:
        super().note(call, path, size)
        if call == "close" or not self._counts(self.ops[-1]):  # a close that fails leaks in a test
            return
        if call == "write" and self._then is not None:
            number, self._then = self._then, None
            raise OSError(number, os.strerror(number), path)
        index, self.calls = self.calls, self.calls + 1
        if not (index == self.fault.first or (self.fault.sticky and index > self.fault.first)):
            return
        if self.fault.short is None:
            self.failed.append(self.ops[-1])
            raise OSError(self.fault.number, os.strerror(self.fault.number), path)
        if call == "write":
            self.failed.append(self.ops[-1])
            self._short, self._then = self.fault.short, self.fault.then

    def write(self, fd: int, data: bytes | memoryview) -> int:
        path = self._paths.get(fd, "?")
        self.note("write", path, len(data))
        short, self._short = self._short, None
        return Fs.write(self, fd, data if short is None else data[:short])
