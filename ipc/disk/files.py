"""How small files and directories are made here: private, staged, whole or not at all."""

import contextlib
import os
from pathlib import Path
from typing import Final

from ipc.disk.paths import WorkspacePaths
from ipc.seams.fs import Fs

FILE_MODE: Final = 0o600
DIR_MODE: Final = 0o700
LAYOUT: Final = b'{"version":2}\n'
SMALL_FILE_BYTES_MAX: Final = 16 << 20  # a cache larger than this is damage, not data


class NoProgress(OSError):
    """A write that took no byte and reported no error."""


def write_all(fs: Fs, fd: int, data: bytes | memoryview) -> None:
    """Write all of `data`: a short count is no error, the next call says why (hazard 2)."""
    left = memoryview(data)
    while left:
        count = fs.write(fd, left)
        if count <= 0:
            raise NoProgress("the file system takes no more bytes")
        left = left[count:]


def sync_dir(fs: Fs, directory: Path) -> None:
    """Make the names in `directory` durable (hazard 20)."""
    fd = fs.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fs.fsync(fd)
    finally:
        fs.close(fd)


def make_private(fs: Fs, directory: Path) -> None:
    """Make `directory` and what is missing above it, each 0700 and durable in its parent."""
    missing = []
    here = directory
    while not _is_dir(fs, here):
        missing.append(here)
        if here.parent == here:
            break
        here = here.parent
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):  # somebody else was as quick: as good as ours
            fs.mkdir(path, DIR_MODE)
        sync_dir(fs, path.parent)


def _is_dir(fs: Fs, path: Path) -> bool:
    try:
        fs.stat(path)
    except FileNotFoundError:
        return False
    return True  # a file in the way is reported by the mkdir or open that meets it


def read_small(fs: Fs, path: Path, limit: int = SMALL_FILE_BYTES_MAX) -> bytes:
    """A whole small file; OSError as open does, ValueError beyond `limit` bytes."""
    fd = fs.open(path, os.O_RDONLY)
    try:
        parts, size = [], 0
        while part := fs.read(fd, 1 << 16):
            size += len(part)
            if size > limit:
                raise ValueError(f"more than {limit} bytes")
            parts.append(part)
        return b"".join(parts)
    finally:
        fs.close(fd)


def replace(fs: Fs, path: Path, data: bytes) -> None:
    """Put `data` at `path`: a reader, also one after a crash, sees the old or the new whole.

    The caller is the only writer of `path`. The staged sibling has one fixed name, so a crash
    leaves at most one behind and the next call takes it over.
    """
    staged = path.with_name(f".{path.name}.staged")
    _write(fs, staged, os.O_TRUNC, data)
    try:
        fs.rename(staged, path)
    except OSError:
        _discard(fs, staged)
        raise
    sync_dir(fs, path.parent)


def write_once(fs: Fs, path: Path, data: bytes) -> bool:
    """Put `data` at `path` unless something is there; whether it was us. Never changes it."""
    staged = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(8).hex()}")
    _write(fs, staged, os.O_EXCL, data)
    try:
        fs.link(staged, path)
    except FileExistsError:
        return False
    finally:
        _discard(fs, staged)
    sync_dir(fs, path.parent)
    return True


def _write(fs: Fs, staged: Path, how: int, data: bytes) -> None:
    fd = fs.open(staged, os.O_WRONLY | os.O_CREAT | how, FILE_MODE)
    try:
        try:
            write_all(fs, fd, data)
            fs.fsync(fd)
        finally:
            fs.close(fd)
    except OSError:
        _discard(fs, staged)
        raise


def _discard(fs: Fs, staged: Path) -> None:
    with contextlib.suppress(OSError):  # the first error is the one to tell
        fs.unlink(staged)


def prepare_workspace(fs: Fs, workspace: WorkspacePaths, cwd: str | os.PathLike[str]) -> None:
    """Make the directory of a workspace with its `layout.json` and `cwd`; the first one wins."""
    make_private(fs, workspace.directory)
    for path, data in (
        (workspace.cwd, os.fsencode(os.path.realpath(cwd))),
        (workspace.layout, LAYOUT),  # last: where it is, the directory is complete
    ):
        if not path.exists():
            write_once(fs, path, data)
