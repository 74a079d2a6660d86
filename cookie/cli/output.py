"""Where a headless run's output goes: stdout or a file, as text, as JSONL, or nowhere."""

import contextlib
import errno
import os
import select
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ipc.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD_PREFIX: Final = b'{"type":"event","event":'
RECORD_SUFFIX: Final = b"}\n"
STDOUT: Final = "stdout"
NO_FD: Final = -1
LOOK_MS: Final = 100  # between two looks at whether there is a hurry
STUCK_MS: Final = 2000  # a reader that took nothing for so long stands still

# What a terminal would obey in a model's words (hazard 64): C0 but newline and tab, DEL, C1, and
# what turns the direction of text. A carriage return is part of a line's end or a way to hide one.
_OBEYED: Final = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "\ufffd"),
    **dict.fromkeys((0x061C, 0x200E, 0x200F), "\ufffd"),
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd"),
    ord("\n"): "\n",
    ord("\t"): "\t",
    ord("\r"): None,
}
# The same inside JSON, where each has a spelling that means the same and does nothing. What is
# below the blank is spelled so already.
_ESCAPED: Final = {
    code: f"\\u{code:04x}"
    for code in _OBEYED
    if code >= 0x7F  # noqa: PLR2004 - DEL, the first that JSON lets stand
}


class OutputBroken(Fault):
    """The output can't be written: its reader went away, its disk is full, it was closed."""

    code = "output_broken"

    def __init__(self, where: str, error: OSError) -> None:
        super().__init__(where=where, errno=error.errno or 0)
        self.args = (f"can't write to {where}: {error.strerror or error}",)


class Output:
    """Bytes out, whole, in order; blocks while the reader is slow, and so slows the run.

    A file is opened at once, so that one that can't be written is told before anything runs. What
    was in it goes when `begin` says that a run does; `undo` leaves everything as it was found.
    """

    def __init__(self, path: str | None, *, silent: bool = False) -> None:
        """Open `path`, or stdout without one; raises OutputBroken if that can't work."""
        self._path = path
        self._where = path or STDOUT
        self._waiting: list[bytes] = []
        self._made = False
        self._fd = NO_FD
        self.hurry: Callable[[], bool] = bool  # whether a reader that stands still is left behind
        if not silent:
            try:
                self._fd = self._open()
            except OSError as error:
                raise OutputBroken(self._where, error) from None
        self._plain = self._fd != NO_FD and stat.S_ISREG(os.fstat(self._fd).st_mode)
        self.on_terminal = self._fd != NO_FD and os.isatty(self._fd)

    def _open(self) -> int:
        if self._path is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
            with contextlib.suppress(FileExistsError):
                fd = os.open(self._path, flags | os.O_EXCL, 0o666)
                self._made = True
                return fd
            return os.open(self._path, flags, 0o666)
        if sys.__stdout__ is None:  # fd 1 is /dev/null by now, which would take it all
            raise OSError(errno.EBADF, "it is closed; use --output-file FILE or --output none")
        return os.dup(sys.__stdout__.fileno())

    def begin(self) -> None:
        """A run begins: what the file held is not the output of this one."""
        if self._path is not None and self._plain:
            os.ftruncate(self._fd, 0)

    def undo(self) -> None:
        """Nothing ran: close, and remove the file if we made it."""
        self._waiting.clear()
        self._shut()
        if self._made and self._path is not None:
            with contextlib.suppress(OSError):
                Path(self._path).unlink()

    @property
    def waiting(self) -> bool:
        """Whether something was put and not flushed."""
        return bool(self._waiting)

    def put(self, text: str) -> None:
        """Add text; `flush` writes it. On a terminal, without what a terminal obeys."""
        self._waiting.append((text.translate(_OBEYED) if self.on_terminal else text).encode())

    def event(self, line: bytes) -> None:
        """Add one event record around the event's own bytes."""
        self._waiting.append(b"%b%b%b" % (RECORD_PREFIX, self._harmless(line), RECORD_SUFFIX))

    def line(self, line: bytes) -> int:
        """Add one line of JSON as it is; the bytes that this makes."""
        self._waiting.append(self._harmless(line) + b"\n")
        return len(line) + 1

    def record(self, record: msgspec.Struct) -> None:
        """Add any other JSONL record."""
        self.line(msgspec.json.encode(record))

    def _harmless(self, line: bytes) -> bytes:
        return line.decode().translate(_ESCAPED).encode() if self.on_terminal else line

    def flush(self) -> None:
        """Write what waits; raises OutputBroken, and then drops it."""
        data = memoryview(b"".join(self._waiting))
        self._waiting.clear()
        try:
            while data:
                data = data[self._write(data) :]
        except OSError as error:
            raise OutputBroken(self._where, error) from None

    def _write(self, data: memoryview) -> int:
        """Write some of it. What is not a file is asked first, so that no write blocks for ever."""
        if self._plain:
            return os.write(self._fd, data)
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        waited_ms = 0
        while not poll.poll(LOOK_MS):
            waited_ms += LOOK_MS
            if waited_ms >= STUCK_MS and self.hurry():
                raise OSError(errno.ETIMEDOUT, "its reader stands still")
        try:
            return os.write(self._fd, data[: select.PIPE_BUF])  # so much a ready pipe takes
        except BlockingIOError:  # whoever shares the pipe with us made it so
            return 0

    def drop(self) -> None:
        """Forget what waits: nobody reads it any more."""
        self._waiting.clear()

    def close(self) -> None:
        """Flush and close; raises OutputBroken. Safe to repeat."""
        try:
            self.flush()
        finally:
            self._shut()

    def _shut(self) -> None:
        if self._fd != NO_FD:
            fd, self._fd = self._fd, NO_FD
            os.close(fd)
