"""The clock seam: monotonic time for waiting, wall time as data, and sleep."""

import asyncio
import time
from typing import Final


class Clock:
    """The real clock. Leases, backoff and timeouts use `monotonic`; `now` is only written down."""

    def __init__(self) -> None:
        self._second: tuple[int, str] = (-1, "")

    def monotonic(self) -> float:
        """Seconds that never go back, from an arbitrary zero."""
        return time.monotonic()

    def now(self) -> str:
        """The wall time as RFC 3339 in UTC with milliseconds, e.g. 2025-01-02T03:04:05.678Z."""
        milliseconds = time.time_ns() // 1_000_000
        second, rest = divmod(milliseconds, 1000)
        known, text = self._second  # one tuple, so a second thread sees a whole pair
        if second != known:
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = (second, text)
        return f"{text}.{rest:03d}Z"

    async def sleep(self, seconds: float) -> None:
        """Wait at least `seconds`; cancellable at once."""
        await asyncio.sleep(seconds)


REAL: Final = Clock()
