"""The one meaning of events: SessionState, and the table of handlers that changes it."""

# The noun files are imported for what they enter into the table.
from ipc.fold import approvals, children, runs, session, transcript, usage
from ipc.fold.state import (
    ApprovalState,
    CallState,
    CheckpointEntry,
    ChildState,
    DelegationState,
    EndedRun,
    Entry,
    InjectedEntry,
    InstructionsEntry,
    NoticeEntry,
    OpenAttempt,
    OpenRun,
    RehydratedEntry,
    Rollup,
    SeedEntry,
    SessionState,
    SessionView,
    SkillEntry,
    Status,
    TitleState,
    TurnEntry,
    UsageState,
    UserEntry,
)
from ipc.fold.table import HANDLERS, OutOfOrder, apply, fold, meaning

NOUNS = (approvals, children, runs, session, transcript, usage)

__all__ = [
    "HANDLERS",
    "NOUNS",
    "ApprovalState",
    "CallState",
    "CheckpointEntry",
    "ChildState",
    "DelegationState",
    "EndedRun",
    "Entry",
    "InjectedEntry",
    "InstructionsEntry",
    "NoticeEntry",
    "OpenAttempt",
    "OpenRun",
    "OutOfOrder",
    "RehydratedEntry",
    "Rollup",
    "SeedEntry",
    "SessionState",
    "SessionView",
    "SkillEntry",
    "Status",
    "TitleState",
    "TurnEntry",
    "UsageState",
    "UserEntry",
    "apply",
    "fold",
    "meaning",
]
