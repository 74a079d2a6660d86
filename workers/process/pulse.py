"""How the tree is, for the supervisor's roster: told when it changes, at most once a second."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ipc.fold import SessionView
from ipc.ids import RunId
from ipc.orders import Status, TreeState

EVERY_S: Final = 1.0  # at most this often (processes.md, "Frames")
AGAIN_S: Final = 5.0  # while something runs: its memory grows without an event

_PSS: Final = Path("/proc/self/smaps_rollup")
_Facts = tuple[RunId | None, int, TreeState]


class Pulse:
    """Watches a session's fold; `touch` is called whenever something was applied to it."""

    def __init__(
        self,
        state: SessionView,
        send: Callable[[Status], None],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._state = state
        self._send = send
        self._loop = loop or asyncio.get_running_loop()  # its clock and its timers
        self._phase: TreeState | None = "starting"
        self._told: _Facts | None = None
        self._told_at = self._loop.time() - EVERY_S
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False  # the timer is for a change, not for another look

    def begin(self) -> None:
        """The tree is open. That it is idle was said by Ready."""
        self._phase = None
        if self._state.run is None:
            self._told = self._facts()
        self.touch()

    def drain(self) -> None:
        """The tree ends, and this is said at once."""
        self._phase = "draining"
        self._tell()

    def stop(self) -> None:
        """Say nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._soon = True

    def touch(self) -> None:
        """Tell of a change, now or when the last word is a second old."""
        if self._soon or self._phase == "starting" or self._facts() == self._told:
            return
        wait = self._told_at + EVERY_S - self._loop.time()
        if wait <= 0:
            self._tell()
        else:
            self._soon = True
            self._later(wait)

    def _tell(self) -> None:
        self._soon = False
        run, tokens, state = self._told = self._facts()
        self._told_at = self._loop.time()
        self._send(Status(() if run is None else (run,), tokens, pss_bytes(), state))
        if run is not None:
            self._later(AGAIN_S)

    def _later(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._tell)

    def _facts(self) -> _Facts:
        run, used = self._state.run, self._state.usage.total
        state: TreeState = "idle"
        if self._phase is not None:
            state = self._phase
        elif run is not None:
            state = "waiting" if self._state.waiting else "running"
        return (None if run is None else run.run_id, used.input_tokens + used.output_tokens, state)


def pss_bytes(source: Path = _PSS) -> int:
    """This process's proportional set size; 0 where the kernel does not tell.

    One read of a few lines (0.3 ms at 60 MB). No other process may look: we are not dumpable.
    """
    try:
        text = source.read_bytes()
    except OSError:
        return 0
    for line in text.split(b"\n"):
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return 0
