"""Events of the processes around a session: recovery, adoption, budgets, repairs."""

from typing import Literal

from msgspec import Struct

from ipc.content import Count
from ipc.events.base import Event
from ipc.ids import AttemptId, RunId

BudgetUnit = Literal["pico_usd", "tokens", "requests"]


class WorkerRecovered(Event, frozen=True, kw_only=True, tag="worker_recovered"):
    """A worker took the session over from one that died. Runless; first thing it appends.

    With `resumed_run_id` that open run goes on under its id; without, an open run gets its
    run_interrupted next.
    """

    cause: str
    exit_status: int | None = None
    resumed_run_id: RunId | None = None


class TreeAdopted(Event, frozen=True, kw_only=True, tag="tree_adopted"):
    """A new supervisor took over the living worker. Root log only, runless, at any time."""

    epoch: Count
    build: str
    reason: str


class TreeDrained(Event, frozen=True, kw_only=True, tag="tree_drained"):
    """The worker finished what it had in hand and makes room for another. Root log, runless.

    No run is open; the last event of this worker.
    """

    epoch: Count
    build: str
    reason: str


class TreeEnded(Event, frozen=True, kw_only=True, tag="tree_ended"):
    """The worker ended by itself. Root log, runless; no run is open; its last event."""

    epoch: Count
    build: str
    reason: str


class BudgetPaused(Event, frozen=True, kw_only=True, tag="budget_paused"):
    """The open run waits, because the next request would go over `limit`. Between attempts.

    Followed by one budget_resumed of the same scope or by the end of the run.
    """

    scope: str
    limit: Count
    spent: Count
    unit: BudgetUnit = "pico_usd"


class BudgetResumed(Event, frozen=True, kw_only=True, tag="budget_resumed"):
    """The run goes on under a new `limit`. After its budget_paused."""

    scope: str
    limit: Count
    spent: Count
    unit: BudgetUnit = "pico_usd"


class LeaseWaited(Event, frozen=True, kw_only=True, tag="lease_waited"):
    """The open run had to wait for a right it did not hold. Between attempts, when it is over."""

    scope: str
    limit: Count
    spent: Count
    unit: BudgetUnit = "pico_usd"


class BlockPlace(Struct, frozen=True, kw_only=True):
    """Where a block of the history stands in the log.

    `seq` is of the event that holds it; `index` its place in that event's content or, for the
    result of a call, among its attachments; -1 = the whole content or output.
    """

    seq: Count
    index: int


class HistoryRepaired(Event, frozen=True, kw_only=True, tag="history_repaired"):
    """A request could only be made by mending the history it was made from.

    After its model_attempt_started. `kinds` and `counts` are of equal length: what was mended, and
    how often. Not repeated while they stay the same. `isolated` names blocks that a provider
    refused: from here on no request of this session holds them.
    """

    attempt_id: AttemptId
    kinds: tuple[str, ...]
    counts: tuple[Count, ...]
    isolated: tuple[BlockPlace, ...] = ()
