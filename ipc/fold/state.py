"""What a session has come to: the state every reader of a log starts from."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NoReturn, Protocol, cast

from msgspec import Struct, field

from ipc.content import ToolCallBlock, UserInput
from ipc.events import (
    AgentMdEntry,
    AgentSnapshot,
    ApprovalFinalized,
    ApprovalRequest,
    ApprovalUserDecisionRecorded,
    BlockPlace,
    BudgetPaused,
    ContextCheckpointCommitted,
    DelegationReserved,
    Event,
    FrozenModelBinding,
    InternalAgentStarted,
    ModelAttemptStarted,
    ModelErrorSummary,
    ModelTurnCommitted,
    Outcome,
    PermissionOverlay,
    RehydratedFile,
    Role,
    RunSelection,
    RunStarted,
    SeedTurn,
    SessionCreated,
    SkillLoaded,
    StoredEvent,
    ToolCallOwner,
    ToolCallProgress,
    ToolCallStarted,
    ToolCallTerminated,
    ToolOutputElided,
    TreeGrant,
)
from ipc.ids import (
    ApprovalId,
    AttemptId,
    CallId,
    ClientId,
    GrantId,
    Handle,
    InternalRunId,
    InvocationId,
    ModelKey,
    RunId,
    SessionId,
    VariantName,
)
from ipc.rules import Rule

PROGRESS_NOTES_MAX: Final = 64  # progress events of a running call that stay in memory
REFUSAL_CHARS_MAX: Final = 200  # of a provider's words about a block that it refused

Status = Literal["idle", "running", "completed", "failed", "cancelled", "interrupted"]


# Structs and not dataclasses: those with slots take half a millisecond each to make, and two
# processes make them at every start. gc=False: what a long session has thousands of points only
# down, to records and numbers, and so is in no cycle; the garbage collector need not walk it.


# --- the transcript ----------------------------------------------------------------------------


class CallState(Struct, gc=False):
    """One tool call, from its start to its end. `ended` is None while it is open or was cut off."""

    call_id: CallId
    turn_seq: int  # `model_turn_seq` of the turn that asked for it
    content_index: int  # where its block stands in that turn
    block: ToolCallBlock  # what the model asked for
    owner: ToolCallOwner
    started: ToolCallStarted | None  # None when its line could not be read
    started_seq: int
    run_id: RunId | None
    executing: bool = False  # its effect may have begun
    executing_seq: int | None = None
    ended: ToolCallTerminated | None = None
    ended_seq: int | None = None
    child: SessionId | None = None
    progress: list[ToolCallProgress] = []  # its tail, while it runs
    stdin_bytes: int = 0
    elided: ToolOutputElided | None = None

    @property
    def name(self) -> str:
        """The tool's name as the model wrote it."""
        return self.block.name

    @property
    def arguments(self) -> str:
        """The model's JSON text, exactly."""
        return self.block.arguments


class UserEntry(Struct, frozen=True, gc=False):
    """Something a person said that the model sees; `original` is what a hook changed it from."""

    seq: int
    run_id: RunId | None
    input: UserInput
    original: UserInput | None = None


class InjectedEntry(Struct, frozen=True, gc=False):
    """Something said in a person's or the model's place: a notice, a reminder, a plugin."""

    seq: int
    run_id: RunId | None
    role: Role
    input: UserInput


class TurnEntry(Struct, gc=False):
    """A committed turn of the model and the calls started for it, in the model's order."""

    seq: int
    run_id: RunId | None
    event: ModelTurnCommitted
    calls: list[CallState] = []

    def asked(self) -> list[tuple[int, ToolCallBlock]]:
        """Every call the model asked for: (content index, block), in order."""
        blocks = enumerate(self.event.turn.content)
        return [(index, block) for index, block in blocks if isinstance(block, ToolCallBlock)]

    def unstarted(self) -> list[tuple[int, ToolCallBlock]]:
        """The calls asked for that have no `tool_call_started` yet."""
        started = {call.content_index for call in self.calls}
        return [(index, block) for index, block in self.asked() if index not in started]

    def open_calls(self) -> list[CallState]:
        """The calls that started and have not ended."""
        return [call for call in self.calls if call.ended is None]


class SeedEntry(Struct, frozen=True, gc=False):
    """What a parent's conversation gave a child to begin with."""

    seq: int
    turns: tuple[SeedTurn, ...]


class SkillEntry(Struct, frozen=True, gc=False):
    """A skill's rendered body, put before the model."""

    seq: int
    event: SkillLoaded


class InstructionsEntry(Struct, frozen=True, gc=False):
    """What the workspace's AGENTS.md files say, as a run got them."""

    seq: int
    entries: tuple[AgentMdEntry, ...]


class RehydratedEntry(Struct, frozen=True, gc=False):
    """Files read again after a compaction."""

    seq: int
    files: tuple[RehydratedFile, ...]


class CheckpointEntry(Struct, frozen=True, gc=False):
    """Where the history was replaced by a summary."""

    seq: int
    event: ContextCheckpointCommitted


class NoticeEntry(Struct, frozen=True, gc=False):
    """Something people are shown and the model is not told."""

    seq: int
    run_id: RunId | None
    event: Event


Entry = (
    UserEntry
    | InjectedEntry
    | TurnEntry
    | SeedEntry
    | SkillEntry
    | InstructionsEntry
    | RehydratedEntry
    | CheckpointEntry
    | NoticeEntry
)


# --- runs --------------------------------------------------------------------------------------


class OpenAttempt(Struct):
    """A request to the model that is on its way; its text is gone when it is abandoned."""

    started: ModelAttemptStarted
    seq: int
    prepared: bool = False
    text: list[str] = []
    reasoning: list[str] = []
    isolated: tuple[BlockPlace, ...] = ()  # blocks for which it was refused

    @property
    def attempt_id(self) -> AttemptId:
        """Its id."""
        return self.started.attempt_id

    @property
    def silent(self) -> bool:
        """Whether nothing of its content reached the log."""
        return not (self.text or self.reasoning)


class Setback(Struct, frozen=True):
    """A failed attempt that nothing has followed yet: what it was, and when it is made again."""

    error: ModelErrorSummary
    failed_ms: int  # when, by the wall clock, since 1970
    retry_in_ms: int | None  # counted from then; None = this model is not asked again

    def rest_ms(self, now_ms: int) -> int:
        """What is left of the pause; never more than all of it, whatever the wall clock did."""
        pause = self.retry_in_ms or 0
        return min(max(self.failed_ms + pause - now_ms, 0), pause)


class OpenRun(Struct):
    """The run in hand. All that its loop needs to go on is here, so that another worker can."""

    run_id: RunId
    started: RunStarted
    started_seq: int
    attempt: OpenAttempt | None = None
    turns: int = 0  # committed in this run
    last_turn: TurnEntry | None = None
    attempts: int = 0  # started since the last committed turn, or since the run began
    asked: int = 0  # of those: at the model in use
    failures: int = 0  # of those: abandoned, on the model in use
    overloads: int = 0  # of the failures: those that spend the budget of overloads
    lost: int = 0  # of those: abandoned because the worker died; they spend no retry
    setback: Setback | None = None  # the newest attempt failed, and this is to be dealt with
    fallbacks: int = 0  # models given up on since the last committed turn
    fallback_index: int = 0  # of the model in use
    retry_ordinal: int = 0  # as the last attempt said it
    last_error: ModelErrorSummary | None = None  # of the last attempt that failed
    recovered_seq: int = 0  # of the last `worker_recovered` inside this run
    compaction_failures: int = 0  # in a row
    paused: BudgetPaused | None = None  # waits for a budget
    lost_effect: bool = False  # a call began to execute whose start cannot be read
    given_up: bool = False  # a recovery decided to end it

    @property
    def agent(self) -> AgentSnapshot:
        """The agent as it was when the run was admitted."""
        return self.started.agent

    @property
    def models(self) -> tuple[FrozenModelBinding, ...]:
        """The fallback chain of this run; `fallback_index` counts in it."""
        return self.started.selected_suffix

    def failures_like(self, error: ModelErrorSummary) -> int:
        """How many failures of the model in use spent the budget that `error` is of."""
        return self.overloads if error.overloaded else self.failures - self.overloads

    def open_calls(self) -> list[CallState]:
        """The calls that started and have not ended, in the model's order."""
        return [] if self.last_turn is None else self.last_turn.open_calls()

    def unstarted(self) -> list[tuple[int, ToolCallBlock]]:
        """The calls of the last turn that did not start yet: (content index, block)."""
        return [] if self.last_turn is None else self.last_turn.unstarted()


class EndedRun(Struct, frozen=True, gc=False):
    """A run that is over. `outcome` "interrupted" also stands for one that a revert cut short."""

    run_id: RunId
    client_run_id: ClientId
    selection: RunSelection
    outcome: Outcome
    started_seq: int
    ended_seq: int
    turns: int
    reason: str | None = None
    error: ModelErrorSummary | None = None
    final_text: str | None = None


class Standing(Struct, frozen=True, gc=False):
    """The model a session stands at: a later run that selects the same begins with it."""

    selection: RunSelection
    model: ModelKey
    variant: VariantName | None


# --- approvals, children, usage, title ---------------------------------------------------------


class ApprovalState(Struct):
    """One question to a person or a policy, and what came of it."""

    request: ApprovalRequest
    seq: int
    run_id: RunId | None
    escalated: bool = False
    answer: ApprovalUserDecisionRecorded | None = None
    cancelled: bool = False  # its approval_finalized is all that is missing
    finalized: ApprovalFinalized | None = None
    closed_seq: int | None = None  # finalized, cancelled, or left behind by its run
    history: list[Event] = []  # judgements, in order

    @property
    def call_id(self) -> CallId:
        """The call it asks about."""
        return self.request.tool_call_id

    @property
    def open(self) -> bool:
        """Whether it still waits."""
        return self.closed_seq is None


class DelegationState(Struct):
    """A child's invocation as its parent's log tells it."""

    reserved: DelegationReserved
    seq: int
    phase: Literal["reserved", "started", "running", "finished"] = "reserved"
    child_run_id: RunId | None = None
    status: Outcome | None = None
    reason: str | None = None


class ChildState(Struct):
    """A child session of this one, by its latest invocation."""

    session_id: SessionId
    invocation_id: InvocationId | None = None
    status: Literal["reserved", "queued", "running"] | Outcome = "reserved"
    position: int | None = None  # in the queue, from 1
    preview: str | None = None
    total_lines: int | None = None


class Rollup(Struct):
    """Token and money sums of some requests. Money is pico-USD; None = one has no price."""

    request_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_pico_usd: int | None = 0
    cache_reported: bool = True  # every request so far told both its input and its cache reads

    @property
    def cache_hit_rate(self) -> float | None:
        """Cache reads over input; only when every request reports both (spec 1.14)."""
        if not (self.cache_reported and self.input_tokens):
            return None
        return self.cache_read_tokens / self.input_tokens


class UsageState(Struct):
    """The rollup of the visible session, whole and by model."""

    total: Rollup = field(default_factory=Rollup)
    by_model: dict[ModelKey, Rollup] = {}
    last_input_tokens: int | None = None  # of the newest turn: what compaction looks at


class TitleState(Struct):
    """The title and who gave it: a person's word beats a generated one until it is reset."""

    user: Literal["none", "set", "cleared"] = "none"
    user_title: str | None = None
    generated: str | None = None
    generated_by: Literal["none", "fallback", "delegated", "internal"] = "none"
    updated_seq: int = 0
    input_through_seq: int = 0

    @property
    def text(self) -> str | None:
        """What to show."""
        return {"none": self.generated, "set": self.user_title, "cleared": None}[self.user]


# --- the whole ---------------------------------------------------------------------------------


class SessionState(Struct):
    """A session as its events made it. One folder owns it and changes it in place by `apply`.

    Everything follows a revert except what is a fact about the world and not about the
    conversation: the sequence numbers, used client ids, children and voided grants.
    """

    seq: int = 0
    gap_seq: int = 0  # of the last event that had an unreadable line right before it
    last_timestamp: str = ""
    session_id: SessionId | None = None
    created: SessionCreated | None = None

    entries: list[Entry] = []
    turns: dict[int, TurnEntry] = {}  # by `model_turn_seq`
    calls: dict[CallId, CallState] = {}
    checkpoint: CheckpointEntry | None = None
    open_calls: dict[CallId, CallState] = {}  # started, not ended
    transforms: list[tuple[UserInput, UserInput]] = []  # (from, to)

    run: OpenRun | None = None
    runs: dict[RunId, EndedRun] = {}
    standing: Standing | None = None
    pending: dict[int, UserInput] = {}  # by seq, first in first out
    internal: dict[InternalRunId, InternalAgentStarted] = {}  # open ones

    approvals: dict[ApprovalId, ApprovalState] = {}
    waiting: dict[ApprovalId, ApprovalState] = {}  # the open ones
    grants: dict[GrantId, TreeGrant] = {}
    overlay: PermissionOverlay | None = None
    overlay_seq: int = 0
    title: TitleState = field(default_factory=TitleState)
    usage: UsageState = field(default_factory=UsageState)

    delegations: dict[InvocationId, DelegationState] = {}
    delegation_of: dict[CallId, InvocationId] = {}
    children: dict[SessionId, ChildState] = {}
    client_run_ids: dict[ClientId, RunId] = {}
    client_rename_ids: dict[ClientId, int] = {}  # to the event's seq
    turns_ever: int = 0  # the highest `model_turn_seq` so far, reverted turns included
    response_ids: dict[ClientId, ApprovalId] = {}  # answers given
    reverted_seq: int = 0  # of the last `session_reverted`
    voided_grants: set[GrantId] = set()
    last_repair: tuple[tuple[str, ...], tuple[int, ...]] = ((), ())  # kinds and counts as last told
    isolated: dict[BlockPlace, str] = {}  # what no request may hold again, to the refusal's words

    journal: list[StoredEvent] = []  # visible events, without deltas

    @property
    def handle(self) -> Handle | None:
        """The session's short name in its tree."""
        return None if self.created is None else self.created.short_id

    @property
    def status(self) -> Status:
        """Running, or how the newest visible run ended."""
        if self.run is not None:
            return "running"
        if not self.runs:
            return "idle"
        return next(reversed(self.runs.values())).outcome

    @property
    def next_turn_seq(self) -> int:
        """The `model_turn_seq` of the turn that is committed next."""
        return self.turns_ever + 1

    @property
    def overlay_rules(self) -> tuple[Rule, ...]:
        """The rules a person laid over the agent's own."""
        return () if self.overlay is None else self.overlay.rules

    def open_approvals(self) -> list[ApprovalState]:
        """The questions that still wait, oldest first."""
        return list(self.waiting.values())

    def live_grants(self) -> list[TreeGrant]:
        """The tree grants that were not voided by a tightened rule."""
        return [g for key, g in self.grants.items() if key not in self.voided_grants]

    def view(self) -> "SessionView":
        """A face of this state that follows it and cannot change it."""
        return cast("SessionView", _Face(self))


class SessionView(Protocol):
    """SessionState for those who do not own it: the same names, to be read only."""

    @property
    def seq(self) -> int: ...
    @property
    def gap_seq(self) -> int: ...
    @property
    def last_timestamp(self) -> str: ...
    @property
    def session_id(self) -> SessionId | None: ...
    @property
    def created(self) -> SessionCreated | None: ...
    @property
    def entries(self) -> Sequence[Entry]: ...
    @property
    def turns(self) -> Mapping[int, TurnEntry]: ...
    @property
    def calls(self) -> Mapping[CallId, CallState]: ...
    @property
    def open_calls(self) -> Mapping[CallId, CallState]: ...
    @property
    def checkpoint(self) -> CheckpointEntry | None: ...
    @property
    def run(self) -> OpenRun | None: ...
    @property
    def runs(self) -> Mapping[RunId, EndedRun]: ...
    @property
    def standing(self) -> Standing | None: ...
    @property
    def pending(self) -> Mapping[int, UserInput]: ...
    @property
    def internal(self) -> Mapping[InternalRunId, InternalAgentStarted]: ...
    @property
    def approvals(self) -> Mapping[ApprovalId, ApprovalState]: ...
    @property
    def waiting(self) -> Mapping[ApprovalId, ApprovalState]: ...
    @property
    def grants(self) -> Mapping[GrantId, TreeGrant]: ...
    @property
    def overlay(self) -> PermissionOverlay | None: ...
    @property
    def overlay_seq(self) -> int: ...
    @property
    def title(self) -> TitleState: ...
    @property
    def usage(self) -> UsageState: ...
    @property
    def delegations(self) -> Mapping[InvocationId, DelegationState]: ...
    @property
    def delegation_of(self) -> Mapping[CallId, InvocationId]: ...
    @property
    def children(self) -> Mapping[SessionId, ChildState]: ...
    @property
    def client_run_ids(self) -> Mapping[ClientId, RunId]: ...
    @property
    def client_rename_ids(self) -> Mapping[ClientId, int]: ...
    @property
    def response_ids(self) -> Mapping[ClientId, ApprovalId]: ...
    @property
    def reverted_seq(self) -> int: ...
    @property
    def last_repair(self) -> tuple[tuple[str, ...], tuple[int, ...]]: ...
    @property
    def isolated(self) -> Mapping[BlockPlace, str]: ...
    @property
    def handle(self) -> Handle | None: ...
    @property
    def status(self) -> Status: ...
    @property
    def next_turn_seq(self) -> int: ...
    @property
    def overlay_rules(self) -> tuple[Rule, ...]: ...
    def open_approvals(self) -> Sequence[ApprovalState]: ...
    def live_grants(self) -> Sequence[TreeGrant]: ...


class _Face:
    """The view at run time: reads pass through, writes are refused."""

    __slots__ = ("_state",)

    def __init__(self, state: SessionState) -> None:
        object.__setattr__(self, "_state", state)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_state"), name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a view of a session cannot be changed: {name}")
