"""The start of a worker process, with the imports of a bare interpreter and no more.

It is what `cookie run` does first: whatever is imported before the spawn is waited for twice, here
and then by the worker, whose own imports begin that much later. So no typing, socket or signal.
"""

import _signal  # type: ignore[import-not-found]  # what `signal` wraps, which imports enum
import errno
import fcntl
import os
from collections.abc import Callable, Mapping, Sequence

LIFE_FD = 3  # where a worker finds its end of the life socketpair

_FIRST_FREE_FD = 10  # above every number the child's file actions write to


def spawn_worker(
    argv: Sequence[str], env: Mapping[str, str], life_fd: int, stderr_fd: int
) -> tuple[int, int]:
    """Start `argv` (argv[0] is a path) and return its pid and a pidfd (-1 where there are none).

    In the child, fd 0 is /dev/null, fds 1 and 2 are `stderr_fd`, fd 3 is `life_fd`, and there is
    no other: ours are close-on-exec, those our own parent left open to us are closed. Signals
    are at their defaults and unblocked. The child leads a session of its own. Raises OSError
    when it can't be started.

    A session rather than a process group: either keeps the terminal's Ctrl-C and Ctrl-Z away,
    but only without a controlling terminal can no tool ask for a password on /dev/tty below a
    status line, nor be stopped by SIGTTOU.
    """
    life = _out_of_the_way(life_fd)
    try:
        stderr = _out_of_the_way(stderr_fd)
        try:
            pid = _posix_spawn(argv, env, life, stderr)
        finally:
            os.close(stderr)
    finally:
        os.close(life)
    return pid, open_pidfd(pid)


def _posix_spawn(argv: Sequence[str], env: Mapping[str, str], life: int, stderr: int) -> int:
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, stderr, 1),
        (os.POSIX_SPAWN_DUP2, stderr, 2),
        (os.POSIX_SPAWN_DUP2, life, LIFE_FD),
        *((os.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable() if fd > LIFE_FD),
    ]
    # Python ignores SIGPIPE and a shell's `&` ignores SIGINT; neither is the worker's choice.
    default = _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}
    try:
        return os.posix_spawn(
            argv[0],
            list(argv),
            env,
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=default,
        )
    except NotImplementedError:  # an old libc: a background process group is the next best
        return os.posix_spawn(
            argv[0],
            list(argv),
            env,
            file_actions=actions,
            setpgroup=0,
            setsigmask=(),
            setsigdef=default,
        )


def _inheritable() -> list[int]:
    """Our open descriptors that an exec would keep; none where they can't be listed."""
    for directory in ("/proc/self/fd", "/dev/fd"):
        try:
            names = os.listdir(directory)  # noqa: PTH208 - numbers, not paths
        except OSError:
            continue
        return [fd for fd in map(int, names) if _is_inheritable(fd)]
    return []


def _is_inheritable(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:  # the one that listed them is gone
        return False


def _out_of_the_way(fd: int) -> int:
    """A close-on-exec duplicate that no file action can overwrite before it is used."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD)


def open_pidfd(pid: int) -> int:
    """A descriptor that becomes readable when `pid` ends; -1 where the system has none."""
    opener: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    if opener is None:
        return -1
    try:
        return opener(pid)
    except OSError as no:
        if no.errno in {errno.ENOSYS, errno.EPERM, errno.EINVAL}:  # old kernel or a seccomp filter
            return -1
        raise
