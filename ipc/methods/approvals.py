"""Approvals: which questions are open, and their answers."""

from typing import Literal

from msgspec import Struct

from ipc.content import Count
from ipc.events.approvals import ApprovalRequest, FinalDecision, TreeGrant, UserDecision
from ipc.ids import ApprovalId, ClientId, Fingerprint, RunId, SessionId

ApprovalStatus = Literal["pending", "approved", "rejected", "cancelled", "expired"]


class ApprovalRecord(Struct, frozen=True, kw_only=True):
    """A question, where it was asked, and how it ended if it did."""

    session_id: SessionId
    root_session_id: SessionId
    request: ApprovalRequest
    status: ApprovalStatus
    requested_at: str  # RFC 3339
    title: str  # what the call would do, for a person
    run_id: RunId | None = None
    escalated: bool = False  # it waits for a person
    decision: FinalDecision | None = None


class ApprovalListParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The questions of a whole tree."""

    root_session_id: SessionId
    status: ApprovalStatus | None = None


class ApprovalListResult(Struct, frozen=True, kw_only=True):
    """Questions in the order they were asked, and the grants in force."""

    approvals: tuple[ApprovalRecord, ...]
    tree_grants: tuple[TreeGrant, ...] = ()


class ApprovalInboxResult(Struct, frozen=True, kw_only=True):
    """Every open question of every tree."""

    approvals: tuple[ApprovalRecord, ...]


class ApprovalFeedback(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the model is told; at most 4096 characters."""

    message: str


class ApprovalRespondParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answer the question that was looked at: its revision and fingerprint must still hold."""

    session_id: SessionId
    approval_id: ApprovalId
    request_revision: Count
    operation_fingerprint: Fingerprint
    client_response_id: ClientId
    decision: UserDecision
    feedback: ApprovalFeedback | None = None


class ApprovalRespondResult(Struct, frozen=True, kw_only=True):
    """The question with its answer, which is on disk."""

    approval: ApprovalRecord
    client_response_id: ClientId
