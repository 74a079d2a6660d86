"""One headless run: this process supervises the one worker, and shows what it says."""

import asyncio
import os
import shlex
import signal
from types import FrameType
from typing import Any, Final

import msgspec
from msgspec import Struct

from cookie.cli import exits, verdict
from cookie.cli.advice import explain
from cookie.cli.early import Started, abandon, start_worker
from cookie.cli.live import Live
from cookie.cli.output import Output, OutputBroken
from cookie.cli.record import Recorder
from cookie.cli.setup import Setup, prepare
from cookie.daemon.roster import ONE_LIFE
from cookie.daemon.supervisor import Supervisor, WorkerLost
from ipc.content import user_text
from ipc.faults import Fault
from ipc.ids import RunId, SessionId, new_client_id
from ipc.methods import (
    RunCancelParams,
    RunStartParams,
    RunStartResult,
    RunSteerParams,
    SessionCreateParams,
    event_of,
)
from ipc.rules import PermissionMode

CANCEL_PATIENCE_S: Final = 10.0  # from a cancel to its terminal event; then the worker is killed
CLOSE_S: Final = 5.0
INTERRUPTS_TO_KILL: Final = 2
INTERRUPTS_TO_LEAVE: Final = 3
REASON_USER: Final = "user"
REASON_TIMEOUT: Final = "timeout"
REASON_OUTPUT: Final = "output_broken"


class Order(Struct, frozen=True, kw_only=True):
    """What the command line asked for."""

    prompt: str | None
    model: str | None
    agent: str | None
    permission_mode: PermissionMode
    allowed_tools: tuple[str, ...]
    resume: str | None
    newest: bool
    data_dir: str | None
    max_turns: int
    timeout_s: int
    output: str
    output_file: str | None
    verbose: bool
    stream: bool


class NothingToResume(Fault):
    """--resume-session without a prompt, and the session has no open run that could go on."""

    code = "nothing_to_resume"

    def __init__(self, session: SessionId) -> None:
        super().__init__(session=session)
        self.args = (f"session {session} has no open run to go on with: give a prompt",)


def main(order: Order, early: Started | None) -> int:
    """Run it; the exit code of spec 1.1. What goes wrong is said in one line on stderr."""
    worker = None
    try:
        worker = early or start_worker()
        output = Output(order.output_file)
        setup = prepare(
            data_dir=order.data_dir,
            resume=order.resume,
            newest=order.newest,
            model=order.model,
            agent=order.agent,
            permission_mode=order.permission_mode,
            allowed_tools=order.allowed_tools,
            max_turns=order.max_turns,
        )
    except (Fault, OSError) as trouble:
        say(explain(trouble))
        if worker is not None:
            abandon(worker)
        usage = isinstance(trouble, Fault) and trouble.code in verdict.USAGE_CODES
        return exits.USAGE_ERROR if usage else exits.SETUP
    return asyncio.run(_carry_out(order, setup, output, worker))


async def _carry_out(order: Order, setup: Setup, output: Output, worker: Started) -> int:
    return await _Headless(order, setup, output).run(worker)


def say(line: str) -> None:
    """One line for the person; stderr may be closed, and then there is nobody to tell."""
    try:
        os.write(2, f"cookie: {line}\n".encode(errors="replace"))
    except OSError:
        return


class _Headless:
    """The run of one command: what is waited for, and what ends it."""

    def __init__(self, order: Order, setup: Setup, output: Output) -> None:
        self._order = order
        self._setup = setup
        self._root = setup.tree.root
        self._output = output
        self._recorder = Recorder(output, order.output, stream=order.stream, verbose=order.verbose)
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._live = Live(self._recorder.state, verbose=order.verbose)
        self._supervisor = Supervisor(
            setup.incarnation, "run", on_emit=self._on_emit, policy=ONE_LIFE
        )
        self._run_id: RunId | None = None
        self._interrupts = 0
        self._reason: str | None = None  # why the run is to be cancelled
        self._flushing = False
        self._broken: OutputBroken | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, worker: Started) -> int:
        """From the birth of the worker to the exit code; the worker is gone when this returns."""
        # Not the loop's own handlers: this one is also called while a slow reader blocks a write.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        timer = self._loop.call_later(self._order.timeout_s, self._cancel, REASON_TIMEOUT)
        try:
            code = await self._carry(worker)
        finally:
            timer.cancel()
            self._live.close()
            await self._supervisor.close(CLOSE_S)
        return code

    async def _carry(self, worker: Started) -> int:
        try:
            ready = await self._supervisor.open(self._setup.tree, worker)
            await self._begin(ready.live_runs)
            await self._until_over()
            return self._finish()
        except WorkerLost as lost:
            return self._lost(lost)
        except (Fault, OSError) as trouble:
            self._live.close()
            say(explain(trouble))
            return exits.SETUP

    async def _begin(self, live: tuple[RunId, ...]) -> None:
        """Go on with the run the worker resumed, or start one."""
        prompt = self._order.prompt
        if live:
            self._run_id = live[0]
            self._recorder.watch(run_id=live[0])
            if prompt is not None:
                await self._ask(
                    "run.steer", RunSteerParams(run_id=live[0], input=user_text(prompt))
                )
            return
        if prompt is None:
            raise NothingToResume(self._root)
        if self._setup.tree.fresh:
            await self._ask("session.create", SessionCreateParams(selection=self._setup.selection))
        client_id = new_client_id()
        self._recorder.watch(client_id=client_id)
        params = RunStartParams(
            session_id=self._root,
            client_run_id=client_id,
            selection=self._setup.selection,
            input=user_text(prompt),
        )
        started = await self._ask("run.start", params)
        self._run_id = msgspec.json.decode(started, type=RunStartResult).run_id
        if self._reason is not None:
            self._send_cancel()

    async def _ask(self, method: str, params: Struct) -> bytes:
        return await self._supervisor.call(self._root, method, msgspec.json.encode(params))

    async def _until_over(self) -> None:
        """Wait for the terminal event; a worker that dies first is raised as WorkerLost."""
        lost = self._loop.create_task(self._supervisor.lost(self._root))
        try:
            waited: set[asyncio.Future[Any]] = {lost, self._over}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not self._over.done():
                raise lost.result()
        finally:
            lost.cancel()

    # --- what the worker says

    def _on_emit(self, session: SessionId, _seq: int, _durable: bool, body: bytes) -> None:
        if session != self._root or self._over.done():
            return
        event = self._recorder.take(event_of(body))
        self._live.follow(event.payload)
        if self._output.waiting and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        if self._recorder.ended is not None:
            self._over.set_result(None)

    def _flush(self) -> None:
        self._flushing = False
        if self._broken is not None:
            self._output.drop()
            return
        if self._order.stream:
            self._live.print_above()
        try:
            self._output.flush()
        except OutputBroken as broken:
            self._broken = broken
            self._cancel(REASON_OUTPUT)

    # --- what ends it

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._interrupts >= INTERRUPTS_TO_LEAVE:
            os._exit(128 + number)
        if self._interrupts >= INTERRUPTS_TO_KILL:
            self._supervisor.kill(self._root)
        else:
            self._loop.call_soon_threadsafe(self._cancel, REASON_USER)

    def _cancel(self, reason: str) -> None:
        """Ask for the end of the run, once; the terminal event is waited for, but not for ever."""
        if self._reason is None:
            self._reason = reason
            self._loop.call_later(CANCEL_PATIENCE_S, self._supervisor.kill, self._root)
            if self._run_id is not None:
                self._send_cancel()

    def _send_cancel(self) -> None:
        assert self._run_id is not None
        params = RunCancelParams(run_id=self._run_id, reason=self._reason)
        task = self._loop.create_task(self._ask_cancel(params))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask_cancel(self, params: RunCancelParams) -> None:
        try:
            await self._ask("run.cancel", params)
        except WorkerLost:
            return  # told by who waits for the end
        except Fault as fault:
            say(explain(fault))

    # --- what is left to say

    def _finish(self) -> int:
        recorder = self._recorder
        self._live.close()
        ended = recorder.ended
        assert ended is not None, "the run is over without an end"
        try:
            if self._broken is None:
                recorder.finish(self._root)
                self._output.close()
        except OutputBroken as broken:
            self._broken = broken
        if self._broken is not None:
            say(f"{self._broken}; the session is kept: {self._resume_line()}")
            return exits.SETUP
        code = verdict.exit_code(ended)
        if code == exits.PERMISSION:
            say(verdict.permission_advice(recorder.state))
        elif (trouble := verdict.trouble(ended)) is not None:
            say(trouble)
        return code

    def _lost(self, lost: WorkerLost) -> int:
        self._live.close()
        say(f"the worker of this run is gone: {lost.cause}")
        if self._setup.tree.workspace.tree(self._root).directory.exists():
            say(f"what it did is kept; go on with: {self._resume_line()}")
        else:
            say("it had not begun; run the command again")
        try:
            if self._broken is None:
                self._recorder.lost(self._root, lost.cause)
                self._output.close()
        except OutputBroken as broken:
            say(str(broken))
        return exits.FAILED

    def _resume_line(self) -> str:
        words = ["cookie", "run", "--resume-session", self._root]
        if self._order.data_dir is not None:
            words += ["--data-dir", self._order.data_dir]
        return shlex.join(words)
