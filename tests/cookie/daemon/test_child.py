"""What a death is said to be."""

import os

import pytest

from cookie.daemon.child import LINE_CHARS, TAIL_BYTES, TAIL_LINES, cause, last_words


@pytest.mark.parametrize(
    ("status", "tail", "said"),
    [
        (0, "", "exit code 0"),
        (3, "", "exit code 3"),
        (1, "Traceback\n  here\nValueError: x", "exit code 1: ValueError: x"),
        (-9, "cookie: 3 lines could not be read", "killed by SIGKILL"),
        (
            -11,
            "noise\nFatal Python error: Segmentation fault\n  File x",
            "killed by SIGSEGV: Fatal Python error: Segmentation fault",
        ),
        (None, "anything", "its exit status is unknown"),
    ],
)
def test_a_death_is_said_in_one_line(status: int | None, tail: str, said: str) -> None:
    assert cause(status, tail) == said


def words(text: bytes) -> str:
    fd = os.memfd_create("stderr")
    try:
        os.write(fd, text)
        return last_words(fd)
    finally:
        os.close(fd)


def test_last_words_are_the_last_lines_and_harmless() -> None:
    assert words(b"") == ""
    assert words(b"\n\n") == ""
    assert words(b"a\n\x1b]0;title\x07\n\n\tb \xff\r\n") == "a\n\ufffd]0;title\ufffd\n    b \ufffd"


def test_last_words_are_bounded() -> None:
    many = words(b"".join(b"line %d\n" % n for n in range(10_000))).split("\n")

    assert many == [f"line {n}" for n in range(10_000 - TAIL_LINES, 10_000)]
    assert len(words(b"x" * 100_000)) == LINE_CHARS <= TAIL_BYTES
