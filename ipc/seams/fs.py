"""The file-system seam: thin methods over `os`, each a failpoint `fs.<call>`.

Rooms take an `Fs` as an argument; `REAL` is the one that touches the disk. Tests subclass it to
record, fail or shorten calls, so nothing needs patching.
"""
# The `os` calls are the point of this file: they work on descriptors and say errno.
# ruff: noqa: PTH101, PTH102, PTH104, PTH106, PTH108, PTH116, PTH208

import errno
import fcntl
import os
import sys
from typing import Final

from ipc.seams.failpoints import ARMED, hit

_STATFS_BYTES: Final = 512  # the kernel's struct has 120 at most

StrPath = str | os.PathLike[str]


class Fs:
    """The calls this program makes of a file system; all raise OSError as `os` does.

    Every descriptor made here is close-on-exec. Files are made 0600 and directories 0700 unless
    asked otherwise; what the umask takes away is given back.
    """

    def open(self, path: StrPath, flags: int, mode: int = 0o600) -> int:
        """Open `path`; with O_CREAT|O_EXCL the mode is `mode` whatever the umask is."""
        if ARMED:
            hit("fs.open")
        fd = os.open(path, flags | os.O_CLOEXEC, mode)
        if flags & os.O_CREAT and flags & os.O_EXCL:
            os.fchmod(fd, mode)
        return fd

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        if ARMED:
            hit("fs.close")
        os.close(fd)

    def read(self, fd: int, count: int) -> bytes:
        """At most `count` bytes from where the descriptor stands; empty at the end."""
        if ARMED:
            hit("fs.read")
        return os.read(fd, count)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        """At most `count` bytes from `offset`; empty beyond the end."""
        if ARMED:
            hit("fs.pread")
        return os.pread(fd, count, offset)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write some of `data`, return how many bytes: a short count is no error (hazard 2)."""
        if ARMED:
            short = hit("fs.write")
            if short is not None:
                data = data[:short]
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        """Make a file or directory durable. A failure must never be retried (hazard 3)."""
        if ARMED:
            hit("fs.fsync")
        _sync(fd)

    def fdatasync(self, fd: int) -> None:
        """Make a file's bytes and size durable. A failure must never be retried (hazard 3)."""
        if ARMED:
            hit("fs.fdatasync")
        _datasync(fd)

    def ftruncate(self, fd: int, size: int) -> None:
        """Cut or extend a file to `size` bytes."""
        if ARMED:
            hit("fs.ftruncate")
        os.ftruncate(fd, size)

    def fstat(self, fd: int) -> os.stat_result:
        """The status of an open file."""
        if ARMED:
            hit("fs.fstat")
        return os.fstat(fd)

    def stat(self, path: StrPath, *, follow: bool = True) -> os.stat_result:
        """The status of a path; `follow=False` looks at a link itself."""
        if ARMED:
            hit("fs.stat")
        return os.stat(path, follow_symlinks=follow)

    def rename(self, source: StrPath, target: StrPath) -> None:
        """rename(2): replaces a file or an *empty* directory, refuses a directory with content."""
        if ARMED:
            hit("fs.rename")
        os.rename(source, target)

    def link(self, source: StrPath, target: StrPath) -> None:
        """link(2); FileExistsError if `target` is there."""
        if ARMED:
            hit("fs.link")
        os.link(source, target)

    def unlink(self, path: StrPath) -> None:
        """Remove a file's name."""
        if ARMED:
            hit("fs.unlink")
        os.unlink(path)

    def mkdir(self, path: StrPath, mode: int = 0o700) -> None:
        """Make a directory with exactly `mode`; FileExistsError if it is there."""
        if ARMED:
            hit("fs.mkdir")
        os.mkdir(path, mode)
        os.chmod(path, mode)

    def rmdir(self, path: StrPath) -> None:
        """Remove an empty directory."""
        if ARMED:
            hit("fs.rmdir")
        os.rmdir(path)

    def listdir(self, path: StrPath) -> list[str]:
        """The names in a directory, in no order."""
        if ARMED:
            hit("fs.listdir")
        return os.listdir(path)

    def utime(self, path: StrPath) -> None:
        """Set access and modification time to now."""
        if ARMED:
            hit("fs.utime")
        os.utime(path)

    def flock(self, fd: int) -> None:
        """Take the exclusive lock at once or raise BlockingIOError. Released by closing only."""
        if ARMED:
            hit("fs.flock")
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def magic(self, path: StrPath) -> int | None:
        """The number statfs(2) gives the file system under `path`; None where it has none."""
        if ARMED:
            hit("fs.magic")
        return _magic(os.fsencode(path))


# fsync reaches the drive's cache only on Linux; Darwin wants F_FULLFSYNC and has no fdatasync.
if sys.platform == "darwin":

    def _sync(fd: int) -> None:
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError:  # not on this volume, and never for a directory
            os.fsync(fd)

    _datasync = _sync
else:
    _sync, _datasync = os.fsync, os.fdatasync

if sys.platform == "linux":

    def _magic(path: bytes) -> int | None:
        # ctypes costs milliseconds at import and only who locks a tree needs it.
        import ctypes  # noqa: PLC0415

        statfs = getattr(ctypes.CDLL(None, use_errno=True), "statfs", None)
        if statfs is None:
            return None
        found = ctypes.create_string_buffer(_STATFS_BYTES)
        if statfs(path, found) != 0:
            no = ctypes.get_errno()
            if no in {errno.ENOSYS, errno.EOVERFLOW}:
                return None
            raise OSError(no, os.strerror(no), os.fsdecode(path))
        # `f_type` comes first, a long that holds a number of 32 bits (statfs(2)).
        return ctypes.c_long.from_buffer(found).value & 0xFFFFFFFF
else:

    def _magic(path: bytes) -> int | None:
        return None


REAL: Final = Fs()
