"""A session on a real log: one run at a time, each with one end, whatever happens to it."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ipc.events import (
    Payload,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    SessionCreated,
    SessionTitleCommitted,
    ToolCallExecuting,
    UserInputSubmitted,
    WorkerRecovered,
)
from tests.fakes.clock import FakeClock
from tests.fakes.desk import Stage, kit, story
from tests.fakes.session import (
    DEADLINE_S,
    ENDS,
    CountingLog,
    FullFs,
    Session,
    living,
    on_disk,
)
from tests.workers.run.test_machine import books
from workers.actor.commands import RunActive
from workers.actor.session import SessionClosed
from workers.providers.base import ToolMessage
from workers.providers.script import Call, Say, Stall, Step, Think
from workers.providers.scripted import Scripted
from workers.store.file import AppendFailed, LogPoisoned


def look(who: str, how: str = "", **more: Any) -> Call:
    return Call("look", args={"who": who, "how": how, **more}, id=who)


def poke(who: str, how: str = "", **more: Any) -> Call:
    return Call("poke", args={"who": who, "how": how, **more}, id=who)


WHOLE: Sequence[Sequence[Step]] = (
    [Think("hm"), Say("two words", chars=4), look("a"), poke("b", "tell"), look("c")],
    [poke("d"), poke("e", "fail")],
    [Say("hello")],
)


def once_told(session: Session, kind: type[Any], act: Callable[[], object], nth: int = 1) -> None:
    """Do something when the n-th event of a kind is told, right then."""
    left = [nth]

    def on(payload: Payload) -> None:
        if isinstance(payload, kind):
            left[0] -= 1
            if not left[0]:
                act()

    session.audience.on = on


def checked(session: Session, place: Path) -> list[Payload]:
    """What was told is in the log, in order, and each thing and each run has one end."""
    told = session.audience.lines
    assert on_disk(place) == told
    payloads = session.audience.payloads
    opened, closed = books(payloads)
    assert opened == closed
    runs = [one for one in payloads if isinstance(one, RunStarted)]
    assert len([one for one in payloads if isinstance(one, ENDS)]) == len(runs)
    return payloads


async def test_a_run_goes_from_its_input_to_its_end(tmp_path: Path) -> None:
    async with living(tmp_path, Scripted([*WHOLE])) as session:
        await session.start()
        await session.over()
    payloads = checked(session, tmp_path)
    assert story(payloads)[-1] == "run completed: hello"
    runless = [event.payload for event, _ in session.audience.told if event.run_id is None]
    assert [type(one) for one in runless] == [
        SessionCreated,
        UserInputSubmitted,
        SessionTitleCommitted,
    ]


# --- cancellation --------------------------------------------------------------------------------


async def cancelled_run(place: Path, how: str, k: int) -> tuple[Session, int, int]:
    """Cancel a run at its k-th moment; the session, how many moments there were, acts after it."""
    stage, count, begun = Stage(), 0, [0]
    provider = Scripted([*WHOLE])
    mine = kit(provider, stage)
    async with living(place, provider, mine=mine, log=CountingLog) as session:

        def moment(*_: object) -> None:
            nonlocal count
            count += 1
            if count == k:
                begun[0] = begins(stage)
                session.actor.cancel_run("user")

        await session.start()
        if how == "sent":
            session.actor.log.at = moment  # type: ignore[attr-defined]
        else:
            session.audience.on = moment
        await session.over()
    return session, count, begins(stage) - begun[0] if count >= k else 0


def begins(stage: Stage) -> int:
    return sum(line.endswith("begins") for line in stage.told)


@pytest.mark.parametrize("how", ["sent", "told"])
async def test_a_run_that_is_cancelled_anywhere_has_one_end_and_does_nothing_more(
    tmp_path: Path, how: str
) -> None:
    _, moments, _ = await cancelled_run(tmp_path / "whole", how, 1 << 30)
    assert moments > 20
    ends = set[str]()
    for k in range(1, moments + 1):
        place = tmp_path / str(k)
        session, _, acts = await cancelled_run(place, how, k)
        payloads = checked(session, place)
        assert acts == 0, f"something began after the cancel at {k}"
        ends.add(type(payloads[-1]).__name__)
        assert isinstance(payloads[-1], ENDS)
        if isinstance(payloads[-1], RunCancelled):
            assert payloads[-1].reason == "user"
    assert ends == {"RunCancelled", "RunCompleted"}, "the last moment is too late for a cancel"


async def test_a_run_can_be_cancelled_before_its_first_step(tmp_path: Path) -> None:
    async with living(tmp_path, Scripted([Say("never")])) as session:
        # Both are in the mailbox before the run's task had a turn.
        once_told(session, RunStarted, lambda: asyncio.ensure_future(cancel()))

        async def cancel() -> None:
            run = session.actor.run_id
            assert run is not None
            assert await session.cancel(run)

        run = await session.start()
        session.actor.cancel_run("too late to be the reason")
        await session.over()
        assert not await session.cancel(run)
    assert story(checked(session, tmp_path))[-1].startswith("run cancelled: ")
    assert len(session.audience.told) <= 7


async def test_the_first_reason_of_a_cancel_is_the_one_recorded(tmp_path: Path) -> None:
    async with living(tmp_path, Scripted([[Say("x"), Stall()]])) as session:
        run = await session.start()
        assert await session.cancel(run, "first\nline")
        assert await session.cancel(run, "second")
        await session.over()
    assert (
        story(checked(session, tmp_path))[-1] == "run cancelled: first\N{REPLACEMENT CHARACTER}line"
    )


@pytest.mark.parametrize("make", [look, poke])
@pytest.mark.parametrize(("how", "end"), [("keep", "completed"), ("late", "failed: execution")])
async def test_a_tool_that_swallows_its_cancellation_gets_its_result_in_and_nothing_follows(
    tmp_path: Path, make: Callable[..., Call], how: str, end: str
) -> None:
    stage = Stage()
    provider = Scripted([[make("a", how), poke("b")], Say("never")])
    async with living(tmp_path, provider, mine=kit(provider, stage)) as session:
        run = await session.start()
        await happened(lambda: "a begins" in stage.told)
        assert await session.cancel(run)
        await session.over()
    lines = story(checked(session, tmp_path))
    assert lines[-3:] == [f"a {end}", "b cancelled: run_ended", "run cancelled: user"]
    assert "b begins" not in stage.told


class Deaf:
    """A provider that never hears a cancellation."""

    def __init__(self) -> None:
        self.heard = 0
        self.released = asyncio.Event()

    async def stream(self, _request: Any) -> Any:
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.heard += 1
        yield 1 // 0


async def test_what_does_not_end_when_it_is_cancelled_is_left_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deaf = Deaf()
    mine = kit(deaf, cleanup_ms=5)
    async with living(tmp_path, deaf, mine=mine) as session:
        run = await session.start()
        await happened(lambda: "attempt 1" in story(session.audience.payloads))
        assert await session.cancel(run)
        await session.over()
        assert story(session.audience.payloads)[-2:] == ["attempt_abandoned", "run cancelled: user"]
        assert deaf.heard == 1
        # Another run goes on beside it; what the old one does in the end changes nothing.
        session.actor.kit = kit(Scripted([Say("hello")]))
        await session.start("again", "c2")
        await session.over()
        deaf.released.set()
        await happened(lambda: "ZeroDivisionError" in capsys.readouterr().err)
    assert story(checked(session, tmp_path))[-1] == "run completed: hello"


async def happened(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)


async def test_calls_of_a_cancelled_turn_are_paired_in_the_next_request(tmp_path: Path) -> None:
    """Cancelled after the first of three results: all three calls have one for the next prompt."""
    stage = Stage()
    calls = [look("a"), look("b", "wait"), poke("c")]
    provider = Scripted([calls, Say("hello")])
    async with living(tmp_path, provider, mine=kit(provider, stage)) as session:
        run = await session.start()
        await happened(lambda: "a completed" in story(session.audience.payloads))
        assert await session.cancel(run)
        await session.over()
        await session.start("and now?", "c2")
        await session.over()
    checked(session, tmp_path)
    said = {m.model_call_id: m for m in provider.seen[-1].messages if isinstance(m, ToolMessage)}
    assert list(said) == ["a", "b", "c"]
    assert said["a"].output == "a was here"
    assert said["b"].output.endswith("it had begun")
    assert said["c"].output.endswith("it had not begun")


async def test_of_many_starts_at_once_one_is_taken_and_the_log_stays_one(tmp_path: Path) -> None:
    async with living(tmp_path, Scripted([[Say("x"), Stall()]])) as session:
        starts = [asyncio.create_task(session.start("hi", f"c{n}")) for n in range(20)]
        await asyncio.wait(starts)
        taken = [one for one in starts if one.exception() is None]
        assert len(taken) == 1
        assert {type(one.exception()) for one in starts if one not in taken} == {RunActive}
        await session.cancel(taken[0].result())
        await session.over()
    checked(session, tmp_path)
    seqs = [event.seq for event, _ in session.audience.told]
    assert seqs == list(range(1, len(seqs) + 1))


async def test_a_session_that_is_torn_down_leaves_its_run_open_for_the_next_worker(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, Scripted([[look("a")], Stall()])) as session:
        run = await session.start()
        await happened(lambda: "a completed" in story(session.audience.payloads))
    assert not any(isinstance(one, ENDS) for one in session.audience.payloads)
    async with living(tmp_path, Scripted([Say("never"), Say("hello")])) as again:
        await again.over()
        assert again.actor.state.runs[run].outcome == "completed"
    first = again.audience.payloads[0]
    assert isinstance(first, WorkerRecovered)
    assert first.resumed_run_id == run
    assert on_disk(tmp_path)[: len(session.audience.lines)] == session.audience.lines


# --- one after the other -------------------------------------------------------------------------


async def test_a_run_can_start_the_moment_the_one_before_it_has_ended(tmp_path: Path) -> None:
    provider = Scripted([Say("one"), Say("two")])
    async with living(tmp_path, provider) as session:
        seconds: list[asyncio.Task[Any]] = []
        once_told(
            session,
            RunCompleted,
            lambda: seconds.append(asyncio.create_task(session.start("again", "c2"))),
        )
        await session.start()
        await session.over()
        await seconds[0]
        await session.over()
    ends = [one for one in checked(session, tmp_path) if isinstance(one, RunCompleted)]
    assert [one.final_text for one in ends] == ["one", "two"]


async def test_commands_are_done_in_the_order_they_were_asked(tmp_path: Path) -> None:
    done: list[int] = []

    async def command(n: int) -> int:
        await asyncio.sleep(0)
        done.append(n)
        return n

    async with living(tmp_path, Scripted([])) as session, asyncio.TaskGroup() as tasks:
        asked = [
            tasks.create_task(session.actor.ask(lambda n=n: command(n)))  # type: ignore[misc]
            for n in range(600)  # more than the mailbox holds
        ]
    assert done == list(range(600))
    assert [task.result() for task in asked] == done


async def test_a_bug_in_a_command_is_that_commands_answer(tmp_path: Path) -> None:
    async def bug() -> None:
        raise ZeroDivisionError

    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    async with living(tmp_path, Scripted([Say("hello")])) as session:
        with pytest.raises(ZeroDivisionError):
            await session.actor.ask(bug)
        with pytest.raises(SessionClosed):
            await session.actor.ask(cancels_itself)
        await session.start()
        assert story(await session.over())[-1] == "run completed: hello"


async def test_who_goes_before_its_turn_has_asked_for_nothing(tmp_path: Path) -> None:
    gate, done = asyncio.Event(), list[str]()

    async def slow() -> None:
        await gate.wait()
        done.append("slow")

    async def fast() -> None:
        done.append("fast")

    async with living(tmp_path, Scripted([])) as session:
        first = asyncio.create_task(session.actor.ask(slow))
        second = asyncio.create_task(session.actor.ask(fast))
        await asyncio.sleep(0.01)
        first.cancel()  # it has begun: it is done all the same
        second.cancel()
        await asyncio.wait({first, second})
        gate.set()
        await session.actor.ask(fast)
    assert done == ["slow", "fast"]


async def test_nobody_waits_for_a_session_that_has_ended(tmp_path: Path) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    async with living(tmp_path, Scripted([])) as session:
        waiting = [asyncio.create_task(session.actor.ask(forever)) for _ in range(600)]
        await asyncio.sleep(0.01)
    for task in waiting:
        with pytest.raises(SessionClosed):
            await task
    with pytest.raises(SessionClosed):
        await session.actor.ask(forever)


async def test_a_run_that_a_command_is_opening_while_the_session_ends_ends_with_it(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, Scripted([[Say("x"), Stall()]])) as session:
        starting = asyncio.create_task(session.start())
        await asyncio.sleep(0)  # asked for, and not yet in the log
        async with asyncio.timeout(DEADLINE_S):
            await session.actor.end("drained")

        assert starting.done()
        assert checked(session, tmp_path)[-1] == RunCancelled(reason="drained")


# --- steering ------------------------------------------------------------------------------------


@pytest.mark.parametrize("recalls", [False, True])
async def test_an_accepted_input_is_said_or_recalled_whenever_it_comes(
    tmp_path: Path, recalls: bool
) -> None:
    """Steer at each moment of a run; what was accepted reaches the model, unless taken back."""
    script = [*WHOLE, *[Say("more")] * 8]
    outcomes = set[str]()
    for k in range(1, 40):
        place = tmp_path / f"{k}"
        count = 0
        steering: list[asyncio.Task[str]] = []
        async with living(place, Scripted(script), log=CountingLog) as session:

            async def steer(mine: Session = session) -> str:
                run = mine.actor.run_id
                try:
                    assert run is not None
                    await mine.steer(run, "stop that")
                    taken_back = await mine.recall(run) if recalls else None
                except Exception as no:  # noqa: BLE001 - which one is what we ask
                    return type(no).__name__
                return "accepted" if taken_back is None else "recalled"

            def moment(k: int = k, mine: Callable[[], Any] = steer) -> None:
                nonlocal count
                count += 1
                if count == k:
                    steering.append(asyncio.create_task(mine()))  # noqa: B023

            await session.start()
            session.actor.log.at = moment  # type: ignore[attr-defined]
            await session.over()
            if not steering:
                break
            outcome = await steering[0]
            await session.over()
        payloads = checked(session, place)
        said = [p.input.text for p in payloads if isinstance(p, UserInputSubmitted)][1:]
        assert said == (["stop that"] if outcome == "accepted" else []), k
        assert isinstance(payloads[-1], RunCompleted)
        outcomes.add(outcome)
    assert "accepted" in outcomes
    assert not recalls or "recalled" in outcomes


# --- a disk that fails ---------------------------------------------------------------------------


async def test_a_full_disk_refuses_a_start_and_takes_it_when_there_is_room(tmp_path: Path) -> None:
    fs = FullFs()
    async with living(tmp_path, Scripted([Say("hello")]), fs=fs) as session:
        fs.full = True
        for _ in range(2):
            with pytest.raises(AppendFailed):
                await session.start()
        assert session.audience.told == []
        assert session.actor.run_id is None
        fs.full = False
        await session.start()
        await session.over()
    assert story(checked(session, tmp_path))[-1] == "run completed: hello"


class Refilled(FakeClock):
    """There is room on the disk once somebody has waited `naps_until` times."""

    def __init__(self, fs: FullFs, naps_until: int) -> None:
        super().__init__()
        self._fs = fs
        self._until = naps_until

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        self._fs.full = self._fs.full and len(self.naps) < self._until


async def test_a_run_that_finds_the_disk_full_fails_and_the_session_goes_on(
    tmp_path: Path,
) -> None:
    for nth in range(1, 9):
        fs, place = FullFs(), tmp_path / str(nth)
        provider = Scripted([*WHOLE])
        clock = Refilled(fs, 2)
        mine = kit(provider, clock=clock)
        async with living(place, provider, fs=fs, mine=mine) as session:

            def fill(fs: FullFs = fs) -> None:
                fs.full = True

            once_told(session, object, fill, nth + 3)
            await session.start()
            told = len(session.audience.told)
            await session.over()
            assert fs.refused > 0
            assert told <= len(session.audience.told)
            assert clock.naps == [0.05, 0.2]
            session.actor.kit = kit(Scripted([Say("hello")] * 9))
            await session.start("again", "c2")
            await session.over()
        payloads = checked(session, place)
        failed = next(one for one in payloads if isinstance(one, RunFailed))
        assert failed.error.startswith("append_failed: ")
        assert story(payloads)[-1] == "run completed: hello"


async def test_a_disk_that_stays_full_stops_the_worker_and_the_next_one_goes_on(
    tmp_path: Path,
) -> None:
    fs = FullFs()
    provider = Scripted([[look("a")], Say("hello")])
    mine = kit(provider, clock=FakeClock())
    with pytest.RaisesGroup(AppendFailed, flatten_subgroups=True):
        async with living(tmp_path, provider, fs=fs, mine=mine) as session:
            once_told(session, ToolCallExecuting, lambda: setattr(fs, "full", True))
            await session.start()
            await stopped(session)
    told = list(session.audience.lines)
    assert on_disk(tmp_path) == told
    async with living(tmp_path, provider) as again:
        assert await again.start("again", "c2")
        await again.over()
    assert on_disk(tmp_path)[: len(told)] == told
    assert "a interrupted: outcome_unknown" in story(
        [*session.audience.payloads, *again.audience.payloads]
    )


async def test_a_sync_that_fails_is_told_to_nobody_and_stops_the_worker_with_its_cause(
    tmp_path: Path,
) -> None:
    for nth in range(1, 9):
        fs, place = FullFs(), tmp_path / str(nth)
        with pytest.RaisesGroup(LogPoisoned, flatten_subgroups=True):
            async with living(place, Scripted([*WHOLE]), fs=fs) as session:
                once_told(session, object, lambda fs=fs: setattr(fs, "broken", True), nth + 3)  # type: ignore[misc]
                await session.start()
                await stopped(session)
        assert fs.refused == 1, "a failed sync was tried again"
        told = session.audience.lines
        lines = on_disk(place)
        assert lines[: len(told)] == told
        async with living(place, Scripted([*WHOLE, *WHOLE])) as again:
            await again.over()
        assert on_disk(place)[: len(lines)] == lines
        assert isinstance(again.audience.payloads[-1], ENDS)


async def stopped(session: Session) -> None:
    """Wait until the session takes nothing any more."""
    with contextlib.suppress(SessionClosed):
        while True:
            await session.actor.ask(lambda: asyncio.sleep(0.001))
