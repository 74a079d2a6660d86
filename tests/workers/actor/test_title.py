import pytest

from ipc.content import user_text
from workers.actor.title import excerpt


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ("fix the parser", "fix the parser"),
        ("\n\n  fix\tthe   parser  \nand more", "fix the parser"),
        ("  \n\t\n", None),
        ("", None),
        ("a\x1b[31mred", "a\ufffd[31mred"),
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 79 + "…"),
        ("word " * 20, "word " * 14 + "word…"),
        ("請修復解析器", "請修復解析器"),
    ],
)
def test_a_title_is_the_first_line_that_says_something(given: str, title: str | None) -> None:
    assert excerpt(user_text(given)) == title
