"""The traffic of one peer of a link, both ways: what may go, what waits, what came.

Knows credits, queues and waiting, no socket: `ipc/link` gives it a wire. Every frame is either
accepted, in order and for good, or refused at once; waiting comes after that, so a cancelled wait
loses nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from ipc.faults import Fault
from ipc.frames import (
    BODY_BYTES_MAX,
    CREDIT_FRAMES,
    BadCredit,
    BadFrame,
    CreditWindow,
    Tally,
    unpack,
)
from ipc.orders import BadOrder, Credit, Down, Hello, Up, decode_down, decode_up, encode

QUEUE_FRAMES_SLOW: Final = 256  # from here on senders wait
QUEUE_BYTES_SLOW: Final = 8 * 1024 * 1024
QUEUE_FRAMES_MAX: Final = 4 * QUEUE_FRAMES_SLOW  # from here on frames are refused
QUEUE_BYTES_MAX: Final = 2 * BODY_BYTES_MAX

LinkState = Literal["waiting", "up", "slow", "gone"]
Bodies = Sequence[bytes]
OnState = Callable[[str, LinkState], None]
OnRefused = Callable[[str, str], None]  # (reason, identity or "")

_WORDS: Final = {"down": decode_down, "up": decode_up}
_Item = TypeVar("_Item")


class LinkGone(Fault):
    """The other side is gone, or was never there; what waited is not sent and never will be."""

    code = "link_gone"


class PeerStalled(Fault):
    """The other side is there and takes nothing; the limit of what may wait for it is reached."""

    code = "peer_stalled"


class Counters:
    """What went through a link or one of its peers, in frames; Hello and Credit are not counted."""

    __slots__ = ("lost", "received", "refused", "sent", "strangers")

    def __init__(self) -> None:
        self.sent = 0  # handed to ZeroMQ
        self.received = 0  # handed to the owner, or into its inbox
        self.lost = 0  # emitted frames not accepted, and frames that waited when the peer went
        self.refused = 0  # frames of a known peer that are no frame or no word
        self.strangers = 0  # frames of nobody we expect, or with the wrong nonce

    def __repr__(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)


class Inbox(Generic[_Item]):
    """What arrived and was not taken; the credits bound it. A cancelled get takes nothing."""

    def __init__(self) -> None:
        self._items: deque[_Item] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._closed: str | None = None

    def put(self, item: _Item) -> None:
        """Add one."""
        self._items.append(item)
        self._wake()

    def close(self, peer: str) -> None:
        """No more will come; what is here can still be taken."""
        self._closed = peer
        self._wake()

    async def get(self) -> _Item:
        """The oldest; raises LinkGone when there is none and none will come."""
        while not self._items:
            if self._closed is not None:
                raise LinkGone(peer=self._closed)
            await wait_in(self._waiters)
        return self._items.popleft()

    def _wake(self) -> None:
        _wake_all(self._waiters)


async def wait_in(waiters: list[asyncio.Future[None]], until: float | None = None) -> None:
    """Wait for a wake of these waiters, or for the loop's clock to read `until`."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    waiters.append(waiter)
    timer = None if until is None else loop.call_at(until, _wake_all, [waiter])
    try:
        await waiter
    finally:
        if timer is not None:
            timer.cancel()
        if waiter in waiters:
            waiters.remove(waiter)


def _wake_all(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()


class Wire(Protocol):
    """What carries the parts: takes a message whole and at once, or not at all."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop all of this runs on."""
        ...

    def post(self, parts: Sequence[bytes]) -> bool:
        """Send one message; False when it can't be now."""
        ...


def guarded(
    loop: asyncio.AbstractEventLoop, what: str, call: Callable[..., Any], *args: Any
) -> Any:
    """Call into the owner. Its bug goes to the loop's exception handler and stops no reader."""
    try:
        return call(*args)
    except Exception as error:  # noqa: BLE001 - told to the handler, which escalates
        loop.call_exception_handler({"message": f"link: {what} failed", "exception": error})
        return None


class Lane:
    """The traffic of one peer, both ways: what may go, what waits, what came."""

    def __init__(
        self,
        wire: Wire,
        peer: str,
        words: Literal["up", "down"],
        deliver: Callable[["Lane", Up | Down, Bodies], bool],
        on_state: OnState | None,
        on_refused: OnRefused | None,
    ) -> None:
        self.peer = peer
        self.state: LinkState = "waiting"
        self.counters = Counters()
        self.route: tuple[bytes, ...] = ()
        self._wire = wire
        self._decode = _WORDS[words]
        self._deliver = deliver  # True: taken at once
        self._on_state = on_state
        self._on_refused = on_refused
        self._window = CreditWindow()
        self._tally = Tally()
        self._queue: deque[list[bytes]] = deque()
        self._queued_bytes = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._progress_at = wire.loop.time()
        self._credits_due = 0  # a Credit that ZeroMQ did not take; told with the next one
        self._asking = False

    # ---- out

    @property
    def queued(self) -> int:
        """Accepted frames that wait for a credit."""
        return len(self._queue)

    @property
    def crowded(self) -> bool:
        """Whether senders should wait."""
        return len(self._queue) >= QUEUE_FRAMES_SLOW or self._queued_bytes >= QUEUE_BYTES_SLOW

    @property
    def settled(self) -> bool:
        """Whether the other side took all that was accepted."""
        return not self._queue and self._window.under_way == 0

    def offer(self, parts: list[bytes]) -> None:
        """Accept a frame for good; raises LinkGone or PeerStalled when it is not accepted."""
        if self.state == "gone":
            raise LinkGone(peer=self.peer)
        if not self._queue and self._try(parts):
            return
        size = sum(map(len, parts))
        frames_full = len(self._queue) >= QUEUE_FRAMES_MAX
        if frames_full or (self._queue and self._queued_bytes + size > QUEUE_BYTES_MAX):
            raise PeerStalled(peer=self.peer, frames=len(self._queue), bytes=self._queued_bytes)
        if not self._queue:
            self._progress_at = self._wire.loop.time()
        self._queue.append(parts)
        self._queued_bytes += size
        if self._window.opened:
            self._become("slow")

    async def wait_for_room(self, patience_s: float | None) -> None:
        """Wait until senders may go on; raises LinkGone, or PeerStalled after `patience_s`."""
        if self.crowded and not await self.room(patience_s):
            raise PeerStalled(peer=self.peer, frames=self.queued)
        if self.state == "gone":
            raise LinkGone(peer=self.peer)

    async def room(self, patience_s: float | None) -> bool:
        """Wait until senders may go on; False after `patience_s` without any progress."""
        while self.crowded and self.state != "gone":
            until = None if patience_s is None else self._progress_at + patience_s
            if until is not None and self._wire.loop.time() >= until:
                return False
            await wait_in(self._waiters, until)
        return True

    async def flush(self, until: float) -> bool:
        """Wait until the other side took all that was accepted; False at `until` or when gone."""
        while not self.settled and self.state != "gone":
            self._ask()
            if self._wire.loop.time() >= until:
                return False
            await wait_in(self._waiters, until)
        return self.state != "gone"

    async def opened(self, until: float) -> None:
        """Wait for the other side's first Credit; raises LinkGone."""
        while not self._window.opened:
            if self.state == "gone" or self._wire.loop.time() >= until:
                raise LinkGone(peer=self.peer, reason="no answer to Hello")
            await wait_in(self._waiters, until)

    def open(self) -> None:
        """Tell the other side how much it may send; the first word of this direction."""
        self._tell(CREDIT_FRAMES)

    def pump(self) -> None:
        """Send what may go now, and let go on who waited for it."""
        if self._credits_due:
            self._tell(0)
        while self._queue and self._try(self._queue[0]):
            self._queued_bytes -= sum(map(len, self._queue.popleft()))
        if not self._queue and self.state == "slow":
            self._become("up")
        if not self.crowded:
            _wake_all(self._waiters)

    def end(self) -> None:
        """Fail all that waits. Nothing is sent or taken from here on."""
        self.counters.lost += len(self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        self._become("gone")
        _wake_all(self._waiters)

    # ---- in

    def arrive(self, parts: Sequence[bytes]) -> None:
        """Read one received message of this peer, its route cut off."""
        order: Up | Down | None = None
        bodies: Bodies = ()
        try:
            frame = unpack(parts)
            order, bodies = self._decode(frame.head), frame.bodies
        except (BadFrame, BadOrder) as bad:
            self._refuse(bad)
        try:
            if isinstance(order, Credit):
                self._credited(order.frames)
            elif isinstance(order, Hello):
                self._refuse(BadOrder(reason="a second Hello"))
            else:
                self._take(order, bodies)
        except BadCredit as bad:
            self._refuse(bad)

    def _take(self, order: Up | Down | None, bodies: Bodies) -> None:
        self._tally.arrived()
        if self.state == "gone":
            return
        if order is None:  # refused already; it has cost its sender a credit like any other
            self.taken()
            return
        self.counters.received += 1
        if self.hand_over(order, bodies):
            self.taken()

    def hand_over(self, order: Up | Down, bodies: Bodies) -> bool:
        """Give a frame to the owner; whether it is taken already. A failed delivery is taken."""
        what = type(order).__name__
        return guarded(self._wire.loop, what, self._deliver, self, order, bodies) is not False

    def taken(self) -> None:
        """The owner has taken the oldest frame."""
        owed = self._tally.taken()
        if owed and self.state != "gone":
            self._tell(owed)

    def _credited(self, frames: int) -> None:
        if frames == 0:
            owed = self._tally.asked()
            if owed:
                self._tell(owed)
            return
        self._window.credited(frames)
        self._asking = False
        self._progress_at = self._wire.loop.time()
        if self.state == "waiting":
            self._become("slow" if self._queue else "up")
        self.pump()

    def _refuse(self, bad: Fault) -> None:
        self.counters.refused += 1
        if self._on_refused is not None:
            guarded(self._wire.loop, "on_refused", self._on_refused, str(bad), self.peer)

    # ---- small steps

    def _try(self, parts: list[bytes]) -> bool:
        if not self._window.left or not self._wire.post((*self.route, *parts)):
            return False
        self._window.spend()
        self.counters.sent += 1
        return True

    def _tell(self, frames: int) -> None:
        frames += self._credits_due
        posted = self._wire.post((*self.route, encode(Credit(frames))))
        self._credits_due = 0 if posted else frames

    def _ask(self) -> None:
        if not self._asking and not self._queue and self._window.opened:
            self._asking = self._wire.post((*self.route, encode(Credit(0))))

    def _become(self, state: LinkState) -> None:
        if state != self.state:
            self.state = state
            if self._on_state is not None:
                guarded(self._wire.loop, "on_state", self._on_state, self.peer, state)
