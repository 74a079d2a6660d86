"""What a run may touch: its session's desk, and the kit that its turns and tools are made from."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from ipc.events import FrozenModelBinding, Payload
from ipc.fold import SessionView
from ipc.ids import CallId
from ipc.plan import Plan
from ipc.seams.clock import Clock
from workers.providers.base import Provider
from workers.tools.base import Room, Tool


class Desk(Protocol):
    """The session's one writer, as a run sees it. All methods raise LogBroken."""

    @property
    def state(self) -> SessionView:
        """The fold of everything appended so far."""
        ...

    async def append(self, *payloads: Payload) -> None:
        """Make the payloads durable, apply them, publish them."""
        ...

    async def in_turn(self, decide: Callable[[], Sequence[Payload]]) -> None:
        """Append what `decide` then says, while no command of the session is half done.

        For what a steer, a recall or a cancel could contradict: inputs taken up, the run's end.
        """
        ...

    async def delta(self, payload: Payload) -> None:
        """Write a delta; returns at once unless too many are waiting."""
        ...


def chance() -> float:
    """A number in [0, 1), another one in each worker, also in those forked from one process."""
    return int.from_bytes(os.urandom(4)) / 2**32


class Kit(Struct, frozen=True, kw_only=True):
    """What runs of one worker are made from; nothing in it changes while one runs."""

    plan: Plan
    workspace: str
    clock: Clock
    tools: Mapping[str, type[Tool]]
    provider: Callable[[FrozenModelBinding], Provider]
    room: Callable[[Desk, CallId], Room]
    jitter: Callable[[], float] = chance
