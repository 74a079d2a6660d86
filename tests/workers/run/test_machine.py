"""The run machine as a table: a log goes in, the next step comes out."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ipc.content import ToolError, ToolResult
from ipc.events import (
    ApprovalCancelled,
    ApprovalFinalized,
    ApprovalRequested,
    AttemptAbandoned,
    InternalAgentCancelled,
    InternalAgentInterrupted,
    InternalAgentStarted,
    InternalCall,
    ModelAttemptStarted,
    ModelErrorSummary,
    ModelFallback,
    ModelTurnCommitted,
    Payload,
    RunCancelled,
    RunFailed,
    RunInterrupted,
    StoredEvent,
    ToolCallStarted,
    ToolCallTerminated,
    UserInputRecalledV2,
    WorkerRecovered,
)
from ipc.fold import SessionState, Setback, fold
from ipc.instants import milliseconds
from tests.fakes.logs import (
    ANY,
    BINDING,
    BROKEN_OFF,
    BUSY,
    REFUSED_KEY,
    SECOND,
    Log,
    call,
    prefixes,
    text,
    tool_round,
)
from workers.run.machine import (
    PAUSES_MAX,
    Abandon,
    Complete,
    End,
    FallBack,
    GiveUp,
    Rest,
    Retry,
    RunCalls,
    StartCalls,
    StopAtLimit,
    Submit,
    TakeTurn,
    closing,
    cut_off,
    final_text,
    next_step,
)

TOO_LONG = ModelErrorSummary(
    kind="context_length", stage="response_headers", message="too long", retryable=False
)
ABORTED = ModelErrorSummary(kind="abort", stage="middleware", message="stop", retryable=True)
SMALL = msgspec.structs.replace(BINDING, context_limit=9)


def begun() -> Log:
    log = Log()
    log.created()
    log.user("hi")
    log.run_started("run")
    return log


def answered(*content: Any, finish: Any = None, attempt: str = "a1") -> Log:
    """A log whose last event is a committed turn."""
    log = begun()
    log.attempt(attempt)
    log.turn(*content, attempt=attempt, finish=finish)
    return log


def worked(*, ended: int = 2) -> Log:
    """Two calls were taken up, and `ended` of them are over."""
    log = answered(text("so"), call("c1", "read"), call("c2"))
    log.started("c1")
    log.started("c2")
    for one in ("c1", "c2")[:ended]:
        log.executing(one)
        log.ended(one)
    return log


def rest() -> Log:
    log = answered(text("bye"))
    log.run_ended()
    return log


def open_attempt() -> Log:
    log = begun()
    log.attempt("a1")
    return log


def retried() -> Log:
    log = open_attempt()
    log.abandoned("a1")
    return log


def partly_started() -> Log:
    log = answered(call("c1"), call("c2"), call("c3"))
    log.started("c1")
    return log


def steered_before_the_first_turn() -> Log:
    log = begun()
    log.admitted("more")
    return log


def steered_while_calls_are_open() -> Log:
    log = worked(ended=1)
    log.admitted("more")
    return log


def steered_after_the_batch() -> Log:
    log = worked()
    log.admitted("first")
    log.admitted("second")
    return log


def steered_at_the_end() -> Log:
    log = answered(text("done"))
    log.admitted("wait")
    return log


def recalled_at_the_end() -> Log:
    log = answered(text("done"))
    seq = log.admitted("wait")
    log.add(UserInputRecalledV2(input=log.events[-1].payload.input, user_input_seq=seq))  # type: ignore[union-attr]
    return log


def submitted() -> Log:
    log = steered_at_the_end()
    log.user("wait")
    return log


def refused_with_calls() -> Log:
    return answered(call("c1"), finish="refused")


def failed_after_work() -> Log:
    """A call of the turn ran before its provider took the turn back: it stays in the history."""
    log = answered(call("c1"), finish="error")
    log.started("c1")
    log.executing("c1")
    log.ended("c1")
    return log


def failed(*ends: tuple[Any, int | None], models: Any = ()) -> Log:
    """Attempts that failed, the last of them just now."""
    log = Log()
    log.created()
    log.user("hi")
    log.run_started("run", *models)
    for number, (error, retry_in_ms) in enumerate(ends):
        log.failed(f"a{number}", error, retry_in_ms)
    return log


def failed_and_lost() -> Log:
    """The worker died in the second attempt; the pause before it is over and done with."""
    log = failed((BUSY, 1000))
    log.attempt("a2")
    log.add(WorkerRecovered(cause="SIGKILL", resumed_run_id="run"))  # type: ignore[arg-type]
    log.abandoned("a2")
    return log


def lost_in_a_pause() -> Log:
    log = failed((BUSY, 600_000))
    log.add(WorkerRecovered(cause="SIGKILL", resumed_run_id="run"))  # type: ignore[arg-type]
    return log


def failed_in_a_later_turn(retry_in_ms: int | None) -> Log:
    log = worked()
    log.failed("a2", BROKEN_OFF, retry_in_ms)
    log.admitted("more")
    return log


def fallen_back() -> Log:
    log = failed((REFUSED_KEY, None), models=(BINDING, SECOND))
    log.add(
        ModelFallback(
            from_=BINDING.resolved(),
            to=SECOND.resolved(),
            from_fallback_index=0,
            to_fallback_index=1,
            attempts_on_from=1,
            error=REFUSED_KEY,
        )
    )
    return log


def fallen_back_in_vain() -> Log:
    log = fallen_back()
    log.failed("b1", BUSY, 10, fallback_index=1)
    log.failed("b2", BUSY, fallback_index=1)
    return log


def paused(times: int, then: Log | None = None, said: str | None = None) -> Log:
    log = then or begun()
    for number in range(times):
        log.attempt(f"p{number}")
        log.turn(text("so"), attempt=f"p{number}", finish="other", stop_reason="pause_turn")
    if said is not None:
        log.admitted(said)
    return log


def paused_with_a_call() -> Log:
    log = begun()
    log.attempt("p")
    log.turn(call("c1"), attempt="p", finish="other", stop_reason="pause_turn")
    return log


def stopped_otherwise() -> Log:
    log = begun()
    log.attempt("p")
    log.turn(text("so"), attempt="p", finish="other", stop_reason="something")
    return log


AT_FIRST = milliseconds("2026-01-02T03:04:06.000Z")  # when the first attempt of `failed` ends

# What comes out: the step's type, and what it holds, as far as that is worth a look.
TABLE: list[tuple[Callable[[], Log], Any]] = [
    (Log, Rest()),
    (rest, Rest()),
    (begun, TakeTurn()),
    (open_attempt, Abandon(ANY)),
    (retried, TakeTurn()),
    (lambda: answered(call("c1"), call("c2")), (StartCalls, [0, 1])),
    (lambda: answered(text("so"), call("c1")), (StartCalls, [1])),
    (partly_started, (StartCalls, [1, 2])),
    (lambda: worked(ended=0), (RunCalls, ["c1", "c2"])),
    (lambda: worked(ended=1), (RunCalls, ["c2"])),
    (worked, TakeTurn()),
    (lambda: answered(text("one"), text("two")), Complete("onetwo")),
    (answered, Complete("")),
    (lambda: answered(text("so fa"), finish="length"), Complete("so fa")),
    (lambda: answered(call("c1"), finish="length"), TakeTurn()),
    (lambda: answered(call("c1"), finish="content_filter"), TakeTurn()),
    (lambda: answered(text("no"), finish="refused"), GiveUp),
    (refused_with_calls, GiveUp),
    (lambda: answered(text("?"), finish="error"), GiveUp),
    (lambda: answered(text("?"), finish="aborted"), GiveUp),
    (lambda: answered(text("?"), finish="timeout"), GiveUp),
    (lambda: answered(text("?"), finish="cancelled"), GiveUp),
    (lambda: answered(text("?"), finish="unknown"), Complete("?")),
    (failed_after_work, TakeTurn()),
    (steered_before_the_first_turn, TakeTurn()),
    (steered_while_calls_are_open, (RunCalls, ["c2"])),
    (steered_after_the_batch, (Submit, 2)),
    (steered_at_the_end, (Submit, 1)),
    (recalled_at_the_end, Complete("done")),
    (submitted, TakeTurn()),
    (lambda: failed((BUSY, 1000)), Retry(Setback(BUSY, AT_FIRST, 1000))),
    (lambda: failed((BUSY, 0)), Retry(Setback(BUSY, AT_FIRST, 0))),
    (lambda: failed((BUSY, 1), (BUSY, 2)), Retry(Setback(BUSY, AT_FIRST + 3000, 2))),
    (lost_in_a_pause, Retry(Setback(BUSY, AT_FIRST, 600_000))),
    (failed_and_lost, TakeTurn()),
    (lambda: failed((BUSY, None), models=(BINDING, SECOND)), FallBack(1, BUSY)),
    (lambda: failed((TOO_LONG, None), models=(SMALL, SMALL, SECOND)), FallBack(2, TOO_LONG)),
    (fallen_back, TakeTurn()),
    (
        lambda: failed((REFUSED_KEY, None)),
        GiveUp("fake/one: no such key", REFUSED_KEY, BINDING.resolved()),
    ),
    (
        lambda: failed((BUSY, 1), (BUSY, None)),
        GiveUp("fake/one: busy (after 2 attempts)", BUSY, BINDING.resolved()),
    ),
    (
        fallen_back_in_vain,
        GiveUp("fake/two: busy (after 3 attempts with 2 models)", BUSY, SECOND.resolved()),
    ),
    (
        lambda: failed((ABORTED, None), models=(BINDING, SECOND)),
        GiveUp("fake/one: stop", ABORTED, BINDING.resolved()),
    ),
    (lambda: failed((TOO_LONG, None), models=(SMALL, SMALL)), GiveUp),
    (lambda: failed_in_a_later_turn(10), (Submit, 1)),  # heard before the model is asked again
    (lambda: failed_in_a_later_turn(None), GiveUp),
    (lambda: paused(1), TakeTurn()),
    (lambda: paused(1, said="more"), TakeTurn()),  # not between the turn and what goes on with it
    (lambda: paused(PAUSES_MAX), TakeTurn()),
    (lambda: paused(PAUSES_MAX + 1), GiveUp),
    (lambda: paused(PAUSES_MAX, then=paused(0, then=worked())), TakeTurn()),
    (paused_with_a_call, (StartCalls, [0])),
    (stopped_otherwise, Complete("so")),
]


@pytest.mark.parametrize(("make", "wanted"), TABLE)
def test_the_next_step_follows_from_the_log_alone(make: Callable[[], Log], wanted: Any) -> None:
    step = next_step(fold(make().events).view())
    match step:
        case Abandon(attempt_id):
            assert (type(step), attempt_id) == (type(wanted), "a1")
        case StartCalls(asked=asked):
            assert wanted == (StartCalls, [index for index, _ in asked])
        case RunCalls(turn):
            assert wanted == (RunCalls, [one.call_id for one in turn.open_calls()])
        case Submit(seqs):
            assert wanted == (Submit, len(seqs))
            assert list(seqs) == sorted(seqs)
        case GiveUp() if wanted is GiveUp:
            pass
        case _:
            assert step == wanted


@pytest.mark.parametrize(
    ("make", "limit", "wanted"),
    [
        (begun, 1, TakeTurn()),
        (begun, 0, StopAtLimit(0)),
        (worked, 1, StopAtLimit(1)),
        (worked, 2, TakeTurn()),
        (lambda: answered(text("done")), 1, Complete("done")),
        (submitted, 1, StopAtLimit(1)),
        (lambda: paused(2), 2, StopAtLimit(2)),
        (lambda: failed((BUSY, 10)), 1, Retry(Setback(BUSY, AT_FIRST, 10))),
    ],
)
def test_a_limit_of_turns_stops_a_run_that_would_ask_again(
    make: Callable[[], Log], limit: int, wanted: Any
) -> None:
    assert next_step(fold(make().events).view(), limit) == wanted


def test_the_answer_is_the_same_for_every_reader_of_the_same_log() -> None:
    for events in prefixes(tool_round().events):
        one, other = fold(events), fold(events)
        assert repr(next_step(one.view())) == repr(next_step(other.view()))


def test_the_final_text_is_the_text_of_the_turn_and_nothing_else() -> None:
    state = fold(answered(text("a"), call("c1"), text("b")).events)
    assert final_text(state.turns[1]) == "ab"


# --- closing -------------------------------------------------------------------------------------

ENDS: list[End] = [
    RunCancelled(reason="user"),
    RunFailed(error="internal"),
    RunInterrupted(reason="x"),
]


def everything_open() -> Log:
    """An attempt, a question, a half-withdrawn question, helpers and calls in every state."""
    log = worked(ended=1)
    log.asked("q1", "c2")
    log.asked("q2", "c2")
    log.add(ApprovalCancelled(approval_id="q2", reason_code="request_cancelled"))  # type: ignore[arg-type]
    for kind in ("approval", "session_title"):
        log.add(
            InternalAgentStarted(
                kind=kind,  # type: ignore[arg-type]
                internal_run_id=f"internal {kind}",  # type: ignore[arg-type]
                invocation_id=ANY,
                backend=BINDING.resolved(),
                call=InternalCall(name=kind, input_digest=ANY, input_summary=""),
            )
        )
    log.attempt("a2")
    return log


def half_withdrawn() -> Log:
    log = worked(ended=0)
    log.asked("q1", "c1")
    log.add(ApprovalCancelled(approval_id="q1", reason_code="request_cancelled"))  # type: ignore[arg-type]
    return log


def a_lost_turn() -> Log:
    """The line of the turn cannot be read; its calls can."""
    log = worked(ended=0)
    log.executing("c1")
    lost = next(one for one in log.events if isinstance(one.payload, ModelTurnCommitted))
    log.events.remove(lost)
    return log


def books(payloads: list[Payload]) -> tuple[Counter[Any], Counter[Any]]:
    """What was opened and what was closed, each thing with its count."""
    opened: Counter[Any] = Counter()
    closed: Counter[Any] = Counter()
    for one in payloads:
        match one:
            case ModelAttemptStarted(attempt_id=key) | ToolCallStarted(tool_call_id=key):
                opened[key] += 1
            case ModelTurnCommitted(attempt_id=key) | AttemptAbandoned(attempt_id=key):
                closed[key] += 1
            case ToolCallTerminated(tool_call_id=key) | ApprovalFinalized(approval_id=key):
                closed[key] += 1
            case ApprovalRequested(request=request):
                opened[request.approval_id] += 1
            case InternalAgentStarted(internal_run_id=key, kind=kind) if kind != "session_title":
                opened[key] += 1
            case (
                InternalAgentCancelled(internal_run_id=key)
                | InternalAgentInterrupted(internal_run_id=key)
            ):
                closed[key] += 1
            case _:
                pass
    return opened, closed


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
def test_closing_ends_each_open_thing_of_a_run_exactly_once(end: End) -> None:
    logs = [everything_open(), half_withdrawn(), partly_started(), begun(), open_attempt()]
    stories = [log.events for log in logs] + list(prefixes(tool_round().events))
    for events in stories:
        state = fold(events)
        if state.run is None:
            continue
        closed = closed_with(events, state, end)
        opened, ended = books([event.payload for event in closed])
        assert opened == ended
        after = fold(closed)
        assert after.run is None
        assert not after.open_calls
        assert not after.open_approvals()
        assert list(after.internal) in ([], ["internal session_title"])


def closed_with(events: list[StoredEvent], state: SessionState, end: End) -> list[StoredEvent]:
    assert state.run is not None
    log = Log()
    log.events, log.seq, log.run = list(events), state.seq, state.run.run_id
    for payload in closing(state.view(), state.run, end):
        log.add(payload)
    return log.events


def test_closing_ends_calls_whose_turn_cannot_be_read() -> None:
    state = fold(a_lost_turn().events)
    assert state.run is not None
    ends = [
        one
        for one in closing(state.view(), state.run, RunCancelled())
        if isinstance(one, ToolCallTerminated)
    ]
    assert [one.tool_call_id for one in ends] == ["c1", "c2"]


def test_closing_leaves_out_what_has_its_end_beside_it() -> None:
    log = worked(ended=0)
    log.asked("q1", "c1")
    state = fold(log.events)
    assert state.run is not None
    events = closing(state.view(), state.run, RunCancelled(), frozenset({ANY, "c1"}))  # type: ignore[arg-type]
    assert [type(one) for one in events] == [ToolCallTerminated, RunCancelled]


@pytest.mark.parametrize(
    ("end", "outcome"), [(ENDS[0], "cancelled"), (ENDS[1], "cancelled"), (ENDS[2], "interrupted")]
)
@pytest.mark.parametrize("executing", [True, False])
def test_the_end_of_a_call_that_was_cut_off_says_whether_it_had_begun(
    end: End, outcome: str, executing: bool
) -> None:
    log = worked(ended=0)
    if executing:
        log.executing("c1")
    state = fold(log.events)
    cut = cut_off(next(iter(state.open_calls.values())), end)
    words = "it had begun" if executing else "it had not begun"
    assert (cut.outcome, cut.result) == (outcome, None)
    assert cut.error == ToolError(
        code="run_ended", message=f"the run ended while this call was open; {words}"
    )


def test_a_result_that_is_there_is_not_taken_back() -> None:
    log = worked(ended=1)
    state = fold(log.events)
    assert state.run is not None
    after = fold(closed_with(log.events, state, RunCancelled()))
    first = after.calls["c1"].ended  # type: ignore[index]
    assert first is not None
    assert first.result == ToolResult(title="", output="done")
