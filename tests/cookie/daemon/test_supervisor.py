"""The supervisor with real workers, real locks and a real link, on both loops."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import uvloop

from cookie.daemon import child, instance, locks
from cookie.daemon.roster import ONE_LIFE, News, RestartPolicy
from cookie.daemon.supervisor import Draining, Supervisor, TreeOrder, WorkerLost
from ipc.disk.paths import WorkspacePaths, workspace_paths
from ipc.faults import RemoteFault
from ipc.ids import ProviderId, Revision, SecretRef, SessionId, new_session_id
from ipc.seams import proc, spawn
from tests.fakes.lockers import ROOT, running, said

DEADLINE_S = 20.0
PLAN = b'{"a":"plan"}'

pytestmark = pytest.mark.house


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


class Started(NamedTuple):
    pid: int
    pidfd: int
    life: socket.socket
    stderr_fd: int


def start(manner: str = "good") -> Started:
    ours, theirs = socket.socketpair()
    stderr_fd = os.memfd_create("tiny", os.MFD_CLOEXEC)
    argv = [sys.executable, "-m", "tests.fakes.tiny_worker", manner]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with theirs:
        pid, pidfd = spawn.spawn_worker(argv, env, theirs.fileno(), stderr_fd)
    return Started(pid, pidfd, ours, stderr_fd)


class House:
    """A data directory, a workspace, an instance directory, and a supervisor among them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.cwd = home / "ws"
        self.cwd.mkdir()
        self.workspace: WorkspacePaths = workspace_paths(home / "data", self.cwd)
        self.instance = home / "i"
        self.instance.mkdir(mode=0o700)
        self.emitted: list[tuple[int, bool, bytes]] = []
        self.news: list[tuple[News, str]] = []
        self.manners: list[str] = []  # of the workers the supervisor starts itself
        self.supervisor: Supervisor

    def order(self, root: SessionId | None = None, **changes: Any) -> TreeOrder:
        order = TreeOrder(
            root=root or new_session_id(),
            fresh=root is None,
            workspace=self.workspace,
            data_dir=str(self.home / "data"),
            cwd=str(self.cwd),
            revision=Revision("sha256:" + "0" * 64),
            plan=PLAN,
        )
        return msgspec.structs.replace(order, **changes)

    @asynccontextmanager
    async def supervised(self, **options: Any) -> AsyncIterator[Supervisor]:
        before = open_fds()
        self.supervisor = Supervisor(
            instance.enter(self.instance),
            "run",
            on_emit=lambda _, seq, durable, body: self.emitted.append((seq, durable, body)),
            on_news=lambda _, news, detail: self.news.append((news, detail)),
            start=lambda: start(self.manners.pop(0)),
            subreaper=False,
            **{"policy": ONE_LIFE, **options},
        )
        try:
            yield self.supervisor
        finally:
            assert await self.supervisor.close()
        assert list(self.instance.iterdir()) == []
        assert open_fds() <= before

    def is_locked(self, root: SessionId) -> bool:
        for tree in (self.workspace.tree(root), self.workspace.staging(root)):
            if tree.directory.exists():
                try:
                    os.close(locks.take(tree))
                except locks.ForeignOwner:
                    return True
        return False


@pytest.fixture
def house() -> Iterator[House]:
    with tempfile.TemporaryDirectory(prefix="ck-", dir="/tmp") as home:
        yield House(Path(home))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = {child.pid for child in proc.descendants(os.getpid())}
    yield
    until = time.monotonic() + DEADLINE_S
    while left := {child.pid for child in proc.descendants(os.getpid())} - before:
        assert time.monotonic() < until, f"processes left: {left}"
        time.sleep(0.01)


def open_fds() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


async def until(true: Callable[[], bool]) -> None:
    """Wait for something a process of its own does, with a deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not true():  # noqa: ASYNC110 - there is nothing to wait on
            await asyncio.sleep(0.005)


async def facts(supervisor: Supervisor, root: SessionId) -> dict[str, Any]:
    return msgspec.json.decode(await supervisor.call(root, "facts", b"{}"))


async def test_a_worker_is_born_with_its_tree_its_lock_and_its_plan(house: House) -> None:
    async with house.supervised() as supervisor:
        order = house.order()

        ready = await supervisor.open(order, start())
        known = await facts(supervisor, order.root)

        staging = house.workspace.staging(order.root)
        assert ready.live_runs == ("r1",)
        assert known["plan"] == PLAN.decode()
        assert known["lock"] == staging.lock.stat().st_ino
        assert known["inheritable"] == [False]
        assert {name: known["birth"][name] for name in ("root_dir", "final_dir", "published")} == {
            "root_dir": str(staging.directory),
            "final_dir": str(house.workspace.tree(order.root).directory),
            "published": False,
        }
        assert known["birth"]["identity"] == f"{order.root}.1"
        assert supervisor.is_up(order.root)
    assert not supervisor.is_up(order.root)
    assert not house.workspace.staging(order.root).directory.exists()


async def test_results_and_faults_come_back_as_they_are(house: House) -> None:
    async with house.supervised() as supervisor:
        order = house.order()
        await supervisor.open(order, start())

        answers = [await supervisor.call(order.root, "echo", b"[%d]" % n) for n in range(50)]
        with pytest.raises(RemoteFault) as fault:
            await supervisor.call(order.root, "fault", b"{}")

    assert answers == [b"[%d]" % n for n in range(50)]
    body = fault.value.body()
    assert (body.code, body.message, body.facts) == (
        "run_not_found",
        "no such run",
        {"run_id": "x"},
    )


async def test_events_come_in_order_and_unread(house: House) -> None:
    async with house.supervised() as supervisor:
        order = house.order()
        await supervisor.open(order, start())
        await supervisor.call(order.root, "emit", b"200")
        await until(lambda: len(house.emitted) == 200)

    assert house.emitted == [(n, True, b"event %d" % n) for n in range(1, 201)]


@pytest.mark.parametrize(
    ("method", "params", "cause"),
    [
        ("abort", b"{}", "killed by SIGKILL"),
        ("exit", b"3", "exit code 3"),
        ("exit", b"0", "exit code 0"),  # without a goodbye it is a crash all the same
    ],
    ids=["killed", "failed", "left"],
)
async def test_a_death_is_told_with_its_cause(
    house: House, method: str, params: bytes, cause: str
) -> None:
    async with house.supervised() as supervisor:
        order = house.order()
        await supervisor.open(order, start())
        with pytest.raises(WorkerLost) as lost:
            await supervisor.call(order.root, method, params)

        assert house.news == [("worker_lost", cause), ("gave_up", cause)]
        assert (lost.value.cause, supervisor.is_up(order.root)) == (cause, False)
        with pytest.raises(WorkerLost, match=cause):
            await supervisor.call(order.root, "echo", b"{}")


async def test_the_last_words_of_a_worker_are_kept(house: House) -> None:
    async with house.supervised() as supervisor:
        order = house.order()
        await supervisor.open(order, start())
        words = b"noise\n" * 9000 + b"\x1b[31mTraceback\n\n  here\nValueError: caf\xe9\n"
        await supervisor.call(order.root, "stderr", words)
        with pytest.raises(WorkerLost) as lost:
            await supervisor.call(order.root, "exit", b"1")

    assert lost.value.cause == "exit code 1: ValueError: caf\ufffd"
    assert lost.value.tail.split("\n")[-3:] == [
        "\ufffd[31mTraceback",
        "  here",
        "ValueError: caf\ufffd",
    ]
    assert len(lost.value.tail) < 4096


async def test_a_worker_that_dies_at_its_birth_fails_the_opening_and_frees_the_lock(
    house: House,
) -> None:
    async with house.supervised() as supervisor:
        order = house.order()
        with pytest.raises(WorkerLost) as lost:
            await supervisor.open(order, start("early"))

        assert lost.value.cause == "exit code 70: ImportError: no module named tools"
        assert not house.is_locked(order.root)


async def test_events_told_before_a_death_are_delivered_before_it(house: House) -> None:
    async with house.supervised() as supervisor:
        order = house.order()
        await supervisor.open(order, start())
        await supervisor.call(order.root, "emit", b"50")
        await supervisor.call(order.root, "bye", b"{}")
        await until(lambda: not supervisor.is_up(order.root))

    assert [seq for seq, _, _ in house.emitted] == list(range(1, 51))
    assert house.news == []  # it said goodbye: no crash


def vault(ref: SecretRef) -> str:
    return f"value of {ref.field}"


SECRETS = tuple(SecretRef(provider_id=ProviderId("p"), field=field) for field in ("auth", "x"))


async def test_secrets_are_granted_before_the_plan_that_names_them_and_to_each_worker(
    house: House,
) -> None:
    house.manners = ["good"]
    async with house.supervised(policy=RestartPolicy(first_pause_s=0.01)) as supervisor:
        order = house.order(secrets=SECRETS, secret=vault)
        assert "value of" not in repr(order)
        await supervisor.open(order, start())
        heard = ["p.auth=value of auth", "p.x=value of x", "plan"]
        assert (await facts(supervisor, order.root))["heard"] == heard

        supervisor.kill(order.root)
        await until(lambda: ("worker_back", "") in house.news)
        assert (await facts(supervisor, order.root))["heard"] == heard


async def test_what_can_not_be_granted_ends_the_worker_with_the_cause(house: House) -> None:
    def empty(ref: SecretRef) -> str:
        raise KeyError(ref.field)

    seen = asyncio.get_running_loop()
    seen.set_exception_handler(lambda _loop, _context: None)
    async with house.supervised() as supervisor:
        with pytest.raises(WorkerLost, match="its supervisor failed: KeyError"):
            await supervisor.open(house.order(secrets=SECRETS, secret=empty), start())


async def test_a_hello_with_a_wrong_nonce_is_not_heard(house: House) -> None:
    asked: list[SecretRef] = []
    told: list[str] = []

    def secret(ref: SecretRef) -> str:
        asked.append(ref)
        return "x"

    async with house.supervised(on_refused=told.append) as supervisor:
        order = house.order(secrets=SECRETS, secret=secret)
        opening = asyncio.ensure_future(supervisor.open(order, start("forged")))
        await until(lambda: supervisor._hub.counters.strangers > 0)

        assert not opening.done()
        assert (asked, told[:1]) == ([], ["a frame of a stranger was refused: wrong nonce"])
        supervisor.kill(order.root)
        with pytest.raises(WorkerLost, match="killed by SIGKILL"):
            await opening


async def test_the_lock_is_held_while_the_worker_lives_and_free_after_the_close(
    house: House,
) -> None:
    async with house.supervised() as supervisor:
        order = house.order()
        await supervisor.open(order, start())
        await supervisor.call(order.root, "publish", b"{}")
        held = house.is_locked(order.root)

    assert (held, house.is_locked(order.root)) == (True, False)
    assert house.workspace.tree(order.root).directory.is_dir()


async def test_a_published_tree_is_opened_again_by_the_next_worker(house: House) -> None:
    async with house.supervised() as supervisor:
        order = house.order()
        await supervisor.open(order, start())
        await supervisor.call(order.root, "publish", b"{}")
    async with house.supervised() as supervisor:
        again = house.order(order.root)
        await supervisor.open(again, start())
        birth = (await facts(supervisor, order.root))["birth"]

    assert (birth["published"], birth["epoch"], birth["root_dir"]) == (
        True,
        2,
        str(house.workspace.tree(order.root).directory),
    )


async def test_a_tree_somebody_else_holds_is_refused_and_the_worker_ended(house: House) -> None:
    async with house.supervised() as first:
        order = house.order()
        await first.open(order, start())
        await first.call(order.root, "publish", b"{}")
        second = Supervisor(
            instance.enter(house.instance), "run", on_emit=lambda *_: None, subreaper=False
        )
        spare = start()
        try:
            with pytest.raises(locks.ForeignOwner):
                await second.open(house.order(order.root), spare)
            assert proc.read_process(spare.pid) is None
            assert first.is_up(order.root)
        finally:
            await second.close()


async def test_a_worker_that_ignores_the_end_is_killed_at_the_deadline(house: House) -> None:
    async with house.supervised() as supervisor:
        order = house.order()
        await supervisor.open(order, start("deaf"))
        pid = supervisor.pid(order.root)
        assert pid is not None

        assert await supervisor.close(deadline_s=0.3)
        assert proc.read_process(pid) is None


async def test_a_blocked_worker_is_ended_by_missed_pings(house: House) -> None:
    async with house.supervised(wedged_after_s=0.3) as supervisor:
        order = house.order()
        await supervisor.open(order, start())
        with pytest.raises(WorkerLost, match="killed by SIGABRT"):
            await supervisor.call(order.root, "block", b"{}")


async def test_a_worker_that_answers_is_never_taken_for_wedged(house: House) -> None:
    async with house.supervised(wedged_after_s=0.15) as supervisor:
        order = house.order()
        await supervisor.open(order, start())
        for _ in range(100):
            await supervisor.call(order.root, "echo", b"{}")
            await asyncio.sleep(0.005)

    assert house.news == []


async def test_a_dead_worker_is_followed_by_another_that_has_the_same_lock(house: House) -> None:
    policy = RestartPolicy(deaths_max=3, first_pause_s=0.01)
    house.manners = ["good", "good"]
    async with house.supervised(policy=policy) as supervisor:
        order = house.order()
        await supervisor.open(order, start())
        await supervisor.call(order.root, "publish", b"{}")
        epochs = []
        for told, events in ((1, b"1"), (3, b"2")):  # as many twice: two deaths at one event
            known = await facts(supervisor, order.root)
            epochs.append(known["birth"]["epoch"])
            await supervisor.call(order.root, "emit", events)
            await until(lambda told=told: len(house.emitted) == told)
            with pytest.raises(WorkerLost):
                await supervisor.call(order.root, "abort", b"{}")
            assert house.is_locked(order.root)
            house.news.clear()
            await until(lambda: ("worker_back", "") in house.news)
        epochs.append((await facts(supervisor, order.root))["birth"]["epoch"])

    assert epochs == [1, 2, 3]


async def test_who_opens_a_tree_between_two_workers_waits_for_the_next_one(house: House) -> None:
    house.manners = ["good"]
    async with house.supervised(policy=RestartPolicy(first_pause_s=0.2)) as supervisor:
        order = house.order()
        await supervisor.open(order, start())
        await supervisor.call(order.root, "publish", b"{}")
        with pytest.raises(WorkerLost):
            await supervisor.call(order.root, "abort", b"{}")
        assert supervisor.pid(order.root) is None

        await supervisor.open(order)
        assert (await facts(supervisor, order.root))["birth"]["epoch"] == 2


async def test_a_tree_that_was_given_up_is_not_opened_by_what_its_last_worker_said(
    house: House,
) -> None:
    async with house.supervised() as supervisor:
        order = house.order()
        await supervisor.open(order, start())
        supervisor.kill(order.root)
        await supervisor.lost(order.root)

        with pytest.raises(WorkerLost, match="killed by SIGKILL"):
            await supervisor.open(order)


async def test_a_dead_worker_can_be_killed_at_any_moment_of_its_burial(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Ctrl-C runs between any two steps; its pidfd is closed by then."""
    release = child.release

    def interrupted(worker: child.Worker) -> None:
        release(worker)
        house.supervisor.kill(order.root)

    monkeypatch.setattr(child, "release", interrupted)
    async with house.supervised() as supervisor:
        order = house.order()
        await supervisor.open(order, start())
        supervisor.kill(order.root)

        assert (await supervisor.lost(order.root)).cause == "killed by SIGKILL"


async def test_a_worker_that_can_not_be_started_is_a_death_with_a_cause(house: House) -> None:
    def refuse() -> Started:
        raise OSError(11, "Resource temporarily unavailable")

    async with house.supervised() as supervisor:
        supervisor._start = refuse
        with pytest.raises(WorkerLost, match="could not be started: Resource temporarily"):
            await supervisor.open(house.order())


async def test_who_waits_for_the_loss_of_a_worker_is_told_its_cause(house: House) -> None:
    async with house.supervised() as supervisor:
        order = house.order()
        await supervisor.open(order, start())
        waiting = asyncio.ensure_future(supervisor.lost(order.root))
        supervisor.kill(order.root)

        lost = await waiting
        assert (lost.cause, lost.code) == ("killed by SIGKILL", "worker_lost")


async def test_the_next_supervisor_sweeps_what_a_killed_one_left(house: House) -> None:
    (house.instance / "1-00000000").mkdir()
    async with house.supervised() as supervisor:
        order = house.order()
        house.workspace.directory.mkdir(parents=True, mode=0o700)
        house.workspace.staging(SessionId("left")).directory.mkdir()
        await supervisor.open(order, start())
        mine = {"cwd", "layout.json", f".staging-{order.root}"}
        await until(lambda: {path.name for path in house.workspace.directory.iterdir()} == mine)
        await until(lambda: len(list(house.instance.iterdir())) == 1)


async def test_a_client_that_went_is_named_to_its_worker(house: House) -> None:
    async with house.supervised() as supervisor:
        order = house.order()
        await supervisor.open(order, start(), conn=7)
        supervisor.client_gone(7)
        supervisor.client_gone(8)
        known = await facts(supervisor, order.root)

    assert known["clients"] == [7]


async def test_a_cancelled_call_is_taken_back_and_harms_nobody(house: House) -> None:
    async with house.supervised() as supervisor:
        order = house.order()
        await supervisor.open(order, start())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await supervisor.call(order.root, "ignore", b"{}")

        assert await supervisor.call(order.root, "echo", b"1") == b"1"
        assert supervisor._asked == {}


async def test_a_closed_supervisor_takes_no_new_tree(house: House) -> None:
    async with house.supervised() as supervisor:
        await supervisor.close()
        with pytest.raises(Draining):
            await supervisor.open(house.order(), start())


async def test_a_bug_in_the_owners_callback_leaves_nobody_waiting(house: House) -> None:
    """Hazard 48: a planted exception ends in an answer, not in silence."""
    told: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context["message"]))
    async with house.supervised() as supervisor:

        def planted(*_: object) -> None:
            raise ValueError("planted")

        supervisor._on_emit = planted
        order = house.order()
        await supervisor.open(order, start())
        asked = asyncio.ensure_future(supervisor.call(order.root, "ignore", b"{}"))
        await supervisor.call(order.root, "emit", b"1")
        with pytest.raises(WorkerLost, match="ValueError: planted"):
            await asked
    loop.set_exception_handler(None)

    assert told == ["the supervisor failed"]


# A supervisor in a process of its own: opens a tree in argv[1], says who its worker is, waits.
SUPERVISE = """
import asyncio, sys
from pathlib import Path
from cookie.daemon import instance, supervisor as module
from cookie.daemon.roster import ONE_LIFE
from cookie.daemon.supervisor import Supervisor, TreeOrder
from ipc.disk.paths import workspace_paths
from ipc.ids import Revision, new_session_id
from tests.cookie.daemon.test_supervisor import start

async def main():
    module.SETTLE_S = 0.0  # a subreaper from the first answer on
    home = Path(sys.argv[1])
    order = TreeOrder(
        root=new_session_id(), fresh=True, workspace=workspace_paths(home / "data", home / "ws"),
        data_dir=str(home / "data"), cwd=str(home / "ws"), revision=Revision("r"), plan=b"{}",
    )
    entered = instance.enter(home / "i")
    supervisor = Supervisor(entered, "run", on_emit=lambda *_: None, policy=ONE_LIFE)
    await supervisor.open(order, start())
    await supervisor.call(order.root, "publish", b"{}")
    print(supervisor.pid(order.root), order.root, flush=True)
    if sys.argv[2] == "wait":
        await asyncio.to_thread(sys.stdin.read)
    tool = await supervisor.call(order.root, "spawn", b"{}")
    try:
        await supervisor.call(order.root, "abort", b"{}")
    finally:
        await supervisor.close()
        print(tool.decode(), flush=True)

asyncio.run(main())
"""


def test_a_killed_supervisor_ends_its_worker_and_the_lock_is_free(house: House) -> None:
    with running(SUPERVISE, house.home, "wait") as supervisor:
        pid, root = said(supervisor).split()
        assert house.is_locked(SessionId(root))
        supervisor.send_signal(signal.SIGKILL)
        supervisor.wait()

    until_s = time.monotonic() + DEADLINE_S
    while proc.read_process(int(pid)) is not None or house.is_locked(SessionId(root)):
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_what_a_killed_workers_tools_left_is_killed_and_reaped(house: House) -> None:
    with running(SUPERVISE, house.home, "crash") as supervisor:
        said(supervisor)
        tool = int(said(supervisor))
        supervisor.wait()

    assert proc.read_process(tool) is None
    with pytest.raises(ProcessLookupError):
        os.kill(tool, 0)  # not even a zombie


def test_the_loop_of_the_uvloop_runs_is_uvloop() -> None:
    async def loop() -> type:
        return type(asyncio.get_running_loop())

    assert uvloop.run(loop()) is uvloop.Loop


def test_the_supervisor_imports_nothing_heavy() -> None:
    heavy = "typer yaml psutil urwid anthropic tempfile shutil ctypes multiprocessing tomllib"
    program = (
        "import sys, cookie.daemon.supervisor, cookie.daemon.instance;"
        f"print(*sorted(set({heavy.split()!r}) & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert out.stdout.strip() == ""
