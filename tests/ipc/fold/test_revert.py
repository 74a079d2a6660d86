"""A revert leaves the visible prefix and what comes later, for every noun."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc.content import Usage, user_text
from ipc.events import (
    PermissionOverlay,
    SessionPermissionOverlaySet,
    SessionReverted,
    SessionTitleCommitted,
    StoredEvent,
    UserInputRecalledV2,
    UserInputTransformed,
    UserSetTitle,
    WorkerRecovered,
)
from ipc.fold import SessionState, TurnEntry, UserEntry, fold
from ipc.fold.session import FOLLOWS_REVERT
from ipc.rules import Rule
from tests.fakes.logs import Log, call, text, tool_round

Line = Callable[[Log], object]

names = st.sampled_from(["1", "2", "3"])
LINES: st.SearchStrategy[Line] = st.one_of(
    names.map(lambda n: lambda log: log.user(n)),
    names.map(lambda n: lambda log: log.admitted(n)),
    names.map(lambda n: lambda log: log.run_started(n)),
    st.just(lambda log: log.run_ended()),
    names.map(lambda n: lambda log: log.attempt(n)),
    names.map(lambda n: lambda log: log.delta(n, "word")),
    names.map(lambda n: lambda log: log.abandoned(n)),
    names.map(lambda n: lambda log: log.turn(text(n), call(n), attempt=n)),
    names.map(lambda n: lambda log: n in log.owners and log.started(n)),
    names.map(lambda n: lambda log: n in log.owners and log.executing(n)),
    names.map(lambda n: lambda log: n in log.owners and log.ended(n)),
    names.map(lambda n: lambda log: log.asked(n, n)),
    names.map(lambda n: lambda log: log.answered(n)),
    names.map(lambda n: lambda log: log.usage(Usage(input_tokens=1), cost=2, model=f"fake/{n}")),
    names.map(lambda n: lambda log: log.add(title(n))),
    names.map(lambda n: lambda log: log.add(overlay(n))),
    names.map(
        lambda n: (
            lambda log: log.add(
                UserInputTransformed(original_input=user_text("0"), input=user_text(n))
            )
        )
    ),
    st.integers(1, 20).map(
        lambda seq: (
            lambda log: log.add(UserInputRecalledV2(input=user_text("1"), user_input_seq=seq))
        )
    ),
    st.just(lambda log: log.add(WorkerRecovered(cause="SIGKILL"))),
    st.just(lambda log: log.skip()),
)


def title(words: str) -> SessionTitleCommitted:
    change = UserSetTitle(client_rename_id="rename", title=words)  # type: ignore[arg-type]
    return SessionTitleCommitted(input_through_seq=0, change=change)


def overlay(resource: str) -> SessionPermissionOverlaySet:
    rules = (Rule(action="bash", resource=resource, effect="ask"),)
    return SessionPermissionOverlaySet(overlay=PermissionOverlay(rules=rules))


def visible(state: SessionState) -> dict[str, Any]:
    """What a revert must restore; the journal holds seqs that a prefix alone does not have."""
    return {name: getattr(state, name) for name in FOLLOWS_REVERT if name != "journal"}


def revert(log: Log, through: int) -> None:
    log.run = None
    log.add(SessionReverted(through_seq=through))


@given(
    st.lists(LINES, max_size=30),
    st.integers(1, 40),
    st.lists(LINES, max_size=10),
    st.integers(1, 60),
    st.lists(LINES, max_size=10),
)
def test_what_is_left_is_what_the_visible_events_alone_come_to(
    before: list[Line], first: int, between: list[Line], second: int, after: list[Line]
) -> None:
    log = Log()
    log.created()
    seen: list[StoredEvent] = []  # the visible events, kept by hand

    def write(lines: list[Line]) -> None:
        start = len(log.events)
        for line in lines:
            line(log)
        seen.extend(log.events[start:])

    def go_back(through: int) -> None:
        revert(log, through)
        seen[:] = [event for event in seen if event.seq <= through]
        seen.append(log.events[-1])  # as the last visible event it has nothing left to cut

    seen.extend(log.events)
    write(before)
    go_back(min(first, log.seq))
    write(between)
    go_back(min(second, log.seq))
    write(after)

    assert visible(fold(log.events)) == visible(fold(seen))


@pytest.mark.parametrize("through", range(1, tool_round().seq + 1))
def test_a_revert_to_any_event_leaves_nothing_open(through: int) -> None:
    log = tool_round()
    revert(log, through)
    state = fold(log.events)

    assert state.run is None
    assert not state.open_calls
    assert not state.open_approvals()
    assert not state.pending
    assert state.seq == log.seq
    assert all(entry.seq <= through for entry in state.entries[:-1])


def test_a_revert_into_a_run_leaves_the_run_interrupted() -> None:
    log = tool_round()
    revert(log, 12)

    (run,) = fold(log.events).runs.values()

    assert (run.outcome, run.reason) == ("interrupted", "reverted")


def test_a_result_after_the_point_of_return_is_gone_while_its_call_stays() -> None:
    log = tool_round()
    ended = next(e.seq for e in log.events if type(e.payload).__name__ == "ToolCallTerminated")
    revert(log, ended - 1)
    state = fold(log.events)

    assert [(key, one.executing, one.ended) for key, one in state.calls.items()] == [
        ("c1", True, None),
        ("c2", False, None),
        ("c3", False, None),
    ]
    (turn,) = state.turns.values()
    assert turn.calls == list(state.calls.values())


def test_what_was_used_up_stays_used_up() -> None:
    log = tool_round()
    log.add(title("mine"))
    before = fold(log.events)
    revert(log, 1)
    after = fold(log.events)

    assert (
        after.client_run_ids
        == before.client_run_ids
        == {
            "client of run 1": "run 1",
            "client of run 2": "run 2",
        }
    )
    assert set(after.client_rename_ids) == {"rename"}
    assert after.next_turn_seq == before.next_turn_seq == 4
    assert (after.title.text, after.usage.total.request_count, after.status) == (None, 0, "idle")


def test_a_session_goes_on_after_a_revert() -> None:
    log = tool_round()
    revert(log, 2)
    log.user("something else")
    log.run_started("run 3")
    log.attempt("a9")
    log.turn(text("fine"), attempt="a9")
    log.run_ended()
    state = fold(log.events)

    words = [
        entry.input.text if isinstance(entry, UserEntry) else entry.event.model_turn_seq
        for entry in state.entries
        if isinstance(entry, UserEntry | TurnEntry)
    ]
    assert words == ["do three things", "something else", 4]
    assert (state.status, list(state.runs)) == ("completed", ["run 3"])
