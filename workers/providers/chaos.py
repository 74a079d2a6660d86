"""Faults from a seed, injected into any provider: how a run fares when its model is not well.

It ships for tests and rehearsals, and no binding can name it. The same seed and the same requests
get the same faults.
"""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, Literal

from msgspec import Struct

from ipc.events import ModelErrorKind
from ipc.seams.clock import REAL, Clock
from workers.providers.base import Done, Failed, Part, Provider, Request, failure

FaultName = Literal["refuse", "cut", "stall", "wait"]
STALLS_FOREVER: Final = 0.0


class Odds(Struct, frozen=True, kw_only=True):
    """How likely each fault is for one request, of 1; what is left is a request that goes well.

    `refuse` fails before the first part, `cut` ends after some parts, `stall` is silent after some
    parts and then times out, `wait` is refused with a time to wait.
    """

    refuse: float = 0.1
    cut: float = 0.1
    stall: float = 0.1
    wait: float = 0.1
    parts_max: int = 5  # let through before a cut or a stall
    stall_s: float = 90.0  # until a silence is a timeout; STALLS_FOREVER: it is none
    retry_after_ms: int = 2_000  # at most


REFUSALS: Final[tuple[ModelErrorKind, ...]] = ("transport", "timeout", "overload", "provider")


class Chaos:
    """Another provider, seen through bad weather. `faults` lists what became of each request."""

    def __init__(
        self, inner: Provider, seed: int, *, odds: Odds | None = None, clock: Clock = REAL
    ) -> None:
        self._inner = inner
        self._chance = random.Random(seed)  # noqa: S311  weather, not secrets
        self._odds = odds or Odds()
        self._clock = clock
        self.faults: list[FaultName | None] = []

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        """The parts of the inner provider, or some of them and a fault; see `Provider.stream`."""
        fault = self._draw()
        self.faults.append(fault)
        if fault in {"refuse", "wait"}:
            yield self._refusal(fault)
            return
        left = self._chance.randint(0, self._odds.parts_max) if fault else None
        async with aclosing(self._inner.stream(request)) as parts:
            async for part in parts:
                if left is not None and (left == 0 or isinstance(part, Done | Failed)):
                    yield await self._broken(fault)
                    return
                left = left - 1 if left is not None else None
                yield part

    def _draw(self) -> FaultName | None:
        odds = self._odds
        names: list[FaultName | None] = ["refuse", "cut", "stall", "wait", None]
        weights = [odds.refuse, odds.cut, odds.stall, odds.wait]
        rest = max(0.0, 1.0 - sum(weights))
        return self._chance.choices(names, [*weights, rest])[0]

    def _refusal(self, fault: FaultName | None) -> Failed:
        if fault == "wait":
            pause = self._chance.randint(1, self._odds.retry_after_ms)
            return failure(
                "rate_limited",
                "chaos: too many requests",
                stage="response_headers",
                http_status=429,
                retry_after_ms=pause,
            )
        kind = self._chance.choice(REFUSALS)
        return failure(kind, f"chaos: {kind} before the first part", stage="response_headers")

    async def _broken(self, fault: FaultName | None) -> Failed:
        if fault == "cut":
            return failure("unexpected_eof", "chaos: the stream was cut", stage="stream_finalize")
        if self._odds.stall_s == STALLS_FOREVER:
            await asyncio.get_running_loop().create_future()
        await self._clock.sleep(self._odds.stall_s)
        words = f"chaos: silence for {self._odds.stall_s:g} s"
        return failure("timeout", words, stage="stream_decode")
