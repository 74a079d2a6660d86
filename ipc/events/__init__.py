"""Every durable event: one frozen struct each, their union and their envelope (spec 1.4)."""

from typing import Annotated, Final, get_args

from msgspec import Meta, Struct

from ipc.events.approvals import (
    DOOM_LOOP_REPETITIONS_MIN,
    FEEDBACK_CHARS_MAX,
    ApprovalCancelled,
    ApprovalConstraints,
    ApprovalDoomLoopDetected,
    ApprovalEscalated,
    ApprovalEvaluated,
    ApprovalFinalized,
    ApprovalOutcome,
    ApprovalReasonCode,
    ApprovalRequest,
    ApprovalRequested,
    ApprovalTrigger,
    ApprovalUserDecisionRecorded,
    ApprovalVerdict,
    DecisionSource,
    EvaluatedDecision,
    FinalDecision,
    OperationResource,
    PolicyEvaluation,
    PreparedOperationIdentity,
    ResourceBoundary,
    ResourceLifetime,
    RuleSource,
    TreeApprovalGrantCommitted,
    TreeGrant,
    UserDecision,
)
from ipc.events.base import (
    AGENT_SNAPSHOT_SCHEMA,
    AgentMode,
    AgentSnapshot,
    DelegationPolicy,
    DocumentSource,
    Event,
    FallbackEntry,
    FrozenModelBinding,
    ModelCapabilities,
    ModelSelection,
    Outcome,
    Pricing,
    ResolvedModel,
    Revisions,
    RunSelection,
)
from ipc.events.context import (
    Checkpoint,
    CheckpointBoundaries,
    CheckpointBudgets,
    ContextCheckpointCommitted,
    ContextCompactionAutoDisabled,
    InternalSummary,
    NativeWindow,
)
from ipc.events.delegation import (
    DelegateChildTerminated,
    DelegateFinished,
    DelegateFinishedV2,
    DelegateQueued,
    DelegationFinished,
    DelegationRequest,
    DelegationReservation,
    DelegationReserved,
    DelegationRunAttached,
    DelegationRunStarted,
    DelegationStarted,
    StagedSkill,
)
from ipc.events.inputs import (
    AgentMdEntry,
    AgentMdLoaded,
    AgentMdSkipped,
    ContextRehydrated,
    DelegatedContextSeeded,
    MessageInjected,
    RehydratedFile,
    Role,
    SeedTurn,
    SkillInvocationNoted,
    SkillLoaded,
    UserInputAdmitted,
    UserInputApplied,
    UserInputRecalled,
    UserInputRecalledV2,
    UserInputSubmitted,
    UserInputTransformed,
)
from ipc.events.internal import (
    InternalAgentCancelled,
    InternalAgentCompleted,
    InternalAgentFailed,
    InternalAgentFallback,
    InternalAgentInterrupted,
    InternalAgentStarted,
    InternalAgentUsageRecorded,
    InternalCall,
    InternalFailure,
    InternalKind,
    InternalResult,
)
from ipc.events.models import (
    RESPONSE_BODY_CHARS_MAX,
    AttemptAbandoned,
    ModelAttemptStarted,
    ModelErrorKind,
    ModelErrorStage,
    ModelErrorSummary,
    ModelFallback,
    ModelReplayEvaluated,
    ModelRequestPrepared,
    ModelTurn,
    ModelTurnCommitted,
    ModelUsageRecorded,
    ReasoningDelta,
    ReplayDecision,
    ReplayDisposition,
    TextDelta,
)
from ipc.events.plugins import (
    PLUGIN_EVENT_BYTES_MAX,
    PLUGIN_EVENT_NAME_CHARS_MAX,
    PLUGIN_EVENT_PAYLOAD_BYTES_MAX,
    PluginDiagnostic,
    PluginDiagnosticKind,
    PluginEventAdded,
)
from ipc.events.runs import (
    RUN_ERROR_CHARS_MAX,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunInterrupted,
    RunStarted,
)
from ipc.events.sessions import (
    DelegatedOrigin,
    DelegatedTitle,
    FallbackTitle,
    InternalAgentTitle,
    PermissionOverlay,
    RootOrigin,
    SessionCreated,
    SessionOrigin,
    SessionPermissionOverlaySet,
    SessionReverted,
    SessionTitleCommitted,
    TitleChange,
    UserClearedTitle,
    UserResetTitle,
    UserSetTitle,
)
from ipc.events.tools import (
    OUTCOME_UNKNOWN,
    PROGRESS_CHUNK_CHARS_MAX,
    PROGRESS_MESSAGE_CHARS_MAX,
    OperationDigest,
    RetainedOutput,
    ToolCallExecuting,
    ToolCallLinked,
    ToolCallOwner,
    ToolCallProgress,
    ToolCallStarted,
    ToolCallTerminated,
    ToolOutputElided,
    ToolPresentation,
    ToolStdinSubmitted,
)
from ipc.events.trees import (
    BlockPlace,
    BudgetPaused,
    BudgetResumed,
    BudgetUnit,
    HistoryRepaired,
    LeaseWaited,
    TreeAdopted,
    TreeDrained,
    TreeEnded,
    WorkerRecovered,
)
from ipc.ids import RunId, SessionId

SEQ_MAX: Final = 2**53 - 1  # the largest integer that every JSON reader keeps exact

Payload = (
    SessionCreated
    | SessionReverted
    | SessionPermissionOverlaySet
    | SessionTitleCommitted
    | UserInputAdmitted
    | UserInputSubmitted
    | UserInputRecalled
    | UserInputRecalledV2
    | UserInputTransformed
    | UserInputApplied
    | MessageInjected
    | DelegatedContextSeeded
    | SkillLoaded
    | SkillInvocationNoted
    | ContextRehydrated
    | AgentMdLoaded
    | AgentMdSkipped
    | RunStarted
    | RunCompleted
    | RunFailed
    | RunCancelled
    | RunInterrupted
    | ModelAttemptStarted
    | ModelRequestPrepared
    | TextDelta
    | ReasoningDelta
    | AttemptAbandoned
    | ModelReplayEvaluated
    | ModelTurnCommitted
    | ModelUsageRecorded
    | ModelFallback
    | ToolCallStarted
    | ToolCallExecuting
    | ToolCallProgress
    | ToolCallTerminated
    | ToolOutputElided
    | ToolStdinSubmitted
    | ToolCallLinked
    | DelegationReserved
    | DelegationStarted
    | DelegationRunStarted
    | DelegationRunAttached
    | DelegationFinished
    | DelegateQueued
    | DelegateFinished
    | DelegateFinishedV2
    | DelegateChildTerminated
    | ApprovalRequested
    | ApprovalEvaluated
    | ApprovalEscalated
    | ApprovalUserDecisionRecorded
    | ApprovalFinalized
    | ApprovalCancelled
    | ApprovalDoomLoopDetected
    | TreeApprovalGrantCommitted
    | InternalAgentStarted
    | InternalAgentUsageRecorded
    | InternalAgentCompleted
    | InternalAgentFailed
    | InternalAgentCancelled
    | InternalAgentInterrupted
    | InternalAgentFallback
    | ContextCheckpointCommitted
    | ContextCompactionAutoDisabled
    | PluginEventAdded
    | PluginDiagnostic
    | WorkerRecovered
    | TreeAdopted
    | TreeDrained
    | TreeEnded
    | BudgetPaused
    | BudgetResumed
    | LeaseWaited
    | HistoryRepaired
)

EVENT_TYPES: Final[tuple[type[Event], ...]] = get_args(Payload)
DELTAS: Final[frozenset[type[Event]]] = frozenset({TextDelta, ReasoningDelta, ToolCallProgress})


class StoredEvent(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """The envelope of one line. `seq` rises strictly from 1; `timestamp` is RFC 3339 in UTC.

    A timestamp has milliseconds and ends in `Z`; `run_id` is present in every line, null when
    the event belongs to no run.
    """

    engine_version: str | None = None
    session_id: SessionId
    run_id: RunId | None
    seq: Annotated[int, Meta(ge=1, le=SEQ_MAX)]
    timestamp: str
    payload: Payload


def is_commit(payload: Event) -> bool:
    """Whether an event must be on disk before anybody acts on it (all but the deltas)."""
    return type(payload) not in DELTAS


def tag_of(event: type[Event]) -> str:
    """The `type` that a class of events is written under."""
    return str(event.__struct_config__.tag)


__all__ = [
    "AGENT_SNAPSHOT_SCHEMA",
    "DELTAS",
    "DOOM_LOOP_REPETITIONS_MIN",
    "EVENT_TYPES",
    "FEEDBACK_CHARS_MAX",
    "OUTCOME_UNKNOWN",
    "PLUGIN_EVENT_BYTES_MAX",
    "PLUGIN_EVENT_NAME_CHARS_MAX",
    "PLUGIN_EVENT_PAYLOAD_BYTES_MAX",
    "PROGRESS_CHUNK_CHARS_MAX",
    "PROGRESS_MESSAGE_CHARS_MAX",
    "RESPONSE_BODY_CHARS_MAX",
    "RUN_ERROR_CHARS_MAX",
    "SEQ_MAX",
    "AgentMdEntry",
    "AgentMdLoaded",
    "AgentMdSkipped",
    "AgentMode",
    "AgentSnapshot",
    "ApprovalCancelled",
    "ApprovalConstraints",
    "ApprovalDoomLoopDetected",
    "ApprovalEscalated",
    "ApprovalEvaluated",
    "ApprovalFinalized",
    "ApprovalOutcome",
    "ApprovalReasonCode",
    "ApprovalRequest",
    "ApprovalRequested",
    "ApprovalTrigger",
    "ApprovalUserDecisionRecorded",
    "ApprovalVerdict",
    "AttemptAbandoned",
    "BlockPlace",
    "BudgetPaused",
    "BudgetResumed",
    "BudgetUnit",
    "Checkpoint",
    "CheckpointBoundaries",
    "CheckpointBudgets",
    "ContextCheckpointCommitted",
    "ContextCompactionAutoDisabled",
    "ContextRehydrated",
    "DecisionSource",
    "DelegateChildTerminated",
    "DelegateFinished",
    "DelegateFinishedV2",
    "DelegateQueued",
    "DelegatedContextSeeded",
    "DelegatedOrigin",
    "DelegatedTitle",
    "DelegationFinished",
    "DelegationPolicy",
    "DelegationRequest",
    "DelegationReservation",
    "DelegationReserved",
    "DelegationRunAttached",
    "DelegationRunStarted",
    "DelegationStarted",
    "DocumentSource",
    "EvaluatedDecision",
    "Event",
    "FallbackEntry",
    "FallbackTitle",
    "FinalDecision",
    "FrozenModelBinding",
    "HistoryRepaired",
    "InternalAgentCancelled",
    "InternalAgentCompleted",
    "InternalAgentFailed",
    "InternalAgentFallback",
    "InternalAgentInterrupted",
    "InternalAgentStarted",
    "InternalAgentTitle",
    "InternalAgentUsageRecorded",
    "InternalCall",
    "InternalFailure",
    "InternalKind",
    "InternalResult",
    "InternalSummary",
    "LeaseWaited",
    "MessageInjected",
    "ModelAttemptStarted",
    "ModelCapabilities",
    "ModelErrorKind",
    "ModelErrorStage",
    "ModelErrorSummary",
    "ModelFallback",
    "ModelReplayEvaluated",
    "ModelRequestPrepared",
    "ModelSelection",
    "ModelTurn",
    "ModelTurnCommitted",
    "ModelUsageRecorded",
    "NativeWindow",
    "OperationDigest",
    "OperationResource",
    "Outcome",
    "Payload",
    "PermissionOverlay",
    "PluginDiagnostic",
    "PluginDiagnosticKind",
    "PluginEventAdded",
    "PolicyEvaluation",
    "PreparedOperationIdentity",
    "Pricing",
    "ReasoningDelta",
    "RehydratedFile",
    "ReplayDecision",
    "ReplayDisposition",
    "ResolvedModel",
    "ResourceBoundary",
    "ResourceLifetime",
    "RetainedOutput",
    "Revisions",
    "Role",
    "RootOrigin",
    "RuleSource",
    "RunCancelled",
    "RunCompleted",
    "RunFailed",
    "RunInterrupted",
    "RunSelection",
    "RunStarted",
    "SeedTurn",
    "SessionCreated",
    "SessionOrigin",
    "SessionPermissionOverlaySet",
    "SessionReverted",
    "SessionTitleCommitted",
    "SkillInvocationNoted",
    "SkillLoaded",
    "StagedSkill",
    "StoredEvent",
    "TextDelta",
    "TitleChange",
    "ToolCallExecuting",
    "ToolCallLinked",
    "ToolCallOwner",
    "ToolCallProgress",
    "ToolCallStarted",
    "ToolCallTerminated",
    "ToolOutputElided",
    "ToolPresentation",
    "ToolStdinSubmitted",
    "TreeAdopted",
    "TreeApprovalGrantCommitted",
    "TreeDrained",
    "TreeEnded",
    "TreeGrant",
    "UserClearedTitle",
    "UserDecision",
    "UserInputAdmitted",
    "UserInputApplied",
    "UserInputRecalled",
    "UserInputRecalledV2",
    "UserInputSubmitted",
    "UserInputTransformed",
    "UserResetTitle",
    "UserSetTitle",
    "WorkerRecovered",
    "is_commit",
    "tag_of",
]
