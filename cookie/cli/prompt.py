"""Where a prompt comes from: the command line, a file, or stdin, read only when asked for."""

import os
import select
import sys
from collections.abc import Callable
from typing import Final

from cookie.cli.advice import explain, say
from ipc.faults import Fault

STDIN: Final = "-"
PROMPT_BYTES_MAX: Final = 2 * 1024 * 1024
_PIECE_BYTES: Final = 65_536
_TERMINAL_HINT: Final = "type the prompt, then Enter and Ctrl-D"


class BadPrompt(Fault):
    """A prompt that can't be read, or is none. `said` is where it was given."""

    code = "bad_prompt"

    def __init__(self, said: str, reason: str) -> None:
        super().__init__(said=said, reason=reason)
        self.args = (f"{said}: {reason}",)


def given(text: str) -> str:
    """The prompt that was said on the command line itself; raises BadPrompt."""
    return _checked(text.encode(errors="surrogateescape"), "the prompt")


def from_stdin() -> str:
    """The prompt on stdin, to its end; raises BadPrompt."""
    if sys.__stdin__ is None:  # fd 0 is /dev/null by now
        raise BadPrompt("stdin", "it is closed, so there is no prompt to read")
    if sys.__stdin__.isatty():
        say(_TERMINAL_HINT)
    fd = sys.__stdin__.fileno()
    return _read(lambda: _piece(fd), "stdin")


def from_file(path: str) -> str:
    """The prompt in a file, which may be a pipe; raises BadPrompt."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as failed:
        raise BadPrompt("the prompt file", explain(failed)) from None
    try:
        return _read(lambda: _piece(fd), path)
    finally:
        os.close(fd)


def _read(piece: Callable[[], bytes], said: str) -> str:
    """All pieces together, but never more than what is too much."""
    data = bytearray()
    try:
        while len(data) <= PROMPT_BYTES_MAX and (more := piece()):
            data += more
    except OSError as failed:
        raise BadPrompt(said, explain(failed)) from None
    return _checked(bytes(data), said)


def _piece(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, _PIECE_BYTES)
        except BlockingIOError:  # whoever shares the pipe with us made it so
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll()


def _checked(data: bytes, said: str) -> str:
    if len(data) > PROMPT_BYTES_MAX:
        raise BadPrompt(said, f"more than {PROMPT_BYTES_MAX} bytes are not taken as a prompt")
    try:
        text = data.decode()
    except UnicodeDecodeError as bad:
        raise BadPrompt(said, f"not UTF-8 text at byte {bad.start}") from None
    if (nul := text.find("\0")) >= 0:
        raise BadPrompt(said, f"not a text: it has a NUL character at {nul}")
    if not text.strip():
        raise BadPrompt(said, "it is empty; say what to do")
    return text
