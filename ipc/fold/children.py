"""Children: delegations as the parent's log tells them, and the sessions they led to."""

from ipc.events import (
    DelegateChildTerminated,
    DelegateFinished,
    DelegateFinishedV2,
    DelegateQueued,
    DelegationFinished,
    DelegationReserved,
    DelegationRunAttached,
    DelegationRunStarted,
    DelegationStarted,
    StoredEvent,
)
from ipc.fold.state import ChildState, DelegationState, NoticeEntry, SessionState
from ipc.fold.table import meaning
from ipc.ids import SessionId


@meaning(DelegationReserved)
def _reserved(state: SessionState, event: DelegationReserved, at: StoredEvent) -> None:
    reservation = event.reservation
    state.delegations[reservation.invocation_id] = DelegationState(event, at.seq)
    state.delegation_of[reservation.parent_tool_call_id] = reservation.invocation_id
    child = _child(state, reservation.child_session_id)
    child.invocation_id = reservation.invocation_id
    child.status = "reserved"
    child.position = child.preview = child.total_lines = None


@meaning(DelegationStarted)
def _started(state: SessionState, event: DelegationStarted, _at: StoredEvent) -> None:
    delegation = state.delegations.get(event.invocation_id)
    if delegation is not None and delegation.phase == "reserved":
        delegation.phase = "started"


@meaning(DelegationRunStarted, DelegationRunAttached)
def _running(
    state: SessionState, event: DelegationRunStarted | DelegationRunAttached, _at: StoredEvent
) -> None:
    delegation = state.delegations.get(event.invocation_id)
    if delegation is not None and delegation.phase != "finished":
        delegation.phase = "running"
        delegation.child_run_id = event.child_run_id
        child = _child(state, delegation.reserved.reservation.child_session_id)
        child.status = "running"
        child.position = None


@meaning(DelegationFinished)
def _finished(state: SessionState, event: DelegationFinished, _at: StoredEvent) -> None:
    delegation = state.delegations.get(event.invocation_id)
    if delegation is not None and delegation.phase != "finished":
        delegation.phase = "finished"
        delegation.status = event.status
        delegation.reason = event.reason
    child = _child(state, event.child_session_id)
    if child.invocation_id in (None, event.invocation_id):
        child.status = event.status


@meaning(DelegateQueued)
def _queued(state: SessionState, event: DelegateQueued, _at: StoredEvent) -> None:
    child = _child(state, event.session_id)
    child.status = "queued"
    child.position = event.position


@meaning(DelegateFinished, DelegateFinishedV2)
def _told(
    state: SessionState, event: DelegateFinished | DelegateFinishedV2, at: StoredEvent
) -> None:
    child = _child(state, event.session_id)
    child.status = event.status
    child.preview = event.preview
    child.total_lines = event.total_lines
    state.entries.append(NoticeEntry(at.seq, at.run_id, event))


@meaning(DelegateChildTerminated)
def _terminated(state: SessionState, event: DelegateChildTerminated, at: StoredEvent) -> None:
    state.entries.append(NoticeEntry(at.seq, at.run_id, event))


def _child(state: SessionState, session_id: SessionId) -> ChildState:
    child = state.children.get(session_id)
    if child is None:
        child = state.children[session_id] = ChildState(session_id)
    return child
