"""Approvals: questions, their answers, and the grants that answer for a whole tree."""

from ipc.events import (
    ApprovalCancelled,
    ApprovalDoomLoopDetected,
    ApprovalEscalated,
    ApprovalEvaluated,
    ApprovalFinalized,
    ApprovalRequested,
    ApprovalUserDecisionRecorded,
    StoredEvent,
    TreeApprovalGrantCommitted,
)
from ipc.fold.state import ApprovalState, SessionState
from ipc.fold.table import meaning


@meaning(ApprovalRequested)
def _requested(state: SessionState, event: ApprovalRequested, at: StoredEvent) -> None:
    key = event.request.approval_id
    approval = ApprovalState(event.request, at.seq, at.run_id)
    state.approvals[key] = approval
    if state.run is not None:
        state.waiting[key] = approval
    else:
        approval.closed_seq = at.seq  # its run cannot be read: nobody waits for the answer


@meaning(ApprovalEvaluated, ApprovalDoomLoopDetected)
def _judged(
    state: SessionState, event: ApprovalEvaluated | ApprovalDoomLoopDetected, _at: StoredEvent
) -> None:
    approval = state.approvals.get(event.approval_id)
    if approval is not None:
        approval.history.append(event)


@meaning(ApprovalEscalated)
def _escalated(state: SessionState, event: ApprovalEscalated, _at: StoredEvent) -> None:
    approval = state.approvals.get(event.approval_id)
    if approval is not None:
        approval.escalated = True
        approval.history.append(event)


@meaning(ApprovalUserDecisionRecorded)
def _answered(state: SessionState, event: ApprovalUserDecisionRecorded, _at: StoredEvent) -> None:
    state.response_ids.setdefault(event.client_response_id, event.approval_id)
    approval = state.approvals.get(event.approval_id)
    if approval is not None:
        approval.answer = event


@meaning(ApprovalCancelled)
def _cancelled(state: SessionState, event: ApprovalCancelled, _at: StoredEvent) -> None:
    approval = state.approvals.get(event.approval_id)
    if approval is not None:
        approval.cancelled = True  # its approval_finalized comes next
        approval.history.append(event)


@meaning(ApprovalFinalized)
def _finalized(state: SessionState, event: ApprovalFinalized, at: StoredEvent) -> None:
    approval = state.approvals.get(event.approval_id)
    if approval is not None and approval.finalized is None:
        approval.finalized = event
        approval.closed_seq = at.seq
        state.waiting.pop(event.approval_id, None)


@meaning(TreeApprovalGrantCommitted)
def _granted(state: SessionState, event: TreeApprovalGrantCommitted, _at: StoredEvent) -> None:
    state.grants[event.grant.grant_id] = event.grant
