"""What only its own provider understands of a turn: when it goes back, and when it does not."""

from typing import Any

import pytest
from msgspec import structs

from ipc.content import FinishReason, TextBlock, ThinkingBlock, TurnBlock
from ipc.events import (
    BlockPlace,
    HistoryRepaired,
    ModelTurn,
    ModelTurnCommitted,
    ReplayDecision,
    ReplayDisposition,
    ResolvedModel,
)
from ipc.fold import fold
from tests.fakes.logs import ANY, BINDING, NOTHING_SPENT, OTHER_MODEL, Log, call, text
from workers.providers.base import AssistantMessage
from workers.run.history import Projection, project
from workers.run.replay import NATIVE_BYTES_MAX, NativeReplay, same_source

MODEL = BINDING.resolved()
NATIVE: dict[str, Any] = {"family": "scripted", "items": [{"sealed": "x"}]}
THOUGHT = ThinkingBlock(text="hm", signature="s")


def add(
    log: Log,
    *content: TurnBlock,
    native: dict[str, Any] | None = None,
    finish: FinishReason = "stop",
    paused: bool = False,
    model: ResolvedModel = MODEL,
) -> int:
    log.turns += 1
    return log.add(
        ModelTurnCommitted(
            attempt_id=ANY,
            model_turn_seq=log.turns,
            input_through_seq=log.seq,
            resolved_model=model,
            turn=ModelTurn(
                content=content,
                finish_reason="other" if paused else finish,
                usage=NOTHING_SPENT,
                native_replay=native,
                provider_metadata={"stop_reason": "pause_turn"} if paused else {},
            ),
        )
    )


def a_log(*content: TurnBlock, **more: Any) -> Log:
    log = Log()
    log.created()
    log.user("go")
    add(log, *content, **more)
    log.user("go on")
    return log


def projected(
    log: Log, reader: ResolvedModel = MODEL, replay: NativeReplay = "optional"
) -> Projection:
    return project(fold(log.events), reader, replay)


def natives(projection: Projection) -> list[Any]:
    return [one.native for one in projection.messages if isinstance(one, AssistantMessage)]


CUT = a_log(text("a"), THOUGHT, finish="length", native=NATIVE)
BIG = {"family": "scripted", "items": ["x" * NATIVE_BYTES_MAX]}
DECIDED: list[tuple[str, Log, ResolvedModel, NativeReplay, ReplayDisposition]] = [
    ("goes back", a_log(text("a"), native=NATIVE), MODEL, "optional", "replayed"),
    ("wanted", a_log(text("a"), native=NATIVE), MODEL, "required", "replayed"),
    ("another model", a_log(native=NATIVE), OTHER_MODEL, "optional", "discarded_wire_model"),
    ("not taken", a_log(native=NATIVE), MODEL, "unsupported", "discarded_unsupported"),
    ("mended", a_log(call("c1", "a b"), native=NATIVE), MODEL, "optional", "discarded_invalid"),
    ("cut off", CUT, MODEL, "optional", "discarded_invalid"),
    ("thought alone", a_log(THOUGHT, native=NATIVE), MODEL, "optional", "discarded_invalid"),
    ("a thought last", a_log(text("a"), THOUGHT, native=NATIVE), MODEL, "optional", "replayed"),
    ("a blank", a_log(text("\n"), text("a"), native=NATIVE), MODEL, "optional", "replayed"),
    ("no arguments", a_log(call("c1", arguments=""), native=NATIVE), MODEL, "optional", "replayed"),
    ("no name", a_log(call("c1", "", ""), native=NATIVE), MODEL, "optional", "discarded_invalid"),
    ("a bell", a_log(text("\x07"), native=NATIVE), MODEL, "optional", "discarded_invalid"),
    ("no family", a_log(text("a"), native={"items": []}), MODEL, "optional", "discarded_invalid"),
    ("too large", a_log(text("a"), native=BIG), MODEL, "optional", "discarded_invalid"),
    ("a NUL", a_log(text("a"), native={"family": "\0"}), MODEL, "optional", "discarded_invalid"),
]


@pytest.mark.parametrize(
    ("log", "reader", "replay", "decided"), [d[1:] for d in DECIDED], ids=[d[0] for d in DECIDED]
)
def test_when_a_native_form_goes_back(
    log: Log, reader: ResolvedModel, replay: NativeReplay, decided: ReplayDisposition
) -> None:
    projection = projected(log, reader, replay)

    kept = [native for native in natives(projection) if native is not None]
    assert kept == ([NATIVE] if decided == "replayed" else [])
    if natives(projection):
        assert projection.decisions == (ReplayDecision(history_index=1, disposition=decided),)


def test_each_turn_of_the_history_is_decided_about_if_one_has_a_native_form() -> None:
    log = a_log(text("plain"))
    assert projected(log).decisions == ()

    add(log, text("a"), native=NATIVE)
    add(log, text("half"), native=NATIVE, finish="error")  # no history
    add(log, text("b"), native=NATIVE, model=OTHER_MODEL)

    assert projected(log).decisions == (
        ReplayDecision(history_index=1, disposition="no_artifact"),
        ReplayDecision(history_index=3, disposition="replayed"),
        ReplayDecision(history_index=4, disposition="discarded_wire_model"),
    )


def test_blank_texts_inside_a_native_form_stay_behind() -> None:
    blank = {"type": "text", "text": " "}
    log = a_log(text("a"), native={"family": "anthropic", "items": [blank, {"type": "x"}]})

    assert natives(projected(log)) == [{"family": "anthropic", "items": [{"type": "x"}]}]


def test_one_name_with_two_kinds_of_provider_is_not_one_model() -> None:
    other = structs.replace(MODEL, adaptor="anthropic")

    assert same_source(MODEL, MODEL)
    assert same_source(structs.replace(other, adaptor="anthropic-compatible"), other)
    assert not same_source(MODEL, other)
    assert not same_source(structs.replace(MODEL, wire_model="two"), MODEL)


# --- a model that can't go on without


@pytest.mark.parametrize(
    ("content", "native", "missing"),
    [
        ((text("a"),), None, ()),
        ((text("a"), call("c1")), None, (1,)),
        ((ThinkingBlock(text="hm"), text("a")), None, (1,)),
        ((text("a"), call("c1")), NATIVE, ()),
        ((text("a"), call("c1", "a b")), NATIVE, (1,)),
        ((text("a"), call("c1", arguments="")), NATIVE, ()),
    ],
)
def test_a_turn_that_a_model_must_have_back_is_missed(
    content: tuple[TurnBlock, ...], native: Any, missing: tuple[int, ...]
) -> None:
    log = a_log(*content, native=native)

    assert projected(log, replay="required").unreplayed == missing
    assert projected(log).unreplayed == ()
    assert projected(log, OTHER_MODEL, "required").unreplayed == ()


def test_a_required_form_that_was_refused_is_missed_too() -> None:
    log = a_log(THOUGHT, text("a"), native=NATIVE)
    place = BlockPlace(seq=3, index=-1)
    log.add(HistoryRepaired(attempt_id=ANY, kinds=(), counts=(), isolated=(place,)))

    assert projected(log, replay="required").unreplayed == (1,)


# --- paused turns


def test_a_paused_turn_goes_back_as_the_last_message_to_its_own_model() -> None:
    log = a_log(text("before"))
    add(log, text("let me search"), native=NATIVE, paused=True)

    assert projected(log).paused
    assert natives(projected(log)) == [None, NATIVE]
    assert not projected(log, OTHER_MODEL).paused
    assert not projected(log, replay="unsupported").paused

    log.user("stop that")
    assert not projected(log).paused


def test_a_paused_turn_may_be_nothing_but_its_native_form() -> None:
    log = a_log(text("before"))
    add(log, THOUGHT, native=NATIVE, paused=True)

    there = projected(log)

    assert there.messages[-1] == AssistantMessage(content=(), native=NATIVE)
    assert there.paused
    assert projected(log, OTHER_MODEL).messages == projected(a_log(text("before"))).messages


def test_content_without_its_native_form_names_no_item_of_it() -> None:
    named = structs.replace(call("c1"), provider_item_id="fc_1")
    plain = a_log(named)
    refused = a_log(TextBlock(text="\x07"), named, native=NATIVE)

    assert projected(plain).messages[1] == AssistantMessage(content=(named,))
    assert projected(refused).messages[1] == AssistantMessage(content=(text("\ufffd"), call("c1")))
