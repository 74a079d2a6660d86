"""Server-sent events out of bytes that were split anywhere; pure, bounded, cheap for small events.

Of the standard (https://html.spec.whatwg.org/multipage/server-sent-events.html) this keeps what
a model's stream needs: names and data. `id` and `retry` are passed over, for nobody reconnects.
"""

from typing import Final, TypeAlias

from ipc.faults import Fault

EVENT_BYTES_MAX: Final = 64 * 1024 * 1024  # of one event, its field names included

Event: TypeAlias = tuple[str, bytes]

_BOM: Final = b"\xef\xbb\xbf"


class TooLong(Fault):
    """One event is longer than anything a model says; its stream is given up."""

    code = "sse_event_too_long"


class Events:
    """The events of one body: `feed` it as it comes, `end` it when it is over.

    An event is its name ("" if it has none) and its data, lines joined by a line feed. One
    without data says nothing to any family and is none.
    """

    __slots__ = ("_begun", "_cr", "_limit", "_rest")

    def __init__(self, limit: int = EVENT_BYTES_MAX) -> None:
        self._limit = limit
        self._rest = bytearray()  # of the event that is not over yet
        self._cr = False  # the last byte was a carriage return: a line feed now belongs to it
        self._begun = False

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes end; raises TooLong."""
        if self._cr or b"\r" in data:
            data = self._plain(data)
        rest = self._rest
        if not self._begun:
            rest += data
            if len(rest) < len(_BOM) and _BOM.startswith(rest):
                return []
            self._begun = True
            data = bytes(rest).removeprefix(_BOM)
            rest.clear()
        if rest:
            searched = max(len(rest) - 1, 0)  # a blank line may lie across the two
            rest += data
            if rest.find(b"\n\n", searched) < 0:
                self._bound(len(rest) - 1)
                return []
            data = bytes(rest)
            rest.clear()
        *blocks, tail = data.split(b"\n\n")
        rest += tail
        self._bound(len(tail) - 1)
        return self._events(blocks)

    def end(self) -> list[Event]:
        """The last event if its blank line is missing; whether it counts is the caller's business.

        The standard throws it away, but some servers end in one that is whole.
        """
        block = bytes(self._rest)
        self._rest.clear()
        return self._events([block])

    def _plain(self, data: bytes) -> bytes:
        """`data` with every end of a line a line feed, also when its two bytes came apart."""
        if self._cr and data.startswith(b"\n"):
            data = data[1:]
        elif not data:
            return data
        self._cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _bound(self, length: int) -> None:
        if length > self._limit:
            raise TooLong(limit_bytes=self._limit)

    def _events(self, blocks: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for block in blocks:
            if len(block) > self._limit:
                self._bound(len(block))
            if block.startswith(b"data: ") and b"\n" not in block:
                event = ("", block[6:])
            else:
                event = _parse(block)
            if event[1]:
                events.append(event)
        return events


def _parse(block: bytes) -> Event:
    name = b""
    data: list[bytes] = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
    return name.decode(errors="replace"), b"\n".join(data)
