"""What stderr shows while a run works: one live line on a terminal, a log with --verbose."""

import asyncio
import os
from collections.abc import Callable
from typing import Final

from cookie.cli import status
from cookie.cli.advice import one_line
from ipc.events import (
    AttemptAbandoned,
    Event,
    ModelAttemptStarted,
    ModelTurnCommitted,
    ReasoningDelta,
    TextDelta,
    ToolCallStarted,
    ToolCallTerminated,
    ToolPresentation,
    WorkerRecovered,
)
from ipc.fold import SessionState

STDERR: Final = 2
COLUMNS: Final = 80


class Live:
    """Follows a run's events; draws at most ten times a second and only on a terminal."""

    def __init__(
        self, state: SessionState, *, verbose: bool, hold: Callable[[], bool] = lambda: False
    ) -> None:
        """`hold` says when the line's place is taken by something that must stay."""
        self._state = state
        self._verbose = verbose
        self._hold = hold
        dumb = os.environ.get("TERM", "dumb") == "dumb"  # it would show our escapes as text
        self._draws = not (verbose or dumb) and os.isatty(STDERR)
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._doing = "starting"
        self._turn = 1
        self._drawn = ""  # what stands there now
        self._timer: asyncio.TimerHandle | None = None
        if self._draws:
            self._tick()

    def follow(self, event: Event) -> None:
        """Take one event of the run. Costs a dictionary look-up for a delta."""
        doing = _DOING.get(type(event))
        if doing is not None:
            self._doing = doing
            if type(event) is ModelAttemptStarted:  # the calls of a turn still belong to it
                self._turn = len(self._state.turns) + 1
        elif isinstance(event, ToolCallStarted):
            self._doing = _call(event.presentation)
        if self._verbose and (line := _told(event)) is not None:
            _write(f"cookie: {one_line(line)}\n")

    def print_above(self) -> None:
        """Erase the line, so that something else can be printed where it stands."""
        if self._drawn:
            _write(status.ERASE)
            self._drawn = ""

    def close(self) -> None:
        """Erase the line for good."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.print_above()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(status.REFRESH_S, self._tick)
        if not self._hold() and (text := self._line()) != self._drawn:
            _write(status.ERASE + text)
            self._drawn = text

    def _line(self) -> str:
        try:
            columns = os.get_terminal_size(STDERR).columns
        except OSError:
            columns = COLUMNS
        total = self._state.usage.total
        return status.line(
            turn=self._turn,
            doing=self._doing,
            tokens=total.input_tokens + total.output_tokens,
            elapsed_s=self._loop.time() - self._begun,
            columns=columns or COLUMNS,
        )


_DOING: Final[dict[type[Event], str]] = {
    ModelAttemptStarted: "waiting for the model",
    TextDelta: "writing",
    ReasoningDelta: "thinking",
}


def _call(shown: ToolPresentation) -> str:
    argument = shown.primary_argument or ""
    return shown.title if argument in shown.title else f"{shown.title} {argument}"


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
            return f"call: {_call(event.presentation)}"
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
