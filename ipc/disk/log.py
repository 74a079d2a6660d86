"""The read-only log reader: framing of lines, best effort for each, and what it had to pass over.

A line is one event in JSON and a newline; lines are split on that byte alone (hazard 61). Reading
never repairs: a last line without its newline is healed by the next writer, and until then it
counts like any other line, so that its number is not given away twice.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from ipc.events import SessionCreated, StoredEvent
from ipc.events.codec import Read, Skipped, read_line
from ipc.faults import Fault
from ipc.ids import SessionId
from ipc.seams.fs import REAL, Fs

CHUNK_BYTES: Final = 1 << 16  # larger ones are mapped anew for each read: a tenth slower
LINE_BYTES_MAX: Final = 64 << 20  # a longer line is passed over without being held
NOTES_MAX: Final = 64  # notes of one kind that are kept; all are counted
NEWLINE: Final = b"\n"
# How each line begins, which nothing inside a JSON string can look like (its quotes are escaped).
_LINE_START: Final = b'{"engine_version":'


class SessionUnreadable(Fault):
    """The log's first line, `session_created`, can't be read: there is no session to open."""

    code = "session_unreadable"


class SkippedLine(NamedTuple):
    """A line, or a part of one, that is not in the history; `seq` and `type` where they showed."""

    offset: int
    length: int
    reason: str
    seq: int | None = None
    type: str | None = None


class Gap(NamedTuple):
    """Numbers that no readable line has: `first` to `last`, both missing."""

    first: int
    last: int


class DegradedLine(NamedTuple):
    """An event that was read with defaults in place of what could not be."""

    seq: int
    notes: tuple[str, ...]


Tail = Literal["whole", "unended"]


class _Candidate(NamedTuple):
    event: StoredEvent
    line: bytes
    offset: int
    notes: tuple[str, ...]


class LogRead:
    """One pass over a log, in bounded memory. Iterate it once; the findings fill up as it goes.

    Yields `(event, line)`, the line without its newline, in rising seq. Raises SessionUnreadable
    before the first event, OSError when the disk fails.
    """

    def __init__(self, path: Path, session: SessionId | None = None, fs: Fs = REAL) -> None:
        self.path = path
        self.session_id = session  # from the first line on: what that line says
        self.skipped: list[SkippedLine] = []
        self.skipped_count = 0
        self.gaps: list[Gap] = []
        self.gap_count = 0
        self.degraded: list[DegradedLine] = []
        self.degraded_count = 0
        self.last_seq = 0
        self.last_offset = -1  # where the line of the last event begins
        self.size = 0  # bytes read so far; at the end: the file's size as this pass saw it
        self.tail: Tail = "whole"
        self._fs = fs
        self._jump: _Candidate | None = None
        self._damage = -1  # where the last whole line begins that is not in the history

    def __iter__(self) -> Iterator[tuple[StoredEvent, bytes]]:
        for offset, line in self._lines():
            read = read_line(line)
            if (
                type(read) is Read
                and not read.degraded
                and self._jump is None
                and self.last_seq
                and read.event.seq == self.last_seq + 1
                and read.event.session_id == self.session_id
            ):  # what nearly every line is; all else takes the long way round
                self.last_seq += 1
                self.last_offset = offset
                yield read.event, line
                continue
            yield from self._settle(offset, line, read)
        if (jump := self._jump) is not None:
            self._jump = None
            yield self._accept(jump)
        if not self.last_seq:
            raise self._unreadable(self.skipped[0].reason if self.skipped else "the log is empty")

    @property
    def tail_damaged(self) -> bool:
        """Whether a whole line behind the last event can't be read: it may have been acknowledged.

        Not so a last line without its newline, whose write never came to its end.
        """
        return self._damage > self.last_offset

    def events(self) -> Iterator[StoredEvent]:
        """The events alone."""
        for event, _ in self:
            yield event

    def drain(self) -> "LogRead":
        """Read to the end for the findings alone."""
        for _ in self:
            pass
        return self

    def _settle(
        self, offset: int, line: bytes, read: Read | Skipped
    ) -> Iterator[tuple[StoredEvent, bytes]]:
        for candidate in self._candidates(offset, line, read):
            if not self.last_seq:
                yield self._first(candidate)
            elif candidate.event.session_id != self.session_id:
                self._skip(candidate, "names another session")
            elif candidate.event.seq <= self.last_seq:
                self._skip(candidate, f"its seq does not rise above {self.last_seq}")
            else:
                yield from self._in_order(candidate)

    def _in_order(self, candidate: _Candidate) -> Iterator[tuple[StoredEvent, bytes]]:
        """Decide about a seq that is above the last one.

        A jump may be a real gap or one flipped bit. The next line tells: if its seq lies below
        the jump, the jump was wrong, and believing it would cost all that follows.
        """
        if (jump := self._jump) is not None:
            self._jump = None
            if candidate.event.seq > jump.event.seq:
                yield self._accept(jump)
            else:
                self._skip(jump, f"its seq is contradicted by the next line, {candidate.event.seq}")
        if candidate.event.seq > self.last_seq + 1:
            self._jump = candidate
        else:
            yield self._accept(candidate)

    def _first(self, candidate: _Candidate) -> tuple[StoredEvent, bytes]:
        event = candidate.event
        if type(event.payload) is not SessionCreated:
            why = self.skipped[0].reason if self.skipped else "it is another event"
            raise self._unreadable(f"no session_created in the first line: {why}")
        if self.session_id is not None and event.session_id != self.session_id:
            raise self._unreadable(f"the log is of session {event.session_id}")
        self.session_id = event.session_id
        if event.seq != 1:  # it is the first by its place; the number alone may not close a session
            candidate = candidate._replace(
                event=msgspec.structs.replace(event, seq=1),
                notes=(*candidate.notes, f"seq {event.seq} read as 1"),
            )
        return self._accept(candidate)

    def _accept(self, candidate: _Candidate) -> tuple[StoredEvent, bytes]:
        event = candidate.event
        if event.seq > self.last_seq + 1:
            self.gap_count += 1
            if len(self.gaps) < NOTES_MAX:
                self.gaps.append(Gap(self.last_seq + 1, event.seq - 1))
        if candidate.notes:
            self.degraded_count += 1
            if len(self.degraded) < NOTES_MAX:
                self.degraded.append(DegradedLine(event.seq, candidate.notes))
        self.last_seq = event.seq
        self.last_offset = candidate.offset
        return event, candidate.line

    def _candidates(self, offset: int, line: bytes, read: Read | Skipped) -> list[_Candidate]:
        if isinstance(read, Read):
            return [_Candidate(read.event, line, offset, read.degraded)]
        parts = list(_records_within(offset, line))
        found = [part for part in parts if isinstance(part, _Candidate)]
        if not found:
            parts = [SkippedLine(offset, len(line), read.reason, read.seq, read.type)]
        for part in parts:
            if isinstance(part, SkippedLine):
                self._note(part)
        return found

    def _skip(self, candidate: _Candidate, reason: str) -> None:
        event = candidate.event
        kind = type(event.payload).__struct_config__.tag
        self._note(SkippedLine(candidate.offset, len(candidate.line), reason, event.seq, str(kind)))

    def _note(self, skipped: SkippedLine) -> None:
        self.skipped_count += 1
        if self.tail == "whole":
            self._damage = max(self._damage, skipped.offset)
        if len(self.skipped) < NOTES_MAX:
            self.skipped.append(skipped)

    def _unreadable(self, why: str) -> SessionUnreadable:
        return SessionUnreadable(path=str(self.path), reason=why)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Each line with the offset it starts at; an empty line is nothing and said nowhere."""
        fd = self._fs.open(self.path, os.O_RDONLY)
        try:
            parts: list[bytes] = []  # of the line that the last chunk ended in
            start = held = 0
            while chunk := self._fs.pread(fd, CHUNK_BYTES, self.size):
                self.size += len(chunk)
                head, *whole = chunk.split(NEWLINE)
                held += len(head)
                if held <= LINE_BYTES_MAX:
                    parts.append(head)
                else:
                    parts.clear()
                if not whole:
                    continue
                if held > LINE_BYTES_MAX:
                    self._note(SkippedLine(start, held, f"longer than {LINE_BYTES_MAX} bytes"))
                elif held:
                    yield start, b"".join(parts)
                start += held + 1
                last = whole.pop()
                for line in whole:
                    if line:
                        yield start, line
                    start += len(line) + 1
                parts, held = [last], len(last)
            if held:
                self.tail = "unended"
                if held > LINE_BYTES_MAX:
                    self._note(SkippedLine(start, held, f"longer than {LINE_BYTES_MAX} bytes"))
                else:
                    yield start, b"".join(parts)
        finally:
            self._fs.close(fd)


def _records_within(offset: int, line: bytes) -> Iterator[_Candidate | SkippedLine]:
    """Whole records inside a line that is none: beside a run of NULs, or fused by a lost newline.

    One damaged byte must not cost the neighbour of the record it hit.
    """
    starts = [0]
    while (at := line.find(_LINE_START, starts[-1] + 1)) >= 0:
        starts.append(at)
    for at, end in zip(starts, [*starts[1:], len(line)], strict=True):
        part = line[at:end]
        first = read_line(part)
        # As it is; without the byte that was its newline; up to a NUL, which no JSON holds.
        for whole in (part, part[:-1] if end < len(line) else part, part.partition(b"\0")[0]):
            read = read_line(whole) if whole is not part else first
            if isinstance(read, Read):
                yield _Candidate(read.event, whole, offset + at, read.degraded)
                if rest := len(part) - len(whole):
                    yield SkippedLine(offset + at + len(whole), rest, "bytes behind a record")
                break
        else:
            assert isinstance(first, Skipped)
            yield SkippedLine(offset + at, len(part), first.reason, first.seq, first.type)


def read_log(path: Path, session: SessionId | None = None, fs: Fs = REAL) -> LogRead:
    """Read the log of a session, which must be `session` if given; nothing is opened yet."""
    return LogRead(path, session, fs)
