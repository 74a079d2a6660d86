"""`cookie run` as a person and a script meet it: prompts in, answers out, and every way to end."""

import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from cookie.cli.output import RECORD_PREFIX
from ipc.events import StoredEvent
from ipc.fold import SessionState, apply
from ipc.seams import proc
from tests.house.runs import (
    COOKIE,
    DEADLINE_S,
    YOLO,
    Home,
    Ran,
    as_in_foreground,
    held,
    home,
    one_line,
    resume_words,
    until,
)
from workers.providers.base import Message
from workers.run.history import messages

pytestmark = pytest.mark.house

HELLO = "Hello from the script.\n"
PROMISED_S = 5.0  # cases 21: a question nobody can answer ends the run within this


@pytest.fixture
def here() -> Iterator[Home]:
    with home() as made:
        yield made
        assert made.left() == []


# --- the prompt ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["say it"], None),
        (["-p", "say it"], None),
        (["--prompt-file", "prompt.md"], None),
        (["-"], b"say it"),
        (["-p", "-"], b"say it"),
        (["-f", "-"], b"say it"),
        (["--", "say it"], None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_prompt_has_one_of_three_sources_and_a_dash_is_stdin(
    here: Home, words: list[str], stdin: bytes | None
) -> None:
    (here.workspace / "prompt.md").write_text("say it")

    ran = here.run("hello", *words, stdin=subprocess.DEVNULL if stdin is None else stdin)

    assert (ran.code, ran.text, ran.err) == (0, HELLO, "")
    payloads = [json.loads(line)["payload"] for line in here.log().splitlines()]
    (submitted,) = [one for one in payloads if one["type"] == "user_input_submitted"]
    assert submitted["input"] == {"content": [{"type": "text", "text": "say it"}]}


def test_a_stdin_that_nobody_asked_for_is_not_read_and_may_stay_open(here: Home) -> None:
    theirs, ours = os.pipe()
    os.write(ours, b"for somebody else")

    ran = here.run("tool_round", *YOLO, "hi", stdin=theirs)

    assert ran.code == 0
    assert os.read(theirs, 100) == b"for somebody else"
    os.close(ours)
    os.close(theirs)


def test_a_prompt_comes_in_pieces_through_a_pipe_that_does_not_block(here: Home) -> None:
    theirs, ours = os.pipe()
    os.set_blocking(theirs, False)

    with here.start("hello", "-", stdin=theirs) as process:
        for piece in (b"one ", b"two"):
            os.write(ours, piece)
            until(lambda: held(theirs) == 0)
        os.close(theirs)
        os.close(ours)
        out, err = process.communicate()

    assert (process.returncode, out.decode(), err) == (0, HELLO, b"")
    assert b'"text":"one two"' in here.log()


# --- what is printed -----------------------------------------------------------------------------


def test_text_is_the_answer_alone(here: Home) -> None:
    ran = here.run("tool_round", *YOLO, "hi")

    assert (ran.code, ran.text, ran.err) == (0, "The line is written.\n", "")


def test_an_empty_answer_prints_nothing(here: Home) -> None:
    ran = here.run("empty", "hi")

    assert (ran.code, ran.out, ran.err) == (0, b"", "")


def test_json_is_the_log_line_by_line_and_a_summary_last(here: Home) -> None:
    ran = here.run("tool_round", *YOLO, "--json", "hi")

    *records, last = ran.out.splitlines()
    assert [line.removeprefix(RECORD_PREFIX)[:-1] for line in records] == here.log().splitlines()
    events = ran.events
    assert {one["type"] for one in ran.records[:-1]} == {"event"}
    usage = {
        "request_count": 2,
        "input_tokens": 60,
        "output_tokens": 13,
        "reasoning_tokens": 0,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
        "cache_hit_rate": None,
        "estimated_cost_usd": None,
    }
    assert json.loads(last) == {
        "type": "summary",
        "session_id": events[0]["session_id"],
        "run_id": events[-1]["run_id"],
        "status": "completed",
        "exit_code": 0,
        "turns": 2,
        "approval_rejections": 0,
        "event_recoveries": 0,
        "cancellation": None,
        "final_text": "The line is written.",
        "error": None,
        "usage": usage | {"by_model": {"tool_round/script": usage}},
    }


def test_output_none_prints_nothing_but_says_what_failed(here: Home) -> None:
    well = here.run("hello", "-o", "none", "hi")
    ill = here.run("refused_key", "-o", "none", "hi")

    assert (well.code, well.out, well.err) == (0, b"", "")
    assert (ill.code, ill.out) == (1, b"")
    assert one_line(ill.err).startswith("refused_key/script: the key is not valid; go on with: ")


def test_an_output_file_holds_what_stdout_would(here: Home) -> None:
    file = here.workspace / "out"
    file.write_text("what an earlier run wrote, and much longer than the answer is\n")
    file.chmod(0o640)

    text = here.run("hello", "--output-file", "out", "hi")
    assert (text.code, text.out, file.read_text()) == (0, b"", HELLO)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640

    records = here.run("hello", "--output-file", "out", "--json", "--continue", "hi")
    assert (records.code, records.out) == (0, b"")
    assert json.loads(file.read_bytes().splitlines()[-1])["final_text"] + "\n" == HELLO

    failed = here.run("refused_key", "--output-file", "out", "--continue", "hi")
    assert (failed.code, file.read_text()) == (1, "")  # not the answer of another run


def test_stream_prints_the_text_of_every_turn_while_it_comes(here: Home) -> None:
    whole = here.run("tool_round", *YOLO, "--stream", "hi")
    assert (whole.code, whole.text) == (0, "I write a line.\nThe line is written.\n")

    with here.start("drip", "--stream", "--continue", "hi") as process:
        assert process.stdout is not None
        assert process.stdout.read(15) == b"drip drip drip "
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 4
    assert rest.endswith(b"\n")


def test_verbose_adds_a_log_on_stderr_and_tool_output_to_json(here: Home) -> None:
    text = here.run("four_tools", *YOLO, "--verbose", "hi")
    assert text.code == 0
    said = text.err.splitlines()
    assert all(line.startswith("cookie: ") for line in said)
    assert re.fullmatch("cookie: session [0-9a-f-]{36}", said[0])
    assert "cookie: asking four_tools/script (attempt 1)" in said
    assert any(re.match("cookie: call: .*cat made.txt", line) for line in said), said

    plain = here.run("four_tools", *YOLO, "--json", "--continue", "hi")
    verbose = here.run("four_tools", *YOLO, "--json", "--verbose", "--continue", "hi")
    pieces = [one for one in verbose.records if one["type"] == "tool_output"]
    assert {one["type"] for one in plain.records} == {"event", "summary"}
    assert [set(one) for one in pieces] == [{"type", "call_id", "stream", "byte_offset", "data"}]
    assert (pieces[0]["byte_offset"], pieces[0]["data"]) == (0, "one\nthree\n")


# --- what may be done ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["ask", "auto-approve", "auto_approve_n"])
def test_what_must_be_asked_for_ends_a_headless_run_at_once(here: Home, mode: str) -> None:
    theirs, ours = os.pipe()  # an open stdin is nobody who answers
    ran = here.run("tool_round", "--permission-mode", mode, "--json", "hi", stdin=theirs)
    os.close(theirs)
    os.close(ours)

    assert ran.code == 3
    asked, cancelled = (moment(ran, kind) for kind in ("approval_requested", "run_cancelled"))
    assert (cancelled - asked).total_seconds() < PROMISED_S
    said = one_line(ran.err)
    assert said == (
        "stopped: bash 'echo one line >> effects.txt' must be asked for and nobody can answer "
        "here; allow it with --allowed-tools bash, or everything with --permission-mode yolo"
    )
    summary = ran.summary
    assert (summary["status"], summary["exit_code"]) == ("cancelled", 3)
    assert (summary["cancellation"], summary["approval_rejections"]) == ("permission", 1)
    assert summary["error"] == said
    assert not (here.workspace / "effects.txt").exists()


def moment(ran: Ran, kind: str) -> datetime:
    (event,) = [one for one in ran.events if one["payload"]["type"] == kind]
    return datetime.fromisoformat(event["timestamp"])


def test_auto_approve_y_lets_it_pass_and_warns_once(here: Home) -> None:
    ran = here.run("batch", "--permission-mode", "auto-approve-y", "hi")

    assert ran.code == 0
    assert one_line(ran.err) == (
        "auto-approve-y: nothing judges the calls yet; what must be asked for is allowed"
    )


def test_an_allowed_tool_passes_and_another_does_not(here: Home) -> None:
    ran = here.run("four_tools", "--permission-mode", "ask", "--allowed-tools", "write", "hi")

    assert ran.code == 3
    assert (here.workspace / "made.txt").read_text() == "one\nthree\n"
    assert "bash 'cat made.txt' must be asked for" in one_line(ran.err)
    both = ["--allowed-tools", "write, bash", "--allowed-tools", "read"]
    assert here.run("four_tools", "--permission-mode", "ask", *both, "hi").code == 0


# --- how it ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_and_the_end_is_waited_for(here: Home, number: signal.Signals) -> None:
    with here.start("drip", "--json", "hi") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = iter(process.stdout.readline, b"")
        out = [next(line for line in lines if b"text_delta" in line)]
        process.send_signal(number)
        out += lines
        err = process.stderr.read().decode()

    assert process.returncode == 4
    assert json.loads(out[-2])["event"]["payload"] == {"type": "run_cancelled", "reason": "user"}
    summary = json.loads(out[-1])
    assert (summary["status"], summary["exit_code"]) == ("cancelled", 4)
    assert (summary["cancellation"], summary["error"]) == ("user", "cancelled: user")
    assert one_line(err).startswith("cancelled: user; go on with: cookie run --resume-session ")


def test_nohup_is_respected(here: Home) -> None:
    def nohup() -> None:
        as_in_foreground()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with here.start("drip", "--stream", "hi", preexec=nohup) as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.send_signal(signal.SIGHUP)
        process.stdout.read(50)  # it goes on
        process.send_signal(signal.SIGINT)
        process.communicate()

    assert process.returncode == 4


def test_an_interrupt_kills_the_tool_that_runs(here: Home) -> None:
    with here.start("sleep", *YOLO, "hi") as process:
        until(lambda: b"tool_call_executing" in here.log())
        until(lambda: len(here.space.strays()) >= 3)  # the command, its worker, the tool
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)  # half of what the tool would take

    assert process.returncode == 4
    assert here.types()[-2:] == ["tool_call_terminated", "run_cancelled"]


def test_a_second_interrupt_kills_a_worker_that_does_not_stop(here: Home) -> None:
    with here.start("stall", "--json", "hi") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = iter(process.stdout.readline, b"")
        next(line for line in lines if b"text_delta" in line)
        worker = child_of(process.pid)
        os.kill(worker.pid, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        until(lambda: first_was_taken(process.pid))
        process.send_signal(signal.SIGINT)
        summary = json.loads(list(lines)[-1])
        err = process.stderr.read().decode()

    assert process.returncode == 4
    assert (summary["status"], summary["exit_code"]) == ("interrupted", 4)
    said = one_line(err)
    assert said.startswith("cancelled: user; its worker is gone: killed by SIGKILL; what it did ")

    # It had been answering, which can't be taken up again: the line says so, and how to go on.
    cut_off = here.command([*COOKIE, "run", *resume_words(err), "--json"])
    assert (cut_off.code, cut_off.summary["status"]) == (4, "interrupted")
    assert cut_off.summary["error"] in one_line(cut_off.err)
    went_on = here.command([*COOKIE, "run", *resume_words(cut_off.err), "-m", "hello/script"])
    assert (went_on.code, went_on.text) == (0, HELLO)


def child_of(pid: int) -> proc.Process:
    (child,) = [one for one in proc.processes() if one.parent == pid]
    return child


def first_was_taken(pid: int) -> bool:
    """No SIGINT is pending: the next one is a second one."""
    status = Path(f"/proc/{pid}/status").read_text()
    pending = int(re.search(r"^ShdPnd:\s*([0-9a-f]+)", status, re.MULTILINE)[1], 16)  # type: ignore[index]
    return not pending & 1 << (signal.SIGINT - 1)


@pytest.mark.parametrize(
    ("script", "words", "reason", "flag"),
    [
        ("endless", ["--max-turns", "3"], "max_turns", "--max-turns"),
        ("stall", ["--timeout", "1"], "timeout", "--timeout"),
    ],
)
def test_a_limit_cancels_and_says_which(
    here: Home, script: str, words: list[str], reason: str, flag: str
) -> None:
    ran = here.run(script, *YOLO, *words, "--json", "hi")

    assert ran.code == 4
    assert ran.events[-1]["payload"] == {"type": "run_cancelled", "reason": reason}
    assert ran.summary["error"] == f"cancelled: {reason} (raise {flag} to allow more)"
    assert ran.summary["turns"] == (3 if script == "endless" else 0)
    assert one_line(ran.err).startswith(ran.summary["error"])
    # The line goes on with the session: it stops at the same limit no more.
    words = resume_words(ran.err)
    assert words[-1] == "go on"


def test_a_failed_run_says_why_on_both_sides(here: Home) -> None:
    ran = here.run("refused_key", "--json", "hi")

    assert ran.code == 1
    assert (ran.summary["status"], ran.summary["exit_code"]) == ("failed", 1)
    assert ran.summary["error"] == "refused_key/script: the key is not valid"
    assert one_line(ran.err).startswith(ran.summary["error"])


@pytest.mark.parametrize("to_file", [False, True], ids=["stdout", "file"])
def test_a_worker_that_dies_is_told_with_the_line_that_goes_on(here: Home, to_file: bool) -> None:
    fp = {"COOKIE_FP": "append.tool_call_terminated.after:1:kill"}
    words = ["--json", *(["--output-file", "out"] if to_file else [])]
    ran = here.run("tool_round", *YOLO, *words, "hi", env=fp)

    assert ran.code == 1
    said = one_line(ran.err)
    assert said.startswith("the worker of this run is gone: killed by SIGKILL; what it did is kept")
    out = (here.workspace / "out").read_bytes() if to_file else ran.out
    summary = json.loads(out.splitlines()[-1])
    assert (summary["type"], summary["status"], summary["exit_code"]) == ("summary", "failed", 1)
    assert summary["error"] == "the worker of this run is gone: killed by SIGKILL"

    before = here.log()
    went_on = here.command([*COOKIE, "run", *resume_words(ran.err), "--json"])
    assert (went_on.code, went_on.err) == (0, "")
    assert went_on.summary["run_id"] == summary["run_id"]
    assert went_on.summary["final_text"] == "The line is written."
    assert here.log().startswith(before)
    assert (here.workspace / "effects.txt").read_text() == "one line\n"


def test_a_worker_that_dies_before_it_began_leaves_nothing_to_go_on_with(here: Home) -> None:
    fp = {"COOKIE_FP": "append.session_created.before:1:kill"}
    ran = here.run("hello", "--json", "hi", env=fp)

    assert ran.code == 1
    assert one_line(ran.err).endswith("killed by SIGKILL; it had not begun; run the command again")
    assert (ran.summary["status"], ran.summary["run_id"]) == ("failed", None)


def test_a_worker_that_answers_no_more_is_ended_after_wedged_after(here: Home) -> None:
    here.config.write_text(f'{here.config.read_text()}[workers]\nwedged_after = "300ms"\n')
    with here.start("stall", "hi") as process:
        until(lambda: b"text_delta" in here.log())
        os.kill(child_of(process.pid).pid, signal.SIGSTOP)
        _, err = process.communicate(timeout=20)

    assert process.returncode == 1
    assert one_line(err.decode()).startswith("the worker of this run is gone: killed by SIG")


# --- one session after another -------------------------------------------------------------------


def test_a_resumed_session_only_grows(here: Home) -> None:
    first = here.run("tool_round", *YOLO, "--json", "hi")
    before = here.log()

    second = here.run("tool_round", *YOLO, "--json", "--continue", "again")

    assert (second.code, second.err) == (0, "")
    assert here.log().startswith(before)
    assert seen(here.log())[: len(seen(before))] == seen(before)
    assert second.summary["session_id"] == first.summary["session_id"]
    assert second.summary["run_id"] != first.summary["run_id"]
    assert second.summary["turns"] == 2  # of this run
    assert second.events[0]["seq"] > first.events[-1]["seq"]
    by_prefix = ["--resume-session", first.summary["session_id"][:-4]]
    assert here.run("tool_round", *YOLO, *by_prefix, "third").code == 0


def seen(log: bytes) -> tuple[Message, ...]:
    """What a model is sent of a session whose log this is."""
    state = SessionState()
    for line in log.splitlines():
        apply(state, msgspec.json.decode(line, type=StoredEvent))
    return messages(state.view())


def test_a_session_that_is_in_use_is_left_alone(here: Home) -> None:
    with here.start("drip", "--stream", "hi") as process:
        assert process.stdout is not None
        process.stdout.read(5)
        second = here.run("hello", "--continue", "hi", "--json")
        process.send_signal(signal.SIGINT)
        process.communicate()

    assert (second.code, second.out) == (5, b"")
    said = one_line(second.err)
    assert said.startswith("session is owned by another cookie process: a `cookie run` with pid ")
    assert str(process.pid) in said


def test_twenty_at_once_in_one_workspace_all_succeed(here: Home) -> None:
    running = [here.start("tool_round", *YOLO, f"number {n}") for n in range(20)]
    ended = [(process.communicate(timeout=50), process.returncode) for process in running]

    assert ended == [((b"The line is written.\n", b""), 0)] * 20
    assert (here.workspace / "effects.txt").read_text() == "one line\n" * 20
    assert len(here.space.trees()) == 20
