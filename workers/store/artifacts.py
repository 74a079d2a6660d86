"""Content-addressed files of a tree: written whole, named by their SHA-256, verified when read.

An artifact is durable before the event that names it is appended: every put here ends in a sync
of the file and of its directory. All methods block; call them off the loop for anything large.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from ipc.disk.files import FILE_MODE, make_private, sync_dir, write_all
from ipc.faults import Fault
from ipc.ids import Digest
from workers.store.tree import OwnedTree

PAGE_BYTES_MAX: Final = 2 << 20  # spec 1.8: more in one page is a resource limit
CHUNK_BYTES: Final = 1 << 20
PART_PREFIX: Final = ".part-"  # an artifact being written; has no name yet

_URI = re.compile(r"artifact://([0-9a-f]{64})(?:/([A-Za-z0-9][A-Za-z0-9._-]{0,63}))?", re.ASCII)


class BadArtifactUri(Fault):
    """A text that is no `artifact://<64 hex>[/<stream>]`."""

    code = "bad_artifact_uri"


class ArtifactMissing(Fault):
    """No artifact of that digest in this tree."""

    code = "artifact_missing"


class ArtifactCorrupt(Fault):
    """The file of that digest holds something else; nothing of it is handed out."""

    code = "artifact_corrupt"


class ArtifactUri(NamedTuple):
    """A public reference: an artifact, or one named stream of the manifest it is."""

    digest: Digest
    stream: str | None = None

    def __str__(self) -> str:
        tail = "" if self.stream is None else f"/{self.stream}"
        return f"artifact://{self.digest}{tail}"


def parse_uri(text: str) -> ArtifactUri:
    """Read a public artifact reference; no query, no fragment, no upper case (spec 1.7)."""
    match = _URI.fullmatch(text)
    if match is None:
        raise BadArtifactUri(uri=ascii(text[:160]))
    return ArtifactUri(Digest(match[1]), match[2])


class Artifacts:
    """The artifacts of one tree, wherever its directory is by now. Safe from any thread."""

    def __init__(self, tree: OwnedTree) -> None:
        self._tree = tree
        self._fs = tree.fs
        self._verified: set[tuple[Digest, int]] = set()  # digest and inode

    @property
    def directory(self) -> Path:
        """Where they lie now."""
        return self._tree.paths.artifacts

    def put(self, data: bytes) -> Digest:
        """Keep `data`; its digest. Raises OSError, and then nothing is kept."""
        with self.writer() as writer:
            writer.write(data)
            return writer.finish()

    def writer(self) -> "ArtifactWriter":
        """A new artifact to be written in pieces; close it, or it is thrown away."""
        make_private(self._fs, self.directory)
        return ArtifactWriter(self)

    def open(self, digest: Digest) -> "ArtifactReader":
        """An artifact to read pages of, verified; raises ArtifactMissing, ArtifactCorrupt."""
        try:
            fd = self._fs.open(self.directory / digest, os.O_RDONLY | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError) as missing:
            raise ArtifactMissing(digest=digest) from missing
        try:
            status = self._fs.fstat(fd)
            if (digest, status.st_ino) not in self._verified:
                self._verify(digest, fd)
                self._verified.add((digest, status.st_ino))
        except BaseException:
            self._fs.close(fd)
            raise
        return ArtifactReader(self._tree, fd, status.st_size)

    def _verify(self, digest: Digest, fd: int) -> None:
        found, offset = hashlib.sha256(), 0
        while chunk := self._fs.pread(fd, CHUNK_BYTES, offset):
            found.update(chunk)
            offset += len(chunk)
        if found.hexdigest() != digest:
            raise ArtifactCorrupt(digest=digest, found=found.hexdigest())


class ArtifactWriter:
    """One artifact on its way to the disk. `finish` names it; leaving without that discards it."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        self._fs = artifacts._fs  # noqa: SLF001 - one noun in two classes
        self._name = f"{PART_PREFIX}{os.getpid()}-{os.urandom(8).hex()}"
        self._hash = hashlib.sha256()
        self._fd = self._fs.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        self._named = False
        self.size = 0  # bytes so far

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()

    def write(self, chunk: bytes) -> None:
        """Add bytes; raises OSError, after which only discard() makes sense."""
        write_all(self._fs, self._fd, chunk)
        self._hash.update(chunk)
        self.size += len(chunk)

    def finish(self) -> Digest:
        """Make it durable under its digest. What was there with that name is replaced.

        So a second put of the same bytes renews the file's time, which the collector goes by
        (hazard 19), and mends a file that was damaged.
        """
        digest = Digest(self._hash.hexdigest())
        self._fs.fsync(self._fd)
        self._close()
        self._fs.rename(self._part, self._artifacts.directory / digest)
        self._named = True
        sync_dir(self._fs, self._artifacts.directory)
        return digest

    def discard(self) -> None:
        """Throw away what was not finished; does nothing after finish()."""
        self._close()
        if not self._named:
            with contextlib.suppress(OSError):
                self._fs.unlink(self._part)

    @property
    def _part(self) -> Path:
        return self._artifacts.directory / self._name

    def _close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._fs.close(fd)


class ArtifactReader:
    """An open, verified artifact; memory is bounded by the page asked for."""

    def __init__(self, tree: OwnedTree, fd: int, size: int) -> None:
        self._fs = tree.fs
        self._fd = fd
        self.size = size  # bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def page(self, offset: int, count: int) -> bytes:
        """`count` bytes from `offset`, fewer only at the end; at most PAGE_BYTES_MAX."""
        wanted = min(count, PAGE_BYTES_MAX)
        parts: list[bytes] = []
        while wanted > 0 and (part := self._fs.pread(self._fd, wanted, offset)):
            parts.append(part)
            offset += len(part)
            wanted -= len(part)
        return b"".join(parts)

    def chunks(self) -> Iterator[bytes]:
        """All of it in pieces of at most CHUNK_BYTES."""
        offset = 0
        while chunk := self.page(offset, CHUNK_BYTES):
            yield chunk
            offset += len(chunk)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._fs.close(fd)
