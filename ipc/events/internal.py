"""Events of the internal agents: the approval classifier, the compactor, the title maker."""

from typing import Literal

from msgspec import Struct, field

from ipc.content import Count, Usage
from ipc.events.base import Event, ResolvedModel
from ipc.events.models import ModelErrorSummary
from ipc.ids import AgentId, Digest, InternalRunId, InvocationId

InternalKind = Literal["approval", "context_compaction", "session_title"]


class InternalCall(Struct, frozen=True, kw_only=True):
    """What an internal agent was asked, by digest; the summary is for people."""

    name: str
    input_digest: Digest
    input_summary: str


class InternalResult(Struct, frozen=True, kw_only=True):
    """What an internal agent answered, by digest; the summary is for people."""

    output_digest: Digest
    output_summary: str


class InternalFailure(Struct, frozen=True, kw_only=True):
    """Why an internal agent failed."""

    code: str
    message: str
    retryable: bool
    model_error: ModelErrorSummary | None = None


class InternalAgentStarted(Event, frozen=True, kw_only=True, tag="internal_agent_started"):
    """An internal agent is going to be asked. Ends in exactly one completed, failed, cancelled
    or interrupted event of `internal_run_id`; inside the owner's run, or runless."""

    kind: InternalKind
    internal_run_id: InternalRunId
    invocation_id: InvocationId
    backend: ResolvedModel
    call: InternalCall


class InternalAgentUsageRecorded(
    Event, frozen=True, kw_only=True, tag="internal_agent_usage_recorded"
):
    """What one request of an internal agent cost. Between its start and its end.

    `estimated_cost_pico_usd`: None = the model has no price.
    """

    kind: InternalKind
    agent_id: AgentId
    internal_run_id: InternalRunId
    resolved_model: ResolvedModel
    usage: Usage
    estimated_cost_pico_usd: Count | None = None


class InternalAgentCompleted(Event, frozen=True, kw_only=True, tag="internal_agent_completed"):
    """An internal agent answered. Ends its internal_agent_started; what it is for comes next."""

    kind: InternalKind
    internal_run_id: InternalRunId
    invocation_id: InvocationId
    result: InternalResult


class InternalAgentFailed(Event, frozen=True, kw_only=True, tag="internal_agent_failed"):
    """An internal agent came to nothing, which is safe. Ends its internal_agent_started."""

    kind: InternalKind
    internal_run_id: InternalRunId
    invocation_id: InvocationId
    failure: InternalFailure


class InternalAgentCancelled(Event, frozen=True, kw_only=True, tag="internal_agent_cancelled"):
    """An internal agent was stopped. Ends its internal_agent_started."""

    kind: InternalKind
    internal_run_id: InternalRunId
    invocation_id: InvocationId
    reason: str | None = None


class InternalAgentInterrupted(Event, frozen=True, kw_only=True, tag="internal_agent_interrupted"):
    """An internal agent died with its worker. Written by the next worker; ends its start."""

    kind: InternalKind
    internal_run_id: InternalRunId
    invocation_id: InvocationId
    reason: str | None = None


class InternalAgentFallback(Event, frozen=True, kw_only=True, tag="internal_agent_fallback"):
    """An internal agent goes on with another model. Between its start and its end."""

    kind: InternalKind
    internal_run_id: InternalRunId
    invocation_id: InvocationId
    from_: ResolvedModel = field(name="from")
    to: ResolvedModel
    attempts: Count
    failure: InternalFailure
