"""The tool `edit`: text in a file is replaced, and every byte outside of it stays as it is."""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Final, TypeVar

from msgspec import Meta

from ipc.content import ToolResult
from ipc.faults import clean
from ipc.rules import Action
from ipc.seams.failpoints import ARMED, hit
from workers.tools.base import Room, Tool, ToolFailure, off_loop
from workers.tools.diff import Change, diff_display
from workers.tools.paths import (
    absolute,
    label_of,
    publish,
    quoted,
    read_whole,
    refuse_artifact,
    refuse_binary,
)

EDIT_BYTES_MAX: Final = 64 << 20  # of a file that is edited
HINT_BYTES_MAX: Final = 4 << 20  # of a file that is searched for the nearest line
HINT_LINES_MAX: Final = 5000
HINT_CHARS_MAX: Final = 200
PLACES_MAX: Final = 8  # line numbers named when a text is not unique

T = TypeVar("T")


class Edit(Tool, frozen=True, kw_only=True):
    """Replace text in a file: oldString, which must be in it exactly once, becomes newString.

    An LF in the strings stands for the line ending that the file has at that place, unless a
    string holds a CR itself: then both are taken byte by byte.
    """

    name: ClassVar[str] = "edit"
    action: ClassVar[Action] = "write"
    parallel: ClassVar[bool] = False
    system_texts: ClassVar[tuple[str, ...]] = ("filePath",)

    filePath: Annotated[  # noqa: N815 - the argument's name in every prompt
        str, Meta(description="Path of the file, absolute or relative to the workspace")
    ]
    oldString: Annotated[  # noqa: N815
        str, Meta(description="The text to replace, without the line numbers that read shows")
    ]
    newString: Annotated[str, Meta(description="What stands there instead")]  # noqa: N815
    replaceAll: Annotated[  # noqa: N815
        bool, Meta(description="Replace every occurrence, not exactly one")
    ] = False

    def label(self, workspace: str) -> str:
        """The path: relative inside the workspace, absolute outside."""
        return label_of(self.filePath, workspace)

    def primary_argument(self) -> str:
        """The path as asked for."""
        return self.filePath

    async def run(self, room: Room) -> ToolResult:
        """Find, replace, publish. Raises ToolFailure, and then the file is as it was."""
        refuse_artifact(self.filePath)
        if not self.oldString:
            raise ToolFailure("invalid_arguments", "oldString must not be empty")
        if self.oldString == self.newString:
            raise ToolFailure("invalid_arguments", "oldString and newString are the same")
        return await off_loop(lambda: self._edit(room.workspace))

    def _edit(self, workspace: str) -> ToolResult:
        path, shown = absolute(self.filePath, workspace), self.label(workspace)
        data, stamp = read_whole(path, shown, EDIT_BYTES_MAX)
        changes = self._changes(data, shown)
        new = replaced(data, changes)
        if new == data:
            raise ToolFailure("invalid_arguments", "the edit changes nothing")
        if ARMED:
            hit("tool.effect")
        written = publish(path, new, shown, expected=stamp)
        many = f" ({len(changes)} replacements)" if self.replaceAll else ""
        return ToolResult(
            title=f"Edited {quoted(shown)}",
            output=f"Edit applied atomically{many}",
            metadata={"new_sha256": written.digest, "replacements": len(changes)},
            display=(diff_display(shown, data, changes),),
        )

    def _changes(self, data: bytes, shown: str) -> list[Change]:
        refuse_binary(data, len(data), shown)
        old, new = self.oldString.encode(), self.newString.encode()
        _check_encoding(data, old, new, shown)
        by_byte = b"\r" in old or b"\r" in new or b"\r\n" not in data
        found = Finder(data, old, by_byte=by_byte)
        places = list(found.places()) if self.replaceAll else found.only_place()
        if not places:
            raise ToolFailure(
                "not_found", "oldString was not found" + nearest(data, self.oldString)
            )
        _check_boundaries(data, places, shown)
        if by_byte:
            return [Change(start, end, new) for start, end in places]
        return [Change(start, end, dressed(new, data, start, end)) for start, end in places]


# --- where ---------------------------------------------------------------------------------------


class Finder:
    """Where a text stands in a file: byte by byte, or with any line ending for its LF."""

    def __init__(self, data: bytes, old: bytes, *, by_byte: bool) -> None:
        self._data = data
        self._old = old
        self._shape: re.Pattern[bytes] | None = None
        if not by_byte and b"\n" in old:
            # The second alternative keeps a CRLF from being found twice, with and without its CR.
            ending = rb"(?:\r\n|(?<!\r)\n)"
            self._shape = re.compile(ending.join(map(re.escape, old.split(b"\n"))))

    def places(self, *, overlapping: bool = False) -> Iterator[tuple[int, int]]:
        """Each (start, end), in order."""
        at = 0
        while (place := self._next(at)) is not None:
            yield place
            at = place[0] + 1 if overlapping else place[1]

    def _next(self, at: int) -> tuple[int, int] | None:
        if self._shape is not None:
            found = self._shape.search(self._data, at)
            return None if found is None else found.span()
        start = self._data.find(self._old, at)
        return None if start < 0 else (start, start + len(self._old))

    def only_place(self) -> list[tuple[int, int]]:
        """The one place, or none; raises ToolFailure when there are more."""
        first: list[tuple[int, int]] = []
        count = 0
        # Overlapping places are two meanings as well: which one was meant is the model's to say.
        for place in self.places(overlapping=True):
            count += 1
            if count <= PLACES_MAX and (not first or place[0] > first[-1][0]):
                first.append(place)
        if count <= 1:
            return first
        lines = ", ".join(str(self._data.count(b"\n", 0, start) + 1) for start, _ in first)
        more = ", …" if count > len(first) else ""
        message = (
            f"oldString matched {count} times (lines {lines}{more}); "
            "give more of the text around it, or set replaceAll"
        )
        raise ToolFailure("ambiguous", message)


def replaced(data: bytes, changes: Sequence[Change]) -> bytes:
    """The content with the changes made: every byte outside of them is the old one."""
    parts: list[bytes] = []
    at = 0
    for change in changes:
        parts += (data[at : change.start], change.text)
        at = change.end
    parts.append(data[at:])
    return b"".join(parts)


# --- bytes that are no UTF-8 ---------------------------------------------------------------------


def _check_encoding(data: bytes, old: bytes, new: bytes, shown: str) -> None:
    if is_utf8(data) or (old.isascii() and new.isascii()):
        return
    message = f"{quoted(shown)} is not UTF-8: only ASCII text in it can be edited; use bash"
    raise ToolFailure("not_utf8", message)


def _check_boundaries(data: bytes, places: Sequence[tuple[int, int]], shown: str) -> None:
    """In Shift-JIS, GBK or Big5 an ASCII byte after a high one may be half a character."""
    if is_utf8(data):
        return
    for start, _ in places:
        first = data[start : start + 1]
        if start and data[start - 1] >= 0x80 and (first.isdigit() or first >= b"@"):  # noqa: PLR2004
            message = (
                f"{quoted(shown)} is not UTF-8, and oldString may begin inside a character of it; "
                "begin it earlier or use bash"
            )
            raise ToolFailure("not_utf8", message)


def is_utf8(data: bytes) -> bool:
    """Whether all of it is UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- line endings --------------------------------------------------------------------------------


def dressed(new: bytes, data: bytes, start: int, end: int) -> bytes:
    """`new`, which has LF only, with the line endings that the file has where it goes.

    Lines that were there before keep their own ending, also where a file mixes them; others take
    the ending of the first line that is replaced, or of the line they are put into.
    """
    if b"\n" not in new:
        return new
    old_lines, new_lines = data[start:end].split(b"\n"), new.split(b"\n")
    if len(old_lines) == 1:
        crlf = [_crlf_near(data, start, end)] * (len(new_lines) - 1)
        return _joined(new_lines, crlf)
    old_crlf = [line.endswith(b"\r") for line in old_lines[:-1]]
    texts = [line.removesuffix(b"\r") for line in old_lines[:-1]] + old_lines[-1:]
    head = _alike(texts, new_lines)
    tail = _alike(texts[::-1], new_lines[::-1])
    last, old_last = len(new_lines) - 1, len(texts) - 1
    crlf = []
    for number in range(last):
        if number < head and number < old_last:
            crlf.append(old_crlf[number])
        elif last - number < tail and last - number <= old_last:
            crlf.append(old_crlf[old_last - (last - number)])
        else:
            crlf.append(old_crlf[min(head, old_last - 1)])
    return _joined(new_lines, crlf)


def _alike(one: Sequence[T], other: Sequence[T]) -> int:
    """How many items two sequences begin with alike."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def _crlf_near(data: bytes, start: int, end: int) -> bool:
    newline = data.find(b"\n", end)
    if newline < 0:
        newline = data.rfind(b"\n", 0, start)
    return newline > 0 and data[newline - 1 : newline] == b"\r"


def _joined(lines: Sequence[bytes], crlf: Sequence[bool]) -> bytes:
    ends = [b"\r\n" if one else b"\n" for one in crlf]
    return b"".join(line + end for line, end in zip(lines, [*ends, b""], strict=True))


# --- a miss --------------------------------------------------------------------------------------


def nearest(data: bytes, old: str) -> str:
    """A hint for a text that was not found: where something like it stands, or nothing."""
    if len(data) > HINT_BYTES_MAX:
        return ""
    lines = [line.strip() for line in data.decode("utf-8", "replace").split("\n")]
    wanted = [line.strip() for line in old.split("\n")]
    first = next((number for number, line in enumerate(wanted) if line), None)
    if first is None:
        return ""
    best, run = -1, 0
    for number, line in enumerate(lines):
        if line == wanted[first]:
            length = _alike(lines[number : number + len(wanted)], wanted[first:])
            if length > run:
                best, run = number, length
    if best < 0:
        return _similar(lines, wanted[first])
    last = best + run
    if first + run == len(wanted):
        return f"; line {best + 1} has the same words in other whitespace: {_quoted(lines[best])}"
    there = _quoted(lines[last]) if last < len(lines) else "nothing, the file ends"
    return (
        f"; the nearest place begins at line {best + 1}, but at line {last + 1} "
        f"the file has {there} where oldString has {_quoted(wanted[first + run])}"
    )


def _similar(lines: Sequence[str], wanted: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

    some = {line[:HINT_CHARS_MAX] for line in lines[:HINT_LINES_MAX]}
    close = get_close_matches(wanted[:HINT_CHARS_MAX], sorted(some), n=1)
    if not close:
        return ""
    number = next(i for i, line in enumerate(lines) if line[:HINT_CHARS_MAX] == close[0])
    return f"; the nearest line is line {number + 1}: {_quoted(lines[number])}"


def _quoted(line: str) -> str:
    return f"`{clean(line, HINT_CHARS_MAX)}`"
