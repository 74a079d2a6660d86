"""The table is complete, its handlers are total, and an event costs the same in a long log."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc.events import EVENT_TYPES, Event, PluginDiagnostic, TextDelta
from ipc.fold import HANDLERS, OutOfOrder, SessionState, apply, fold, meaning
from ipc.fold.session import FOLLOWS_REVERT
from tests.fakes.logs import Log, call, text, tool_round
from tests.fakes.samples import all_samples

WORLD_FACTS = {
    "children",
    "client_rename_ids",
    "client_run_ids",
    "delegation_of",
    "delegations",
    "gap_seq",
    "isolated",
    "last_repair",
    "last_timestamp",
    "response_ids",
    "reverted_seq",
    "seq",
    "session_id",
    "turns_ever",
    "voided_grants",
}


def test_every_event_has_a_meaning_and_nothing_else_has() -> None:
    assert set(HANDLERS) == set(EVENT_TYPES)


def test_a_second_meaning_is_refused() -> None:
    with pytest.raises(TypeError, match="TextDelta has a meaning already"):
        meaning(TextDelta)(lambda _state, _event, _at: None)


def test_every_field_of_the_state_either_follows_a_revert_or_is_a_fact_about_the_world() -> None:
    names = set(SessionState.__struct_fields__)

    assert names == WORLD_FACTS | set(FOLLOWS_REVERT)
    assert not WORLD_FACTS & set(FOLLOWS_REVERT)


@given(st.lists(st.sampled_from(all_samples()), max_size=40))
def test_no_order_of_events_makes_a_handler_raise(payloads: list[Event]) -> None:
    log = tool_round()
    log.run_started("run of samples")
    for payload in payloads:
        log.add(payload)

    assert fold(log.events).seq == log.seq


def test_an_event_that_is_not_above_the_last_one_is_refused() -> None:
    log = Log()
    log.created()
    state = fold(log.events)

    with pytest.raises(OutOfOrder) as refused:
        apply(state, log.events[0])

    assert refused.value.facts == {"seq": 1, "after": 1}


def test_a_gap_is_legal_and_remembered() -> None:
    log = tool_round()
    assert fold(log.events).gap_seq == 0

    log.skip()
    after = log.user("still there")

    assert fold(log.events).gap_seq == after


def test_a_view_follows_its_state_and_cannot_change_it() -> None:
    log = tool_round()
    state = SessionState()
    view = state.view()
    for event in log.events:
        apply(state, event)

    assert view.seq == log.seq
    assert view.status == "completed"
    with pytest.raises(AttributeError):
        view.seq = 0  # type: ignore[misc]


def long_stream(rounds: int) -> Log:
    """One run with many turns, calls, inputs and deltas."""
    log = Log()
    log.created()
    log.user("go")
    log.run_started("run")
    for number in range(rounds):
        log.attempt(f"a{number}")
        for _ in range(10):
            log.delta(f"a{number}", "word ")
        log.turn(text("x"), call(f"c{number}"), attempt=f"a{number}")
        log.started(f"c{number}")
        log.asked(f"q{number}", f"c{number}")
        log.answered(f"q{number}")
        log.executing(f"c{number}")
        log.ended(f"c{number}")
        log.admitted("more")
        log.user("more")
        log.add(PluginDiagnostic(plugin="p", kind="event_drop", message="m", count=1))
    return log


def lines_run(work: Callable[[], Any]) -> int:
    """How many lines of Python it takes: a measure of work that no clock can blur."""
    count = 0

    def trace(_frame: FrameType, what: str, _argument: object) -> Any:
        nonlocal count
        count += what == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_the_work_of_an_event_does_not_grow_with_the_session() -> None:
    short, long = long_stream(20), long_stream(200)

    def a_line(log: Log) -> float:
        return lines_run(lambda: fold(log.events)) / len(log.events)

    assert a_line(long) == pytest.approx(a_line(short), rel=0.02)


def test_streamed_text_is_collected_and_not_rebuilt() -> None:
    log = Log()
    log.created()
    log.run_started("run")
    log.attempt("a")
    for _ in range(1000):
        log.delta("a", "word ")
    run = fold(log.events).run

    assert run is not None
    assert run.attempt is not None
    assert run.attempt.text == ["word "] * 1000


def test_deltas_stay_out_of_the_journal() -> None:
    log = tool_round()

    kept = [event.seq for event in fold(log.events).journal]

    assert kept == [e.seq for e in log.events if not isinstance(e.payload, TextDelta)]
