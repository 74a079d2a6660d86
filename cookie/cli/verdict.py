"""What a headless run came to: its exit code, and the summary that is always the last record."""

from typing import Final, Literal

from msgspec import Struct

from cookie.cli import exits
from ipc.events import (
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunInterrupted,
)
from ipc.fold import SessionState
from ipc.ids import RunId, SessionId
from ipc.methods import UsageRollup

Ended = RunCompleted | RunFailed | RunCancelled | RunInterrupted
Cancellation = Literal["permission", "user"]

# Faults of a command line that can be seen to be wrong before anything is started.
USAGE_CODES: Final = frozenset({"bad_id", "bad_allowed_tool", "bad_permission_mode"})

# Reasons of run_cancelled and run_interrupted that mean something to a script.
REASON_PERMISSION: Final = "permission"
REASON_BUDGET: Final = "budget"


class Summary(Struct, frozen=True, kw_only=True, tag_field="type", tag="summary"):
    """The last JSONL record of a run (spec 1.1)."""

    session_id: SessionId
    run_id: RunId | None
    status: Literal["completed", "failed", "cancelled", "interrupted"]
    exit_code: int
    turns: int
    approval_rejections: int
    event_recoveries: int
    cancellation: Cancellation | None
    final_text: str
    error: str | None
    usage: UsageRollup


def exit_code(ended: Ended) -> int:
    """The process's exit code for a terminal event (spec 1.1)."""
    match ended:
        case RunCompleted():
            return exits.COMPLETED
        case RunFailed():
            return exits.FAILED
        case RunCancelled(reason=reason) if reason == REASON_PERMISSION:
            return exits.PERMISSION
        case RunCancelled(reason=reason) if reason == REASON_BUDGET:
            return exits.BUDGET
        case RunCancelled() | RunInterrupted():
            return exits.CANCELLED


def status(ended: Ended) -> Literal["completed", "failed", "cancelled", "interrupted"]:
    """The run's status as the summary names it."""
    match ended:
        case RunCompleted():
            return "completed"
        case RunFailed():
            return "failed"
        case RunCancelled():
            return "cancelled"
        case RunInterrupted():
            return "interrupted"


def cancellation(ended: Ended) -> Cancellation | None:
    """Who stopped the run: a rule, or the person and the limits that act for the person."""
    if not isinstance(ended, RunCancelled):
        return None
    return "permission" if ended.reason == REASON_PERMISSION else "user"


def trouble(ended: Ended) -> str | None:
    """One line on why a run did not complete; None when it did."""
    match ended:
        case RunCompleted():
            return None
        case RunFailed(error=error):
            return error
        case RunCancelled(reason=reason):
            return f"cancelled: {reason or 'no reason given'}"
        case RunInterrupted(reason=reason):
            return f"interrupted: {reason or 'no reason given'}"


def permission_advice(state: SessionState) -> str:
    """One line on what was not allowed, and the flags that would allow it."""
    for approval in reversed(state.approvals.values()):
        operation = approval.request.operation
        label = f" {operation.label!r}" if operation.label else ""
        return (
            f"stopped: {operation.tool}{label} must be asked for and nobody can answer here; "
            f"allow it with --allowed-tools {operation.action}, or everything with "
            "--permission-mode yolo"
        )
    return "stopped by a permission"
