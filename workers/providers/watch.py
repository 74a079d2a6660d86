"""The time limits of one request: a single timer that looks at them, however many bytes come."""

import asyncio
from collections.abc import Callable
from types import TracebackType


class Silence(Exception):
    """What was waited for did not come in time; `total`: the whole request took too long."""

    def __init__(self, *, total: bool) -> None:
        super().__init__("the whole request" if total else "silence")
        self.total = total


def _still() -> int:
    return 0


class Watch:
    """Bounds what is awaited inside `with watch:`; there it raises Silence.

    `limit` says how long one thing may take, `progress` that it moved on. The time between two
    waits belongs to whoever takes the parts and is no silence; of the total it is a part.
    """

    __slots__ = (
        "_before",
        "_end",
        "_fired",
        "_left",
        "_limit",
        "_loop",
        "_measure",
        "_seen",
        "_since",
        "_task",
        "_timer",
    )

    def __init__(self, total_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._since = self._left = self._loop.time()
        self._end = self._since + total_s
        self._limit = total_s
        self._measure: Callable[[], int] = _still
        self._seen = 0
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._before = 0
        self._fired = False

    def limit(self, seconds: float, measure: Callable[[], int] = _still) -> None:
        """From now on something else is waited for; a change of `measure` is progress too.

        It is asked when the time is over, for what nobody can tell as it happens.
        """
        self._limit = seconds
        self._since = self._left = self._loop.time()
        self._measure, self._seen = measure, measure()
        self.close()
        if self._task is not None:
            self._arm()

    def progress(self) -> None:
        """What the last wait was for has moved on."""
        self._since = self._left

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __enter__(self) -> None:
        self._since += self._loop.time() - self._left
        self._task = task = asyncio.current_task()
        self._before = task.cancelling() if task is not None else 0
        if self._timer is None:
            self._arm()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        self._left = self._loop.time()
        if not self._fired or task is None:
            return
        # The timer's cancellation becomes Silence; one from outside, at the same time or not,
        # goes on (what asyncio.timeout does).
        self._fired = False
        if task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise Silence(total=self._left >= self._end) from None

    def _due(self) -> float:
        return min(self._end, self._since + self._limit)

    def _arm(self) -> None:
        self._timer = self._loop.call_at(self._due(), self._look)

    def _look(self) -> None:
        self._timer = None
        if self._task is None:  # nobody waits: the next wait arms it again
            return
        measured = self._measure()
        if measured != self._seen:
            self._seen = measured
            self._since = self._loop.time()
        if self._loop.time() < self._due():
            self._arm()
            return
        self._fired = True
        self._task.cancel()
