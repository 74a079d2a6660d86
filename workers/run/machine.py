"""What a run does next: a function of the fold and of nothing else, so that another worker goes on.

A run lives through steps. Each step appends the events that make the next call of `next_step`
answer differently; a worker that dies between two steps leaves a log from which the same answer
comes out again (design: "A run that was open when its worker died").
"""

from typing import Final

from msgspec import Struct

from ipc.content import FinishReason, TextBlock, ToolCallBlock, ToolError
from ipc.events import (
    ApprovalCancelled,
    ApprovalFinalized,
    AttemptAbandoned,
    FinalDecision,
    InternalAgentCancelled,
    InternalAgentInterrupted,
    InternalAgentStarted,
    ModelErrorSummary,
    Payload,
    ResolvedModel,
    RunCancelled,
    RunFailed,
    RunInterrupted,
    ToolCallTerminated,
)
from ipc.fold import (
    ApprovalState,
    CallState,
    OpenRun,
    SessionView,
    Setback,
    TurnEntry,
    UserEntry,
)
from ipc.ids import AttemptId, CallId
from workers.run import retry
from workers.run.history import will_run
from workers.run.replay import paused

PAUSES_MAX: Final = 16  # turns in a row that a provider breaks off to be sent back to it

_ENDS: Final[dict[FinishReason, str]] = {
    "refused": "the model refused to answer; say it differently",
    "error": "the model's turn ended in an error",
    "aborted": "the model's turn was aborted",
    "timeout": "the model's turn timed out",
    "cancelled": "the model's turn was cancelled by its provider",
}  # finish reasons of a turn that `history` leaves out


class Rest(Struct, frozen=True):
    """There is no open run."""


class Abandon(Struct, frozen=True):
    """An attempt is open that nobody works on: its worker died before its first word."""

    attempt_id: AttemptId


class Submit(Struct, frozen=True):
    """A boundary: every pending input becomes part of the history, oldest first."""

    seqs: tuple[int, ...]


class TakeTurn(Struct, frozen=True):
    """Ask the model."""


class Retry(Struct, frozen=True):
    """Ask the same model again, once what is left of the pause is over."""

    setback: Setback


class FallBack(Struct, frozen=True):
    """Go on with the model at `index` of the run's suffix, for good."""

    index: int
    error: ModelErrorSummary


class StartCalls(Struct, frozen=True):
    """Take up the calls of the last turn that were not yet, in its order: (index, block)."""

    turn: TurnEntry
    asked: tuple[tuple[int, ToolCallBlock], ...]


class RunCalls(Struct, frozen=True):
    """Decide about the started calls, then run those that may."""

    turn: TurnEntry


class Complete(Struct, frozen=True):
    """The model has nothing more to do and nobody has anything more to say."""

    final_text: str


class GiveUp(Struct, frozen=True):
    """The last turn can't be built upon, or no model is left to ask: the run fails."""

    error: str
    model_error: ModelErrorSummary | None = None
    resolved_model: ResolvedModel | None = None


class StopAtLimit(Struct, frozen=True):
    """The run has had as many turns as it may have."""

    turns: int


End = RunCancelled | RunFailed | RunInterrupted
Asking = TakeTurn | Retry | FallBack
Step = Rest | Abandon | Submit | Asking | StartCalls | RunCalls | Complete | GiveUp | StopAtLimit


def next_step(state: SessionView, max_turns: int | None = None) -> Step:
    """The next step of the open run; `max_turns` None = no limit."""
    run = state.run
    if run is None:
        return Rest()
    if run.attempt is not None:
        return Abandon(run.attempt.attempt_id)
    if run.setback is not None and run.setback.retry_in_ms is None:
        return _without_a_retry(run, run.setback.error)
    turn = run.last_turn
    if turn is not None:
        unstarted = turn.unstarted() if will_run(turn) else []
        if unstarted:
            return StartCalls(turn, tuple(unstarted))
        if turn.open_calls():
            return RunCalls(turn)
        if not turn.calls and (error := _ENDS.get(turn.event.turn.finish_reason)) is not None:
            return GiveUp(error)
        if not _is_paused(turn):
            if state.pending:
                return Submit(tuple(state.pending))
            if not turn.asked() and not _spoken_since(state, turn):
                return Complete(final_text(turn))
        elif _pauses(state) > PAUSES_MAX:
            return GiveUp(f"the model broke off more than {PAUSES_MAX} turns in a row to go on")
    if max_turns is not None and run.turns >= max_turns:
        return StopAtLimit(run.turns)
    return TakeTurn() if run.setback is None else Retry(run.setback)


def _without_a_retry(run: OpenRun, error: ModelErrorSummary) -> FallBack | GiveUp:
    """What follows a failure after which the model in use is not asked again."""
    index = retry.fallback(error, run.models, run.fallback_index)
    if index is not None:
        return FallBack(index, error)
    model = run.models[run.fallback_index]
    words = retry.last_words(model.model, error, run.attempts, run.fallbacks + 1)
    return GiveUp(words, error, model.resolved())


def _is_paused(turn: TurnEntry) -> bool:
    """Whether a turn is to be sent back as it is, for its provider to go on with it.

    Nothing may come between, so inputs wait.
    """
    return paused(turn.event.turn) and not turn.asked()


def _pauses(state: SessionView) -> int:
    """How many of the newest turns are paused, in a row."""
    count = 0
    for entry in reversed(state.entries):
        if isinstance(entry, UserEntry) or (isinstance(entry, TurnEntry) and not _is_paused(entry)):
            break
        count += isinstance(entry, TurnEntry)
    return count


def _spoken_since(state: SessionView, turn: TurnEntry) -> bool:
    """Whether an input of a person entered the history after `turn`."""
    for entry in reversed(state.entries):
        if entry.seq <= turn.seq:
            return False
        if isinstance(entry, UserEntry):
            return True
    return False


def final_text(turn: TurnEntry) -> str:
    """The text of a turn, its blocks joined as they were streamed."""
    content = turn.event.turn.content
    return "".join(block.text for block in content if isinstance(block, TextBlock))


def closing(
    state: SessionView, run: OpenRun, end: End, ended: frozenset[CallId] = frozenset()
) -> tuple[Payload, ...]:
    """What ends a run before its time: all that is open in it ends first, each exactly once.

    `ended` are calls whose end, with that of the question about them, stands right before it in
    the same append.
    """
    events: list[Payload] = []
    if run.attempt is not None:
        events.append(AttemptAbandoned(attempt_id=run.attempt.attempt_id))
    # A title may be found after the run that it names; the other helpers work for the run.
    helpers = [one for one in state.internal.values() if one.kind != "session_title"]
    events += [_stopped(helper, end) for helper in helpers]
    for approval in state.open_approvals():
        if approval.call_id not in ended:
            events += _withdrawn(approval)
    # All that are open, not those of the last turn alone: the line of a turn may be unreadable.
    events += [cut_off(call, end) for key, call in state.open_calls.items() if key not in ended]
    return (*events, end)


def _stopped(helper: InternalAgentStarted, end: End) -> Payload:
    kind = InternalAgentInterrupted if isinstance(end, RunInterrupted) else InternalAgentCancelled
    return kind(
        kind=helper.kind,
        internal_run_id=helper.internal_run_id,
        invocation_id=helper.invocation_id,
        reason="its run ended",
    )


def _withdrawn(approval: ApprovalState) -> tuple[Payload, ...]:
    approval_id = approval.request.approval_id
    decision = FinalDecision(outcome="cancelled", source="system", reason_code="request_cancelled")
    final = ApprovalFinalized(approval_id=approval_id, decision=decision)
    if approval.cancelled:  # a crash came between the two
        return (final,)
    return (ApprovalCancelled(approval_id=approval_id, reason_code="request_cancelled"), final)


def cut_off(call: CallState, end: End) -> ToolCallTerminated:
    """The end of a call that its run took with it; the model is told whether it had begun."""
    begun = "it had begun" if call.executing else "it had not begun"
    message = f"the run ended while this call was open; {begun}"
    return ToolCallTerminated(
        tool_call_id=call.call_id,
        owner=call.owner,
        outcome="interrupted" if isinstance(end, RunInterrupted) else "cancelled",
        error=ToolError(code="run_ended", message=message),
    )
