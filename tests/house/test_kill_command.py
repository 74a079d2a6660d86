"""`cookie run` itself is killed or told to stop: what it had started ends, and the log says why."""

import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cookie.cli.headless import CANCEL_PATIENCE_S
from ipc.seams import proc
from tests.house.kills import (
    DEADLINE_S,
    GONE_S,
    POLL_S,
    Command,
    Outcome,
    Space,
    ends,
    parse,
    seq_rises,
    space,
    told_is_kept,
    torn,
    wait_for,
)

pytestmark = pytest.mark.house

ORPHANED = "the process that asked for it is gone"
HELD = "session is owned by another cookie process"


@pytest.fixture
def home() -> Iterator[Space]:
    with space() as here:
        yield here


def streaming(told: bytes) -> bool:
    return told.count(b'"text_delta"') > 3


def sleeping(told: bytes) -> bool:
    return b"asleep" in told.partition(b"tool_call_progress")[2]


WORK = [
    pytest.param("stream", streaming, id="stream"),
    pytest.param("sleep", sleeping, id="sleep"),
]
Seen = Callable[[bytes], bool]


def at_work(home: Space, work: str, seen: Seen) -> Command:
    command = home.first("orphan", work)
    assert command.until(seen), command.wait()
    return command


def check_log(home: Space, outcomes: list[Outcome], reason: str | None) -> None:
    """What was told is there, everything has ended, and the last word is why."""
    log = parse(home.log())
    told = [line for outcome in outcomes for line in outcome.told]
    assert told_is_kept(log, told) == []
    assert seq_rises(log) == []
    assert ends(log, all_of_them=True) == []
    assert log.bad == 0
    if reason is not None:
        last = log.events[-1]["payload"]
        assert (last["type"], last["reason"]) == ("run_cancelled", reason)


@pytest.mark.parametrize(("work", "seen"), WORK)
def test_a_killed_command_takes_everything_with_it_and_the_log_says_why(
    home: Space, work: str, seen: Seen
) -> None:
    command = at_work(home, work, seen)
    worker = command.worker()
    assert worker is not None
    tools = proc.marked(f"{home.root}:")
    assert len(tools) >= (3 if work == "sleep" else 0)
    command.signal(signal.SIGKILL)
    killed = command.wait()
    assert home.until_alone(GONE_S) == []
    assert home.until_unlocked(GONE_S)
    assert proc.read_process(worker.pid) != worker
    assert proc.marked(f"{home.root}:") == []
    check_log(home, [killed], ORPHANED)
    assert len(home.incarnations()) == 1

    resumed = home.again("orphan").wait()
    assert (resumed.code, resumed.records[-1]["final_text"]) == (0, "Here I am again.")
    assert home.incarnations() == []
    check_log(home, [killed, resumed], None)


def test_a_command_killed_while_its_run_is_being_recorded_has_that_run_cancelled(
    home: Space,
) -> None:
    mark = home.home / "mark"
    fp = f"log.sync:1:mark={mark},log.sync:1:sleep=0.5"  # of the writer's thread; the loop goes on
    command = home.first("orphan", "stream", fp=fp)
    wait_for(mark)
    command.signal(signal.SIGKILL)
    killed = command.wait()
    assert home.until_alone(GONE_S) == []
    check_log(home, [killed], ORPHANED)


def test_a_session_whose_command_was_killed_is_taken_up_by_who_tries_again(home: Space) -> None:
    """At once, or after refusals that say to try again soon: its worker is still ending."""
    command = at_work(home, "sleep", sleeping)
    command.signal(signal.SIGKILL)
    until = time.monotonic() + GONE_S
    resumed = home.again("orphan").wait()
    while resumed.code != 0:
        assert HELD in resumed.stderr
        assert "try again soon" in resumed.stderr
        assert time.monotonic() < until
        resumed = home.again("orphan").wait()
    killed = command.wait()
    check_log(home, [killed, resumed], None)


def test_what_outlived_both_a_command_and_its_worker_ends_before_the_run_goes_on(
    home: Space,
) -> None:
    command = at_work(home, "sleep", sleeping)
    worker = command.worker()
    assert worker is not None
    command.signal(signal.SIGSTOP)  # so that it does not see its worker die
    proc.kill(worker)
    command.signal(signal.SIGKILL)
    killed = command.wait()
    assert len(proc.marked(f"{home.root}:")) >= 3
    assert home.until_unlocked(GONE_S)
    resumed = home.again("orphan").wait()
    assert resumed.code == 0
    assert home.until_alone() == []
    check_log(home, [killed, resumed], None)


@pytest.mark.parametrize(("work", "seen"), WORK)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_once_and_waits_for_the_end(
    home: Space, work: str, seen: Seen, number: signal.Signals
) -> None:
    command = at_work(home, work, seen)
    command.signal(number)
    outcome = command.wait()
    assert outcome.code == 4
    assert home.strays() == []
    assert home.incarnations() == []
    check_log(home, [outcome], "user")
    assert outcome.told[-1] == parse(home.log()).lines[-1]
    assert outcome.records[-1]["exit_code"] == 4


def rests(pid: int) -> bool:
    """Whether a process has taken every signal and sleeps again."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    said = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    pending = int(said["SigPnd"], 16) | int(said["ShdPnd"], 16)
    return not pending and said["State"].startswith("S")


def test_a_second_interrupt_kills_a_worker_that_does_not_listen(home: Space) -> None:
    command = at_work(home, "sleep", sleeping)
    worker = command.worker()
    assert worker is not None
    proc.kill(worker, signal.SIGSTOP)
    began = time.monotonic()
    command.signal(signal.SIGINT)
    until = time.monotonic() + DEADLINE_S
    while not rests(command.pid):  # two that come together are one
        assert time.monotonic() < until
        time.sleep(POLL_S)
    command.signal(signal.SIGINT)
    outcome = command.wait()
    assert time.monotonic() - began < CANCEL_PATIENCE_S, "not the second one, the patience ended it"
    assert outcome.code == 4
    assert "killed by SIGKILL" in outcome.stderr
    assert outcome.resume_words() is not None
    assert home.until_alone() == []
    resumed = home.again("orphan").wait()
    assert resumed.code == 0
    check_log(home, [outcome, resumed], None)


@pytest.mark.parametrize(
    ("fp", "left"),
    [
        ("fs.flock:2", ".new-"),  # its directory is there, its lock not taken
        ("fs.rename:1", ".new-"),
        ("fs.write:3", ".staging-"),
    ],
)
def test_a_command_killed_while_its_tree_is_born_leaves_nothing_behind_the_next_run(
    home: Space, fp: str, left: str
) -> None:
    killed = home.first("orphan", "go on", fp=f"{fp}:kill").wait()
    assert (killed.code, killed.told) == (-signal.SIGKILL, [])
    assert home.until_alone(GONE_S) == []
    assert [one.name.startswith(left) for one in home.trees()] == [True]
    outcome = home.first("orphan", "go on").wait()
    assert outcome.code == 0
    assert [one.name for one in home.trees()] == [home.root]
    assert home.incarnations() == []


def killed_at_random(chance: random.Random) -> None:
    """A command killed anywhere between its exec and its end, and the next one."""
    with space() as home:
        command = home.first()
        time.sleep(chance.uniform(0, 1.2))
        command.signal(signal.SIGKILL)
        killed = command.wait()
        assert home.until_alone(GONE_S) == []
        log = parse(home.log())
        assert torn(parse(b""), log, kills=0) == []
        assert told_is_kept(log, killed.told) == []
        assert ends(log, all_of_them=True) == []
        # Whether or not there was a session, the folder is as good as new, and the next run sweeps
        # what is left beside it (one that lives for more than a moment does).
        known = home.tree is not None
        assert not known or home.until_unlocked(GONE_S)
        outcome = (home.again("orphan") if known else home.first("orphan", "go on")).wait()
        assert outcome.code == 0, outcome
        check_log(home, [killed, outcome], None)
        assert home.incarnations() == []
        assert [one.name for one in home.trees()] == [home.root]


@pytest.mark.parametrize("seed", range(3))
def test_a_command_killed_at_a_random_moment_leaves_nothing_but_its_log(seed: int) -> None:
    killed_at_random(random.Random(seed))


@pytest.mark.long
def test_a_hundred_commands_killed_at_random_moments_leave_nothing_but_their_logs() -> None:
    chance = random.Random(100)
    for _ in range(100):
        killed_at_random(chance)
