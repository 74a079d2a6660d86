"""A tree's worker at work: opens the tree, serves orders, and ends as its life argument says."""

import asyncio
import os
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from ipc import BUILD
from ipc.disk.log import read_log
from ipc.events import FrozenModelBinding
from ipc.faults import Fault, FaultBody
from ipc.fold import SessionState, apply
from ipc.ids import CallId, RunId
from ipc.lane import LinkGone, PeerStalled
from ipc.link import Spoke
from ipc.methods import METHODS
from ipc.orders import (
    Birth,
    Call,
    Cancel,
    Down,
    Drain,
    Hello,
    Ping,
    Plan,
    Pong,
    Ready,
    RecoveredRun,
    Reply,
    TreeSummary,
    Up,
)
from ipc.plan import decode_plan
from ipc.seams import proc
from ipc.seams.clock import REAL as CLOCK
from workers.actor.commands import COMMANDS
from workers.actor.recovery import Facts, Recovery, recover
from workers.actor.session import SessionActor
from workers.process.outbox import LinkOutbox
from workers.providers import make
from workers.providers.base import Provider
from workers.run.desk import Kit
from workers.run.room import CallRoom
from workers.store.artifacts import Artifacts
from workers.store.file import LogFile
from workers.store.log import LogWriter, WriterThread
from workers.store.publish import publish
from workers.store.summary import skipped_of, summarise, write_summary
from workers.store.tree import OwnedTree
from workers.tools import TOOLS

RUN_END_S: Final = 3.5  # an orphaned worker is gone within 5 s (design: "The life of a worker")
CALLS_MAX: Final = 256  # being answered at once; the supervisor's own limit is 64 a connection
REASON_ORPHANED: Final = "the process that asked for it is gone"


class Unsupported(Fault):
    """A method that this worker does not know, or does not have yet."""

    code = "method_not_found"


class Worker:
    """Everything one tree needs, from its birth to the last line of its log."""

    def __init__(self, birth: Birth, lock_fd: int, life: socket.socket) -> None:
        self._birth = birth
        self._life = life
        self._loop = asyncio.get_running_loop()
        self._tree = OwnedTree(Path(birth.root_dir), lock_fd)
        self._state = SessionState()
        self._end: asyncio.Future[str] = self._loop.create_future()
        self._tasks: asyncio.TaskGroup | None = None
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._resume: RunId | None = None

    async def serve(self) -> str:
        """Live until the life socket or an order ends it; the reason.

        Raises LogBroken when the log can't be written any more, and SessionUnreadable.
        """
        self._loop.add_reader(self._life.fileno(), self._parent_gone)
        recovery = self._read()
        self._thread = WriterThread()
        self._spoke = Spoke(self._birth.link_path, self._hello(), self._on_order)
        self._outbox = LinkOutbox(self._spoke)
        self._actor = SessionActor(self._birth.root_id, self._birth.cwd, self._state, self._outbox)
        self._actor.attach(self._open_log(), self._publish)
        async with asyncio.TaskGroup() as self._tasks:
            service = [
                self._tasks.create_task(self._outbox.pump(), name="outbox"),
                self._tasks.create_task(self._actor.serve(), name="actor"),
            ]
            await self._reconcile(recovery)
            reason = await self._end
            await self._wind_down()
            for task in (*service, *self._calls.values()):
                task.cancel()
        await self._spoke.farewell(reason)
        self._spoke.close()
        return reason

    # --- opening

    def _read(self) -> Recovery:
        """Fold what is on the disk, and decide what became of what it left open."""
        if not self._birth.published:
            return Recovery(events=())
        self._log_read = read_log(self._tree.paths.root.events, self._birth.root_id)
        for event in self._log_read.events():
            apply(self._state, event)
        if self._log_read.skipped_count:
            sys.stderr.write(f"cookie: {self._log_read.skipped_count} lines could not be read\n")
        damaged = self._log_read.tail_damaged
        facts = Facts(cause="the worker of this session died", damaged_tail=damaged)
        return recover(self._state.view(), facts)

    def _open_log(self) -> LogWriter:
        paths = self._tree.paths.root
        if self._birth.published:
            file = LogFile.reopen(self._tree, paths, self._log_read)
        else:
            file = LogFile.create(self._tree, paths)
        return LogWriter(
            self._thread, file, self._birth.root_id, self._state.seq, self._actor.deliver
        )

    def _publish(self) -> None:
        publish(self._tree, Path(self._birth.final_dir))

    async def _reconcile(self, recovery: Recovery) -> None:
        open_run = self._actor.run_id
        if recovery.events:
            await self._actor.recover(recovery.events)
        self._resume = recovery.resume
        done: tuple[RecoveredRun, ...] = ()
        if open_run is not None:
            done = (RecoveredRun(open_run, "resumed" if recovery.resume else "interrupted"),)
        live = () if recovery.resume is None else (recovery.resume,)
        self._send(Ready(self._summary(), live, done))

    def _summary(self) -> TreeSummary | None:
        if self._state.created is None:
            return None
        skipped = self._log_read.skipped_count if self._birth.published else 0
        return TreeSummary(
            self._birth.root_id,
            self._state.title.text,
            self._state.status,
            self._state.seq,
            1 + len(self._state.children),
            skipped,
        )

    def _write_summary(self) -> None:
        skipped = skipped_of(self._log_read) if self._birth.published else ()
        write_summary(self._tree.paths.root, summarise(self._state.view(), skipped))

    def _hello(self) -> Hello:
        return Hello(self._birth.identity, self._birth.nonce, os.getpid(), self._state.seq, BUILD)

    # --- orders

    def _on_order(self, order: Down, bodies: Sequence[bytes]) -> None:
        match order:
            case Plan():
                self._on_plan(bodies[0])
            case Call():
                self._on_call(order, bodies[0] if bodies else b"{}")
            case Cancel(id=call_id):
                if (task := self._calls.get(call_id)) is not None:
                    task.cancel()
            case Ping(n=n):
                self._send(Pong(n))
            case Drain():
                self._finish("drained")
            case _:  # a word of a later issue's making: nobody sends it to a solo worker
                sys.stderr.write(f"cookie: {type(order).__name__} is not understood here\n")

    def _on_plan(self, text: bytes) -> None:
        plan = decode_plan(text)
        mark = proc.tree_mark(self._birth.root_id, self._birth.nonce)
        env = {**plan.env, proc.TREE_VARIABLE: mark}
        artifacts = Artifacts(self._tree)
        providers: dict[bytes, Provider] = {}

        def provider(binding: FrozenModelBinding) -> Provider:
            # One for each binding: an adaptor may keep a connection, or a script it has read.
            key = msgspec.json.encode(binding)
            if key not in providers:
                providers[key] = make(binding, clock=CLOCK)
            return providers[key]

        def room(call_id: CallId) -> CallRoom:
            return CallRoom(
                desk=self._actor,
                call_id=call_id,
                session_id=self._birth.root_id,
                workspace=self._birth.cwd,
                env=env,
                limits=plan.tool_output,
                artifacts=artifacts,
                clock=CLOCK,
            )

        self._actor.kit = Kit(
            plan=plan,
            workspace=self._birth.cwd,
            clock=CLOCK,
            tools=TOOLS,
            provider=provider,
            room=room,
        )
        if self._resume is not None:
            self._resume = None
            self._actor.start_run()

    def _on_call(self, call: Call, params: bytes) -> None:
        assert self._tasks is not None
        task = self._tasks.create_task(self._answer(call, params), name=call.method)
        self._calls[call.id] = task
        task.add_done_callback(lambda _: self._calls.pop(call.id, None))

    async def _answer(self, call: Call, params: bytes) -> None:
        try:
            result = await self._command(call.method, params)
        except msgspec.DecodeError as bad:
            self._refuse(call, FaultBody(code="invalid_params", message=str(bad)))
        except Fault as fault:
            self._refuse(call, fault.body())
        except Exception as bug:  # noqa: BLE001 - one call's bug is that call's answer
            traceback.print_exception(bug, file=sys.stderr)
            self._refuse(call, FaultBody(code="internal", message=type(bug).__name__))
        else:
            self._send(Reply(call.id, ok=True), msgspec.json.encode(result))

    async def _command(self, name: str, params: bytes) -> Any:
        if len(self._calls) > CALLS_MAX:
            raise Unsupported(method=name, reason="too many calls at once")
        function, method = COMMANDS.get(name), METHODS.get(name)
        if function is None or method is None:
            raise Unsupported(method=name)
        asked = msgspec.json.decode(params, type=method.params)
        return await self._actor.ask(lambda: function(self._actor, asked))

    def _refuse(self, call: Call, body: FaultBody) -> None:
        self._send(Reply(call.id, ok=False), msgspec.json.encode(body))

    def _send(self, order: Up, *bodies: bytes) -> None:
        try:
            self._spoke.offer(order, *bodies)
        except (LinkGone, PeerStalled) as gone:
            # Nobody is there to be told; the life socket says what follows from that.
            sys.stderr.write(f"cookie: {type(order).__name__} was not sent: {gone}\n")

    # --- the end

    def _parent_gone(self) -> None:
        self._loop.remove_reader(self._life.fileno())
        self._spoke.gone()
        self._finish(REASON_ORPHANED)

    def _finish(self, reason: str) -> None:
        if not self._end.done():
            self._end.set_result(reason)

    async def _wind_down(self) -> None:
        """Record the end of what runs, write the caches, close the log, leave no process."""
        reason = self._end.result()
        if self._actor.cancel_run(reason):
            try:
                async with asyncio.timeout(RUN_END_S):
                    await self._actor.run_ended.wait()
            except TimeoutError:
                sys.stderr.write("cookie: the run did not end in time\n")
        await self._outbox.flush()
        if self._state.created is not None:
            await self._thread.errand(self._write_summary)
        await self._thread.close()
        await asyncio.to_thread(proc.kill_tree, os.getpid())
