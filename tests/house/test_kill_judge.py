"""The judge of the tests that kill can find each thing it looks for: planted faults, all seen."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.house.kills import (
    Log,
    Outcome,
    Space,
    command_says_so,
    effects_follow_the_log,
    effects_once,
    ends,
    in_the_worlds_hands,
    nothing_rewritten,
    open_run,
    parse,
    recovered,
    seq_rises,
    space,
    told_is_kept,
    torn,
)

Event = dict[str, Any]
CALL = {"model_turn_seq": 1, "content_index": 0, "model_call_id": "m1"}


def turn(arguments: str) -> Event:
    block = {"type": "tool_call", "model_call_id": "m1", "name": "bash", "arguments": arguments}
    return {"model_turn_seq": 1, "turn": {"content": [block]}}


# One tool round as the log has it, whole.
ROUND: list[tuple[str, Event]] = [
    ("run_started", {}),
    ("model_attempt_started", {"attempt_id": "a1"}),
    ("text_delta", {"attempt_id": "a1", "text": "Well. "}),
    ("model_turn_committed", {"attempt_id": "a1", **turn("echo line-1 >> effects.txt")}),
    ("tool_call_started", {"tool_call_id": "c1", "owner": CALL}),
    ("approval_requested", {"request": {"approval_id": "q1"}}),
    ("approval_finalized", {"approval_id": "q1"}),
    ("tool_call_executing", {"tool_call_id": "c1"}),
    ("tool_call_terminated", {"tool_call_id": "c1", "outcome": "completed"}),
    ("model_attempt_started", {"attempt_id": "a2"}),
    ("model_turn_committed", {"attempt_id": "a2", "model_turn_seq": 2, "turn": {"content": []}}),
    ("run_completed", {}),
]
TYPES = [kind for kind, _ in ROUND]


def line(seq: int, kind: str, payload: Event, run: str | None = "r1") -> bytes:
    return json.dumps({"seq": seq, "run_id": run, "payload": {"type": kind, **payload}}).encode()


LINES = [line(seq, kind, payload) for seq, (kind, payload) in enumerate(ROUND, 1)]


def log(lines: list[bytes], tail: bytes = b"") -> Log:
    return parse(b"".join(one + b"\n" for one in lines) + tail)


def until(kind: str, nth: int = 1) -> list[bytes]:
    """The round as far as the `nth` event of a kind, that one included."""
    found = [number for number, one in enumerate(TYPES, 1) if one == kind]
    return LINES[: found[nth - 1]]


def without(kind: str) -> list[bytes]:
    return [one for one, its in zip(LINES, TYPES, strict=True) if its != kind]


def twice(kind: str) -> list[bytes]:
    number = TYPES.index(kind)
    return [*LINES, line(99, *ROUND[number])]


def lost(run: str | None) -> bytes:
    return line(90, "worker_recovered", {"resumed_run_id": run}, None)


def test_a_good_log_gives_no_reason_to_complain() -> None:
    good = log(LINES)
    assert told_is_kept(good, LINES[3:]) == []
    assert seq_rises(good) == []
    assert torn(log(LINES[:3]), good, kills=0) == []
    assert torn(log(LINES[:3]), log(LINES, b'{"se'), kills=1) == []
    assert nothing_rewritten(LINES[0], LINES[0] + b"\n") == []
    assert effects_once(["line-1", "line-2"]) == []
    assert effects_follow_the_log(good, ["line-1"]) == []
    assert ends(good, all_of_them=True) == []


@pytest.mark.parametrize(
    ("complaints", "words"),
    [
        # What was told.
        (told_is_kept(log(LINES[:4]), LINES[:5]), "told and not in the log"),
        (told_is_kept(log([LINES[0].replace(b"r1", b"r2")]), LINES[:1]), "told and not in the log"),
        (told_is_kept(log([LINES[0] + b" "]), LINES[:1]), "told and not in the log"),
        (told_is_kept(log(LINES), [LINES[2], LINES[1]]), "out of order"),
        (told_is_kept(log(LINES), [LINES[1], LINES[1]]), "or twice"),
        # The log as such.
        (seq_rises(log([LINES[1], LINES[0]])), "seq 1 follows 2"),
        (seq_rises(log([LINES[0], LINES[0]])), "seq 1 follows 1"),
        (torn(log([]), log([b"{", b"["]), kills=1), "2 new lines"),
        (torn(log([]), log(LINES, b'{"seq"'), kills=0), "1 new lines"),
        (torn(log([b"\0" * 9]), log([]), kills=1), "-1 new lines"),
        (nothing_rewritten(b"one\ntw", b"one\nto\n"), "has been changed"),
        # What the tools did.
        (effects_once(["line-1", "line-2", "line-1"]), "'line-1' was done 2 times"),
        (effects_once(["line-7"]), "nobody asked for"),
        (
            effects_follow_the_log(log(until("tool_call_started")), ["line-1"]),
            "was done before the log said so",
        ),
        (effects_follow_the_log(log(LINES), []), "was not done and the log says it was"),
        (effects_follow_the_log(log(LINES[:3]), ["line-1"]), "was done by no call"),
        # Beginnings and ends.
        *[
            (ends(log(twice(kind)), all_of_them=False), f"{noun} .. (began|ended) 2 times")
            for noun, kind in [
                ("run", "run_started"),
                ("run", "run_completed"),
                ("attempt", "model_attempt_started"),
                ("attempt", "model_turn_committed"),
                ("call", "tool_call_started"),
                ("call", "tool_call_terminated"),
                ("question", "approval_requested"),
                ("question", "approval_finalized"),
            ]
        ],
        *[
            (ends(log(without(kind)), all_of_them=True), f"{noun} .. never ended")
            for noun, kind in [
                ("run", "run_completed"),
                ("attempt", "model_turn_committed"),
                ("call", "tool_call_terminated"),
                ("question", "approval_finalized"),
            ]
        ],
        (ends(log(without("tool_call_started")), all_of_them=False), "ended and never began"),
        # What the next worker made of it.
        (recovered(log(LINES[:5]), log(LINES)), "does not say that a worker was lost"),
        (
            recovered(log(until("tool_call_executing")), log([*LINES[:8], lost("r1")])),
            "taken up again although the world had hold of it",
        ),
        (
            recovered(log(until("text_delta")), log([*LINES[:3], lost(None), *LINES[3:]])),
            "was given up and ended with run_completed",
        ),
        (
            recovered(log(until("tool_call_started")), log([*LINES[:5], lost(None), *LINES[5:]])),
            "could have gone on and did not",
        ),
        (
            recovered(log(until("tool_call_started")), log([*LINES[:5], lost("r1"), *LINES[5:-1]])),
            "went on and ended with model_turn_committed",
        ),
    ],
)
def test_a_planted_fault_is_seen(complaints: list[str], words: str) -> None:
    assert any(re.search(words, one) for one in complaints), complaints


@pytest.mark.parametrize(
    ("lines", "hands"),
    [
        ([], False),
        (until("run_started"), False),
        (until("model_attempt_started"), False),
        (until("text_delta"), True),
        (until("model_turn_committed"), False),
        (until("tool_call_started"), False),
        (until("tool_call_executing"), True),
        (until("tool_call_terminated"), False),
        ([*until("tool_call_started"), lost("r1")], False),
        ([*until("tool_call_started"), lost(None)], True),
        (LINES, False),
    ],
)
def test_a_run_can_go_on_unless_the_world_has_hold_of_it(lines: list[bytes], hands: bool) -> None:
    assert in_the_worlds_hands(log(lines)) is hands
    assert open_run(log(lines)) == (None if lines in ([], LINES) else "r1")


GOOD = Outcome(
    code=1,
    stderr="cookie: the worker is gone: killed by SIGKILL; go on with: "
    "cookie run --resume-session 0123 --data-dir '/a b'\n",
    told=[],
    records=[{"type": "summary"}],
    started=0.0,
)


def test_a_command_that_says_what_happened_is_believed() -> None:
    assert command_says_so(GOOD) == []
    assert GOOD.resume_words() == ["--resume-session", "0123", "--data-dir", "/a b"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"code": 0}, "exit code 0"),
        ({"stderr": GOOD.stderr.replace("SIGKILL", "?")}, "no cause"),
        ({"stderr": "cookie: killed by SIGKILL\n"}, "no line to go on with"),
        ({"records": []}, "is no summary"),
    ],
)
def test_a_command_that_hides_what_happened_is_seen(change: Event, words: str) -> None:
    (complaint,) = command_says_so(Outcome(**{**vars(GOOD), **change}))
    assert words in complaint


@pytest.fixture
def home() -> Iterator[Space]:
    with space() as here:
        yield here


@pytest.mark.house
@pytest.mark.parametrize(
    "hide",
    [
        pytest.param(lambda home: {"env": {"HOME": str(home.home)}}, id="by its environment"),
        pytest.param(lambda home: {"cwd": home.workspace, "env": {}}, id="by its directory"),
    ],
)
def test_a_process_that_was_left_is_seen(home: Space, hide: Callable[[Space], Event]) -> None:
    left = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True, **hide(home))
    try:
        (found,) = home.until_alone(0)
        assert found.startswith(f"{left.pid} ")
    finally:
        left.kill()
        left.wait()
    assert home.until_alone(0) == []


def test_what_was_left_in_the_workspace_is_seen(home: Space) -> None:
    for name in ("seed.txt", "made.txt", ".cookie-0123.tmp", "made.txt~"):
        (home.workspace / name).touch()
    assert home.litter() == ["made.txt~"]
    assert home.staged() == [".cookie-0123.tmp"]
