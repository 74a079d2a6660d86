"""`cookie run` whose model fails: what it tells, what the log has of it, and what ends a wait."""

import json
import re
import signal
from collections.abc import Iterator

import pytest

from ipc.seams import proc
from tests.house.runs import COOKIE, Home, home, resume_words, until
from tests.house.test_live_line import CTRL_C, Terminal

pytestmark = pytest.mark.house

AGENT = """\
---
description: It
mode: primary
enabled: true
models: [{models}]
permissions: {{read: allow}}
---
You are it.
"""
LIMITED = "cookie: model limited/script: rate limited (429); trying again in 10 min 0 s, attempt 2"
REFUSED = "model refused_key/script: the key was refused (401): the key is not valid"
FELL_BACK = f"cookie: {REFUSED}; going on with hello/script\n"


@pytest.fixture
def here() -> Iterator[Home]:
    with home() as made:
        text = made.config.read_text()
        made.config.write_text(f"{text}\n[model_retry]\nbackoff_ceiling_ms = 1\n")
        yield made
        assert made.left() == []


def chain(here: Home, *names: str) -> None:
    agents = here.data / "agents"
    agents.mkdir()
    models = ", ".join(f"{{model: {name}/script}}" for name in names)
    (agents / "primary.md").write_text(AGENT.format(models=models))


def test_attempts_that_fail_are_made_again_and_told_in_a_line_each(here: Home) -> None:
    ran = here.run("overload", "hi")

    assert (ran.code, ran.text) == (0, "Third time lucky.\n")
    assert ran.err == (
        "cookie: model overload/script: overloaded (529); trying again in 1 s, attempt 2 of 6\n"
        "cookie: model overload/script: the connection failed; trying again in 1 s,"
        " attempt 2 of 4\n"
    )
    kinds = here.types()
    assert (kinds.count("model_attempt_started"), kinds.count("attempt_abandoned")) == (3, 2)


def test_records_have_each_attempt_with_its_error_and_its_pause(here: Home) -> None:
    ran = here.run("overload", "--json", "hi")

    abandoned = [one["payload"] for one in ran.events if "abandoned" in one["payload"]["type"]]
    assert [(one["error"]["kind"], one["retry_in_ms"]) for one in abandoned] == [
        ("overload", 1),
        ("transport", 1),
    ]
    assert ran.summary["final_text"] == "Third time lucky."
    assert ran.summary["error"] is None


def test_with_verbose_each_trouble_is_still_one_line(here: Home) -> None:
    ran = here.run("overload", "--verbose", "hi")

    lines = [line for line in ran.err.splitlines() if "overload" in line]
    assert [line.split("overload/script")[1] for line in lines] == [
        " (attempt 1)",
        ": overloaded (529); trying again in 1 s, attempt 2 of 6",
        " (attempt 2)",
        ": the connection failed; trying again in 1 s, attempt 2 of 4",
        " (attempt 3)",
    ]


def test_a_model_that_cannot_answer_gives_way_to_the_next_and_the_session_stays_with_that(
    here: Home,
) -> None:
    chain(here, "refused_key", "hello")
    first = here.run("refused_key", "hi")
    later = here.command(
        [*COOKIE, "run", "--data-dir", str(here.data), "--continue", "--json", "hi"]
    )
    anew = here.run("refused_key", "--continue", "hi")

    assert (first.code, first.text, first.err) == (0, "Hello from the script.\n", FELL_BACK)
    assert (later.code, later.err) == (0, "")
    (started,) = [one["payload"] for one in later.events if one["payload"]["type"] == "run_started"]
    assert [one["model"] for one in started["selected_suffix"]] == ["hello/script"]
    assert started["agent"]["selected_suffix_start"] == 1
    assert anew.err.startswith(FELL_BACK)  # who names the model wants to see it tried


def test_a_run_that_nobody_answered_says_so_once(here: Home) -> None:
    chain(here, "overload", "refused_key")
    here.config.write_text(
        here.config.read_text().replace("[model_retry]\n", "[model_retry]\noverload_retries = 0\n")
    )
    ran = here.run("overload", "hi")

    assert (ran.code, ran.out) == (1, b"")
    first, last = ran.err.splitlines()
    assert first == (
        "cookie: model overload/script: overloaded (529): busy, come back later;"
        " going on with refused_key/script"
    )
    assert last.startswith(
        "cookie: refused_key/script: the key is not valid (after 2 attempts with 2 models);"
        " go on with: "
    )


def test_an_interrupt_ends_a_wait(here: Home) -> None:
    with here.start("limited", "--json", "hi") as process:
        until(lambda: b"attempt_abandoned" in here.log())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()

    assert process.returncode == 4
    first, last = err.decode().splitlines()
    assert first == f"{LIMITED} of 6"
    assert last.startswith("cookie: cancelled: user; go on with: ")
    records = [json.loads(line) for line in out.splitlines()]
    kinds = [one["event"]["payload"]["type"] for one in records[:-1]]
    assert kinds[-4:] == [
        "model_attempt_started",
        "model_request_prepared",
        "attempt_abandoned",
        "run_cancelled",
    ]
    assert records[-1]["cancellation"] == "user"


def test_a_wait_outlives_its_worker_and_can_still_be_interrupted(here: Home) -> None:
    with here.start("limited", "hi") as process:
        until(lambda: b"attempt_abandoned" in here.log())
        (worker,) = [one for one in proc.processes() if one.parent == process.pid]
        proc.kill(worker)
        _, err = process.communicate()
    assert process.returncode == 1
    line = resume_words(err.decode())

    with here.start("limited", *line[:2]) as process:
        until(lambda: b"worker_recovered" in here.log())
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 4
    assert here.types()[-3:] == ["attempt_abandoned", "worker_recovered", "run_cancelled"]


def test_the_live_line_counts_the_wait_down(here: Home) -> None:
    terminal = Terminal(here, 120, "limited", "hi")

    shown = terminal.until(lambda shown: "asking again in 9 min 5" in "".join(shown))
    assert shown[0] == f"{LIMITED} of 6"
    assert re.fullmatch(r"turn 1 · asking again in 9 min 5\d s · 0 tokens · \d+s", shown[1])
    terminal.type(CTRL_C)
    assert terminal.end() == 4


def test_a_line_of_trouble_never_stands_in_the_middle_of_streamed_text(here: Home) -> None:
    terminal = Terminal(here, 120, "overload", "--stream", "hi")

    assert terminal.end() == 0
    assert terminal.now() == [
        "cookie: model overload/script: overloaded (529); trying again in 1 s, attempt 2 of 6",
        "Almost",
        "cookie: model overload/script: the connection failed; trying again in 1 s, attempt 2 of 4",
        "Third time lucky.",
    ]
