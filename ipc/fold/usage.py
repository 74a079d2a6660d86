"""Usage: what the requests of a session cost in tokens and money."""

from ipc.content import Usage
from ipc.events import InternalAgentUsageRecorded, ModelUsageRecorded, StoredEvent
from ipc.fold.state import Rollup, SessionState
from ipc.fold.table import meaning


@meaning(ModelUsageRecorded, InternalAgentUsageRecorded)
def _recorded(
    state: SessionState, event: ModelUsageRecorded | InternalAgentUsageRecorded, _at: StoredEvent
) -> None:
    by_model = state.usage.by_model.setdefault(event.resolved_model.model, Rollup())
    for rollup in (state.usage.total, by_model):
        _add(rollup, event.usage, event.estimated_cost_pico_usd)


def _add(rollup: Rollup, usage: Usage, cost: int | None) -> None:
    rollup.request_count += 1
    rollup.input_tokens += usage.input_tokens or 0
    rollup.output_tokens += usage.output_tokens or 0
    rollup.reasoning_tokens += usage.reasoning_tokens or 0
    rollup.cache_read_tokens += usage.cache_read_tokens or 0
    rollup.cache_write_tokens += usage.cache_write_tokens or 0
    if usage.input_tokens is None or usage.cache_read_tokens is None:
        rollup.cache_reported = False
    if cost is None or rollup.cost_pico_usd is None:
        rollup.cost_pico_usd = None  # one request without a price leaves the sum without one
    else:
        rollup.cost_pico_usd += cost
