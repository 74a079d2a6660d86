"""Where a headless run's output goes: stdout or a file, as text, as JSONL, or nowhere."""

import os
import sys
from typing import Final

import msgspec

from ipc.faults import Fault

RECORD_PREFIX: Final = b'{"type":"event","event":'
RECORD_SUFFIX: Final = b"}\n"


class OutputBroken(Fault):
    """The output can't be written: its reader went away, its disk is full, it was closed."""

    code = "output_broken"

    def __init__(self, where: str, error: OSError) -> None:
        super().__init__(where=where, errno=error.errno or 0)
        self.args = (f"can't write to {where}: {error.strerror or error}",)


class Output:
    """Bytes out, whole, in order; blocks while the reader is slow, and so slows the run."""

    def __init__(self, path: str | None) -> None:
        """Open `path`, or stdout without one; raises OutputBroken at once if that can't work."""
        self._where = "stdout" if path is None else path
        self._waiting: list[bytes] = []
        try:
            if path is None:
                self._fd = os.dup(sys.__stdout__.fileno() if sys.__stdout__ else 1)
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                self._fd = os.open(path, flags, 0o666)
        except ValueError:
            raise OutputBroken("the output file", OSError(0, "its path holds a NUL byte")) from None
        except OSError as error:
            raise OutputBroken(self._where, error) from None

    @property
    def waiting(self) -> bool:
        """Whether something was put and not flushed."""
        return bool(self._waiting)

    def put(self, data: bytes) -> None:
        """Add bytes; `flush` writes them."""
        self._waiting.append(data)

    def event(self, line: bytes) -> None:
        """Add one event record around the event's own bytes."""
        self._waiting.append(b"%b%b%b" % (RECORD_PREFIX, line, RECORD_SUFFIX))

    def record(self, record: msgspec.Struct) -> None:
        """Add any other JSONL record."""
        self._waiting.append(msgspec.json.encode(record) + b"\n")

    def flush(self) -> None:
        """Write what waits; raises OutputBroken, and then drops it."""
        data = memoryview(b"".join(self._waiting))
        self._waiting.clear()
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise OutputBroken(self._where, error) from None

    def drop(self) -> None:
        """Forget what waits: nobody reads it any more."""
        self._waiting.clear()

    def close(self) -> None:
        """Flush and close; raises OutputBroken."""
        try:
            self.flush()
        finally:
            os.close(self._fd)
