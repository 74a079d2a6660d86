"""What a headless run came to: its exit code, and the summary that is always the last record."""

import shlex
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from cookie.cli import exits
from cookie.models.compile import WHOLE
from ipc.events import (
    PreparedOperationIdentity,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunInterrupted,
)
from ipc.fold import SessionState
from ipc.ids import RunId, SessionId
from ipc.methods.records import UsageRollup

Ended = RunCompleted | RunFailed | RunCancelled | RunInterrupted
Status = Literal["completed", "failed", "cancelled", "interrupted"]
Cancellation = Literal["permission", "user"]

# Faults of words that are wrong wherever they are said. A name that is well-formed and not known
# here (a model, an agent, a session) is a matter of the set-up instead.
USAGE_CODES: Final = frozenset({"bad_id", "bad_allowed_tool", "bad_permission_mode"})

# Reasons of run_cancelled and run_interrupted that mean something to a script.
REASON_PERMISSION: Final = "permission"
REASON_BUDGET: Final = "budget"
_LIMITS: Final = {"timeout": "--timeout", "max_turns": "--max-turns"}


class Summary(Struct, frozen=True, kw_only=True, tag_field="type", tag="summary"):
    """The last JSONL record of a run (spec 1.1)."""

    session_id: SessionId
    run_id: RunId | None
    status: Status
    exit_code: int
    turns: int
    approval_rejections: int
    event_recoveries: int
    cancellation: Cancellation | None
    final_text: str
    error: str | None
    usage: UsageRollup


class Verdict(NamedTuple):
    """What a run came to; `error` is one line on why it did not complete."""

    status: Status
    exit_code: int
    error: str | None


def judge(ended: Ended, state: SessionState) -> Verdict:
    """What a terminal event means for a script and for a person (spec 1.1)."""
    match ended:
        case RunCompleted():
            return Verdict("completed", exits.COMPLETED, None)
        case RunFailed(error=error):
            return Verdict("failed", exits.FAILED, error)
        case RunCancelled(reason=reason) if reason == REASON_PERMISSION:
            return Verdict("cancelled", exits.PERMISSION, permission_advice(state))
        case RunCancelled(reason=reason):
            code = exits.BUDGET if reason == REASON_BUDGET else exits.CANCELLED
            return Verdict("cancelled", code, cancelled(reason))
        case RunInterrupted(reason=reason):
            return Verdict("interrupted", exits.CANCELLED, _because("interrupted", reason))


def cancellation(ended: Ended) -> Cancellation | None:
    """Who stopped the run: a rule, or the person and the limits that act for the person."""
    if not isinstance(ended, RunCancelled):
        return None
    return "permission" if ended.reason == REASON_PERMISSION else "user"


def cancelled(reason: str | None) -> str:
    """One line on a run that was told to stop, and the flag that would have let it go on."""
    flag = _LIMITS.get(reason or "")
    return _because("cancelled", reason) + (f" (raise {flag} to allow more)" if flag else "")


def permission_advice(state: SessionState) -> str:
    """One line on what was not allowed, and the flags that would allow it."""
    for approval in reversed(state.approvals.values()):
        if approval.finalized is None or approval.finalized.decision.outcome == "approved":
            continue
        operation = approval.request.operation
        label = f" {operation.label!r}" if operation.label else ""
        return (
            f"stopped: {operation.tool}{label} must be asked for and nobody can answer here; "
            f"allow it with {_allowing(operation)}--permission-mode yolo"
        )
    return "stopped by a permission"


def _allowing(operation: PreparedOperationIdentity) -> str:
    """The --allowed-tools that lets a call pass, if there is one."""
    name: str = operation.action
    if name == "skill":
        name = f"skill:{operation.label}"
    elif name not in WHOLE:
        return ""
    return f"--allowed-tools {shlex.quote(name)}, or everything with "


def _because(what: str, reason: str | None) -> str:
    return f"{what}: {reason or 'no reason given'}"
