"""A clock that a test moves: `sleep` takes no time and says how long it was asked to."""

import asyncio

from ipc.seams.clock import Clock


class FakeClock(Clock):
    """Starts at a round time; `advance` or `sleep` move it, nothing else does."""

    def __init__(self, start: str = "2026-01-02T03:04:05") -> None:
        super().__init__()
        self._start = start
        self._elapsed = 0.0
        self.naps: list[float] = []

    def advance(self, seconds: float) -> None:
        self._elapsed += seconds

    def monotonic(self) -> float:
        return 1000.0 + self._elapsed

    def now(self) -> str:
        minute, second = self._start.rsplit(":", 1)
        whole, milliseconds = divmod(int(second) * 1000 + round(self._elapsed * 1000), 1000)
        assert whole < 60, "this clock does not carry over minutes"
        return f"{minute}:{whole:02d}.{milliseconds:03d}Z"

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)
