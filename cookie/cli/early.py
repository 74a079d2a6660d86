"""The worker that `cookie run` starts before it has read its flags, so that both import at once."""

import os
import socket
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from ipc.seams import proc

WORKER_VARIABLES: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR", "TZ", "XDG_RUNTIME_DIR"}
    | {"VIRTUAL_ENV", "LD_LIBRARY_PATH", "COOKIE_FP"}
)
WORKER_PREFIXES: Final = ("LC_", "PYTHON")


class Started(NamedTuple):
    """A worker that has no tree yet: its pid, pidfd (-1: none), our life end, its stderr."""

    pid: int
    pidfd: int
    life: socket.socket
    stderr_fd: int


def worker_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a worker needs to run Python: no other variable, since any of them may be a secret.

    Its tools get their environment from the plan instead.
    """
    return {
        name: value
        for name, value in environ.items()
        if name in WORKER_VARIABLES or name.startswith(WORKER_PREFIXES)
    }


def start_worker() -> Started:
    """Start `python -m workers` in the shape of a solo worker; raises OSError when it can't be."""
    ours, theirs = socket.socketpair()
    stderr_fd = os.memfd_create("cookie-worker", os.MFD_CLOEXEC)
    # -P: a folder named `workers` or `ipc` in the person's workspace is not ours to import.
    argv = [sys.executable, "-P", "-m", "workers", "--solo", "--on-eof=end"]
    argv.append(f"--life-fd={proc.LIFE_FD}")
    with theirs:
        pid, pidfd = proc.spawn_worker(
            argv, worker_environment(os.environ), theirs.fileno(), stderr_fd
        )
    return Started(pid, pidfd, ours, stderr_fd)


def abandon(started: Started) -> None:
    """End a worker that never got a tree: its life end closes, and it is not waited for long."""
    started.life.close()
    proc.kill_quietly(started.pid)
    proc.wait_status(started.pid, block=True)
    os.close(started.stderr_fd)
    if started.pidfd >= 0:
        os.close(started.pidfd)
