"""Bash: real processes, on both loops; whatever happens, none is left."""

import asyncio
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from ipc.content import TerminalDisplay, ToolResult
from ipc.ids import uuid7
from ipc.plan import ToolOutput
from ipc.seams import proc
from tests.fakes.room import ENV, FakeRoom, until
from workers.tools import bash
from workers.tools.base import ToolFailure
from workers.tools.bash import Bash
from workers.tools.capture import Manifest
from workers.tools.read import Read

UVLOOP = ("asyncio", {"use_uvloop": True})
ASYNCIO = ("asyncio", {"use_uvloop": False})


@pytest.fixture(params=[ASYNCIO, UVLOOP], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module", autouse=True)
def both_loops_have_run_before() -> None:
    """Each loop's library holds a pipe for signals from its first loop on."""
    for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.sleep(0))


@pytest.fixture
def mark() -> str:
    """What every process of one test carries in its environment."""
    return f"test:{uuid7()}"


@pytest.fixture
def room(workspace: Path, mark: str) -> FakeRoom:
    return FakeRoom(workspace, env={**ENV, proc.TREE_VARIABLE: mark})


@pytest.fixture(autouse=True)
def nothing_is_left(mark: str, tmp_path: Path) -> Iterator[None]:
    """After each test: no process, no zombie, no descriptor, no part of an artifact."""
    before = descriptors()
    yield
    die_out(mark)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert descriptors() <= before
    assert list(tmp_path.rglob(".part-*")) == []


def die_out(mark: str) -> None:
    """All that is left has been killed; a moment may pass until it is dead."""
    give_up = time.monotonic() + 10
    while left := proc.marked(mark):
        assert time.monotonic() < give_up, left
        time.sleep(0.002)


def descriptors() -> set[str]:
    """Pipes and processes that are held open; a loop's own sockets don't count."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith("pipe:") or "pidfd" in target:
            found.add(target)
    return found


async def run(room: FakeRoom, command: str, **more: Any) -> ToolResult:
    return await Bash(command=command, **more).run(room)


async def until_there(path: Path) -> None:
    await until(lambda: path.exists() and path.stat().st_size > 0)


# --- what comes back -----------------------------------------------------------------------------


async def test_a_command_and_what_it_printed(room: FakeRoom) -> None:
    assert await run(room, "echo hello") == ToolResult(
        title="echo hello",
        output="hello",
        metadata={"status": 0, "success": True},
        display=(TerminalDisplay(command="echo hello", exit_code=0, head="hello\n"),),
    )


@pytest.mark.parametrize(
    ("command", "output", "status"),
    [
        ("true", "no output, exit 0", 0),
        ("exit 3", "no output, exit 3", 3),
        ("mkdir -p x", "no output, exit 0", 0),
        ("echo out; echo err >&2", "out\n[stderr]\nerr", 0),
        ("echo err >&2; exit 1", "[stderr]\nerr\n[exit 1]", 1),
        ("printf no-newline; false", "no-newline\n[exit 1]", 1),
        ("kill -TERM $$", "no output, exit 143, killed by SIGTERM", 143),
        ("printf 'a\\0b\\377'", "a\ufffdb\ufffd", 0),
        ("no-such-command 2>/dev/null", "no output, exit 127", 127),
        ("-x 2>/dev/null", "no output, exit 127", 127),
        ("cat", "no output, exit 0", 0),
        ("exec >&- 2>&-; exit 4", "no output, exit 4", 4),
        ("echo $0 | grep -c login", "0\n[exit 1]", 1),
        ("# only a comment", "no output, exit 0", 0),
        ("if", None, 2),
    ],
)
async def test_outputs_and_statuses(
    room: FakeRoom, command: str, output: str | None, status: int
) -> None:
    result = await run(room, command)

    assert result.metadata == {"status": status, "success": status == 0}
    assert output is None or result.output == output


async def test_it_runs_in_the_workspace_with_exactly_its_environment(
    room: FakeRoom, workspace: Path, mark: str
) -> None:
    assert (await run(room, "pwd; echo $PWD")).output == f"{workspace}\n{workspace}"
    shown = set((await run(room, "env")).output.splitlines())
    assert {f"COOKIE_TREE={mark}", "LANG=C.UTF-8"} <= shown
    names = {line.partition("=")[0] for line in shown}
    assert names <= {*ENV, "COOKIE_TREE", "PWD", "SHLVL", "_", "OLDPWD"}


async def test_the_command_leads_a_session_and_has_no_descriptor_of_ours(room: FakeRoom) -> None:
    output = (await run(room, "ps -o sid= -p $$; echo $$; ls /proc/self/fd")).output
    session, pid, *numbers = output.split()

    assert session == pid
    assert set(numbers) <= {"0", "1", "2", "3"}  # 3 is the folder that ls reads


def own_status() -> str:
    return Path("/proc/self/status").read_text()


async def test_signals_are_as_a_shell_expects_them(room: FakeRoom) -> None:
    output = (await run(room, "grep -E 'Sig(Blk|Ign)' /proc/self/status")).output

    # What started the tests may ignore or block signals of its own (a shell's `&`, make); a worker
    # is spawned with none, and Python's own must not reach a command.
    ours = own_status()
    blocked, ignored = (int(line.split()[1], 16) for line in output.splitlines())
    given = {name: int(value, 16) for name, value in re.findall(r"Sig(Blk|Ign):\s*(\w+)", ours)}
    pythons = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1
    assert blocked == given["Blk"]
    assert ignored == given["Ign"] & ~pythons


# --- what cannot be started ----------------------------------------------------------------------


async def refusal(room: FakeRoom, command: str, **more: Any) -> tuple[str, str]:
    with pytest.raises(ToolFailure) as caught:
        await run(room, command, **more)
    return caught.value.code, caught.value.message


async def test_what_cannot_be_started_is_said(room: FakeRoom, workspace: Path) -> None:
    code, message = await refusal(room, "echo " + "x" * 300_000)
    assert code == "execution"
    assert "write a script to a file" in message
    assert (await refusal(room, "cat", interactive=True))[0] == "unsupported"
    room.env = {"A": "\0"}
    assert (await refusal(room, "true"))[0] == "execution"
    room.env = ENV
    room.workspace = str(workspace / "gone")
    code, message = await refusal(room, "true")
    assert code == "execution"
    assert "No such file or directory" in message


# --- time and ends -------------------------------------------------------------------------------


async def test_a_background_job_does_not_hold_the_result_up(room: FakeRoom) -> None:
    begun = time.monotonic()
    result = await run(room, "sleep 60 & echo done")

    assert result.output == "done"
    assert time.monotonic() - begun < 30  # and not a minute


@pytest.mark.parametrize(
    "command",
    [
        "sleep 60 >/dev/null 2>&1 & echo done",
        "(while :; do echo x; sleep 1; done) & echo done",
        "(trap '' TERM HUP INT; sleep 60; sleep 60) & echo done",
        "set -m; sleep 60 & sleep 60 & echo done",  # groups of their own, in our session
        "set -m; sleep 60 >/dev/null 2>&1 & echo done",  # and none of them holds our pipes
        "nohup sleep 60 & echo done",
    ],
)
async def test_what_is_left_running_is_killed(room: FakeRoom, command: str, mark: str) -> None:
    result = await run(room, command)

    assert "done" in result.output
    assert result.metadata["success"]
    die_out(mark)


async def test_a_look_for_orphans_takes_no_status_away(room: FakeRoom) -> None:
    loop, over = asyncio.get_running_loop(), False

    def look() -> None:
        proc.reap_orphans()
        if not over:
            loop.call_soon(look)

    look()
    result = await Bash(command="exit 3").run(room)
    over = True
    assert result.metadata == {"status": 3, "success": False}
    assert not proc._AWAITED


async def test_what_is_printed_at_the_very_end_is_not_lost(room: FakeRoom) -> None:
    room.limits = ToolOutput(max_lines=1 << 20, max_bytes=1 << 20)
    for command in ("seq 9000", "seq 9000 & wait", "exec seq 9000", "(seq 9000 >&2) 2>&1"):
        assert (await run(room, command)).output.split() == [str(n) for n in range(1, 9001)]


@pytest.mark.parametrize(
    "command",
    [
        "echo begun; sleep 60",
        "echo begun; sleep 60 & sleep 60",
        "trap '' TERM INT HUP; echo begun; while :; do sleep 60; done",
        "echo begun; set -m; sleep 60 & wait",
        "echo begun; exec >&- 2>&-; sleep 60",
    ],
)
async def test_time_runs_out(room: FakeRoom, command: str, mark: str) -> None:
    with pytest.raises(ToolFailure) as caught:
        await run(room, command, timeout=800)
    failure = caught.value

    assert (failure.code, failure.message) == (
        "timeout",
        "bash timed out after 800 ms and was killed",
    )
    assert failure.result is not None
    assert failure.result.output == "begun"
    assert failure.result.metadata == {"status": None, "success": False}
    die_out(mark)


async def test_no_timeout_means_the_default(room: FakeRoom) -> None:
    assert (await run(room, "echo a", timeout=0)).output == "a"
    assert (await run(room, "echo a", timeout=2**63 - 1)).output == "a"


@pytest.mark.parametrize(
    "command",
    [
        "echo x > up; sleep 60",
        "trap '' TERM INT HUP; (sleep 60; sleep 60) & echo x > up; while :; do sleep 60; done",
        "yes | head -c 100000; echo x > up; yes",
        "sleep 60 & sleep 60 & echo x > up; wait",
    ],
)
async def test_cancelled_it_leaves_nothing(
    room: FakeRoom, workspace: Path, command: str, mark: str
) -> None:
    task = asyncio.create_task(run(room, command))
    await until_there(workspace / "up")
    task.cancel()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    die_out(mark)


async def test_a_second_cancellation_while_it_cleans_up_leaves_nothing(
    room: FakeRoom, workspace: Path, mark: str
) -> None:
    task = asyncio.create_task(run(room, "echo x > up; sleep 60"))
    await until_there(workspace / "up")
    for _ in range(4):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task

    die_out(mark)


async def test_a_storm_of_cancellations_leaves_nothing(room: FakeRoom, mark: str) -> None:
    dice = random.Random(1)
    ends: list[bool] = []
    for _ in range(200):
        task = asyncio.create_task(run(room, "sleep 60 & sleep 60"))
        await asyncio.sleep(dice.random() * 0.02)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            ends.append(True)

    assert ends == [True] * 200
    die_out(mark)


async def test_who_cannot_tell_how_it_goes_ends_the_command(room: FakeRoom, mark: str) -> None:
    class Deaf(FakeRoom):
        async def progress(self, message: str, chunk: str | None = None) -> None:
            raise RuntimeError("the log is broken")

    deaf = Deaf(Path(room.workspace), env=room.env)
    with pytest.raises(RuntimeError, match="log is broken"):
        await run(deaf, "echo x; sleep 60")

    die_out(mark)


async def test_without_pidfds_it_works_by_looking(
    room: FakeRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The one patch here: a kernel without pidfds is none that a test can bring along.
    monkeypatch.setattr(bash.spawn, "open_pidfd", lambda _pid: -1)

    assert (await run(room, "sleep 60 & echo done; exit 3")).output == "done\n[exit 3]"
    with pytest.raises(ToolFailure, match="timed out"):
        await run(room, "sleep 60", timeout=100)


# --- much output ---------------------------------------------------------------------------------


def forget_peak() -> int:
    """Let the peak start anew, from what is there now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_kib()


def peak_kib() -> int:
    """The most memory this process has had."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


async def manifest_of(room: FakeRoom, result: ToolResult) -> Manifest:
    assert result.truncation is not None
    assert result.truncation.artifact is not None
    digest = result.truncation.artifact.removeprefix("artifact://")
    with room.artifacts.open(digest) as reader:
        return msgspec.json.decode(reader.page(0, 1 << 20), type=Manifest)


async def test_much_output_is_shown_head_and_tail_and_kept_whole(room: FakeRoom) -> None:
    result = await run(room, "seq 100000; echo problem >&2; exit 2")
    lines = result.output.splitlines()

    assert lines[0] == "1"
    assert lines[999] == "1000"
    assert lines[1000] == "[… 98000 lines, 579001 bytes left out …]"
    assert lines[1001] == "99001"
    assert lines[2000] == "100000"
    assert lines[2001].startswith("[Truncated. Read more: read(filePath=")
    assert lines[2002:] == ["[stderr]", "problem", "[exit 2]"]
    hint = lines[2001].partition('"')[2].partition('"')[0]
    page = await Read(filePath=hint, offset=1000, limit=2).run(room)
    assert page.output.startswith("1001\n1002\n")
    errors = await Read(filePath=hint.replace("/stdout", "/stderr")).run(room)
    assert errors.output == "problem"
    manifest = await manifest_of(room, result)
    assert manifest.complete
    assert [stream.bytes for stream in manifest.streams] == [588_895, 8]


async def test_what_a_killed_command_printed_is_kept_as_incomplete(room: FakeRoom) -> None:
    with pytest.raises(ToolFailure) as caught:
        await run(room, "seq 100000; sleep 60", timeout=2000)
    assert caught.value.result is not None
    manifest = await manifest_of(room, caught.value.result)

    assert not manifest.complete
    assert manifest.streams[0].bytes == 588_895


async def test_a_line_of_5_mb(room: FakeRoom) -> None:
    result = await run(room, "head -c 5000000 /dev/zero | tr '\\0' x")

    assert len(result.output) < 52_000
    assert "[… 4948800 bytes left out …]" in result.output
    assert (await manifest_of(room, result)).streams[0].bytes == 5_000_000


async def test_200_mb_go_through_flat_memory(room: FakeRoom) -> None:
    await run(room, "yes | head -c 1000000")  # what the first time costs is not growth
    before = forget_peak()
    result = await run(room, "yes 0123456789abcde | head -c 200000000")
    growth = peak_kib() - before

    assert (await manifest_of(room, result)).streams[0].bytes == 200_000_000
    assert growth < 20 * 1024
    assert sum(len(chunk or "") for _, chunk in room.told) < (2 << 20) + 2048


async def test_it_tells_live_what_it_prints(room: FakeRoom, workspace: Path) -> None:
    task = asyncio.create_task(
        run(room, "echo one; echo err >&2; while [ ! -e go ]; do sleep 0.01; done; echo two")
    )
    await until(lambda: (room.heard("stdout"), room.heard("stderr")) == ("one\n", "err\n"))
    assert not task.done()
    (workspace / "go").touch()
    await task

    assert room.heard("stdout") == "one\ntwo\n"


async def test_a_full_disk_does_not_end_the_command(room: FakeRoom, workspace: Path) -> None:
    room.artifacts.full = True
    result = await run(room, "seq 100000; touch done")

    assert (workspace / "done").exists()
    assert result.metadata == {"status": 0, "success": True}
    assert "[Not all of it could be kept: No space left on device]" in result.output


def test_a_label_is_the_whole_command() -> None:
    command = "git status && rm -rf d\n"

    assert Bash(command=command).label("/w") == command


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_a_shell_that_is_killed_is_told(room: FakeRoom, number: signal.Signals) -> None:
    result = await run(room, f"kill -{int(number)} $$")

    assert result.output == f"no output, exit {128 + number}, killed by {number.name}"
