"""Whole runs against a desk in memory: what is appended, in which order, and what the world saw."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ipc.content import Usage
from ipc.events import (
    ModelTurnCommitted,
    ModelUsageRecorded,
    Payload,
    RunFailed,
    ToolCallExecuting,
    UserInputRecalledV2,
    UserInputSubmitted,
)
from tests.fakes.desk import (
    PRICED,
    MemoryDesk,
    Stage,
    admit,
    allowing,
    kit,
    story,
)
from tests.fakes.logs import text
from workers.providers.base import ToolMessage, UserMessage
from workers.providers.script import Call, Cut, Fail, Finish, Report, Say, Step, Think
from workers.providers.scripted import Scripted
from workers.run.drive import drive


def look(who: str, how: str = "", **more: Any) -> Call:
    return Call("look", args={"who": who, "how": how, **more}, id=who)


def poke(who: str, how: str = "", **more: Any) -> Call:
    return Call("poke", args={"who": who, "how": how, **more}, id=who)


class Run:
    """One run, played."""

    def __init__(self, *turns: Sequence[Step] | Step, stage: Stage | None = None) -> None:
        self.stage = stage or Stage()
        self.provider = Scripted(turns)
        self.desk = MemoryDesk()

    async def play(self, agent: Any = None, binding: Any = None, **options: Any) -> list[str]:
        opening = {"agent": agent, "binding": binding}
        self.desk.open(**{key: value for key, value in opening.items() if value is not None})
        await drive(self.desk, kit(self.provider, self.stage, **options))
        return story(self.desk.payloads)

    def heard(self) -> dict[str, str]:
        """What the model was told about its calls, by the last request."""
        last = self.provider.seen[-1].messages
        return {one.model_call_id: one.output for one in last if isinstance(one, ToolMessage)}


USER = "user: go on"
USAGE = "model_usage_recorded"
HELLO = ["attempt 1", "text: hello", "turn: stop 'hello'", USAGE, "run completed: hello"]


async def test_a_plain_answer() -> None:
    run = Run([Think("hm"), Say(("he", "llo")), Report(Usage(input_tokens=3, output_tokens=2))])
    assert await run.play(binding=PRICED) == [
        USER,
        "attempt 1",
        "reasoning_delta",
        "text: he",
        "text: llo",
        "turn: stop ThinkingBlock 'hello'",
        USAGE,
        "run completed: hello",
    ]
    turn = next(one for one in run.desk.payloads if isinstance(one, ModelTurnCommitted))
    spent = next(one for one in run.desk.payloads if isinstance(one, ModelUsageRecorded))
    assert (turn.model_turn_seq, turn.input_through_seq) == (1, 3)
    assert spent.estimated_cost_pico_usd == 3 * 2 + 2 * 10
    assert run.provider.seen[0].max_output_tokens == PRICED.max_output


async def test_a_tool_round() -> None:
    run = Run([Say("I look. "), look("a")], Say("hello"))
    assert await run.play() == [
        USER,
        "attempt 1",
        "text: I look. ",
        "turn: tool_calls 'I look. ' a",
        USAGE,
        "a started",
        "a executing",
        "a completed",
        *HELLO,
    ]
    assert run.heard() == {"a": "a was here"}


async def test_parallel_calls_overlap_and_exclusive_ones_come_after_them_one_by_one() -> None:
    """Each parallel call waits for the other: they would never end one after the other."""
    calls = [
        poke("p1"),
        look("l1", "meet", whom="l2"),
        poke("p2"),
        look("l2", "meet", whom="l1"),
    ]
    run = Run(calls, Say("hello"))
    lines = await run.play()
    told = run.stage.told
    assert told[:2] == ["l1 begins", "l2 begins"]
    assert set(told[2:4]) == {"l1 ends", "l2 ends"}
    assert told[4:] == ["p1 begins", "p1 ends", "p2 begins", "p2 ends"]
    assert lines[4:10] == [
        *("p1 started", "l1 started", "p2 started", "l2 started"),
        *("l1 executing", "l2 executing"),
    ]
    assert set(lines[10:12]) == {"l1 completed", "l2 completed"}
    assert lines[12:] == [
        *("p1 executing", "p1 completed", "p2 executing", "p2 completed"),
        *HELLO,
    ]


async def test_all_calls_are_decided_before_any_of_them_runs() -> None:
    run = Run([look("a"), poke("b"), poke("c")], Say("hello"))
    lines = await run.play(allowing("read", "bash", effect="ask"), mode="yolo")
    approvals = ["approval_requested", "approval approved: yolo_approved"] * 3
    assert lines[7:13] == approvals
    assert lines[13:19:2] == ["a executing", "b executing", "c executing"]


async def test_calls_that_cannot_be_run_end_at_once_and_the_model_is_told_why() -> None:
    calls = [
        Call("look", raw='{"who": ', id="broken"),
        Call("look", args={"whose": 1}, id="strange"),
        Call("fly", id="unknown"),
        *(look(f"n{n}") for n in range(3)),
    ]
    run = Run(calls, Say("hello"))
    lines = await run.play(prepared_tools_max=5)
    assert lines[3:] == [
        USAGE,
        "broken started",
        "broken failed: invalid_arguments",
        "strange started",
        "strange failed: invalid_arguments",
        "unknown started",
        "unknown failed: unknown_tool",
        "n0 started",
        "n1 started",
        "n2 started",
        "n2 failed: too_many_calls",
        *("n0 executing", "n1 executing", "n0 completed", "n1 completed"),
        # The broken call goes back as an object:
        *(HELLO[0], "history_repaired", *HELLO[1:]),
    ]
    heard = run.heard()
    assert "look, poke" in heard["unknown"]
    assert "a turn may hold 5 calls" in heard["n2"]
    assert "whose" in heard["strange"]


async def test_a_denied_call_fails_and_the_run_goes_on() -> None:
    run = Run([look("a"), poke("b")], Say("hello"))
    lines = await run.play(allowing("read"))
    assert lines[6:] == ["b failed: tool_denied", "a executing", "a completed", *HELLO]
    assert '"reason":"policy_denied"' in run.heard()["b"]


async def test_a_question_that_nobody_can_answer_ends_the_run() -> None:
    run = Run([look("a"), poke("b"), poke("c")])
    lines = await run.play(allowing("read", "bash", effect="ask"))
    assert lines[7:] == [
        "approval_requested",
        "approval rejected: unattended",
        "a failed: tool_denied",
        "b cancelled: run_ended",
        "c cancelled: run_ended",
        "run cancelled: permission",
    ]
    assert run.stage.told == []
    assert run.desk.state.run is None
    assert not run.desk.state.open_calls


async def test_a_turn_that_was_cut_off_runs_none_of_its_calls_and_goes_on() -> None:
    run = Run([look("a"), poke("b"), Finish("length")], Say("hello"))
    assert await run.play() == [USER, "attempt 1", "turn: length a b", USAGE, *HELLO]
    assert run.stage.told == []
    assert all(output.startswith("not_run: ") for output in run.heard().values())


async def test_an_answer_that_was_cut_off_completes_the_run() -> None:
    run = Run([Say("hel"), Finish("length")])
    assert (await run.play())[-1] == "run completed: hel"


async def test_a_refusal_fails_the_run() -> None:
    run = Run([Say("no"), look("a"), Finish("refused")])
    assert (await run.play())[-1] == ("run failed: the model refused to answer; say it differently")


@pytest.mark.parametrize(
    ("end", "kind", "message"),
    [
        (Fail("quota", "nothing left"), "quota", "fake/one: nothing left"),
        (Cut(), "unexpected_eof", "fake/one: the stream ended without its terminal marker"),
        (Fail("provider", "x" * 5000), "provider", "fake/one: " + "x" * 4085 + "…"),
    ],
)
async def test_a_failure_of_the_model_abandons_the_attempt_and_fails_the_run(
    end: Step, kind: str, message: str
) -> None:
    run = Run([Say("I beg"), end])
    assert await run.play() == [
        *(USER, "attempt 1", "text: I beg", "attempt_abandoned"),
        f"run failed: {message}",
    ]
    failed = run.desk.payloads[-1]
    assert isinstance(failed, RunFailed)
    assert failed.model_error is not None
    assert failed.model_error.kind == kind
    assert failed.resolved_model is not None


class Mute:
    """An adapter that breaks its contract: its stream ends, and that is all."""

    async def stream(self, _request: Any) -> Any:
        return
        yield


class Raising:
    async def stream(self, _request: Any) -> Any:
        yield 1 // 0


async def test_a_stream_without_its_last_part_is_a_failure() -> None:
    desk = MemoryDesk().open()
    await drive(desk, kit(Mute()))
    failed = desk.payloads[-1]
    assert isinstance(failed, RunFailed)
    assert failed.model_error is not None
    assert failed.model_error.kind == "unexpected_eof"


async def test_an_adapter_that_raises_is_a_bug_which_the_owner_of_the_run_sees() -> None:
    desk = MemoryDesk().open()
    with pytest.raises(ZeroDivisionError):
        await drive(desk, kit(Raising()))
    assert desk.state.run is not None


@pytest.mark.parametrize("call", [look, poke])
async def test_failures_and_bugs_of_tools_end_their_call_and_nothing_else(
    call: Callable[..., Call], capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run([call("a", "fail"), call("b", "bug"), call("c", "tell")], Say("hello"))
    lines = await run.play()
    assert {line for line in lines if line[:2] in {"a ", "b ", "c "}} == {
        *("a started", "b started", "c started", "a executing", "b executing", "c executing"),
        *("a failed: execution", "b failed: internal", "c completed"),
    }
    assert lines[-5:] == HELLO
    heard = run.heard()
    assert heard["a"] == "execution: exit 1"
    assert heard["b"] == (
        "internal: the tool itself failed: ZeroDivisionError: a bug\N{REPLACEMENT CHARACTER}of mine"
    )
    assert "ZeroDivisionError" in capsys.readouterr().err


async def test_a_run_is_stopped_at_its_limit_of_turns() -> None:
    run = Run([look("a")], [look("b")], [look("c")])
    lines = await run.play(max_turns=2)
    assert lines[-2:] == ["b completed", "run cancelled: max_turns"]
    assert len(run.provider.seen) == 2


async def test_a_run_may_end_with_its_last_allowed_turn() -> None:
    run = Run([look("a")], Say("hello"))
    assert (await run.play(max_turns=2))[-1] == "run completed: hello"


# --- steering


def when(desk: MemoryDesk, line: str, act: Callable[[], None]) -> None:
    """Do something right before the first append with this line in the story."""
    pending = [act]

    async def before(payloads: Sequence[Payload]) -> None:
        if pending and line in story([*desk.payloads, *payloads])[-len(payloads) :]:
            pending.pop()()

    desk.before = before


async def test_inputs_wait_for_the_end_of_the_batch_and_come_in_their_order() -> None:
    run = Run([look("a"), poke("b")], Say("hello"))

    def steer() -> None:
        admit(run.desk, "first")
        admit(run.desk, "second")

    when(run.desk, "a completed", steer)
    assert (await run.play())[6:] == [
        *("a executing", "admitted: first", "admitted: second"),
        *("a completed", "b executing", "b completed"),
        *("user: first", "user: second"),
        *HELLO,
    ]
    last = run.provider.seen[-1].messages[-2:]
    assert [m.content for m in last if isinstance(m, UserMessage)] == [
        (text("first"),),
        (text("second"),),
    ]


async def test_an_input_before_a_boundary_without_tools_keeps_the_run_going() -> None:
    run = Run(Say("hello"), Say("hello"))
    when(run.desk, "text: hello", lambda: admit(run.desk, "more"))
    assert await run.play() == [
        *(USER, "attempt 1", "admitted: more", *HELLO[1:4], "user: more"),
        *HELLO,
    ]


async def test_an_input_that_comes_while_the_run_is_about_to_complete_is_not_lost() -> None:
    """The step was "complete"; in the session's turn it is asked for again."""
    run = Run(Say("hello"), Say("hello"))
    plain, steered = run.desk.in_turn, [lambda: admit(run.desk, "wait")]

    async def in_turn(decide: Callable[[], Sequence[Payload]]) -> None:
        if steered:
            steered.pop()()
        await plain(decide)

    run.desk.in_turn = in_turn  # type: ignore[method-assign]
    assert (await run.play())[5:] == ["admitted: wait", "user: wait", *HELLO]


async def test_an_input_that_was_recalled_is_never_said() -> None:
    run = Run([look("a")], Say("hello"))

    def steer_and_recall() -> None:
        for words in ("keep", "recall"):
            admit(run.desk, words)
        seq, given = list(run.desk.state.pending.items())[-1]
        run.desk.put(UserInputRecalledV2(input=given, user_input_seq=seq))

    when(run.desk, "a executing", steer_and_recall)
    await run.play()
    inputs = [one.input.text for one in run.desk.payloads if isinstance(one, UserInputSubmitted)]
    assert inputs == ["go on", "keep"]


# --- cancellation


class Cancelling:
    """Cancels a run before its k-th append or delta."""

    def __init__(self, desk: MemoryDesk, at: int) -> None:
        self.task: asyncio.Task[None] | None = None
        self.at = at
        self.count = 0
        desk.before = self.before

    async def before(self, _payloads: Sequence[Payload]) -> None:
        self.count += 1
        if self.count == self.at:
            assert self.task is not None
            self.task.cancel()
            await asyncio.sleep(0)


SCRIPT: Sequence[Sequence[Step]] = (
    [Think("hm"), Say("two words", chars=4), look("a"), poke("b", "tell"), look("c")],
    [poke("d"), poke("e", "fail")],
    [Say("hello")],
)


async def cancelled_at(k: int) -> tuple[MemoryDesk, Stage, Cancelling]:
    run = Run(*SCRIPT)
    run.desk.open()
    cancelling = Cancelling(run.desk, k)
    cancelling.task = asyncio.create_task(drive(run.desk, kit(run.provider, run.stage)))
    await asyncio.wait({cancelling.task})
    return run.desk, run.stage, cancelling


async def test_a_run_that_is_cancelled_anywhere_ends_there_and_leaves_no_task() -> None:
    before = len(asyncio.all_tasks())
    *_, whole = await cancelled_at(1 << 30)
    assert whole.count > 20
    for k in range(1, whole.count + 1):
        desk, stage, cancelling = await cancelled_at(k)
        assert cancelling.task is not None
        assert cancelling.task.cancelled(), k
        assert len(asyncio.all_tasks()) == before, k
        assert desk.state.run is not None, "who called ends the run"
        # What acted had its event before, and acted once.
        executing = {
            desk.state.calls[one.tool_call_id].owner.model_call_id
            for one in desk.payloads
            if isinstance(one, ToolCallExecuting)
        }
        begun = [line.split()[0] for line in stage.told if line.endswith("begins")]
        assert len(begun) == len(set(begun))
        assert set(begun) <= executing
