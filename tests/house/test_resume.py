"""A run that its worker's death cut off goes on as the same run, and says the same to its model."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.fakes.session import living
from tests.house.kills import ROOT, Log, Space, parse
from tests.house.test_faults import Ran, new_home, run
from workers.providers.base import Request
from workers.providers.script import Call, Say, Think
from workers.providers.scripted import Scripted

pytestmark = pytest.mark.house

# Where a run can go on: nothing of it was in the world's hands (processes.md).
RESUMABLE = [
    "append.run_started.after:1",
    "append.model_attempt_started.after:1",
    "append.model_request_prepared.after:1",
    "append.model_turn_committed.after:1",
    "append.tool_call_started.after:1",
    "append.approval_finalized.after:1",
    "append.approval_finalized.after:2",
    "append.tool_call_terminated.after:1",
    "append.tool_call_terminated.after:2",
    "append.model_request_prepared.after:2",
    "append.model_turn_committed.after:2",
    "append.run_completed.before:1",
]
SHORT = RESUMABLE[2], RESUMABLE[5], RESUMABLE[7], RESUMABLE[11]


@pytest.fixture
def home() -> Iterator[Space]:
    with new_home() as here:
        yield here


def rebuilt(log: Path, seed: str) -> list[bytes]:
    """The requests of a log, made by another process with hashes of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fakes.requests", str(log)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
        capture_output=True,
        check=True,
    )
    return done.stdout.splitlines()


def by_turn(made: list[bytes]) -> list[bytes]:
    """One request a turn; attempts that ask the same again must say the same."""
    turns: dict[int, bytes] = {}
    for request in made:
        turn = json.loads(request)["turn"]
        assert turns.setdefault(turn, request) == request
    return list(turns.values())


def resumed(home: Space, fp: str, model: str = "faults") -> tuple[Log, Log, Ran]:
    """Kill the worker at a failpoint, then go on without another word."""
    killed = run(home, "worker", f"{fp}:kill", "begin", model=model)
    assert killed.code == 1, killed.err
    assert home.tree is not None
    before = home.log()
    words = "--resume-session", home.tree.directory.name
    again = run(home, "worker", "", *words, model=model)
    assert home.log().startswith(before), "what was in the log has changed"
    return parse(before), parse(home.log()), again


def check(home: Space, fp: str, whole: list[bytes]) -> None:
    before, after, again = resumed(home, fp)
    (run_id,) = {event["run_id"] for event in before.of("run_started")}
    assert (again.code, again.err) == (0, ""), fp
    assert again.summary["run_id"] == run_id
    (recovered,) = after.of("worker_recovered")
    assert recovered["payload"]["resumed_run_id"] == run_id
    assert recovered["payload"]["cause"]
    ends = [e["run_id"] for e in after.events if e["payload"]["type"] == "run_completed"]
    assert ends == [run_id]
    assert home.effects() == ["once"]
    assert home.tree is not None
    made = [json.loads(line) for line in by_turn(rebuilt(home.tree.root.events, "7"))]
    assert made == [json.loads(line) for line in whole], fp


@pytest.fixture(scope="module")
def whole() -> list[bytes]:
    """The requests of a run that nobody disturbed."""
    with new_home() as home:
        ran = run(home, "worker", "", "begin")
        assert (ran.code, ran.err) == (0, "")
        assert home.tree is not None
        first = rebuilt(home.tree.root.events, "1")
        assert first == rebuilt(home.tree.root.events, "2")
        return by_turn(first)


@pytest.mark.parametrize("fp", SHORT)
def test_the_same_run_goes_on_and_asks_its_model_the_same(
    home: Space, fp: str, whole: list[bytes]
) -> None:
    assert len(whole) == 2
    check(home, fp, whole)


@pytest.mark.long
@pytest.mark.parametrize("fp", RESUMABLE)
def test_at_each_boundary_the_same_run_goes_on(home: Space, fp: str, whole: list[bytes]) -> None:
    check(home, fp, whole)


def test_a_model_that_had_begun_to_answer_is_not_asked_on(home: Space) -> None:
    before, after, again = resumed(home, "append.text_delta.after:1", "stall")
    assert again.code == 4, again.err
    assert again.err.startswith("cookie: ")
    (interrupted,) = after.of("run_interrupted")
    assert "had begun to answer" in interrupted["payload"]["reason"]
    assert len(after.of("attempt_abandoned")) == 1
    assert before.of("text_delta")
    assert not after.of("run_completed")


def test_a_prompt_for_a_run_that_goes_on_is_said_in_it(home: Space) -> None:
    killed = run(home, "worker", "append.tool_call_terminated.after:1:kill", "begin")
    assert killed.code == 1
    assert home.tree is not None
    again = run(home, "worker", "", "--resume-session", home.tree.directory.name, "again")
    log = parse(home.log())
    assert (again.code, again.err) == (0, "")
    runs = {event["run_id"] for event in log.of("run_started")}
    said = [e["payload"]["input"]["content"][0]["text"] for e in log.of("user_input_submitted")]
    assert said == ["begin", "again"]
    # Said to the run when it heard in time, and else to one of its own.
    assert len(runs) == (1 if log.of("user_input_admitted") else 2)


def test_a_prompt_for_a_run_that_ends_before_it_hears_begins_the_next_one(home: Space) -> None:
    killed = run(home, "worker", "append.run_completed.before:1:kill", "begin")
    assert killed.code == 1
    assert home.tree is not None
    again = run(home, "worker", "", "--resume-session", home.tree.directory.name, "again")
    log = parse(home.log())
    assert (again.code, again.err, again.summary["final_text"]) == (0, "", "Here I am again.")
    assert len(log.of("run_completed")) in {1, 2}
    assert len(log.of("run_started")) == len(log.of("run_completed"))


async def test_what_a_model_was_sent_can_be_rebuilt_from_the_log_by_anybody(
    tmp_path: Path,
) -> None:
    """The requests as the provider got them, against those that another process makes."""
    provider = Scripted(
        [
            [Think("hm", signature="s"), Say("I\u2028 look. "), Call("look", args={"who": "a"})],
            [Call("look", raw="{", id="x"), Call("poke", args={"how": "fail"}, id="x")],
            Say("done"),
        ]
    )
    async with living(tmp_path, provider) as session:
        await session.start("é" * 10)
        await session.over()
    sent = [msgspec.json.encode((one.system, one.messages)) for one in provider.seen]
    assert len(sent) == 3
    made = rebuilt(session.tree.paths.root.events, "1")
    assert made == rebuilt(session.tree.paths.root.events, "2")
    again = [msgspec.json.decode(line, type=Request) for line in made]
    assert [msgspec.json.encode((one.system, one.messages)) for one in again] == sent
