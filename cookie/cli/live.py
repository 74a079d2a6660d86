"""What stderr shows while a run works: one live line on a terminal, a log with --verbose."""

import asyncio
import os
from typing import Final

from cookie.cli import status
from ipc.events import (
    AttemptAbandoned,
    Event,
    ModelAttemptStarted,
    ModelTurnCommitted,
    ReasoningDelta,
    TextDelta,
    ToolCallStarted,
    ToolCallTerminated,
    WorkerRecovered,
)
from ipc.fold import SessionState

STDERR: Final = 2
COLUMNS: Final = 80


class Live:
    """Follows a run's events; draws at most ten times a second and only on a terminal."""

    def __init__(self, state: SessionState, *, verbose: bool) -> None:
        self._state = state
        self._verbose = verbose
        self._draws = not verbose and os.isatty(STDERR)
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._doing = "starting"
        self._drawn = False
        self._timer: asyncio.TimerHandle | None = None
        if self._draws:
            self._tick()

    def follow(self, event: Event) -> None:
        """Take one event of the run. Costs a dictionary look-up for a delta."""
        doing = _DOING.get(type(event))
        if doing is not None:
            self._doing = doing
        elif isinstance(event, ToolCallStarted):
            self._doing = event.presentation.title
        if self._verbose and (line := _told(event)) is not None:
            _write(f"cookie: {line}\n")

    def print_above(self) -> None:
        """Erase the line, so that something else can be printed where it stands."""
        if self._drawn:
            _write(status.ERASE)
            self._drawn = False

    def close(self) -> None:
        """Erase the line for good."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.print_above()

    def _tick(self) -> None:
        try:
            columns = os.get_terminal_size(STDERR).columns
        except OSError:
            columns = COLUMNS
        total = self._state.usage.total
        text = status.line(
            turn=len(self._state.turns) + 1,
            doing=self._doing,
            tokens=total.input_tokens + total.output_tokens,
            elapsed_s=self._loop.time() - self._begun,
            columns=columns or COLUMNS,
        )
        _write(status.ERASE + text)
        self._drawn = True
        self._timer = self._loop.call_later(status.REFRESH_S, self._tick)


_DOING: Final[dict[type[Event], str]] = {
    ModelAttemptStarted: "waiting for the model",
    TextDelta: "writing",
    ReasoningDelta: "thinking",
}


def _told(event: Event) -> str | None:
    """The line of a log that --verbose shows for an event; None for what is not worth one."""
    match event:
        case ModelAttemptStarted():
            return f"asking {event.resolved_model.model} (attempt {event.attempt_ordinal})"
        case ModelTurnCommitted():
            used = event.turn.usage
            tokens = f"{used.input_tokens or 0} in, {used.output_tokens or 0} out"
            return f"turn {event.model_turn_seq}: {event.turn.finish_reason}, tokens {tokens}"
        case AttemptAbandoned():
            return "the attempt came to nothing"
        case ToolCallStarted():
            return f"call: {event.presentation.title}"
        case ToolCallTerminated(error=None):
            return f"call {event.outcome}"
        case ToolCallTerminated(error=error) if error is not None:
            return f"call {event.outcome}: {error.code}: {error.message}"
        case WorkerRecovered():
            went_on = "the run goes on" if event.resumed_run_id else "nothing was left running"
            return f"recovered ({event.cause}): {went_on}"
        case _:
            return None


def _write(text: str) -> None:
    try:
        os.write(STDERR, text.encode(errors="replace"))
    except OSError:
        return  # nobody watches
