"""The worker of `cookie run` is killed, at every boundary of a tool round and at random moments.

After each kill: the command says what happened and how to go on; what anybody was told is in the
log as it was told; no tool ran twice; nothing is left alive; and that very line goes on.
"""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from ipc.seams import proc
from tests.house.kills import DEADLINE_S, POLL_S, Report, Space, Trial, parse, space, wait_for

pytestmark = pytest.mark.house

ROUND = [
    "model_attempt_started",
    "model_request_prepared",
    "model_turn_committed",
    "tool_call_started",
    "tool_call_executing",
    "tool_call_terminated",
]
BOUNDARIES = [f"append.{event}.{side}" for event in ROUND for side in ("before", "after")]
VISITS = {name: 10 if ".tool_call_" in name else 6 for name in BOUNDARIES}  # of one kills.yaml
SCENARIO_S = 0.9  # about how long its events come, so that a random moment falls among them


@pytest.fixture
def home() -> Iterator[Space]:
    with space() as here:
        yield here


def kill(home: Space, name: str, **how: object) -> Report:
    report = Report()
    Trial(home, report, name).go(**how)  # type: ignore[arg-type]
    assert report.complaints == []
    return report


def rounds(name: str, number: int) -> int:
    """The visit at which the `number`-th trial of a boundary kills: all of them in their turn."""
    return 1 + (BOUNDARIES.index(name) * 5 + number * 3) % VISITS[name]


@pytest.mark.parametrize("name", BOUNDARIES)
def test_a_kill_at_a_boundary_loses_nothing_and_repeats_nothing(home: Space, name: str) -> None:
    report = kill(home, name, fp=f"{name}:{rounds(name, 0)}:kill")
    assert report.kills == 1
    assert report.resumed_same_run + report.interrupted == 1


@pytest.mark.parametrize(
    "fp",
    [
        "append.session_created.before:1",  # nothing of the tree is seen by anybody
        "log.sync:1",  # it is written and not published
        "append.run_started.after:1",  # it was published this moment
        "provider.first_part:2",
        "tool.effect:3",
    ],
)
def test_a_kill_at_a_birth_or_before_an_effect_is_like_any_other(home: Space, fp: str) -> None:
    report = kill(home, fp, fp=f"{fp}:kill")
    assert report.not_begun == (fp in ("append.session_created.before:1", "log.sync:1"))


@pytest.mark.parametrize("seed", range(6))
def test_a_kill_at_a_random_moment_loses_nothing_and_repeats_nothing(
    home: Space, seed: int
) -> None:
    since = "start" if seed == 0 else "event"
    moment = random.Random(seed).uniform(0, SCENARIO_S)
    kill(home, f"{moment:.3f} s after the {since}", after=(since, moment))


@pytest.mark.parametrize(
    ("first", "again"),
    [
        # A run that can go on, and one that the world has hold of; before and after it is told.
        ("append.model_request_prepared.after:3", "append.worker_recovered.before:1:kill"),
        ("append.model_request_prepared.after:3", "append.worker_recovered.after:1:kill"),
        ("append.tool_call_terminated.before:2", "append.worker_recovered.before:1:kill"),
        ("append.tool_call_terminated.before:2", "append.worker_recovered.after:1:kill"),
        # The recovery's own append is torn behind its first line.
        ("append.tool_call_terminated.before:2", "log.write:1:short=400,fs.write:2:kill"),
    ],
)
def test_a_kill_during_the_recovery_comes_to_the_same(home: Space, first: str, again: str) -> None:
    report = kill(home, f"{first} {again}", fp=f"{first}:kill", again=[again])
    assert report.kills == 2


@pytest.mark.parametrize(("write", "short"), [(5, 1), (12, 100)])
def test_a_kill_in_the_middle_of_a_write_tears_one_line_that_nobody_was_told_of(
    home: Space, write: int, short: int
) -> None:
    report = kill(home, "torn", fp=f"log.write:{write}:short={short},fs.write:{write + 1}:kill")
    assert report.torn == 1


def test_a_run_that_ends_before_the_command_knows_its_name_ends_the_command(home: Space) -> None:
    killed = home.first(fp="append.run_completed.before:1:kill").wait()
    mark, at = home.home / "mark", "append.worker_recovered.before:1"
    words = killed.resume_words()
    assert words is not None
    resumed = home.start(*words, fp=f"{at}:mark={mark},{at}:sleep=0.4")
    wait_for(mark)
    time.sleep(0.2)  # the command greets its worker, which we can't see; too short is no failure
    resumed.signal(signal.SIGSTOP)
    until = time.monotonic() + 2
    while not parse(home.log()).of("run_completed") and time.monotonic() < until:
        time.sleep(POLL_S)
    resumed.signal(signal.SIGCONT)
    outcome = resumed.wait()
    assert outcome.code == 0
    assert outcome.records[-1]["status"] == "completed"


def test_a_tool_that_hides_its_mark_and_its_session_dies_with_the_worker(home: Space) -> None:
    command = home.first("orphan", "hide")
    assert command.until(lambda told: b"asleep" in told.partition(b"tool_call_progress")[2])
    assert command.kill_worker()
    assert command.wait().code == 1
    assert home.until_alone() == []


def test_a_job_of_the_shell_that_became_the_command_is_spared(home: Space) -> None:
    """Its child from before the exec is the command's child, and no orphan of a worker."""
    cookie = [sys.executable, "-P", "-m", "cookie", "run", "--json", *home.flags("orphan"), "hide"]
    shell = subprocess.Popen(
        ["/bin/sh", "-c", '/bin/sleep 60 >/dev/null & exec "$@"', "sh", *cookie],
        env=home.env,
        cwd=home.workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert shell.stdout is not None
    for line in shell.stdout:
        if b"tool_call_progress" in line:
            break
    children = [one for one in proc.processes() if one.parent == shell.pid]
    (job,) = [one for one in children if one.session != one.pid]
    (worker,) = [one for one in children if one.session == one.pid]
    proc.kill(worker)
    shell.communicate(timeout=DEADLINE_S)
    assert shell.returncode == 1
    assert proc.kill(job)


@pytest.mark.long
def test_two_hundred_kills_and_more() -> None:
    report, chance = Report(), random.Random(20)

    def trial(name: str, **how: object) -> None:
        with space() as home:
            Trial(home, report, name).go(**how)  # type: ignore[arg-type]

    for name in BOUNDARIES:
        for number in range(10):
            fp = f"{name}:{rounds(name, number)}:kill"
            trial(fp, fp=fp)
    for number in range(80):
        since = "start" if number % 8 == 0 else "event"
        moment = chance.uniform(0, SCENARIO_S)
        trial(f"random {number}: {moment:.3f} s after the {since}", after=(since, moment))
    for number in range(24):
        name = chance.choice(BOUNDARIES)
        first = f"{name}:{chance.randint(1, VISITS[name])}:kill"
        again = f"append.worker_recovered.{('before', 'after')[number % 2]}:1:kill"
        trial(f"{first} {again}", fp=first, again=[again])
    for _ in range(16):
        write, short = chance.randint(4, 30), chance.randint(1, 240)
        fp = f"log.write:{write}:short={short},fs.write:{write + 1}:kill"
        trial(fp, fp=fp)
    print(report.line())  # `make test-long` shows it
    assert report.complaints == []
    assert report.kills >= 200
