"""The link between the supervisor and its workers: ROUTER and DEALER on asyncio or uvloop.

The only file that imports zmq. Theory of operation:

- A socket's FD only says "look"; one reader callback per socket then drains it until EAGAIN. It is
  no task, so nothing can cancel it and lose what was already popped (hazard 15). ZeroMQ may use up
  that signal inside a *send*, so every send is followed by a look, and a watchdog looks once a
  second in case both were wrong (hazard 53).
- Sends never block and never meet a high-water mark: each direction of each peer has a window of
  credits (`ipc/frames`), the marks lie above it, and what has no credit waits in a queue of ours
  that can be counted, limited and failed (hazards 13, 14). ZeroMQ keeps no backlog worth losing.
- A frame is accepted or refused at once; only *then* may its sender be made to wait. So a cancelled
  send loses nothing and tears nothing.
- Routing ids are those ZeroMQ makes up, a fresh one per connection, and the identity (tree and
  epoch) is in Hello beside the nonce. Naming the routing id after the identity was refused: a
  stranger who knows it could take it first, and ROUTER ignores the second without a word
  (hazard 50).
- Transport is at-most-once and the log is the truth. A Spoke connects once; it never finds its way
  to another supervisor by itself.

Frames of one direction of one peer arrive in order. All calls belong to the loop's thread.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final

import zmq

from ipc.faults import Fault
from ipc.frames import BODY_BYTES_MAX, CREDIT_FRAMES, PARTS_MAX, BadFrame, batches, pack, unpack
from ipc.lane import (
    Bodies,
    Counters,
    Inbox,
    Lane,
    LinkGone,
    LinkState,
    OnRefused,
    OnState,
    PeerStalled,
    guarded,
)
from ipc.orders import BadOrder, Bye, Down, Emit, Hello, Mark, Up, decode_up, encode
from ipc.seams.fs import REAL as FS

__all__ = [
    "BadPath",
    "Bodies",
    "Counters",
    "Hub",
    "IdentityTaken",
    "LinkGone",
    "LinkState",
    "News",
    "PeerStalled",
    "Spoke",
]

PATH_BYTES_MAX: Final = 100  # sockaddr_un has 107 on Linux and 103 on Darwin
HIGH_WATER_FRAMES: Final = 4 * CREDIT_FRAMES
DRAIN_FRAMES: Final = 128  # read in one go, then other callbacks have their turn
WATCHDOG_S: Final = 1.0
PATIENCE_S: Final = 30.0  # workers.link_patience: without progress for longer, nobody waits
HELLO_S: Final = 10.0
FLUSH_S: Final = 2.0
TERM_S: Final = 2.0
KNOCK_S: Final = 0.02  # between looks for a path that is not bound yet

_MORE: Final = int(zmq.DONTWAIT | zmq.SNDMORE)
_LAST: Final = int(zmq.DONTWAIT)
_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)


class BadPath(Fault):
    """A path no link can be bound to or found at."""

    code = "link_path"


class IdentityTaken(Fault):
    """An identity is used once; tree and epoch make it so."""

    code = "identity_taken"


class News:
    """One received frame. Its repr leaves the bodies out: one may be a secret."""

    __slots__ = ("bodies", "identity", "order")

    def __init__(self, identity: str, order: Up, bodies: Bodies) -> None:
        self.identity = identity
        self.order = order
        self.bodies = bodies

    def __repr__(self) -> str:
        return f"News({self.identity!r}, {self.order!r}, {len(self.bodies)} bodies)"


class _Wire:
    """One socket and its context: parts out, parts in, and a bounded end (a `lane.Wire`)."""

    def __init__(self, kind: int, on_parts: Callable[[list[bytes]], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self._on_parts = on_parts
        self._on_tick: Callable[[], None] = lambda: None
        self._context = zmq.Context(io_threads=1)
        self._socket: zmq.Socket[bytes] | None = None
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, HIGH_WATER_FRAMES)
        socket.setsockopt(zmq.RCVHWM, HIGH_WATER_FRAMES)
        socket.setsockopt(zmq.MAXMSGSIZE, BODY_BYTES_MAX)
        if kind == zmq.ROUTER:
            socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        else:
            socket.setsockopt(zmq.RECONNECT_IVL, -1)
        self._socket = socket
        self._fd: int = socket.getsockopt(zmq.FD)  # type: ignore[assignment]
        self._looking = False
        self._draining = False
        self._term: threading.Thread | None = None
        self.loop.add_reader(self._fd, self._drain)
        self._watchdog = self.loop.call_later(WATCHDOG_S, self._watch)

    @property
    def closed(self) -> bool:
        return self._socket is None

    def bind(self, path: str) -> None:
        assert self._socket is not None
        self._socket.bind(f"ipc://{path}")

    def connect(self, path: str) -> None:
        assert self._socket is not None
        self._socket.connect(f"ipc://{path}")
        self._look_soon()

    def on_tick(self, tick: Callable[[], None]) -> None:
        self._on_tick = tick

    def post(self, parts: Sequence[bytes]) -> bool:
        """Hand one message to ZeroMQ; False when it can't be now (or the peer is unknown)."""
        socket = self._socket
        if socket is None:
            return False
        last = len(parts) - 1
        try:
            # Only the first part can be refused; ZeroMQ takes or drops a message whole.
            for index, part in enumerate(parts):
                socket.send(part, _LAST if index == last else _MORE)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        if not self._draining and self._has_input():
            self._look_soon()
        return True

    def close(self) -> None:
        """Close the socket now and end its context aside; what is in ZeroMQ's pipes is dropped."""
        socket, self._socket = self._socket, None
        if socket is None:
            return
        self._watchdog.cancel()
        self.loop.remove_reader(self._fd)
        socket.close(linger=0)
        # term() waits for ZeroMQ's own threads and has been seen to hang (hazard 51).
        self._term = threading.Thread(target=self._context.term, name="link-term", daemon=True)
        self._term.start()

    def ended(self, within_s: float) -> bool:
        """Wait for the end of a closed wire's context; False: leave by os._exit."""
        if self._term is None:
            return False
        self._term.join(within_s)
        return not self._term.is_alive()

    def drain_now(self) -> None:
        """Read what has arrived: at least a whole window of each of a few peers."""
        if not self._draining:
            self._drain(4 * CREDIT_FRAMES)

    def _look_soon(self) -> None:
        if not (self._looking or self._draining):
            self._looking = True
            self.loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        self._drain()

    def _has_input(self) -> bool:
        """Whether a frame waits; when none does, the FD will say so once more if one comes."""
        socket = self._socket
        return socket is not None and bool(socket.getsockopt(_EVENTS) & _POLLIN)  # type: ignore[operator]

    def _watch(self) -> None:
        if self._socket is None:
            return
        self._watchdog = self.loop.call_later(WATCHDOG_S, self._watch)
        self._drain()
        self._on_tick()

    def _drain(self, limit: int = DRAIN_FRAMES) -> None:
        self._draining = True
        try:
            for _ in range(limit):
                if self._socket is None or not self._has_input():
                    return  # a look is cheaper than the exception of a receive in vain
                parts = _receive(self._socket)
                if parts is None:
                    return
                self._on_parts(parts)
        finally:
            self._draining = False
        self._look_soon()


def _receive(socket: "zmq.Socket[bytes]") -> list[bytes] | None:
    try:
        frame = socket.recv(_LAST, copy=False)
    except zmq.Again:
        return None
    parts = [frame.bytes]
    while frame.more:
        frame = socket.recv(_LAST, copy=False)
        if len(parts) <= PARTS_MAX + 1:  # enough to see that it is too many
            parts.append(frame.bytes)
    return parts


class Hub:
    """The supervisor's side: bound to one path for one incarnation, many workers.

    `deliver(identity, order, bodies)` is called on the loop for each frame, in order, and has taken
    it when it returns; without it, `recv()` takes. `on_state(identity, state)` tells of changes;
    `on_refused(reason, identity)` of each dropped frame, identity "" for a stranger's.
    """

    def __init__(
        self,
        path: str,
        deliver: Callable[[str, Up, Bodies], None] | None = None,
        *,
        on_state: OnState | None = None,
        on_refused: OnRefused | None = None,
    ) -> None:
        """Bind `path`; raises BadPath when it is too long, relative or already there."""
        _check_path(path)
        if _is_there(path):  # a second bind would succeed, and steal all new peers (hazard 11)
            raise BadPath(path=path, reason="somebody is bound there")
        self.counters = Counters()  # of strangers; each peer has its own
        self._deliver = deliver
        self._on_state = on_state
        self._on_refused = on_refused
        self._nonces: dict[str, str] = {}  # expected, no Hello yet
        self._lanes: dict[str, Lane] = {}
        self._routes: dict[bytes, Lane] = {}
        self._used: set[str] = set()
        self._inbox: Inbox[tuple[Lane, News]] = Inbox()
        self._path = path
        self._wire = _Wire(zmq.ROUTER, self._arrive)
        self._wire.on_tick(self._tick)
        try:
            self._wire.bind(path)
            self._inode = FS.stat(path, follow=False).st_ino
        except (zmq.ZMQError, OSError) as error:
            self._wire.close()
            raise BadPath(path=path, reason=str(error)) from error

    @property
    def peers(self) -> dict[str, LinkState]:
        """The state of each expected or connected worker; one that is gone is not here."""
        return {identity: lane.state for identity, lane in self._lanes.items()}

    def expect(self, identity: str, nonce: str) -> None:
        """Let a worker in that says this in its Hello. Before it is started; once per identity."""
        if identity in self._used:
            raise IdentityTaken(identity=identity)
        self._used.add(identity)
        self._nonces[identity] = nonce
        self._lanes[identity] = Lane(
            self._wire, identity, "up", self._hand_over, self._on_state, self._on_refused
        )

    def state(self, identity: str) -> LinkState:
        """How the link to a worker is; one nobody knows (any more) is gone."""
        lane = self._lanes.get(identity)
        return "gone" if lane is None else lane.state

    def counters_of(self, identity: str) -> Counters:
        """What went to and came from a worker that is not gone."""
        return self._lane(identity).counters

    def queued(self, identity: str) -> int:
        """Frames that wait here for a worker; 0 for one that is gone."""
        lane = self._lanes.get(identity)
        return 0 if lane is None else lane.queued

    def offer(self, identity: str, order: Down, *bodies: bytes) -> None:
        """Send without waiting; accepted frames go out in order, also before the worker's Hello.

        Raises LinkGone, PeerStalled (nothing was accepted) or BadFrame (over a limit).
        """
        self._lane(identity).offer(pack(encode(order), bodies))

    async def send(
        self, identity: str, order: Down, *bodies: bytes, patience_s: float | None = None
    ) -> None:
        """Send, and wait while too much waits for this worker.

        The frame is accepted before the first wait, so cancelling never loses it. Raises LinkGone;
        PeerStalled also after `patience_s` without progress (the frame stays accepted).
        """
        lane = self._lane(identity)
        lane.offer(pack(encode(order), bodies))
        await lane.wait_for_room(patience_s)

    async def flush(self, identity: str, within_s: float = FLUSH_S) -> bool:
        """Wait until a worker took all that was sent to it; False when it did not in time."""
        return await self._lane(identity).flush(self._wire.loop.time() + within_s)

    async def recv(self) -> News:
        """The next frame, in order per worker; only without `deliver`. Raises LinkGone at the end.

        Cancelling it loses nothing.
        """
        lane, news = await self._inbox.get()
        if not isinstance(news.order, Hello):
            lane.taken()
        return news

    def gone(self, identity: str) -> None:
        """A worker is dead (life EOF) or said Bye: read what it left, fail what waits for it.

        Safe to repeat. Its identity is never let in again.
        """
        lane = self._lanes.get(identity)
        if lane is None:
            return
        self._wire.drain_now()
        self._lanes.pop(identity, None)
        self._nonces.pop(identity, None)
        for route in lane.route:
            self._routes.pop(route, None)
        lane.end()

    def close(self, within_s: float = TERM_S) -> bool:
        """All workers are gone for this side; the path is free. False: leave by os._exit."""
        for identity in list(self._lanes):
            self.gone(identity)
        if not self._wire.closed:
            self._wire.close()
            self._inbox.close("supervisor")
            self._unlink()
        return self._wire.ended(within_s)

    def _unlink(self) -> None:
        try:
            if FS.stat(self._path, follow=False).st_ino == self._inode:
                FS.unlink(self._path)
        except OSError:
            return  # somebody cleaned up: that is what we wanted

    def _lane(self, identity: str) -> Lane:
        lane = self._lanes.get(identity)
        if lane is None:
            raise LinkGone(peer=identity)
        return lane

    def _tick(self) -> None:
        for lane in list(self._lanes.values()):
            lane.pump()

    def _arrive(self, parts: list[bytes]) -> None:
        lane = self._routes.get(parts[0])
        if lane is None:
            self._greet(parts[0], parts[1:])
        else:
            lane.arrive(parts[1:])

    def _greet(self, route: bytes, parts: list[bytes]) -> None:
        try:
            hello = decode_up(unpack(parts).head)
        except (BadFrame, BadOrder) as bad:
            return self._drop(str(bad))
        if not isinstance(hello, Hello):
            return self._drop(f"{type(hello).__name__} before Hello")
        expected = self._nonces.get(hello.identity)
        if expected is None:
            return self._drop("unknown identity, or one that is in use")
        if not _same(expected.encode(), hello.nonce.encode()):
            return self._drop("wrong nonce")
        del self._nonces[hello.identity]
        lane = self._lanes[hello.identity]
        lane.route = (route,)
        self._routes[route] = lane
        lane.open()
        lane.hand_over(hello, ())
        return None

    def _drop(self, reason: str) -> None:
        self.counters.strangers += 1
        if self._on_refused is not None:
            guarded(self._wire.loop, "on_refused", self._on_refused, reason, "")

    def _hand_over(self, lane: Lane, order: Up | Down, bodies: Bodies) -> bool:
        if self._deliver is None:
            self._inbox.put((lane, News(lane.peer, order, bodies)))  # type: ignore[arg-type]
            return False
        self._deliver(lane.peer, order, bodies)  # type: ignore[arg-type]
        return True


class Spoke:
    """A worker's side: one supervisor, found once.

    `deliver(order, bodies)` is called on the loop for each frame, in order, and has taken it when
    it returns; without it, `recv()` takes, and a worker that does not take slows its supervisor's
    queue for it, never the supervisor. Frames may be offered before `ready`; they wait.
    """

    def __init__(
        self,
        path: str,
        hello: Hello,
        deliver: Callable[[Down, Bodies], None] | None = None,
        *,
        on_state: OnState | None = None,
        on_refused: OnRefused | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Say Hello as soon as the path is there; raises BadPath when it is long or relative."""
        _check_path(path)
        self._path = path
        self._hello = hello
        self._deliver = deliver
        self.patience_s = patience_s  # of `emit`; a plan may say another
        self._inbox: Inbox[tuple[Down, Bodies]] = Inbox()
        self._wire = _Wire(zmq.DEALER, self._arrive)
        self._lane = Lane(self._wire, "supervisor", "down", self._hand_over, on_state, on_refused)
        self._wire.on_tick(self._lane.pump)
        self._knock()

    @property
    def state(self) -> LinkState:
        """waiting (no answer to Hello yet), up, slow or gone."""
        return self._lane.state

    @property
    def counters(self) -> Counters:
        """What went up and came down."""
        return self._lane.counters

    @property
    def queued(self) -> int:
        """Frames that wait here for the supervisor."""
        return self._lane.queued

    async def ready(self, within_s: float = HELLO_S) -> None:
        """Wait for the answer to Hello; raises LinkGone when none comes."""
        await self._lane.opened(self._wire.loop.time() + within_s)

    def offer(self, order: Up, *bodies: bytes) -> None:
        """Send without waiting; raises LinkGone, PeerStalled (nothing accepted) or BadFrame."""
        self._lane.offer(pack(encode(order), bodies))

    async def send(self, order: Up, *bodies: bytes, patience_s: float | None = None) -> None:
        """Send, and wait while too much waits for the supervisor; see Hub.send."""
        self._lane.offer(pack(encode(order), bodies))
        await self._lane.wait_for_room(patience_s)

    def emit_now(self, marks: Sequence[Mark], notifications: Bodies) -> bool:
        """Send what is one frame and has room, or nothing of it: then `emit` it."""
        lane = self._lane
        if lane.state != "up" or lane.crowded or len(marks) > 1:
            return False
        lane.offer(pack(encode(Emit(tuple(marks))), notifications))
        return True

    async def emit(self, marks: Sequence[Mark], notifications: Bodies) -> None:
        """Send what one gather window holds; slows the run, and never fails it.

        Waits while too much waits for the supervisor, for at most `patience_s` without progress;
        after that goes on, and what no longer fits is counted in `counters.lost`: the log has it,
        and the gap in the marks' seq tells the other side. Does nothing once the link is gone.
        """
        for cut in batches([len(line) for line in notifications]):
            if self._lane.state == "gone":
                return
            try:
                self._lane.offer(pack(encode(Emit(tuple(marks[cut]))), notifications[cut]))
            except PeerStalled:
                self._lane.counters.lost += 1
            await self._lane.room(self.patience_s)

    async def recv(self) -> tuple[Down, Bodies]:
        """The next frame; only without `deliver`. Raises LinkGone when none will come."""
        item = await self._inbox.get()
        self._lane.taken()
        return item

    async def flush(self, within_s: float = FLUSH_S) -> bool:
        """Wait until the supervisor took all that was sent; False when it did not in time."""
        return await self._lane.flush(self._wire.loop.time() + within_s)

    async def farewell(self, reason: str, within_s: float = FLUSH_S) -> bool:
        """Say Bye, wait until everything is taken, and be gone; False when it was not in time."""
        try:
            self.offer(Bye(reason))
            return await self.flush(within_s)
        except (LinkGone, PeerStalled):
            return False
        finally:
            self.gone()

    def gone(self) -> None:
        """The supervisor is dead (life EOF), or this side leaves: close now, fail what waits.

        Safe to repeat. A new supervisor gets a new Spoke.
        """
        self._wire.close()
        self._lane.end()
        self._inbox.close("supervisor")

    def close(self, within_s: float = TERM_S) -> bool:
        """Be gone, and wait for ZeroMQ's threads; False: leave by os._exit."""
        self.gone()
        return self._wire.ended(within_s)

    def _knock(self) -> None:
        if self._wire.closed:
            return
        if not _is_there(self._path):
            self._wire.loop.call_later(KNOCK_S, self._knock)
            return
        self._wire.connect(self._path)
        self._wire.post((encode(self._hello),))
        self._lane.open()

    def _arrive(self, parts: list[bytes]) -> None:
        self._lane.arrive(parts)

    def _hand_over(self, _lane: Lane, order: Up | Down, bodies: Bodies) -> bool:
        if self._deliver is None:
            self._inbox.put((order, bodies))  # type: ignore[arg-type]
            return False
        self._deliver(order, bodies)  # type: ignore[arg-type]
        return True


def _check_path(path: str) -> None:
    size = len(os.fsencode(path))
    if size > PATH_BYTES_MAX:
        raise BadPath(path=path, bytes=size, limit=PATH_BYTES_MAX)
    if not path.startswith("/"):  # "*" and "@..." mean other things to ZeroMQ
        raise BadPath(path=path, reason="not absolute")


def _is_there(path: str) -> bool:
    try:
        FS.stat(path, follow=False)
    except OSError:
        return False
    return True


def _same(one: bytes, other: bytes) -> bool:
    # hmac.compare_digest in three lines; its import costs 2 ms of OpenSSL.
    difference = len(one) ^ len(other)
    for left, right in zip(one, other, strict=False):
        difference |= left ^ right
    return difference == 0
