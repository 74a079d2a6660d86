"""Events of a session itself: its birth, its title, its permission overlay, its reverts."""

from msgspec import Struct

from ipc.content import Count
from ipc.events.base import AgentSnapshot, Event, Revisions, RunSelection
from ipc.ids import CallId, ClientId, Handle, InvocationId, RunId, SessionId
from ipc.rules import Rule


class RootOrigin(Struct, frozen=True, kw_only=True, tag_field="kind", tag="root"):
    """A session that a person, or a fork, began."""


class DelegatedOrigin(Struct, frozen=True, kw_only=True, tag_field="kind", tag="delegated"):
    """A session that a tool call of another one began. `depth` of a root's child is 1."""

    root_session_id: SessionId
    parent_session_id: SessionId
    parent_run_id: RunId
    parent_tool_call_id: CallId
    invocation_id: InvocationId
    depth: Count


SessionOrigin = RootOrigin | DelegatedOrigin


class SessionCreated(Event, frozen=True, kw_only=True, tag="session_created"):
    """A session exists. Always the first event of a log (seq 1) and nowhere else; runless.

    A log whose first line cannot be read as this event cannot be opened.
    """

    origin: SessionOrigin
    cwd_identity: str  # the real path of the workspace
    creation_agent: AgentSnapshot
    creation_selection: RunSelection
    revisions: Revisions
    short_id: Handle | None = None


class SessionReverted(Event, frozen=True, kw_only=True, tag="session_reverted"):
    """Everything after `through_seq` stopped being visible, this marker excepted; runless.

    Comes only while no run is open. `through_seq` is the seq of an earlier visible event;
    what is visible afterwards is the prefix up to it and every event after this one.
    """

    through_seq: Count


class PermissionOverlay(Struct, frozen=True, kw_only=True):
    """The complete set of rules a person laid over the agent's own."""

    rules: tuple[Rule, ...]


class SessionPermissionOverlaySet(
    Event, frozen=True, kw_only=True, tag="session_permission_overlay_set"
):
    """The session's overlay was replaced as a whole; the last visible one holds. Runless.

    May come at any time after session_created, also while a run is open.
    """

    overlay: PermissionOverlay


class UserSetTitle(Struct, frozen=True, kw_only=True, tag_field="kind", tag="user_set"):
    """A person named the session."""

    client_rename_id: ClientId
    title: str


class UserClearedTitle(Struct, frozen=True, kw_only=True, tag_field="kind", tag="user_clear"):
    """A person wants no title, nor an automatic one."""

    client_rename_id: ClientId | None = None


class UserResetTitle(Struct, frozen=True, kw_only=True, tag_field="kind", tag="user_reset"):
    """A person gave the title back to the automatic ones."""

    client_rename_id: ClientId | None = None


class InternalAgentTitle(
    Struct, frozen=True, kw_only=True, tag_field="kind", tag="internal_agent_set"
):
    """The title agent named the session."""

    invocation_id: InvocationId
    title: str


class DelegatedTitle(Struct, frozen=True, kw_only=True, tag_field="kind", tag="delegated_set"):
    """The description of the delegation became the title."""

    title: str


class FallbackTitle(Struct, frozen=True, kw_only=True, tag_field="kind", tag="fallback_set"):
    """An excerpt of the input became the title."""

    title: str


TitleChange = (
    UserSetTitle
    | UserClearedTitle
    | UserResetTitle
    | InternalAgentTitle
    | DelegatedTitle
    | FallbackTitle
)


class SessionTitleCommitted(Event, frozen=True, kw_only=True, tag="session_title_committed"):
    """The title changed. `input_through_seq` is the last input the change has seen; runless.

    May come at any time after session_created. A person's choice is never overwritten by an
    automatic one that comes later, unless a user_reset lies between them.
    """

    input_through_seq: Count
    change: TitleChange
