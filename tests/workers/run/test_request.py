"""A request out of the log: what the log is told about it, and when it can't be made."""

from typing import Any

import msgspec
import pytest
from msgspec import structs

from ipc.content import MediaBlock, TextBlock, ThinkingBlock, ToolCallBlock, TurnBlock, UserInput
from ipc.events import (
    FrozenModelBinding,
    HistoryRepaired,
    ModelReplayEvaluated,
    ModelTurn,
    ModelTurnCommitted,
    ReplayDecision,
    RunCancelled,
    RunFailed,
    ToolCallOwner,
    UserInputSubmitted,
)
from ipc.events.codec import encode, read_line
from ipc.fold import fold
from tests.fakes import strict
from tests.fakes.desk import MemoryDesk, kit, story
from tests.fakes.logs import ANY, BINDING, NOTHING_SPENT, SECOND, Log, call, text
from tests.fakes.poison import FAMILIES, MEDIA_BYTES, Family
from workers.actor.recovery import Facts, recover
from workers.providers.base import AssistantMessage, Request, ToolMessage
from workers.providers.script import Say
from workers.providers.scripted import Scripted
from workers.run.checker import check
from workers.run.drive import drive
from workers.run.history import Projection, project
from workers.run.request import Prepared, prepare

EACH_FAMILY = pytest.mark.parametrize("name", list(FAMILIES))
NATIVE: dict[str, Any] = {"family": "scripted", "items": []}


def open_desk(*content: TurnBlock, native: Any = None, binding: Any = BINDING) -> MemoryDesk:
    """A session in which the model has just said this."""
    desk = MemoryDesk().open(binding=binding)
    turn = ModelTurn(
        content=content, finish_reason="stop", usage=NOTHING_SPENT, native_replay=native
    )
    said = ModelTurnCommitted(
        attempt_id=ANY,
        model_turn_seq=1,
        input_through_seq=1,
        resolved_model=BINDING.resolved(),
        turn=turn,
    )
    desk.put(said, UserInputSubmitted(input=UserInput(content=(text("more"),))))
    return desk


def prepared(desk: MemoryDesk, binding: FrozenModelBinding = BINDING) -> Prepared:
    assert desk.state.run is not None
    return prepare(desk, kit(Scripted([])), desk.state.run, binding)


def test_a_plain_session_has_nothing_to_tell() -> None:
    ready = prepared(open_desk(text("so")))

    assert ready.events(ANY) == ()
    assert ready.failure is None
    assert (ready.request.turn, len(ready.request.messages)) == (1, 3)


def test_what_was_mended_is_told_once_until_it_changes() -> None:
    desk = open_desk(text(""), call("c1", "a b"))
    told = HistoryRepaired(
        attempt_id=ANY,
        kinds=("bad_name", "empty_text", "missing_result"),
        counts=(1, 1, 1),
    )

    assert prepared(desk).events(ANY) == (told,)
    desk.put(told)
    assert prepared(desk).events(ANY) == ()
    desk.put(UserInputSubmitted(input=UserInput(content=(text(""), text("x")))))
    assert prepared(desk).repair == (told.kinds, (1, 2, 1))


def test_a_native_form_that_is_left_out_is_told_of_once_for_each_model() -> None:
    desk = open_desk(text("so"), native=NATIVE)
    left = (ReplayDecision(history_index=1, disposition="discarded_wire_model"),)
    told = ModelReplayEvaluated(
        attempt_id=ANY, resolved_model=SECOND.resolved(), ordered_decisions=left
    )

    assert prepared(desk).events(ANY) == ()  # it is replayed: nothing to tell
    run = desk.state.run
    assert run is not None
    run.turns = 0  # as if this run had just begun
    there = prepared(desk, SECOND)
    assert there.events(ANY) == (told,)
    run.turns = 1
    assert prepared(desk, SECOND).events(ANY) == ()
    run.fallbacks = 1
    assert prepared(desk, SECOND).events(ANY) == (told,)
    assert there.projection.decisions[0].disposition == "discarded_wire_model"
    assert there.request.messages[1] == AssistantMessage(content=(text("so"),))


def test_characters_that_providers_refuse_are_not_in_the_prompt_either() -> None:
    desk = open_desk(text("so"))
    run = desk.state.run
    assert run is not None
    run.started = structs.replace(
        run.started, agent=structs.replace(run.agent, composed_prompt="a\0b")
    )

    assert prepared(desk).request.system == "a\ufffdb"


# --- case 30: a model that can't go on without its own record


REQUIRED = structs.replace(
    BINDING, capabilities=structs.replace(BINDING.capabilities, native_replay="required")
)


async def test_case_30_a_required_continuation_fails_closed_with_a_message() -> None:
    desk = open_desk(ThinkingBlock(text="hm"), text("so"), binding=REQUIRED)
    provider = Scripted([])

    await drive(desk, kit(provider))

    (end,) = [one for one in desk.payloads if isinstance(one, RunFailed)]
    assert end.model_error is not None
    assert (end.model_error.kind, end.model_error.stage) == ("replay", "replay_encode")
    assert "choose another model, or start a new session" in end.error
    assert "model_request_prepared" not in [type(one).__name__ for one in desk.payloads]
    assert story(desk.payloads)[-2:] == ["attempt_abandoned", f"run failed: {end.error}"]


async def test_case_30_another_model_goes_on_where_that_one_could_not() -> None:
    as_strict = structs.replace(SECOND, capabilities=REQUIRED.capabilities)
    desk = open_desk(ThinkingBlock(text="hm"), text("so"), binding=as_strict)

    await drive(desk, kit(Scripted([Say("so"), Say("yes")])))

    assert story(desk.payloads)[-1] == "run completed: yes"


# --- the cases, on each wire


def projected(log: Log, family: Family) -> Projection:
    again = [read_line(encode(event)) for event in log.events]  # as a resume reads it
    state = fold([one.event for one in again])  # type: ignore[union-attr]
    return check(project(state.view(), family.binding.resolved()), family.binding)


def accepted(log: Log, family: Family) -> bytes:
    projection = projected(log, family)
    request = Request(
        system="You are.",
        messages=projection.messages,
        session_id="01890000-0000-7000-8000-00000000000a",  # type: ignore[arg-type]
    )
    body = family.encode(request, MEDIA_BYTES)
    family.judge(body, projection.paused)
    return body


def three_calls() -> Log:
    log = Log()
    log.created()
    log.user("do three things")
    log.run_started("run")
    log.turn(call("c1"), call("c2"), call("c3"))
    for one in ("c1", "c2", "c3"):
        log.started(one)
    log.executing("c1")
    log.ended("c1", "first")
    log.executing("c2")
    return log


@EACH_FAMILY
@pytest.mark.parametrize("how", ["killed", "cancelled", "left"])
def test_case_24_an_interrupted_batch_is_paired_and_says_so(name: str, how: str) -> None:
    log = three_calls()
    if how == "killed":
        for payload in recover(fold(log.events), Facts(cause="killed")).events:
            log.add(payload)
        log.run = None
    elif how == "cancelled":
        log.run_ended(RunCancelled())
    log.user("and now?")

    results = [
        one for one in projected(log, FAMILIES[name]).messages if isinstance(one, ToolMessage)
    ]

    assert [one.model_call_id for one in results] == ["c1", "c2", "c3"]
    assert [one.is_error for one in results] == [False, True, True]
    assert results[2].output.startswith("interrupted: ")
    body = accepted(log, FAMILIES[name]).decode()
    assert body.index("first") < body.index("interrupted") < body.index("and now?")


@EACH_FAMILY
@pytest.mark.parametrize(
    "content",
    [
        (text(""), call("c1")),
        (ThinkingBlock(text="hm", signature="s"),),
        (ThinkingBlock(text=""),),
        (text(""),),
        (),
    ],
)
def test_case_26_no_empty_block_is_sent_also_of_an_old_log(
    name: str, content: tuple[TurnBlock, ...]
) -> None:
    family = FAMILIES[name]
    log = Log()
    log.created()
    log.user("go")
    log.run_started("run")
    log.turn(*content, model=family.binding.resolved())
    if any(isinstance(block, ToolCallBlock) for block in content):
        log.started("c1")
        log.ended("c1", "")
    log.run_ended()
    picture = MediaBlock(mime="image/png", digest=ANY, byte_length=16)
    log.add(UserInputSubmitted(input=UserInput(content=(text(""), picture))))

    accepted(log, family)  # a picture without a text, too, may carry the cache's mark
    assert not any(
        isinstance(block, TextBlock) and not block.text.strip()
        for message in projected(log, family).messages
        if not isinstance(message, ToolMessage)
        for block in message.content
    )


def signed_turn(log: Log, family: Family, number: int) -> None:
    """A turn with reasoning that only its own model can read, and a call."""
    content = (
        ThinkingBlock(text=f"thought {number}", signature=f"signature-{number}"),
        text(f"words {number}"),
        call(f"call_{number}"),
    )
    log.turns += 1
    log.add(
        ModelTurnCommitted(
            attempt_id=ANY,
            model_turn_seq=log.turns,
            input_through_seq=log.seq,
            resolved_model=family.binding.resolved(),
            turn=ModelTurn(
                content=content,
                finish_reason="tool_calls",
                usage=NOTHING_SPENT,
                native_replay=family.kept(content),
            ),
        )
    )
    log.owners[f"call_{number}"] = ToolCallOwner(
        model_turn_seq=log.turns, content_index=2, model_call_id=f"call_{number}"
    )
    log.started(f"call_{number}")
    log.ended(f"call_{number}", f"output {number}")


@pytest.mark.parametrize("other", list(FAMILIES))
@EACH_FAMILY
def test_case_30_a_switch_of_models_and_back_sends_no_foreign_signature(
    name: str, other: str
) -> None:
    mine, theirs = FAMILIES[name], FAMILIES[other]
    if name == other:  # another model of the same family
        binding = structs.replace(theirs.binding, wire_model=f"{theirs.binding.wire_model}-next")
        theirs = structs.replace(theirs, binding=binding)
    log = Log()
    log.created()
    log.user("go")
    log.run_started("run")
    signed_turn(log, mine, 1)
    signed_turn(log, theirs, 2)
    log.user("and back")

    for reader, own, foreign in ((mine, "1", "2"), (theirs, "2", "1")):
        body = accepted(log, reader).decode()
        messages = projected(log, reader).messages
        told = msgspec.json.encode(messages).decode()
        assert f"signature-{own}" in told
        assert f"signature-{foreign}" not in told + body
        assert all(f"{what} {n}" in body for what in ("words", "output") for n in (1, 2))
        natives = [one.native for one in messages if isinstance(one, AssistantMessage)]
        assert natives[int(foreign) - 1] is None
        if reader.native is not None:
            assert natives[int(own) - 1] is not None
        if reader.name == "anthropic":
            assert f"signature-{own}" in body


def test_the_judges_are_those_of_the_wires() -> None:
    with pytest.raises(strict.Refused):
        FAMILIES["chat"].judge(b"{}", False)
