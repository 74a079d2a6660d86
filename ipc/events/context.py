"""Events of compaction: checkpoints that stand for the history before them."""

from typing import Any

from msgspec import Struct

from ipc.content import Count
from ipc.events.base import Event
from ipc.ids import Digest, InternalRunId, InvocationId


class InternalSummary(Struct, frozen=True, kw_only=True, tag_field="kind", tag="internal_summary"):
    """A summary that the compaction agent wrote; `sha256` and `byte_length` are of its UTF-8."""

    summary: str
    sha256: Digest
    byte_length: Count
    invocation_id: InvocationId
    internal_run_id: InternalRunId


class NativeWindow(Struct, frozen=True, kw_only=True, tag_field="kind", tag="native_window"):
    """A window that the provider itself compacted; only an equal wire model can read it."""

    window: dict[str, Any]


Checkpoint = InternalSummary | NativeWindow


class CheckpointBoundaries(Struct, frozen=True, kw_only=True):
    """Which events a checkpoint stands for, by seq, both ends included."""

    source_from_seq: Count
    source_through_seq: Count
    input_through_seq: Count
    prior_checkpoint_seq: Count | None = None


class CheckpointBudgets(Struct, frozen=True, kw_only=True):
    """The sizes that led to a checkpoint and came of it."""

    context_limit_tokens: Count
    trigger_tokens: Count
    input_tokens_before: Count
    input_tokens_after: Count
    max_summary_bytes: Count


class ContextCheckpointCommitted(
    Event, frozen=True, kw_only=True, tag="context_checkpoint_committed"
):
    """The history up to `source_through_seq` is replaced for the model by the checkpoint.

    While no attempt and no call is open, inside a run or runless. An internal_summary comes
    after its internal_agent_completed.
    """

    checkpoint: Checkpoint
    boundaries: CheckpointBoundaries
    budgets: CheckpointBudgets


class ContextCompactionAutoDisabled(
    Event, frozen=True, kw_only=True, tag="context_compaction_auto_disabled"
):
    """Automatic compaction gave up in this run. Read only: no writer makes it any more."""

    observed_tokens: Count
    trigger_tokens: Count
