"""What becomes of an open run at every boundary at which a worker can die."""

from collections import Counter

import pytest

from ipc.content import ToolError, Usage
from ipc.events import (
    ApprovalFinalized,
    ApprovalRequested,
    DelegationRequest,
    DelegationReservation,
    DelegationReserved,
    Event,
    InternalAgentStarted,
    InternalCall,
    Payload,
    ReasoningDelta,
    RunInterrupted,
    StoredEvent,
    ToolCallLinked,
    ToolCallStarted,
    ToolCallTerminated,
    WorkerRecovered,
    tag_of,
)
from ipc.fold import SessionState, apply, fold
from tests.fakes.logs import AGENT, ANY, BINDING, REVISIONS, Log, call, prefixes, text, tool_round
from workers.actor.recovery import NOT_RUN, UNKNOWN, Facts, Recovery, recover

KILLED = Facts(cause="killed by SIGKILL", exit_status=-9)

ANSWERING = "the model had begun to answer"

# The verdict after each event of `tool_round`, by its type: "rest" = nothing was open, "go on" =
# the same run is resumed, anything else = why it cannot be.
VERDICTS = [
    ("session_created", "rest"),
    ("user_input_submitted", "rest"),
    ("run_started", "go on"),
    ("model_attempt_started", "go on"),
    ("model_request_prepared", "go on"),
    ("attempt_abandoned", "go on"),
    ("model_attempt_started", "go on"),
    ("model_request_prepared", "go on"),
    ("text_delta", ANSWERING),
    ("text_delta", ANSWERING),
    ("model_turn_committed", "go on"),
    ("model_usage_recorded", "go on"),
    ("tool_call_started", "go on"),
    ("tool_call_started", "go on"),
    ("tool_call_started", "go on"),
    ("approval_requested", "go on"),
    ("approval_finalized", "go on"),
    ("tool_call_executing", "read was executing"),
    ("tool_call_terminated", "go on"),
    ("tool_call_executing", "bash was executing"),
    ("tool_call_terminated", "go on"),
    ("tool_call_executing", "write was executing"),
    ("tool_call_terminated", "go on"),
    ("model_attempt_started", "go on"),
    ("model_request_prepared", "go on"),
    ("text_delta", ANSWERING),
    ("model_turn_committed", "go on"),
    ("model_usage_recorded", "go on"),
    ("run_completed", "rest"),
    ("user_input_submitted", "rest"),
    ("run_started", "go on"),
    ("model_attempt_started", "go on"),
    ("model_request_prepared", "go on"),
    ("model_turn_committed", "go on"),
    ("run_completed", "rest"),
]
BOUNDARIES = list(prefixes(tool_round().events))
NAMES = [f"{len(events)}-{tag_of(type(events[-1].payload))}" for events in BOUNDARIES]


def after(state: SessionState, payloads: tuple[Payload, ...]) -> list[StoredEvent]:
    """Apply a recovery's events as the actor would append them."""
    written = []
    for payload in payloads:
        stored = StoredEvent(
            session_id="session",  # type: ignore[arg-type]
            run_id=None if state.run is None else state.run.run_id,
            seq=state.seq + 1,
            timestamp="2026-01-02T03:05:00.000Z",
            payload=payload,
        )
        apply(state, stored)
        written.append(stored)
    return written


def verdict(recovery: Recovery) -> str:
    if not recovery.events:
        return "rest"
    return "go on" if recovery.resume else recovery.why


def open_log() -> Log:
    log = Log()
    log.created()
    log.user("go")
    log.run_started("run")
    return log


def test_every_boundary_has_its_verdict() -> None:
    verdicts = [
        (tag_of(type(events[-1].payload)), verdict(recover(fold(events), KILLED)))
        for events in BOUNDARIES
    ]

    assert verdicts == VERDICTS


@pytest.mark.parametrize("events", BOUNDARIES, ids=NAMES)
def test_after_a_recovery_nothing_is_open_but_a_run_that_goes_on(
    events: list[StoredEvent],
) -> None:
    state = fold(events)
    run = state.run
    recovery = recover(state, KILLED)
    log = events + after(state, recovery.events)

    if recovery.resume is None:
        assert state.run is None
        assert not state.open_calls
        assert not state.open_approvals()
        if run is not None:
            assert state.status == "interrupted"
            assert each_start_has_one_end(log)
    else:
        assert run is not None
        assert state.run is run
        assert recovery.resume == run.run_id
        assert run.attempt is None
        assert not any(one.executing for one in state.open_calls.values())


def each_start_has_one_end(log: list[StoredEvent]) -> bool:
    payloads = [event.payload for event in log]
    calls = Counter(p.tool_call_id for p in payloads if isinstance(p, ToolCallTerminated))
    questions = Counter(p.approval_id for p in payloads if isinstance(p, ApprovalFinalized))
    started = [p.tool_call_id for p in payloads if isinstance(p, ToolCallStarted)]
    asked = [p.request.approval_id for p in payloads if isinstance(p, ApprovalRequested)]
    return calls == Counter(started) and questions == Counter(asked)


@pytest.mark.parametrize("events", BOUNDARIES, ids=NAMES)
def test_a_recovery_that_died_on_its_way_is_finished_by_the_next(
    events: list[StoredEvent],
) -> None:
    first = recover(fold(events), KILLED)
    for cut in range(1, len(first.events)):
        state = fold(events)
        log = events + after(state, first.events[:cut])
        second = recover(state, KILLED)
        log += after(state, second.events)

        assert second.resume == first.resume
        if second.resume is None:
            assert state.run is None
            assert each_start_has_one_end(log)


def test_the_first_word_is_that_a_worker_was_lost_and_the_last_that_the_run_is() -> None:
    log = open_log()
    log.attempt("a")
    log.delta("a", "half")
    recovery = recover(fold(log.events), KILLED)

    assert recovery.events[0] == WorkerRecovered(cause="killed by SIGKILL", exit_status=-9)
    assert recovery.events[-1] == RunInterrupted(
        reason=f"interrupted by daemon restart: {ANSWERING}"
    )
    assert tags(recovery) == ["worker_recovered", "attempt_abandoned", "run_interrupted"]


def tags(recovery: Recovery) -> list[str]:
    return [tag_of(type(payload)) for payload in recovery.events]


def three_calls() -> Log:
    """One call that ended, one in the world's hands, one that has not begun."""
    log = open_log()
    log.attempt("a")
    log.turn(call("c1"), call("c2"), call("c3"), attempt="a")
    for one in ("c1", "c2", "c3"):
        log.started(one)
    log.executing("c1")
    log.ended("c1")
    log.executing("c2")
    return log


def test_each_open_call_is_told_apart_by_whether_it_had_begun() -> None:
    recovery = recover(fold(three_calls().events), KILLED)

    ended = [event for event in recovery.events if isinstance(event, ToolCallTerminated)]
    assert [(one.tool_call_id, one.outcome, one.error) for one in ended] == [
        ("c2", "interrupted", ToolError(code="outcome_unknown", message=UNKNOWN)),
        ("c3", "interrupted", ToolError(code="interrupted", message=NOT_RUN)),
    ]
    assert tags(recovery)[0] == "worker_recovered"
    assert tags(recovery)[-1] == "run_interrupted"


def test_an_open_question_keeps_its_id_when_the_run_goes_on() -> None:
    log = open_log()
    log.turn(call("c1"))
    log.started("c1")
    log.asked("q1", "c1")
    state = fold(log.events)
    recovery = recover(state, KILLED)
    after(state, recovery.events)

    assert recovery.resume == "run"
    assert tags(recovery) == ["worker_recovered"]
    assert [one.request.approval_id for one in state.open_approvals()] == ["q1"]


def test_an_open_question_of_a_run_that_ends_is_cancelled_once() -> None:
    log = three_calls()
    log.asked("q1", "c3")

    assert tags(recover(fold(log.events), KILLED)) == [
        "worker_recovered",
        "approval_cancelled",
        "approval_finalized",
        "tool_call_terminated",
        "tool_call_terminated",
        "run_interrupted",
    ]


def linked(log: Log) -> Event:
    return ToolCallLinked(tool_call_id="c1", child_session_id="child")  # type: ignore[arg-type]


def reserved(log: Log) -> Event:
    reservation = DelegationReservation(
        parent_session_id=ANY,
        parent_run_id=ANY,
        parent_tool_call_id="c1",  # type: ignore[arg-type]
        child_session_id=ANY,
        invocation_id=ANY,
    )
    return DelegationReserved(
        request=DelegationRequest(
            prompt="", description="", title="", background=False, inherit_context=False
        ),
        request_fingerprint=ANY,
        reservation=reservation,
        child_agent=AGENT,
        selected_suffix=(BINDING,),
        revisions=REVISIONS,
    )


@pytest.mark.parametrize("waits", [linked, reserved])
def test_a_call_that_waits_for_a_child_lets_the_run_go_on(waits) -> None:  # type: ignore[no-untyped-def]
    log = open_log()
    log.turn(call("c1", "delegate_subagent"))
    log.started("c1")
    log.executing("c1")
    assert verdict(recover(fold(log.events), KILLED)) == "delegate_subagent was executing"

    log.add(waits(log))
    assert verdict(recover(fold(log.events), KILLED)) == "go on"


def test_reasoning_counts_as_an_answer() -> None:
    log = open_log()
    log.attempt("a")
    log.add(ReasoningDelta(attempt_id="a", text="hm"))  # type: ignore[arg-type]

    assert verdict(recover(fold(log.events), KILLED)) == ANSWERING


def test_inputs_that_wait_outlive_the_worker() -> None:
    log = open_log()
    log.attempt("a")
    log.admitted("also this")
    state = fold(log.events)
    after(state, recover(state, KILLED).events)

    assert [given.text for given in state.pending.values()] == ["also this"]


UNREADABLE = "a part of its log cannot be read"


def test_a_run_with_an_unreadable_line_is_not_trusted_to_go_on() -> None:
    """The line may have been the tool_call_executing of an effect that must not come twice."""
    log = open_log()
    log.turn(call("c1"))
    log.started("c1")
    log.skip()
    log.usage(Usage())
    recovery = recover(fold(log.events), KILLED)

    assert verdict(recovery) == UNREADABLE


def test_an_unreadable_line_before_the_run_does_not_matter() -> None:
    log = Log()
    log.created()
    log.skip()
    log.run_started("run")

    assert verdict(recover(fold(log.events), KILLED)) == "go on"


def test_an_unreadable_end_of_the_log_is_told_by_its_reader() -> None:
    facts = Facts(cause="", damaged_tail=True)

    assert verdict(recover(fold(open_log().events), facts)) == UNREADABLE


def test_an_effect_without_a_readable_start_ends_the_run() -> None:
    log = open_log()
    log.turn(call("c1"))
    log.executing("c1")

    assert verdict(recover(fold(log.events), KILLED)) == UNREADABLE


def test_an_idle_session_is_left_alone_unless_its_worker_is_known_to_have_died() -> None:
    state = fold(tool_round().events)

    assert recover(state, KILLED) == Recovery(events=())
    died = Facts(cause="killed by SIGKILL", exit_status=-9, died=True)
    assert tags(recover(state, died)) == ["worker_recovered"]


@pytest.mark.parametrize("running", [True, False])
def test_an_internal_agent_that_died_too_is_closed(running: bool) -> None:
    log = open_log()
    if not running:
        log.run_ended()
    log.add(
        InternalAgentStarted(
            kind="session_title",
            internal_run_id=ANY,
            invocation_id=ANY,
            backend=BINDING.resolved(),
            call=InternalCall(name="title", input_digest=ANY, input_summary=""),
        )
    )
    state = fold(log.events)
    recovery = recover(state, KILLED)
    after(state, recovery.events)

    assert tags(recovery) == ["worker_recovered", "internal_agent_interrupted"]
    assert not state.internal


def test_a_turn_without_calls_goes_on_to_its_end() -> None:
    log = open_log()
    log.attempt("a")
    log.turn(text("bye"), attempt="a")

    assert verdict(recover(fold(log.events), KILLED)) == "go on"
