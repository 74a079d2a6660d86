"""One session: its state, its mailbox, its one open run. Nothing else appends to its log."""

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from ipc.events import (
    DelegatedOrigin,
    FallbackTitle,
    Payload,
    RunCancelled,
    RunFailed,
    RunStarted,
    SessionCreated,
    SessionTitleCommitted,
    UserInputSubmitted,
    WorkerRecovered,
)
from ipc.faults import Fault, clean
from ipc.fold import SessionState, SessionView, apply
from ipc.ids import RunId, SessionId
from workers.actor.title import excerpt
from workers.run.desk import Kit
from workers.run.drive import drive
from workers.run.machine import closing
from workers.store.log import LogWriter, Record

MAILBOX_COMMANDS_MAX: Final = 256  # a full mailbox slows its senders down; it never grows
CLEANUP_S: Final = 2.0  # spec 1.8: tools have this long to go when a run is cancelled
ERROR_CHARS_MAX: Final = 4096

T = TypeVar("T")


class Outbox(Protocol):
    """Where delivered events go; it is told in the order of the log."""

    def put(self, session: SessionId, records: Sequence[Record]) -> None:
        """Take what is in the log now. Never waits."""
        ...

    async def room(self) -> None:
        """Wait while too much waits to be sent, and so slow the run."""
        ...


class SessionActor:
    """The desk of one session (`workers/run/desk`), and the commands that change it.

    `kit` is what runs are made from; it comes with the first plan and is replaced by later ones,
    a run keeps the one it began with.
    """

    def __init__(
        self, session: SessionId, workspace: str, state: SessionState, outbox: Outbox
    ) -> None:
        self.session_id = session
        self.workspace = workspace
        self.newborn: SessionCreated | None = None  # a new root until its first user message
        self._state = state
        self._view = state.view()
        self.kit: Kit | None = None
        self._log: LogWriter | None = None
        self._publish: Callable[[], None] | None = None
        self._outbox = outbox
        self._mail: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue(
            MAILBOX_COMMANDS_MAX
        )
        self._run: asyncio.Task[None] | None = None
        self._cancel_reason: str | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self.run_ended = asyncio.Event()
        self.run_ended.set()

    # --- the desk

    @property
    def state(self) -> SessionView:
        """The fold of everything in the log."""
        return self._view

    def attach(self, log: LogWriter, publish: Callable[[], None] | None = None) -> None:
        """Get the log, and for a new root how its tree is published; before any append."""
        self._log = log
        self._publish = publish

    def deliver(self, records: Sequence[Record]) -> None:
        """Apply and publish what became durable: the log calls this, in order."""
        for event, _ in records:
            apply(self._state, event)
        self._outbox.put(self.session_id, records)

    @property
    def log(self) -> LogWriter:
        """The session's log; nothing is appended before it is there."""
        assert self._log is not None, "the session has no log yet"
        return self._log

    @property
    def run_id(self) -> RunId | None:
        """The open run, as the log knows it."""
        return None if self._state.run is None else self._state.run.run_id

    async def begin(self, run_id: RunId, given: UserInputSubmitted, started: RunStarted) -> None:
        """Append an input and the run it opens; with a new root's first one the tree is published.

        All or nothing: a tree that could not be published has no run.
        """
        events: list[tuple[RunId | None, Payload]] = [(None, given), (run_id, started)]
        if self.newborn is not None:
            events.insert(0, (None, self.newborn))
        if (title := self._first_title(given, started)) is not None:
            events.append((None, title))
        await self.log.append(events, then=None if self.newborn is None else self._publish)
        self.newborn = None

    def _first_title(
        self, given: UserInputSubmitted, started: RunStarted
    ) -> SessionTitleCommitted | None:
        """The excerpt that names a root until somebody or something names it better."""
        created = self.newborn or self._state.created
        title = excerpt(given.input)
        unnamed = self._state.title.updated_seq == 0
        if (
            not unnamed
            or title is None
            or created is None
            or isinstance(created.origin, DelegatedOrigin)
        ):
            return None
        change = FallbackTitle(title=title)
        return SessionTitleCommitted(input_through_seq=started.input_through_seq, change=change)

    async def recover(self, events: Sequence[Payload]) -> None:
        """Append what closes, or carries on, what a dead worker left open; in one append."""
        run = self.run_id
        runless = WorkerRecovered
        await self.log.append([(None if type(e) is runless else run, e) for e in events])

    async def append(self, *payloads: Payload) -> None:
        """Append inside the open run, or runless when there is none. Raises as LogWriter does."""
        run = self.run_id
        await self.log.append([(run, payload) for payload in payloads])

    async def delta(self, payload: Payload) -> None:
        """Write a delta of the open run; waits only when the disk or the link is behind."""
        await self.log.delta(self.run_id, payload)
        await self._outbox.room()

    # --- the mailbox

    async def ask(self, command: Callable[[], Awaitable[T]]) -> T:
        """Do `command` in its turn and answer what it answers; its Fault is raised here."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def turn() -> None:
            try:
                result = await command()
            except Exception as error:  # noqa: BLE001 - it belongs to who asked, not to the mailbox
                if not answer.done():
                    answer.set_exception(error)
                return
            if not answer.done():
                answer.set_result(result)

        await self._mail.put(turn)
        return await answer

    async def serve(self) -> None:
        """Until cancelled: commands one after the other; the run lives and ends in this scope."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                command = await self._mail.get()
                await command()

    # --- the run

    def start_run(self) -> None:
        """Let the open run go on from where the log says it is."""
        assert self._tasks is not None, "the actor is not serving"
        assert self.kit is not None, "a run needs a plan"
        if self._run is not None and not self._run.done():
            return
        self.run_ended.clear()
        self._cancel_reason = None
        self._run = self._tasks.create_task(self._live(self.kit), name=f"run of {self.session_id}")

    def cancel_run(self, reason: str) -> bool:
        """Cancel the open run; False when there is none. The first reason is the one recorded."""
        if self._run is None or self._run.done() or self._state.run is None:
            return False
        if self._cancel_reason is None:
            self._cancel_reason = clean(reason, ERROR_CHARS_MAX)
            self._run.cancel()
        return True

    async def _live(self, kit: Kit) -> None:
        try:
            await drive(self, kit)
        except asyncio.CancelledError:
            if self._cancel_reason is None:
                raise  # the scope is torn down without a reason to record: the log stays open
            await self._close(RunCancelled(reason=self._cancel_reason))
        except Fault as fault:
            if self.log.broken is not None:
                raise  # nothing can be recorded any more: the worker stops, recovery closes it
            await self._close(RunFailed(error=clean(str(fault), ERROR_CHARS_MAX)))
        except Exception as bug:  # noqa: BLE001 - a bug in a run ends that run, never the session
            # Its whole story goes to the worker's stderr, which its supervisor keeps.
            traceback.print_exception(bug, file=sys.stderr)
            what = clean(f"internal error: {type(bug).__name__}: {bug}", ERROR_CHARS_MAX)
            await self._close(RunFailed(error=what))
        finally:
            self.run_ended.set()

    async def _close(self, end: RunCancelled | RunFailed) -> None:
        """End the run in the log: its open attempt and its open calls first."""
        # A cancelled append is still on its way to the disk: what it says must be known first.
        await self.log.append([])
        if self._state.run is not None:
            await self.append(*closing(self._view, self._state.run, end))
