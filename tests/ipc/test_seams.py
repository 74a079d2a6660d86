"""The disk, clock, process and network seams: what they promise beyond what `os` does."""

import errno
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ipc
from ipc.seams import clock, net, proc
from ipc.seams.fs import REAL
from ipc.seams.spawn import open_pidfd, spawn_worker
from tests.fakes.clock import FakeClock

# --- fs


@pytest.fixture
def _closed_umask() -> Iterator[None]:
    old = os.umask(0o777)
    yield
    os.umask(old)


@pytest.mark.usefixtures("_closed_umask")
def test_files_and_directories_are_private_whatever_the_umask_is(tmp_path: Path) -> None:
    REAL.mkdir(tmp_path / "d")
    fd = REAL.open(tmp_path / "d" / "f", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.close(fd)
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "d" / "f").stat().st_mode & 0o777 == 0o600


def test_a_descriptor_does_not_survive_an_exec(tmp_path: Path) -> None:
    fd = REAL.open(tmp_path / "f", os.O_WRONLY | os.O_CREAT)
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_a_rename_replaces_no_directory_that_has_something_in_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "owner.lock").touch()
    with pytest.raises(OSError, match="not empty"):
        REAL.rename(tmp_path / "a", tmp_path / "b")


def test_a_lock_is_taken_at_once_or_not_at_all(tmp_path: Path) -> None:
    first, second = (REAL.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    REAL.flock(first)
    with pytest.raises(BlockingIOError):
        REAL.flock(second)
    REAL.close(first)
    REAL.flock(second)
    REAL.close(second)


# --- clock


def test_wall_time_is_rfc_3339_in_utc_with_milliseconds() -> None:
    texts = [clock.REAL.now() for _ in range(3)]
    assert texts == sorted(texts)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", texts[0])
    parsed = time.strptime(texts[0][:19], "%Y-%m-%dT%H:%M:%S")
    assert abs(time.mktime(parsed) - time.timezone - time.time()) < 7200


async def test_the_clock_of_tests_is_moved_by_what_is_slept() -> None:
    fake = FakeClock()
    start = fake.monotonic()
    await fake.sleep(1.5)
    assert (fake.monotonic() - start, fake.now()) == (1.5, "2026-01-02T03:04:06.500Z")
    assert fake.naps == [1.5]


# --- net


@pytest.mark.parametrize(
    ("host", "mine"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LocalHost.", True),
        ("a.localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("example.com", False),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
        ("", False),
    ],
)
def test_which_hosts_are_this_machine(host: str, mine: bool) -> None:
    assert net.is_loopback(host) is mine


# --- proc

REPORT = """
import json, os, signal, sys
links = {}
for fd in os.listdir("/proc/self/fd"):
    try:
        links[int(fd)] = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        pass
report = {
    "fds": links,
    "sid": os.getsid(0) == os.getpid(),
    "sigpipe": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "env": dict(os.environ),
}
os.write(3, json.dumps(report).encode())
print("out")
print("err", file=sys.stderr)
sys.exit(7)
"""


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def spawn(code: str, env: dict[str, str] | None = None) -> tuple[int, int, socket.socket, int]:
    ours, theirs = socket.socketpair()
    stderr = os.memfd_create("stderr")
    with theirs:
        argv = [sys.executable, "-c", code]
        pid, pidfd = spawn_worker(argv, env or {}, theirs.fileno(), stderr)
    return pid, pidfd, ours, stderr


def test_a_worker_gets_its_life_end_a_null_stdin_one_stderr_and_nothing_else() -> None:
    before = open_descriptors()
    with Path(os.devnull).open() as left_open_to_us:
        os.set_inheritable(left_open_to_us.fileno(), True)
        pid, pidfd, life, stderr = spawn(REPORT, {"ONLY": "this"})
        report = json.loads(life.recv(1 << 20))
    assert proc.wait_status(pid, block=True) == 7
    fds = {int(fd): link for fd, link in report["fds"].items() if "/proc/" not in link}
    assert set(fds) == {0, 1, 2, 3}
    assert fds[0] == "/dev/null"
    assert fds[1] == fds[2]
    assert fds[3].startswith("socket:")
    assert report["sid"]
    assert report["env"]["ONLY"] == "this"
    assert "PATH" not in report["env"]
    assert sorted(os.pread(stderr, 100, 0).split()) == [b"err", b"out"]
    life.close()
    os.close(stderr)
    os.close(pidfd)
    assert open_descriptors() == before


def test_a_pidfd_becomes_readable_when_the_worker_ends() -> None:
    pid, pidfd, life, stderr = spawn("import os; os.read(3, 1)")
    assert select.select([pidfd], [], [], 0)[0] == []
    assert proc.wait_status(pid) is None
    life.close()
    assert select.select([pidfd], [], [], 20)[0] == [pidfd]
    assert proc.wait_status(pid) == 0
    with pytest.raises(ChildProcessError):
        proc.wait_status(pid)
    os.close(pidfd)
    os.close(stderr)


def test_a_life_end_and_stderr_in_the_way_of_the_childs_own_numbers_are_no_trouble() -> None:
    script = """
import os, socket, sys
from ipc.seams import proc
from ipc.seams.spawn import spawn_worker
os.close(0)
ours, theirs = socket.socketpair()
assert ours.fileno() in (0, 3) or theirs.fileno() in (0, 3)
code = "import os; os.write(3, b'alive'); os.write(2, b'said')"
pid, pidfd = spawn_worker([sys.executable, "-c", code], {}, theirs.fileno(), 1)
theirs.close()
print(ours.recv(10).decode(), proc.wait_status(pid, block=True), flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.replace("said", "") == "alive 0\n"
    assert "said" in done.stdout


def test_a_program_that_is_not_there_is_an_error_of_the_start() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(FileNotFoundError):
        spawn_worker(["/nonexistent/python"], {}, theirs.fileno(), 2)


def test_exits_are_told_in_words() -> None:
    assert proc.describe_exit(0) == "exit code 0"
    assert proc.describe_exit(-9) == "killed by SIGKILL"
    assert proc.describe_exit(-64) == "killed by SIGRTMAX"
    assert proc.describe_exit(-99) == "killed by signal 99"


def tree_of_three(mark: str) -> subprocess.Popen[str]:
    """A shell, a child that left its session, and a grandchild whose parent is gone."""
    script = "setsid sleep 300 & (sleep 300 & echo $!) & wait %2; echo ready; exec sleep 300"
    started = subprocess.Popen(
        ["/bin/sh", "-c", script],
        env={"PATH": os.environ["PATH"], "COOKIE_TREE": mark},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    while started.stdout.readline() != "ready\n":
        pass
    return started


def test_descendants_and_marked_processes_are_found_and_killed() -> None:
    mark = proc.tree_mark("root", os.urandom(8).hex())
    with tree_of_three(mark) as shell:
        below = {process.pid for process in proc.descendants(os.getpid())}
        assert shell.pid in below
        seen = {process.pid for process in proc.marked(mark)}
        assert shell.pid in seen
        assert len(seen) == 3
        assert {p.pid for p in proc.marked("root:")} >= seen
        assert proc.marked("root") == []
        assert proc.kill_tree(mark=mark) == 0
        assert proc.marked(mark) == []
        assert shell.wait(20) == -signal.SIGKILL


def test_kill_tree_spares_those_it_is_told_to_and_itself() -> None:
    mark = proc.tree_mark("spare", os.urandom(8).hex())
    with tree_of_three(mark) as shell:
        proc.kill_tree(mark=mark, spare=frozenset({shell.pid}))
        assert [process.pid for process in proc.marked(mark)] == [shell.pid]
        assert proc.kill_tree(pid=os.getpid(), spare=frozenset({shell.pid})) == 0
        shell.kill()


def test_a_process_is_killed_only_if_it_is_still_the_one_that_was_seen() -> None:
    with subprocess.Popen(["/bin/sleep", "300"]) as sleeper:
        seen = proc.read_process(sleeper.pid)
        assert seen is not None
        assert not proc.kill(seen._replace(start=seen.start + 1))
        assert sleeper.poll() is None
        assert proc.kill(seen)
        assert sleeper.wait(20) == -signal.SIGKILL
        assert not proc.kill(seen)


def test_a_zombie_is_not_alive() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    deadline = time.monotonic() + 20
    while proc.read_process(pid) is not None:
        assert time.monotonic() < deadline
    assert proc.wait_status(pid, block=True) == 0


def test_prctl_is_told_what_the_process_is() -> None:
    script = """
from ipc.seams import proc
import ctypes
libc = ctypes.CDLL(None)
assert proc.set_dumpable(dumpable=False)
assert libc.prctl(3, 0, 0, 0, 0) == 0
assert proc.set_dumpable(dumpable=True)
assert libc.prctl(3, 0, 0, 0, 0) == 1
assert proc.set_subreaper()
value = ctypes.c_int()
libc.prctl(37, ctypes.byref(value), 0, 0, 0)
assert value.value == 1
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("ipc.seams.proc", {"asyncio", "subprocess", "ctypes", "socket", "msgspec"}),
        ("ipc.seams.spawn", {"asyncio", "enum", "pathlib", "re", "signal", "socket", "typing"}),
    ],
)
def test_a_seam_that_a_start_waits_for_is_light_to_import(module: str, heavy: set[str]) -> None:
    script = f"""
import sys
before = set(sys.modules)
import {module}
print(*set(sys.modules) - before)
"""
    # -S: what a site-packages of this machine imports at every start is not the question.
    path = str(Path(ipc.__file__).parent.parent)
    command = [sys.executable, "-S", "-c", script]
    done = subprocess.run(command, env={"PYTHONPATH": path}, check=True, capture_output=True)
    assert not heavy & set(done.stdout.decode().split())


def test_a_pidfd_that_cannot_be_had_is_said_by_minus_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    assert open_pidfd(os.getpid()) == -1


def test_no_descriptor_left_is_an_error_and_leaks_nothing() -> None:
    ours, theirs = socket.socketpair()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = open_descriptors()
    with ours, theirs:
        resource.setrlimit(resource.RLIMIT_NOFILE, (11, hard))
        try:
            with pytest.raises(OSError, match=r".") as refused:
                spawn_worker([sys.executable], {}, theirs.fileno(), 2)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert refused.value.errno in {errno.EMFILE, errno.EINVAL}
        assert open_descriptors() == used


# --- orphans

REAPER = """
import os, subprocess, time
from ipc.seams import proc

proc.set_subreaper()

def dead(pid):
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

mine = subprocess.Popen(["sh", "-c", "exit 3"])
proc.await_child(mine.pid)
dead(mine.pid)
print(proc.reap_orphans(), mine.wait())
proc.reaped(mine.pid)
parent = subprocess.Popen(["sh", "-c", "(setsid sh -c 'exit 4' &) ; exit 5"])
proc.await_child(parent.pid)
print(parent.wait())
proc.reaped(parent.pid)
count = 0
while not count:  # it comes to us when its own parent has gone
    count += proc.reap_orphans()
print(count, proc.reap_orphans())
"""


def test_orphans_are_reaped_and_the_status_of_who_is_awaited_is_left() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REAPER],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(ipc.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.splitlines() == ["0 3", "5", "1 0"]


STRAYS = """
import os, subprocess
from ipc.seams import proc

print(proc.has_strays())  # nobody's orphans come here: who knows
proc.set_subreaper()
mine = subprocess.Popen(["sleep", "60"])
print(proc.has_strays())
proc.await_child(mine.pid)
print(proc.has_strays())
parent = subprocess.Popen(["sh", "-c", "setsid sleep 60 & echo"], stdout=subprocess.PIPE)
proc.await_child(parent.pid)
parent.wait()
proc.reaped(parent.pid)
print(proc.has_strays())
proc.kill_tree(os.getpid())
"""


def test_what_a_dead_child_left_shows_without_a_look_at_all_processes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STRAYS],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(ipc.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.splitlines() == ["True", "True", "False", "True"]
