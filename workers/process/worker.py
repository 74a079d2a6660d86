"""A tree's worker at work: opens the tree, serves orders, and ends as its life argument says."""

import asyncio
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from ipc import BUILD
from ipc.content import MediaBlock
from ipc.disk.log import read_log
from ipc.events import FrozenModelBinding
from ipc.faults import Fault, FaultBody
from ipc.fold import SessionState, apply
from ipc.frames import BadFrame
from ipc.ids import CallId, Digest, RunId, SecretRef
from ipc.lane import LinkGone, PeerStalled
from ipc.link import Spoke
from ipc.orders import (
    Birth,
    Call,
    Cancel,
    ClientGone,
    Down,
    Drain,
    Grant,
    Hello,
    Ping,
    Plan,
    Pong,
    Ready,
    RecoveredRun,
    Reply,
    Status,
    TreeSummary,
    Up,
)
from ipc.plan import Http, decode_plan
from ipc.seams import proc
from ipc.seams.clock import REAL as CLOCK
from workers.actor.commands import COMMANDS
from workers.actor.recovery import Facts, Recovery, recover
from workers.actor.session import SessionActor, SessionClosed
from workers.process.outbox import LinkOutbox
from workers.process.pulse import Pulse
from workers.providers import make
from workers.providers.base import Outside, Provider
from workers.run.desk import Desk, Kit
from workers.run.room import CallRoom
from workers.store.artifacts import ArtifactCorrupt, ArtifactMissing, Artifacts
from workers.store.file import LogFile
from workers.store.log import LogWriter, WriterThread
from workers.store.publish import publish
from workers.store.summary import skipped_of, summarise, write_summary
from workers.store.tree import OwnedTree
from workers.tools import TOOLS
from workers.tools.base import off_loop

RUN_END_S: Final = 2.5  # what runs has this long to end when the worker does
LAST_RESORT_S: Final = 3.5  # an orphan that is still here then leaves without its last steps
ORPHAN_S: Final = 4.5  # the kernel ends it, should even that not work (5 s, processes.md)
SETTLE_S: Final = 0.25  # from Ready to what the kernel is told at the latest
CALLS_MAX: Final = 256  # being answered at once; the supervisor's own limit is 64 a connection
REASON_ORPHANED: Final = "the process that asked for it is gone"
REAP_S: Final = 5.0  # between two looks for orphans while nothing happens
REFUSED_MAX: Final = 8  # refused frames that are told of
CLIENT_END_S: Final = 0.5  # what connections to providers have to be closed
MEDIA_BYTES_MAX: Final = 32 << 20  # of one artifact in a request; no provider takes as much
LEFT: Final = 71  # EX_OSERR of sysexits.h: the exit code of one that was held up
REASON_DRAINED: Final = "drained"
UNKNOWN_DEATH: Final = "the worker of this session died"


class Unsupported(Fault):
    """A method that this worker does not know, or does not have yet."""

    code = "method_not_found"


class TooManyCalls(Fault):
    """More calls are being answered than may be; ask again when some are."""

    code = "too_many_calls"


class CannotOpen(Fault):
    """The tree can't be opened; nothing was changed in it."""

    code = "cannot_open"

    def __init__(self, error: OSError) -> None:
        path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
        super().__init__(reason=error.strerror or str(error), path=path, errno=error.errno or 0)


class EndedLate(Fault):
    """What ran, or the disk, held up the end of the worker; the log may lack its last lines."""

    code = "ended_late"

    def __init__(self, reason: str) -> None:
        super().__init__(reason=reason)
        self.args = (reason,)


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
        self._settled = False
        self._run_end_s = RUN_END_S
        self._late = ""  # what held up the end
        self._refused = 0
        self._secrets: dict[SecretRef, str] = {}  # in memory, and nowhere else
        self._outsides: list[Outside] = []  # one, unless a later plan goes another way out
        self._artifacts = Artifacts(self._tree)
        self._summarised = 0  # the seq that the metadata on disk tells of
        self._running = False

    async def serve(self) -> str:
        """Live until the life socket or an order ends it; the reason.

        Raises LogBroken when the log can't be written any more, CannotOpen, SessionUnreadable, and
        any exception that nobody else is there to take: a worker ends by rule, never in silence.
        """
        self._loop.set_exception_handler(self._on_trouble)
        self._loop.add_reader(self._life.fileno(), self._parent_gone)
        threading.Thread(target=_last_resort, args=(self._life,), daemon=True).start()
        recovery = self._read()
        self._thread = WriterThread()
        self._spoke = Spoke(
            self._birth.link_path, self._hello(), self._on_order, on_refused=self._on_refused
        )
        self._pulse = Pulse(self._state.view(), self._tell_status)
        self._outbox = LinkOutbox(self._spoke, self._applied)
        self._actor = SessionActor(self._birth.root_id, self._birth.cwd, self._state, self._outbox)
        self._actor.attach(self._open_log(), self._publish)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                service = [
                    self._tasks.create_task(self._outbox.pump(), name="outbox"),
                    self._tasks.create_task(self._actor.serve(), name="actor"),
                ]
                await self._reconcile(recovery)
                reason = await self._end
                await self._wind_down(reason)
                for task in (*service, *self._calls.values()):
                    task.cancel()
        except BaseException:
            proc.kill_tree(os.getpid())  # blocks, and there is nothing left that it could hold up
            raise
        if self._late:  # no Bye: this was no end in order, and whoever reads the log should know
            self._spoke.close()
            raise EndedLate(self._late)
        await self._spoke.farewell(reason)
        self._spoke.close()
        return reason

    def _on_trouble(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception in a callback has no task to end (hazard 48)."""
        loop.default_exception_handler(context)
        error = context.get("exception")
        if error is not None and "never retrieved" not in context.get("message", ""):
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._end.done():
            self._end.set_exception(error)

    # --- opening

    def _read(self) -> Recovery:
        """Fold what is on the disk, and decide what became of what it left open."""
        if not self._birth.published:
            return Recovery(events=())
        self._log_read = read_log(self._tree.paths.root.events, self._birth.root_id)
        try:
            for event in self._log_read.events():
                apply(self._state, event)
        except OSError as error:
            raise CannotOpen(error) from error
        if self._log_read.skipped_count:
            sys.stderr.write(f"cookie: {self._log_read.skipped_count} lines could not be read\n")
        return recover(self._state.view(), self._facts())

    def _facts(self) -> Facts:
        """What is known of the last worker: what was seen of its end, or what is left of it."""
        last, damaged = self._birth.last, self._log_read.tail_damaged
        if last is None:
            return Facts(cause=UNKNOWN_DEATH, damaged_tail=damaged)
        return Facts(
            cause=last.cause, exit_status=last.exit_status, died=last.seen, damaged_tail=damaged
        )

    def _open_log(self) -> LogWriter:
        paths = self._tree.paths.root
        try:
            if self._birth.published:
                file = LogFile.reopen(self._tree, paths, self._log_read)
            else:
                file = LogFile.create(self._tree, paths)
        except OSError as error:
            raise CannotOpen(error) from error
        return LogWriter(
            self._thread, file, self._birth.root_id, self._state.seq, self._actor.deliver
        )

    def _publish(self) -> None:
        publish(self._tree, Path(self._birth.final_dir))

    async def _reconcile(self, recovery: Recovery) -> None:
        open_run = self._actor.run_id
        if self._birth.published:
            # The first command of all: what clients ask for meanwhile comes behind it.
            await self._actor.ask(lambda: self._recover(recovery))
        self._resume = recovery.resume
        done: tuple[RecoveredRun, ...] = ()
        if open_run is not None:
            done = (RecoveredRun(open_run, "resumed" if recovery.resume else "interrupted"),)
        live = () if recovery.resume is None else (recovery.resume,)
        self._send(Ready(self._summary(), live, done))
        self._loop.call_later(SETTLE_S, self._settle)
        self._pulse.begin()
        self._go_on()

    async def _recover(self, recovery: Recovery) -> None:
        # The mark finds what an earlier worker's tools left, also when its supervisor died with
        # it and nobody was there to see. No tool of ours is running yet.
        await asyncio.to_thread(proc.kill_tree, mark=f"{self._birth.root_id}:")
        if recovery.events:
            await self._actor.recover(recovery.events)

    def _go_on(self) -> None:
        """Start the run that was open: reconciled and with a plan, whichever came last."""
        if self._resume is not None and self._actor.kit is not None:
            self._resume = None
            self._actor.start_run()

    def _settle(self) -> None:
        """Tell the kernel what this process is: before its first tool, or when there is time.

        It takes two milliseconds (`ipc.seams.proc`), which the first request need not wait for.
        """
        if not self._settled:
            self._settled = True
            proc.set_subreaper()
            proc.set_dumpable(dumpable=False)
            self._reap()

    def _reap(self) -> None:
        """Reap what came to us, also while nothing happens: a zombie holds a number for ever."""
        proc.reap_orphans()
        self._loop.call_later(REAP_S, self._reap)

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

    def _applied(self) -> None:
        """Something was delivered: tell how the tree is now, and keep the caches of its end."""
        self._pulse.touch()
        if self._settled:
            proc.reap_orphans()
        running = self._state.run is not None
        if self._running and not running and self._tasks is not None and not self._end.done():
            self._tasks.create_task(self._summarise(), name="summary")
        self._running = running

    async def _summarise(self) -> None:
        """Write the metadata, unless it is as the state says."""
        if self._state.created is None or self._summarised == self._state.seq:
            return
        skipped = skipped_of(self._log_read) if self._birth.published else ()
        metadata = summarise(self._state.view(), skipped)
        self._summarised = metadata.last_event_seq
        await self._thread.call(lambda: write_summary(self._tree.paths.root, metadata))

    def _hello(self) -> Hello:
        return Hello(self._birth.identity, self._birth.nonce, os.getpid(), self._state.seq, BUILD)

    # --- orders

    def _on_order(self, order: Down, bodies: Sequence[bytes]) -> None:
        match order:
            case Plan():
                self._on_plan(bodies[0])
            case Grant(ref=ref):
                self._settle()  # before it is in our memory, nobody may look into that any more
                self._secrets[ref] = bodies[0].decode()
            case Call():
                self._on_call(order, bodies[0] if bodies else b"{}")
            case Cancel(id=call_id):
                if (task := self._calls.get(call_id)) is not None:
                    task.cancel()
            case Ping(n=n):
                self._send(Pong(n))
            case Drain(deadline_s=deadline_s):
                self._run_end_s = min(RUN_END_S, deadline_s / 2)
                self._finish(REASON_DRAINED)
            case ClientGone():
                pass  # what a client subscribed to is its supervisor's business
            case _:  # a word of a later issue's making: nobody sends it to a solo worker
                sys.stderr.write(f"cookie: {type(order).__name__} is not understood here\n")

    def _on_plan(self, text: bytes) -> None:
        plan = decode_plan(text)
        mark = proc.tree_mark(self._birth.root_id, self._birth.nonce)
        env = {**plan.env, proc.TREE_VARIABLE: mark}
        providers: dict[bytes, Provider] = {}
        outside = self._outside(plan.http, plan.env)
        self._spoke.patience_s = plan.link_patience_ms / 1000

        def provider(binding: FrozenModelBinding) -> Provider:
            # One for each binding: an adaptor may keep a connection, or a script it has read.
            key = msgspec.json.encode(binding)
            if key not in providers:
                providers[key] = make(binding, outside)
            return providers[key]

        def room(desk: Desk, call_id: CallId) -> CallRoom:
            self._settle()
            return CallRoom(
                desk=desk,
                call_id=call_id,
                session_id=self._birth.root_id,
                workspace=self._birth.cwd,
                env=env,
                limits=plan.tool_output,
                artifacts=self._artifacts,
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
        self._go_on()

    def _outside(self, http: Http, environ: Mapping[str, str]) -> Outside:
        """What adaptors may touch; one, and so one pool, as long as the way out is the same."""
        for known in self._outsides:
            if (known.http, known.environ) == (http, environ):
                return known
        made = Outside(
            clock=CLOCK, http=http, environ=environ, secret=self._secrets.get, media=self._media
        )
        self._outsides.append(made)
        return made

    async def _media(self, block: MediaBlock) -> bytes | None:
        """The bytes of an artifact of this tree; None: too many, gone, or not what they were."""
        if block.byte_length > MEDIA_BYTES_MAX:
            return None
        try:
            return await off_loop(lambda: self._whole(block.digest))
        except (ArtifactMissing, ArtifactCorrupt):
            return None

    def _whole(self, digest: Digest) -> bytes | None:
        with self._artifacts.open(digest) as found:
            return None if found.size > MEDIA_BYTES_MAX else b"".join(found.chunks())

    def _on_refused(self, reason: str, _peer: str) -> None:
        self._refused += 1
        if self._refused <= REFUSED_MAX:
            sys.stderr.write(f"cookie: a frame of the supervisor was refused: {reason}\n")

    def _on_call(self, call: Call, params: bytes) -> None:
        assert self._tasks is not None
        if self._end.done():
            self._refuse(call, SessionClosed(session=self._birth.root_id).body())
            return
        task = self._tasks.create_task(self._answer(call, params), name=call.method)
        self._calls[call.id] = task
        task.add_done_callback(lambda _: self._calls.pop(call.id, None))

    async def _answer(self, call: Call, params: bytes) -> None:
        try:
            body = msgspec.json.encode(await self._command(call.method, params))
        except msgspec.DecodeError as bad:
            self._refuse(call, FaultBody(code="invalid_params", message=str(bad)))
        except Fault as fault:
            self._refuse(call, fault.body())
        except Exception as bug:  # noqa: BLE001 - one call's bug is that call's answer
            traceback.print_exception(bug, file=sys.stderr)
            self._refuse(call, FaultBody(code="internal", message=type(bug).__name__))
        else:
            self._send(Reply(call.id, ok=True), body)

    async def _command(self, name: str, params: bytes) -> Any:
        if len(self._calls) > CALLS_MAX:
            raise TooManyCalls(method=name, limit=CALLS_MAX)
        known = COMMANDS.get(name)
        if known is None:
            raise Unsupported(method=name)
        asked = msgspec.json.decode(params, type=known.params)
        return await self._actor.ask(lambda: known.carry_out(self._actor, asked))

    def _refuse(self, call: Call, body: FaultBody) -> None:
        self._send(Reply(call.id, ok=False), msgspec.json.encode(body))

    def _send(self, order: Up, *bodies: bytes) -> None:
        try:
            self._spoke.offer(order, *bodies)
        except LinkGone:
            return  # nobody is there to be told; the life socket says what follows from that
        except (PeerStalled, BadFrame) as trouble:
            sys.stderr.write(f"cookie: {type(order).__name__} was not sent: {trouble}\n")

    def _tell_status(self, status: Status) -> None:
        self._send(status)

    # --- the end

    def _parent_gone(self) -> None:
        self._loop.remove_reader(self._life.fileno())
        self._spoke.gone()
        self._finish(REASON_ORPHANED)

    def _finish(self, reason: str) -> None:
        if not self._end.done():
            self._end.set_result(reason)

    async def _wind_down(self, reason: str) -> None:
        """Record the end of what runs, leave no process, write the caches, close the log."""
        self._pulse.drain()
        try:
            async with asyncio.timeout(self._run_end_s):
                await self._actor.end(reason)
        except TimeoutError:
            self._late = "the run did not end in time"
        proc.kill_tree(os.getpid())
        await self._close_connections()
        self._pulse.stop()
        await self._outbox.flush()
        await self._summarise()
        try:
            await self._thread.close()
        except TimeoutError:
            self._late = "the disk did not take the end of the log in time"

    async def _close_connections(self) -> None:
        """Let go of the providers in order, so far as they let us."""
        used = [outside for outside in self._outsides if outside.client is not None]
        if not used:
            return  # and so nothing that speaks HTTP was ever imported
        from workers.providers import http  # noqa: PLC0415

        try:
            async with asyncio.timeout(CLIENT_END_S):
                for outside in used:
                    await http.close(outside)
        except TimeoutError:
            sys.stderr.write("cookie: connections to a provider did not close in time\n")


def _last_resort(life: socket.socket) -> None:
    """On a thread: end an orphan whose loop is held up, by a tool or by the disk."""
    select.select([life], [], [])
    signal.setitimer(signal.ITIMER_REAL, ORPHAN_S)
    time.sleep(LAST_RESORT_S)
    sys.stderr.write("cookie: the worker did not end in time, and is ended\n")
    sys.stderr.flush()
    proc.kill_tree(os.getpid())
    os._exit(LEFT)
