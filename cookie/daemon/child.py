"""One worker as a process: signalled, reaped, and its last words read."""

import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from typing import Final, Protocol

from ipc.faults import clean
from ipc.seams import proc

TAIL_BYTES: Final = 4096
TAIL_LINES: Final = 12
LINE_CHARS: Final = 500
_FATAL: Final = "Fatal Python error"


class Worker(Protocol):
    """A started `python -m workers` that waits for its Birth on the other end of `life`."""

    @property
    def pid(self) -> int:
        """A child of this process."""

    @property
    def pidfd(self) -> int:
        """Readable when it is dead; -1: there is none and its death is polled for."""

    @property
    def life(self) -> socket.socket:
        """Our end; its EOF tells the worker that we are gone."""

    @property
    def stderr_fd(self) -> int:
        """A file of ours that holds what it wrote to stdout and stderr."""


def send_signal(worker: Worker, number: signal.Signals) -> None:
    """Signal exactly this worker; nothing happens when it is dead."""
    with contextlib.suppress(ProcessLookupError):
        if worker.pidfd >= 0:
            signal.pidfd_send_signal(worker.pidfd, number)
        else:
            os.kill(worker.pid, number)  # a child we have not reaped: the pid is still its own


def reap(worker: Worker) -> int | None:
    """The exit code of a dead worker, -N for signal N; None when somebody else reaped it."""
    try:
        return proc.wait_status(worker.pid, block=True)
    except ChildProcessError:
        return None


def release(worker: Worker) -> None:
    """Close our descriptors of a worker; its life end with them."""
    worker.life.close()
    os.close(worker.stderr_fd)
    if worker.pidfd >= 0:
        os.close(worker.pidfd)


def abandon(worker: Worker) -> None:
    """End a worker that has no tree: it has done nothing yet, so nothing can be lost."""
    send_signal(worker, signal.SIGKILL)
    reap(worker)
    release(worker)


def kill_marked(mark: str) -> None:
    """Kill every process that carries the mark of a dead tree; blocks for at most a second."""
    proc.kill_tree(mark=mark)


def children() -> list[proc.Process]:
    """The live children of this process, its workers among them; reads all of /proc."""
    return [one for one in proc.processes() if one.parent == os.getpid()]


def kill_with_all_below(strangers: Sequence[proc.Process]) -> None:
    """Kill processes and what they started; blocks for at most a second each."""
    for stranger in strangers:
        proc.kill(stranger, signal.SIGSTOP)  # or it starts more while its children are killed
        proc.kill_tree(stranger.pid)
        proc.kill(stranger)


def last_words(fd: int) -> str:
    """The last lines of a worker's stderr, safe to show on a terminal."""
    try:
        size = os.fstat(fd).st_size
        data = os.pread(fd, TAIL_BYTES, max(0, size - TAIL_BYTES))
    except OSError:
        return ""
    text = data.decode("utf-8", "replace").replace("\t", "    ")
    lines = [clean(line.rstrip(), LINE_CHARS) for line in text.split("\n")]
    return "\n".join([line for line in lines if line][-TAIL_LINES:])


def cause(status: int | None, tail: str) -> str:
    """One line on a death: how it ended and, where that explains it, what it said last."""
    if status is None:
        return "its exit status is unknown"
    lines = tail.split("\n")
    # Who is killed says nothing about it, except what faulthandler says above its stacks.
    said = lines[-1] if status > 0 else next((one for one in lines if _FATAL in one), "")
    return f"{proc.describe_exit(status)}: {said}" if said else proc.describe_exit(status)
