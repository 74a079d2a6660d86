"""Records: what is shown of the events of one run, and the summary that is last."""

import json
from pathlib import Path

import pytest

from cookie.cli.output import Output
from cookie.cli.record import Recorder
from cookie.cli.verdict import Verdict, judge
from ipc.content import Usage
from ipc.events import RunCancelled, RunCompleted, ToolCallProgress
from ipc.events.codec import encode
from ipc.ids import SessionId
from tests.fakes.logs import Log, call, text

SESSION = SessionId("session")


class Told:
    """A recorder that is told all of a log, and what it has written of it."""

    def __init__(self, path: Path, shape: str = "text", **how: bool) -> None:
        self.path = path
        self.output = Output(str(path))
        flags = {"stream": False, "verbose": False} | how
        self.recorder = Recorder(self.output, shape, **flags)

    def of(self, log: Log, client: str = "client of run") -> "Told":
        self.recorder.watch(client_id=client)  # type: ignore[arg-type]
        for event in log.events:
            self.recorder.take(encode(event))
        return self

    def end(self) -> str:
        assert self.recorder.ended is not None
        self.recorder.finish(SESSION, judge(self.recorder.ended, self.recorder.state))
        self.output.close()
        return self.path.read_text()

    def records(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.end().splitlines()]


def one_run(end: RunCompleted | RunCancelled | None = None) -> Log:
    log = Log()
    log.created()
    log.user("do it")
    log.run_started("run")
    log.attempt("a1")
    log.delta("a1", "First ")
    log.delta("a1", "this")
    log.turn(text("First this"), call("c1"), attempt="a1")
    log.usage(Usage(input_tokens=10, output_tokens=2), cost=5_000_000)
    log.started("c1")
    log.executing("c1")
    for stream, chunk in (("stdout", "é\n"), ("stderr", "oh"), ("stdout", "more")):
        log.add(ToolCallProgress(tool_call_id="c1", message=stream, output_chunk=chunk))  # type: ignore[arg-type]
    log.add(ToolCallProgress(tool_call_id="c1", message="still at it"))  # type: ignore[arg-type]
    log.ended("c1")
    log.attempt("a2")
    log.delta("a2", "Done.\n")
    log.turn(text("Done.\n"), attempt="a2")
    log.run_ended(end or RunCompleted(final_text="Done.\n"))
    return log


def test_text_is_the_answer_in_whole_lines(tmp_path: Path) -> None:
    assert Told(tmp_path / "1").of(one_run()).end() == "Done.\n"
    bare = one_run(RunCompleted(final_text="Done."))
    assert Told(tmp_path / "2").of(bare).end() == "Done.\n"
    assert Told(tmp_path / "3").of(one_run(RunCompleted())).end() == ""
    assert Told(tmp_path / "4").of(one_run(RunCancelled(reason="user"))).end() == ""


def test_a_stream_is_the_text_of_each_turn_on_lines_of_its_own(tmp_path: Path) -> None:
    assert Told(tmp_path / "1", stream=True).of(one_run()).end() == "First this\nDone.\n"


def test_a_stream_that_breaks_off_ends_its_line(tmp_path: Path) -> None:
    log = one_run()
    del log.events[7:]

    told = Told(tmp_path / "1", stream=True).of(log)
    assert told.recorder.midline
    told.recorder.finish(SESSION, Verdict("failed", 1, "gone"))
    told.output.close()

    assert (tmp_path / "1").read_text() == "First this\n"


def test_json_is_every_line_of_the_run_and_the_summary(tmp_path: Path) -> None:
    log = one_run()
    *events, summary = Told(tmp_path / "1", "json").of(log).records()

    lines = [encode(event).decode() for event in log.events]
    assert events == [{"type": "event", "event": json.loads(line)} for line in lines]
    totals = {
        "request_count": 1,
        "input_tokens": 10,
        "output_tokens": 2,
        "reasoning_tokens": 0,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
        "cache_hit_rate": None,
        "estimated_cost_usd": 5e-06,
    }
    assert summary == {
        "type": "summary",
        "session_id": "session",
        "run_id": "run",
        "status": "completed",
        "exit_code": 0,
        "turns": 2,
        "approval_rejections": 0,
        "event_recoveries": 0,
        "cancellation": None,
        "final_text": "Done.\n",
        "error": None,
        "usage": totals | {"by_model": {"fake/one": totals}},
    }


def test_verbose_json_has_the_output_of_tools_with_offsets_in_bytes(tmp_path: Path) -> None:
    records = Told(tmp_path / "1", "json", verbose=True).of(one_run()).records()

    shape = {"type": "tool_output", "call_id": "c1"}
    assert [one for one in records if one["type"] == "tool_output"] == [
        shape | {"stream": "stdout", "byte_offset": 0, "data": "é\n"},
        shape | {"stream": "stderr", "byte_offset": 0, "data": "oh"},
        shape | {"stream": "stdout", "byte_offset": 3, "data": "more"},
    ]


def test_none_writes_nothing(tmp_path: Path) -> None:
    assert Told(tmp_path / "1", "none").of(one_run()).end() == ""


@pytest.mark.parametrize("known_late", [False, True])
def test_another_run_of_the_session_is_not_shown(tmp_path: Path, known_late: bool) -> None:
    log = one_run()
    log.user("something else")
    log.run_started("other")
    log.attempt("a3")
    log.delta("a3", "no business of ours")
    log.run_ended(RunCompleted(final_text="no business of ours"))
    told = Told(tmp_path / "1", "json")
    if known_late:  # the run's events come before the answer that names it
        for event in log.events:
            told.recorder.take(encode(event))
        told.recorder.watch(run_id="run")  # type: ignore[arg-type]
    else:
        told.of(log)

    shown = told.records()

    assert "no business of ours" not in json.dumps(shown)
    assert shown[-1]["final_text"] == "Done.\n"
