"""Events of asking a model: attempts, their text, the committed turn, its usage, fallbacks."""

from typing import Any, Literal

from msgspec import Struct, field

from ipc.content import Count, FinishReason, TurnBlock, Usage
from ipc.events.base import Event, ResolvedModel
from ipc.ids import AgentId, AttemptId, Fingerprint

ModelErrorKind = Literal[
    "transport",
    "timeout",
    "rate_limited",
    "auth",
    "permission_denied",
    "invalid_request",
    "model_not_found",
    "context_length",
    "quota",
    "overload",
    "unsupported",
    "unexpected_eof",
    "invalid_response",
    "invalid_tool_input",
    "content_filter",
    "replay",
    "native_context",
    "provider",
    "abort",
    "unknown",
]
ModelErrorStage = Literal[
    "request_validation",
    "request_encode",
    "credentials",
    "connect",
    "request_send",
    "response_headers",
    "response_body",
    "stream_open",
    "stream_decode",
    "stream_finalize",
    "replay_encode",
    "replay_decode",
    "native_context_encode",
    "native_context_decode",
    "middleware",
]
ReplayDisposition = Literal[
    "replayed",
    "no_artifact",
    "discarded_wire_model",
    "discarded_unsupported",
    "discarded_invalid",
]
RESPONSE_BODY_CHARS_MAX = 4096


class ModelErrorSummary(Struct, frozen=True, kw_only=True):
    """What went wrong between us and a model; free of secrets and control characters.

    `retry_after_ms` is the provider's own wish; `bytes_received` counts the response's body.
    """

    kind: ModelErrorKind
    stage: ModelErrorStage
    message: str
    retryable: bool
    bytes_received: Count = 0
    http_status: int | None = None
    vendor_code: str | None = None
    request_id: str | None = None
    retry_after_ms: Count | None = None
    response_body: str | None = None

    @property
    def overloaded(self) -> bool:
        """Whether it counts against the budget of overloads and not the standard one (spec 1.8)."""
        return self.kind == "overload" or (self.retryable and self.http_status in {429, 503})


class ModelAttemptStarted(Event, frozen=True, kw_only=True, tag="model_attempt_started"):
    """A model is going to be asked. Only inside a run and while no attempt or call is open.

    Ends in exactly one model_turn_committed or attempt_abandoned of `attempt_id`.
    `attempt_ordinal` counts from 1 within the turn that is sought, `retry_ordinal` from 0 on
    the model at `fallback_index` of the run's suffix.
    """

    attempt_id: AttemptId
    attempt_ordinal: Count
    fallback_index: Count
    retry_ordinal: Count
    prompt_fingerprint: Fingerprint
    resolved_model: ResolvedModel


class ModelRequestPrepared(Event, frozen=True, kw_only=True, tag="model_request_prepared"):
    """The request is whole and goes out next. Once, after its model_attempt_started."""

    attempt_id: AttemptId
    prompt_fingerprint: Fingerprint


class TextDelta(Event, frozen=True, kw_only=True, gc=False, tag="text_delta"):
    """Some text arrived. Between model_request_prepared and the end of its attempt.

    The committed turn repeats the whole; a delta of an abandoned attempt is no history.
    """

    attempt_id: AttemptId
    text: str


class ReasoningDelta(Event, frozen=True, kw_only=True, gc=False, tag="reasoning_delta"):
    """Some reasoning arrived. Between model_request_prepared and the end of its attempt."""

    attempt_id: AttemptId
    text: str


class AttemptAbandoned(Event, frozen=True, kw_only=True, tag="attempt_abandoned"):
    """An attempt came to nothing. After its model_attempt_started, instead of a turn.

    Followed by another attempt, a model_fallback, or the end of the run. `error` says why, None
    when its worker died or its run was ended; `retry_in_ms`, counted from this event's timestamp,
    when the same model is asked again, None when it is not.
    """

    attempt_id: AttemptId
    error: ModelErrorSummary | None = None
    retry_in_ms: Count | None = None


class ReplayDecision(Struct, frozen=True, kw_only=True):
    """What became of the native form of one earlier turn when a request was made."""

    history_index: Count
    disposition: ReplayDisposition


class ModelReplayEvaluated(Event, frozen=True, kw_only=True, tag="model_replay_evaluated"):
    """Which native artifacts of earlier turns the request holds, when it does not hold them all.

    Before model_request_prepared, at a run's first attempt with a model.
    """

    attempt_id: AttemptId
    resolved_model: ResolvedModel
    ordered_decisions: tuple[ReplayDecision, ...]


class ModelTurn(Struct, frozen=True, kw_only=True, gc=False):
    """What a model said, whole. `native_replay` goes back only to an equal wire model."""

    content: tuple[TurnBlock, ...]
    finish_reason: FinishReason
    usage: Usage
    native_replay: dict[str, Any] | None = None
    provider_metadata: dict[str, Any] = {}
    provider_options: dict[str, Any] = {}
    response_metadata: dict[str, Any] = {}


class ModelTurnCommitted(Event, frozen=True, kw_only=True, tag="model_turn_committed"):
    """An attempt succeeded; its turn is history from here on. Ends the open attempt.

    `model_turn_seq` counts the session's committed turns from 1 and never falls, not even
    after a revert. Followed by model_usage_recorded, then by one tool_call_started for each
    tool_call block in order, or by inputs or the end of the run when there is none.
    """

    attempt_id: AttemptId
    model_turn_seq: Count
    input_through_seq: Count
    resolved_model: ResolvedModel
    turn: ModelTurn
    warnings: tuple[str, ...] = ()


class ModelUsageRecorded(Event, frozen=True, kw_only=True, tag="model_usage_recorded"):
    """What the turn `model_turn_seq` cost. Once, right after its model_turn_committed.

    `estimated_cost_pico_usd`: None = the model has no price.
    """

    model_turn_seq: Count
    agent_id: AgentId
    resolved_model: ResolvedModel
    usage: Usage
    estimated_cost_pico_usd: Count | None = None


class ModelFallback(Event, frozen=True, kw_only=True, tag="model_fallback"):
    """The run gave up on one model and goes on with a later one of its suffix, for good.

    After the attempt_abandoned of the last of `attempts_on_from` attempts, before the next
    model_attempt_started.
    """

    from_: ResolvedModel = field(name="from")
    to: ResolvedModel
    from_fallback_index: Count
    to_fallback_index: Count
    attempts_on_from: Count
    error: ModelErrorSummary
