"""One headless run: this process supervises the one worker, and shows what it says."""

import asyncio
import gc
import os
import shlex
import signal
from types import FrameType
from typing import Any, Final

import msgspec
from msgspec import Struct

from cookie.cli import exits, verdict
from cookie.cli.advice import STDERR, explain, readable, say
from cookie.cli.early import Spare, Started, abandon
from cookie.cli.live import Live
from cookie.cli.output import Output, OutputBroken
from cookie.cli.record import Recorder
from cookie.cli.setup import Setup, prepare
from cookie.cli.verdict import Status, Verdict
from cookie.daemon.roster import ONE_LIFE
from cookie.daemon.supervisor import Supervisor, WorkerLost
from ipc.content import user_text
from ipc.faults import Fault, RemoteFault
from ipc.ids import RunId, SessionId, new_client_id
from ipc.methods.notify import event_of
from ipc.methods.runs import RunCancelParams, RunStartParams, RunStartResult, RunSteerParams
from ipc.methods.sessions import SessionCreateParams
from ipc.orders import Ready
from ipc.rules import MODES, PermissionMode

CANCEL_PATIENCE_S: Final = 10.0  # from a cancel to its terminal event; then the worker is killed
CLOSE_S: Final = 5.0
DESCRIPTORS_MIN: Final = 32  # of ours; a worker begins with fewer open than we
INTERRUPTS_TO_KILL: Final = 2
INTERRUPTS_TO_LEAVE: Final = 3
REASON_USER: Final = "user"
REASON_TIMEOUT: Final = "timeout"
REASON_OUTPUT: Final = "output_broken"


class Order(Struct, frozen=True, kw_only=True):
    """What the command line asked for."""

    prompt: str | None
    model: str | None
    variant: str | None
    agent: str | None
    preset: str | None
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


class CutOff(Fault):
    """--resume-session without a prompt, and the open run was past where it can go on from."""

    code = "run_interrupted"

    def __init__(self, run: RunId) -> None:
        super().__init__(run=run)
        self.args = (
            "interrupted: the open run was in the middle of something when it was cut off",
        )


class NotBegun(Fault):
    """The run was cancelled before it was one."""

    code = "not_begun"

    def __init__(self, reason: str) -> None:
        super().__init__(reason=reason)
        self.args = (f"{verdict.cancelled(reason)}, before the run began",)


def main(order: Order, spare: Spare) -> int:
    """Run it; the exit code of spec 1.1. What goes wrong is said in one line on stderr.

    Until a worker has the session nothing is written: an output file keeps what it held, and JSON
    has no record. From then on the summary is the last record, however it ends.
    """
    # Turned off in `app`: what the imports made stays, so no collection need look at it.
    gc.freeze()
    gc.enable()
    output = worker = None
    try:
        output = Output(order.output_file, silent=order.output == "none")
        worker = spare.take()
        _check_descriptors()
        setup = prepare(
            data_dir=order.data_dir,
            resume=order.resume,
            newest=order.newest,
            model=order.model,
            variant=order.variant,
            agent=order.agent,
            preset=order.preset,
            permission_mode=order.permission_mode,
            allowed_tools=order.allowed_tools,
            max_turns=order.max_turns,
        )
    except (Fault, OSError) as trouble:
        return _no_set_up(trouble, output, worker)
    return asyncio.run(_carry_out(order, setup, output, worker))


def _check_descriptors() -> None:
    """Raise OSError when they run out: ZeroMQ would not tell us but abort the process."""
    taken: list[int] = []
    try:
        taken.extend(os.dup(STDERR) for _ in range(DESCRIPTORS_MIN))
    finally:
        for fd in taken:
            os.close(fd)


async def _carry_out(order: Order, setup: Setup, output: Output, worker: Started) -> int:
    try:
        run = _Headless(order, setup, output)
    except (Fault, OSError) as trouble:  # no room for a socket, no descriptor left
        setup.incarnation.close()
        return _no_set_up(trouble, output, worker)
    if order.permission_mode == "auto_approve_y":
        say("auto-approve-y: nothing judges the calls yet; what must be asked for is allowed")
    return await run.run(worker)


def _no_set_up(trouble: Fault | OSError, output: Output | None, worker: Started | None) -> int:
    """Say it and leave everything as it was found."""
    say(explain(trouble))
    if worker is not None:
        abandon(worker)
    if output is not None:
        output.undo()
    usage = isinstance(trouble, Fault) and trouble.body().code in verdict.USAGE_CODES
    return exits.USAGE_ERROR if usage else exits.SETUP


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
        self._supervisor = Supervisor(
            setup.incarnation,
            "run",
            on_emit=self._on_emit,
            on_refused=self._on_refused,
            policy=ONE_LIFE,
            wedged_after_s=setup.wedged_after_s,
        )
        self._live = Live(
            self._recorder.state,
            verbose=order.verbose,
            retry=setup.model_retry,
            hold=self._holds,
            make_room=self._end_line,
        )
        self._run_id: RunId | None = None
        self._shows = False  # a worker has the session: what it says is the output
        self._interrupts = 0
        self._reason: str | None = None  # why the run is to be cancelled
        self._flushing = False
        self._broken: OutputBroken | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, worker: Started) -> int:
        """From the birth of the worker to the exit code; the worker is gone when this returns."""
        self._take_signals()
        deadline = self._loop.time() + self._order.timeout_s
        # Asked while a write waits, and so while the loop does: no timer is due, no cancel sent.
        self._output.hurry = lambda: self._interrupts > 0 or self._loop.time() > deadline
        timer = self._loop.call_later(self._order.timeout_s, self._cancel, REASON_TIMEOUT)
        try:
            code = await self._carry(worker)
        finally:
            timer.cancel()
            self._live.close()
            ended = await self._supervisor.close(CLOSE_S)
        if not ended:  # ZeroMQ would not, and would hold up the interpreter's own end
            os._exit(code)
        return code

    def _take_signals(self) -> None:
        # Not the loop's own handlers: this one is also called while a slow reader blocks a write.
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup means it
            signal.signal(signal.SIGHUP, self._on_signal)

    async def _carry(self, worker: Started) -> int:
        try:
            ready = await self._supervisor.open(self._setup.tree, worker)
            self._show()
            await self._begin(ready)
            await self._until_over()
        except WorkerLost as lost:
            return self._lost(lost)
        except (Fault, OSError) as trouble:
            return self._failed(trouble)
        return self._finish()

    def _show(self) -> None:
        if not self._shows:
            self._output.begin()
            self._shows = True
        if self._order.verbose:
            say(f"session {self._root}")

    async def _begin(self, ready: Ready) -> None:
        """Go on with the run the worker resumed, or start one."""
        prompt, live = self._order.prompt, ready.live_runs
        if live:
            self._run_id = live[0]
            self._recorder.watch(run_id=live[0])
            self._shown()
            if self._reason is not None:
                self._send_cancel()
            elif prompt is not None and not await self._steered(live[0], prompt):
                # It had one step left and has taken it: what was said begins the next run.
                self._recorder.forget()
                self._over = self._loop.create_future()
                await self._start(prompt)
            return
        if self._reason is not None:
            raise NotBegun(self._reason)
        if prompt is None:
            for run in ready.recovered:
                raise CutOff(run.run_id)
            raise NothingToResume(self._root)
        if self._setup.tree.fresh:
            await self._ask("session.create", SessionCreateParams(selection=self._setup.selection))
        await self._start(prompt)

    async def _steered(self, run_id: RunId, prompt: str) -> bool:
        """Say something to a run that is going on; False when it is over."""
        try:
            await self._ask("run.steer", RunSteerParams(run_id=run_id, input=user_text(prompt)))
        except RemoteFault as fault:
            if fault.body().code != "run_not_found":
                raise
            return False
        return True

    async def _start(self, prompt: str) -> None:
        client_id = new_client_id()
        self._recorder.watch(client_id=client_id)
        params = RunStartParams(
            session_id=self._root,
            client_run_id=client_id,
            selection=self._setup.selection,
            input=user_text(prompt),
            reset_fallback=self._order.model is not None,
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
        self._shown()

    def _shown(self) -> None:
        """What follows from having shown something: it is written, and the run may be over.

        Also when a run becomes ours: the worker may have ended it before we knew its name.
        """
        if self._output.waiting and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        if self._recorder.ended is not None and not self._over.done():
            self._over.set_result(None)

    def _flush(self) -> None:
        self._flushing = False
        if self._broken is not None:
            self._output.drop()
            return
        if self._output.on_terminal:
            self._live.print_above()
        try:
            self._output.flush()
        except OutputBroken as broken:
            self._broken = broken
            self._cancel(REASON_OUTPUT)

    def _on_refused(self, words: str) -> None:
        """Somebody spoke on the link who may not: nothing came of it, and people should know."""
        self._live.print_above()
        say(words)

    def _end_line(self) -> None:
        """Bring what was streamed to the terminal first, or a line of ours would stand in it."""
        if self._output.on_terminal and self._output.waiting:
            self._flush()

    def _holds(self) -> bool:
        """Whether the live line would stand in the middle of a line of the answer."""
        return self._output.on_terminal and self._recorder.midline

    # --- what ends it

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._interrupts >= INTERRUPTS_TO_LEAVE:
            self._live.print_above()
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
        """The run recorded its end."""
        recorder = self._recorder
        assert recorder.ended is not None, "the run is over without an end"
        came_to = verdict.judge(recorder.ended, recorder.state)
        self._write_end(came_to)
        if self._broken is not None:
            kept = f"what was done is kept: {self._show_line()}"
            say(f"{self._broken}; {kept}")
            return came_to.exit_code or exits.FAILED  # an answer nobody got is not a success
        if came_to.exit_code == exits.PERMISSION:
            say(came_to.error or "")
        elif came_to.error is not None:
            say(f"{readable(came_to.error)}; go on with: {self._resume_line()} 'go on'")
        return came_to.exit_code

    def _lost(self, lost: WorkerLost) -> int:
        """The worker died before the run ended, of itself or because it did not stop."""
        cause = readable(lost.cause)
        if self._reason is None:
            error = f"the worker of this run is gone: {cause}"
            came_to = Verdict("failed", exits.FAILED, error)
        else:
            error = f"{verdict.cancelled(self._reason)}; its worker is gone: {cause}"
            came_to = Verdict("interrupted", exits.CANCELLED, error)
        if self._order.output == "json":
            self._show()
        self._write_end(came_to)
        say(f"{error}; {self._what_is_left()}")
        if self._broken is not None:
            say(str(self._broken))
        return came_to.exit_code

    def _failed(self, trouble: Fault | OSError) -> int:
        """The worker lives and refused, or could not even be given the session."""
        status: Status
        match trouble:
            case NotBegun():
                status, code = "cancelled", exits.CANCELLED
            case CutOff():
                status, code = "interrupted", exits.CANCELLED
            case _:
                status, code = "failed", exits.SETUP
        error = explain(trouble, self._setup.tree.data_dir)
        self._write_end(Verdict(status, code, error))
        if isinstance(trouble, CutOff):
            say(f"{error}; go on with: {self._resume_line()} 'go on'")
        elif self._setup.tree.fresh and self._is_kept():
            say(f"{error}; {self._what_is_left()}")
        else:
            say(error)
        return code

    def _write_end(self, came_to: Verdict) -> None:
        """The last of the output, unless it is broken or never began; may break it."""
        self._live.close()
        if not self._shows:
            self._output.undo()
        elif self._broken is None:
            try:
                self._recorder.finish(self._root, came_to)
                self._output.close()
            except OutputBroken as broken:
                self._broken = broken

    def _is_kept(self) -> bool:
        return self._setup.tree.workspace.tree(self._root).directory.exists()

    def _what_is_left(self) -> str:
        if self._is_kept():
            return f"what it did is kept; go on with: {self._resume_line()}"
        return "it had not begun; run the command again"

    def _show_line(self) -> str:
        words = ["cookie", "sessions", "show", self._root]
        if self._order.data_dir is not None:
            words += ["--data-dir", self._order.data_dir]
        return shlex.join(words)

    def _resume_line(self) -> str:
        """The command that goes on with the session, by the model and under the rules of this one.

        Neither is the session's own: without them it would stop at the first thing to ask for.
        """
        order = self._order
        words = ["cookie", "run", "--resume-session", self._root]
        for flag, value in (
            ("--model", order.model),
            ("--variant", order.variant),
            ("--agent", order.agent),
            ("--preset", order.preset),
            ("--data-dir", order.data_dir),
        ):
            words += [flag, value] if value is not None else []
        if order.permission_mode != MODES[0]:
            words += ["--permission-mode", order.permission_mode.replace("_", "-")]
        if order.allowed_tools:
            words += ["--allowed-tools", ",".join(order.allowed_tools)]
        return shlex.join(words)
