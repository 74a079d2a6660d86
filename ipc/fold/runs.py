"""Runs, the attempts of their model, their tool calls, and the internal agents that help them."""

from ipc.content import ToolCallBlock
from ipc.events import (
    AttemptAbandoned,
    BudgetPaused,
    BudgetResumed,
    Event,
    HistoryRepaired,
    InternalAgentCancelled,
    InternalAgentCompleted,
    InternalAgentFailed,
    InternalAgentFallback,
    InternalAgentInterrupted,
    InternalAgentStarted,
    LeaseWaited,
    ModelAttemptStarted,
    ModelErrorSummary,
    ModelFallback,
    ModelReplayEvaluated,
    ModelRequestPrepared,
    Outcome,
    ReasoningDelta,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunInterrupted,
    RunStarted,
    StoredEvent,
    TextDelta,
    ToolCallExecuting,
    ToolCallLinked,
    ToolCallOwner,
    ToolCallProgress,
    ToolCallStarted,
    ToolCallTerminated,
    ToolOutputElided,
    ToolStdinSubmitted,
    TreeAdopted,
    TreeDrained,
    TreeEnded,
    WorkerRecovered,
)
from ipc.faults import clean
from ipc.fold.state import (
    PROGRESS_NOTES_MAX,
    REFUSAL_CHARS_MAX,
    CallState,
    EndedRun,
    NoticeEntry,
    OpenAttempt,
    OpenRun,
    SessionState,
    Setback,
    Standing,
)
from ipc.fold.table import meaning
from ipc.ids import CallId
from ipc.instants import milliseconds

# --- runs --------------------------------------------------------------------------------------


@meaning(RunStarted)
def _started(state: SessionState, event: RunStarted, at: StoredEvent) -> None:
    if at.run_id is None:
        return
    cut_short(state, at.seq, "its end could not be read")
    state.run = OpenRun(at.run_id, event, at.seq)
    stand(state, state.run)
    state.client_run_ids.setdefault(event.client_run_id, at.run_id)


@meaning(RunCompleted)
def _completed(state: SessionState, event: RunCompleted, at: StoredEvent) -> None:
    if _open(state, at):
        _close(state, "completed", at.seq, final_text=event.final_text)


@meaning(RunFailed)
def _failed(state: SessionState, event: RunFailed, at: StoredEvent) -> None:
    if _open(state, at):
        _close(state, "failed", at.seq, reason=event.error, error=event.model_error)
        _notice(state, event, at)


@meaning(RunCancelled)
def _cancelled(state: SessionState, event: RunCancelled, at: StoredEvent) -> None:
    if _open(state, at):
        _close(state, "cancelled", at.seq, reason=event.reason)
        _notice(state, event, at)


@meaning(RunInterrupted)
def _interrupted(state: SessionState, event: RunInterrupted, at: StoredEvent) -> None:
    if _open(state, at):
        _close(state, "interrupted", at.seq, reason=event.reason)
        _notice(state, event, at)


def stand(state: SessionState, run: OpenRun) -> None:
    """The model in use is what the session stands at: as a run begins, and as a turn is committed.

    So the position in a chain outlives the run once the fallback has answered, and not before.
    """
    if run.fallback_index < len(run.models):
        model = run.models[run.fallback_index]
        state.standing = Standing(run.started.selection, model.model, model.variant)


def cut_short(state: SessionState, seq: int, reason: str) -> None:
    """End an open run that has no end of its own in the visible log."""
    if state.run is not None:
        _close(state, "interrupted", seq, reason=reason)


def _open(state: SessionState, at: StoredEvent) -> bool:
    return state.run is not None and state.run.run_id == at.run_id


def _close(
    state: SessionState,
    outcome: Outcome,
    seq: int,
    *,
    reason: str | None = None,
    error: ModelErrorSummary | None = None,
    final_text: str | None = None,
) -> None:
    """The end of a run takes with it whatever its own end events did not close."""
    run = state.run
    assert run is not None
    state.runs[run.run_id] = EndedRun(
        run_id=run.run_id,
        client_run_id=run.started.client_run_id,
        selection=run.started.selection,
        outcome=outcome,
        started_seq=run.started_seq,
        ended_seq=seq,
        turns=run.turns,
        reason=reason,
        error=error,
        final_text=final_text,
    )
    for approval in state.waiting.values():
        approval.closed_seq = seq
    state.waiting.clear()
    state.open_calls.clear()
    state.pending.clear()
    state.transforms.clear()
    state.run = None


def _notice(state: SessionState, event: Event, at: StoredEvent) -> None:
    state.entries.append(NoticeEntry(at.seq, at.run_id, event))


# --- attempts ----------------------------------------------------------------------------------


@meaning(ModelAttemptStarted)
def _attempt(state: SessionState, event: ModelAttemptStarted, at: StoredEvent) -> None:
    run = state.run
    if run is None:
        return
    if run.attempt is not None:  # its end could not be read
        run.failures += 1
    run.attempt = OpenAttempt(event, at.seq)
    run.setback = None
    run.attempts += 1
    run.asked += 1
    run.fallback_index = event.fallback_index
    run.retry_ordinal = event.retry_ordinal


@meaning(ModelRequestPrepared)
def _prepared(state: SessionState, event: ModelRequestPrepared, _at: StoredEvent) -> None:
    run = state.run
    if run is not None and run.attempt is not None:
        run.attempt.prepared |= run.attempt.started.attempt_id == event.attempt_id


@meaning(TextDelta)
def _text(state: SessionState, event: TextDelta, _at: StoredEvent) -> None:
    run = state.run
    if run is not None:
        attempt = run.attempt
        if attempt is not None and attempt.started.attempt_id == event.attempt_id:
            attempt.text.append(event.text)


@meaning(ReasoningDelta)
def _reasoning(state: SessionState, event: ReasoningDelta, _at: StoredEvent) -> None:
    run = state.run
    if run is not None:
        attempt = run.attempt
        if attempt is not None and attempt.started.attempt_id == event.attempt_id:
            attempt.reasoning.append(event.text)


@meaning(AttemptAbandoned)
def _abandoned(state: SessionState, event: AttemptAbandoned, at: StoredEvent) -> None:
    run = state.run
    if run is None or run.attempt is None or run.attempt.attempt_id != event.attempt_id:
        return
    if event.error is not None:
        for place in run.attempt.isolated:
            state.isolated[place] = clean(event.error.message, REFUSAL_CHARS_MAX)
    if run.attempt.seq < run.recovered_seq:
        run.lost += 1
    else:
        run.failures += not run.attempt.isolated  # the next one is another request
        if event.error is not None:
            run.overloads += event.error.overloaded
            run.setback = Setback(event.error, milliseconds(at.timestamp), event.retry_in_ms)
            run.last_error = event.error
    run.attempt = None
    _notice(state, event, at)


@meaning(ModelFallback)
def _fallback(state: SessionState, event: ModelFallback, at: StoredEvent) -> None:
    _notice(state, event, at)
    run = state.run
    if run is not None:
        run.fallback_index = event.to_fallback_index
        run.asked = run.failures = run.overloads = run.lost = run.retry_ordinal = 0
        run.fallbacks += 1
        run.setback = None
        run.last_error = event.error


@meaning(BudgetPaused)
def _paused(state: SessionState, event: BudgetPaused, at: StoredEvent) -> None:
    _notice(state, event, at)
    if state.run is not None:
        state.run.paused = event


@meaning(BudgetResumed)
def _resumed(state: SessionState, event: BudgetResumed, at: StoredEvent) -> None:
    _notice(state, event, at)
    if state.run is not None:
        state.run.paused = None


# --- tool calls --------------------------------------------------------------------------------


@meaning(ToolCallStarted)
def _call_started(state: SessionState, event: ToolCallStarted, at: StoredEvent) -> None:
    if event.tool_call_id not in state.calls:
        call = _take_up(state, event.tool_call_id, event.owner, event, at)
        if state.run is not None:
            state.open_calls[call.call_id] = call


@meaning(ToolCallExecuting)
def _executing(state: SessionState, event: ToolCallExecuting, at: StoredEvent) -> None:
    call = state.calls.get(event.tool_call_id)
    if call is not None:
        call.executing = True
        call.executing_seq = at.seq
    elif state.run is not None:
        # Its start cannot be read, so its block looks untouched; it must not be taken up again.
        state.run.lost_effect = True


@meaning(ToolCallProgress)
def _progress(state: SessionState, event: ToolCallProgress, _at: StoredEvent) -> None:
    call = state.calls.get(event.tool_call_id)
    if call is not None and call.ended is None:
        call.progress.append(event)
        if len(call.progress) > PROGRESS_NOTES_MAX:
            del call.progress[0]


@meaning(ToolCallTerminated)
def _call_ended(state: SessionState, event: ToolCallTerminated, at: StoredEvent) -> None:
    call = state.calls.get(event.tool_call_id)
    if call is None:  # its start could not be read; the result still belongs to its block
        call = _take_up(state, event.tool_call_id, event.owner, None, at)
    if call.ended is None:
        call.ended = event
        call.ended_seq = at.seq
        call.progress = []  # the result says it all
        state.open_calls.pop(call.call_id, None)


@meaning(ToolOutputElided)
def _elided(state: SessionState, event: ToolOutputElided, _at: StoredEvent) -> None:
    call = state.calls.get(event.tool_call_id)
    if call is not None:
        call.elided = event


@meaning(ToolStdinSubmitted)
def _stdin(state: SessionState, event: ToolStdinSubmitted, _at: StoredEvent) -> None:
    call = state.calls.get(event.tool_call_id)
    if call is not None:
        call.stdin_bytes += event.byte_count


@meaning(ToolCallLinked)
def _linked(state: SessionState, event: ToolCallLinked, _at: StoredEvent) -> None:
    call = state.calls.get(event.tool_call_id)
    if call is not None:
        call.child = event.child_session_id


def _take_up(
    state: SessionState,
    call_id: CallId,
    owner: ToolCallOwner,
    started: ToolCallStarted | None,
    at: StoredEvent,
) -> CallState:
    turn = state.turns.get(owner.model_turn_seq)
    content = () if turn is None else turn.event.turn.content
    block = content[owner.content_index] if owner.content_index < len(content) else None
    if not isinstance(block, ToolCallBlock):  # the turn could not be read
        block = ToolCallBlock(model_call_id=owner.model_call_id, name="", arguments="")
    call = CallState(
        call_id=call_id,
        turn_seq=owner.model_turn_seq,
        content_index=owner.content_index,
        block=block,
        owner=owner,
        started=started,
        started_seq=at.seq,
        run_id=at.run_id,
    )
    state.calls[call_id] = call
    if turn is not None:
        turn.calls.append(call)
    return call


# --- internal agents ---------------------------------------------------------------------------


@meaning(InternalAgentStarted)
def _internal(state: SessionState, event: InternalAgentStarted, _at: StoredEvent) -> None:
    state.internal[event.internal_run_id] = event


@meaning(InternalAgentCompleted, InternalAgentCancelled, InternalAgentInterrupted)
def _internal_ended(
    state: SessionState,
    event: InternalAgentCompleted | InternalAgentCancelled | InternalAgentInterrupted,
    _at: StoredEvent,
) -> None:
    state.internal.pop(event.internal_run_id, None)


@meaning(InternalAgentFailed)
def _internal_failed(state: SessionState, event: InternalAgentFailed, _at: StoredEvent) -> None:
    state.internal.pop(event.internal_run_id, None)
    if event.kind == "context_compaction" and state.run is not None:
        state.run.compaction_failures += 1


# --- what only people are shown ----------------------------------------------------------------


@meaning(WorkerRecovered)
def _recovered(state: SessionState, event: WorkerRecovered, at: StoredEvent) -> None:
    _notice(state, event, at)
    if state.run is not None:
        state.run.recovered_seq = at.seq
        state.run.given_up |= event.resumed_run_id != state.run.run_id


@meaning(HistoryRepaired)
def _repaired(state: SessionState, event: HistoryRepaired, at: StoredEvent) -> None:
    _notice(state, event, at)
    state.last_repair = (event.kinds, event.counts)
    for place in event.isolated:
        state.isolated.setdefault(place, "")
    run = state.run
    if run is not None and run.attempt is not None and run.attempt.attempt_id == event.attempt_id:
        run.attempt.isolated = event.isolated


@meaning(TreeAdopted, TreeDrained, TreeEnded, LeaseWaited, InternalAgentFallback)
def _shown(state: SessionState, event: Event, at: StoredEvent) -> None:
    _notice(state, event, at)


@meaning(ModelReplayEvaluated)
def _nothing(_state: SessionState, _event: ModelReplayEvaluated, _at: StoredEvent) -> None:
    """For those who look into a log; no state follows from it."""
