"""The desk of a run: what it takes, from the first word to stop until it is shut."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ipc.content import user_text
from ipc.events import (
    Payload,
    TextDelta,
    ToolCallExecuting,
    ToolCallTerminated,
    UserInputSubmitted,
)
from ipc.ids import AttemptId, RunId
from tests.fakes.samples import samples
from workers.actor.running import Home, RunDesk

RUN = RunId("01890000-0000-7000-8000-00000000000b")
RESULT = cast("Payload", samples(ToolCallTerminated)[0])
EFFECT = cast("Payload", samples(ToolCallExecuting)[0])
INPUT = UserInputSubmitted(input=user_text("go on"))
DELTA = TextDelta(attempt_id=AttemptId("01890000-0000-7000-8000-00000000000c"), text="x")


class Session:
    """A home that writes down what it is asked to append, and when it made the run wait."""

    def __init__(self) -> None:
        self.state = SimpleNamespace()
        self.log = self
        self.said: list[Any] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def append(self, events: Sequence[tuple[RunId | None, Payload]]) -> None:
        self.said += [payload for _, payload in events]
        self.meanwhile()

    async def delta(self, _run_id: RunId, payload: Payload) -> None:
        self.said.append(payload)

    async def room(self) -> None:
        self.said.append("waited for room")

    async def ask(self, command: Callable[[], Awaitable[None]]) -> None:
        self.meanwhile()
        await command()


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def desk(session: Session) -> RunDesk:
    return RunDesk(cast("Home", session), RUN)


async def test_a_run_that_was_told_to_stop_records_results_and_begins_nothing(
    session: Session, desk: RunDesk
) -> None:
    desk.stopping = True
    for begun in (desk.append(EFFECT), desk.append(RESULT, EFFECT), desk.delta(DELTA)):
        with pytest.raises(asyncio.CancelledError):
            await begun
    with pytest.raises(asyncio.CancelledError):
        await desk.in_turn(lambda: [INPUT])
    await desk.append(RESULT)

    assert session.said == [RESULT]


async def test_a_desk_that_is_shut_takes_no_result_either(session: Session, desk: RunDesk) -> None:
    """Its run has its end by then, and with it each of its calls."""
    desk.stopping = desk.shut = True
    with pytest.raises(asyncio.CancelledError):
        await desk.append(RESULT)

    assert session.said == []


async def test_an_effect_that_was_announced_does_not_begin_when_the_stop_came_meanwhile(
    session: Session, desk: RunDesk
) -> None:
    session.meanwhile = lambda: setattr(desk, "stopping", True)
    with pytest.raises(asyncio.CancelledError):
        await desk.append(EFFECT)

    assert session.said == [EFFECT]


async def test_what_is_decided_in_turn_is_not_appended_when_the_stop_came_first(
    session: Session, desk: RunDesk
) -> None:
    session.meanwhile = lambda: setattr(desk, "stopping", True)
    with pytest.raises(asyncio.CancelledError):
        await desk.in_turn(lambda: [INPUT])

    assert session.said == []


async def test_a_delta_waits_while_the_link_is_behind(session: Session, desk: RunDesk) -> None:
    await desk.delta(DELTA)

    assert session.said == [DELTA, "waited for room"]
