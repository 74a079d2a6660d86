"""The one table of methods and the one of notifications: names, shapes, errors, routes."""

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ipc.methods.approvals import (
    ApprovalInboxResult,
    ApprovalListParams,
    ApprovalListResult,
    ApprovalRespondParams,
    ApprovalRespondResult,
)
from ipc.methods.goals import GoalLifecycleParams, GoalResult, GoalSetParams
from ipc.methods.mcp import (
    McpAuthBeginResult,
    McpAuthParams,
    McpNameParams,
    McpPersistParams,
    McpServerListResult,
    McpServerParams,
    McpServerResult,
    McpSetEnabledParams,
)
from ipc.methods.records import NoParams, Nothing, OfSession, SessionTree
from ipc.methods.runs import (
    AcceptedResult,
    EventsSubscribeParams,
    EventsSubscribeResult,
    OfRun,
    PluginEvent,
    RunCancelParams,
    RunCancelResult,
    RunRecallSteerResult,
    RunStartParams,
    RunStartResult,
    RunSteerParams,
    RunSteerResult,
    RunToolStdinParams,
    Subscription,
    ToolOutputDelta,
    ToolOutputGap,
    ToolOutputSnapshotEvent,
)
from ipc.methods.runtime import (
    HandshakeParams,
    HandshakeResult,
    ProviderConnectParams,
    ProviderConnectResult,
    ProviderDisconnectParams,
    ProviderDisconnectResult,
    RuntimeChanged,
    RuntimeSnapshotResult,
)
from ipc.methods.sessions import (
    AgentUsageParams,
    BudgetAnswerParams,
    BudgetResult,
    PermissionClearParams,
    PermissionRehearseParams,
    PermissionRehearseResult,
    PermissionSetParams,
    PermissionsResult,
    SessionChildrenResult,
    SessionCompactParams,
    SessionCompactResult,
    SessionCreateParams,
    SessionDeleteResult,
    SessionForkResult,
    SessionListParams,
    SessionListResult,
    SessionPermissionsResult,
    SessionProducersResult,
    SessionRenameParams,
    SessionRenameResult,
    SessionResult,
    SessionRevertResult,
    SessionStopParams,
    SessionStopResult,
    SessionWhyResult,
    SetPermissionModeParams,
    SkillsGetParams,
    SkillsGetResult,
    SkillsListResult,
    ThroughSeqParams,
    TreeUsageResult,
    UsageExplainResult,
    UsageResult,
)
from ipc.methods.trees import TreesChanged, WorkersListResult

PROTOCOL_VERSION: Final = 20  # compared exactly
EXTENSIONS: Final = ("cookie.py/1",)  # what is ours beside that protocol

# Whose answer it is: the daemon's own, or that of the tree which the named field leads to.
RoutedBy = Literal["daemon", "session_id", "run_id", "root_session_id"]


class Method(Struct, frozen=True, kw_only=True):
    """One request of a client.

    `errors` are the fault codes that it may answer with beside those that any may
    (invalid_params, internal, engine_error); `reasons` the values that the fact `reason` of such a
    fault may have. `needs_id`: sent as a notification it is refused ("request id required").
    """

    params: type[Struct]
    result: type[Struct]
    routed_by: RoutedBy = "daemon"
    errors: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    needs_id: bool = False
    ours: bool = False  # not of protocol 20, but of EXTENSIONS


_SESSION: Final = ("session_missing",)
_RUN: Final = ("run_not_found",)

_SESSION_METHODS: Final[dict[str, Method]] = {
    "session.create": Method(
        params=SessionCreateParams, result=SessionResult, errors=("no_runnable_model",)
    ),
    "session.list": Method(params=SessionListParams, result=SessionListResult),
    "session.get": Method(
        params=OfSession, result=SessionResult, routed_by="session_id", errors=_SESSION
    ),
    "session.children": Method(
        params=OfSession, result=SessionChildrenResult, routed_by="session_id", errors=_SESSION
    ),
    "session.tree": Method(
        params=OfSession, result=SessionTree, routed_by="session_id", errors=_SESSION
    ),
    "session.resume": Method(
        params=OfSession, result=SessionResult, routed_by="session_id", errors=_SESSION
    ),
    "session.rename": Method(
        params=SessionRenameParams,
        result=SessionRenameResult,
        routed_by="session_id",
        errors=("rename_rejected", "idempotency_conflict"),
        reasons=("session_not_found", "invalid_title", "idempotency_conflict"),
    ),
    "session.usage": Method(
        params=OfSession, result=UsageResult, routed_by="session_id", errors=_SESSION
    ),
    "session.tree_usage": Method(
        params=OfSession,
        result=TreeUsageResult,
        routed_by="session_id",
        errors=("session_missing", "delegation_corrupt"),
    ),
    "agent.usage": Method(params=AgentUsageParams, result=UsageResult),
    "usage.global": Method(params=NoParams, result=UsageResult),
    "session.set_permission_mode": Method(
        params=SetPermissionModeParams, result=Nothing, routed_by="session_id", errors=_SESSION
    ),
    "session.permission.get": Method(
        params=OfSession, result=SessionPermissionsResult, routed_by="session_id", errors=_SESSION
    ),
    "session.permission.set": Method(
        params=PermissionSetParams,
        result=PermissionsResult,
        routed_by="session_id",
        errors=_SESSION,
    ),
    "session.permission.clear": Method(
        params=PermissionClearParams,
        result=PermissionsResult,
        routed_by="session_id",
        errors=_SESSION,
    ),
    "session.compact": Method(
        params=SessionCompactParams,
        result=SessionCompactResult,
        routed_by="session_id",
        errors=_SESSION,
    ),
    "session.revert": Method(
        params=ThroughSeqParams, result=SessionRevertResult, routed_by="session_id", errors=_SESSION
    ),
    "session.fork": Method(
        params=ThroughSeqParams, result=SessionForkResult, routed_by="session_id", errors=_SESSION
    ),
    "session.goal.get": Method(
        params=OfSession, result=GoalResult, routed_by="session_id", errors=_SESSION
    ),
    "session.goal.set": Method(
        params=GoalSetParams, result=GoalResult, routed_by="session_id", errors=_SESSION
    ),
    "session.goal.lifecycle": Method(
        params=GoalLifecycleParams, result=GoalResult, routed_by="session_id", errors=_SESSION
    ),
    "session.producers": Method(
        params=OfSession, result=SessionProducersResult, routed_by="session_id", errors=_SESSION
    ),
    "skills.list": Method(
        params=OfSession, result=SkillsListResult, routed_by="session_id", errors=_SESSION
    ),
    "skills.get": Method(
        params=SkillsGetParams, result=SkillsGetResult, routed_by="session_id", errors=_SESSION
    ),
}

_RUN_METHODS: Final[dict[str, Method]] = {
    "run.start": Method(
        params=RunStartParams,
        result=RunStartResult,
        routed_by="session_id",
        errors=("session_missing", "idempotency_conflict", "no_runnable_model"),
    ),
    "run.steer": Method(
        params=RunSteerParams, result=RunSteerResult, routed_by="run_id", errors=_RUN
    ),
    "run.recall_steer": Method(
        params=OfRun, result=RunRecallSteerResult, routed_by="run_id", errors=_RUN
    ),
    "run.cancel": Method(
        params=RunCancelParams, result=RunCancelResult, routed_by="run_id", errors=_RUN
    ),
    "run.tool_stdin": Method(
        params=RunToolStdinParams, result=AcceptedResult, routed_by="run_id", errors=_RUN
    ),
    "events.subscribe": Method(
        params=EventsSubscribeParams,
        result=EventsSubscribeResult,
        routed_by="session_id",
        errors=("session_missing", "cursor_ahead"),
    ),
    "approval.list": Method(
        params=ApprovalListParams,
        result=ApprovalListResult,
        routed_by="root_session_id",
        errors=_SESSION,
    ),
    "approval.respond": Method(
        params=ApprovalRespondParams,
        result=ApprovalRespondResult,
        routed_by="session_id",
        errors=("approval_rejected", "session_missing"),
        reasons=(
            "approval_not_found",
            "approval_not_pending",
            "approval_revision_conflict",
            "decision_not_allowed",
            "operation_fingerprint_mismatch",
            "operation_changed",
            "idempotency_conflict",
        ),
    ),
}

_RUNTIME_METHODS: Final[dict[str, Method]] = {
    "handshake": Method(params=HandshakeParams, result=HandshakeResult),
    "runtime.snapshot.get": Method(params=NoParams, result=RuntimeSnapshotResult, needs_id=True),
    "provider.connect": Method(
        params=ProviderConnectParams,
        result=ProviderConnectResult,
        needs_id=True,
        errors=("provider_connect", "provider_store_reload_failed"),
        reasons=(
            "unknown_provider",
            "unsupported_provider",
            "quarantined_provider",
            "removed_without_retained_recipe_match",
            "catalog_revision_conflict",
            "missing_setup_field",
            "invalid_setup_field",
            "missing_credential",
            "invalid_credential",
            "unsupported_auth_method",
            "provider_store_write_failed",
            "runtime_compile_failed",
            "idempotency_conflict",
        ),
    ),
    "provider.disconnect": Method(
        params=ProviderDisconnectParams,
        result=ProviderDisconnectResult,
        needs_id=True,
        errors=("provider_disconnect", "provider_store_reload_failed"),
        reasons=(
            "invalid_provider",
            "custom_provider_not_store_backed",
            "runtime_revision_conflict",
            "provider_state_revision_conflict",
            "stale_provider_connection_generation",
            "provider_store_write_failed",
            "runtime_compile_failed",
            "idempotency_conflict",
        ),
    ),
    "mcp.server.list": Method(params=NoParams, result=McpServerListResult),
    "mcp.server.add": Method(params=McpServerParams, result=McpServerResult),
    "mcp.server.edit": Method(params=McpServerParams, result=McpServerResult),
    "mcp.server.remove": Method(params=McpNameParams, result=McpServerResult),
    "mcp.server.reconnect": Method(params=McpNameParams, result=McpServerResult),
    "mcp.server.set_enabled": Method(params=McpSetEnabledParams, result=McpServerResult),
    "mcp.server.persist": Method(params=McpPersistParams, result=McpServerResult),
    "mcp.auth.begin": Method(params=McpAuthParams, result=McpAuthBeginResult),
    "mcp.auth.cancel": Method(params=McpAuthParams, result=McpServerResult),
}

_OUR_METHODS: Final[dict[str, Method]] = {
    "session.stop": Method(
        params=SessionStopParams, result=SessionStopResult, errors=_SESSION, ours=True
    ),
    "session.delete": Method(
        params=OfSession, result=SessionDeleteResult, errors=_SESSION, ours=True
    ),
    "session.why": Method(
        params=OfSession,
        result=SessionWhyResult,
        routed_by="session_id",
        errors=_SESSION,
        ours=True,
    ),
    "approval.inbox": Method(params=NoParams, result=ApprovalInboxResult, ours=True),
    "permission.rehearse": Method(
        params=PermissionRehearseParams,
        result=PermissionRehearseResult,
        errors=_SESSION,
        ours=True,
    ),
    "usage.explain": Method(
        params=OfSession,
        result=UsageExplainResult,
        routed_by="session_id",
        errors=_SESSION,
        ours=True,
    ),
    "budget.get": Method(
        params=OfSession, result=BudgetResult, routed_by="session_id", errors=_SESSION, ours=True
    ),
    "budget.answer": Method(
        params=BudgetAnswerParams,
        result=BudgetResult,
        routed_by="session_id",
        errors=_SESSION,
        ours=True,
    ),
    "workers.list": Method(params=NoParams, result=WorkersListResult, ours=True),
}

METHODS: Final[dict[str, Method]] = {
    **_RUNTIME_METHODS,
    **_SESSION_METHODS,
    **_RUN_METHODS,
    **_OUR_METHODS,
}

# What the daemon tells without being asked.
NotificationParams: TypeAlias = (
    RuntimeChanged
    | Subscription
    | PluginEvent
    | ToolOutputSnapshotEvent
    | ToolOutputDelta
    | ToolOutputGap
    | TreesChanged
)
NOTIFICATIONS: Final[dict[str, tuple[type[Struct], ...]]] = {
    "runtime.changed": (RuntimeChanged,),
    "events.subscription": Subscription.__args__,
    "events.plugin": (PluginEvent,),
    "events.tool_output_snapshot": (ToolOutputSnapshotEvent,),
    "events.tool_output_delta": (ToolOutputDelta,),
    "events.tool_output_gap": (ToolOutputGap,),
    "trees.changed": (TreesChanged,),
}
