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
        self._due = False  # `_send` will be called
        self._sending = False
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()

    def put(self, session: SessionId, records: Sequence[Record]) -> None:
        """Take what is in the log now. Never waits."""
        gone, committed = self._spoke.state == "gone", False
        for event, line in records:
            commit = is_commit(event.payload)
            committed = committed or commit
            if not gone:
                self._take(Mark(session, event.seq, commit), line)
        if committed:
            self._told()

    def _take(self, mark: Mark, line: bytes) -> None:
        body = notification(line)
        if len(body) > BODY_BYTES_MAX:  # the log has it; the gap in seq says that it is missing
            sys.stderr.write(f"cookie: event {mark.seq} is too large for the link\n")
            return
        self._marks.append(mark)
        self._bodies.append(body)
        self._bytes += len(body)
        if not self._due:
            # Who appended goes on first: it may start a tool or a request, and then waits.
            self._due = True
            self._loop.call_soon(self._send)
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

    def _send(self) -> None:
        """Send what waits, if the link has room for it; else `pump` does, when it has."""
        self._due = False
        if self._sending or not self._spoke.emit_now(self._marks, self._bodies):
            self._news.set()
            return
        self._taken()
        self._sent()

    async def pump(self) -> None:
        """Until cancelled: send what the link had no room for. The only task that emits."""
        while True:
            await self._news.wait()
            self._news.clear()
            self._sending = True
            await self._spoke.emit(*self._taken())
            self._sending = False
            self._sent()

    def _taken(self) -> tuple[list[Mark], list[bytes]]:
        taken = self._marks, self._bodies
        self._marks, self._bodies, self._bytes = [], [], 0
        return taken

    def _sent(self) -> None:
        if not self._bodies or self._spoke.state == "gone":
            self._drained.set()
