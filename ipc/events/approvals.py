"""Events of approvals: the question, who judged it, the answer, and grants for a whole tree."""

from typing import ClassVar, Literal

from msgspec import Struct

from ipc.content import Count
from ipc.events.base import Event
from ipc.ids import ApprovalId, CallId, ClientId, Digest, Fingerprint, GrantId, SessionId
from ipc.rules import Action, Effect, Rule

FEEDBACK_CHARS_MAX = 4096
DOOM_LOOP_REPETITIONS_MIN = 4

ApprovalTrigger = Literal["permission_policy", "model_tool_approval", "internal_agent", "doom_loop"]
ApprovalVerdict = Literal["allow", "deny", "ask", "escalate"]
ApprovalOutcome = Literal["approved", "rejected", "cancelled", "expired"]
UserDecision = Literal["approve_once", "approve_tree", "reject", "cancel"]
RuleSource = Literal["session_overlay", "agent_document", "default"]
ResourceBoundary = Literal["exact", "command_prefix", "delegation_tree"]
ResourceLifetime = Literal["process_local", "restart_stable"]
DecisionSource = Literal[
    "policy",
    "model",
    "internal_agent",
    "permission_mode",
    "tree_grant",
    "user",
    "doom_loop_guard",
    "system",
]
ApprovalReasonCode = Literal[
    "policy_allowed",
    "policy_denied",
    "policy_requires_approval",
    "model_requested",
    "internal_agent_allowed",
    "internal_agent_denied",
    "auto_approve_n_rejected",
    "auto_approve_y_approved",
    "yolo_approved",
    "tree_grant_matched",
    "user_approved_once",
    "user_approved_tree",
    "user_rejected",
    "user_cancelled",
    "request_cancelled",
    "doom_loop_detected",
    "constraint_violation",
    "operation_changed",
    "prepared_capability_lost",
    "unsupported_platform",
    "approval_expired",
    "escalated",
    "unattended",
    "system_error",
]


class OperationResource(Struct, frozen=True, kw_only=True):
    """One thing an operation touches, how far that reaches, and how long it can be named."""

    label: str
    boundary: ResourceBoundary
    lifetime: ResourceLifetime


class PreparedOperationIdentity(Struct, frozen=True, kw_only=True):
    """What a prepared call is going to do, in the words its fingerprint is made of.

    `arguments_digest` is of the normalized arguments; the arguments are in the turn.
    """

    tool: str
    action: Action
    arguments_digest: Digest
    workspace: str
    label: str | None = None
    capabilities: tuple[str, ...] = ()
    resources: tuple[OperationResource, ...] = ()


class PolicyEvaluation(Struct, frozen=True, kw_only=True):
    """What the rules say about one label; no rule = nothing matched, which is a refusal."""

    action: Action
    effect: Effect
    source: RuleSource
    label: str | None = None
    rule: Rule | None = None


class ApprovalConstraints(Struct, frozen=True, kw_only=True):
    """Which answers a question takes, and until when (RFC 3339, None = for ever)."""

    allow_once: bool
    allow_tree_grant: bool
    cancellable: bool
    expires_at: str | None = None


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """A question about one tool call. `revision` starts at 1 and names the text being answered."""

    approval_id: ApprovalId
    tool_call_id: CallId
    revision: Count
    trigger: ApprovalTrigger
    operation: PreparedOperationIdentity
    operation_fingerprint: Fingerprint
    evaluations: tuple[PolicyEvaluation, ...]
    constraints: ApprovalConstraints


class ApprovalRequested(Event, frozen=True, kw_only=True, tag="approval_requested"):
    """A started call waits for a decision. After its tool_call_started, before it executes.

    One is open at a time in a run. Ends in exactly one approval_finalized.
    """

    request: ApprovalRequest


class EvaluatedDecision(Struct, frozen=True, kw_only=True):
    """A judgement that is not a person's."""

    decision: ApprovalVerdict
    source: DecisionSource
    reason_code: ApprovalReasonCode
    evaluations: tuple[PolicyEvaluation, ...] = ()


class ApprovalEvaluated(Event, frozen=True, kw_only=True, tag="approval_evaluated"):
    """Somebody other than a person judged a question. Any number while it is open."""

    approval_id: ApprovalId
    decision: EvaluatedDecision


class ApprovalEscalated(Event, frozen=True, kw_only=True, tag="approval_escalated"):
    """An open question goes to a person. Once at most, after its evaluations."""

    approval_id: ApprovalId
    reason_code: ApprovalReasonCode


class ApprovalUserDecisionRecorded(
    Event, frozen=True, kw_only=True, tag="approval_user_decision_recorded"
):
    """A person answered an open question. Once at most, before its approval_finalized."""

    chars_max: ClassVar[dict[str, int]] = {"feedback": FEEDBACK_CHARS_MAX}

    approval_id: ApprovalId
    client_response_id: ClientId
    decision: UserDecision
    feedback: str | None = None


class FinalDecision(Struct, frozen=True, kw_only=True):
    """How a question ended, and by whom. `feedback` is for the model."""

    outcome: ApprovalOutcome
    source: DecisionSource
    reason_code: ApprovalReasonCode
    feedback: str | None = None
    tree_grant_id: GrantId | None = None


class ApprovalFinalized(Event, frozen=True, kw_only=True, tag="approval_finalized"):
    """A question is closed. Exactly one for each approval_requested; the call goes on after it."""

    approval_id: ApprovalId
    decision: FinalDecision


class ApprovalCancelled(Event, frozen=True, kw_only=True, tag="approval_cancelled"):
    """An open question lost its sense. Right before its approval_finalized "cancelled"."""

    approval_id: ApprovalId
    reason_code: ApprovalReasonCode


class ApprovalDoomLoopDetected(Event, frozen=True, kw_only=True, tag="approval_doom_loop_detected"):
    """The same operation was asked for too often (4 or more). Before its approval_finalized."""

    approval_id: ApprovalId
    operation_fingerprint: Fingerprint
    repetitions: Count


class TreeGrant(Struct, frozen=True, kw_only=True):
    """A permission for every session of a tree; `created_at` is RFC 3339."""

    grant_id: GrantId
    approval_id: ApprovalId
    root_session_id: SessionId
    created_at: str
    operation_fingerprint: Fingerprint
    capabilities: tuple[str, ...] = ()
    resources: tuple[OperationResource, ...] = ()


class TreeApprovalGrantCommitted(
    Event, frozen=True, kw_only=True, tag="tree_approval_grant_committed"
):
    """A person's approve_tree became a grant. Before the approval_finalized that names it."""

    grant: TreeGrant
