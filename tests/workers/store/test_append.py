"""The append path: order, groups, gathers, limits, and who is told what when it fails."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from ipc.disk.log import read_log
from ipc.disk.paths import WorkspacePaths
from ipc.events.codec import EncodeFault
from ipc.seams.fs import REAL, Fs
from tests.fakes.clock import FakeClock
from tests.fakes.fs import Fault, FaultyFs, Op, RecordingFs
from tests.fakes.store import CREATED, RUN, SESSION, delta, staged, user
from workers.store import log as log_module
from workers.store.file import AppendFailed, LogFile, LogPoisoned
from workers.store.log import EventTooLarge, LogClosed, LogWriter, Record, WriterThread
from workers.store.publish import AlreadyPublished, publish
from workers.store.tree import Fenced, OwnedTree


class Bench:
    """A log in a staged tree, and all that it delivered."""

    def __init__(self, workspace: Path, fs: Fs) -> None:
        self.fs = fs
        self.workspace = WorkspacePaths(workspace)
        paths, self.lock = staged(workspace)
        self.tree = OwnedTree(paths.directory, self.lock, fs)
        self.thread = WriterThread(FakeClock())
        self.told: list[list[Record]] = []
        self.log = LogWriter(
            self.thread, LogFile.create(self.tree, self.tree.paths.root), SESSION, 0, self.deliver
        )

    def deliver(self, records: Sequence[Record]) -> None:
        self.told.append(list(records))

    @property
    def seqs(self) -> list[int]:
        return [event.seq for group in self.told for event, _ in group]

    def on_disk(self) -> list[bytes]:
        return [line for _, line in read_log(self.tree.paths.root.events)]

    async def settled(self) -> None:
        await self.thread.call(lambda: None)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """The writer thread is held up in something until this ends."""
        free = threading.Event()
        self.thread.send_call(free.wait)
        try:
            yield
        finally:
            free.set()


@asynccontextmanager
async def bench(tmp_path: Path, fs: Fs = REAL) -> AsyncIterator[Bench]:
    made = Bench(tmp_path / "space", fs)
    try:
        yield made
    finally:
        await made.thread.close()
        made.tree.release()


def in_log(call: str) -> Callable[[Op], bool]:
    return lambda op: op.call == call and op.path.endswith("events.jsonl")


async def test_an_append_returns_numbered_events_with_the_bytes_that_are_in_the_log(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as b:
        first = await b.log.append([(None, CREATED), (None, user("a"))])
        second = await b.log.append([(RUN, user("b"))])

        assert [event.seq for event, _ in first + second] == [1, 2, 3]
        assert [event.run_id for event, _ in first + second] == [None, None, RUN]
        assert [line for _, line in first + second] == b.on_disk()
        assert b.tree.paths.root.events.read_bytes().endswith(b"}\n")
        assert b.told == [first, second]


async def test_events_are_delivered_before_the_append_returns_and_after_they_are_durable(
    tmp_path: Path,
) -> None:
    fs = RecordingFs()
    async with bench(tmp_path, fs) as b:
        path = str(b.tree.paths.root.events)
        await b.log.append([(None, CREATED)])

        assert len(b.told) == 1
        assert fs.synced[path] == b.tree.paths.root.events.stat().st_size
        calls = [op.call for op in fs.ops if op.path == path]
        assert calls[-2:] == ["write", "fdatasync"]


async def test_all_that_wait_share_one_sync(tmp_path: Path) -> None:
    fs = RecordingFs()
    async with bench(tmp_path, fs) as b:
        await b.log.append([(None, CREATED)])
        before = b.thread.syncs
        async with asyncio.TaskGroup() as tasks:
            for n in range(64):
                tasks.create_task(b.log.append([(RUN, user(str(n)))]))

        assert b.seqs == list(range(1, 66))
        assert b.thread.syncs - before < 64


async def test_appends_of_many_tasks_are_delivered_in_the_order_of_their_numbers(
    tmp_path: Path,
) -> None:
    returned: list[int] = []

    async def one(log: LogWriter, text: str) -> None:
        records = await log.append([(RUN, user(text))])
        returned.append(records[0][0].seq)

    async with bench(tmp_path) as b:
        await b.log.append([(None, CREATED)])
        async with asyncio.TaskGroup() as tasks:
            for n in range(100):
                tasks.create_task(one(b.log, str(n)))
        assert returned == list(range(2, 102))


async def test_the_first_delta_is_written_at_once_and_the_next_ones_in_one_gather(
    tmp_path: Path,
) -> None:
    fs = RecordingFs()
    async with bench(tmp_path, fs) as b:
        await b.log.append([(None, CREATED)])
        for text in "abcde":
            await b.log.delta(RUN, delta(text))
        await b.settled()
        assert b.seqs == [1, 2]
        b.log.flush()  # what the timer does
        await b.settled()

        assert [len(group) for group in b.told] == [1, 1, 4]
        assert [op.call for op in fs.ops if op.path.endswith(".jsonl")].count("fdatasync") == 1


async def test_the_gather_timer_writes_deltas_that_nothing_else_pushes_out(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        written = asyncio.Event()
        b.log._deliver = lambda records: written.set() if records[-1][0].seq == 4 else None
        await b.log.append([(None, CREATED)])
        for text in "abc":
            await b.log.delta(RUN, delta(text))
        async with asyncio.timeout(10):
            await written.wait()


async def test_four_kilobytes_of_deltas_do_not_wait_for_the_timer(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.log.append([(None, CREATED)])
        await b.log.delta(RUN, delta("first"))
        await b.log.delta(RUN, delta("x" * log_module.GATHER_BYTES))
        await b.settled()
        assert b.seqs == [1, 2, 3]


async def test_a_commit_takes_the_deltas_before_it_along_and_makes_them_durable(
    tmp_path: Path,
) -> None:
    fs = RecordingFs()
    async with bench(tmp_path, fs) as b:
        await b.log.append([(None, CREATED)])
        for text in "abc":
            await b.log.delta(RUN, delta(text))
        records = await b.log.append([(RUN, user("now"))])

        assert [event.seq for event, _ in records] == [5]
        assert b.seqs == [1, 2, 3, 4, 5]
        path = b.tree.paths.root.events
        assert fs.synced[str(path)] == path.stat().st_size


async def test_an_event_that_cannot_be_encoded_fails_alone_and_takes_no_number(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as b:
        await b.log.append([(None, CREATED)])
        with pytest.raises(EncodeFault):
            await b.log.append([(RUN, user("good")), (RUN, user("\ud800"))])
        with pytest.raises(EncodeFault):
            await b.log.delta(RUN, delta("\udfff"))
        assert b.log.next_seq == 2
        await b.log.append([(RUN, user("next"))])
        assert b.seqs == [1, 2]


async def test_a_full_queue_slows_senders_down_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "QUEUE_EVENTS_MAX", 8)
    async with bench(tmp_path) as b:
        await b.log.append([(None, CREATED)])
        most = 0
        for n in range(200):
            await b.log.delta(RUN, delta(str(n)))
            most = max(most, b.thread._events)
        await b.log.append([(RUN, user("end"))])
        assert most <= 8
        assert b.seqs == list(range(1, 203))


async def test_a_queue_is_full_by_its_bytes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "QUEUE_BYTES_MAX", 10_000)
    async with bench(tmp_path) as b:
        await b.log.append([(None, CREATED)])
        most = 0
        for _ in range(50):
            await b.log.delta(RUN, delta("x" * 1000))
            most = max(most, b.thread._bytes)
        await b.log.append([(RUN, user("end"))])
        assert most < 10_000 + 2000  # the one that filled it
        assert b.seqs == list(range(1, 53))


async def test_an_event_that_no_reader_would_hold_fails_alone_and_takes_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as b:
        await b.log.append([(None, CREATED)])
        monkeypatch.setattr(log_module, "LINE_BYTES_MAX", 1000)
        with pytest.raises(EventTooLarge):
            await b.log.append([(RUN, user("a")), (RUN, user("x" * 1000))])
        await b.log.append([(RUN, user("b"))])
        assert b.seqs == [1, 2]
        assert len(b.on_disk()) == 2


async def test_a_cancelled_append_is_still_written_and_delivered(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.log.append([(None, CREATED)])
        task = asyncio.create_task(b.log.append([(RUN, user("late"))]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await b.log.append([])
        assert b.seqs == [1, 2]


async def test_close_drains_what_was_sent_and_refuses_what_comes_later(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.log.append([(None, CREATED)])
        for n in range(20):
            await b.log.delta(RUN, delta(str(n)))
        await b.thread.close()
        assert len(b.on_disk()) == 21
        assert b.seqs == list(range(1, 22))
        with pytest.raises(LogClosed):
            await b.log.append([(RUN, user("late"))])
        with pytest.raises(LogClosed):
            await b.log.delta(RUN, delta("late"))


async def test_a_log_closes_alone_and_others_go_on(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.log.append([(None, CREATED)])
        child = LogWriter(
            b.thread,
            LogFile.create(b.tree, b.tree.paths.child(SESSION)),
            SESSION,
            0,
            lambda records: None,
        )
        await child.append([(None, CREATED)])
        await child.delta(RUN, delta("held"))
        await child.close()
        await child.close()
        with pytest.raises(LogClosed):
            await child.append([(None, user("x"))])
        await b.log.append([(None, user("goes on"))])
        assert read_log(b.tree.paths.child(SESSION).events).drain().last_seq == 2


# --- failures


async def test_a_failed_write_is_cut_back_and_its_numbers_are_used_again(tmp_path: Path) -> None:
    fs = FaultyFs(Fault(1, errno.ENOSPC), in_log("write"))
    async with bench(tmp_path, fs) as b:
        await b.log.append([(None, CREATED)])
        size = b.tree.paths.root.events.stat().st_size
        with pytest.raises(AppendFailed) as failed:
            await b.log.append([(RUN, user("lost"))])
        assert failed.value.facts["errno"] == errno.ENOSPC
        assert b.tree.paths.root.events.stat().st_size == size
        assert b.log.broken is None

        await b.log.append([(RUN, user("again"))])
        assert b.seqs == [1, 2]


async def test_a_short_write_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async with bench(tmp_path, FaultyFs(Fault(1, short=3, sticky=True), in_log("write"))) as b:
        await b.log.append([(None, CREATED)])
        await b.log.append([(RUN, user("in pieces"))])
        assert len(b.on_disk()) == 2


async def test_a_write_that_takes_nothing_is_a_failure_and_not_a_loop(tmp_path: Path) -> None:
    async with bench(tmp_path, FaultyFs(Fault(1, short=0), in_log("write"))) as b:
        await b.log.append([(None, CREATED)])
        with pytest.raises(AppendFailed):
            await b.log.append([(RUN, user("nothing"))])


async def test_everything_numbered_behind_a_failed_append_fails_with_it(tmp_path: Path) -> None:
    fs = FaultyFs(Fault(1, errno.ENOSPC), in_log("write"))
    async with bench(tmp_path, fs) as b:
        await b.log.append([(None, CREATED)])
        outcomes: list[object] = []

        async def one(text: str) -> None:
            try:
                outcomes.append([e.seq for e, _ in await b.log.append([(RUN, user(text))])])
            except AppendFailed as failed:
                outcomes.append(type(failed))

        async with asyncio.TaskGroup() as tasks:
            for n in range(10):
                tasks.create_task(one(str(n)))
        assert outcomes == [AppendFailed] * 10
        await b.log.append([(RUN, user("after"))])
        assert b.seqs == [1, 2]
        assert [e.seq for e in read_log(b.tree.paths.root.events).events()] == [1, 2]


async def test_a_failed_delta_is_told_by_the_next_call(tmp_path: Path) -> None:
    fs = FaultyFs(Fault(1, errno.ENOSPC), in_log("write"))
    async with bench(tmp_path, fs) as b:
        await b.log.append([(None, CREATED)])
        with b.busy():
            await b.log.delta(RUN, delta("lost"))
        await b.settled()
        with pytest.raises(AppendFailed):
            await b.log.append([(RUN, user("not sent"))])
        await b.log.append([(RUN, user("sent"))])
        assert b.seqs == [1, 2]


async def test_deltas_held_back_fail_with_the_one_before_them(tmp_path: Path) -> None:
    fs = FaultyFs(Fault(1, errno.ENOSPC), in_log("write"))
    async with bench(tmp_path, fs) as b:
        await b.log.append([(None, CREATED)])
        with b.busy():
            for text in "abc":
                await b.log.delta(RUN, delta(text))  # a fails, b and c wait for their gather
        await b.settled()
        assert (b.thread._events, b.thread._bytes) == (0, 0)
        with pytest.raises(AppendFailed):
            await b.log.delta(RUN, delta("d"))
        await b.log.append([(RUN, user("sent"))])
        assert b.seqs == [1, 2]


async def test_a_delta_that_is_written_at_once_and_fails_says_so_itself(tmp_path: Path) -> None:
    fs = FaultyFs(Fault(1, errno.ENOSPC), in_log("write"))
    async with bench(tmp_path, fs) as b:
        await b.log.append([(None, CREATED)])
        with pytest.raises(AppendFailed):
            await b.log.delta(RUN, delta("a"))
        assert (b.thread._events, b.thread._bytes) == (0, 0)
        await b.log.append([(RUN, user("sent"))])
        assert b.seqs == [1, 2]


async def test_deltas_go_through_a_thread_that_is_busy_and_past_one_that_is_idle(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as b:
        await b.log.append([(None, CREATED)])
        with b.busy():
            await b.log.delta(RUN, delta("behind what it does"))
            assert b.seqs == [1]
        await b.settled()
        assert b.seqs == [1, 2]
        await b.log.delta(RUN, delta("x" * log_module.GATHER_BYTES))
        assert b.seqs == [1, 2, 3]


async def test_after_a_slow_write_the_thread_has_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "SLOW_WRITE_S", -1.0)  # every write is slow
    async with bench(tmp_path) as b:
        await b.log.append([(None, CREATED)])
        await b.log.delta(RUN, delta("x" * log_module.GATHER_BYTES))
        await b.log.delta(RUN, delta("y" * log_module.GATHER_BYTES))
        assert b.seqs == [1, 2]
        await b.settled()
        assert b.seqs == [1, 2, 3]


async def test_a_write_that_cannot_be_cut_back_poisons_the_log(tmp_path: Path) -> None:
    def counts(op: Op) -> bool:
        return op.call in {"write", "ftruncate"} and op.path.endswith("events.jsonl")

    async with bench(tmp_path, FaultyFs(Fault(1, errno.EIO, sticky=True), counts)) as b:
        await b.log.append([(None, CREATED)])
        with pytest.raises(LogPoisoned):
            await b.log.append([(RUN, user("x"))])
        with pytest.raises(LogPoisoned):
            await b.log.append([(RUN, user("y"))])
        assert isinstance(b.log.broken, LogPoisoned)
        assert b.seqs == [1]


async def test_a_failed_sync_is_acknowledged_to_nobody_and_never_tried_again(
    tmp_path: Path,
) -> None:
    fs = FaultyFs(Fault(1, errno.EIO), in_log("fdatasync"))
    async with bench(tmp_path, fs) as b:
        await b.log.append([(None, CREATED)])
        outcomes: list[type] = []

        async def one(text: str) -> None:
            with pytest.raises(LogPoisoned) as failed:
                await b.log.append([(RUN, user(text))])
            outcomes.append(failed.type)

        async with asyncio.TaskGroup() as tasks:
            for n in range(8):
                tasks.create_task(one(str(n)))
        assert len(outcomes) == 8
        assert b.seqs == [1]
        with pytest.raises(LogPoisoned):
            await b.log.delta(RUN, delta("x"))
        await b.thread.close()
        log_calls = [op.call for op in fs.ops if op.path.endswith("events.jsonl")]
        after = log_calls[_last(log_calls, "fdatasync") + 1 :]
        assert set(after) <= {"fstat", "stat", "close"}
        assert log_calls.count("fdatasync") == 2


def _last(calls: list[str], call: str) -> int:
    return len(calls) - 1 - calls[::-1].index(call)


async def test_a_log_that_grew_by_another_hand_fences_its_writer_for_good(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.log.append([(None, CREATED)])
        path = b.tree.paths.root.events
        whole = path.read_bytes()
        path.write_bytes(whole + b"intruder\n")
        with pytest.raises(Fenced):
            await b.log.append([(RUN, user("x"))])
        path.write_bytes(whole)
        with pytest.raises(Fenced):
            await b.log.append([(RUN, user("y"))])
        assert path.read_bytes() == whole


@pytest.mark.parametrize("what", ["lock", "log"])
@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_a_lock_or_log_that_is_not_ours_any_more_fences_its_writer(
    tmp_path: Path, what: str, how: str
) -> None:
    async with bench(tmp_path) as b:
        await b.log.append([(None, CREATED)])
        tree = b.tree.paths
        path = tree.lock if what == "lock" else tree.root.events
        content = path.read_bytes()
        size = tree.root.events.stat().st_size
        path.unlink()
        if how == "replaced":
            path.write_bytes(content)
        with pytest.raises(Fenced):
            await b.log.append([(RUN, user("x"))])
        if (what, how) != ("log", "removed"):
            assert tree.root.events.stat().st_size == size


async def test_a_released_tree_is_written_no_more(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.log.append([(None, CREATED)])
        b.tree.release()
        with pytest.raises(Fenced):
            await b.log.append([(RUN, user("x"))])


async def test_a_delivery_that_fails_stops_the_log(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.log.append([(None, CREATED)])

        def broken(records: Sequence[Record]) -> None:
            raise ZeroDivisionError

        b.log._deliver = broken
        behind = asyncio.create_task(b.log.append([(RUN, user("x"))]))
        await asyncio.sleep(0)
        with pytest.raises(LogPoisoned, match="ZeroDivisionError"):
            await b.log.append([(RUN, user("z"))])
        with pytest.raises(LogPoisoned, match="ZeroDivisionError"):
            await behind
        with pytest.raises(LogPoisoned):
            await b.log.append([(RUN, user("y"))])


async def test_an_unexpected_error_on_the_thread_is_told_and_does_not_end_it(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as b:

        def broken() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await b.thread.call(broken)
        with pytest.raises(LogPoisoned, match="ZeroDivisionError"):
            await b.log.append([(None, CREATED)], then=broken)
        assert b.told == []
        assert await b.thread.call(lambda: 7) == 7


# --- publication


async def test_a_tree_has_its_name_before_anyone_is_told_of_its_first_event(tmp_path: Path) -> None:
    fs = RecordingFs()
    async with bench(tmp_path, fs) as b:
        final = b.workspace.tree(SESSION)
        seen: list[bool] = []
        b.log._deliver = lambda records: seen.append(
            final.root.events.exists() and not fs.loose_above(final.root.events, tmp_path / "space")
        )
        await b.log.append(
            [(None, CREATED), (None, user("hi"))], then=lambda: publish(b.tree, final.directory)
        )
        assert seen == [True]
        await b.log.append([(None, user("in its new place"))])
        assert len(b.on_disk()) == 3
        assert b.tree.paths == final


async def test_a_tree_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        final = b.workspace.tree(SESSION)
        final.directory.mkdir()
        final.lock.write_bytes(b"somebody's")
        with pytest.raises(LogPoisoned, match="already_published"):
            await b.log.append([(None, CREATED)], then=lambda: publish(b.tree, final.directory))
        assert final.lock.read_bytes() == b"somebody's"
        with pytest.raises(AlreadyPublished):
            publish(b.tree, final.directory)
        assert b.told == []
