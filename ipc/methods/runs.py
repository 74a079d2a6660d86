"""Runs and what is told of them: start, steer, cancel, subscriptions and their notifications."""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from ipc.content import Count, UserInput
from ipc.events.base import RunSelection
from ipc.ids import CallId, ClientId, RunId, SessionId

CANCEL_REASON_CHARS_MAX = 1024

Stream = Literal["stdout", "stderr"]


class RunStartParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say something to a session; the same `client_run_id` with the same content runs once.

    A session whose model had to give way to a fallback stays with that as long as the same is
    selected; `reset_fallback` begins with what is selected all the same.
    """

    session_id: SessionId
    client_run_id: ClientId
    selection: RunSelection
    input: UserInput
    reset_fallback: bool = False


class RunStartResult(Struct, frozen=True, kw_only=True):
    """The run; its input and its run_started are on disk."""

    run_id: RunId


class RunSteerParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say something to a run that is going on."""

    run_id: RunId
    input: UserInput


class RunSteerResult(Struct, frozen=True, kw_only=True):
    """Whether the input was admitted; `handled_reason` when a hook dealt with it."""

    accepted: bool
    handled_reason: str | None = None


class OfRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which run is meant."""

    run_id: RunId


class RunRecallSteerResult(Struct, frozen=True, kw_only=True):
    """The text of the newest input that the model had not seen; null = there was none."""

    recalled: str | None


class RunCancelParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stop a run. `reason` is ours: it becomes the reason of run_cancelled."""

    run_id: RunId
    reason: str | None = None


class RunCancelResult(Struct, frozen=True, kw_only=True):
    """Whether the run was still going on; its terminal event follows."""

    cancelled: bool


class RunToolStdinParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Type into an interactive tool."""

    run_id: RunId
    call_id: CallId
    eof: bool
    data: str | None = None


class AcceptedResult(Struct, frozen=True, kw_only=True):
    """Whether it was taken."""

    accepted: bool


class EventsSubscribeParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events after `cursor` (all without one), then live ones. Beyond the end: cursor_ahead."""

    session_id: SessionId
    cursor: Count | None = None  # the last seq the client has
    limit: Count | None = None


class EventsSubscribeResult(Struct, frozen=True, kw_only=True):
    """Stored events, each exactly the bytes of its line in the log."""

    events: tuple[msgspec.Raw, ...]


class SubscriptionEvent(Struct, frozen=True, kw_only=True, tag_field="type", tag="event"):
    """Notification: one event of a subscribed session, exactly as it is in the log."""

    event: msgspec.Raw


class SubscriptionGap(Struct, frozen=True, kw_only=True, tag_field="type", tag="gap"):
    """Notification: events after `last_delivered_seq` were dropped for you; subscribe again."""

    session_id: SessionId
    last_delivered_seq: Count


Subscription = SubscriptionEvent | SubscriptionGap


class PluginEvent(Struct, frozen=True, kw_only=True):
    """Notification: a plugin said something to the subscribers of a session; not replayed."""

    plugin: str
    session_id: SessionId
    name: str
    payload: Any


class ToolOutputSnapshot(Struct, frozen=True, kw_only=True):
    """The end of a tool's output so far; offsets are bytes of the stream."""

    call_id: CallId
    start_offset: Count
    end_offset: Count
    chunks: tuple[str, ...]


class ToolOutputSnapshotEvent(Struct, frozen=True, kw_only=True):
    """Notification: where the live output of a call begins for a new subscriber."""

    stream: Stream
    snapshot: ToolOutputSnapshot


class ToolOutputDelta(Struct, frozen=True, kw_only=True):
    """Notification: more output of a call."""

    call_id: CallId
    stream: Stream
    byte_offset: Count
    data: str


class ToolOutputGap(Struct, frozen=True, kw_only=True):
    """Notification: output up to `next_offset` was dropped for you."""

    call_id: CallId
    stream: Stream
    next_offset: Count
