"""The live line of `cookie run` on a terminal: what stands on the screen, and what stays there."""

import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator

import pyte
import pytest

from tests.house.runs import DEADLINE_S, YOLO, Home, as_in_foreground, home

pytestmark = pytest.mark.house

LINES = 24
CTRL_C = b"\x03"
ERASE = b"\r\x1b[2K"


@pytest.fixture
def here() -> Iterator[Home]:
    with home() as made:
        yield made
        assert made.left() == []


class Terminal:
    """A terminal that a command runs on: its screen now, and every screen it has shown."""

    def __init__(
        self,
        here: Home,
        columns: int,
        *command: str,
        term: str = "xterm",
        argv: list[str] | None = None,
    ) -> None:
        self.screen = pyte.Screen(columns, LINES)
        self.shown: list[list[str]] = []
        self.bytes = b""
        self._stream = pyte.ByteStream(self.screen)
        self._fd, theirs = os.openpty()
        self.resize(columns)
        self.process = subprocess.Popen(
            argv or here.words(*command),
            cwd=here.workspace,
            env=here.env | {"TERM": term},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=own_terminal,  # noqa: PLW1509 - no threads here
        )
        os.close(theirs)

    def resize(self, columns: int) -> None:
        self.screen.resize(LINES, columns)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def now(self) -> list[str]:
        """The lines of the screen that are not blank."""
        return [line.rstrip() for line in self.screen.display if line.strip()]

    def until(self, seen: Callable[[list[str]], object] = lambda _: False) -> list[str]:
        """Show what comes until `seen` of the screen, or until the command is gone."""
        limit = time.monotonic() + DEADLINE_S
        while not (self.shown and seen(self.shown[-1])):
            assert time.monotonic() < limit, f"never seen; the screen is {self.now()}"
            if not select.select([self._fd], [], [], 0.1)[0]:
                continue
            with contextlib.suppress(OSError):  # EIO: the last of them closed it
                if data := os.read(self._fd, 65_536):
                    self.bytes += data
                    self._stream.feed(data)
                    self.shown.append(self.now())
                    continue
            break
        return self.now()

    def end(self) -> int:
        self.until()
        os.close(self._fd)
        return self.process.wait(DEADLINE_S)


def own_terminal() -> None:
    """In the child: Ctrl-C of this terminal is for us."""
    as_in_foreground()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_one_line_says_what_happens_and_erases_itself(here: Home) -> None:
    terminal = Terminal(here, 80, "sleep", *YOLO, "hi")

    (line,) = terminal.until(lambda shown: "sleep 60" in shown[-1])
    assert re.fullmatch(r"turn 1 · .*sleep 60 · 0 tokens · \d+s", line)
    terminal.type(CTRL_C)

    assert terminal.end() == 4
    assert "".join(terminal.now()).startswith("cookie: cancelled: user; go on with: cookie run ")
    assert all(len(shown) <= 1 for shown in terminal.shown if "turn 1" in "".join(shown))


def test_the_tokens_are_those_of_the_run(here: Home) -> None:
    terminal = Terminal(here, 80, "counted", *YOLO, "hi")

    (line,) = terminal.until(lambda shown: "turn 2" in shown[-1])
    assert re.fullmatch(r"turn 2 · waiting for the model · 1\.2k tokens · \d+s", line)
    terminal.type(CTRL_C)
    assert terminal.end() == 4


@pytest.mark.parametrize("columns", [80, 40, 20])
def test_in_the_end_the_screen_holds_the_answer_alone(here: Home, columns: int) -> None:
    terminal = Terminal(here, columns, "four_tools", *YOLO, "hi")

    assert terminal.end() == 0
    assert terminal.now() == ["made.txt says:", "one", "three"]
    assert (terminal.screen.cursor.x, terminal.screen.cursor.y) == (0, 3)
    assert ERASE in terminal.bytes


@pytest.mark.parametrize("columns", [40, 20, 6])
def test_the_line_fits_a_narrow_terminal(here: Home, columns: int) -> None:
    terminal = Terminal(here, columns, "sleep", *YOLO, "hi")

    shown = terminal.until(lambda _: b"tool_call_executing" in here.log())
    shown = terminal.until(lambda shown: re.search(r"[1-9]s$", shown[-1]))
    assert len(shown) == 1
    assert len(shown[0]) < columns
    terminal.type(CTRL_C)
    assert terminal.end() == 4


def test_the_line_follows_a_resize(here: Home) -> None:
    terminal = Terminal(here, 80, "sleep", *YOLO, "hi")
    terminal.until(lambda shown: "sleep 60 · 0 tokens" in shown[-1])

    terminal.resize(30)

    assert terminal.until(lambda shown: "…" in shown[-1] or len(shown[-1]) < 30)
    terminal.until(lambda shown: re.search(r"tokens · \d+s$|· \d+s$", shown[-1]))
    assert len(terminal.now()) == 1
    terminal.type(CTRL_C)
    assert terminal.end() == 4


def test_streamed_text_is_never_overdrawn(here: Home) -> None:
    whole = Terminal(here, 60, "tool_round", *YOLO, "--stream", "hi")
    assert whole.end() == 0
    assert whole.now() == ["I write a line.", "The line is written."]

    dripping = Terminal(here, 60, "drip", "--stream", "--continue", "hi")
    dripping.until(lambda shown: shown and "drip" in shown[0])
    begun = len(dripping.shown) - 1
    dripping.until(lambda _: len(dripping.shown) > begun + 30)  # longer than the line's pause
    assert all(shown[0].startswith("drip") for shown in dripping.shown[begun:])
    dripping.type(CTRL_C)
    assert dripping.end() == 4


def test_what_a_model_says_does_nothing_to_the_terminal(here: Home) -> None:
    terminal = Terminal(here, 80, "escapes", "hi")

    assert terminal.end() == 0
    assert terminal.now() == ["red �[31m title �]0;owned� backover �txet end"]
    assert b"\x1b" not in terminal.bytes.replace(ERASE, b"")


def test_a_dumb_terminal_is_left_in_peace(here: Home) -> None:
    terminal = Terminal(here, 80, "hello", "hi", term="dumb")

    assert terminal.end() == 0
    assert terminal.bytes == b"Hello from the script.\r\n"


def test_a_prompt_that_is_typed_is_asked_for(here: Home) -> None:
    terminal = Terminal(here, 80, "hello", "-")

    assert terminal.until(bool) == ["cookie: type the prompt, then Enter and Ctrl-D"]
    terminal.type(b"say it\n\x04")
    assert terminal.end() == 0
    assert terminal.now()[1:] == ["say it", "Hello from the script."]
