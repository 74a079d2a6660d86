"""What is delivered goes to the link once, in order, and slows the run when the link is slow."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from ipc.frames import BODY_BYTES_MAX
from ipc.ids import SessionId
from ipc.methods.notify import event_of
from ipc.orders import Mark
from tests.fakes.logs import Log
from workers.process.outbox import WAITING_EVENTS_MAX, LinkOutbox

if TYPE_CHECKING:
    from ipc.link import Spoke
    from workers.store.log import Record

SESSION = SessionId("session")


class FakeSpoke:
    """A link that takes a batch when its door is open."""

    def __init__(self) -> None:
        self.state = "up"
        self.door = asyncio.Event()
        self.door.set()
        self.batches: list[tuple[list[Mark], list[bytes]]] = []

    def emit_now(self, marks: Sequence[Mark], bodies: Sequence[bytes]) -> bool:
        if self.state != "up" or not self.door.is_set() or len(marks) > 1:
            return False
        self.batches.append(([*marks], [*bodies]))
        return True

    async def emit(self, marks: Sequence[Mark], bodies: Sequence[bytes]) -> None:
        await self.door.wait()
        if self.state != "gone":
            self.batches.append(([*marks], [*bodies]))

    def gone(self) -> None:
        self.state = "gone"
        self.door.set()

    @property
    def seqs(self) -> list[int]:
        return [mark.seq for marks, _ in self.batches for mark in marks]


class Mail:
    """An outbox, its link, and records with rising numbers."""

    def __init__(self) -> None:
        self.spoke = FakeSpoke()
        self.told = 0
        self.box = LinkOutbox(cast("Spoke", self.spoke), self.count)
        self.log = Log()
        self.log.run = "run"

    def count(self) -> None:
        self.told += 1

    def put(self, *texts: str, commit: bool = False) -> None:
        before = len(self.log.events)
        for text in texts:
            if commit:
                self.log.user(text)
            else:
                self.log.delta("a", text)
        records: list[Record] = [
            (event, msgspec.json.encode(event)) for event in self.log.events[before:]
        ]
        self.box.put(SESSION, records)

    async def pumped(self, *, until: int) -> None:
        async with asyncio.timeout(20):
            pump = asyncio.create_task(self.box.pump())
            while len(self.spoke.seqs) < until:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)
            pump.cancel()


async def test_everything_is_sent_once_in_order_with_its_mark() -> None:
    mail = Mail()
    mail.put("one", "two")
    mail.put("three", commit=True)
    await mail.pumped(until=3)
    ((marks, bodies),) = mail.spoke.batches
    assert marks == [Mark(SESSION, 1, False), Mark(SESSION, 2, False), Mark(SESSION, 3, True)]
    assert [event_of(body) for body in bodies] == [msgspec.json.encode(e) for e in mail.log.events]
    assert mail.told == 1  # of the commit; text changes nothing that is told of


async def test_what_fits_at_once_waits_for_no_task() -> None:
    mail = Mail()
    mail.put("one")
    await asyncio.sleep(0)
    mail.put("two")
    await asyncio.sleep(0)
    assert mail.spoke.seqs == [1, 2]
    await mail.box.flush()


async def test_nothing_overtakes_what_the_link_had_no_room_for() -> None:
    mail = Mail()
    pump = asyncio.create_task(mail.box.pump())
    mail.spoke.door.clear()
    mail.put("one")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    mail.spoke.door.set()
    mail.put("two")  # its turn comes before the pump's
    async with asyncio.timeout(20):
        await mail.box.flush()
    assert mail.spoke.seqs == [1, 2]
    pump.cancel()


async def test_a_slow_link_makes_bigger_batches() -> None:
    mail = Mail()
    pump = asyncio.create_task(mail.box.pump())
    mail.spoke.door.clear()
    for n in range(100):
        mail.put(f"{n}")
        await asyncio.sleep(0)
    mail.spoke.door.set()
    async with asyncio.timeout(20):
        await mail.box.flush()
    assert mail.spoke.seqs == list(range(1, 101))
    assert len(mail.spoke.batches) == 2
    pump.cancel()


async def test_a_run_waits_while_too_much_waits_and_goes_on_when_it_was_taken() -> None:
    mail = Mail()
    await mail.box.room()  # there is
    mail.spoke.door.clear()
    pump = asyncio.create_task(mail.box.pump())
    await asyncio.sleep(0)
    mail.put(*["x"] * WAITING_EVENTS_MAX)
    run = asyncio.create_task(mail.box.room())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not run.done()
    mail.spoke.door.set()
    async with asyncio.timeout(20):
        await run
    assert len(mail.spoke.seqs) == WAITING_EVENTS_MAX
    pump.cancel()


@pytest.mark.parametrize("waits", ["room", "flush"])
async def test_nobody_waits_for_a_link_that_is_gone(waits: str) -> None:
    mail = Mail()
    mail.spoke.door.clear()
    pump = asyncio.create_task(mail.box.pump())
    mail.put(*["x"] * WAITING_EVENTS_MAX)
    await asyncio.sleep(0)
    waiting = asyncio.create_task(getattr(mail.box, waits)())
    await asyncio.sleep(0)
    mail.spoke.gone()
    async with asyncio.timeout(20):
        await waiting
    mail.put("y")
    await mail.box.room()
    await mail.box.flush()
    assert mail.spoke.batches == []
    pump.cancel()


async def test_an_event_that_no_frame_holds_is_left_to_the_log_and_ends_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mail = Mail()
    mail.log.user("large")
    mail.box.put(SESSION, [(mail.log.events[-1], b" " * BODY_BYTES_MAX)])
    mail.put("small")
    await mail.pumped(until=1)
    assert mail.spoke.seqs == [2]
    assert "event 1 is too large" in capsys.readouterr().err
