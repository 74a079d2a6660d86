"""The one live line on stderr while a run works; it erases itself."""

from typing import Final

ERASE: Final = "\r\x1b[2K"
MIN_COLUMNS: Final = 20
REFRESH_S: Final = 0.1  # at most ten lines a second, however fast the tokens come
THOUSAND: Final = 1000
MINUTE_S: Final = 60


def line(*, turn: int, doing: str, tokens: int, elapsed_s: float, columns: int) -> str:
    """The line for a terminal of `columns`; never wraps, holds no control character."""
    facts = [f"turn {turn}", doing, f"{_count(tokens)} tokens", _elapsed(elapsed_s)]
    text = " · ".join(fact for fact in facts if fact)
    text = "".join(c if c.isprintable() else " " for c in text)
    width = max(columns - 1, MIN_COLUMNS)
    return text if len(text) <= width else text[: width - 1] + "…"


def _count(tokens: int) -> str:
    if tokens < THOUSAND:
        return str(tokens)
    return f"{tokens / THOUSAND:.1f}k"


def _elapsed(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), MINUTE_S)
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
