"""The dress of a word between two processes: [head, *bodies], its limits, gathering and credits.

Pure: bytes and times in, values out. `ipc/link` is the shell that obeys.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from ipc.faults import Fault

HEAD_BYTES_MAX: Final = 64 * 1024
BODY_BYTES_MAX: Final = 32 * 1024 * 1024  # of all bodies of one frame together
PARTS_MAX: Final = 4096  # the head included

GATHER_WINDOW_S: Final = 0.016
GATHER_BYTES_MAX: Final = 4 * 1024

BATCH_MARKS_MAX: Final = 128  # their heads stay under HEAD_BYTES_MAX
BATCH_BYTES_MAX: Final = 256 * 1024  # of one Emit, unless a single event is bigger

CREDIT_FRAMES: Final = 64  # on their way to one peer, per direction; 16 MiB of full batches
CREDIT_STEP: Final = CREDIT_FRAMES // 4  # taken frames that are told together


class BadFrame(Fault):
    """Parts that are no frame, or a frame over a limit."""

    code = "bad_frame"


class Parted:
    """A frame taken apart: its head, and the bodies that belong to it. Shows sizes, not bytes.

    A body may be a secret (Grant), so no repr, log line or traceback may hold one.
    """

    __slots__ = ("bodies", "head")

    def __init__(self, head: bytes, bodies: Sequence[bytes]) -> None:
        self.head = head
        self.bodies = bodies

    def __repr__(self) -> str:
        return f"Parted({len(self.head)} bytes, {len(self.bodies)} bodies)"


def pack(head: bytes, bodies: Sequence[bytes] = ()) -> list[bytes]:
    """The parts of a frame, in order; raises BadFrame when it is over a limit."""
    _check(head, bodies)
    return [head, *bodies]


def unpack(parts: Sequence[bytes]) -> Parted:
    """Take received parts apart; raises BadFrame when they are no frame or over a limit."""
    if not parts:
        raise BadFrame(reason="no head")
    head, bodies = parts[0], parts[1:]
    _check(head, bodies)
    return Parted(head, bodies)


def _check(head: bytes, bodies: Sequence[bytes]) -> None:
    if not 0 < len(head) <= HEAD_BYTES_MAX:
        raise BadFrame(reason="head", bytes=len(head), limit=HEAD_BYTES_MAX)
    if len(bodies) >= PARTS_MAX:
        raise BadFrame(reason="parts", parts=len(bodies) + 1, limit=PARTS_MAX)
    size = sum(map(len, bodies))
    if size > BODY_BYTES_MAX:
        raise BadFrame(reason="bodies", bytes=size, limit=BODY_BYTES_MAX)


def batches(sizes: Sequence[int]) -> Iterator[slice]:
    """Cut things of these sizes, in order, into runs that each fit one frame."""
    start = total = 0
    for index, size in enumerate(sizes):
        full = index - start >= BATCH_MARKS_MAX or total + size > BATCH_BYTES_MAX
        if full and index > start:
            yield slice(start, index)
            start, total = index, 0
        total += size
    if start < len(sizes):
        yield slice(start, len(sizes))


class Gather:
    """When what has been gathered goes out: the first at once, then by window or by size.

    A lone event after a pause waits for nothing; a stream goes out as one batch every 16 ms or
    4 KiB, whichever is first. The caller keeps the things and the clock; this only decides:

        due = gather.add(len(line), now)   # flush when the clock reads `due`
        ...
        gather.flushed(now)
    """

    __slots__ = ("_bytes", "_due", "_opens")

    def __init__(self) -> None:
        self._bytes = 0
        self._due: float | None = None
        self._opens = float("-inf")  # before it, something went out less than a window ago

    @property
    def due(self) -> float | None:
        """When to flush, on the caller's monotonic clock, in seconds; None = nothing waits."""
        return self._due

    def add(self, size: int, now: float) -> float:
        """Count one more thing of `size` bytes and say when all of them are due."""
        self._bytes += size
        if self._bytes >= GATHER_BYTES_MAX or now >= self._opens:
            self._due = now if self._due is None else min(self._due, now)
        elif self._due is None:
            self._due = self._opens
        return self._due

    def flushed(self, now: float) -> None:
        """All that waited went out at `now`; the next window opens."""
        self._bytes = 0
        self._due = None
        self._opens = now + GATHER_WINDOW_S


class BadCredit(BadFrame):
    """A peer that gives back more than it was sent; it cannot be counted on."""

    code = "bad_credit"


class CreditWindow:
    """How many frames one side may still send; opened by the other side's first Credit."""

    __slots__ = ("_left", "_size")

    def __init__(self) -> None:
        self._size = 0
        self._left = 0

    @property
    def left(self) -> int:
        """Frames that may be sent now."""
        return self._left

    @property
    def opened(self) -> bool:
        """Whether the other side has said how much it takes."""
        return self._size > 0

    @property
    def under_way(self) -> int:
        """Frames sent that the other side has not said it took."""
        return self._size - self._left

    def spend(self) -> None:
        """One frame goes out. The caller has looked at `left`."""
        assert self._left > 0, "sent without a credit"
        self._left -= 1

    def credited(self, frames: int) -> None:
        """The other side took `frames` more; its first word sets the size of the window."""
        if self._size == 0:
            if not 0 < frames <= CREDIT_FRAMES:
                raise BadCredit(reason="window", frames=frames, limit=CREDIT_FRAMES)
            self._size = self._left = frames
            return
        if not 0 <= frames <= self.under_way:
            raise BadCredit(reason="not under way", frames=frames, limit=self.under_way)
        self._left += frames


class Tally:
    """The receiver's half of a credit window: what was taken and not yet told."""

    __slots__ = ("_asked", "_owed", "_pending")

    def __init__(self) -> None:
        self._pending = 0  # arrived, not yet taken
        self._owed = 0
        self._asked = False

    @property
    def pending(self) -> int:
        """Frames that arrived and that nobody has taken yet."""
        return self._pending

    def arrived(self) -> None:
        """A frame came in; raises BadCredit when the peer sent more than it was allowed."""
        if self._pending + self._owed >= CREDIT_FRAMES:
            raise BadCredit(reason="window overrun", limit=CREDIT_FRAMES)
        self._pending += 1

    def taken(self) -> int:
        """The oldest frame was taken; how many frames to tell the peer of now, often 0."""
        self._pending -= 1
        self._owed += 1
        if self._owed >= CREDIT_STEP or self._asked:
            return self._settle()
        return 0

    def asked(self) -> int:
        """The peer asks for its credits: what is owed now; the rest is told as it is taken."""
        self._asked = self._pending > 0
        return self._settle()

    def _settle(self) -> int:
        owed, self._owed = self._owed, 0
        if self._pending == 0:
            self._asked = False
        return owed
