"""What a model is sent of a session: paired calls, no blank text, the same bytes every time."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ipc.content import (
    FinishReason,
    MediaBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolError,
    ToolResult,
    TurnBlock,
    UserInput,
    user_text,
)
from ipc.events import (
    AttemptAbandoned,
    BlockPlace,
    CheckpointBoundaries,
    CheckpointBudgets,
    ContextCheckpointCommitted,
    ContextRehydrated,
    DelegatedContextSeeded,
    Event,
    HistoryRepaired,
    InternalSummary,
    MessageInjected,
    NativeWindow,
    RehydratedFile,
    ResolvedModel,
    RetainedOutput,
    RunCancelled,
    RunInterrupted,
    SeedTurn,
    SessionReverted,
    SkillLoaded,
    StoredEvent,
    ToolCallOwner,
    ToolCallTerminated,
    ToolOutputElided,
    UserInputSubmitted,
    WorkerRecovered,
)
from ipc.fold import TurnEntry, fold
from tests.fakes.logs import ANY, BINDING, OTHER_MODEL, Log, call, text, tool_round
from workers.actor.recovery import Facts, recover
from workers.providers.base import AssistantMessage, Message, ToolMessage, UserMessage, failure
from workers.run.blocks import broken
from workers.run.history import Projection, messages, project, will_run
from workers.run.loops import REMINDER
from workers.run.results import denied


def user(words: str) -> UserMessage:
    return UserMessage(content=(text(words),))


def said(*content: TextBlock | ThinkingBlock | ToolCallBlock) -> AssistantMessage:
    return AssistantMessage(content=content)


def result(call_id: str, output: str, name: str = "bash", *, error: bool = False) -> ToolMessage:
    return ToolMessage(model_call_id=call_id, name=name, output=output, is_error=error)


def open_log() -> Log:
    log = Log()
    log.created()
    log.user("go")
    log.run_started("run")
    return log


def sent(log: Log) -> tuple[Message, ...]:
    return messages(fold(log.events))


def test_a_session_as_its_model_is_told_it() -> None:
    assert sent(tool_round()) == (
        user("do three things"),
        said(text("let me see"), call("c1", "read"), call("c2"), call("c3", "write")),
        result("c1", "file text", "read"),
        result("c2", "execution: exit 1", error=True),
        result("c3", "done", "write"),
        said(text("all done")),
        user("thanks"),
        said(text("welcome")),
    )


def test_results_come_in_the_order_of_their_calls_and_not_of_their_ends() -> None:
    log = open_log()
    log.turn(call("c1"), call("c2"))
    log.started("c1")
    log.started("c2")
    log.ended("c2", "second")
    log.user("meanwhile")
    log.ended("c1", "first")

    assert sent(log)[2:] == (result("c1", "first"), result("c2", "second"), user("meanwhile"))


def test_a_text_that_was_abandoned_is_not_told() -> None:
    log = open_log()
    log.attempt("a1")
    log.delta("a1", "half a")
    log.abandoned("a1")

    assert sent(log) == (user("go"),)


# --- calls without a result


def test_an_interrupted_batch_is_paired_and_says_what_is_known() -> None:
    log = open_log()
    log.turn(call("c1"), call("c2"), call("c3"))
    for one in ("c1", "c2", "c3"):
        log.started(one)
    log.executing("c1")
    log.ended("c1")
    log.executing("c2")
    for payload in recover(fold(log.events), Facts(cause="killed")).events:
        log.add(payload)
    log.run = None
    log.user("and now?")

    *_, first, second, third, last = sent(log)
    assert (first, last) == (result("c1", "done"), user("and now?"))
    assert isinstance(second, ToolMessage)
    assert isinstance(third, ToolMessage)
    assert (second.is_error, third.is_error) == (True, True)
    assert second.output.startswith("outcome_unknown: The worker died while this call was execut")
    assert third.output == "interrupted: The worker died before this call ran. It had no effect."


@pytest.mark.parametrize("end", [RunCancelled(), RunInterrupted()])
def test_a_call_that_a_run_left_behind_is_answered_all_the_same(end: Event) -> None:
    log = open_log()
    log.turn(call("c1"), call("c2"))
    log.started("c1")
    log.run_ended(end)

    assert sent(log)[2:] == (
        result("c1", "interrupted: The run ended before this call had a result.", error=True),
        result(
            "c2", "interrupted: The run ended before this call ran. It had no effect.", error=True
        ),
    )


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_the_calls_of_a_turn_that_was_cut_off_are_not_run_and_the_model_is_told(
    finish: FinishReason,
) -> None:
    log = open_log()
    log.turn(text("I will"), call("c1", "write", '{"filePath": "a", "con'), finish=finish)

    (entry,) = (e for e in fold(log.events).entries if isinstance(e, TurnEntry))
    assert not will_run(entry)
    asked, answer = sent(log)[1:]
    assert asked == said(text("I will"), call("c1", "write", "{}"))
    assert isinstance(answer, ToolMessage)
    assert answer.is_error
    assert answer.output.startswith("not_run: The turn was cut off")


BROKEN = ["{", "[1]", '"text"', "null", '{"a": 1} trailing', '{"a": nope}', "\ud800"]


@pytest.mark.parametrize("arguments", BROKEN)
def test_broken_arguments_are_answered_and_sent_on_as_an_object(arguments: str) -> None:
    block = call("c1", arguments=arguments)
    log = open_log()
    log.turn(block)
    log.run_ended(RunInterrupted())

    asked, answer = sent(log)[1:]
    assert broken(block)
    assert asked == said(call("c1"))
    assert isinstance(answer, ToolMessage)
    assert answer.output.startswith("invalid_arguments: The arguments are no JSON object")


@pytest.mark.parametrize("arguments", ["", "{}", '{"a": [1, {"b": null}]}', ' {"a": 1} '])
def test_an_object_is_never_broken(arguments: str) -> None:
    assert broken(call("c1", arguments=arguments)) is None


def test_arguments_that_are_an_object_are_sent_exactly_as_the_model_wrote_them() -> None:
    log = open_log()
    log.turn(call("c1", arguments='{ "b":1,"a" : 2}'))

    assert sent(log)[1] == said(call("c1", arguments='{ "b":1,"a" : 2}'))


# --- results


@pytest.mark.parametrize(
    ("output", "error", "told"),
    [
        ("text", None, "text"),
        ("", None, "(no output)"),
        (" \n", None, "(no output)"),
        ("", ToolError(code="timeout", message="bash timed out"), "timeout: bash timed out"),
        (
            "partial",
            ToolError(code="timeout", message="bash timed out"),
            "partial\n\ntimeout: bash timed out",
        ),
        (
            "",
            ToolError(code="tool_denied", message=denied("user", "user_rejected", "no")),
            '{"kind":"tool_denied","source":"user","reason":"user_rejected","feedback":"no"}',
        ),
        (
            "",
            ToolError(code="tool_denied", message="policy_denied"),
            '{"kind":"tool_denied","source":"policy","reason":"policy_denied","feedback":null}',
        ),
    ],
)
def test_what_a_model_is_told_of_a_call(output: str, error: ToolError | None, told: str) -> None:
    log = open_log()
    log.turn(call("c1"))
    log.started("c1")
    log.add(
        ToolCallTerminated(
            tool_call_id="c1",  # type: ignore[arg-type]
            owner=log.owners["c1"],
            outcome="failed" if error else "completed",
            result=ToolResult(title="", output=output) if output or not error else None,
            error=error,
        )
    )

    assert sent(log)[2] == result("c1", told, error=error is not None)


def test_attachments_go_with_their_result_until_it_is_elided() -> None:
    picture = MediaBlock(mime="image/png", digest=ANY, byte_length=3)
    log = open_log()
    log.turn(call("c1", "read"))
    log.started("c1")
    log.ended("c1", "a picture", attachments=(picture,))
    answer = sent(log)[2]
    assert isinstance(answer, ToolMessage)
    assert answer.attachments == (picture,)

    retained = RetainedOutput(uri="artifact://d")
    log.add(ToolOutputElided(tool_call_id="c1", original_bytes=9000, retained=retained))  # type: ignore[arg-type]
    assert sent(log)[2] == result(
        "c1",
        '[An output of 9000 bytes stood here. Read it: read(filePath="artifact://d")]',
        "read",
    )


# --- turns


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ((text(""), call("c1")), (call("c1"),)),
        ((text(" \n"), text("hi")), (text("hi"),)),
        ((ThinkingBlock(text="hm"), text("hi")), (ThinkingBlock(text="hm"), text("hi"))),
        ((ThinkingBlock(text="hm"),), None),
        ((ThinkingBlock(text="", signature="s"), call("c1")),) * 2,
        ((ThinkingBlock(text=" ", redacted=True), call("c1")), (call("c1"),)),
        ((ThinkingBlock(text="", signature="s", redacted=True), call("c1")), (call("c1"),)),
        ((ThinkingBlock(text="", signature=" "), call("c1")), (call("c1"),)),
        ((text("hi"), ThinkingBlock(text="hm")), (text("hi"),)),
        ((text(""),), None),
        ((), None),
    ],
)
def test_a_turn_is_sent_without_what_providers_refuse(content, kept) -> None:  # type: ignore[no-untyped-def]
    log = open_log()
    log.turn(*content)

    turns = [message for message in sent(log) if isinstance(message, AssistantMessage)]
    assert turns == ([] if kept is None else [AssistantMessage(content=kept)])


def test_a_blank_input_is_not_sent_but_its_picture_is() -> None:
    picture = MediaBlock(mime="image/png", digest=ANY, byte_length=3)
    log = open_log()
    log.add(UserInputSubmitted(input=user_text("")))
    log.add(UserInputSubmitted(input=UserInput(content=(text(" "), picture))))

    assert sent(log) == (user("go"), UserMessage(content=(picture,)))


def test_a_refused_turn_leaves_with_the_words_it_refused() -> None:
    log = open_log()
    log.turn(text("fine"))
    log.user("something bad")
    log.turn(text("I will not"), finish="refused")
    log.user("something better")

    assert sent(log) == (user("go"), said(text("fine")), user("something better"))


@pytest.mark.parametrize("finish", ["error", "aborted", "timeout", "cancelled"])
def test_a_failed_turn_is_no_history_unless_it_did_something(finish: FinishReason) -> None:
    log = open_log()
    log.turn(text("half"), call("c1"), finish=finish)
    assert sent(log) == (user("go"),)

    log.started("c1")
    log.ended("c1")
    assert sent(log)[1:] == (said(text("half"), call("c1")), result("c1", "done"))


def test_a_call_id_that_comes_again_gets_a_name_of_its_own() -> None:
    log = open_log()
    log.turn(call("c1"))
    log.turn(call("c1"), call("c1"), call(""))

    ids = [m.model_call_id for m in sent(log) if isinstance(m, ToolMessage)]
    asked = [
        block.model_call_id
        for message in sent(log)
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, ToolCallBlock)
    ]
    assert ids == asked == ["c1", "c1-2-0", "c1-2-1", "call-2-2"]


def test_a_name_of_its_own_may_be_taken_too() -> None:
    log = open_log()
    log.turn(call("c1"))
    log.turn(call("c1-2-1"), call("c1"))

    ids = [m.model_call_id for m in sent(log) if isinstance(m, ToolMessage)]
    assert ids == ["c1", "c1-2-1", "c1-2-1_"]


@pytest.mark.parametrize(
    ("name", "safe"), [("", "unknown"), ("a b/c", "a_b_c"), ("x" * 80, "x" * 64), ("read", "read")]
)
def test_a_tool_name_is_one_that_every_provider_takes(name: str, safe: str) -> None:
    log = open_log()
    log.turn(call("c1", name))
    answer = sent(log)[2]

    assert isinstance(answer, ToolMessage)
    assert answer.name == safe


def test_thinking_of_another_wire_model_loses_its_signature() -> None:
    log = open_log()
    thought = ThinkingBlock(text="hm", signature="s")
    hidden = ThinkingBlock(text="zzz", redacted=True)
    log.turn(thought, hidden, text("hi"))
    state = fold(log.events)

    assert messages(state, BINDING.resolved())[1] == said(thought, hidden, text("hi"))
    assert messages(state, OTHER_MODEL)[1] == said(ThinkingBlock(text="hm"), text("hi"))


# --- what else enters the history


def test_seeds_skills_and_injections_stand_where_they_came() -> None:
    log = Log()
    log.created()
    seed = (SeedTurn(role="user", text="before"), SeedTurn(role="assistant", text="yes"))
    log.add(DelegatedContextSeeded(invocation_id=ANY, turns=seed))
    log.user("go")
    skill = SkillLoaded(name="s", args="", base_dir="", source_path="", rendered_body="Do so.")
    log.add(skill)
    log.add(MessageInjected(role="user", input=user_text("a notice")))
    log.add(MessageInjected(role="assistant", input=user_text("noted")))
    log.add(WorkerRecovered(cause="killed"))

    assert sent(log) == (
        user("before"),
        said(text("yes")),
        user("go"),
        user("Do so."),
        user("a notice"),
        said(text("noted")),
    )


def checkpoint(through: int, what: InternalSummary | NativeWindow) -> ContextCheckpointCommitted:
    return ContextCheckpointCommitted(
        checkpoint=what,
        boundaries=CheckpointBoundaries(
            source_from_seq=1, source_through_seq=through, input_through_seq=through
        ),
        budgets=CheckpointBudgets(
            context_limit_tokens=1,
            trigger_tokens=1,
            input_tokens_before=1,
            input_tokens_after=1,
            max_summary_bytes=1,
        ),
    )


FILES = """<system-reminder>
Files as they are now:
<file path="a.py">
x = 1
</file>
</system-reminder>"""


def test_a_checkpoint_stands_for_what_came_before_it_except_skills() -> None:
    log = tool_round()
    skill = SkillLoaded(name="s", args="", base_dir="", source_path="", rendered_body="Do so.")
    through = log.add(skill)
    log.user("kept")
    summary = InternalSummary(
        summary="They did it.", sha256=ANY, byte_length=1, invocation_id=ANY, internal_run_id=ANY
    )
    log.add(checkpoint(through, summary))
    file = RehydratedFile(path="a.py", content="x = 1", sha256=ANY, byte_length=5)
    log.add(ContextRehydrated(files=(file,)))
    log.user("go on")

    assert [message.text for message in sent(log) if isinstance(message, UserMessage)] == [
        "<system-reminder>\nThe conversation so far, in summary:\nThey did it.\n</system-reminder>",
        "Do so.",
        "kept",
        FILES,
        "go on",
    ]


def test_a_window_of_one_provider_does_not_hide_the_history_from_others() -> None:
    log = tool_round()
    before = sent(log)
    log.add(checkpoint(log.seq, NativeWindow(window={})))

    assert sent(log) == before


def test_what_was_reverted_is_not_told() -> None:
    log = tool_round()
    log.add(SessionReverted(through_seq=2))

    assert sent(log) == (user("do three things"),)


# --- places, and what was mended


def projected(log: Log, reader: ResolvedModel | None = None) -> Projection:
    return project(fold(log.events), reader)


def at(seq: int, index: int) -> BlockPlace:
    return BlockPlace(seq=seq, index=index)


def test_each_block_knows_where_it_stands_in_the_log() -> None:
    picture = MediaBlock(mime="image/png", digest=ANY, byte_length=3)
    log = Log()
    log.created()
    said_seq = log.add(UserInputSubmitted(input=UserInput(content=(text(" "), picture, text("?")))))
    log.run_started("run")
    turn_seq = log.turn(text("let me see"), call("c1"), call("c2"))
    log.started("c1")
    end_seq = log.ended("c1", "seen", attachments=(picture,))
    log.run_ended(RunInterrupted())
    skill = SkillLoaded(name="s", args="", base_dir="", source_path="", rendered_body="Do so.")
    skill_seq = log.add(skill)

    assert projected(log).places == (
        (at(said_seq, 1), at(said_seq, 2)),
        (at(turn_seq, 0), at(turn_seq, 1), at(turn_seq, 2)),
        (at(end_seq, -1), at(end_seq, 0)),
        (None,),
        (at(skill_seq, -1),),
    )


def test_ordinary_sessions_need_no_mending() -> None:
    assert projected(tool_round()).repairs == {}

    interrupted = open_log()
    interrupted.turn(text("\n"), call("c1", arguments=" "))
    interrupted.started("c1")
    interrupted.executing("c1")
    for payload in recover(fold(interrupted.events), Facts(cause="killed")).events:
        interrupted.add(payload)
    assert projected(interrupted).repairs == {}


MENDED: list[tuple[str, tuple[TurnBlock, ...], dict[str, int]]] = [
    ("empty_text", (text(""), call("c1")), {"empty_text": 1}),
    ("twice", (call("c1"), call("c1")), {"duplicate_call_id": 1}),
    ("no id", (call(""),), {"missing_call_id": 1}),
    ("odd id", (call("a b"),), {"bad_call_id": 1}),
    ("odd name", (call("c1", "a/b"),), {"bad_name": 1}),
    ("broken", (call("c1", arguments="{"),), {"broken_arguments": 1}),
    ("deep", (call("c1", arguments='{"a":' + "[" * 5000),), {"broken_arguments": 1}),
    ("NUL", (call("c1", arguments='{"\\u0000":1}'),), {"control_characters": 1}),
    ("bell", (text("a\x07"),), {"control_characters": 1}),
    ("thought", (text("a"), ThinkingBlock(text="hm")), {"trailing_thinking": 1}),
]


@pytest.mark.parametrize(
    ("content", "repairs"), [m[1:] for m in MENDED], ids=[m[0] for m in MENDED]
)
def test_what_had_to_be_mended_is_counted(
    content: tuple[TurnBlock, ...], repairs: dict[str, int]
) -> None:
    log = open_log()
    log.turn(*content)
    for index, block in enumerate(content):
        if isinstance(block, ToolCallBlock):
            ours = f"ours {index}"
            log.owners[ours] = ToolCallOwner(
                model_turn_seq=1, content_index=index, model_call_id=block.model_call_id
            )
            log.started(ours)
            log.ended(ours)

    assert projected(log).repairs == repairs


def test_a_result_that_the_log_owes_is_counted() -> None:
    log = open_log()
    log.turn(call("c1"), call("c2"))
    log.started("c1")

    assert projected(log).repairs == {"missing_result": 2}


def test_a_call_that_was_never_to_run_owes_no_result() -> None:
    log = open_log()
    log.turn(call("c1"), finish="length")
    log.turn(call("c2", arguments="{"))
    log.run_ended(RunInterrupted())

    assert projected(log).repairs == {"broken_arguments": 1}


def test_a_foreign_signature_is_counted_and_an_item_of_its_provider_forgotten() -> None:
    log = open_log()
    sealed = ThinkingBlock(text="zzz", redacted=True)
    named = structs.replace(call("c1"), provider_item_id="fc_1")
    log.turn(ThinkingBlock(text="hm", signature="s"), sealed, text("hi"), named)
    log.started("c1")
    log.ended("c1")

    there = projected(log, OTHER_MODEL)

    assert there.repairs == {"foreign_signature": 2}
    assert there.messages[1] == said(ThinkingBlock(text="hm"), text("hi"), call("c1"))
    assert projected(log, BINDING.resolved()).messages[1] == said(
        ThinkingBlock(text="hm", signature="s"), sealed, text("hi"), named
    )


def test_going_in_a_circle_is_said_in_the_last_result_that_went_well() -> None:
    log = open_log()
    for number in range(3):
        log.turn(call(f"c{number}"))
        log.started(f"c{number}")
        log.ended(f"c{number}", "the same")

    told = [message.output for message in sent(log) if isinstance(message, ToolMessage)]

    assert told == ["the same", "the same", f"the same\n\n{REMINDER}"]
    quiet = project(fold(log.events).view(), warn=False).messages
    assert [one.output for one in quiet if isinstance(one, ToolMessage)] == ["the same"] * 3
    log.user("again, please")
    log.turn(call("c9"))
    log.started("c9")
    log.ended("c9", "the same")
    assert sent(log)[-1] == result("c9", "the same")


# --- blocks that a provider refused


def isolated(log: Log, *places: BlockPlace, why: str = "too large") -> None:
    log.attempt("a")
    log.add(HistoryRepaired(attempt_id="a", kinds=(), counts=(), isolated=places))  # type: ignore[arg-type]
    error = failure("invalid_request", why, stage="response_headers").error
    log.add(AttemptAbandoned(attempt_id="a", error=error, retry_in_ms=0))  # type: ignore[arg-type]


def test_a_refused_block_is_told_in_words_with_those_of_the_refusal() -> None:
    picture = MediaBlock(mime="image/png", digest=ANY, byte_length=3)
    log = open_log()
    shown = log.add(UserInputSubmitted(input=UserInput(content=(text("see"), picture))))
    turn = log.turn(text("so"), call("c1"), call("c2"))
    for one in ("c1", "c2"):
        log.started(one)
    log.ended("c1", "lost with its call")
    end = log.ended("c2", "seen", attachments=(picture, picture))
    isolated(log, at(shown, 1), at(turn, 0), at(turn, 1), at(end, 1))

    there = projected(log)

    assert there.messages == (
        user("go"),
        UserMessage(
            content=(
                text("see"),
                text("[an image stood here; the provider refused it: too large]"),
            )
        ),
        said(
            text("[a text stood here; the provider refused it: too large]"),
            text("[a call of the tool bash stood here; the provider refused it: too large]"),
            call("c2"),
        ),
        ToolMessage(
            model_call_id="c2",
            name="bash",
            output="seen\n\n[an image stood here; the provider refused it: too large]",
            attachments=(picture,),
        ),
    )
    assert there.places[3] == (at(end, -1), at(end, 0))
    assert there.repairs == {"isolated": 4}


def test_a_whole_input_and_a_whole_output_may_be_refused() -> None:
    log = open_log()
    shown = log.add(UserInputSubmitted(input=UserInput(content=(text("one"), text("two")))))
    log.turn(call("c1"))
    log.started("c1")
    end = log.ended("c1", "seen")
    isolated(log, at(shown, -1), at(end, -1), why="")

    words = "[a text stood here; the provider refused it]"
    assert sent(log)[1:] == (
        UserMessage(content=(text(words), text(words))),
        said(call("c1")),
        result("c1", words),
    )


def test_thinking_that_was_refused_is_missed_by_nobody() -> None:
    log = open_log()
    thought = ThinkingBlock(text="hm", signature="s")
    first = log.turn(thought, text("one"), thought, text("two"))
    second = log.turn(thought, text("three"), thought, text("four"))
    isolated(log, at(first, 2), at(second, -1))

    assert sent(log)[1:] == (
        said(thought, text("one"), text("two")),
        said(text("three"), text("four")),
    )


# --- properties

Line = Callable[[Log], object]


def one_turn(finish: FinishReason, calls: int, blank: bool, end: bool) -> Line:
    def write(log: Log) -> None:
        ids = [f"c{log.seq}-{number}" for number in range(calls)]
        blocks = [call(one, arguments="{" if blank else '{"a":1}') for one in ids]
        log.attempt("a")
        log.delta("a", "x")
        log.turn(text("" if blank else "words"), *blocks, attempt="a", finish=finish)
        for one in ids:
            log.started(one)
        for one in reversed(ids):
            log.executing(one)
            log.ended(one, "" if blank else "output")
        if end:
            log.run_ended()
            log.user("next")
            log.run_started(f"run {log.seq}")

    return write


ROUNDS: st.SearchStrategy[Line] = st.one_of(
    st.builds(
        one_turn,
        st.sampled_from(["stop", "tool_calls", "length", "error", "other"]),
        st.integers(0, 3),
        st.booleans(),
        st.booleans(),
    ),
    st.just(lambda log: log.user("more")),
    st.just(lambda log: log.add(MessageInjected(role="user", input=user_text("note")))),
    st.just(lambda log: log.add(WorkerRecovered(cause="killed"))),
    st.just(lambda log: (log.attempt("b"), log.delta("b", "half"), log.abandoned("b"))),
)


@given(st.lists(ROUNDS, max_size=12))
def test_what_was_said_stays_as_it_was_while_a_session_grows(rounds: list[Line]) -> None:
    log = open_log()
    before: tuple[Message, ...] = ()
    for write in rounds:
        write(log)
        now = sent(log)

        assert now[: len(before)] == before
        assert msgspec.json.encode(now) == msgspec.json.encode(sent(log))
        before = now


@given(st.lists(ROUNDS, max_size=8), st.integers(1, 200))
def test_a_log_that_ends_anywhere_makes_a_history_that_can_be_sent(
    rounds: list[Line], length: int
) -> None:
    log = open_log()
    for write in rounds:
        write(log)

    assert_sendable(messages(fold(log.events[:length])))


@given(st.lists(ROUNDS, max_size=6), st.data())
def test_lost_lines_leave_a_history_that_can_be_sent(
    rounds: list[Line], data: st.DataObject
) -> None:
    log = open_log()
    for write in rounds:
        write(log)
    lost = data.draw(st.sets(st.sampled_from(range(1, len(log.events))), max_size=5))
    kept: list[StoredEvent] = [e for index, e in enumerate(log.events) if index not in lost]

    assert_sendable(messages(fold(kept)))


def assert_sendable(history: tuple[Message, ...]) -> None:
    """Every call is answered once, right after its turn and in order; nothing is blank."""
    owed: list[str] = []
    seen: set[str] = set()
    for message in history:
        match message:
            case ToolMessage():
                assert owed
                assert message.model_call_id == owed.pop(0)
                assert message.output.strip()
            case AssistantMessage(content=content) | UserMessage(content=content):
                assert not owed
                assert content
                for block in content:
                    assert not isinstance(block, TextBlock) or block.text.strip()
                    if isinstance(block, ToolCallBlock):
                        assert broken(block) is None
                        assert block.model_call_id not in seen
                        seen.add(block.model_call_id)
                        owed.append(block.model_call_id)
    assert not owed
