"""The append path: every log of a tree, one writer thread, one sync for all that wait.

Order, for each event: number and encode (loop) -> write -> fdatasync (thread) -> deliver, which
applies and publishes (loop) -> the caller of `append` goes on. So nothing is in memory or in the
world that a crash could take back (hazard 4).

When a write fails, everything of its group and everything numbered behind it fails with it, and
the numbers are used again: no reader ever sees a hole. See `file` for what each failure means.

Delta events are not worth a sync of their own: they are written in gathers of 16 ms or 4 KiB
(the first at once) and made durable by the next commit event. Nobody waits for them, so a
failure of theirs is raised by the next call. While the thread has nothing to do they are written
right here, from the loop: two wake-ups of a thread cost more than the write
(docs/decisions/0012).
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from ipc.disk.log import LINE_BYTES_MAX
from ipc.events import Payload, StoredEvent, tag_of
from ipc.events.codec import encode
from ipc.faults import Fault
from ipc.ids import RunId, SessionId
from ipc.seams.clock import REAL, Clock
from ipc.seams.failpoints import ARMED, hit
from workers.store.file import AppendFailed, LogFile, LogPoisoned
from workers.store.tree import LogBroken

QUEUE_EVENTS_MAX: Final = 1024  # a full queue slows its senders down; it never grows
QUEUE_BYTES_MAX: Final = 8 << 20
GATHER_S: Final = 0.016
GATHER_BYTES: Final = 4096
SLOW_WRITE_S: Final = 0.01
SLOW_FOR_S: Final = 1.0
CLOSE_S: Final = 10.0

Record = tuple[StoredEvent, bytes]  # an event and its line in the log, without the newline
Deliver = Callable[[Sequence[Record]], None]
_T = TypeVar("_T")


class LogClosed(LogBroken):
    """The log was closed before this append."""

    code = "log_closed"


class EventTooLarge(Fault):
    """An event whose line no reader would hold; the log is untouched."""

    code = "event_too_large"


class _Job:
    """Records in seq order that stand or fall together; the waiter's begin at `own`."""

    __slots__ = ("durable", "generation", "log", "own", "records", "size", "then", "waiter")

    def __init__(self, log: "LogWriter", records: list[Record], own: int, size: int) -> None:
        self.log = log
        self.generation = log.generation
        self.records = records
        self.own = own
        self.size = size
        self.durable = False
        self.then: Callable[[], object] | None = None
        self.waiter: asyncio.Future[list[Record]] | None = None


class _Errand:
    """A blocking call for the writer thread, done in its turn."""

    __slots__ = ("call", "waiter")

    def __init__(self, call: Callable[[], object], waiter: asyncio.Future[Any]) -> None:
        self.call = call
        self.waiter = waiter


_Item = _Job | _Errand
_Answers = list[tuple[_Item, object]]


class WriterThread:
    """The one thread of a worker that writes and syncs; made inside the loop, after any fork.

    All methods belong to the loop. The way to the thread is bounded, over all logs, by
    QUEUE_EVENTS_MAX events and QUEUE_BYTES_MAX bytes that were admitted and not yet delivered.
    """

    def __init__(self, clock: Clock = REAL, engine_version: str | None = None) -> None:
        self.clock = clock
        self.engine_version = engine_version  # what the lines say they were written by
        self.loop = asyncio.get_running_loop()
        self.syncs = 0  # so far; lines a sync is the measure of group commit
        self._logs: dict[LogWriter, None] = {}
        self._events = 0
        self._bytes = 0
        self._slow_until = 0.0  # by the loop's clock: the disk was slow a moment ago
        self._pending = 0  # items the thread has and has not answered for
        self._room: list[asyncio.Future[None]] = []
        self._closed = False
        self._ended = asyncio.Event()
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="log-writer", daemon=True)
        self._thread.start()

    async def call(self, call: Callable[[], _T]) -> _T:
        """Do something blocking on the thread, behind all that was sent before it."""
        if self._closed:
            raise LogClosed
        return await self.errand(call)

    async def close(self) -> None:
        """Write and sync what was sent, close the logs, end the thread.

        What a log could not write is told to those who wait for it, not here. TimeoutError when
        the disk has not answered for CLOSE_S.
        """
        if not self._closed:
            self._closed = True
            for log in self._logs:
                log.flush()
            self._queue.put(None)
        async with asyncio.timeout(CLOSE_S):
            await self._ended.wait()
        self._thread.join(CLOSE_S)

    # --- for the logs

    @property
    def closed(self) -> bool:
        """Whether nothing is taken any more."""
        return self._closed

    @property
    def full(self) -> bool:
        """Whether senders must wait."""
        return self._events >= QUEUE_EVENTS_MAX or self._bytes >= QUEUE_BYTES_MAX

    async def room(self) -> None:
        """Wait until senders need not wait."""
        while self.full:
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._room.append(waiter)
            await waiter

    def admit(self, events: int, size: int) -> None:
        """So many events and bytes more (or less) are on their way."""
        self._events += events
        self._bytes += size

    def attach(self, log: "LogWriter") -> None:
        """A log to be flushed and closed at the end."""
        self._logs[log] = None

    def detach(self, log: "LogWriter") -> None:
        """A log that closes by itself."""
        self._logs.pop(log, None)

    def send(self, job: _Job) -> None:
        """Hand a job to the thread."""
        self._pending += 1
        self._queue.put(job)

    def send_delta(self, job: _Job) -> None:
        """Write a job that needs no sync: here while the thread is idle, else on the thread.

        An idle thread waits for its queue and touches no file. A disk that takes its time would
        hold up the loop, so after a slow write the thread has the next ones.
        """
        now = self.loop.time()
        if self._pending or now < self._slow_until:
            self.send(job)
            return
        self.settle(job, job.log.commit([job]).get(job))
        self._let_in()
        done = self.loop.time()
        if done - now > SLOW_WRITE_S:
            self._slow_until = done + SLOW_FOR_S

    async def errand(self, call: Callable[[], _T]) -> _T:
        """`call` without asking whether we are closing."""
        return await self.send_call(call)

    def send_call(self, call: Callable[[], _T]) -> "asyncio.Future[_T]":
        """Hand something blocking to the thread; what it came to can be waited for."""
        waiter: asyncio.Future[_T] = self.loop.create_future()
        self._pending += 1
        self._queue.put(_Errand(call, waiter))
        return waiter

    def settle(self, job: _Job, broken: LogBroken | None) -> None:
        """Pass on what became of a job."""
        self.admit(-len(job.records), -job.size)
        job.log.settle(job, broken)

    def _answer(self, answers: _Answers) -> None:
        """Pass on what became of a group, in the order it was sent."""
        self._pending -= len(answers)
        for item, answer in answers:
            if isinstance(item, _Job):
                self.settle(item, answer if isinstance(answer, LogBroken) else None)
            elif not item.waiter.done():
                if isinstance(answer, Exception):
                    item.waiter.set_exception(answer)
                else:
                    item.waiter.set_result(answer)
        self._let_in()

    def _let_in(self) -> None:
        if self._room and not self.full:
            waiting, self._room = self._room, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    # --- on the thread

    def _serve(self) -> None:
        more = True
        while more:
            group = [self._queue.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    group.append(self._queue.get_nowait())
            work = [item for item in group if item is not None]
            more = len(work) == len(group)
            if work:
                self._tell(self._answer, self._work(work))
        for log in list(self._logs):
            log.file.close()
        self._tell(self._ended.set)

    def _tell(self, call: Callable[..., object], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self.loop.call_soon_threadsafe(call, *args)

    def _work(self, group: list[_Item]) -> _Answers:
        answers: _Answers = []
        batch: list[_Job] = []
        for item in group:
            if isinstance(item, _Job):
                batch.append(item)
            else:  # it sees all that was sent before it, and nothing that was sent after it
                answers += self._commit(batch)
                batch = []
                answers.append((item, _outcome(item.call)))
        return answers + self._commit(batch)

    def _commit(self, batch: list[_Job]) -> _Answers:
        """Write each log once and sync it once, if anything in it must be."""
        by_log: dict[LogWriter, list[_Job]] = {}
        for job in batch:
            by_log.setdefault(job.log, []).append(job)
        failed: dict[_Job, LogBroken] = {}
        for log, jobs in by_log.items():
            failed |= log.commit(jobs)
            self.syncs += any(job.durable for job in jobs)
        return [(job, failed.get(job)) for job in batch]


def _outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - it belongs to whoever sent the call
        return error


class LogWriter:
    """One session's log; the only way an event gets into it.

    `deliver` is called on the loop, once for each group, with the records that were written, in
    seq order: it applies and publishes them. It runs before the `append` of those records
    returns, and may not fail: what is in the log and not in the state can't be built upon.
    """

    def __init__(
        self,
        thread: WriterThread,
        file: LogFile,
        session: SessionId,
        last_seq: int,
        deliver: Deliver,
    ) -> None:
        self.session_id = session
        self.file = file  # the thread's
        self.generation = 0  # of the numbering: a failed append begins the next
        self._thread = thread
        self._deliver = deliver
        self._seq = last_seq  # the last number given away
        self._settled = last_seq  # the last number in the log
        self._held: list[Record] = []
        self._held_bytes = 0
        self._window: asyncio.TimerHandle | None = None
        self._flushed = -GATHER_S  # when deltas were last sent, by the loop's clock
        self._owed: LogBroken | None = None  # a failure that nobody waited for
        self._broken: LogBroken | None = None
        self._closed = False
        self._failed_generation = -1  # the thread's
        thread.attach(self)

    @property
    def next_seq(self) -> int:
        """The number the next event gets, if nothing is sent before it and nothing fails."""
        return self._seq + 1

    @property
    def last_seq(self) -> int:
        """The number of the last event that was delivered."""
        return self._settled

    @property
    def broken(self) -> LogBroken | None:
        """Why this log takes nothing any more (Fenced, LogPoisoned), if that is so."""
        return self._broken

    async def append(
        self,
        events: Sequence[tuple[RunId | None, Payload]],
        *,
        then: Callable[[], object] | None = None,
    ) -> list[Record]:
        """Make events durable, deliver them, and return them with their lines; all or none.

        `then` is called on the writer thread when they are durable and before anyone is told,
        e.g. to publish a new tree; the log is poisoned if it fails. A caller that is cancelled
        does not take the events back.

        Raises LogBroken (AppendFailed, LogPoisoned, Fenced, LogClosed), EventTooLarge and
        EncodeFault.
        """
        await self._enter()
        job = self._job(self._number(events))
        job.durable = True
        job.then = then
        job.waiter = self._thread.loop.create_future()
        self._thread.send(job)
        return await job.waiter

    async def delta(self, run_id: RunId | None, payload: Payload) -> None:
        """Send an event that needs no sync; it is delivered when it was written.

        Does not wait for that, only for room. Raises as `append` does, also for a delta before.
        """
        await self._enter()
        ((event, line),) = self._number([(run_id, payload)])
        self._held.append((event, line))
        self._held_bytes += len(line) + 1
        due = self._flushed + GATHER_S
        if self._held_bytes >= GATHER_BYTES or self._thread.loop.time() >= due:
            self.flush()
            self._raise_owed()
        elif self._window is None:
            self._window = self._thread.loop.call_at(due, self._gathered)

    def flush(self) -> None:
        """Send the deltas that were held back, without waiting for them."""
        if self._held:
            self._flushed = self._thread.loop.time()
            self._thread.send_delta(self._job([]))

    async def close(self) -> None:
        """Write what was sent, sync and close the file; the thread goes on for other logs."""
        if self._closed:
            return
        self._closed = True
        self.flush()
        self._thread.detach(self)
        await self._thread.errand(self.file.close)

    def _gathered(self) -> None:
        self._window = None
        self.flush()

    async def _enter(self) -> None:
        if self._thread.full:
            await self._thread.room()
        if self._broken is not None:
            raise _again(self._broken)
        self._raise_owed()
        if self._closed or self._thread.closed:
            raise LogClosed(session=self.session_id)

    def _raise_owed(self) -> None:
        if self._owed is not None:
            owed, self._owed = self._owed, None
            raise owed

    def _number(self, events: Sequence[tuple[RunId | None, Payload]]) -> list[Record]:
        now = self._thread.clock.now()
        records: list[Record] = []
        size = 0
        for seq, (run_id, payload) in enumerate(events, self._seq + 1):
            if ARMED:
                hit(f"append.{tag_of(type(payload))}.before")
            event = StoredEvent(
                engine_version=self._thread.engine_version,
                session_id=self.session_id,
                run_id=run_id,
                seq=seq,
                timestamp=now,
                payload=payload,
            )
            line = encode(event)
            if len(line) > LINE_BYTES_MAX:
                raise EventTooLarge(
                    type=tag_of(type(payload)), bytes=len(line), limit=LINE_BYTES_MAX
                )
            records.append((event, line))
            size += len(line) + 1
        # Only now, when none of them can be refused any more, are the numbers given away.
        self._seq += len(records)
        self._thread.admit(len(records), size)
        return records

    def _job(self, own: list[Record]) -> _Job:
        size = self._held_bytes
        for _, line in own:
            size += len(line) + 1
        job = _Job(self, self._held + own, len(self._held), size)
        self._held, self._held_bytes = [], 0
        return job

    def settle(self, job: _Job, broken: LogBroken | None) -> None:
        """Take what became of a job; called in the order the jobs were sent."""
        if broken is None and self._broken is not None:  # its state lacks what came before
            broken = _again(self._broken)
        if broken is None:
            broken = self._pass_on(job)
        if broken is not None:
            self._fail(job, broken)
        elif job.waiter is not None and not job.waiter.done():
            job.waiter.set_result(job.records[job.own :])

    def _pass_on(self, job: _Job) -> LogBroken | None:
        if not job.records:
            return None
        self._settled = job.records[-1][0].seq
        try:
            self._deliver(job.records)
            if ARMED:
                for event, _ in job.records:
                    hit(f"append.{tag_of(type(event.payload))}.after")
        except Exception as error:  # noqa: BLE001 - whoever appended must learn of it
            broken = LogPoisoned(session=self.session_id, reason=f"not delivered: {error!r}")
            broken.__cause__ = error
            return broken
        return None

    def _fail(self, job: _Job, broken: LogBroken) -> None:
        if not isinstance(broken, AppendFailed):
            self._broken = self._broken or broken
        elif job.generation != self.generation:
            pass  # numbered behind one that failed before: the numbering has begun anew already
        else:
            self.generation += 1
            self._seq = self._settled
            # Deltas held back were numbered behind the failed ones: they go with them.
            self._thread.admit(-len(self._held), -self._held_bytes)
            self._held, self._held_bytes = [], 0
        if job.waiter is None or job.waiter.done():
            self._owed = broken
        else:
            job.waiter.set_exception(broken)

    def commit(self, jobs: list[_Job]) -> dict[_Job, LogBroken]:
        """On the thread: write jobs as one and sync if one must be; those that failed."""
        live, failed = jobs, dict[_Job, LogBroken]()
        if jobs[0].generation <= self._failed_generation:  # generations only grow
            live = [job for job in jobs if job.generation > self._failed_generation]
            for job in jobs[: len(jobs) - len(live)]:
                before = AppendFailed(session=self.session_id, reason="an append before it failed")
                failed[job] = before
        broken = self._commit(live) if live else None
        if broken is not None:
            failed |= {job: _again(broken) for job in live}
            if isinstance(broken, AppendFailed):
                self._failed_generation = live[-1].generation
        return failed

    def _commit(self, jobs: list[_Job]) -> LogBroken | None:
        try:
            lines, durable = list[bytes](), False
            for job in jobs:
                durable = durable or job.durable
                for _, line in job.records:
                    lines.append(line)
            self.file.append(lines)
            if durable:
                self.file.sync()
            for job in jobs:
                if job.then is not None:
                    job.then()
        except LogBroken as broken:
            return broken
        except Exception as error:  # noqa: BLE001 - no error may end the thread unseen (hazard 48)
            return self.file.poison(repr(error))
        return None


def _again(broken: LogBroken) -> LogBroken:
    """The same fault for one more waiter: a raised exception belongs to who raised it."""
    fresh = type(broken)(**broken.facts)
    fresh.__cause__ = broken.__cause__
    return fresh
