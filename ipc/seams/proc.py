"""The process seam: learn of a process's end, find and kill what a tree left behind.

How a worker is started is `ipc.seams.spawn`, since it must be had before anything else.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from ipc.seams.spawn import open_pidfd

TREE_VARIABLE: Final = "COOKIE_TREE"  # every tool process carries it: `<root>:<nonce>`
KILL_ROUNDS_MAX: Final = 50
KILL_ROUND_PAUSE_S: Final = 0.02

_TASKS: Final = "/proc/self/task"
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36


# --- end


def wait_status(pid: int, *, block: bool = False) -> int | None:
    """Reap child `pid`: its exit code, `-N` if signal N ended it, None while it runs.

    ChildProcessError if it is no child of ours or was reaped before.
    """
    done, status = os.waitpid(pid, 0 if block else os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def kill_quietly(pid: int) -> None:
    """SIGKILL a child that was not reaped yet, so that its pid is still its own."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def describe_exit(code: int) -> str:
    """An exit code of `wait_status` for people: "killed by SIGKILL", "exit code 3"."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


# The children of this process that somebody waits for. All others are orphans that came to it.
_AWAITED: Final[set[int]] = set()
_SUBREAPERS: Final[set[int]] = set()  # our pid, once orphans come to us; a fork's is another


def await_child(pid: int) -> None:
    """Say that somebody will reap `pid`, who was just started by this process."""
    _AWAITED.add(pid)


def reaped(pid: int) -> None:
    """Say that `pid` was reaped, or is given up."""
    _AWAITED.discard(pid)


def reap_orphans() -> int:
    """Reap the dead children of this process that nobody waits for; how many there were.

    On the thread that starts children, so that one can't be taken for an orphan between its start
    and `await_child`. A dead child that is awaited may hide orphans behind it until it is reaped.
    """
    count = 0
    with contextlib.suppress(ChildProcessError):
        while (seen := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if seen.si_pid in _AWAITED:
                break
            os.waitid(os.P_PID, seen.si_pid, os.WEXITED | os.WNOHANG)
            count += 1
    return count


def has_strays() -> bool:
    """Whether anything may live below this process that nobody waits for.

    What a dead child left comes to its nearest subreaper, and so, if that is this process, is a
    child of it. Reads a line for each of our threads, where a look at all of /proc reads one for
    each process of the machine. True also when it can't be told.
    """
    if os.getpid() not in _SUBREAPERS:
        return True
    try:
        mine = [int(pid) for task in os.listdir(_TASKS) for pid in _children(task)]  # noqa: PTH208
    except (OSError, ValueError):  # no /proc, or a kernel without the list
        return True
    return not _AWAITED.issuperset(mine)


def _children(task: str) -> list[bytes]:
    with open(f"{_TASKS}/{task}/children", "rb", buffering=0) as file:  # noqa: PTH123
        return file.read().split()


# --- what the kernel is told about this process


def set_subreaper() -> bool:
    """Make orphans below this process its children; False where there is no such thing."""
    done = _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if done:
        _SUBREAPERS.add(os.getpid())
    return done


def set_dumpable(*, dumpable: bool) -> bool:
    """Let others of this user trace this process and lift its descriptors, or not.

    An exec gives it back, so tools are not affected. False where there is no such thing.
    """
    return _prctl(_PR_SET_DUMPABLE, int(dumpable))


def _prctl(option: int, value: int) -> bool:
    # ctypes costs milliseconds at import and only the processes that stay need it.
    import ctypes  # noqa: PLC0415

    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:
        return False
    zero = ctypes.c_ulong(0)
    return int(prctl(ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero)) == 0


# --- find and kill


class Process(NamedTuple):
    """One live process as /proc shows it; `start` (clock ticks since boot) tells a reused pid."""

    pid: int
    parent: int
    session: int
    start: int


def tree_mark(root: str, nonce: str) -> str:
    """The value of `COOKIE_TREE` for the tools of one worker of tree `root`."""
    return f"{root}:{nonce}"


def processes() -> list[Process]:
    """Every live process that can be seen; zombies are not alive. Empty without /proc."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return []
    return [process for pid in pids if (process := read_process(pid)) is not None]


def read_process(pid: int) -> Process | None:
    """`pid` as /proc shows it; None when it is gone, a zombie or not to be seen."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name may hold spaces and parentheses; what follows its last ")" is fixed (proc(5)).
    state, parent, _group, session, *rest = text.rpartition(b")")[2].split()
    if state in {b"Z", b"X"}:
        return None
    return Process(pid, int(parent), int(session), int(rest[15]))


def descendants(pid: int, among: Iterable[Process] | None = None) -> list[Process]:
    """What `pid` started and what those started, nearest first; not `pid` itself."""
    children: dict[int, list[Process]] = {}
    for process in processes() if among is None else among:
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    todo = [pid]
    for parent in todo:
        below = children.pop(parent, [])
        found += below
        todo += [process.pid for process in below]
    return found


def marked(mark: str, among: Iterable[Process] | None = None) -> list[Process]:
    """Processes whose environment says `COOKIE_TREE=<mark>`.

    A mark that ends in ":" stands for every nonce of that root.
    """
    wanted = f"{TREE_VARIABLE}={mark}".encode()
    whole = not mark.endswith(":")

    def carries(process: Process) -> bool:
        try:
            environ = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            return False
        entries = environ.split(b"\0")
        return wanted in entries if whole else any(e.startswith(wanted) for e in entries)

    return [p for p in (processes() if among is None else among) if carries(p)]


def kill(process: Process, number: int = signal.SIGKILL) -> bool:
    """Signal exactly this process, never one that took its pid; False if it is gone."""
    pidfd = -1
    try:
        pidfd = open_pidfd(process.pid)
        # Looked at again while the pidfd pins it: from here on the pid can't change its owner.
        now = read_process(process.pid)
        if now is None or now.start != process.start:
            return False
        if pidfd >= 0:
            signal.pidfd_send_signal(pidfd, number)
        else:
            os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if pidfd >= 0:
            os.close(pidfd)
    return True


def kill_tree(
    pid: int | None = None, *, mark: str | None = None, spare: frozenset[int] = frozenset()
) -> int:
    """SIGKILL all descendants of `pid` and all that carry `mark`, until a look finds none.

    Returns how many live ones were still seen after the last of at most 50 looks (0 = clean).
    Blocks up to about a second when processes won't die; this process and `spare` are never hit.
    """
    spared = spare | {os.getpid()}
    left = 0
    for attempt in range(KILL_ROUNDS_MAX):
        if attempt:
            time.sleep(KILL_ROUND_PAUSE_S)
        seen = processes()
        found = {p.pid: p for p in descendants(pid, seen)} if pid is not None else {}
        if mark is not None:
            found |= {p.pid: p for p in marked(mark, seen)}
        victims = [p for p in found.values() if p.pid not in spared]
        left = len(victims)
        if not left:
            return 0
        for victim in victims:
            kill(victim)
    return left
