"""The house under fire: real commands that are killed, and a judge of what they leave behind.

The judge is pure and shares no code with what it judges: it reads a log by lines and JSON, and
answers in complaints. `test_kill_judge` shows that each of them can be raised.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ipc.disk.paths import TreePaths, sessions_dir
from ipc.seams import proc
from tests.fakes.store import is_locked

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "fakes" / "scripts"
OBSERVER = Path(__file__).with_name("observer.py")
RECORD_PREFIX, RECORD_SUFFIX = b'{"type":"event","event":', b"}"
DEADLINE_S = 30.0  # for what a loaded machine does late; nothing here is judged by its speed
GONE_S = 5.0  # the promise: how long anything of a dead tree may live
POLL_S = 0.002
LINES = [f"line-{n}" for n in range(1, 6)]  # what the commands of kills.yaml write, once each

RUN_ENDS = {"run_completed", "run_failed", "run_cancelled", "run_interrupted"}
ATTEMPT_ENDS = {"model_turn_committed", "attempt_abandoned"}
DELTAS = {"text_delta", "reasoning_delta", "tool_call_progress"}


# --- the judge -----------------------------------------------------------------------------------


class Log(NamedTuple):
    """A log as plain JSON sees it: its good lines, what they say, how many are not good."""

    lines: list[bytes]
    events: list[dict[str, Any]]
    bad: int

    def of(self, *types: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["payload"]["type"] in types]


def parse(raw: bytes) -> Log:
    *whole, tail = raw.split(b"\n")
    lines, events, bad = list[bytes](), list[dict[str, Any]](), int(bool(tail))
    for line in whole:
        try:
            event = json.loads(line)
            assert isinstance(event["seq"], int)
            assert event["payload"]["type"]
        except (ValueError, TypeError, KeyError, AssertionError):
            bad += 1
        else:
            lines.append(line)
            events.append(event)
    return Log(lines, events, bad)


def told_is_kept(log: Log, told: Sequence[bytes]) -> list[str]:
    """Every event somebody was told of is in the log, byte for byte and in that order."""
    there = {line: number for number, line in enumerate(log.lines)}
    complaints, last = list[str](), -1
    for line in told:
        number = there.get(line)
        if number is None:
            complaints.append(f"told and not in the log: {line[:200]!r}")
        elif number <= last:
            complaints.append(f"told out of order or twice: {line[:200]!r}")
        else:
            last = number
    return complaints


def seq_rises(log: Log) -> list[str]:
    seqs = [event["seq"] for event in log.events]
    return [f"seq {later} follows {one}" for one, later in pairwise(seqs) if later <= one]


def torn(before: Log, after: Log, *, kills: int) -> list[str]:
    new = after.bad - before.bad
    return [f"{new} new lines can't be read after {kills} kills"] if not 0 <= new <= kills else []


def nothing_rewritten(before: bytes, after: bytes) -> list[str]:
    return [] if after.startswith(before) else ["what was in the log has been changed"]


def effects_once(effects: Sequence[str]) -> list[str]:
    counts = Counter(effects)
    return [f"{line!r} was done {n} times" for line, n in counts.items() if n > 1] + [
        f"an effect nobody asked for: {line!r}" for line in counts if line not in LINES
    ]


def effects_follow_the_log(log: Log, effects: Sequence[str]) -> list[str]:
    """An effect has its `executing` before it; a command that completed has its effect."""
    complaints = []
    for line, call in _calls_by_line(log).items():
        if line in effects and not call.executing:
            complaints.append(f"{line!r} was done before the log said so")
        if line not in effects and call.outcome == "completed":
            complaints.append(f"{line!r} was not done and the log says it was")
    known = set(_calls_by_line(log))
    return complaints + [f"{line!r} was done by no call" for line in effects if line not in known]


class _Call(NamedTuple):
    executing: bool
    outcome: str | None


def _calls_by_line(log: Log) -> dict[str, _Call]:
    """The bash calls of kills.yaml that were taken up, by the line they write."""
    line_of = {}
    for event in log.of("model_turn_committed"):
        payload = event["payload"]
        for block in payload["turn"]["content"]:
            for line in LINES:
                if block["type"] == "tool_call" and line in block["arguments"]:
                    line_of[payload["model_turn_seq"], block["model_call_id"]] = line
    executing = {event["payload"]["tool_call_id"] for event in log.of("tool_call_executing")}
    ended = {
        event["payload"]["tool_call_id"]: event["payload"]["outcome"]
        for event in log.of("tool_call_terminated")
    }
    found = {}
    for event in log.of("tool_call_started"):
        payload, owner = event["payload"], event["payload"]["owner"]
        line = line_of.get((owner["model_turn_seq"], owner["model_call_id"]))
        if line is not None:
            call = payload["tool_call_id"]
            found[line] = _Call(call in executing, ended.get(call))
    return found


def ends(log: Log, *, all_of_them: bool) -> list[str]:
    """Each run, attempt, call and question ends once; with `all_of_them`, none is still open."""
    opened = [
        ("call", log.of("tool_call_started"), log.of("tool_call_terminated"), "tool_call_id"),
        ("attempt", log.of("model_attempt_started"), log.of(*ATTEMPT_ENDS), "attempt_id"),
        ("question", log.of("approval_requested"), log.of("approval_finalized"), "approval_id"),
        ("run", log.of("run_started"), log.of(*RUN_ENDS), "run_id"),
    ]
    complaints = []
    for noun, starts, finishes, key in opened:
        began = Counter(_key(event, key) for event in starts)
        ended = Counter(_key(event, key) for event in finishes)
        complaints += [f"{noun} {one} began {n} times" for one, n in began.items() if n > 1]
        complaints += [f"{noun} {one} ended {n} times" for one, n in ended.items() if n > 1]
        complaints += [f"{noun} {one} ended and never began" for one in ended if one not in began]
        if all_of_them:
            complaints += [f"{noun} {one} never ended" for one in began if one not in ended]
    return complaints


def _key(event: dict[str, Any], key: str) -> str:
    payload = event["payload"]
    if key == "run_id":
        return str(event["run_id"])
    if key == "approval_id" and "request" in payload:
        return str(payload["request"]["approval_id"])
    return str(payload[key])


def open_run(log: Log) -> str | None:
    starts = [event["run_id"] for event in log.of("run_started")]
    ended = {event["run_id"] for event in log.of(*RUN_ENDS)}
    return next((run for run in reversed(starts) if run not in ended), None)


def in_the_worlds_hands(log: Log) -> bool:
    """Whether the open run can't go on: words of an open attempt, or a call past executing."""
    spoken, executing, given_up = dict[str, bool](), set[str](), False
    for event in log.events:
        payload = event["payload"]
        match payload["type"]:
            case "model_attempt_started":
                spoken[payload["attempt_id"]] = False
            case "text_delta" | "reasoning_delta":
                spoken[payload["attempt_id"]] = True
            case "model_turn_committed" | "attempt_abandoned":
                spoken.pop(payload["attempt_id"], None)
            case "tool_call_executing":
                executing.add(payload["tool_call_id"])
            case "tool_call_terminated":
                executing.discard(payload["tool_call_id"])
            case "run_started":
                given_up = False
            case "worker_recovered":
                given_up = payload["resumed_run_id"] is None  # and died before it could say more
    return given_up or bool(executing) or any(spoken.values())


def recovered(before: Log, after: Log, *, finished: bool = True) -> list[str]:
    """What the next worker made of the run that was open in `before`.

    Not `finished`: that worker was killed too, and may not have come to say anything.
    """
    run = open_run(before)
    if run is None:
        return []
    new = after.events[len(before.events) :]
    said = [event["payload"] for event in new if event["payload"]["type"] == "worker_recovered"]
    if not said:
        return ["the log does not say that a worker was lost"] if finished else []
    resumed = said[0]["resumed_run_id"]
    end = next(iter(event["payload"]["type"] for event in new[::-1] if event["run_id"] == run), "")
    if in_the_worlds_hands(before):
        if resumed is not None:
            return [f"run {run} was taken up again although the world had hold of it"]
        done = end == "run_interrupted" or not finished
        return [] if done else [f"run {run} was given up and ended with {end}"]
    if resumed != run:
        return [f"run {run} could have gone on and did not"]
    done = end == "run_completed" or not finished
    return [] if done else [f"run {run} went on and ended with {end}"]


# --- the stage -----------------------------------------------------------------------------------


@dataclass
class Outcome:
    """One command that has ended."""

    code: int
    stderr: str
    told: list[bytes]  # the events its observer was told of
    records: list[dict[str, Any]]  # everything else that was whole
    started: float  # wall clock, seconds

    def resume_words(self) -> list[str] | None:
        """The command line that the last line names, if it names one."""
        _, found, line = self.stderr.strip().rpartition("cookie run --resume-session")
        return shlex.split(f"--resume-session{line}") if found else None


class Command:
    """`cookie run --json ... | observer.py FILE`, running."""

    def __init__(self, space: "Space", argv: Sequence[str], fp: str) -> None:
        space.commands += 1
        self.copy = space.home / f"told-{space.commands}"
        self._stderr = (space.home / f"stderr-{space.commands}").open("w+b")
        self.started = time.time()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cookie", "run", "--json", *argv],
            env={**space.env, **({"COOKIE_FP": fp} if fp else {})},
            cwd=space.workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
        )
        self._observer = subprocess.Popen(
            [sys.executable, "-I", "-S", str(OBSERVER), str(self.copy)],
            env={},
            stdin=self._process.stdout,
        )
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.pid = self._process.pid

    def worker(self) -> proc.Process | None:
        """Its worker; None when there is none yet, or no more."""
        children = [one for one in proc.processes() if one.parent == self.pid]
        return children[0] if children else None

    def kill_worker(self) -> bool:
        worker = self.worker()
        return worker is not None and proc.kill(worker)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def over(self) -> bool:
        return self._process.poll() is not None

    def told(self) -> bytes:
        return self.copy.read_bytes() if self.copy.exists() else b""

    def until(self, seen: Callable[[bytes], bool]) -> bool:
        """Wait until the observer has seen it; False when the command ended first."""
        until = time.monotonic() + DEADLINE_S
        while not seen(self.told()):
            if self.over():
                return seen(self.told())
            assert time.monotonic() < until, f"not seen in {self.told()[-2000:]!r}"
            time.sleep(POLL_S)
        return True

    def wait(self) -> Outcome:
        try:
            code = self._process.wait(DEADLINE_S)
            self._observer.wait(DEADLINE_S)
        finally:
            for process in (self._process, self._observer):
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                process.wait()
        self._stderr.seek(0)
        stderr = self._stderr.read().decode()
        self._stderr.close()
        told, records = list[bytes](), list[dict[str, Any]]()
        for line in self.told().split(b"\n")[:-1]:
            if line.startswith(RECORD_PREFIX):
                assert line.endswith(RECORD_SUFFIX)
                told.append(line[len(RECORD_PREFIX) : -len(RECORD_SUFFIX)])
            else:
                records.append(json.loads(line))
        return Outcome(code, stderr, told, records, self.started)


class Space:
    """A person's home: a data directory with the scripts as models, a workspace, sockets."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.workspace, self.data, self.runtime = home / "ws", home / "data", home / "run"
        for directory in (self.workspace, self.data, self.runtime):
            directory.mkdir(mode=0o700)
        (self.workspace / "seed.txt").write_text("one\ntwo\nthree\n")
        (self.data / "config.toml").write_text(_config(["kills", "orphan"]))
        self.env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(self.runtime),
        }
        self.commands = 0

    def start(self, *words: str, fp: str = "") -> Command:
        return Command(self, words, fp)

    def first(self, model: str = "kills", prompt: str = "begin", *, fp: str = "") -> Command:
        return self.start(*self.flags(model), prompt, fp=fp)

    def again(self, model: str, prompt: str = "go on") -> Command:
        return self.start("--resume-session", self.root, *self.flags(model), prompt)

    def flags(self, model: str) -> list[str]:
        rules = ["--permission-mode", "yolo"]
        return ["-m", f"{model}/script", *rules, "--data-dir", str(self.data)]

    @property
    def tree(self) -> TreePaths | None:
        """The one published tree; None when there is none."""
        found = [one for one in self.trees() if not one.name.startswith(".")]
        assert len(found) <= 1
        return TreePaths(found[0]) if found else None

    @property
    def root(self) -> str:
        assert self.tree is not None
        return self.tree.directory.name

    def trees(self) -> list[Path]:
        """Every directory of a tree, published or not."""
        sessions = sessions_dir(self.data)
        keys = sessions.iterdir() if sessions.is_dir() else ()
        return sorted(one for key in keys for one in key.iterdir() if one.is_dir())

    def log(self) -> bytes:
        return b"" if self.tree is None else self.tree.root.events.read_bytes()

    def effects(self) -> list[str]:
        path = self.workspace / "effects.txt"
        return path.read_text().splitlines() if path.exists() else []

    def litter(self) -> list[str]:
        """What lies in the workspace and nobody asked for, the staged files apart."""
        wanted = {"seed.txt", "made.txt", "effects.txt", *self.staged()}
        return sorted(one.name for one in self.workspace.iterdir() if one.name not in wanted)

    def staged(self) -> list[str]:
        """Files that `write` or `edit` had begun and not yet put in their place."""
        return [one.name for one in self.workspace.glob(".cookie-*.tmp")]

    def strays(self) -> list[str]:
        """Every live process that was started in here, whoever is its parent now."""
        home = f"HOME={self.home}".encode()
        found = []
        for process in proc.processes():
            here = Path(f"/proc/{process.pid}")
            with contextlib.suppress(OSError):
                at_home = home in (here / "environ").read_bytes().split(b"\0")
                if at_home or (here / "cwd").readlink().is_relative_to(self.home):
                    found.append(f"{process.pid} {(here / 'cmdline').read_bytes()!r}")
        return found

    def until_alone(self, limit_s: float = GONE_S) -> list[str]:
        """Wait until nothing that was started in here lives; what does after `limit_s`."""
        until = time.monotonic() + limit_s
        while (found := self.strays()) and time.monotonic() < until:
            time.sleep(POLL_S)
        return found

    def until_unlocked(self, limit_s: float = GONE_S) -> bool:
        """Wait until the tree can be taken: a process loses its descriptors after its memory."""
        assert self.tree is not None
        until = time.monotonic() + limit_s
        while (held := is_locked(self.tree)) and time.monotonic() < until:
            time.sleep(POLL_S)
        return not held

    def incarnations(self) -> list[Path]:
        return sorted(self.runtime.glob("cookie/*/*/*-*"))

    def end(self) -> None:
        for stray in self.strays():  # only after a failure
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(stray.split()[0]), signal.SIGKILL)


def _config(names: Iterable[str]) -> str:
    return "".join(
        f'[providers.{name}]\nsource = "custom"\nadaptor = "scripted"\n'
        f'setup = {{ script = "{SCRIPTS / name}.yaml" }}\n[providers.{name}.models.script]\n'
        for name in names
    )


def wait_for(path: Path) -> None:
    """Wait until a failpoint has left its mark."""
    until = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(POLL_S)


@contextlib.contextmanager
def space() -> Iterator[Space]:
    """A short path: a socket's may not be long."""
    home = Path(tempfile.mkdtemp(prefix="ck-", dir="/tmp"))
    here = Space(home)
    try:
        yield here
    finally:
        here.end()
        shutil.rmtree(home, ignore_errors=True)


# --- one kill, from the first word to the last judgement -----------------------------------------


@dataclass
class Report:
    """What a number of kills came to."""

    kills: int = 0
    told: int = 0
    torn: int = 0
    staged: int = 0
    resumed_same_run: int = 0
    interrupted: int = 0
    nothing_open: int = 0
    not_begun: int = 0
    too_late: int = 0
    recover_s: list[float] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def line(self) -> str:
        def count(*words: str) -> int:
            return sum(any(word in one for word in words) for one in self.complaints)

        times = sorted(self.recover_s) or [0.0]
        middle, last = times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]
        return (
            f"kills={self.kills} told={self.told} lost={count('told and not in')} "
            f"dup={count('out of order or twice', 'follows')} "
            f"double_effects={count('was done')} torn={self.torn} staged={self.staged} "
            f"resumed_same_run={self.resumed_same_run} interrupted={self.interrupted} "
            f"nothing_open={self.nothing_open} not_begun={self.not_begun} "
            f"too_late={self.too_late} complaints={len(self.complaints)} "
            f"recover_p50/p99={middle:.2f}/{last:.2f}s"
        )


class Trial:
    """One session that is killed, perhaps more than once, and resumed until it is done."""

    def __init__(self, space: Space, report: Report, name: str) -> None:
        self._space = space
        self._report = report
        self._name = name
        self._told: list[bytes] = []
        self._kills = 0
        self._before = b""

    def go(
        self,
        *,
        fp: str = "",
        after: tuple[str, float] | None = None,
        again: Sequence[str] = (),
    ) -> None:
        """Kill the first worker at failpoint `fp`, or `after` so many seconds since ("start" or
        "event", s); kill those that resume at the failpoints `again`; then let one finish.
        """
        command = self._space.first(fp=fp)
        killed = bool(fp) or (after is not None and self._kill(command, *after))
        outcome = command.wait()
        self._fell(outcome, killed=killed, at=fp)
        for at in (*again, ""):
            if outcome.code == 1 and outcome.resume_words() is None:
                break  # it had not begun
            log = parse(self._before)
            run = open_run(log)
            can_go_on = run is not None and not in_the_worlds_hands(log)
            words = outcome.resume_words() or self._words()
            outcome = self._space.start(*words, *([] if can_go_on else ["go on"]), fp=at).wait()
            if at:
                self._fell(outcome, killed=True, at=at)
            else:
                self._count(log, run, can_go_on=can_go_on)
                self._finished(outcome, log)

    def _words(self) -> list[str]:
        """The worker was killed when its run was over: the command had nothing to complain of."""
        return ["--resume-session", self._space.root, *self._space.flags("kills")]

    def _kill(self, command: Command, since: str, seconds: float) -> bool:
        if since == "event" and not command.until(bool):
            return False
        time.sleep(seconds)
        return command.kill_worker()

    def _count(self, log: Log, run: str | None, *, can_go_on: bool) -> None:
        self._report.resumed_same_run += can_go_on
        self._report.interrupted += run is not None and not can_go_on
        self._report.nothing_open += run is None

    def _fell(self, outcome: Outcome, *, killed: bool, at: str) -> None:
        """Judge what a killed worker left; `at` is the failpoint that killed it, if one did."""
        report, space = self._report, self._space
        over = outcome.code == 0
        self._complain([f"{at} was never come to"] if over and at else [])
        report.kills += killed
        report.too_late += over
        self._complain([] if over else command_says_so(outcome))
        if space.tree is None:
            report.not_begun += 1
            self._complain(["told of a tree that is not there"] * bool(outcome.told))
            self._complain([f"left unpublished: {one}" for one in space.trees()])
            self._complain([f"an effect before the log: {one}" for one in space.effects()])
            self._complain([f"left alive: {one}" for one in space.until_alone()])
            return
        self._judge(outcome, kills=1)

    def _finished(self, outcome: Outcome, before: Log) -> None:
        if outcome.code != 0:
            self._complain([f"the resume ended with {outcome.code}: {outcome.stderr!r}"])
        log = self._judge(outcome, kills=0)
        self._complain(ends(log, all_of_them=True) + recovered(before, log))
        new = log.events[len(before.events) :]
        if new:
            first = datetime.fromisoformat(new[0]["timestamp"]).timestamp()
            self._report.recover_s.append(first - outcome.started)
        else:
            self._complain(["the resume appended nothing"])

    def _judge(self, outcome: Outcome, *, kills: int) -> Log:
        space, report = self._space, self._report
        self._complain([f"left alive: {one}" for one in space.until_alone()])
        assert space.tree is not None
        self._complain(["its lock is not free"] * is_locked(space.tree))
        self._complain([f"left in the workspace: {one}" for one in space.litter()])
        # A kill between its beginning and its rename leaves one; nobody takes it for the file.
        staged, self._kills = len(space.staged()), self._kills + kills
        self._complain(
            [f"{staged} staged files after {self._kills} kills"] * (staged > self._kills)
        )
        report.staged += staged * (not kills)
        raw, effects = space.log(), space.effects()
        before, log = parse(self._before), parse(raw)
        self._told += outcome.told
        report.told += len(outcome.told)
        report.torn += log.bad - before.bad
        self._complain(told_is_kept(log, self._told))
        self._complain(seq_rises(log))
        self._complain(torn(before, log, kills=kills))
        self._complain(nothing_rewritten(self._before, raw))
        self._complain(effects_once(effects))
        self._complain(effects_follow_the_log(log, effects))
        self._complain(ends(log, all_of_them=False))
        if kills:
            self._complain(recovered(before, log, finished=False))
        self._before = raw
        return log

    def _complain(self, complaints: Iterable[str]) -> None:
        self._report.complaints += [f"{self._name}: {one}" for one in complaints]


def command_says_so(outcome: Outcome) -> list[str]:
    """Exit code 1, the cause, and the line that resumes it, or that there is nothing to resume."""
    complaints = []
    if outcome.code != 1:
        complaints.append(f"exit code {outcome.code} when the worker was killed")
    if "killed by SIGKILL" not in outcome.stderr:
        complaints.append(f"no cause: {outcome.stderr!r}")
    if outcome.resume_words() is None and "it had not begun" not in outcome.stderr:
        complaints.append(f"no line to go on with: {outcome.stderr!r}")
    if [one["type"] for one in outcome.records[-1:]] != ["summary"]:
        complaints.append(f"the last record is no summary: {outcome.records[-1:]}")
    return complaints
