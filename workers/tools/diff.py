"""The change of a file as people are shown it: compact unified hunks, bounded."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ipc.content import DiffDisplay

CONTEXT_LINES: Final = 3
HUNKS_MAX: Final = 50
HUNK_CHARS_MAX: Final = 16 << 10  # of all hunks together
LINE_CHARS_MAX: Final = 400
COMPARED_LINES_MAX: Final = 500  # of one hunk; comparing is quadratic
WHOLE_BYTES_MAX: Final = 1 << 20  # of a file whose every line is looked at
LEFT_OUT: Final = "[… more changes are not shown]"


class Change(NamedTuple):
    """Bytes `start` to `end` of the old content became `text`."""

    start: int
    end: int
    text: bytes


def whole_change(old: bytes, new: bytes) -> list[Change]:
    """The change from one content to another, without the lines they begin and end with alike."""
    if old == new:
        return []
    if max(len(old), len(new)) > WHOLE_BYTES_MAX:
        return [Change(0, len(old), new)]
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    head = _alike(before, after)
    tail = _alike(before[head:][::-1], after[head:][::-1])
    start = sum(map(len, before[:head]))
    behind = sum(map(len, before[len(before) - tail :]))
    return [Change(start, len(old) - behind, new[start : len(new) - behind])]


def _alike(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    count = 0
    for mine, yours in zip(one, other, strict=False):
        if mine != yours:
            break
        count += 1
    return count


def diff_display(path: str, old: bytes, changes: Iterable[Change]) -> DiffDisplay:
    """The hunks of `changes`, which are in order and don't overlap. Counts are of lines."""
    shown: list[str] = []
    room = HUNK_CHARS_MAX
    added = removed = counted = line = 0
    for number, hunk in enumerate(_hunks(old, changes)):
        line += old.count(b"\n", counted, hunk.start)
        counted = hunk.start
        exact = number < HUNKS_MAX
        body, minus, plus = _compare(_lines(old[hunk.start : hunk.end]), _lines(hunk.text), exact)
        if room > 0 and exact:
            text = _render(old, hunk, body, line, added - removed)
            shown.append(text[:room])
            room -= len(text)
        elif shown[-1] != LEFT_OUT:
            shown.append(LEFT_OUT)
        added += plus
        removed += minus
    return DiffDisplay(path=path, hunks="\n".join(shown), added=added, removed=removed)


def _hunks(old: bytes, changes: Iterable[Change]) -> Iterator[Change]:
    """Changes widened to whole lines; those whose context would touch are one."""
    open_hunk: Change | None = None
    for change in changes:
        begin = old.rfind(b"\n", 0, change.start) + 1
        end = _line_end(old, change, begin)
        if open_hunk is not None and _near(old, open_hunk.end, begin):
            # The open hunk may already reach past the start of this change, on the same line.
            kept = open_hunk.text
            if open_hunk.end > change.start:
                kept = kept[: len(kept) - (open_hunk.end - change.start)]
            else:
                kept += old[open_hunk.end : change.start]
            text = kept + change.text + old[change.end : end]
            open_hunk = Change(open_hunk.start, end, text)
            continue
        if open_hunk is not None:
            yield open_hunk
        text = old[begin : change.start] + change.text + old[change.end : end]
        open_hunk = Change(begin, end, text)
    if open_hunk is not None:
        yield open_hunk


def _line_end(old: bytes, change: Change, begin: int) -> int:
    """Where the last line that a change touches ends; a whole line that goes touches no other."""
    whole = change.text.endswith(b"\n") or (not change.text and change.start == begin)
    if whole and old[change.end - 1 : change.end] == b"\n":
        return change.end
    return old.find(b"\n", change.end) + 1 or len(old)


def _near(old: bytes, end: int, begin: int) -> bool:
    return begin <= end or old.count(b"\n", end, begin) <= 2 * CONTEXT_LINES


def _lines(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def _compare(
    before: list[bytes], after: list[bytes], exact: bool
) -> tuple[list[tuple[str, bytes]], int, int]:
    """The lines of a hunk with their signs, and how many were removed and added."""
    from difflib import SequenceMatcher  # noqa: PLC0415 - no start has to wait for it

    if not exact or max(len(before), len(after)) > COMPARED_LINES_MAX:
        whole = [("-", line) for line in before] + [("+", line) for line in after]
        return whole, len(before), len(after)
    body: list[tuple[str, bytes]] = []
    minus = plus = 0
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            body += [(" ", line) for line in before[i:j]]
            continue
        body += [("-", line) for line in before[i:j]] + [("+", line) for line in after[k:m]]
        minus += j - i
        plus += m - k
    return body, minus, plus


def _render(old: bytes, hunk: Change, body: list[tuple[str, bytes]], line: int, drift: int) -> str:
    """One hunk as text; `line` is the index of its first line, `drift` how far new lines moved."""
    head = old[_back(old, hunk.start) : hunk.start]
    before, after = _lines(head) if head else [], _context_after(old, hunk.end)
    whole = [(" ", text) for text in before] + body + [(" ", text) for text in after]
    signs = [sign for sign, _ in whole]
    ours, theirs = len(signs) - signs.count("+"), len(signs) - signs.count("-")
    first = line - len(before)
    header = f"@@ -{first + (ours > 0)},{ours} +{first + drift + (theirs > 0)},{theirs} @@"
    return "\n".join([header, *(sign + _shown(text) for sign, text in whole)])


def _back(old: bytes, position: int) -> int:
    """Where the context before a line begins."""
    for _ in range(CONTEXT_LINES):
        if position == 0:
            break
        position = old.rfind(b"\n", 0, position - 1) + 1
    return position


def _context_after(old: bytes, position: int) -> list[bytes]:
    end = position
    for _ in range(CONTEXT_LINES):
        end = old.find(b"\n", end) + 1 or len(old)
    return _lines(old[position:end]) if end > position else []


def _shown(line: bytes) -> str:
    text = line.removesuffix(b"\r")[: 4 * LINE_CHARS_MAX].decode("utf-8", "replace")
    return text if len(text) <= LINE_CHARS_MAX else text[:LINE_CHARS_MAX] + "…"
