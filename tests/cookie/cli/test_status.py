"""The live line as text: it fits, it keeps what moves, and it holds nothing a terminal obeys."""

import pytest

from cookie.cli.status import line


@pytest.mark.parametrize(
    ("columns", "doing", "shown"),
    [
        (80, "Bash sleep 60", "turn 2 · Bash sleep 60 · 1.2k tokens · 1m05s"),
        (40, "Bash sleep 60", "turn 2 · Bash sl… · 1.2k tokens · 1m05s"),
        (39, "Bash sleep 60", "turn 2 · 1.2k tokens · 1m05s"),
        (39, "think", "turn 2 · think · 1.2k tokens · 1m05s"),
        (28, "Bash sleep 60", "turn 2 · Bash slee… · 1m05s"),
        (20, "Bash sleep 60", "turn 2 · 1m05s"),
        (12, "Bash sleep 60", "1m05s"),
        (4, "Bash sleep 60", "1m0"),
        (1, "Bash sleep 60", ""),
        (45, "日本語のファイルを読む", "turn 2 · 日本語のファ… · 1.2k tokens · 1m05s"),
    ],
)
def test_what_is_done_gives_way_first_and_the_time_last(
    columns: int, doing: str, shown: str
) -> None:
    assert line(turn=2, doing=doing, tokens=1234, elapsed_s=65.9, columns=columns) == shown


@pytest.mark.parametrize("columns", range(1, 100))
def test_it_never_reaches_the_last_column(columns: int) -> None:
    shown = line(turn=12, doing="Write a/b/c.txt", tokens=9, elapsed_s=1, columns=columns)

    assert len(shown) <= columns - 1


def test_control_characters_are_blanks() -> None:
    shown = line(turn=1, doing="a\x1b[31m\nb", tokens=0, elapsed_s=0, columns=80)

    assert shown == "turn 1 · a [31m b · 0 tokens · 0s"
