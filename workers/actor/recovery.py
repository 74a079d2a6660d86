"""What becomes of a session that a dead worker left open: the run goes on, or it ends in order."""

from typing import Final

from msgspec import Struct

from ipc.content import ToolError
from ipc.events import (
    OUTCOME_UNKNOWN,
    ApprovalCancelled,
    ApprovalFinalized,
    AttemptAbandoned,
    FinalDecision,
    InternalAgentInterrupted,
    Payload,
    RunInterrupted,
    ToolCallTerminated,
    WorkerRecovered,
)
from ipc.fold import ApprovalState, CallState, OpenRun, SessionView
from ipc.ids import AttemptId, RunId

INTERRUPTED: Final = "interrupted by daemon restart"  # the words of spec 1.6
UNKNOWN: Final = (
    "The worker died while this call was executing. Whether it had its effect is not known. "
    "It was not run again: look at what is there before you repeat it."
)
NOT_RUN: Final = "The worker died before this call ran. It had no effect."


class Facts(Struct, frozen=True, kw_only=True):
    """What the log cannot say about the worker that was here before."""

    cause: str  # how it ended, as far as it is known
    exit_status: int | None = None  # of the process; minus the signal's number when one killed it
    died: bool = False  # known to have died, so that the log shall say so even when idle
    damaged_tail: bool = False  # whole lines at the end of the log cannot be read


class Recovery(Struct, frozen=True, kw_only=True):
    """What to append before anything else, in one append, and the run to go on with."""

    events: tuple[Payload, ...]
    resume: RunId | None = None
    why: str = ""  # why the open run cannot go on, for people


def recover(state: SessionView, facts: Facts) -> Recovery:
    """Close what a dead worker left open (processes.md, "A run that was open ...").

    A run goes on when nothing of it was in the world's hands; otherwise each of its open calls
    and questions gets its one end, and so does the run. Deciding twice, because a recovery
    died too, comes to the same.
    """
    run = state.run
    helpers = _internal(state)
    if run is None:
        told = facts.died or bool(helpers)
        return Recovery(events=(_recovered(facts), *helpers) if told else ())
    abandoned = () if run.attempt is None else (_abandoned(run.attempt.attempt_id),)
    why = why_not(state, run, damaged_tail=facts.damaged_tail)
    if why is None:
        questions = [a for a in state.open_approvals() if a.cancelled]
        return Recovery(
            events=(
                _recovered(facts, run.run_id),
                *abandoned,
                *helpers,
                *(_closed(approval) for approval in questions),
            ),
            resume=run.run_id,
        )
    questions = list(state.open_approvals())
    return Recovery(
        events=(
            _recovered(facts),
            *abandoned,
            *helpers,
            *(event for approval in questions for event in _cancelled(approval)),
            *(_ended(call) for call in state.open_calls.values()),
            RunInterrupted(reason=f"{INTERRUPTED}: {why}"),
        ),
        why=why,
    )


def why_not(state: SessionView, run: OpenRun, *, damaged_tail: bool = False) -> str | None:
    """Why an open run cannot be resumed; None when it can."""
    if run.given_up:
        return "an earlier recovery had given it up"
    if run.lost_effect or damaged_tail or state.gap_seq > run.started_seq:
        return "a part of its log cannot be read"
    if run.attempt is not None and not run.attempt.silent:
        return "the model had begun to answer"
    for call in state.open_calls.values():
        if call.executing and not _in_a_childs_hands(state, call):
            return f"{call.name or 'a tool'} was executing"
    return None


def _in_a_childs_hands(state: SessionView, call: CallState) -> bool:
    """Whether a call does nothing but wait for a child session, which lives its own life."""
    return call.child is not None or call.call_id in state.delegation_of


def _recovered(facts: Facts, resumed: RunId | None = None) -> WorkerRecovered:
    return WorkerRecovered(cause=facts.cause, exit_status=facts.exit_status, resumed_run_id=resumed)


def _abandoned(attempt_id: AttemptId) -> AttemptAbandoned:
    return AttemptAbandoned(attempt_id=attempt_id)


def _internal(state: SessionView) -> tuple[InternalAgentInterrupted, ...]:
    return tuple(
        InternalAgentInterrupted(
            kind=started.kind,
            internal_run_id=started.internal_run_id,
            invocation_id=started.invocation_id,
            reason=INTERRUPTED,
        )
        for started in state.internal.values()
    )


def _cancelled(approval: ApprovalState) -> tuple[ApprovalCancelled | ApprovalFinalized, ...]:
    if approval.cancelled:
        return (_closed(approval),)
    request = approval.request
    return (
        ApprovalCancelled(approval_id=request.approval_id, reason_code="request_cancelled"),
        _closed(approval),
    )


def _closed(approval: ApprovalState) -> ApprovalFinalized:
    return ApprovalFinalized(
        approval_id=approval.request.approval_id,
        decision=FinalDecision(
            outcome="cancelled", source="system", reason_code="request_cancelled"
        ),
    )


def _ended(call: CallState) -> ToolCallTerminated:
    error = (
        ToolError(code=OUTCOME_UNKNOWN, message=UNKNOWN)
        if call.executing
        else ToolError(code="interrupted", message=NOT_RUN)
    )
    return ToolCallTerminated(
        tool_call_id=call.call_id, owner=call.owner, outcome="interrupted", error=error
    )
