"""What single events mean: inputs, attempts, calls, approvals, children, titles, usage."""

import msgspec
import pytest

from ipc.content import ToolCallBlock, Usage, user_text
from ipc.events import (
    ApprovalCancelled,
    ApprovalUserDecisionRecorded,
    BudgetPaused,
    BudgetResumed,
    DelegatedTitle,
    DelegateFinishedV2,
    DelegateQueued,
    DelegationFinished,
    DelegationRequest,
    DelegationReservation,
    DelegationReserved,
    DelegationRunStarted,
    DelegationStarted,
    Event,
    FallbackTitle,
    InternalAgentFailed,
    InternalAgentStarted,
    InternalAgentTitle,
    InternalCall,
    InternalFailure,
    ModelErrorSummary,
    ModelFallback,
    PermissionOverlay,
    RunCancelled,
    RunFailed,
    SessionPermissionOverlaySet,
    SessionReverted,
    SessionTitleCommitted,
    TitleChange,
    ToolCallLinked,
    ToolCallProgress,
    TreeApprovalGrantCommitted,
    TreeGrant,
    UserClearedTitle,
    UserInputRecalled,
    UserInputRecalledV2,
    UserInputTransformed,
    UserResetTitle,
    UserSetTitle,
    WorkerRecovered,
)
from ipc.fold import (
    NoticeEntry,
    OpenRun,
    Rollup,
    SessionState,
    Setback,
    Standing,
    TurnEntry,
    UserEntry,
    fold,
)
from ipc.instants import milliseconds
from ipc.rules import Action, Effect, Rule
from tests.fakes.logs import (
    AGENT,
    ANY,
    BINDING,
    BROKEN_OFF,
    BUSY,
    OTHER_MODEL,
    REVISIONS,
    SECOND,
    SELECTION,
    Log,
    call,
    text,
    tool_round,
)


def open_log() -> Log:
    """A log with a run in it."""
    log = Log()
    log.created()
    log.user("go")
    log.run_started("run")
    return log


def open_run(log: Log) -> OpenRun:
    run = fold(log.events).run
    assert run is not None
    return run


def words(state: SessionState) -> list[str]:
    return [entry.input.text for entry in state.entries if isinstance(entry, UserEntry)]


# --- input


def test_an_admitted_input_waits_unseen_until_it_is_submitted() -> None:
    log = open_log()
    first, second = log.admitted("one"), log.admitted("two")
    state = fold(log.events)
    assert {seq: given.text for seq, given in state.pending.items()} == {
        first: "one",
        second: "two",
    }
    assert words(state) == ["go"]

    log.user("one")
    state = fold(log.events)
    assert list(state.pending) == [second]
    assert words(state) == ["go", "one"]


def test_the_oldest_of_equal_inputs_is_the_one_that_is_submitted() -> None:
    log = open_log()
    log.admitted("same")
    second = log.admitted("same")
    log.user("same")

    assert list(fold(log.events).pending) == [second]


def test_an_admission_that_cannot_be_read_does_not_cost_the_next_one_its_place() -> None:
    log = open_log()
    log.skip()
    second = log.admitted("two")
    log.user("one")

    state = fold(log.events)
    assert list(state.pending) == [second]
    assert words(state) == ["go", "one"]


def test_an_input_that_was_taken_back_never_becomes_history() -> None:
    log = open_log()
    first, second = log.admitted("one"), log.admitted("two")
    log.add(UserInputRecalledV2(input=user_text("two"), user_input_seq=second))
    assert list(fold(log.events).pending) == [first]

    log.add(UserInputRecalled(input=user_text("one")))
    state = fold(log.events)
    assert not state.pending
    assert words(state) == ["go"]


@pytest.mark.parametrize("end", [RunCancelled(), RunFailed(error="no")])
def test_the_end_of_a_run_voids_what_still_waits(end: Event) -> None:
    log = open_log()
    log.admitted("too late")
    log.run_ended(end)

    assert not fold(log.events).pending


def test_an_input_remembers_what_a_plugin_made_it_from() -> None:
    log = open_log()
    log.add(UserInputTransformed(original_input=user_text("raw"), input=user_text("cooked")))
    log.admitted("cooked")
    log.user("cooked")

    state = fold(log.events)
    entry = state.entries[-1]
    assert isinstance(entry, UserEntry)
    assert entry.original == user_text("raw")
    assert not state.pending
    assert not state.transforms


# --- runs and attempts


def test_a_run_ends_with_its_outcome_and_its_words() -> None:
    state = fold(tool_round().events)

    assert [(r.run_id, r.outcome, r.turns, r.final_text) for r in state.runs.values()] == [
        ("run 1", "completed", 2, "all done"),
        ("run 2", "completed", 1, "welcome"),
    ]
    assert state.status == "completed"


def test_a_run_whose_end_cannot_be_read_is_over_when_the_next_one_starts() -> None:
    log = open_log()
    log.skip()
    log.run_started("next")
    state = fold(log.events)

    assert state.run is not None
    assert state.run.run_id == "next"
    assert [run.outcome for run in state.runs.values()] == ["interrupted"]


def test_the_end_of_another_run_ends_nothing() -> None:
    log = open_log()
    log.run = "stranger"
    log.run_ended()

    assert fold(log.events).status == "running"


def test_the_text_of_an_abandoned_attempt_is_gone() -> None:
    log = open_log()
    log.attempt("a1")
    log.delta("a1", "half a th")
    assert open_run(log).attempt is not None

    log.abandoned("a1")
    log.delta("a1", "too late")
    state = fold(log.events)
    assert state.run is not None
    assert state.run.attempt is None
    assert not [entry for entry in state.entries if isinstance(entry, TurnEntry)]
    assert (state.run.attempts, state.run.failures, state.run.lost) == (1, 1, 0)


def test_an_attempt_lost_with_its_worker_spends_no_retry() -> None:
    log = open_log()
    log.attempt("a1")
    log.add(WorkerRecovered(cause="SIGKILL", resumed_run_id="run"))  # type: ignore[arg-type]
    log.abandoned("a1")
    log.attempt("a2")
    log.abandoned("a2")
    run = open_run(log)

    assert (run.attempts, run.failures, run.lost) == (2, 1, 1)


def test_a_committed_turn_starts_the_counts_anew() -> None:
    log = open_log()
    log.attempt("a1")
    log.abandoned("a1")
    log.attempt("a2")
    log.turn(text("ok"), attempt="a2")
    run = open_run(log)

    assert (run.attempts, run.failures, run.turns) == (0, 0, 1)
    assert run.attempt is None


def test_a_fallback_moves_the_run_to_the_next_model_with_a_fresh_budget() -> None:
    log = open_log()
    log.attempt("a1")
    log.abandoned("a1")
    error = ModelErrorSummary(
        kind="overload", stage="response_headers", message="busy", retryable=True
    )
    log.add(
        ModelFallback(
            from_=BINDING.resolved(),
            to=OTHER_MODEL,
            from_fallback_index=0,
            to_fallback_index=1,
            attempts_on_from=1,
            error=error,
        )
    )
    run = open_run(log)

    assert (run.fallback_index, run.failures, run.attempts) == (1, 0, 1)
    assert run.last_error == error


def test_failures_are_counted_by_the_budget_that_they_spend() -> None:
    log = open_log()
    log.failed("a1", BUSY, 1)
    log.failed("a2", BROKEN_OFF, 1)
    log.failed("a3", BUSY, 1)
    run = open_run(log)

    assert (run.attempts, run.failures, run.overloads) == (3, 3, 2)
    assert (run.failures_like(BUSY), run.failures_like(BROKEN_OFF)) == (2, 1)
    assert run.last_error == BUSY

    log.attempt("a4")
    log.turn(text("ok"), attempt="a4")
    run = open_run(log)
    assert (run.failures, run.overloads, run.fallbacks, run.last_error) == (0, 0, 0, None)


def test_a_setback_stands_until_the_next_attempt_begins() -> None:
    log = open_log()
    seq = log.failed("a1", BUSY, 7000)
    setback = open_run(log).setback
    assert setback == Setback(
        error=BUSY, failed_ms=milliseconds(log.events[-1].timestamp), retry_in_ms=7000
    )
    log.add(WorkerRecovered(cause="SIGKILL", resumed_run_id="run"))  # type: ignore[arg-type]
    assert open_run(log).setback == setback  # it is waited for by whoever comes next
    log.attempt("a2")
    assert open_run(log).setback is None
    assert seq < log.seq


def test_an_attempt_that_was_lost_or_ended_with_its_run_is_no_setback() -> None:
    log = open_log()
    log.attempt("a1")
    log.add(WorkerRecovered(cause="SIGKILL", resumed_run_id="run"))  # type: ignore[arg-type]
    log.abandoned("a1", BUSY, 5)
    assert (open_run(log).setback, open_run(log).failures) == (None, 0)
    log.attempt("a2")
    log.abandoned("a2")
    assert (open_run(log).setback, open_run(log).failures) == (None, 1)


@pytest.mark.parametrize(
    ("now_ms", "rest_ms"),
    [(1000, 500), (1001, 499), (1500, 0), (9999, 0), (900, 500), (0, 500)],
)
def test_what_is_left_of_a_pause_is_between_nothing_and_all_of_it(
    now_ms: int, rest_ms: int
) -> None:
    assert Setback(BUSY, 1000, 500).rest_ms(now_ms) == rest_ms
    assert Setback(BUSY, 1000, None).rest_ms(now_ms) == 0


# --- where a session stands in its chain


def fell(log: Log, *, index: int = 1) -> None:
    log.add(
        ModelFallback(
            from_=BINDING.resolved(),
            to=OTHER_MODEL,
            from_fallback_index=0,
            to_fallback_index=index,
            attempts_on_from=1,
            error=BUSY,
        )
    )


def answers(log: Log, attempt: str, index: int) -> None:
    log.attempt(attempt, fallback_index=index)
    log.turn(text("ok"), attempt=attempt)


def stands_at(log: Log) -> str | None:
    standing = fold(log.events).standing
    return None if standing is None else standing.model


def test_a_session_stands_at_its_fallback_once_that_has_answered() -> None:
    log = Log()
    log.created()
    log.user("hi")
    assert stands_at(log) is None
    log.run_started("run 1", BINDING, SECOND)
    assert fold(log.events).standing == Standing(SELECTION, BINDING.model, None)
    log.failed("a1", BUSY)
    fell(log)
    log.attempt("b1", fallback_index=1)
    assert stands_at(log) == BINDING.model
    log.turn(text("ok"), attempt="b1")
    assert stands_at(log) == SECOND.model
    log.run_ended()
    assert stands_at(log) == SECOND.model
    log.run_started("run 2", SECOND)
    answers(log, "b2", 0)
    assert stands_at(log) == SECOND.model
    log.run_ended()
    log.run_started("run 3", BINDING, SECOND)  # somebody wants it so
    assert stands_at(log) == BINDING.model


def test_a_fallback_that_has_not_answered_is_forgotten_with_its_run() -> None:
    log = Log()
    log.created()
    log.run_started("run", BINDING, SECOND)
    log.failed("a1", BUSY)
    fell(log)
    log.failed("b1", BUSY, fallback_index=1)
    log.run_ended(RunFailed(error="busy"))
    assert stands_at(log) == BINDING.model


def test_a_revert_takes_the_position_back_with_the_turn_that_made_it() -> None:
    log = Log()
    log.created()
    log.run_started("run", BINDING, SECOND)
    begun = log.seq
    fell(log)
    answers(log, "b1", 1)
    log.run_ended()
    log.add(SessionReverted(through_seq=begun))
    assert stands_at(log) == BINDING.model


def test_a_place_outside_the_chain_moves_nothing() -> None:
    log = open_log()
    answers(log, "a1", 7)
    assert stands_at(log) == BINDING.model


def test_a_run_waits_between_a_pause_and_its_resumption() -> None:
    log = open_log()
    pause = BudgetPaused(scope="tree", limit=5, spent=5)
    log.add(pause)
    assert open_run(log).paused == pause

    log.add(BudgetResumed(scope="tree", limit=9, spent=5))
    assert open_run(log).paused is None


def test_only_failures_of_compaction_in_a_row_are_counted() -> None:
    log = open_log()
    log.add(
        InternalAgentStarted(
            kind="context_compaction",
            internal_run_id=ANY,
            invocation_id=ANY,
            backend=BINDING.resolved(),
            call=InternalCall(name="compact", input_digest=ANY, input_summary=""),
        )
    )
    assert set(fold(log.events).internal) == {ANY}

    failure = InternalFailure(code="provider", message="", retryable=False)
    log.add(
        InternalAgentFailed(
            kind="context_compaction", internal_run_id=ANY, invocation_id=ANY, failure=failure
        )
    )
    assert not fold(log.events).internal
    assert open_run(log).compaction_failures == 1


# --- calls


def test_calls_hang_on_the_turn_that_asked_for_them() -> None:
    log = open_log()
    log.attempt("a")
    log.turn(text("both"), call("c1", "read", '{"p":1}'), call("c2"), attempt="a")
    run = open_run(log)
    assert run.last_turn is not None
    assert [index for index, _ in run.unstarted()] == [1, 2]

    log.started("c1")
    state = fold(log.events)
    assert state.run is not None
    assert [index for index, _ in state.run.unstarted()] == [2]
    (one,) = state.run.open_calls()
    assert (one.name, one.arguments, one.content_index) == ("read", '{"p":1}', 1)
    assert list(state.open_calls.values()) == [one]

    log.executing("c1")
    log.ended("c1")
    state = fold(log.events)
    assert not state.open_calls
    assert (state.calls["c1"].executing, state.calls["c1"].ended_seq) == (True, log.seq)  # type: ignore[index]


def test_the_first_end_of_a_call_is_its_end() -> None:
    log = open_log()
    log.turn(call("c1"))
    log.started("c1")
    log.ended("c1", "first")
    log.ended("c1", "second")

    ended = fold(log.events).calls["c1"].ended  # type: ignore[index]
    assert ended is not None
    assert ended.result is not None
    assert ended.result.output == "first"


def test_a_result_whose_start_cannot_be_read_still_belongs_to_its_block() -> None:
    log = open_log()
    log.turn(call("c1", "read"))
    log.skip()
    log.ended("c1")
    state = fold(log.events)

    (turn,) = state.turns.values()
    assert [(one.name, one.started) for one in turn.calls] == [("read", None)]
    assert turn.unstarted() == []


def test_a_call_whose_turn_cannot_be_read_is_known_by_its_owner() -> None:
    log = open_log()
    log.turn(call("c1", "read"))
    log.events.pop()
    log.started("c1")
    state = fold(log.events)

    assert state.calls["c1"].block == ToolCallBlock(model_call_id="c1", name="", arguments="")  # type: ignore[index]
    assert set(state.open_calls) == {"c1"}


def test_an_effect_whose_start_cannot_be_read_marks_the_run() -> None:
    log = open_log()
    log.turn(call("c1"))
    log.executing("c1")

    assert open_run(log).lost_effect


def test_progress_is_a_bounded_tail() -> None:
    log = open_log()
    log.turn(call("c1"))
    log.started("c1")
    for number in range(100):
        log.add(ToolCallProgress(tool_call_id="c1", message=str(number)))  # type: ignore[arg-type]

    progress = fold(log.events).calls["c1"].progress  # type: ignore[index]
    assert [note.message for note in progress] == [str(number) for number in range(36, 100)]


# --- approvals and grants


def test_a_question_is_open_until_it_is_finalized() -> None:
    log = open_log()
    log.turn(call("c1"))
    log.started("c1")
    log.asked("q1", "c1")
    (question,) = fold(log.events).open_approvals()
    assert (question.call_id, question.open) == ("c1", True)

    log.add(
        ApprovalUserDecisionRecorded(
            approval_id="q1",  # type: ignore[arg-type]
            client_response_id="answer",  # type: ignore[arg-type]
            decision="approve_once",
        )
    )
    log.add(ApprovalCancelled(approval_id="q1", reason_code="request_cancelled"))  # type: ignore[arg-type]
    state = fold(log.events)
    assert len(state.open_approvals()) == 1
    assert state.response_ids == {"answer": "q1"}

    log.answered("q1")
    state = fold(log.events)
    assert state.open_approvals() == []
    assert state.approvals["q1"].closed_seq == log.seq  # type: ignore[index]


def test_a_run_takes_its_open_questions_with_it() -> None:
    log = open_log()
    log.asked("q1", "c1")
    log.run_ended(RunCancelled())
    state = fold(log.events)

    assert state.open_approvals() == []
    assert not state.approvals["q1"].open  # type: ignore[index]


RULES: list[tuple[list[tuple[Action, Effect]], list[tuple[Action, Effect]], bool]] = [
    ([], [("bash", "allow")], True),
    ([], [("bash", "ask")], False),
    ([], [("bash", "deny")], False),
    ([], [("read", "deny")], True),
    ([("bash", "allow")], [], False),
    ([("bash", "deny")], [], True),
    ([("bash", "ask")], [("bash", "ask")], True),
    ([("bash", "ask")], [("bash", "deny")], False),
]


@pytest.mark.parametrize(("before", "after", "lives"), RULES)
def test_a_tightened_action_voids_its_grants(
    before: list[tuple[Action, Effect]], after: list[tuple[Action, Effect]], lives: bool
) -> None:
    def overlay(rules: list[tuple[Action, Effect]]) -> SessionPermissionOverlaySet:
        made = tuple(Rule(action=action, resource="*", effect=effect) for action, effect in rules)
        return SessionPermissionOverlaySet(overlay=PermissionOverlay(rules=made))

    log = open_log()
    log.add(overlay(before))
    log.asked("q1", "c1")
    log.add(
        TreeApprovalGrantCommitted(
            grant=TreeGrant(
                grant_id=ANY,
                approval_id="q1",  # type: ignore[arg-type]
                root_session_id=ANY,
                created_at="",
                operation_fingerprint=ANY,
            )
        )
    )
    log.answered("q1")
    log.add(overlay(after))
    state = fold(log.events)

    assert bool(state.live_grants()) == lives
    assert state.overlay_rules == overlay(after).overlay.rules
    assert state.overlay_seq == log.seq


# --- children


def test_a_delegation_goes_its_way_from_reservation_to_end() -> None:
    log = open_log()
    seen = []

    def add(payload: Event) -> None:
        log.add(payload)
        state = fold(log.events)
        seen.append((state.delegations["i"].phase, state.children["child"].status))  # type: ignore[index]

    reservation = DelegationReservation(
        parent_session_id=ANY,
        parent_run_id=ANY,
        parent_tool_call_id="c1",  # type: ignore[arg-type]
        child_session_id="child",  # type: ignore[arg-type]
        invocation_id="i",  # type: ignore[arg-type]
    )
    request = DelegationRequest(
        prompt="", description="", title="", background=True, inherit_context=False
    )
    add(
        DelegationReserved(
            request=request,
            request_fingerprint=ANY,
            reservation=reservation,
            child_agent=AGENT,
            selected_suffix=(BINDING,),
            revisions=REVISIONS,
        )
    )
    add(DelegationStarted(invocation_id="i", child_session_id="child"))  # type: ignore[arg-type]
    add(DelegateQueued(session_id="child", position=2))  # type: ignore[arg-type]
    add(DelegationRunStarted(invocation_id="i", child_run_id="r"))  # type: ignore[arg-type]
    add(
        DelegateFinishedV2(
            session_id="child",  # type: ignore[arg-type]
            invocation_id="i",  # type: ignore[arg-type]
            status="completed",
            preview="done",
            total_lines=1,
        )
    )
    add(
        DelegationFinished(
            invocation_id="i",  # type: ignore[arg-type]
            child_session_id="child",  # type: ignore[arg-type]
            status="completed",
        )
    )

    assert seen == [
        ("reserved", "reserved"),
        ("started", "reserved"),
        ("started", "queued"),
        ("running", "running"),
        ("running", "completed"),
        ("finished", "completed"),
    ]


def test_a_call_knows_the_child_it_works_through() -> None:
    log = open_log()
    log.turn(call("c1", "delegate_subagent"))
    log.started("c1")
    log.add(ToolCallLinked(tool_call_id="c1", child_session_id="child"))  # type: ignore[arg-type]

    assert fold(log.events).calls["c1"].child == "child"  # type: ignore[index]


# --- titles


SET = UserSetTitle(client_rename_id="r", title="mine")  # type: ignore[arg-type]
CLEAR, RESET = UserClearedTitle(), UserResetTitle()
MADE = InternalAgentTitle(invocation_id=ANY, title="made")
EXCERPT, GIVEN = FallbackTitle(title="excerpt"), DelegatedTitle(title="given")


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ([], None),
        ([EXCERPT], "excerpt"),
        ([EXCERPT, MADE], "made"),
        ([MADE, EXCERPT], "made"),
        ([SET, MADE], "mine"),
        ([SET, MADE, RESET], "made"),
        ([MADE, CLEAR], None),
        ([CLEAR, MADE], None),
        ([CLEAR, MADE, RESET], "made"),
        ([SET, RESET], None),
        ([GIVEN], "given"),
        ([GIVEN, DelegatedTitle(title="again")], "given"),
        ([MADE, InternalAgentTitle(invocation_id=ANY, title="better")], "better"),
    ],
)
def test_a_persons_word_beats_a_generated_title(
    changes: list[TitleChange], title: str | None
) -> None:
    log = open_log()
    for change in changes:
        log.add(SessionTitleCommitted(input_through_seq=2, change=change))

    assert fold(log.events).title.text == title


def test_a_title_that_does_not_show_does_not_count_as_an_update() -> None:
    log = open_log()
    shown = log.add(SessionTitleCommitted(input_through_seq=2, change=SET))
    log.add(SessionTitleCommitted(input_through_seq=2, change=MADE))

    assert fold(log.events).title.updated_seq == shown


# --- usage


def test_usage_is_summed_whole_and_by_model() -> None:
    log = open_log()
    spent = Usage(input_tokens=100, output_tokens=10, cache_read_tokens=50)
    log.usage(spent, cost=3)
    log.usage(spent, cost=4, model="fake/two")
    usage = fold(log.events).usage

    one = Rollup(
        request_count=1, input_tokens=100, output_tokens=10, cache_read_tokens=50, cost_pico_usd=3
    )
    assert usage.by_model["fake/one"] == one  # type: ignore[index]
    assert usage.total.request_count == 2
    assert usage.total.cost_pico_usd == 7
    assert usage.total.cache_hit_rate == pytest.approx(0.5)


def test_one_request_without_a_price_leaves_the_sum_without_one() -> None:
    log = open_log()
    log.usage(Usage(), cost=None)
    log.usage(Usage(), cost=4, model="fake/two")
    usage = fold(log.events).usage

    assert usage.total.cost_pico_usd is None
    assert usage.by_model["fake/two"].cost_pico_usd == 4  # type: ignore[index]


@pytest.mark.parametrize(
    ("requests", "rate"),
    [
        ([], None),
        ([Usage(input_tokens=10, cache_read_tokens=5)], 0.5),
        ([Usage(input_tokens=10, cache_read_tokens=0)], 0.0),
        ([Usage(input_tokens=0, cache_read_tokens=0)], None),
        ([Usage(input_tokens=10)], None),
        ([Usage(input_tokens=10, cache_read_tokens=5), Usage(cache_read_tokens=5)], None),
    ],
)
def test_a_hit_rate_needs_every_request_to_report_both_sides(
    requests: list[Usage], rate: float | None
) -> None:
    log = open_log()
    for usage in requests:
        log.usage(usage)

    assert fold(log.events).usage.total.cache_hit_rate == rate


# --- what people are shown


def test_failures_and_recoveries_stand_in_the_transcript_as_notices() -> None:
    log = open_log()
    log.add(WorkerRecovered(cause="SIGKILL"))
    log.run_ended(RunFailed(error="no"))

    shown = [e.event for e in fold(log.events).entries if isinstance(e, NoticeEntry)]
    assert [msgspec.structs.asdict(event) for event in shown] == [
        {"cause": "SIGKILL", "exit_status": None, "resumed_run_id": None},
        {"error": "no", "model_error": None, "resolved_model": None},
    ]
