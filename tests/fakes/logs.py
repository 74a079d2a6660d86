"""Logs for tests, a line at a time: the events a session would have written, with plain ids."""

from collections.abc import Iterable
from typing import Any

from ipc.content import (
    FinishReason,
    TextBlock,
    ToolCallBlock,
    ToolError,
    ToolResult,
    TurnBlock,
    Usage,
    user_text,
)
from ipc.events import (
    AgentSnapshot,
    ApprovalConstraints,
    ApprovalFinalized,
    ApprovalRequest,
    ApprovalRequested,
    AttemptAbandoned,
    Event,
    FinalDecision,
    FrozenModelBinding,
    ModelAttemptStarted,
    ModelErrorSummary,
    ModelRequestPrepared,
    ModelSelection,
    ModelTurn,
    ModelTurnCommitted,
    ModelUsageRecorded,
    OperationDigest,
    PreparedOperationIdentity,
    ResolvedModel,
    Revisions,
    RootOrigin,
    RunCompleted,
    RunSelection,
    RunStarted,
    SessionCreated,
    StoredEvent,
    TextDelta,
    ToolCallExecuting,
    ToolCallOwner,
    ToolCallStarted,
    ToolCallTerminated,
    ToolPresentation,
    UserInputAdmitted,
    UserInputSubmitted,
)

# Test ids are words, not UUIDs: the fold never looks into an id.
ANY: Any = "x"
REVISIONS = Revisions(**dict.fromkeys(Revisions.__struct_fields__, ANY))
BINDING = FrozenModelBinding(
    model="fake/one",  # type: ignore[arg-type]
    provider_id="fake",  # type: ignore[arg-type]
    adaptor="scripted",
    wire_model="one",
)
SECOND = FrozenModelBinding(
    model="fake/two",  # type: ignore[arg-type]
    provider_id="fake",  # type: ignore[arg-type]
    adaptor="scripted",
    wire_model="two",
)
OTHER_MODEL = SECOND.resolved()
THIRD = FrozenModelBinding(
    model="fake/three",  # type: ignore[arg-type]
    provider_id="fake",  # type: ignore[arg-type]
    adaptor="scripted",
    wire_model="three",
)
BUSY = ModelErrorSummary(
    kind="overload",
    stage="response_headers",
    message="busy",
    retryable=True,
    http_status=529,
)
BROKEN_OFF = ModelErrorSummary(
    kind="unexpected_eof", stage="stream_finalize", message="it broke off", retryable=True
)
REFUSED_KEY = ModelErrorSummary(
    kind="auth",
    stage="response_headers",
    message="no such key",
    retryable=False,
    http_status=401,
)
SELECTION = RunSelection(agent=ANY, model=ModelSelection(model=BINDING.model))
AGENT = AgentSnapshot(
    schema=6,
    agent=ANY,
    description="",
    mode="primary",
    document_source="builtin",
    composed_prompt="",
    document_fingerprint=ANY,
    prompt_fingerprint=ANY,
    permissions=(),
    fallback_chain=(),
    selected_suffix_start=0,
)
NOTHING_SPENT = Usage()


def text(words: str) -> TextBlock:
    return TextBlock(text=words)


def call(call_id: str, name: str = "bash", arguments: str = "{}") -> ToolCallBlock:
    """A block whose model call id is that of the call which `Log.started` starts for it."""
    return ToolCallBlock(model_call_id=call_id, name=name, arguments=arguments)


class Log:
    """A log under construction. Each method writes what its name says and returns its seq."""

    def __init__(self) -> None:
        self.events: list[StoredEvent] = []
        self.seq = 0
        self.turns = 0
        self.run: Any = None
        self.owners: dict[str, ToolCallOwner] = {}

    def add(self, payload: Event) -> int:
        """Write any payload, in the run that is open."""
        self.seq += 1
        self.events.append(
            StoredEvent(
                session_id="session",  # type: ignore[arg-type]
                run_id=self.run,
                seq=self.seq,
                timestamp=f"2026-01-02T03:04:{self.seq % 60:02d}.000Z",
                payload=payload,  # type: ignore[arg-type]
            )
        )
        return self.seq

    def skip(self) -> int:
        """A line that nobody can read."""
        self.seq += 1
        return self.seq

    def created(self) -> int:
        return self.add(
            SessionCreated(
                origin=RootOrigin(),
                cwd_identity="/w",
                creation_agent=AGENT,
                creation_selection=SELECTION,
                revisions=REVISIONS,
            )
        )

    def user(self, words: str) -> int:
        return self.add(UserInputSubmitted(input=user_text(words)))

    def admitted(self, words: str) -> int:
        return self.add(UserInputAdmitted(input=user_text(words)))

    def run_started(self, run: str, *models: FrozenModelBinding) -> int:
        self.run = run
        return self.add(
            RunStarted(
                client_run_id=f"client of {run}",  # type: ignore[arg-type]
                input_through_seq=self.seq,
                selection=SELECTION,
                agent=AGENT,
                selected_suffix=models or (BINDING,),
                revisions=REVISIONS,
            )
        )

    def run_ended(self, payload: Event | None = None) -> int:
        seq = self.add(payload or RunCompleted())
        self.run = None
        return seq

    def attempt(self, attempt: str, *, prepared: bool = True, fallback_index: int = 0) -> int:
        seq = self.add(
            ModelAttemptStarted(
                attempt_id=attempt,  # type: ignore[arg-type]
                attempt_ordinal=1,
                fallback_index=fallback_index,
                retry_ordinal=0,
                prompt_fingerprint=ANY,
                resolved_model=BINDING.resolved(),
            )
        )
        if prepared:
            seq = self.add(
                ModelRequestPrepared(
                    attempt_id=attempt,  # type: ignore[arg-type]
                    prompt_fingerprint=ANY,
                )
            )
        return seq

    def delta(self, attempt: str, words: str) -> int:
        return self.add(TextDelta(attempt_id=attempt, text=words))  # type: ignore[arg-type]

    def abandoned(
        self,
        attempt: str,
        error: ModelErrorSummary | None = None,
        retry_in_ms: int | None = None,
    ) -> int:
        return self.add(
            AttemptAbandoned(
                attempt_id=attempt,  # type: ignore[arg-type]
                error=error,
                retry_in_ms=retry_in_ms,
            )
        )

    def failed(
        self,
        attempt: str,
        error: ModelErrorSummary,
        retry_in_ms: int | None = None,
        fallback_index: int = 0,
    ) -> int:
        """An attempt from its beginning to its end."""
        self.attempt(attempt, fallback_index=fallback_index)
        return self.abandoned(attempt, error, retry_in_ms)

    def turn(
        self,
        *content: TurnBlock,
        attempt: str = "attempt",
        finish: FinishReason | None = None,
        usage: Usage = NOTHING_SPENT,
        model: ResolvedModel | None = None,
        stop_reason: str | None = None,
    ) -> int:
        self.turns += 1
        for index, block in enumerate(content):
            if isinstance(block, ToolCallBlock):
                self.owners[block.model_call_id] = ToolCallOwner(
                    model_turn_seq=self.turns,
                    content_index=index,
                    model_call_id=block.model_call_id,
                )
        calls = any(isinstance(block, ToolCallBlock) for block in content)
        return self.add(
            ModelTurnCommitted(
                attempt_id=attempt,  # type: ignore[arg-type]
                model_turn_seq=self.turns,
                input_through_seq=self.seq,
                resolved_model=model or BINDING.resolved(),
                turn=ModelTurn(
                    content=content,
                    finish_reason=finish or ("tool_calls" if calls else "stop"),
                    usage=usage,
                    provider_metadata={"stop_reason": stop_reason} if stop_reason else {},
                ),
            )
        )

    def usage(self, usage: Usage, cost: int | None = None, model: str = "fake/one") -> int:
        return self.add(
            ModelUsageRecorded(
                model_turn_seq=self.turns,
                agent_id=ANY,
                resolved_model=ResolvedModel(
                    model=model,  # type: ignore[arg-type]
                    provider_id=ANY,
                    adaptor="scripted",
                    wire_model="one",
                ),
                usage=usage,
                estimated_cost_pico_usd=cost,
            )
        )

    def started(self, call_id: str) -> int:
        return self.add(
            ToolCallStarted(
                tool_call_id=call_id,  # type: ignore[arg-type]
                owner=self.owners[call_id],
                operation_fingerprint=OperationDigest(digest=ANY),
                presentation=ToolPresentation(title=call_id),
            )
        )

    def executing(self, call_id: str) -> int:
        return self.add(ToolCallExecuting(tool_call_id=call_id))  # type: ignore[arg-type]

    def ended(
        self, call_id: str, output: str = "done", error: ToolError | None = None, **more: Any
    ) -> int:
        return self.add(
            ToolCallTerminated(
                tool_call_id=call_id,  # type: ignore[arg-type]
                owner=self.owners[call_id],
                outcome="failed" if error else "completed",
                result=None if error else ToolResult(title="", output=output, **more),
                error=error,
            )
        )

    def asked(self, approval: str, call_id: str) -> int:
        return self.add(
            ApprovalRequested(
                request=ApprovalRequest(
                    approval_id=approval,  # type: ignore[arg-type]
                    tool_call_id=call_id,  # type: ignore[arg-type]
                    revision=1,
                    trigger="permission_policy",
                    operation=PreparedOperationIdentity(
                        tool="bash", action="bash", arguments_digest=ANY, workspace="/w"
                    ),
                    operation_fingerprint=ANY,
                    evaluations=(),
                    constraints=ApprovalConstraints(
                        allow_once=True, allow_tree_grant=True, cancellable=True
                    ),
                )
            )
        )

    def answered(self, approval: str) -> int:
        return self.add(
            ApprovalFinalized(
                approval_id=approval,  # type: ignore[arg-type]
                decision=FinalDecision(
                    outcome="approved", source="user", reason_code="user_approved_once"
                ),
            )
        )


def tool_round() -> Log:
    """Two runs: one with three calls, an approval and two attempts, then one of words alone."""
    log = Log()
    log.created()
    log.user("do three things")
    log.run_started("run 1")
    log.attempt("a1")
    log.abandoned("a1")
    log.attempt("a2")
    log.delta("a2", "let me ")
    log.delta("a2", "see")
    log.turn(text("let me see"), call("c1", "read"), call("c2"), call("c3", "write"), attempt="a2")
    log.usage(Usage(input_tokens=100, output_tokens=20, cache_read_tokens=40), cost=7)
    for one in ("c1", "c2", "c3"):
        log.started(one)
    log.asked("q1", "c2")
    log.answered("q1")
    log.executing("c1")
    log.ended("c1", "file text")
    log.executing("c2")
    log.ended("c2", error=ToolError(code="execution", message="exit 1"))
    log.executing("c3")
    log.ended("c3")
    log.attempt("a3")
    log.delta("a3", "all done")
    log.turn(text("all done"), attempt="a3")
    log.usage(Usage(input_tokens=150, output_tokens=5, cache_read_tokens=100), cost=5)
    log.run_ended(RunCompleted(final_text="all done"))
    log.user("thanks")
    log.run_started("run 2")
    log.attempt("a4")
    log.turn(text("welcome"), attempt="a4")
    log.run_ended(RunCompleted(final_text="welcome"))
    return log


def prefixes(events: list[StoredEvent]) -> Iterable[list[StoredEvent]]:
    """Every beginning of a log that has at least its first event."""
    return (events[:end] for end in range(1, len(events) + 1))
