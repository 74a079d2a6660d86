"""A session actor on a real log: what a worker builds around it, without the process."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ipc.content import user_text
from ipc.disk.log import read_log
from ipc.disk.paths import TreePaths, WorkspacePaths
from ipc.events import Payload, RunCancelled, RunCompleted, RunFailed, RunInterrupted
from ipc.fold import SessionState, apply
from ipc.ids import ClientId, RunId, SessionId
from ipc.methods.runs import (
    OfRun,
    RunCancelParams,
    RunStartParams,
    RunSteerParams,
)
from ipc.methods.sessions import SessionCreateParams
from ipc.seams.fs import Fs
from tests.fakes.desk import kit
from tests.fakes.logs import SELECTION
from tests.fakes.store import SESSION, locked, staged
from workers.actor.commands import COMMANDS
from workers.actor.recovery import Facts, recover
from workers.actor.session import SessionActor
from workers.providers.base import Provider
from workers.run.desk import Kit
from workers.store.file import LogFile
from workers.store.log import LogWriter, Record, WriterThread
from workers.store.publish import publish
from workers.store.tree import OwnedTree

ENDS = (RunCompleted, RunFailed, RunCancelled, RunInterrupted)
DEADLINE_S = 20.0  # for what ought to take milliseconds; nothing is judged by it


class Audience:
    """An outbox that keeps what it is told; `on` is called with each payload, as it is told."""

    def __init__(self) -> None:
        self.told: list[Record] = []
        self.on: Callable[[Payload], None] = lambda _: None

    def put(self, _session: SessionId, records: Sequence[Record]) -> None:
        for record in records:
            self.told.append(record)
            self.on(record[0].payload)

    async def room(self) -> None:
        return

    @property
    def payloads(self) -> list[Payload]:
        return [event.payload for event, _ in self.told]

    @property
    def lines(self) -> list[bytes]:
        return [line for _, line in self.told]


class FullFs(Fs):
    """A disk that is full, or broken, while the test says so."""

    def __init__(self) -> None:
        self.full = False
        self.broken = False
        self.refused = 0

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self.full:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(fd, data)

    def fdatasync(self, fd: int) -> None:
        if self.broken:
            self.refused += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fdatasync(fd)


class CountingLog(LogWriter):
    """Calls `at` before each append and delta."""

    at: Callable[[], None] = staticmethod(lambda: None)

    async def append(self, *args: Any, **more: Any) -> list[Record]:
        self.at()
        return await super().append(*args, **more)

    async def delta(self, run_id: RunId | None, payload: Payload) -> None:
        self.at()
        await super().delta(run_id, payload)


class Session:
    """One living session and what a client would do with it."""

    def __init__(self, actor: SessionActor, audience: Audience, tree: OwnedTree) -> None:
        self.actor = actor
        self.audience = audience
        self.tree = tree

    async def command(self, method: str, params: Any) -> Any:
        return await self.actor.ask(lambda: COMMANDS[method].carry_out(self.actor, params))

    async def create(self) -> Any:
        return await self.command("session.create", SessionCreateParams(selection=SELECTION))

    async def start(self, words: str = "go on", client_id: str = "c", **more: Any) -> RunId:
        params = RunStartParams(
            session_id=SESSION,
            client_run_id=ClientId(client_id),
            input=user_text(words),
            **{"selection": SELECTION, **more},
        )
        result: RunId = (await self.command("run.start", params)).run_id
        return result

    async def steer(self, run: RunId, words: str) -> Any:
        return await self.command("run.steer", RunSteerParams(run_id=run, input=user_text(words)))

    async def recall(self, run: RunId) -> str | None:
        recalled: str | None = (await self.command("run.recall_steer", OfRun(run_id=run))).recalled
        return recalled

    async def cancel(self, run: RunId, reason: str | None = None) -> bool:
        params = RunCancelParams(run_id=run, reason=reason)
        cancelled: bool = (await self.command("run.cancel", params)).cancelled
        return cancelled

    async def over(self) -> list[Payload]:
        """Wait for the end of the run; all that was told."""
        async with asyncio.timeout(DEADLINE_S):
            await self.actor.run_over()
        return self.audience.payloads


@asynccontextmanager
async def living(
    place: Path,
    provider: Provider,
    *,
    fs: Fs | None = None,
    mine: Kit | None = None,
    log: type[LogWriter] = LogWriter,
    resume: bool = True,
) -> AsyncIterator[Session]:
    """A session at `place`: a new one with its creation waiting, or the one that is there.

    What its worker stops for is raised from here.
    """
    space = WorkspacePaths(place)
    audience, state = Audience(), SessionState()
    final = space.tree(SESSION)
    there = final.directory.exists()
    paths, lock = (final, locked(final)) if there else staged(place)
    tree = OwnedTree(paths.directory, lock, fs or Fs())
    thread = WriterThread()
    actor = SessionActor(SESSION, str(place), state, audience)
    actor.kit = mine or kit(provider)
    recovery = None
    if there:
        read = read_log(paths.root.events, SESSION)
        for event in read.events():
            apply(state, event)
        file = LogFile.reopen(tree, paths.root, read)
        recovery = recover(state.view(), Facts(cause="the test wants it so"))
    else:
        file = LogFile.create(tree, paths.root)
    actor.attach(
        log(thread, file, SESSION, state.seq, actor.deliver),
        lambda: publish(tree, final.directory),
    )
    session = Session(actor, audience, tree)
    serving = asyncio.create_task(actor.serve())
    try:
        if recovery is None:
            await session.create()
        elif recovery.events:
            await actor.ask(lambda: actor.recover(recovery.events))
            if resume and recovery.resume is not None:
                actor.start_run()
        yield session
    finally:
        stopped_itself = serving.done()
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            if not stopped_itself:
                await serving
        await thread.close()
        tree.release()
    if stopped_itself:
        await serving


def on_disk(place: Path) -> list[bytes]:
    """The lines of the session's log."""
    tree: TreePaths = WorkspacePaths(place).tree(SESSION)
    return [line for _, line in read_log(tree.root.events, SESSION)]
