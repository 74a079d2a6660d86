"""Events of a run: its beginning and its one end."""

from typing import ClassVar

from ipc.content import Count
from ipc.events.base import (
    AgentSnapshot,
    Event,
    FrozenModelBinding,
    ResolvedModel,
    Revisions,
    RunSelection,
)
from ipc.events.models import ModelErrorSummary
from ipc.ids import ClientId

RUN_ERROR_CHARS_MAX = 4096


class RunStarted(Event, frozen=True, kw_only=True, tag="run_started"):
    """A run was admitted; its envelope's run_id is new. Only while no other run is open.

    After the user_input_submitted it answers (`input_through_seq`). Followed by attempts and
    tool calls of this run, and by exactly one of run_completed, run_failed, run_cancelled,
    run_interrupted. `client_run_id` is unique in the session.
    """

    client_run_id: ClientId
    input_through_seq: Count
    selection: RunSelection
    agent: AgentSnapshot
    selected_suffix: tuple[FrozenModelBinding, ...]  # never empty; the first is asked first
    revisions: Revisions


class RunCompleted(Event, frozen=True, kw_only=True, tag="run_completed"):
    """The open run ended well: its last turn asked for no tool and no input was pending.

    Nothing more comes of this run except usage of what it had begun.
    """

    final_text: str | None = None


class RunFailed(Event, frozen=True, kw_only=True, tag="run_failed"):
    """The open run ended in an error. Its open attempt and its open calls ended before it.

    `error` is at most 4096 characters; pending inputs are void.
    """

    chars_max: ClassVar[dict[str, int]] = {"error": RUN_ERROR_CHARS_MAX}

    error: str
    model_error: ModelErrorSummary | None = None
    resolved_model: ResolvedModel | None = None


class RunCancelled(Event, frozen=True, kw_only=True, tag="run_cancelled"):
    """Somebody, or a limit, ended the open run. Its open calls ended before it."""

    reason: str | None = None


class RunInterrupted(Event, frozen=True, kw_only=True, tag="run_interrupted"):
    """The open run had died with its worker and could not go on. Written by the next worker.

    Its open attempt was abandoned and its open calls were terminated right before it.
    """

    reason: str | None = None
