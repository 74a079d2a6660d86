"""A room for one tool call: real files and processes, artifacts in a folder, progress in a list."""

import asyncio
import hashlib
import os
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Self

from ipc.faults import Fault
from ipc.ids import CallId, Digest, SessionId, uuid7
from ipc.plan import ToolOutput
from ipc.seams.clock import REAL, Clock

ENV = {"PATH": os.defpath, "HOME": "/nonexistent", "LANG": "C.UTF-8"}


def names(folder: Path) -> list[str]:
    """What lies in a folder, in order."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something in the world that tells nobody when it happens; 20 s at most."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


class NoSuchArtifact(Fault):
    code = "artifact_missing"


class FolderArtifacts:
    """Artifacts as files named by their digest; parts that were not finished are seen in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.full = False  # writing fails when the test says so

    def put(self, data: bytes) -> Digest:
        with self.writer() as writer:
            writer.write(data)
            return writer.finish()

    def writer(self) -> "FolderWriter":
        self.folder.mkdir(exist_ok=True)
        return FolderWriter(self)

    def open(self, digest: Digest) -> "FolderReader":
        path = self.folder / digest
        if not path.exists():
            raise NoSuchArtifact(digest=digest)
        return FolderReader(path)

    def names(self) -> list[str]:
        return names(self.folder)


class Context:
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.leave()

    def leave(self) -> None:
        raise NotImplementedError


class FolderWriter(Context):
    def __init__(self, store: FolderArtifacts) -> None:
        self._store = store
        self._part = store.folder / f".part-{os.urandom(8).hex()}"
        self._file: IO[bytes] | None = self._part.open("xb", buffering=0)
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, chunk: bytes) -> None:
        if self._store.full:
            raise OSError(28, "No space left on device")
        assert self._file is not None
        self._file.write(chunk)
        self._hash.update(chunk)
        self.size += len(chunk)

    def finish(self) -> Digest:
        self._close()
        digest = Digest(self._hash.hexdigest())
        self._part.rename(self._store.folder / digest)
        return digest

    def discard(self) -> None:
        self._close()
        self._part.unlink(missing_ok=True)

    leave = discard

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class FolderReader(Context):
    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.size = path.stat().st_size

    def page(self, offset: int, count: int) -> bytes:
        return os.pread(self._file.fileno(), count, offset)

    def close(self) -> None:
        self._file.close()

    leave = close


class FakeRoom:
    """`told` is what was said by `progress`, in order."""

    def __init__(
        self,
        workspace: Path,
        *,
        env: Mapping[str, str] = ENV,
        limits: ToolOutput | None = None,
        clock: Clock = REAL,
    ) -> None:
        self.workspace = str(workspace)
        self.env = env
        self.call_id = CallId(uuid7())
        self.session_id = SessionId(uuid7())
        self.artifacts = FolderArtifacts(workspace.with_name(workspace.name + ".artifacts"))
        self.limits = limits or ToolOutput()
        self.clock = clock
        self.told: list[tuple[str, str | None]] = []

    async def progress(self, message: str, chunk: str | None = None) -> None:
        self.told.append((message, chunk))

    def heard(self, stream: str) -> str:
        """All that was told of one stream."""
        return "".join(chunk or "" for message, chunk in self.told if message == stream)
