"""The tool `bash`: a shell command in a session of its own, its output captured, no process left.

Started by `subprocess.Popen` and watched by a pidfd and two pipe readers, not by asyncio's own
subprocesses, for three reasons. The start is one synchronous step, so no cancellation can fall
between a process and the knowledge of its pid. Nobody but us reaps the shell: a child watcher does
so by itself, and after that its process group has a number that may belong to a stranger, so the
leftovers must be killed while the dead shell still holds it. And the end of the shell is told
apart from the end of its output, which a background job keeps open. It works alike on asyncio's
loop and on uvloop, and in a forked process, since it needs no SIGCHLD.
"""

import asyncio
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Annotated, Any, ClassVar, Final, NamedTuple

from msgspec import Meta

from ipc.content import TerminalDisplay, ToolResult
from ipc.faults import clean
from ipc.rules import Action
from ipc.seams import proc, spawn
from ipc.seams.failpoints import ARMED, hit
from workers.tools.base import CLEANUP_S, Room, Tool, ToolFailure, off_loop, settled
from workers.tools.capture import Live, Output, Stream, keep_streams, render

SHELLS: Final = ("/bin/bash", "/bin/sh")
TIMEOUT_MS: Final = 120_000
TIMEOUT_MS_MAX: Final = 7 * 24 * 3600 * 1000  # longer ones are this long; no run lives to see it
READ_BYTES: Final = 65_536
READS_AFTER_END: Final = 32  # of one pipe, when every process we know of is dead
DRAIN_S: Final = 0.2  # for output that is on its way when the shell has ended
POLL_S: Final = 0.02  # where there is no pidfd
SWEEPS_MAX: Final = 5
TITLE_CHARS_MAX: Final = 80
HEAD_CHARS_MAX: Final = 2048
SIGNALLED: Final = 128  # what a shell adds to the number of the signal that ended a command


class Bash(Tool, frozen=True, kw_only=True):
    """Run a shell command in the workspace and wait until it ends.

    Its standard input is empty, and what it left running in the background is killed.
    """

    name: ClassVar[str] = "bash"
    action: ClassVar[Action] = "bash"
    parallel: ClassVar[bool] = False
    system_texts: ClassVar[tuple[str, ...]] = ("command",)

    command: Annotated[str, Meta(description="What to run; background jobs end with it")]
    timeout: Annotated[
        int, Meta(ge=0, description="Milliseconds after which it is killed (0 = the default)")
    ] = TIMEOUT_MS
    interactive: Annotated[bool, Meta(description="Keep standard input open")] = False

    def label(self, workspace: str) -> str:
        """The whole command; it is never parsed."""
        return self.command

    def primary_argument(self) -> str:
        """The command."""
        return self.command

    async def run(self, room: Room) -> ToolResult:
        """Run it to its end. A status other than 0 is a result; being killed for time is not.

        Raises ToolFailure. Cancelled, it kills what it started and re-raises.
        """
        if self.interactive:
            message = "standard input is not available; give the input in the command itself"
            raise ToolFailure("unsupported", message)
        streams = [Stream(name, room.limits, room.artifacts) for name in ("stdout", "stderr")]
        live = Live(room.progress)

        def take(number: int, chunk: bytes) -> None:
            streams[number].feed(chunk)
            live.feed(streams[number].name, chunk)

        try:
            end = await self._shell(room, live, take)
            kept = None
            if not all(stream.preview.fits for stream in streams):
                complete = end.status is not None
                kept = await off_loop(
                    lambda: keep_streams(streams, room.artifacts, complete=complete)
                )
            return self._result(end, render(streams, kept))
        finally:
            for stream in streams:
                stream.discard()

    async def _shell(self, room: Room, live: Live, take: Callable[[int, bytes], None]) -> "_End":
        seconds = min(self.timeout or TIMEOUT_MS, TIMEOUT_MS_MAX) / 1000
        if ARMED:
            hit("tool.effect")
        shell = _start(self.command, room.workspace, room.env, take)
        pump = asyncio.ensure_future(live.pump())
        timed_out = False
        try:
            # A process lives in real time, so these are the loop's timers and not the room's.
            await asyncio.wait(
                {shell.exited, pump}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            timed_out = not shell.exited.done() and not pump.done()
            if shell.exited.done():
                await asyncio.wait({shell.drained}, timeout=DRAIN_S)
            await shell.end()
            live.close()
            await pump
        finally:
            pump.cancel()
            try:
                await shell.end()
            finally:
                await settled(pump, CLEANUP_S)
        return _End(None if timed_out else shell.status, timed_out)

    def _result(self, end: "_End", output: Output) -> ToolResult:
        status = None if end.status is None else _status(end.status)
        said = "" if end.status is None else _told(end.status)
        text = output.text
        if not text and not end.timed_out:
            text = f"no output, {said}"
        elif status != 0 and said:
            text += f"[{said}]\n"
        result = ToolResult(
            title=clean(self.command.strip().partition("\n")[0], TITLE_CHARS_MAX),
            output=text.removesuffix("\n"),
            metadata={"status": status, "success": status == 0},
            truncation=output.truncation,
            display=(
                TerminalDisplay(
                    command=self.command, exit_code=status, head=output.text[:HEAD_CHARS_MAX]
                ),
            ),
        )
        if end.timed_out:
            message = f"bash timed out after {self.timeout or TIMEOUT_MS} ms and was killed"
            raise ToolFailure("timeout", message, result)
        return result


class _End(NamedTuple):
    """How a command ended: its status as Popen says it, None when we ended it or can't know."""

    status: int | None
    timed_out: bool


def _status(code: int) -> int:
    return code if code >= 0 else SIGNALLED - code


def _told(code: int) -> str:
    told = f"exit {_status(code)}"
    return told if code >= 0 else f"{told}, {proc.describe_exit(code)}"


# --- the process ---------------------------------------------------------------------------------


def _start(
    command: str, cwd: str, env: Mapping[str, str], take: Callable[[int, bytes], None]
) -> "_Shell":
    shell = next((path for path in SHELLS if os.access(path, os.X_OK)), SHELLS[-1])
    try:
        popen = subprocess.Popen(  # noqa: S603 - running what was approved is what it is for
            [shell, "-c", "--", command],
            cwd=cwd,
            env={**env, "PWD": cwd},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise _not_started(error, command) from error
    except ValueError as error:  # a NUL or a lone surrogate in the environment
        raise ToolFailure("execution", f"bash could not be started: {error}") from error
    proc.await_child(popen.pid)
    return _Shell(popen, take)


def _not_started(error: OSError, command: str) -> ToolFailure:
    if error.errno == errno.E2BIG:
        size = len(command.encode())
        message = (
            f"the command of {size} bytes and its environment are more than the system takes; "
            "write a script to a file and run that"
        )
        return ToolFailure("execution", message)
    where = f" ({error.filename})" if error.filename else ""
    return ToolFailure("execution", f"bash could not be started: {error.strerror}{where}")


class _Shell:
    """A running shell that leads its session; `exited` and `drained` are told by the loop."""

    def __init__(
        self, popen: "subprocess.Popen[bytes]", take: Callable[[int, bytes], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()  # the shell itself
        self.drained: asyncio.Future[None] = loop.create_future()  # both ends of output
        self.status: int | None = None  # once it is reaped
        self._loop = loop
        self._popen = popen
        self._take = take
        self._pipes: dict[int, IO[bytes]] = {}
        self._pidfd = -1
        self._poll: asyncio.TimerHandle | None = None
        self._ended = False
        try:
            self._watch()
        except BaseException:
            self.kill()
            self._close()
            popen.wait()
            proc.reaped(popen.pid)
            raise

    def _watch(self) -> None:
        for number, pipe in enumerate((self._popen.stdout, self._popen.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._pipes[number] = pipe
            self._loop.add_reader(pipe.fileno(), self._readable, number)
        self._pidfd = spawn.open_pidfd(self._popen.pid)
        if self._pidfd >= 0:
            self._loop.add_reader(self._pidfd, self._gone)
        else:
            self._look()

    def _readable(self, number: int) -> None:
        self._read(number)

    def _read(self, number: int) -> bool:
        """Take what is there, at most READ_BYTES of it; whether there may be more."""
        pipe = self._pipes.get(number)
        if pipe is None:
            return False
        try:
            chunk = os.read(pipe.fileno(), READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if chunk:
            self._take(number, chunk)
            return True
        self._shut(number)
        return False

    def _shut(self, number: int) -> None:
        pipe = self._pipes.pop(number)
        self._loop.remove_reader(pipe.fileno())
        pipe.close()
        if not self._pipes and not self.drained.done():
            self.drained.set_result(None)

    def _gone(self) -> None:
        self._loop.remove_reader(self._pidfd)
        if not self.exited.done():
            self.exited.set_result(None)

    def _look(self) -> None:
        """Without a pidfd: look now and then, and leave the dead shell in its place."""
        waitid: Any = getattr(os, "waitid", None)
        if waitid is None:  # then it can only be reaped, and leftovers are killed by luck
            dead = self._popen.poll() is not None
        else:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            dead = waitid(os.P_PID, self._popen.pid, options) is not None
        if dead:
            if not self.exited.done():
                self.exited.set_result(None)
        else:
            self._poll = self._loop.call_later(POLL_S, self._look)

    def kill(self) -> None:
        """Kill the session as far as it can be found. Only before the shell is reaped."""
        if self._ended or self._popen.returncode is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kill what is left, take its last words, reap the shell. Idempotent.

        Waits through a cancellation, at most CLEANUP_S, and raises it then.
        """
        if self._ended:
            return
        # While the dead shell is not reaped its number is taken, so no stranger can be hit.
        self.kill()
        self._sweep()
        try:
            await settled(self.exited, CLEANUP_S)
        finally:
            for number in list(self._pipes):
                for _ in range(READS_AFTER_END):
                    if not self._read(number):
                        break
            self._ended = True
            self._close()
            if self.exited.done():
                self.status = self._popen.wait()
            # One that would not even be killed is an orphan from here on, whenever it dies.
            proc.reaped(self._popen.pid)

    def _sweep(self) -> None:
        """Kill the rest of the session: jobs that a shell put into groups of their own."""
        if self.exited.done() and not proc.has_strays():
            return  # the shell is dead, and nothing that it started has come to us
        for _ in range(SWEEPS_MAX):
            found = [one for one in proc.processes() if one.session == self._popen.pid]
            if not any([proc.kill(one) for one in found]):  # noqa: C419 - every one of them
                return

    def _close(self) -> None:
        for number in list(self._pipes):
            self._shut(number)
        if self._poll is not None:
            self._poll.cancel()
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
