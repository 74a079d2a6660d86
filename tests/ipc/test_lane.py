import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ipc.frames import CREDIT_FRAMES, CREDIT_STEP
from ipc.lane import (
    QUEUE_BYTES_MAX,
    QUEUE_BYTES_SLOW,
    QUEUE_FRAMES_MAX,
    QUEUE_FRAMES_SLOW,
    Bodies,
    Inbox,
    Lane,
    LinkGone,
    LinkState,
    PeerStalled,
)
from ipc.orders import Credit, Down, Hello, Ping, Pong, Up, encode

PONG = encode(Pong(1))


class MemoryWire:
    """A wire that keeps what is posted; `full` refuses like a socket at its high-water mark."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.posted: list[bytes] = []
        self.full = False

    def post(self, parts: Sequence[bytes]) -> bool:
        if not self.full:
            self.posted.append(b"|".join(parts))
        return not self.full


class Side:
    """A supervisor's lane to one worker, and all it was told."""

    def __init__(self, *, take: bool = True) -> None:
        self.wire = MemoryWire()
        self.got: list[Up | Down] = []
        self.states: list[LinkState] = []
        self.refused: list[str] = []
        self.take = take
        self.lane = Lane(
            self.wire,
            "t.1",
            "up",
            self.deliver,
            lambda _peer, state: self.states.append(state),
            lambda reason, _peer: self.refused.append(reason),
        )

    def deliver(self, _lane: Lane, order: Up | Down, _bodies: Bodies) -> bool:
        self.got.append(order)
        return self.take

    def credit(self, frames: int) -> None:
        self.lane.arrive([encode(Credit(frames))])

    def offer(self, count: int, body: bytes = b"") -> None:
        for n in range(count):
            self.lane.offer([encode(Ping(n)), body])

    def posted(self) -> int:
        """How many frames went out, Credits left aside."""
        return sum(b"\xa4ping" in message for message in self.wire.posted)


async def test_nothing_goes_out_before_the_other_side_opens_its_window() -> None:
    side = Side()
    side.offer(3)
    assert (side.posted(), side.lane.queued, side.lane.state) == (0, 3, "waiting")
    side.credit(CREDIT_FRAMES)
    assert (side.posted(), side.lane.queued, side.lane.state) == (3, 0, "up")
    assert side.states == ["slow", "up"]


async def test_no_more_than_a_window_is_ever_under_way() -> None:
    side = Side()
    side.credit(CREDIT_FRAMES)
    side.offer(CREDIT_FRAMES + 10)
    assert (side.posted(), side.lane.queued, side.lane.state) == (CREDIT_FRAMES, 10, "slow")
    side.credit(4)
    assert (side.posted(), side.lane.queued, side.lane.state) == (CREDIT_FRAMES + 4, 6, "slow")
    side.credit(CREDIT_STEP)
    assert (side.lane.queued, side.lane.state) == (0, "up")
    assert side.lane.counters.sent == CREDIT_FRAMES + 10


async def test_a_wire_that_refuses_is_asked_again_and_nothing_is_lost() -> None:
    side = Side()
    side.credit(CREDIT_FRAMES)
    side.wire.full = True
    side.offer(3)
    side.lane.pump()
    assert (side.posted(), side.lane.queued) == (0, 3)
    side.wire.full = False
    side.lane.pump()
    assert (side.posted(), side.lane.queued, side.lane.counters.sent) == (3, 0, 3)


async def test_a_credit_that_the_wire_refused_is_told_with_the_next_one() -> None:
    side = Side()
    side.wire.full = True
    for _ in range(CREDIT_STEP):
        side.lane.arrive([PONG])
    side.wire.full = False
    side.lane.pump()
    assert side.wire.posted == [encode(Credit(CREDIT_STEP))]
    side.lane.pump()
    assert len(side.wire.posted) == 1


async def test_the_queue_has_a_limit_in_frames_and_in_bytes() -> None:
    side = Side()
    side.offer(QUEUE_FRAMES_MAX)
    with pytest.raises(PeerStalled):
        side.offer(1)
    assert side.lane.queued == QUEUE_FRAMES_MAX

    side = Side()
    half = b"x" * (QUEUE_BYTES_MAX // 2)
    side.lane.offer([PONG, half])
    with pytest.raises(PeerStalled):
        side.lane.offer([PONG, half])


async def test_senders_wait_from_a_lower_mark_on() -> None:
    side = Side()
    side.offer(QUEUE_FRAMES_SLOW - 1)
    assert not side.lane.crowded
    side.offer(1)
    assert side.lane.crowded

    side = Side()
    side.offer(1, b"x" * QUEUE_BYTES_SLOW)
    assert side.lane.crowded
    side.credit(CREDIT_FRAMES)
    assert not side.lane.crowded


async def test_everybody_who_waits_for_room_goes_on_when_there_is_some() -> None:
    side = Side()
    side.credit(CREDIT_FRAMES)
    side.offer(CREDIT_FRAMES + QUEUE_FRAMES_SLOW)
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(side.lane.wait_for_room(None)) for _ in range(50)]
        for _ in range(3):
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        side.credit(1)


async def test_patience_counts_from_the_last_progress() -> None:
    side = Side()
    side.credit(CREDIT_FRAMES)
    side.offer(CREDIT_FRAMES + 2 * QUEUE_FRAMES_SLOW)
    assert not await side.lane.room(0.01)
    assert not await side.lane.room(0.01)  # still no progress: it does not wait a second time
    with pytest.raises(PeerStalled):
        await side.lane.wait_for_room(0.01)


async def test_the_end_fails_all_that_wait_and_counts_what_is_lost() -> None:
    side = Side()
    side.credit(CREDIT_FRAMES)
    side.offer(CREDIT_FRAMES + QUEUE_FRAMES_SLOW)
    waits = (side.lane.wait_for_room(None), side.lane.flush(side.wire.loop.time() + 3600))
    room, flush = (side.wire.loop.create_task(wait) for wait in waits)
    await asyncio.sleep(0)
    side.lane.end()
    side.lane.end()

    async with asyncio.timeout(10):
        with pytest.raises(LinkGone):
            await room
        assert await flush is False
    with pytest.raises(LinkGone):
        side.offer(1)
    assert (side.lane.counters.lost, side.lane.queued) == (QUEUE_FRAMES_SLOW, 0)
    assert side.states == ["up", "slow", "gone"]
    side.lane.arrive([PONG])
    assert side.got == []


async def test_a_flush_asks_for_the_credits_that_are_owed() -> None:
    side = Side()
    side.credit(CREDIT_FRAMES)
    side.offer(3)
    flush = side.wire.loop.create_task(side.lane.flush(side.wire.loop.time() + 3600))
    await asyncio.sleep(0)
    assert side.wire.posted[-1] == encode(Credit(0))
    assert not flush.done()
    side.credit(3)
    async with asyncio.timeout(10):
        assert await flush


async def test_taken_frames_are_told_in_steps_and_at_once_to_who_asks() -> None:
    side = Side(take=False)
    for _ in range(3):
        side.lane.arrive([PONG])
    side.lane.taken()
    assert side.wire.posted == []
    side.credit(0)
    side.lane.taken()
    side.lane.taken()
    assert side.wire.posted == [encode(Credit(1))] * 3


@pytest.mark.parametrize(
    "parts",
    [[], [b""], [b"\xc0"], [encode(Ping(1))], [encode(Hello("t.1", "n", 1, 0, "b"))]],
    ids=["nothing", "no head", "no word", "other direction", "second hello"],
)
async def test_a_bad_frame_of_a_known_peer_is_counted_and_said(parts: list[bytes]) -> None:
    side = Side()
    side.lane.arrive(parts)
    side.lane.arrive([PONG])
    assert (side.got, side.lane.counters.refused, len(side.refused)) == ([Pong(1)], 1, 1)


async def test_a_peer_that_lies_about_credits_changes_nothing() -> None:
    side = Side()
    side.credit(CREDIT_FRAMES)
    side.offer(5)
    for lie in (6, -1):
        side.credit(lie)
    assert side.lane.counters.refused == 2
    side.credit(5)
    assert side.lane.settled


async def test_a_peer_that_overruns_its_window_is_not_listened_to() -> None:
    side = Side(take=False)
    for _ in range(CREDIT_FRAMES + 3):
        side.lane.arrive([PONG])
    assert (len(side.got), side.lane.counters.refused) == (CREDIT_FRAMES, 3)


async def test_an_owner_that_fails_is_told_to_the_loop_and_the_frame_counts_as_taken() -> None:
    told: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: told.append(str(context["exception"])))
    side = Side()

    def fail(*_: object) -> Any:
        raise RuntimeError("planted")

    lane = Lane(side.wire, "t.1", "up", fail, fail, fail)
    for _ in range(CREDIT_STEP):
        lane.arrive([PONG])
    lane.arrive([encode(Credit(CREDIT_FRAMES))])
    lane.arrive([b"\xc0"])
    loop.set_exception_handler(None)

    assert told == ["planted"] * (CREDIT_STEP + 2)
    assert side.wire.posted == [encode(Credit(CREDIT_STEP))]
    assert lane.state == "up"


async def test_an_inbox_that_is_asked_and_given_up_loses_nothing_and_keeps_no_waiter() -> None:
    inbox: Inbox[int] = Inbox()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await inbox.get()
    assert inbox._waiters == []
    inbox.put(1)
    inbox.close("t.1")
    assert await inbox.get() == 1
    with pytest.raises(LinkGone):
        await inbox.get()
