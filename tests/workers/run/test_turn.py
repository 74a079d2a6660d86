"""One turn: the request that a log makes, and what an attempt leaves in the log."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from ipc.content import ThinkingBlock, Usage
from ipc.events import (
    AttemptAbandoned,
    ModelAttemptStarted,
    ModelRequestPrepared,
    ModelTurnCommitted,
    ModelUsageRecorded,
    Payload,
    ReasoningDelta,
    TextDelta,
)
from ipc.rules import Rule
from tests.fakes.desk import ALLOWED, PRICED, TOOLS, MemoryDesk, allowing, kit, story
from tests.fakes.logs import BINDING
from workers.providers.base import Done, Part, Request, TextPart, ThinkingPart
from workers.providers.script import Call, Fail, Say, Think
from workers.providers.scripted import Scripted
from workers.run.drive import drive
from workers.run.request import prepare
from workers.run.turn import take_turn


class Parts:
    """An adapter that gives exactly these parts, and says how it was left."""

    def __init__(self, *parts: Part) -> None:
        self.parts = parts
        self.seen: list[Request] = []
        self.closed = 0

    async def stream(self, request: Request) -> AsyncIterator[Part]:
        self.seen.append(request)
        try:
            for part in self.parts:
                await asyncio.sleep(0)
                yield part
        finally:
            self.closed += 1


def asked(desk: MemoryDesk, mine: Any, binding: Any = BINDING) -> Request:
    assert desk.state.run is not None
    return prepare(desk, mine, desk.state.run, binding).request


async def test_an_attempt_is_in_the_log_before_its_request_goes_out() -> None:
    desk = MemoryDesk().open()
    provider = Parts(Done(content=(), finish_reason="stop", usage=Usage()))
    seen: list[list[str]] = []
    before = provider.stream

    def stream(request: Request) -> AsyncIterator[Part]:
        seen.append([type(one).__name__ for one in desk.payloads[-2:]])
        return before(request)

    provider.stream = stream  # type: ignore[method-assign]
    await take_turn(desk, kit(provider))
    assert seen == [["ModelAttemptStarted", "ModelRequestPrepared"]]
    started, prepared = desk.payloads[3:5]
    assert isinstance(started, ModelAttemptStarted)
    assert isinstance(prepared, ModelRequestPrepared)
    assert started.attempt_id == prepared.attempt_id
    assert (started.attempt_ordinal, started.retry_ordinal) == (1, 0)


async def test_parts_become_deltas_and_the_turn_and_its_usage_come_in_one_append() -> None:
    done = Done(
        content=(ThinkingBlock(text="hm", signature="s"),),
        finish_reason="stop",
        usage=Usage(input_tokens=1),
        native_replay={"kept": 1},
        provider_metadata={"p": 1},
        response_metadata={"r": 1},
    )
    provider = Parts(
        ThinkingPart("hm"),
        ThinkingPart("", signature="s"),
        ThinkingPart("hidden", redacted=True),
        TextPart("text"),
        TextPart(""),
        done,
        TextPart("never read"),
    )
    desk = MemoryDesk().open()
    appends: list[list[type[Payload]]] = []

    async def before(payloads: Any) -> None:
        appends.append([type(one) for one in payloads])

    desk.before = before
    await take_turn(desk, kit(provider))
    assert appends == [
        [ModelAttemptStarted, ModelRequestPrepared],
        [ReasoningDelta],
        [TextDelta],
        [ModelTurnCommitted, ModelUsageRecorded],
    ]
    turn = desk.payloads[-2]
    assert isinstance(turn, ModelTurnCommitted)
    assert turn.turn.native_replay == {"kept": 1}
    assert turn.turn.provider_metadata == {"p": 1}
    assert turn.turn.response_metadata == {"r": 1}
    assert provider.closed == 1


@pytest.mark.parametrize("k", range(1, 5))
async def test_a_turn_that_is_cancelled_leaves_its_stream_closed_and_its_attempt_open(
    k: int,
) -> None:
    provider = Parts(*[TextPart("x")] * 8)
    desk = MemoryDesk().open()
    count = 0

    async def before(_payloads: Any) -> None:
        nonlocal count
        count += 1
        if count == k + 1:
            task.cancel()
            await asyncio.sleep(0)

    desk.before = before
    task = asyncio.create_task(take_turn(desk, kit(provider)))
    await asyncio.wait({task})
    assert task.cancelled()
    assert provider.closed == 1
    assert desk.state.run is not None
    assert desk.state.run.attempt is not None
    assert not any(isinstance(one, AttemptAbandoned) for one in desk.payloads)


def test_a_request_holds_the_frozen_prompt_and_the_tools_that_the_rules_leave() -> None:
    agent = msgspec.structs.replace(
        allowing("read"), composed_prompt="You are it.", max_output_tokens=10
    )
    desk = MemoryDesk().open(agent=agent, binding=PRICED)
    mine = kit(Scripted([]))
    request = asked(desk, mine, PRICED)
    assert (request.system, request.max_output_tokens) == ("You are it.", 10)
    assert (request.turn, request.attempt) == (0, 1)
    assert [spec.name for spec in request.tools] == ["look"]
    more = (Rule(action="bash", resource="*", effect="allow"),)
    wider = msgspec.structs.replace(mine, plan=msgspec.structs.replace(mine.plan, overlay=more))
    assert [spec.name for spec in asked(desk, wider, PRICED).tools] == list(TOOLS)


async def test_a_retry_and_a_later_turn_say_which_they_are() -> None:
    desk = MemoryDesk().open()
    provider = Scripted([[Call("look", id="a")], Fail("overload")])
    await drive(desk, kit(provider))
    assert [(one.turn, one.attempt) for one in provider.seen] == [(0, 1), (1, 1)]
    retried = MemoryDesk().open()
    attempt = await _one_attempt(retried)
    retried.put(AttemptAbandoned(attempt_id=attempt))
    assert asked(retried, kit(provider)).attempt == 2


async def _one_attempt(desk: MemoryDesk) -> Any:
    with pytest.raises(ZeroDivisionError):
        await take_turn(desk, msgspec.structs.replace(kit(Scripted([])), provider=_broken))
    assert desk.state.run is not None
    assert desk.state.run.attempt is not None
    return desk.state.run.attempt.attempt_id


def _broken(_binding: Any) -> Any:
    raise ZeroDivisionError


async def test_equal_logs_make_equal_bytes_of_requests() -> None:
    """Each request of a run comes out again from the part of the log that it was made of."""
    desk = MemoryDesk().open(agent=ALLOWED)
    script = Scripted(
        [
            [
                Think("hm", signature="s"),
                Say("é\u2028 "),
                Call("look", id="a"),
                Call("poke", id="b"),
            ],
            [Call("poke", raw="{broken", id="c"), Call("look", id="")],
            Say("done"),
        ]
    )
    mine = kit(script)
    await drive(desk, mine)
    assert len(script.seen) == 3
    starts = [n for n, e in enumerate(desk.events) if isinstance(e.payload, ModelAttemptStarted)]
    for request, start in zip(script.seen, starts, strict=True):
        again = asked(MemoryDesk(desk.events[:start]), mine)
        assert msgspec.json.encode(again) == msgspec.json.encode(request)
    # And a request says all that the one before it said, in the same words.
    for earlier, later in zip(script.seen, script.seen[1:], strict=False):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert (later.system, later.tools) == (earlier.system, earlier.tools)


async def test_a_turn_without_any_content_completes_the_run() -> None:
    desk = MemoryDesk().open()
    await drive(desk, kit(Parts(Done(content=(), finish_reason="stop", usage=Usage()))))
    assert story(desk.payloads)[-1] == "run completed: "
