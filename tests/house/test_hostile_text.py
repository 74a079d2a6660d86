"""Nothing that a model, a tool, a file or a provider says makes a terminal do anything."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.kills import _config
from tests.house.runs import COOKIE, YOLO, Home, home
from tests.house.test_live_line import Terminal

pytestmark = pytest.mark.house

# What cookie itself says to a terminal: its live line, and the two colours of typer's help.
OURS = re.compile(rb"\r\x1b\[2K|\x1b\[(?:0|1|2|3[1-6])(?:;[0-9]{1,2})?m")
OBEYED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]|\r(?!\r*\n)"
)
HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202etxt\x7f\x9b2J"


@pytest.fixture
def here() -> Iterator[Home]:
    with home() as made:
        made.config.write_text(_config(("hostile", "hello")))
        yield made
        assert made.left() == []


class Shown(Terminal):
    """A terminal that any command runs on."""

    def __init__(self, here: Home, *words: str) -> None:
        super().__init__(here, 200, argv=[*COOKIE, *words, "--data-dir", str(here.data)])

    def told(self) -> str:
        """All it was sent, when the command is gone; what of it a terminal obeys is a failure."""
        self.until()
        os.close(self._fd)
        self.process.wait()
        text = OURS.sub(b"", self.bytes).decode()
        found = OBEYED.search(text)
        assert found is None, text[max(0, found.start() - 80) : found.end() + 40]
        return text


def run(here: Home, *more: str) -> str:
    words = ("run", "-m", "hostile/script", *YOLO, *more, f"say {HOSTILE} now")
    return Shown(here, *words).told()


@pytest.mark.parametrize("how", [(), ("--verbose",), ("--json", "--verbose"), ("--stream",)])
def test_a_run_sends_a_terminal_text_and_nothing_else(here: Home, how: tuple[str, ...]) -> None:
    Path(os.fsdecode(os.fsencode(here.workspace) + b"/\x1b[2J\xe2\x80\xae\xff")).write_text("x")

    told = run(here, *how)

    assert "the end" in told


def test_what_was_said_can_be_looked_at(here: Home) -> None:
    run(here)
    (session,) = [tree.name for tree in here.space.trees()]

    for words in (
        ("sessions", "list"),
        ("sessions", "show", session),
        ("sessions", "search", "end"),
        ("sessions", "export", session),
        ("sessions", "show", HOSTILE.replace("\x00", "")),
        ("doctor",),
    ):
        assert Shown(here, *words).told(), words


@pytest.mark.parametrize(
    "words",
    [
        ("run", "-m", HOSTILE, "hi"),
        ("run", "-a", HOSTILE, "hi"),
        ("run", "--resume-session", HOSTILE, "hi"),
        ("run", "--output-file", f"/no/{HOSTILE}", "hi"),
        ("run", f"--{HOSTILE}"),
        ("sessions", "show", HOSTILE),
        ("permissions", "explain", f"bash: {HOSTILE}"),
        ("permissions", "explain", HOSTILE),
        ("config", "check"),
        ("config", "show", "--origin"),
        ("doctor",),
    ],
)
def test_a_mistake_is_told_in_text(here: Home, words: tuple[str, ...]) -> None:
    quoted = HOSTILE.encode("unicode_escape").decode().replace("\\x", "\\u00")
    with here.config.open("a") as config:
        config.write(f'\n["{quoted}"]\n"{quoted}" = "{quoted}"\n')

    assert Shown(here, *words).told(), words
