"""Sessions: their birth, list, title, permissions, history, usage, skills and end."""

from typing import Literal

from msgspec import Struct

from ipc.content import Count
from ipc.events.approvals import RuleSource
from ipc.events.base import RunSelection
from ipc.events.trees import BudgetUnit
from ipc.ids import AgentId, ClientId, SessionId
from ipc.methods.records import ChildSession, SessionMeta, UsageRollup
from ipc.rules import Action, Effect, PermissionMode, Rule

RENAME_BYTES_MAX = 4096  # of the raw params
FOCUS_CHARS_MAX = 1024
SESSION_ENV_BYTES_MAX = 256 * 1024


class SessionCreateParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new root. `cwd` and `env` are ours; its repr shows no environment."""

    selection: RunSelection
    cwd: str | None = None  # the daemon's own when left out
    env: dict[str, str] | None = None  # of the tree's tools; the login environment when left out

    def __repr__(self) -> str:
        return f"SessionCreateParams({self.selection!r}, cwd={self.cwd!r})"


class SessionResult(Struct, frozen=True, kw_only=True):
    """One session."""

    session: SessionMeta


class SessionListParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Roots of one workspace, or of all."""

    cwd_identity: str | None = None


class SessionListResult(Struct, frozen=True, kw_only=True):
    """Roots, the latest activity first."""

    sessions: tuple[SessionMeta, ...]


class SessionChildrenResult(Struct, frozen=True, kw_only=True):
    """Direct children, in order of their birth."""

    children: tuple[ChildSession, ...]


class SetTitle(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="set"):
    """Name the session."""

    title: str


class ClearTitle(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="clear"):
    """No title, nor an automatic one."""


class ResetTitle(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="reset"):
    """Back to automatic titles."""


RenameChange = SetTitle | ClearTitle | ResetTitle


class SessionRenameParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change a title; the same `client_rename_id` with the same change is done once."""

    session_id: SessionId
    client_rename_id: ClientId
    change: RenameChange


class SessionRenameResult(Struct, frozen=True, kw_only=True):
    """The session with its new title."""

    session: SessionMeta
    client_rename_id: ClientId


class UsageResult(Struct, frozen=True, kw_only=True):
    """What something used."""

    usage: UsageRollup


class TreeUsageResult(Struct, frozen=True, kw_only=True):
    """What a session and all below it used."""

    session_id: SessionId
    session_count: Count
    usage: UsageRollup


class AgentUsageParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which agent is meant."""

    agent: AgentId


class SetPermissionModeParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Set the mode of a whole tree, named by any session of it."""

    session_id: SessionId
    mode: PermissionMode


class EffectivePattern(Struct, frozen=True, kw_only=True):
    """One pattern of an action, and where it comes from."""

    resource: str
    effect: Effect
    source: RuleSource


class EffectivePermission(Struct, frozen=True, kw_only=True):
    """What happens to calls of one action that no pattern matches, and the patterns."""

    action: Action
    effect: Effect
    source: RuleSource
    patterns: tuple[EffectivePattern, ...] = ()


class SessionPermissionsResult(Struct, frozen=True, kw_only=True):
    """The permissions in force."""

    permissions: tuple[EffectivePermission, ...]
    current_mode: PermissionMode | None = None


class PermissionsResult(Struct, frozen=True, kw_only=True):
    """The permissions in force after a change."""

    permissions: tuple[EffectivePermission, ...]


class PermissionSetParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lay one rule over the agent's own."""

    session_id: SessionId
    action: Action
    resource: str
    effect: Effect


class PermissionClearParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take one rule of the overlay away."""

    session_id: SessionId
    action: Action
    resource: str


class SessionCompactParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Summarise the history of an idle session; `focus` at most 1024 characters."""

    session_id: SessionId
    focus: str | None


class SessionCompactResult(Struct, frozen=True, kw_only=True):
    """Whether it came to a new checkpoint."""

    compacted: bool
    cancellation_reason: str | None = None


class ThroughSeqParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session and the last of its events that counts; from 1."""

    session_id: SessionId
    through_seq: Count


class SessionRevertResult(Struct, frozen=True, kw_only=True):
    """The session after the revert; a hook may have asked for other instructions."""

    session: SessionMeta
    instructions_override: str | None = None


class SessionForkResult(Struct, frozen=True, kw_only=True):
    """The new root."""

    session_id: SessionId


class SkillRow(Struct, frozen=True, kw_only=True):
    """A skill and what may be done with it in this session."""

    name: str
    description: str
    location: str
    source: Literal["user", "project"]
    precedence_winner: bool
    visible: bool
    user_invocable: bool
    permission_effect: Effect
    when_to_use: str | None = None
    argument_hint: str | None = None


class SkillsListResult(Struct, frozen=True, kw_only=True):
    """Every skill found, shadowed ones included."""

    skills: tuple[SkillRow, ...]


class SkillsGetParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Render a skill; the skill permission is checked."""

    session_id: SessionId
    name: str
    args: str = ""


class SkillsGetResult(Struct, frozen=True, kw_only=True):
    """The skill and its rendered body."""

    skill: SkillRow
    rendered: str


class ProducerRow(Struct, frozen=True, kw_only=True):
    """Somebody that may still wake the session."""

    owner: str
    live: bool
    pending: Count


class SessionProducersResult(Struct, frozen=True, kw_only=True):
    """Live producers; known at run time only."""

    producers: tuple[ProducerRow, ...]
    plugin_recovery: tuple[str, ...] = ()


class SessionStopParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """End a tree's worker: after what it has in hand, or now."""

    session_id: SessionId
    mode: Literal["drain", "kill"]


class SessionStopResult(Struct, frozen=True, kw_only=True):
    """Whether there was a worker to end."""

    stopped: bool


class SessionDeleteResult(Struct, frozen=True, kw_only=True):
    """Whether the tree is gone from the disk."""

    deleted: bool


class WaitsFor(Struct, frozen=True, kw_only=True):
    """One edge of the wait graph: who waits, for what, since when."""

    who: str
    waits_for: str
    since: str  # RFC 3339
    detail: str | None = None


class SessionWhyResult(Struct, frozen=True, kw_only=True):
    """Why nothing moves: the wait graph, the session's own wait first."""

    waits: tuple[WaitsFor, ...]


class CacheMiss(Struct, frozen=True, kw_only=True):
    """A request that could not use the cache, the segment that changed, and its price."""

    seq: Count
    segment: str
    tokens: Count
    cost_usd: float | None = None


class UsageExplainResult(Struct, frozen=True, kw_only=True):
    """Where the money for cache misses went."""

    misses: tuple[CacheMiss, ...]


class BudgetState(Struct, frozen=True, kw_only=True):
    """A limit, what is spent of it, and whether a run waits for an answer."""

    scope: str
    limit: Count
    spent: Count
    paused: bool
    unit: BudgetUnit = "pico_usd"


class BudgetResult(Struct, frozen=True, kw_only=True):
    """Every budget that binds this session."""

    budgets: tuple[BudgetState, ...]


class BudgetAnswerParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Let a paused run go on under a new limit, or stop it."""

    session_id: SessionId
    decision: Literal["raise", "stop"]
    limit: Count | None = None


class PermissionRehearseParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a rule would have decided about earlier calls of a session, or of a workspace."""

    rule: Rule
    session_id: SessionId | None = None
    cwd: str | None = None


class RehearsedCall(Struct, frozen=True, kw_only=True):
    """An earlier call, and what the rule changes about it."""

    session_id: SessionId
    seq: Count
    label: str | None
    before: Effect
    after: Effect


class PermissionRehearseResult(Struct, frozen=True, kw_only=True):
    """How many calls the rule touches, by effect, and some of them."""

    counts: dict[Effect, Count]
    examples: tuple[RehearsedCall, ...] = ()
