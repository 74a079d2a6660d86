"""A real worker under a real supervisor: what it serves, what it tells, and how it ends."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from cookie.daemon import instance
from cookie.daemon.roster import ONE_LIFE, RestartPolicy
from cookie.daemon.supervisor import Supervisor, TreeOrder, WorkerLost
from ipc.content import user_text
from ipc.disk.log import read_log
from ipc.disk.metadata import read_metadata
from ipc.disk.paths import WorkspacePaths, workspace_paths
from ipc.events import (
    FrozenModelBinding,
    ModelSelection,
    Payload,
    RunSelection,
    StoredEvent,
    ToolCallTerminated,
    WorkerRecovered,
)
from ipc.faults import RemoteFault
from ipc.ids import (
    ClientId,
    ModelKey,
    ProviderId,
    Revision,
    RunId,
    SecretRef,
    SessionId,
    new_session_id,
)
from ipc.methods.notify import event_of
from ipc.methods.runs import RunCancelParams, RunStartParams, RunStartResult
from ipc.methods.sessions import SessionCreateParams
from ipc.orders import Ready, Status
from ipc.plan import Plan, encode_plan, sealed
from ipc.seams import proc
from ipc.seams.spawn import spawn_worker
from tests.fakes.desk import allowing, story
from tests.fakes.double import Call, Double, anthropic_turn, ok
from tests.fakes.logs import REVISIONS

pytestmark = pytest.mark.house

ROOT = Path(__file__).parents[3]
DEADLINE_S = 25.0
MODEL = ModelKey("test/script")
ONE_TURN = "- - say: hello\n  - usage: {input_tokens: 7, output_tokens: 4}\n"
STALL = "- - say: x\n  - stall: true\n"
WRITE = "- - call: {name: write, args: {filePath: out.txt, content: x}}\n- - say: done\n"
SLEEP = "- - call: {name: bash, args: {command: sleep 300}}\n- - say: done\n"


class Started(NamedTuple):
    pid: int
    pidfd: int
    life: socket.socket
    stderr_fd: int


class Parent:
    """A supervisor, and one tree of it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.cwd = home / "ws"
        self.cwd.mkdir()
        self.workspace: WorkspacePaths = workspace_paths(home / "data", self.cwd)
        self.script = home / "script.yaml"
        self.root = new_session_id()
        self.fp = ""
        self.secrets: tuple[SecretRef, ...] = ()
        self.events: list[StoredEvent] = []
        self.lines: list[bytes] = []
        self.statuses: list[Status] = []
        self.workers: list[Started] = []
        self.happened = asyncio.Event()
        self.supervisor: Supervisor

    def start(self) -> Started:
        ours, theirs = socket.socketpair()
        stderr_fd = os.memfd_create("worker", os.MFD_CLOEXEC)
        argv = [sys.executable, "-P", "-m", "workers", "--solo", "--on-eof=end", "--life-fd=3"]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        if self.fp:
            env["COOKIE_FP"] = self.fp
        with theirs:
            pid, pidfd = spawn_worker(argv, env, theirs.fileno(), stderr_fd)
        self.workers.append(Started(pid, pidfd, ours, stderr_fd))
        return self.workers[-1]

    def order(self, *, fresh: bool, plan: bytes | None = None) -> TreeOrder:
        return TreeOrder(
            root=self.root,
            fresh=fresh,
            workspace=self.workspace,
            data_dir=str(self.home / "data"),
            cwd=str(self.cwd),
            revision=Revision("sha256:" + "0" * 64),
            plan=plan or encode_plan(self.plan()),
            secrets=self.secrets,
            secret=lambda _ref: '{"api_key":"the key"}',
        )

    def plan(self) -> Plan:
        binding = FrozenModelBinding(
            model=MODEL,
            provider_id=ProviderId("test"),
            adaptor="scripted",
            wire_model="script",
            setup={"script": str(self.script)},
        )
        return sealed(
            Plan(
                revisions=REVISIONS,
                agents=(allowing("read", "write", "bash"),),
                models=(binding,),
                env={"PATH": os.environ["PATH"]},
            )
        )

    @property
    def selection(self) -> RunSelection:
        return RunSelection(agent=self.plan().agents[0].agent, model=ModelSelection(model=MODEL))

    @asynccontextmanager
    async def supervised(self, policy: RestartPolicy = ONE_LIFE) -> AsyncIterator[Supervisor]:
        directory = self.home / "i"
        directory.mkdir(mode=0o700, exist_ok=True)
        self.supervisor = Supervisor(
            instance.enter(directory),
            "run",
            on_emit=self.emitted,
            on_status=self.status,
            start=self.start,
            policy=policy,
            subreaper=False,
        )
        try:
            yield self.supervisor
        finally:
            assert await self.supervisor.close()

    def emitted(self, _session: SessionId, _seq: int, _durable: bool, body: bytes) -> None:
        self.lines.append(event_of(body))
        self.events.append(msgspec.json.decode(self.lines[-1], type=StoredEvent))
        self.happened.set()

    def status(self, _root: SessionId, status: Status) -> None:
        self.statuses.append(status)
        self.happened.set()

    async def until(self, seen: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not seen():
                self.happened.clear()
                await self.happened.wait()

    async def open(self, *, fresh: bool = True, plan: bytes | None = None) -> Ready:
        async with asyncio.timeout(DEADLINE_S):
            return await self.supervisor.open(self.order(fresh=fresh, plan=plan))

    async def ask(self, method: str, params: Any) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            return await self.supervisor.call(self.root, method, msgspec.json.encode(params))

    async def run(self, words: str = "hi", client_id: str = "c") -> RunId:
        if not self.events:
            await self.ask("session.create", SessionCreateParams(selection=self.selection))
        params = RunStartParams(
            session_id=self.root,
            client_run_id=ClientId(client_id),
            selection=self.selection,
            input=user_text(words),
        )
        return msgspec.json.decode(await self.ask("run.start", params), type=RunStartResult).run_id

    @property
    def payloads(self) -> list[Payload]:
        return [event.payload for event in self.events]

    @property
    def story(self) -> list[str]:
        return story(self.payloads)

    def on_disk(self) -> list[bytes]:
        events = self.workspace.tree(self.root).root.events
        return [line for _, line in read_log(events, self.root)]

    async def lost(self) -> WorkerLost:
        async with asyncio.timeout(DEADLINE_S):
            return await self.supervisor.lost(self.root)

    async def run_and_lose(self) -> WorkerLost:
        """Start a run in a worker that does not survive it."""
        with contextlib.suppress(WorkerLost, RemoteFault):
            await self.run()
        return await self.lost()


@pytest.fixture
def parent() -> Iterator[Parent]:
    before = {child.pid for child in proc.descendants(os.getpid())}
    with tempfile.TemporaryDirectory(prefix="ck-", dir="/tmp") as home:
        here = Parent(Path(home))
        here.script.write_text(ONE_TURN)
        yield here
    until = time.monotonic() + DEADLINE_S
    while left := {child.pid for child in proc.descendants(os.getpid())} - before:
        assert time.monotonic() < until, f"processes left: {left}"


async def test_what_a_worker_tells_is_what_it_wrote(parent: Parent) -> None:
    async with parent.supervised():
        await parent.open()
        run = await parent.run()
        await parent.until(lambda: parent.story[-1:] == ["run completed: hello"])
        # The supervisor knows the run from its start to its end, and what it came to.
        await parent.until(lambda: parent.statuses and parent.statuses[-1].state == "idle")
        assert [(one.state, one.runs, one.tokens) for one in parent.statuses] == [
            ("running", (run,), 0),
            ("idle", (), 11),
        ]
        assert 10 << 20 < parent.statuses[-1].pss_bytes < 200 << 20
        # The metadata is written at the end of the run, not at that of the worker.
        meta = None
        paths = parent.workspace.tree(parent.root).root
        async with asyncio.timeout(DEADLINE_S):
            while meta is None or meta.last_event_seq != parent.events[-1].seq:
                await asyncio.sleep(0.01)
                meta = (
                    read_metadata(paths.metadata, parent.root) if paths.metadata.exists() else None
                )
        assert meta.status == "completed"
    assert parent.on_disk() == parent.lines
    assert parent.statuses[-1].state == "draining"


async def test_bad_calls_are_answered_and_harm_nothing(parent: Parent) -> None:
    async with parent.supervised() as supervisor:
        await parent.open()
        for method, params, code in [
            ("no.such", b"{}", "method_not_found"),
            ("session.list", b"{}", "method_not_found"),
            ("run.start", b"{", "invalid_params"),
            ("run.start", b"{}", "invalid_params"),
            ("run.steer", b'{"run_id":"r","input":{"content":[]}}', "run_not_found"),
        ]:
            with pytest.raises(RemoteFault) as refused:
                await supervisor.call(parent.root, method, params)
            assert refused.value.body().code == code
        await parent.run()
        await parent.until(lambda: parent.story[-1:] == ["run completed: hello"])


async def test_a_drain_ends_the_run_in_the_log_before_the_worker_ends(parent: Parent) -> None:
    parent.script.write_text(SLEEP)
    async with parent.supervised():
        await parent.open()
        await parent.run()
        await parent.until(lambda: "call_1_1 executing" in parent.story)
    assert parent.story[-1] == "run cancelled: drained"
    assert parent.on_disk() == parent.lines


async def test_an_orphan_ends_its_run_and_itself(parent: Parent) -> None:
    parent.script.write_text(SLEEP)
    async with parent.supervised():
        await parent.open()
        await parent.run()
        await parent.until(lambda: "call_1_1 executing" in parent.story)
        parent.workers[0].life.shutdown(socket.SHUT_RDWR)  # as if we had died
        await parent.lost()
    last = msgspec.json.decode(parent.on_disk()[-1], type=StoredEvent)
    assert story([last.payload]) == ["run cancelled: the process that asked for it is gone"]


async def test_an_orphan_whose_loop_is_held_up_is_gone_in_five_seconds(parent: Parent) -> None:
    parent.script.write_text(WRITE)
    parent.fp = "append.tool_call_terminated.before:1:sleep=60"  # on the loop
    async with parent.supervised():
        await parent.open()
        await parent.run()
        await parent.until(lambda: "call_1_1 executing" in parent.story)
        begun = time.monotonic()
        parent.workers[0].life.shutdown(socket.SHUT_RDWR)
        lost = await parent.lost()
        assert time.monotonic() - begun < 5
        assert "did not end in time" in lost.tail


async def test_a_worker_asks_with_what_it_was_granted_over_one_connection(parent: Parent) -> None:
    turns = [anthropic_turn("I look", (Call("c1", "bash", {"command": "true"}),))]
    turns.append(anthropic_turn("done"))
    with Double(*(ok(turn) for turn in turns)) as model:
        key = SecretRef(provider_id=ProviderId("test"), field="auth")
        binding = msgspec.structs.replace(
            parent.plan().models[0],
            adaptor="anthropic",
            endpoint=f"{model.url}/v1",
            setup={},
            auth="anthropic-api-key-v1",
            auth_ref=key,
        )
        plan = encode_plan(sealed(msgspec.structs.replace(parent.plan(), models=(binding,))))
        parent.secrets = (key,)
        async with parent.supervised():
            await parent.open(plan=plan)
            await parent.run()
            await parent.until(lambda: parent.story[-1:] == ["run completed: done"])
            assert (model.connections, model.open) == (1, 1)
        assert model.wait(lambda: model.open == 0)
        assert [seen.headers["x-api-key"] for seen in model.seen] == ["the key", "the key"]
    assert b"the key" not in b"".join(parent.on_disk())


async def test_a_run_that_could_not_end_in_time_is_no_end_in_order(parent: Parent) -> None:
    parent.script.write_text(SLEEP)
    parent.fp = "append.run_cancelled.before:1:sleep=2.6"  # more than RUN_END_S, on the loop
    async with parent.supervised():
        await parent.open()
        await parent.run()
        await parent.until(lambda: "call_1_1 executing" in parent.story)
        parent.workers[0].life.shutdown(socket.SHUT_RDWR)
        lost = await parent.lost()
    assert lost.cause == "exit code 70: cookie: the run did not end in time"


def zombies(pid: int) -> int:
    """Dead children of a process that nobody has reaped."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, ppid, *_ = path.read_text().rpartition(")")[2].split()
            found += (state, ppid) == ("Z", str(pid))
    return found


async def test_what_tools_leave_dead_is_reaped_and_no_status_is_stolen(parent: Parent) -> None:
    orphans = "for i in 1 2 3 4 5 6 7 8; do (setsid true &); done"
    parent.script.write_text(
        f"- - call: {{name: bash, args: {{command: '{orphans}; sleep 0.2; exit 3'}}}}\n"
        f"- - call: {{name: bash, args: {{command: '{orphans}; exit 4'}}}}\n"
        "- - say: done\n"
    )
    async with parent.supervised():
        await parent.open()
        await parent.run()
        await parent.until(lambda: parent.story[-1:] == ["run completed: done"])
        ended = [one for one in parent.payloads if isinstance(one, ToolCallTerminated)]
        assert [one.result and one.result.metadata["status"] for one in ended] == [3, 4]
        assert zombies(parent.workers[0].pid) <= 8  # those of the second call may die this late
        async with asyncio.timeout(DEADLINE_S):
            while zombies(parent.workers[0].pid):  # noqa: ASYNC110 - another process's doing
                await asyncio.sleep(0.01)


async def test_a_plan_that_cannot_be_read_ends_the_worker_with_its_cause(parent: Parent) -> None:
    async with parent.supervised():
        with contextlib.suppress(WorkerLost):
            await parent.open(plan=b'{"not": "a plan"}')
        assert "bad_plan" in (await parent.lost()).cause


@pytest.mark.parametrize(
    ("fp", "said"),
    [
        ("log.sync:3:eio", "log_poisoned"),
        ("log.write:3+:enospc", "append_failed"),
        ("fs.stat:9:raise", "log_poisoned"),
    ],
)
async def test_a_worker_whose_log_breaks_ends_with_the_cause_and_told_nothing_else(
    parent: Parent, fp: str, said: str
) -> None:
    parent.fp = fp
    async with parent.supervised():
        await parent.open()
        lost = await parent.run_and_lose()
        assert "exit code 70" in lost.cause
        assert said in lost.cause
    on_disk = parent.on_disk()
    assert on_disk[: len(parent.lines)] == parent.lines
    # The next one goes on with what is there.
    parent.fp = ""
    parent.script.write_text(ONE_TURN * 3)
    async with parent.supervised():
        await parent.open(fresh=False)
        await parent.until(lambda: parent.story[-1].startswith("run "))
    assert parent.on_disk()[: len(on_disk)] == on_disk


async def test_a_bug_in_an_order_ends_the_worker_and_is_told(parent: Parent) -> None:
    """What a callback raises has no task to end (hazard 48): the worker ends by rule."""
    parent.fp = "append.run_started.after:1:raise"  # inside of the delivery
    async with parent.supervised():
        await parent.open()
        lost = await parent.run_and_lose()
        assert "exit code 70" in lost.cause


async def test_a_run_that_can_go_on_does_so_in_the_next_worker_under_its_id(
    parent: Parent,
) -> None:
    parent.script.write_text(WRITE)
    parent.fp = "append.tool_call_terminated.after:1:kill"
    async with parent.supervised():
        await parent.open()
        await parent.run()
        lost = await parent.lost()
        assert "SIGKILL" in lost.cause
    told, run = list(parent.lines), parent.events[-1].run_id
    before = parent.on_disk()
    assert before[: len(told)] == told
    parent.fp = ""
    async with parent.supervised():
        ready = await parent.open(fresh=False)
        assert ready.live_runs == (run,)
        await parent.until(lambda: parent.story[-1] == "run completed: done")
        assert parent.events[-1].run_id == run
        await parent.ask("run.cancel", RunCancelParams(run_id=run or RunId("")))
    assert parent.on_disk()[: len(before)] == before


async def test_calls_that_come_before_the_recovery_is_done_wait_for_it(parent: Parent) -> None:
    """The recovery's append is held up; a start that comes meanwhile finds the run that it left."""
    parent.script.write_text(STALL)
    parent.fp = "append.text_delta.after:1:kill"
    async with parent.supervised():
        await parent.open()
        await parent.run()
        await parent.lost()
    parent.fp = "append.worker_recovered.before:1:sleep=0.3"
    parent.script.write_text(ONE_TURN * 2)
    async with parent.supervised():
        opening = asyncio.create_task(parent.open(fresh=False))
        await asyncio.sleep(0)
        started = asyncio.create_task(parent.run("again", "c2"))
        await opening
        await started
        await parent.until(lambda: parent.story[-1] == "run completed: hello")
    kinds = [msgspec.json.decode(line)["payload"]["type"] for line in parent.on_disk()]
    assert kinds.index("run_interrupted") < kinds.index(
        "run_started", kinds.index("run_started") + 1
    )


async def test_a_worker_that_was_told_to_stop_by_a_signal_dies_like_any_other(
    parent: Parent,
) -> None:
    parent.script.write_text(STALL)
    async with parent.supervised():
        await parent.open()
        await parent.run()
        await parent.until(lambda: "text: x" in parent.story)
        os.kill(parent.workers[0].pid, signal.SIGTERM)
        lost = await parent.lost()
        assert "SIGTERM" in lost.cause


async def test_the_next_worker_records_how_the_last_one_ended(parent: Parent) -> None:
    """Seen by its supervisor: cause and status. Otherwise: what is left of it."""
    parent.script.write_text(STALL)
    async with parent.supervised(policy=RestartPolicy(first_pause_s=0.01)) as supervisor:
        await parent.open()
        await parent.run()
        await parent.until(lambda: "text: x" in parent.story)
        supervisor.kill(parent.root)
        await parent.until(lambda: any(line.startswith("run interr") for line in parent.story))
        seen = next(one for one in parent.payloads if isinstance(one, WorkerRecovered))
        assert (seen.exit_status, "SIGKILL" in seen.cause) == (-signal.SIGKILL, True)
        # Idle, too: a death that was seen is told.
        supervisor.kill(parent.root)
        await parent.until(
            lambda: sum(isinstance(one, WorkerRecovered) for one in parent.payloads) == 2
        )
        await parent.run("again", "c2")
        await parent.until(lambda: parent.story[-1] == "text: x")
        parent.workers[-1].life.close()  # it ends its run; then nobody saw it go
    parent.statuses.clear()
    count = len(parent.payloads)
    async with parent.supervised():
        await parent.open(fresh=False)
    assert not any(isinstance(one, WorkerRecovered) for one in parent.payloads[count:])


async def test_a_worker_nobody_saw_die_left_the_pid_of_its_supervisor(parent: Parent) -> None:
    parent.script.write_text(STALL)
    parent.fp = "append.text_delta.after:1:kill"
    async with parent.supervised():
        await parent.open()
        await parent.run_and_lose()
    parent.fp = ""
    async with parent.supervised():
        await parent.open(fresh=False)
        await parent.until(lambda: parent.story[-1].startswith("run interr"))
    recovered = next(one for one in parent.payloads if isinstance(one, WorkerRecovered))
    assert recovered.exit_status is None
    assert str(os.getpid()) in recovered.cause
