"""Files as the tools reach them: named lexically, opened without hanging, replaced atomically.

A path is normalised as text before anything else, and the same normal form is what permission
rules match on and what is opened: `link/../x` is `x` for both. Links are followed after that; the
rules speak about the name that was asked for (spec 1.9).
"""
# The `os` calls say errno and work on descriptors and on links; pathlib hides both.
# ruff: noqa: PTH115, PTH118, PTH120

import contextlib
import errno
import hashlib
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ipc.disk.files import sync_dir, write_all
from ipc.faults import clean
from ipc.ids import Digest
from ipc.seams.fs import REAL, Fs
from workers.tools.base import ToolFailure

ARTIFACT_PREFIX: Final = "artifact://"
LINKS_MAX: Final = 40  # as the kernel counts
SHOWN_CHARS_MAX: Final = 400  # of a path in a message
SNIFF_BYTES: Final = 8192
STAGE_PREFIX: Final = ".cookie-"
STAGE_MODE: Final = 0o600
DEFAULT_UMASK: Final = 0o022


# --- names ---------------------------------------------------------------------------------------


def is_artifact(path: str) -> bool:
    """Whether a path argument means an artifact; anything that begins like one does."""
    return path.startswith(ARTIFACT_PREFIX)


def refuse_artifact(path: str) -> None:
    """Raises ToolFailure for an artifact, for tools that change files."""
    if is_artifact(path):
        raise ToolFailure("invalid_path", "an artifact can be read and never written")


def absolute(path: str, workspace: str) -> str:
    """The path from the root, normalised as text; `workspace` is absolute."""
    whole = posixpath.normpath(posixpath.join(workspace, path))
    return "/" + whole.lstrip("/")  # POSIX keeps two leading slashes, for nobody's good


def label_of(path: str, workspace: str) -> str:
    """What rules match on: relative inside the workspace, absolute outside, a URI verbatim."""
    if is_artifact(path):
        return path
    target, root = absolute(path, workspace), absolute(workspace, "/")
    if target == root:
        return "."
    inside = root.rstrip("/") + "/"
    return target.removeprefix(inside)


def quoted(path: str) -> str:
    """A path for a message: one line, bounded."""
    return clean(path, SHOWN_CHARS_MAX)


# --- what can go wrong ---------------------------------------------------------------------------

_CODES: Final[dict[int, tuple[str, str]]] = {
    errno.ENOENT: ("not_found", "does not exist"),
    errno.ENOTDIR: ("not_found", "goes through something that is no directory"),
    errno.EISDIR: ("is_directory", "is a directory"),
    errno.EACCES: ("permission_denied", "may not be accessed"),
    errno.EPERM: ("permission_denied", "may not be changed"),
    errno.EROFS: ("permission_denied", "is on a read-only file system"),
    errno.ELOOP: ("link_loop", "goes through too many links"),
    errno.ENAMETOOLONG: ("invalid_path", "is too long for a path"),
    errno.ENOSPC: ("no_space", "could not be written: the disk is full"),
    errno.EDQUOT: ("no_space", "could not be written: the disk quota is used up"),
}


def os_failure(error: OSError, shown: str) -> ToolFailure:
    """An error of the system in words for the model."""
    known = _CODES.get(error.errno or 0)
    if known is None:
        reason = error.strerror or str(error)
        return ToolFailure("execution", f"{quoted(shown)}: {clean(reason, SHOWN_CHARS_MAX)}")
    return ToolFailure(known[0], f"{quoted(shown)} {known[1]}")


_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def check_regular(status: os.stat_result, shown: str) -> None:
    """Raises ToolFailure for what is no regular file; says what it is."""
    if stat.S_ISREG(status.st_mode):
        return
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
    code = "is_directory" if stat.S_ISDIR(status.st_mode) else "not_a_file"
    raise ToolFailure(code, f"{quoted(shown)} is {kind}, not a regular file")


_MAGIC: Final[tuple[tuple[bytes, str], ...]] = (
    (rb"\x89PNG\r\n\x1a\n", "image/png"),
    (rb"\xff\xd8\xff", "image/jpeg"),
    (rb"GIF8[79]a", "image/gif"),
    (rb"RIFF....WEBP", "image/webp"),
    (rb"RIFF....WAVE", "audio/wav"),
    (rb"%PDF-", "application/pdf"),
    (rb"ID3|\xff[\xf2\xf3\xfb]", "audio/mpeg"),
    (rb"OggS", "application/ogg"),
    (rb"....ftyp", "video/mp4"),
    (rb"\x7fELF", "application/x-elf"),
    (rb"\x1f\x8b", "application/gzip"),
    (rb"PK\x03\x04", "application/zip"),
    (rb"\xff\xfe|\xfe\xff", "UTF-16 text"),
)
_MAGIC_RE: Final = [(re.compile(shape, re.DOTALL), kind) for shape, kind in _MAGIC]


def binary_kind(head: bytes) -> str | None:
    """What a file that begins like this is, if it is no text a tool can work on line by line.

    Text of another encoding than UTF-8 is text, as long as it has no NUL bytes.
    """
    if b"\0" not in head and _begins_as_utf8(head[:SNIFF_BYTES]):
        return None
    for shape, kind in _MAGIC_RE:
        if shape.match(head):
            return kind
    return "binary data" if b"\0" in head else None


def _begins_as_utf8(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as bad:
        return bad.reason == "unexpected end of data"  # a head may end inside a character
    return True


def refuse_binary(head: bytes, size: int, shown: str) -> None:
    """Raises ToolFailure, with type and size, for a file that is no text."""
    kind = binary_kind(head)
    if kind is not None:
        raise ToolFailure("binary", f"{quoted(shown)} is no text: {kind}, {size} bytes")


# --- reading -------------------------------------------------------------------------------------


class Stamp(NamedTuple):
    """Which file it was, and in which state; a change of the file changes it."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file's status."""
    return Stamp(
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


def open_regular(path: str, shown: str, fs: Fs = REAL) -> tuple[int, os.stat_result]:
    """A regular file open for reading, and its status. Never waits: not for a FIFO either.

    Raises ToolFailure, also for the state of this process that /proc shows.
    """
    try:
        check_regular(fs.stat(path), shown)  # before the open, which a device may feel
        fd = fs.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise os_failure(error, shown) from error
    try:
        status = fs.fstat(fd)
        check_regular(status, shown)
        _refuse_own_state(fd, shown)
    except BaseException:
        fs.close(fd)
        raise
    return fd, status


def _refuse_own_state(fd: int, shown: str) -> None:
    # /proc/self is another process for a shell than for us, and our environment is not a tool's.
    try:
        place = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:  # no /proc: then there is nothing of us to be read there
        return
    if place.startswith(tuple(f"/proc/{pid}/" for pid in (os.getpid(), os.getppid()))):
        raise ToolFailure(
            "permission_denied", f"{quoted(shown)} is the state of this program; use bash for that"
        )


def read_whole(path: str, shown: str, limit: int, fs: Fs = REAL) -> tuple[bytes, Stamp]:
    """All bytes of a regular file and its stamp from before; ToolFailure beyond `limit` bytes."""
    fd, status = open_regular(path, shown, fs)
    try:
        if status.st_size > limit:
            raise _too_large(shown, status.st_size, limit)
        parts: list[bytes] = []
        size = 0
        while part := fs.read(fd, 1 << 20):
            parts.append(part)
            size += len(part)
            if size > limit:  # it grows, or its size was a lie as in /proc
                raise _too_large(shown, size, limit)
    except OSError as error:
        raise os_failure(error, shown) from error
    finally:
        fs.close(fd)
    return b"".join(parts), stamp_of(status)


def _too_large(shown: str, size: int, limit: int) -> ToolFailure:
    message = f"{quoted(shown)} has {size} bytes or more, this works up to {limit}; use bash"
    return ToolFailure("resource_limit", message)


# --- writing -------------------------------------------------------------------------------------


class Written(NamedTuple):
    """What a write came to: the file that was written (links followed), and what it is now."""

    target: str
    created: bool
    digest: Digest


def destination(path: str) -> str:
    """Where a write to `path` goes: links at its end are followed, also to what is not there.

    Links in the middle are left to the kernel. Raises OSError, ELOOP after 40 links.
    """
    for _ in range(LINKS_MAX):
        try:
            target = os.readlink(path)
        except OSError as error:
            if error.errno in {errno.EINVAL, errno.ENOENT}:  # no link, or nothing at all
                return path
            raise
        path = os.path.join(os.path.dirname(path), target)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def publish(
    path: str, data: bytes, shown: str, *, expected: Stamp | None = None, fs: Fs = REAL
) -> Written:
    """Make `data` the content of `path`: whoever looks sees the old bytes or the new, whole.

    Staged beside the target as 0600, then given the mode and owner of what it replaces, or those
    of a new file. Links stay and their target is written. Missing directories are made. After a
    failure nothing is left behind. With `expected`, the file must still be that one; in any case
    one that changes while we write is not replaced (`operation_changed`). Raises ToolFailure.
    """
    try:
        target = destination(path)
        before = _status(target, fs)
        _check_target(target, before, shown, expected)
        with _parents(os.path.dirname(target), fs) as keep:
            _replace(target, data, before, shown, fs)
            keep()
    except OSError as error:
        raise os_failure(error, shown) from error
    return Written(target, before is None, Digest(hashlib.sha256(data).hexdigest()))


def _status(target: str, fs: Fs) -> os.stat_result | None:
    try:
        return fs.stat(target, follow=False)
    except FileNotFoundError:
        return None


def _check_target(
    target: str, before: os.stat_result | None, shown: str, expected: Stamp | None
) -> None:
    if before is not None:
        check_regular(before, shown)
        # A rename does not ask the file whether it may be written; a person's chmod means it.
        if not os.access(target, os.W_OK):
            raise ToolFailure("permission_denied", f"{quoted(shown)} is write-protected")
    if expected is not None and (before is None or stamp_of(before) != expected):
        raise _changed(shown)


def _changed(shown: str) -> ToolFailure:
    message = f"{quoted(shown)} changed meanwhile and was left alone; read it again"
    return ToolFailure("operation_changed", message)


@contextlib.contextmanager
def _parents(directory: str, fs: Fs) -> Iterator[Callable[[], None]]:
    """Directories that were missing, made for the time being; for good when the caller says so."""
    made: list[str] = []
    kept = False

    def keep() -> None:
        nonlocal kept
        kept = True

    mode = 0o777 & ~_umask()
    try:
        for missing in _missing(directory, fs):
            fs.mkdir(missing, mode)
            made.append(missing)
        yield keep
        for directory_ in made:
            sync_dir(fs, Path(directory_).parent)
    finally:
        if not kept:
            for directory_ in reversed(made):
                with contextlib.suppress(OSError):  # somebody else put something there: it stays
                    fs.rmdir(directory_)


def _missing(directory: str, fs: Fs) -> list[str]:
    """The directories to be made so that `directory` is there, outermost first."""
    missing: list[str] = []
    while directory not in {"", "/"}:
        try:
            fs.stat(directory)
        except FileNotFoundError:
            missing.append(directory)
            directory = os.path.dirname(directory)
        else:
            break
    return missing[::-1]


def _replace(target: str, data: bytes, before: os.stat_result | None, shown: str, fs: Fs) -> None:
    directory = os.path.dirname(target) or "/"
    staged = os.path.join(directory, f"{STAGE_PREFIX}{os.urandom(8).hex()}.tmp")
    fd = fs.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, STAGE_MODE)
    try:
        try:
            write_all(fs, fd, data)
            _dress(fd, before)
            fs.fsync(fd)
        finally:
            fs.close(fd)
        _check_unchanged(target, before, shown, fs)
        fs.rename(staged, target)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            fs.unlink(staged)
        raise
    with contextlib.suppress(PermissionError):  # a directory that may be written and not read
        sync_dir(fs, Path(directory))


def _check_unchanged(target: str, before: os.stat_result | None, shown: str, fs: Fs) -> None:
    now = _status(target, fs)
    if (now and stamp_of(now)) != (before and stamp_of(before)):
        raise _changed(shown)


def _dress(fd: int, before: os.stat_result | None) -> None:
    """Give a staged file the owner and mode of what it replaces, or those of a new file."""
    if before is None:
        os.fchmod(fd, 0o666 & ~_umask())
        return
    ours = os.fstat(fd)
    if (ours.st_uid, ours.st_gid) != (before.st_uid, before.st_gid):
        with contextlib.suppress(PermissionError):  # only root may give files away
            os.fchown(fd, before.st_uid, before.st_gid)
    os.fchmod(fd, stat.S_IMODE(before.st_mode))


def _umask() -> int:
    # os.umask can only tell by changing it, under the feet of every other thread.
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return DEFAULT_UMASK
    found = re.search(r"^Umask:\s*([0-7]+)", text, re.MULTILINE)
    return int(found[1], 8) if found else DEFAULT_UMASK
