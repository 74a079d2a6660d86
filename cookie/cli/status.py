"""The one live line on stderr while a run works; it erases itself."""

from typing import Final
from unicodedata import east_asian_width

ERASE: Final = "\r\x1b[2K"
SEPARATOR: Final = " · "
DOING_COLUMNS_MIN: Final = 8  # less of it says nothing
REFRESH_S: Final = 0.1  # at most ten lines a second, however fast the tokens come
THOUSAND: Final = 1000
MINUTE_S: Final = 60


def line(*, turn: int, doing: str, tokens: int, elapsed_s: float, columns: int) -> str:
    """The line for a terminal of `columns`; never wraps, holds no control character.

    What is done gives way first, then the tokens, then the turn: the time is what still moves.
    """
    doing = "".join(c if c.isprintable() else " " for c in doing)
    first, tokens_said, time = f"turn {turn}", f"{_count(tokens)} tokens", _elapsed(elapsed_s)
    width = columns - 1  # a full last column makes some terminals wrap
    for facts in ([first, tokens_said, time], [first, time], [time]):
        room = width - len(SEPARATOR.join(facts)) - len(SEPARATOR)
        if room >= min(_wide(doing), DOING_COLUMNS_MIN):
            facts.insert(len(facts) > 1, _cut(doing, room))
            break
        if room + len(SEPARATOR) >= 0:
            break
    return SEPARATOR.join(facts)[: max(width, 0)]


def _cut(text: str, room: int) -> str:
    if _wide(text) <= room:
        return text
    while _wide(text) > room - 1:
        text = text[:-1]
    return f"{text}…"


def _wide(text: str) -> int:
    """Columns of a terminal; what is combined with its neighbour counts as one too."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in text)


def _count(tokens: int) -> str:
    if tokens < THOUSAND:
        return str(tokens)
    return f"{tokens / THOUSAND:.1f}k"


def _elapsed(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), MINUTE_S)
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
