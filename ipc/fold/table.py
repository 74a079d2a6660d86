"""The table of meanings: which handler gives an event its effect, and the fold over a log."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from ipc.events import DELTAS, Event, StoredEvent
from ipc.faults import Fault
from ipc.fold.state import SessionState

# A handler is total: an event whose counterpart could not be read has what effect it still can
# have, and never an exception. A log is read as well as it can be (spec 1.4).
Handler = Callable[[SessionState, Any, StoredEvent], None]

HANDLERS: Final[dict[type[Event], Handler]] = {}


class OutOfOrder(Fault):
    """An event whose seq is not above the last one: the caller mixed two logs, or replays."""

    code = "event_out_of_order"


def meaning(*kinds: type[Event]) -> Callable[[Handler], Handler]:
    """Enter a handler for events of these types; each type has exactly one."""

    def enter(handler: Handler) -> Handler:
        for kind in kinds:
            if kind in HANDLERS:
                raise TypeError(f"{kind.__name__} has a meaning already")
            HANDLERS[kind] = handler
        return handler

    return enter


def apply(state: SessionState, stored: StoredEvent) -> None:
    """Give an event its effect on `state`, in place; raises OutOfOrder.

    The only place that knows what an event means. Its cost does not grow with the session,
    except that of a revert, which is linear in what stays visible.
    """
    seq = stored.seq
    if seq != state.seq + 1:
        if seq <= state.seq:
            raise OutOfOrder(seq=seq, after=state.seq)
        state.gap_seq = seq  # legal: a line that could not be read leaves one
    payload = stored.payload
    kind = type(payload)
    state.seq = seq
    state.last_timestamp = stored.timestamp
    HANDLERS[kind](state, payload, stored)
    if kind not in DELTAS:
        state.journal.append(stored)


def fold(events: Iterable[StoredEvent]) -> SessionState:
    """The state that a log's events come to, from the first one on."""
    state = SessionState()
    for stored in events:
        apply(state, stored)
    return state
