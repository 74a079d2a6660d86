"""Pages of lines out of any number of bytes: memory is bounded by a page, time by a scan limit."""

from collections.abc import Callable
from typing import Final, NamedTuple

from workers.tools.base import ToolFailure

PAGE_BYTES_MAX: Final = 2 << 20  # spec 1.18
LINE_BYTES_MAX: Final = 64 << 10  # of one line that are shown
CHUNK_BYTES: Final = 1 << 20
SCAN_BYTES_MAX: Final = 512 << 20  # read for one page: to find it, and to count what follows

Pread = Callable[
    [int, int], bytes
]  # (offset, count) -> bytes, fewer than count also before the end


class Page(NamedTuple):
    """Some lines, as bytes without their newline."""

    lines: list[bytes]
    first: int  # index of the first one, from 0
    total: int | None  # lines in all; None when that is not known
    cut: dict[int, int]  # lines not shown whole: their place in `lines`, and bytes left out
    more: bool  # whether lines follow

    @property
    def next_offset(self) -> int | None:
        """Where to read on; None at the end."""
        return self.first + len(self.lines) if self.more else None


def take_page(read: Pread, offset: int, limit: int) -> Page:
    """`limit` lines from line `offset` (from 0), fewer at the end or when 2 MiB are full.

    Lines end in a newline byte and nothing else; the last one may lack it. Beyond the end the
    page is empty. Raises ToolFailure when the page lies too far in to be found.
    """
    position, skipped = _skip(read, offset)
    if skipped < offset:
        return Page([], offset, skipped + _has_tail(read, position), {}, more=False)
    taker = _Taker(read, position)
    lines: list[bytes] = []
    cut: dict[int, int] = {}
    used = 0
    while len(lines) < limit:
        begin = taker.position
        found = taker.next()
        if found is None:
            return Page(lines, offset, offset + len(lines), cut, more=False)
        line, left_out = found
        used += len(line) + 1
        if lines and used > PAGE_BYTES_MAX:
            taker.position = begin
            break
        if left_out:
            cut[len(lines)] = left_out
        lines.append(line)
    following = _count(read, taker.position)
    if following == 0:
        return Page(lines, offset, offset + len(lines), cut, more=False)
    total = None if following is None else offset + len(lines) + following
    return Page(lines, offset, total, cut, more=True)


def _skip(read: Pread, lines: int) -> tuple[int, int]:
    """Where line `lines` begins, and how many newlines lie before; fewer at the end."""
    position, left = 0, lines
    while left:
        if position >= SCAN_BYTES_MAX:
            message = f"line {lines + 1} is more than {SCAN_BYTES_MAX} bytes in; use bash"
            raise ToolFailure("resource_limit", message)
        chunk = read(position, CHUNK_BYTES)
        if not chunk:
            break
        count = chunk.count(b"\n")
        if count < left:
            left -= count
            position += len(chunk)
        else:
            position += len(chunk) - len(chunk.split(b"\n", left)[-1])
            left = 0
    return position, lines - left


def _has_tail(read: Pread, end: int) -> bool:
    """Whether the last line, the one before the end, lacks its newline."""
    return end > 0 and read(end - 1, 1) != b"\n"


def _count(read: Pread, position: int) -> int | None:
    """The lines from `position`, where one begins, to the end; None when it is too far."""
    lines, last = 0, b"\n"
    while chunk := read(position, CHUNK_BYTES):
        lines += chunk.count(b"\n")
        last = chunk[-1:]
        position += len(chunk)
        if position >= SCAN_BYTES_MAX:
            return None
    return lines + (last != b"\n")


class _Taker:
    """Lines one by one from a position where one begins; keeps a chunk, never a longer line."""

    def __init__(self, read: Pread, position: int) -> None:
        self.position = position  # of the next line
        self._read = read
        self._chunk = b""
        self._begin = 0  # of the next line in the chunk

    def next(self) -> tuple[bytes, int] | None:
        """The next line and how many bytes of it were left out; None at the end."""
        end = self._chunk.find(b"\n", self._begin)
        if end < 0:
            self._chunk, self._begin = self._filled(), 0
            end = self._chunk.find(b"\n")
        if end < 0:
            return self._last_or_long()
        line = self._chunk[self._begin : end]
        self._begin = end + 1
        self.position += len(line) + 1
        return line[:LINE_BYTES_MAX], max(0, len(line) - LINE_BYTES_MAX)

    def _filled(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while size < CHUNK_BYTES:
            part = self._read(self.position + size, CHUNK_BYTES - size)
            if not part:
                break
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    def _last_or_long(self) -> tuple[bytes, int] | None:
        """The chunk holds no newline: the file ends here, or the line is longer than a chunk."""
        line, length = self._chunk[:LINE_BYTES_MAX], len(self._chunk)
        self._chunk, self._begin = b"", 0
        if not length:
            return None
        self.position += length
        start = self.position
        while (self.position - start) < SCAN_BYTES_MAX:
            chunk = self._read(self.position, CHUNK_BYTES)
            end = chunk.find(b"\n")
            if end >= 0:
                self.position += end + 1
                length += end
                break
            self.position += len(chunk)
            length += len(chunk)
            if not chunk:
                break
        return line, length - len(line)
