"""Goals of a root session: read, set, pause, resume, cancel."""

from typing import Literal

from msgspec import Struct

from ipc.content import Count
from ipc.events.base import RunSelection
from ipc.ids import SessionId

GoalStatus = Literal["active", "paused", "completed", "cancelled"]


class GoalItem(Struct, frozen=True, kw_only=True):
    """One line of a goal's checklist."""

    description: str
    finished: bool


class GoalState(Struct, frozen=True, kw_only=True):
    """A goal under one revision."""

    goal_id: str
    objective: str
    status: GoalStatus
    revision: Count
    items: tuple[GoalItem, ...] = ()


class GoalResult(Struct, frozen=True, kw_only=True):
    """The goal, if there is one."""

    goal: GoalState | None


class GoalSetParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Give a root session a goal."""

    session_id: SessionId
    objective: str
    selection: RunSelection | None = None


class GoalLifecycleParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pause, resume or cancel the goal that was looked at; `selection` with resume only."""

    session_id: SessionId
    goal_id: str
    expected_revision: Count
    action: Literal["pause", "resume", "cancel"]
    selection: RunSelection | None = None
