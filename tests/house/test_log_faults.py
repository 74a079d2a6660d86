"""Real processes killed, stopped and starved of disk while they append."""

import contextlib
import fcntl
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ipc.disk.log import read_log
from ipc.disk.paths import TreePaths, WorkspacePaths
from ipc.seams import proc
from tests.fakes.store import SESSION, check_reopens, is_locked

pytestmark = pytest.mark.house

ROOT = Path(__file__).parents[2]
ROUNDS = 12


def start(
    space: Path, rounds: int = ROUNDS, *more: str, fp: str = "", limit: int = 0
) -> subprocess.Popen[bytes]:
    def starve() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.appender", str(space), str(rounds), *more],
        env={**env, "COOKIE_FP": fp} if fp else env,
        cwd=ROOT,
        bufsize=0,  # communicate() does not see what readline() left in a buffer
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=starve if limit else None,  # noqa: PLW1509 - one thread here, before the exec
    )


def told_by(process: subprocess.Popen[bytes]) -> list[bytes]:
    """Every line it said it was told of, until it ended."""
    out, _ = process.communicate(timeout=50)
    return out.split(b"\n")[:-1]


def tree_in(space: Path) -> TreePaths:
    return WorkspacePaths(space).tree(SESSION)


def check_kept(space: Path, told: list[bytes]) -> None:
    tree = tree_in(space)
    if not tree.directory.exists():
        assert not told, "told of a tree that is not there"
        shutil.rmtree(space, ignore_errors=True)  # what a sweeper does with an unpublished tree
        return
    assert not is_locked(tree)
    read = read_log(tree.root.events, SESSION)
    lines = [line for _, line in read]
    rest = iter(lines)
    assert all(line in rest for line in told), "an event somebody was told of is lost"
    check_reopens(tree, told)


BOUNDARIES = [
    "log.write:2:kill",
    "log.write:2:short=17,fs.write:3:kill",
    "log.write:9:kill",
    "log.sync:1:kill",
    "log.sync:4:kill",
    "append.session_created.before:1:kill",
    "append.session_created.after:1:kill",
    "append.user_input_submitted.before:3:kill",
    "append.user_input_submitted.after:1:kill",
    "append.user_input_submitted.after:3:kill",
    "append.text_delta.before:2:kill",
    "append.text_delta.after:2:kill",
    "fs.rename:1:kill",
    "fs.fsync:1:kill",
    "fs.fsync:2:kill",
    "fs.fsync:3:kill",
]


@pytest.mark.parametrize("fp", BOUNDARIES)
def test_a_kill_at_a_boundary_loses_nothing_that_was_told(tmp_path: Path, fp: str) -> None:
    killed = start(tmp_path / "space", fp=fp)
    told = told_by(killed)
    assert killed.returncode == -signal.SIGKILL
    check_kept(tmp_path / "space", told)
    again = start(tmp_path / "space", 2)
    told += told_by(again)
    assert again.returncode == 0
    check_kept(tmp_path / "space", told)


def test_kills_at_random_lose_nothing_that_was_told(tmp_path: Path) -> None:
    chance, told = random.Random(7), list[bytes]()
    for _ in range(20):
        process = start(tmp_path / "space", 100_000)
        assert process.stdout is not None
        for _ in range(chance.randrange(1, 60)):  # some work first, then in the middle of some
            told.append(process.stdout.readline().rstrip(b"\n"))
        process.kill()
        told += told_by(process)
        check_kept(tmp_path / "space", told)
    seqs = [event.seq for event in read_log(tree_in(tmp_path / "space").root.events).events()]
    assert seqs == sorted(set(seqs))


@pytest.mark.parametrize("limit", range(4000, 12_000, 1237))
def test_a_disk_that_is_full_refuses_and_keeps_what_was_told(tmp_path: Path, limit: int) -> None:
    full = start(tmp_path / "space", limit=limit)  # the kernel cuts the write short, then refuses
    told = told_by(full)
    assert full.returncode == 3
    log = tree_in(tmp_path / "space").root.events
    assert log.read_bytes().endswith(b"\n"), "half a line was left behind"
    check_kept(tmp_path / "space", told)


@pytest.mark.parametrize("fp", ["log.sync:3:eio", "fs.fdatasync:4:eio", "log.sync:3+:enospc"])
def test_a_sync_that_fails_is_told_to_nobody_and_ends_the_writing(tmp_path: Path, fp: str) -> None:
    mark = tmp_path / "syncs"
    failed = start(tmp_path / "space", fp=f"{fp},log.sync:*:mark={mark},log.write:*:mark={mark}")
    out, err = failed.communicate(timeout=50)
    assert failed.returncode == 3
    assert b"log_poisoned" in err
    told = out.split(b"\n")[:-1]
    check_kept(tmp_path / "space", told)
    whole = [line for _, line in read_log(tree_in(tmp_path / "space").root.events)]
    assert len(told) < len(whole)
    names = [line.split()[0] for line in mark.read_text().splitlines()]
    assert names[-1] == "log.write" or fp.startswith("fs."), "something was written after it"


def test_an_owner_that_slept_while_its_tree_was_taken_over_writes_nothing(tmp_path: Path) -> None:
    space = tmp_path / "space"
    sleeper = start(space, 1000, "step")
    assert sleeper.stdin is not None
    assert sleeper.stdout is not None
    for _ in range(2):
        sleeper.stdout.readline()
    sleeper.stdin.write(b"1")
    sleeper.stdin.flush()
    sleeper.stdout.readline()
    sleeper.send_signal(signal.SIGSTOP)
    wait_for_state(sleeper.pid, "T")

    tree = tree_in(space)
    tree.lock.unlink()  # by force: the lock is held, and we do not care
    tree.lock.touch(0o600)
    successor = start(space, 3)
    told = told_by(successor)
    assert successor.returncode == 0
    content = tree.root.events.read_bytes()

    sleeper.send_signal(signal.SIGCONT)
    sleeper.stdin.write(b"2")
    sleeper.stdin.flush()
    _, err = sleeper.communicate(timeout=50)
    assert sleeper.returncode == 3
    assert b"fenced" in err
    assert tree.root.events.read_bytes() == content
    check_reopens(tree, told)


def wait_for_state(pid: int, state: str) -> None:
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != state:
        assert time.monotonic() < deadline


def test_a_tool_that_outlives_its_worker_does_not_hold_the_lock(tmp_path: Path) -> None:
    """Every descriptor of a tree is close-on-exec: an exec'ed child keeps none of them."""
    space = tmp_path / "space"
    process = start(space, 1)
    told = told_by(process)
    tree = tree_in(space)
    fd = os.open(tree.lock, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    tool = subprocess.Popen(["/bin/sleep", "300"], close_fds=False)
    try:
        os.close(fd)
        # The kernel lets the parent go on a moment before it closes the child's descriptors.
        deadline = time.monotonic() + 1
        while is_locked(tree):
            assert time.monotonic() < deadline
        for path in Path(f"/proc/{tool.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                assert not str(path.readlink()).startswith(str(space))
    finally:
        tool.kill()
        tool.wait()
    check_kept(space, told)
    assert proc.read_process(tool.pid) is None
