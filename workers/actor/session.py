"""One session: its state, its mailbox, its one open run. Nothing else appends to its log."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ipc.events import (
    DelegatedOrigin,
    FallbackTitle,
    Payload,
    RunStarted,
    SessionCreated,
    SessionTitleCommitted,
    UserInputSubmitted,
    WorkerRecovered,
)
from ipc.faults import Fault
from ipc.fold import SessionState, SessionView, apply
from ipc.ids import RunId, SessionId
from workers.actor.running import Running
from workers.actor.title import excerpt
from workers.store.log import LogWriter, Record

if TYPE_CHECKING:
    from workers.run.desk import Kit

MAILBOX_COMMANDS_MAX: Final = 256  # a full mailbox slows its senders down; it never grows

T = TypeVar("T")


class SessionClosed(Fault):
    """The session's worker is ending; it takes no command any more."""

    code = "session_closed"


class Outbox(Protocol):
    """Where delivered events go; it is told in the order of the log."""

    def put(self, session: SessionId, records: Sequence[Record]) -> None:
        """Take what is in the log now. Never waits."""
        ...

    async def room(self) -> None:
        """Wait while too much waits to be sent, and so slow the run."""
        ...


class _Letter:
    """A command on its way, and who waits for what it answers."""

    __slots__ = ("answer", "command")

    def __init__(self, command: Callable[[], Awaitable[Any]]) -> None:
        self.command = command
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class SessionActor:
    """The owner of one session's state, and the mailbox through which it is changed.

    `kit` is what runs are made from; it comes with the first plan and is replaced by later ones,
    a run keeps the one it began with.
    """

    def __init__(
        self, session: SessionId, workspace: str, state: SessionState, outbox: Outbox
    ) -> None:
        self.session_id = session
        self.workspace = workspace
        self.newborn: SessionCreated | None = None  # a new root until its first user message
        self.kit: Kit | None = None
        self._state = state
        self._view = state.view()
        self._log: LogWriter | None = None
        self._publish: Callable[[], None] | None = None
        self._outbox = outbox
        self._mail: asyncio.Queue[_Letter] = asyncio.Queue(MAILBOX_COMMANDS_MAX)
        self._closed = False
        self._ending: str | None = None  # why no run is to go on
        self._tasks: asyncio.TaskGroup | None = None
        self._running: Running | None = None
        self._run: asyncio.Task[None] | None = None  # of `_running`, or of the one before it

    # --- what its runs stand on

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

    async def room(self) -> None:
        """Wait while too much waits to be sent, and so slow the run."""
        await self._outbox.room()

    # --- what commands append

    async def begin(
        self,
        run_id: RunId,
        before: Sequence[Payload],
        given: UserInputSubmitted,
        started: RunStarted,
    ) -> None:
        """Append an input and the run it opens; with a new root's first one the tree is published.

        `before` is what enters the history ahead of the input.

        All or nothing: a tree that could not be published has no run.
        """
        events: list[tuple[RunId | None, Payload]] = [(None, one) for one in (*before, given)]
        events.append((run_id, started))
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

    # --- the mailbox

    async def ask(self, command: Callable[[], Awaitable[T]]) -> T:
        """Do `command` in its turn and answer what it answers; its Fault is raised here.

        Who is cancelled before its turn has asked for nothing; later, it is done all the same.
        """
        letter = _Letter(command)
        if self._closed:
            raise SessionClosed(session=self.session_id)
        await self._mail.put(letter)
        if self._closed:  # while we waited for room, as others may still do
            self._refuse_all()
        answer: T = await letter.answer
        return answer

    async def serve(self) -> None:
        """Until cancelled: commands one after the other; the run lives and ends in this scope.

        Raises LogBroken when a command or the run has found the log broken for good.
        """
        try:
            async with asyncio.TaskGroup() as self._tasks:
                while True:
                    await self._answer(await self._mail.get())
                    if self._log is not None and self._log.broken is not None:
                        raise self._log.broken
        finally:
            self._closed = True
            self._refuse_all()

    async def _answer(self, letter: _Letter) -> None:
        if letter.answer.done():  # who asked has gone
            return
        try:
            result = await letter.command()
        except asyncio.CancelledError:
            self._refuse(letter)
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Else the command was cancelled by what it does, and that is no reason for us to end.
        except Exception as error:  # noqa: BLE001 - it belongs to who asked, not to the mailbox
            if letter.answer.done():
                return
            letter.answer.set_exception(error)
        else:
            if not letter.answer.done():
                letter.answer.set_result(result)

    def _refuse_all(self) -> None:
        while not self._mail.empty():
            self._refuse(self._mail.get_nowait())

    def _refuse(self, letter: _Letter) -> None:
        if not letter.answer.done():
            letter.answer.set_exception(SessionClosed(session=self.session_id))

    # --- the run

    def start_run(self) -> None:
        """Let the open run go on from where the log says it is."""
        assert self._tasks is not None, "the actor is not serving"
        assert self.kit is not None, "a run needs a plan"
        assert self._state.run is not None, "there is no run to go on with"
        run_id = self._state.run.run_id
        if self._running is not None and self._running.run_id == run_id:
            return
        self._running = Running(self, run_id, self.kit)
        # The last run's end is in the log, or this one could not have begun; its task may not
        # have heard of it yet.
        live = self._one_by_one(self._run, self._running)
        self._run = self._tasks.create_task(live, name=f"run {run_id}")
        if self._ending is not None:
            self._running.stop(self._ending)

    def cancel_run(self, reason: str) -> bool:
        """Cancel the open run; False when there is none. The first reason is the one recorded."""
        run, running = self._state.run, self._running
        if run is None or running is None or running.run_id != run.run_id:
            return False
        running.stop(reason)
        return True

    async def end(self, reason: str) -> None:
        """Cancel the open run, also one that a command is opening now; wait until it is over.

        A run that begins after this is cancelled at once, with the same reason.
        """
        self._ending = reason
        self.cancel_run(reason)
        await self.ask(_nothing)  # comes behind a command that is half done
        await self.run_over()

    async def run_over(self) -> None:
        """Wait until no run is at work: its terminal event is in the log then."""
        while self._run is not None and not self._run.done():
            await asyncio.wait({self._run})

    async def _one_by_one(self, before: "asyncio.Task[None] | None", running: Running) -> None:
        if before is not None and not before.done():
            await asyncio.wait({before})
        await running.live()


async def _nothing() -> None:
    """A command that only waits for its turn."""
