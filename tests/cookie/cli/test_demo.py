"""The demo: what it tells of a run, and what it shows of what the run left."""

from pathlib import Path
from typing import Any

import pytest

from cookie.cli.demo import LINES_SHOWN_MAX, SEEDS, _report, _step


def started(**presentation: str | None) -> dict[str, Any]:
    payload = {"type": "tool_call_started", "presentation": presentation}
    return {"type": "event", "event": {"payload": payload}}


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (started(title="Read a.txt", primary_argument="a.txt"), "Read a.txt"),
        (started(title="Read", primary_argument="a.txt"), "Read a.txt"),
        (started(title="Read", primary_argument=None), "Read"),
        ({"type": "event", "event": {"payload": {"type": "text_delta", "text": "x"}}}, None),
        ({"type": "summary"}, None),
    ],
)
def test_a_tool_call_is_one_line_and_the_rest_is_silent(
    record: dict[str, Any], line: str | None
) -> None:
    assert _step(record) == line


def test_the_report_shows_the_answer_the_new_files_and_the_log(tmp_path: Path) -> None:
    workspace, data = tmp_path / "workspace", tmp_path / "data"
    log = data / "sessions" / "key" / "the-id" / "events.jsonl"
    for path, text in {
        **{workspace / name: text for name, text in SEEDS.items()},
        workspace / "made" / "long.txt": "line\n" * 9,
        log: "{}\n{}\n",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    told = "\n".join(_report({"session_id": "the-id", "final_text": "Hi\n\nall"}, workspace, data))

    assert told.startswith("\nThe answer:\n\n    Hi\n\n    all\n\nThe files it made:\n")
    assert "\n  made/long.txt, 9 lines:\n" + "    line\n" * LINES_SHOWN_MAX + "    ...\n" in told
    assert f"log, 2 events:\n  {log}\n" in told
    assert "--resume-session the-id" in told
    assert "README.md" not in told


def test_a_run_that_never_began_leaves_nothing_to_tell(tmp_path: Path) -> None:
    assert list(_report({}, tmp_path, tmp_path)) == []
