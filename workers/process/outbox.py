"""What this worker tells its supervisor: delivered events, in batches, in the order of the log."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Final

from ipc.events import is_commit
from ipc.frames import BODY_BYTES_MAX
from ipc.ids import SessionId
from ipc.link import Spoke
from ipc.methods.notify import notification
from ipc.orders import Mark
from workers.store.log import Record

WAITING_EVENTS_MAX: Final = 1024  # from here on a run waits for the link
WAITING_BYTES_MAX: Final = 8 << 20


class LinkOutbox:
    """Everything delivered, encoded once as the finished notification, until the link took it.

    `pump` sends all that waits as one batch, so a slow link makes bigger batches, not more of
    them. Once the link is gone it sends nothing and nobody waits: the log has it all. `told` is
    called after each delivery that is more than deltas, link or not.
    """

    def __init__(self, spoke: Spoke, told: Callable[[], None] = lambda: None) -> None:
        self._spoke = spoke
        self._told = told
        self._marks: list[Mark] = []
        self._bodies: list[bytes] = []
        self._bytes = 0
        self._sending = False
        self._news = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()

    def put(self, session: SessionId, records: Sequence[Record]) -> None:
        """Take what is in the log now. Never waits."""
        if self._spoke.state != "gone":
            self._take(session, records)
        if any(is_commit(event.payload) for event, _ in records):
            self._told()

    def _take(self, session: SessionId, records: Sequence[Record]) -> None:
        for event, line in records:
            body = notification(line)
            if len(body) > BODY_BYTES_MAX:  # the log has it; the gap in seq says that it is missing
                sys.stderr.write(f"cookie: event {event.seq} is too large for the link\n")
                continue
            self._marks.append(Mark(session, event.seq, is_commit(event.payload)))
            self._bodies.append(body)
            self._bytes += len(body)
        self._news.set()
        if len(self._bodies) >= WAITING_EVENTS_MAX or self._bytes >= WAITING_BYTES_MAX:
            self._drained.clear()

    async def room(self) -> None:
        """Wait while too much waits to be sent, and so slow the run."""
        if not self._drained.is_set():
            await self._drained.wait()

    async def flush(self) -> None:
        """Wait until the link has accepted everything, or is gone."""
        while (self._bodies or self._sending) and self._spoke.state != "gone":
            self._drained.clear()
            await self._drained.wait()

    async def pump(self) -> None:
        """Until cancelled: send what waits. The only task that emits."""
        while True:
            await self._news.wait()
            # Who appended goes on first: it may start a tool or a request, and then waits.
            await asyncio.sleep(0)
            self._news.clear()
            marks, bodies = self._marks, self._bodies
            self._marks, self._bodies, self._bytes = [], [], 0
            self._sending = True
            await self._spoke.emit(marks, bodies)
            self._sending = False
            if not self._bodies or self._spoke.state == "gone":
                self._drained.set()
