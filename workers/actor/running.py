"""One open run at work: its desk, the task that drives it, and its one end in the log."""

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from ipc.events import RUN_ERROR_CHARS_MAX, Payload, RunCancelled, RunFailed, ToolCallTerminated
from ipc.faults import Fault, clean
from ipc.fold import OpenRun, SessionView
from ipc.ids import RunId
from workers.run.desk import Kit
from workers.run.drive import drive
from workers.run.machine import closing
from workers.store.file import AppendFailed
from workers.store.log import LogWriter

CLOSE_PAUSES_S: Final = (0.05, 0.2, 1.0)  # a disk that was full may have room again


class Home(Protocol):
    """The session that a run belongs to, as far as the run may see."""

    @property
    def state(self) -> SessionView:
        """The fold of everything in the log."""
        ...

    @property
    def log(self) -> LogWriter:
        """The session's log."""
        ...

    async def room(self) -> None:
        """Wait while too much waits to be sent."""
        ...

    async def ask(self, command: Callable[[], Awaitable[None]]) -> None:
        """Do something in the session's turn."""
        ...


class RunDesk:
    """The desk of one run (`workers/run/desk`). What it writes carries that run's id.

    Once the run was told to stop it takes results of calls, which are true whenever they come,
    and nothing else; once it is shut, nothing. So a tool or an adapter that lets a cancellation
    pass by can begin nothing new: `tool_call_executing` stands before every effect.
    """

    def __init__(self, home: Home, run_id: RunId) -> None:
        self.stopping = False
        self.shut = False
        self._home = home
        self._run_id = run_id

    @property
    def state(self) -> SessionView:
        """The fold of everything in the log."""
        return self._home.state

    async def append(self, *payloads: Payload) -> None:
        """Make the payloads durable, apply them, publish them."""
        results = all(type(one) is ToolCallTerminated for one in payloads)
        if self.shut or (self.stopping and not results):
            raise asyncio.CancelledError
        await self._home.log.append([(self._run_id, payload) for payload in payloads])
        # Told to stop while it waited: an effect that was announced does not begin any more.
        if self.stopping and not results:
            raise asyncio.CancelledError

    async def in_turn(self, decide: Callable[[], Sequence[Payload]]) -> None:
        """Append what `decide` then says, while no command of the session is half done."""

        async def append() -> None:
            if not self.stopping and (payloads := decide()):
                await self._home.log.append([(self._run_id, payload) for payload in payloads])

        await self._home.ask(append)
        if self.stopping:
            raise asyncio.CancelledError

    async def delta(self, payload: Payload) -> None:
        """Write a delta; waits only when the disk or the link is behind."""
        if self.stopping:
            raise asyncio.CancelledError
        await self._home.log.delta(self._run_id, payload)
        await self._home.room()


class Running:
    """A run from its start to its one terminal event.

    `live` is the task of the session's scope; the run works in a task below it, so that a run
    which does not end when it is cancelled is left behind and its session is not.
    """

    def __init__(self, home: Home, run_id: RunId, kit: Kit) -> None:
        self.run_id = run_id
        self.reason: str | None = None  # why it was told to stop; the first one counts
        self._home = home
        self._kit = kit
        self._cleanup_s = kit.plan.limits.cleanup_ms / 1000
        self._desk = RunDesk(home, run_id)
        self._stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._work: asyncio.Task[None] | None = None

    def stop(self, reason: str) -> None:
        """Cancel what the run does now. Safe at any time, also before its first step."""
        if self.reason is None:
            self.reason = clean(reason, RUN_ERROR_CHARS_MAX)
            self._desk.stopping = True
            self._stopped.set_result(None)
            if self._work is not None:
                self._work.cancel()

    async def live(self) -> None:
        """Drive the run, and see to it that its end is in the log when this returns.

        Raises LogBroken when the end can't be recorded. Cancelled, it leaves the log open: the
        next worker's recovery closes it.
        """
        loop = asyncio.get_running_loop()
        work = self._work = loop.create_task(drive(self._desk, self._kit), name="drive")
        if self.reason is not None:
            work.cancel()
        try:
            await asyncio.wait({work, self._stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._desk.stopping = True
            if self.reason is None:  # else it is being cancelled, and once is enough: it cleans up
                work.cancel()
            await _wait_for(work, self._cleanup_s)
            self._desk.shut = True
        await self._home.ask(lambda: self._close(_end(work, self.reason, self._home.log)))

    async def _close(self, end: RunCancelled | RunFailed) -> None:
        """End the run in the log, unless it has ended: what is open in it ends first."""
        log = self._home.log
        pauses = iter(CLOSE_PAUSES_S)
        while self._open() is not None:
            try:
                # A cancelled append is still on its way: what becomes of it must be known first.
                await log.append([])
                if (run := self._open()) is not None:
                    events = closing(self._home.state, run, end)
                    await log.append([(self.run_id, event) for event in events])
            except AppendFailed:
                if (pause := next(pauses, None)) is None:
                    raise
                await self._kit.clock.sleep(pause)

    def _open(self) -> OpenRun | None:
        """The run, as the log knows it; None when it has its end."""
        run = self._home.state.run
        return run if run is not None and run.run_id == self.run_id else None


async def _wait_for(work: "asyncio.Task[None]", seconds: float) -> None:
    """Wait for a task that was cancelled, but not for ever; its story is told when it is over."""
    if not work.done():
        await asyncio.wait({work}, timeout=seconds)
    if not work.done():
        sys.stderr.write(f"cookie: what a run was doing goes on {seconds:g} s after its end\n")
        work.add_done_callback(_late)


def _late(work: "asyncio.Task[None]") -> None:
    if not work.cancelled() and (error := work.exception()) is not None:
        traceback.print_exception(error, file=sys.stderr)


def _end(
    work: "asyncio.Task[None]", reason: str | None, log: LogWriter
) -> RunCancelled | RunFailed:
    """How a run ends that has no end of its own; raises LogBroken when it can have none."""
    error = None if not work.done() or work.cancelled() else work.exception()
    if log.broken is not None:
        # Nothing can be recorded any more: the worker stops, the next one's recovery closes it.
        raise log.broken
    if isinstance(error, Fault):
        if reason is None:
            return RunFailed(error=clean(str(error), RUN_ERROR_CHARS_MAX))
    elif error is not None:
        # A bug in a run ends that run, never the session; its supervisor keeps its whole story.
        traceback.print_exception(error, file=sys.stderr)
        if reason is None:
            what = f"internal error: {type(error).__name__}: {error}"
            return RunFailed(error=clean(what, RUN_ERROR_CHARS_MAX))
    if reason is None:
        return RunFailed(error="internal error: the run stopped without an end")
    return RunCancelled(reason=reason)
