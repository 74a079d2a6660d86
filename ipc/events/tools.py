"""Events of a tool call: asked for, executing, its progress, its one end."""

from typing import ClassVar

from msgspec import Struct

from ipc.content import Count, ToolError, ToolResult
from ipc.events.base import Event, Outcome
from ipc.ids import CallId, Fingerprint, SessionId

PROGRESS_MESSAGE_CHARS_MAX = 1024
PROGRESS_CHUNK_CHARS_MAX = 1024
OUTCOME_UNKNOWN = "outcome_unknown"  # error code of a call that died while executing


class ToolCallOwner(Struct, frozen=True, kw_only=True):
    """The tool_call block that asked: block `content_index` (from 0) of turn `model_turn_seq`."""

    model_turn_seq: Count
    content_index: Count
    model_call_id: str
    provider_item_id: str | None = None


class OperationDigest(Struct, frozen=True, kw_only=True):
    """The fingerprint of what a call is going to do."""

    digest: Fingerprint


class ToolPresentation(Struct, frozen=True, kw_only=True):
    """How to show a call to a person."""

    title: str
    primary_argument: str | None = None


class ToolCallStarted(Event, frozen=True, kw_only=True, tag="tool_call_started"):
    """A call was taken up; nothing has happened in the world yet. In model order, once a block.

    After the model_turn_committed of its owner. Ends in exactly one tool_call_terminated.
    """

    tool_call_id: CallId
    owner: ToolCallOwner
    operation_fingerprint: OperationDigest
    presentation: ToolPresentation


class ToolCallExecuting(Event, frozen=True, kw_only=True, tag="tool_call_executing"):
    """The effect of a call comes next. Once at most, after all decisions about it.

    A call without this event had no effect. A call with it and without an end has an unknown
    one, and is never run again.
    """

    tool_call_id: CallId


class ToolCallProgress(Event, frozen=True, kw_only=True, gc=False, tag="tool_call_progress"):
    """A call tells how it goes. Between tool_call_executing and tool_call_terminated.

    `message` and `output_chunk` have at most 1024 characters each.
    """

    chars_max: ClassVar[dict[str, int]] = {
        "message": PROGRESS_MESSAGE_CHARS_MAX,
        "output_chunk": PROGRESS_CHUNK_CHARS_MAX,
    }

    tool_call_id: CallId
    message: str
    output_chunk: str | None = None


class ToolCallTerminated(Event, frozen=True, kw_only=True, tag="tool_call_terminated"):
    """A call ended; this is what the model is told. Exactly one for each tool_call_started.

    A call may end without executing: denied, cancelled, or of bad arguments. An effect that
    nobody can know after a crash is outcome "interrupted" with the code "outcome_unknown".
    `error` is set unless the outcome is "completed"; `result` may be set beside it.
    """

    tool_call_id: CallId
    owner: ToolCallOwner
    outcome: Outcome
    result: ToolResult | None = None
    error: ToolError | None = None


class RetainedOutput(Struct, frozen=True, kw_only=True):
    """Where an output that left the history can still be read."""

    uri: str


class ToolOutputElided(Event, frozen=True, kw_only=True, tag="tool_output_elided"):
    """An old output left the history for a reference. After its tool_call_terminated, once."""

    tool_call_id: CallId
    original_bytes: Count
    retained: RetainedOutput


class ToolStdinSubmitted(Event, frozen=True, kw_only=True, tag="tool_stdin_submitted"):
    """A person wrote to a call's standard input. While the call executes; 0 bytes = its end."""

    tool_call_id: CallId
    byte_count: Count


class ToolCallLinked(Event, frozen=True, kw_only=True, tag="tool_call_linked"):
    """A call works through a child session. Between all decisions about it and its end."""

    tool_call_id: CallId
    child_session_id: SessionId
