"""The worker that `cookie run` starts before it has read its flags, so that both import at once."""

# What is imported up to the spawn is waited for twice: see `ipc.seams.spawn`.
import _socket
import os
import sys
from collections.abc import Mapping, Sequence

from cookie.cli import foresee
from ipc.seams.spawn import LIFE_FD, spawn_worker

TYPE_CHECKING = False  # typing's own costs four milliseconds
if TYPE_CHECKING:
    import socket

WORKER_VARIABLES = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR", "TZ", "XDG_RUNTIME_DIR"}
    | {"VIRTUAL_ENV", "LD_LIBRARY_PATH", "COOKIE_FP"}
)
WORKER_PREFIXES = ("LC_", "PYTHON")


class Started:
    """A worker that has no tree yet: its pid, pidfd (-1: none), our life end, its stderr."""

    def __init__(self, pid: int, pidfd: int, life_fd: int, stderr_fd: int) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.stderr_fd = stderr_fd
        self._life_fd = life_fd
        self._life: socket.socket | None = None

    @property
    def life(self) -> "socket.socket":
        """Our end of its life socket."""
        if self._life is None:
            import socket  # noqa: PLC0415 - after the worker was started, it costs nothing extra

            self._life = socket.socket(fileno=self._life_fd)
        return self._life


def worker_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a worker needs to run Python: no other variable, since any of them may be a secret.

    Its tools get their environment from the plan instead.
    """
    return {
        name: value
        for name, value in environ.items()
        if name in WORKER_VARIABLES or name.startswith(WORKER_PREFIXES)
    }


def start_worker(adaptors: Sequence[str] = ()) -> Started:
    """Start `python -m workers` in the shape of a solo worker; raises OSError when it can't be.

    What `adaptors` need it imports while it waits for its tree.
    """
    ours, theirs = _socket.socketpair()
    stderr_fd = os.memfd_create("cookie-worker", os.MFD_CLOEXEC)
    # -P: a folder named `workers` or `ipc` in the person's workspace is not ours to import.
    argv = [sys.executable, "-P", "-m", "workers", "--solo", "--on-eof=end"]
    argv.append(f"--life-fd={LIFE_FD}")
    if adaptors:
        argv.append(f"--preload={','.join(adaptors)}")
    try:
        env = worker_environment(os.environ)
        pid, pidfd = spawn_worker(argv, env, theirs.fileno(), stderr_fd)
    except OSError:
        os.close(stderr_fd)
        ours.close()
        raise
    finally:
        theirs.close()
    return Started(pid, pidfd, ours.detach(), stderr_fd)


def abandon(started: Started) -> None:
    """End a worker that never got a tree: its life end closes, and it is not waited for long."""
    from ipc.seams import proc  # noqa: PLC0415 - seldom needed

    started.life.close()
    proc.kill_quietly(started.pid)
    proc.wait_status(started.pid, block=True)
    os.close(started.stderr_fd)
    if started.pidfd >= 0:
        os.close(started.pidfd)


class Spare:
    """A worker that was started in advance, until somebody takes it."""

    def __init__(self, started: Started | None) -> None:
        self._started = started

    def take(self) -> Started:
        """The worker, which is the caller's from here on; raises OSError if there can be none."""
        started, self._started = self._started, None
        return started or start_worker()

    def abandon(self) -> None:
        """End it if nobody took it; it has no tree and so nothing to lose."""
        if self._started is not None:
            abandon(self._started)
            self._started = None


def start_early(words: list[str]) -> Spare:
    """Start one now for `cookie <words>`; where that fails, `take` will try again and say why."""
    try:
        return Spare(start_worker(foresee.adaptors(words)))
    except OSError:
        return Spare(None)
