"""A clock that a test moves: `sleep` takes no time and says how long it was asked to."""

import asyncio
from datetime import datetime, timedelta

from ipc.seams.clock import Clock


class FakeClock(Clock):
    """Starts at a round time; `advance` or `sleep` move it, nothing else does."""

    def __init__(self, start: str = "2026-01-02T03:04:05") -> None:
        super().__init__()
        self._start = datetime.fromisoformat(start)
        self._elapsed = 0.0
        self.naps: list[float] = []

    def advance(self, seconds: float) -> None:
        self._elapsed += seconds

    def monotonic(self) -> float:
        return 1000.0 + self._elapsed

    def now(self) -> str:
        when = self._start + timedelta(milliseconds=round(self._elapsed * 1000))
        return f"{when.isoformat(timespec='milliseconds')}Z"

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)
