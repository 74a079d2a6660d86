"""A title out of the first input: what a session is called until somebody names it."""

from typing import Final

from ipc.content import UserInput
from ipc.faults import clean

TITLE_CHARS_MAX: Final = 80  # `[session_title] max_chars` (spec 1.12)


def excerpt(given: UserInput, limit: int = TITLE_CHARS_MAX) -> str | None:
    """The first line that says something, blanks folded, cut at a word; None without text."""
    for line in given.text.splitlines():
        words = clean(line.replace("\t", " "), len(line) + 1).split()
        if words:
            break
    else:
        return None
    title = " ".join(words)
    if len(title) <= limit:
        return title
    cut = title[: limit - 1]
    head, _, tail = cut.rpartition(" ")
    return f"{head if head and len(tail) < limit // 4 else cut}…"
