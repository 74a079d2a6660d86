"""Records that many methods speak of: a session, what it used, and what a tree is doing."""

from typing import Literal

from msgspec import Struct

from ipc.content import Count
from ipc.events.base import Revisions, RunSelection
from ipc.events.sessions import SessionOrigin
from ipc.ids import AgentId, ModelKey, RunId, SessionId

SessionStatus = Literal["idle", "running", "completed", "failed", "cancelled", "interrupted"]


class Nothing(Struct, frozen=True, kw_only=True):
    """No fields."""


class NoParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No fields, and none are taken."""


class OfSession(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which session is meant."""

    session_id: SessionId


class SkippedEvent(Struct, frozen=True, kw_only=True):
    """A line of a log that is not in the history; seq 0 when its number could not be read."""

    seq: Count
    reason: str


class SessionMeta(Struct, frozen=True, kw_only=True):
    """What is known of a session without its events; also the content of its metadata file."""

    session_id: SessionId
    origin: SessionOrigin
    cwd_identity: str  # the real path of the workspace
    status: SessionStatus
    title_updated_seq: Count
    last_event_seq: Count
    last_activity: str  # RFC 3339, UTC
    creation_selection: RunSelection
    revisions: Revisions
    title: str | None = None
    skipped_events: tuple[SkippedEvent, ...] = ()


class UsageTotals(Struct, frozen=True, kw_only=True):
    """Sums over requests. No price if one request had none; no rate if one did not report."""

    request_count: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    reasoning_tokens: Count = 0
    cache_read_tokens: Count = 0
    cache_write_tokens: Count = 0
    cache_hit_rate: float | None = None  # cache_read / input
    estimated_cost_usd: float | None = None


class UsageRollup(UsageTotals, frozen=True, kw_only=True):
    """What a session, a tree or an agent used, and how it is divided."""

    by_model: dict[ModelKey, UsageTotals] = {}


class ChildSession(Struct, frozen=True, kw_only=True):
    """A session that a tool call of this one began."""

    session_id: SessionId
    agent: AgentId
    status: SessionStatus
    title_updated_seq: Count
    title: str | None = None
    usage: UsageRollup | None = None


class SessionTree(Struct, frozen=True, kw_only=True):
    """A session and everything below it."""

    session: SessionMeta
    children: tuple["SessionTree", ...] = ()


class TreeRow(Struct, frozen=True, kw_only=True):
    """A live tree, as `cookie ps` shows it. Resources are of the worker and its tools."""

    root_session_id: SessionId
    workspace: str
    state: str  # TreeState of ipc/orders, or why it has no worker
    runs: tuple[RunId, ...] = ()
    children: Count = 0
    tokens: Count = 0
    uptime_ms: Count = 0
    build: str = ""
    worker_pid: int | None = None
    title: str | None = None
    pss_bytes: Count | None = None
    cpu_percent: float | None = None
    estimated_cost_usd: float | None = None
    held_by: str | None = None  # another daemon or `cookie run`, in words; None = this one
