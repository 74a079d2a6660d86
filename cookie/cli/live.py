"""What stderr shows while a run works: its troubles, a live line on a terminal, --verbose."""

import asyncio
import os
from collections.abc import Callable
from typing import Final

from cookie.cli import attempts, status
from cookie.cli.advice import one_line
from ipc.events import (
    AttemptAbandoned,
    Event,
    ModelAttemptStarted,
    ModelFallback,
    ModelTurnCommitted,
    ReasoningDelta,
    TextDelta,
    ToolCallStarted,
    ToolCallTerminated,
    ToolPresentation,
    WorkerRecovered,
)
from ipc.fold import SessionState
from ipc.plan import ModelRetry

STDERR: Final = 2
COLUMNS: Final = 80


class Live:
    """Follows a run's events; draws at most ten times a second and only on a terminal.

    An attempt that failed and what is done about it is told to everybody, in a line that stays.
    """

    def __init__(
        self,
        state: SessionState,
        *,
        verbose: bool,
        retry: ModelRetry,
        hold: Callable[[], bool] = lambda: False,
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`hold` says when the line's place is taken by something that must stay.

        `make_room` is called before a line is written, for whoever writes to the same terminal.
        """
        self._state = state
        self._verbose = verbose
        self._retry = retry
        self._hold = hold
        self._make_room = make_room
        self._asked: ModelAttemptStarted | None = None
        self._again_at: float | None = None  # by the loop's clock: when the model is asked again
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
                self._asked, self._again_at = event, None
        elif isinstance(event, ToolCallStarted):
            self._doing = _call(event.presentation)
        elif isinstance(event, AttemptAbandoned | ModelFallback):
            self._tell_trouble(event)
        if self._verbose and (line := _told(event)) is not None:
            _write(f"cookie: {one_line(line)}\n")

    def _tell_trouble(self, event: AttemptAbandoned | ModelFallback) -> None:
        """One line on what went wrong and what is done about it; the run's own end tells the rest.

        A run that an earlier worker began is not in our fold, and so its failures aren't counted.
        """
        if isinstance(event, ModelFallback):
            line: str | None = attempts.fell_back(event)
        elif event.error is None or self._asked is None:
            line = "the attempt came to nothing" if self._verbose else None
        else:
            model, run = self._asked.resolved_model.model, self._state.run
            failures = 0 if run is None else run.failures_like(event.error)
            line = attempts.asked_again(model, event, failures, self._retry)
            if line is None and self._verbose:
                line = attempts.failed(model, event.error)
        if isinstance(event, AttemptAbandoned) and event.retry_in_ms is not None:
            self._again_at = self._loop.time() + event.retry_in_ms / attempts.SECOND_MS
        if line is not None:
            self._make_room()
            self.print_above()
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
        doing = self._doing
        if self._again_at is not None:
            doing = attempts.countdown(max(self._again_at - self._loop.time(), 0))
        return status.line(
            turn=self._turn,
            doing=doing,
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
