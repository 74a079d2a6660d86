"""A session as a page: the whole page of one that has it all, and what may not be on it."""

from pathlib import Path

import pytest

from cookie.cli.transcript import OUTPUT_LINES_MAX, markdown
from ipc.content import MediaBlock, ThinkingBlock, ToolError, Usage, UserInput
from ipc.disk.log import LogRead, read_log
from ipc.events import (
    AgentMdEntry,
    AgentMdLoaded,
    AgentMdSkipped,
    Event,
    MessageInjected,
    RunCancelled,
    RunFailed,
    RunInterrupted,
    SessionReverted,
    SkillInvocationNoted,
    UserInputSubmitted,
    WorkerRecovered,
)
from ipc.events.codec import encode
from ipc.fold import SessionState, apply
from tests.fakes.logs import Log, call, text, tool_round
from tests.fakes.samples import all_samples
from tests.fakes.shelf import titled

PICTURE = MediaBlock(mime="image/png", digest="d" * 64, byte_length=7, name="a.png")  # type: ignore[arg-type]
HOSTILE = "\x1b]52;c;ZWNobyBoaQ==\x07\x9b2J\u202e\x7f\r\u2066"


def read(tmp_path: Path, lines: list[bytes]) -> tuple[SessionState, LogRead]:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(lines))
    state, found = SessionState(), read_log(path)
    for event in found.events():
        apply(state, event)
    return state, found


def lines_of(log: Log) -> list[bytes]:
    return [encode(event) + b"\n" for event in log.events]


def page(tmp_path: Path, log: Log) -> str:
    return markdown(*read(tmp_path, lines_of(log)))


def begun() -> Log:
    log = Log()
    log.created()
    return log


def test_a_session_reads_from_top_to_bottom(tmp_path: Path) -> None:
    log = titled(begun(), "The title")
    log.add(AgentMdLoaded(entries=(AgentMdEntry(source="AGENTS.md", text="x", original_bytes=1),)))
    log.add(UserInputSubmitted(input=UserInput(content=(text("look\nat this"), PICTURE))))
    log.run_started("run 1")
    log.attempt("a1")
    log.turn(
        ThinkingBlock(text="I wonder"),
        ThinkingBlock(text="", redacted=True),
        text("Let me see."),
        call("c1", "read"),
        call("c2", "bash", '{"command": "a `quoted` one"}'),
        call("c3", "write"),
    )
    log.usage(Usage(input_tokens=100, output_tokens=20))
    log.started("c1")
    log.ended("c1", "one\ttab\r\ntwo\n", attachments=(PICTURE,))
    log.started("c2")
    log.ended("c2", error=ToolError(code="execution", message="exit\n1"))
    log.turn(text("Done."), attempt="a2")
    log.run_ended()

    assert page(tmp_path, log) == (
        "# The title\n"
        "\n"
        "- session: `session`\n"
        "- folder: `/w`\n"
        "- agent: x, fake/one\n"
        "- 15 events, last at 2026-01-02T03:04:15.000Z, completed\n"
        "\n"
        "_Instructions were read from `AGENTS.md`._\n"
        "\n"
        "## You\n"
        "\n"
        "look\n"
        "at this\n"
        "[a.png, image/png, 7 bytes]\n"
        "\n"
        "## fake/one\n"
        "\n"
        "> I wonder\n"
        "\n"
        "Let me see.\n"
        "\n"
        "**c1**\n"
        "\n"
        "```\n"
        "one    tab\n"
        "two\n"
        "```\n"
        "[a.png, image/png, 7 bytes]\n"
        "\n"
        "**c2**\n"
        "\n"
        "_failed: execution: exit 1_\n"
        "\n"
        "**write** `{}`\n"
        "\n"
        "_No result._\n"
        "\n"
        "## fake/one\n"
        "\n"
        "Done.\n"
        "\n"
        "_100 tokens in, 20 out._\n"
    )


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (RunFailed(error="no\nway"), "_The run failed: no way_"),
        (RunCancelled(reason="timeout"), "_The run was cancelled: timeout_"),
        (RunInterrupted(reason=None), "_The run was interrupted: no reason given_"),  # type: ignore[arg-type]
        (WorkerRecovered(cause="killed by SIGKILL"), "_A new worker took over: killed by SIGKILL_"),
        (SessionReverted(through_seq=2), "_What came after event 2 was taken back._"),
        (
            AgentMdSkipped(source="AGENTS.md", reason="too big"),
            "_AGENTS.md was not read: too big_",
        ),
        (SkillInvocationNoted(name="docs"), "_The skill docs was used again._"),
        (
            MessageInjected(role="user", input=UserInput(content=(text("wake up"),))),
            "## user (injected)\n\nwake up",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_happened_to_a_run_is_told(tmp_path: Path, event: Event, told: str) -> None:
    log = begun()
    log.user("go")
    if type(event).__name__.startswith("Run"):
        log.run_started("run")
        log.run_ended(event)
    else:
        log.add(event)

    assert f"\n\n{told}\n\n" in page(tmp_path, log)


def test_an_open_run_is_told(tmp_path: Path) -> None:
    log = begun()
    log.user("go")
    log.run_started("run")

    assert "\n_A run is open._\n" in page(tmp_path, log)


def test_what_could_not_be_read_is_told_before_anything_else(tmp_path: Path) -> None:
    lines = lines_of(tool_round())
    lines[5] = b"\x1b[2Jgarbage\n"
    del lines[8:10]
    told = markdown(*read(tmp_path, lines))

    before, _, _ = told.partition("## You")
    assert "\n> 1 line of the log could not be read:\n> - byte " in before
    assert "\n> Events that are in no line:\n> - seq 6\n> - seq 9 to 10\n" in before
    assert "\x1b" not in told


def test_many_that_could_not_be_read_are_counted(tmp_path: Path) -> None:
    lines = lines_of(tool_round())
    told = markdown(*read(tmp_path, [lines[0], *[b"{}\n"] * 100, *lines[1:]]))

    assert "\n> 100 lines of the log could not be read:\n" in told
    assert told.count("> - byte ") == 64
    assert "\n> - and 36 more\n" in told


def test_an_event_that_was_read_in_part_is_told(tmp_path: Path) -> None:
    lines = lines_of(tool_round())
    lines[2] = lines[2].replace(b'"engine_version":null', b'"engine_version":[1]')
    told = markdown(*read(tmp_path, lines))

    assert "\n> 1 line could be read in part only:\n> - seq 3: " in told


def test_a_long_output_is_cut_and_its_fence_holds(tmp_path: Path) -> None:
    log = begun()
    log.user("go")
    log.run_started("run")
    log.turn(call("c1"), call("c2"))
    log.started("c1")
    log.ended("c1", "\n".join(f"line {n}" for n in range(OUTPUT_LINES_MAX + 1)))
    log.started("c2")
    log.ended("c2", "````\ninside\n  ```\n")
    log.run_ended()

    told = page(tmp_path, log)

    assert f"line {OUTPUT_LINES_MAX - 1}\n... 1 line more\n```\n" in told
    assert "\n`````\n````\ninside\n  ```\n`````\n" in told


@pytest.mark.parametrize("event", all_samples(), ids=lambda event: type(event).__name__)
def test_every_event_can_be_on_a_page_and_none_reaches_a_terminal_raw(
    tmp_path: Path, event: Event
) -> None:
    log = tool_round()
    log.add(event)
    told = page(tmp_path, log)

    assert told.endswith("\n")
    assert all(c.isprintable() or c == "\n" for c in told)


@pytest.mark.parametrize(
    "where", ["title", "prompt", "answer", "thought", "call", "output", "error"]
)
def test_nothing_that_a_terminal_obeys_is_on_the_page(tmp_path: Path, where: str) -> None:
    said = {
        name: HOSTILE if name == where else "x"
        for name in ("title", "prompt", "answer", "thought", "call", "output", "error")
    }
    log = titled(begun(), said["title"])
    log.user(said["prompt"])
    log.run_started("run")
    log.turn(
        text(said["answer"]),
        ThinkingBlock(text=said["thought"]),
        call("c1"),
        call("c2", said["call"], said["call"]),
    )
    log.started("c1")
    log.ended("c1", said["output"])
    log.run_ended(RunFailed(error=said["error"]))

    told = page(tmp_path, log)

    assert all(c.isprintable() or c == "\n" for c in told)
    assert "\ufffd]52;c;ZWNobyBoaQ==\ufffd\ufffd2J" in told


def test_the_blanks_of_other_scripts_are_kept(tmp_path: Path) -> None:
    log = begun()
    log.user("今日は\u3000元気 \u00a0ça va\u202f?")

    assert "今日は\u3000元気 \u00a0ça va\u202f?" in page(tmp_path, log)
