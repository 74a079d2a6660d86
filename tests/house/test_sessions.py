"""`cookie sessions` and resuming, with sessions that real runs made and real runs hold."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.shelf import Shelf
from tests.house.runs import COOKIE, YOLO, Home, Ran, home, one_line, until

pytestmark = pytest.mark.house

HELLO = "Hello from the script.\n"
GROUND = Path(__file__).with_name("ground.py")


@pytest.fixture
def here() -> Iterator[Home]:
    with home() as made:
        yield made
        assert made.left() == []


def sessions(here: Home, *words: str, cwd: Path | None = None) -> Ran:
    return here.command([*COOKIE, "sessions", *words, "--data-dir", str(here.data)], cwd=cwd)


def listed(here: Home) -> list[str]:
    return [line.split()[0] for line in sessions(here, "list").text.splitlines()]


# --- resuming ------------------------------------------------------------------------------------


def test_a_session_is_resumed_by_its_id_the_beginning_of_one_a_title_or_as_the_newest(
    here: Home,
) -> None:
    assert here.run("hello", "First things first").code == 0
    (first,) = listed(here)
    assert here.run("hello", "Second to none").code == 0
    second = listed(here)[0]
    different = next(n for n, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)

    for flags, session in (
        (["--resume-session", first], first),
        (["--resume-session", first[: max(different + 1, 4)]], first),
        (["--resume-session", "second to"], second),
        (["--continue"], second),
        (["--resume-session", "First"], first),
        (["--continue"], first),
    ):
        ran = here.run("hello", *flags, "--json", "and on")
        assert (ran.code, ran.summary["session_id"]) == (0, session), flags
    assert listed(here) == [first, second]


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("sec", "no session in {ws} has an id or a title that begins with 'sec'"),
        ("first", "2 sessions begin with 'first': "),
        (
            "01900000-0000-7000-8000-000000000000",
            "no session 01900000-0000-7000-8000-000000000000 in {ws}: no workspace has it",
        ),
    ],
)
def test_what_names_no_session_or_two_is_one_line_and_begins_nothing(
    here: Home, named: str, told: str
) -> None:
    for _ in range(2):
        assert here.run("hello", "First come").code == 0

    ran = here.run("hello", "--resume-session", named, "and on")

    assert (ran.code, ran.out) == (5, b"")
    assert one_line(ran.err).startswith(told.format(ws=here.workspace))
    assert len(listed(here)) == 2


def test_a_session_of_another_folder_is_read_from_anywhere_and_resumed_at_home(here: Home) -> None:
    assert here.run("hello", "Stay here").code == 0
    (one,) = listed(here)
    elsewhere = here.path / "elsewhere"
    elsewhere.mkdir()

    assert sessions(here, "list", cwd=elsewhere).out == b""
    assert one in sessions(here, "list", "--all", cwd=elsewhere).text
    assert sessions(here, "show", one, cwd=elsewhere).text.startswith("# Stay here\n")
    assert sessions(here, "export", one, cwd=elsewhere).out == here.log()
    ran = here.run("hello", "--resume-session", one, "and on", cwd=elsewhere)
    assert ran.code == 5
    assert one_line(ran.err).endswith(f"it belongs to {here.workspace}; start cookie there")


# --- what a run holds ----------------------------------------------------------------------------


def test_the_session_of_a_run_can_be_read_and_not_deleted_until_the_run_is_over(here: Home) -> None:
    with here.start("sleep", *YOLO, "Wait a minute") as process:
        until(lambda: b'"tool_call_executing"' in here.log())
        (one,) = listed(here)

        refused = sessions(here, "delete", one)
        assert (refused.code, refused.out) == (1, b"")
        assert one_line(refused.err) == (
            f"session is owned by another cookie process: a `cookie run` with pid {process.pid}"
        )
        kept = sessions(here, "prune", "--older", "0s")
        assert f"kept {one}: session is owned" in kept.err
        assert "0 sessions deleted" in kept.err
        assert "_A run is open._" in sessions(here, "show", one).text
        assert sessions(here, "export", one).out == here.log()
        assert one in sessions(here, "search", "wait a").text

        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 4
    assert sessions(here, "delete", one).text == f"deleted {one}\n"
    assert here.space.trees() == []


def test_what_is_exported_is_the_log_and_the_page_tells_what_was_done(here: Home) -> None:
    assert here.run("four_tools", *YOLO, "Do it").code == 0
    (one,) = listed(here)
    out = here.path / "export.jsonl"

    assert sessions(here, "export", one, "-o", str(out)).out == b""
    assert out.read_bytes() == here.log()
    page = sessions(here, "show", one).text
    assert page.startswith("# Do it\n")
    assert "\n```\none\nthree\n```\n" in page


def test_a_session_whose_worker_was_killed_is_listed_and_goes_on(here: Home) -> None:
    killed = {"COOKIE_FP": "append.tool_call_executing.after:1:kill"}
    assert here.run("tool_round", *YOLO, "Do it", env=killed).code == 1

    assert "  unfinished   (no title)" in sessions(here, "list").text
    assert "_A run is open._" in sessions(here, "show", listed(here)[0]).text
    assert here.run("hello", "--continue", "and on").code == 0
    assert "  completed    Do it" in sessions(here, "list").text


# --- where it is printed -------------------------------------------------------------------------


def fill(here: Home, count: int) -> None:
    """One session that ran, with a long log, and `count` that look like it."""
    assert here.run("hello", "The one that ran").code == 0
    shelf = Shelf(here.data, here.workspace)
    (tree,) = [one for one in shelf.workspace.directory.iterdir() if one.is_dir()]
    metadata = json.loads((tree / "metadata").read_text()) | {"title": "x" * 60}
    for number in range(count):
        one = f"01900000-0000-7000-8000-{number:012d}"
        (shelf.workspace.directory / one).mkdir()
        (shelf.workspace.directory / one / "events.jsonl").symlink_to(tree / "events.jsonl")
        (shelf.workspace.directory / one / "metadata").write_text(
            json.dumps(metadata | {"session_id": one})
        )
    log = tree / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    delta = next(line for line in lines if b'"text_delta"' in line)
    grown = [
        re.sub(rb'"seq":\d+', b'"seq":%d' % (len(lines) + number), delta)
        for number in range(1, 2000)
    ]
    log.write_bytes(b"".join([*lines, *grown]))


def test_a_reader_that_has_had_enough_ends_it_in_silence(here: Home) -> None:
    fill(here, 700)  # more than a pipe holds, so that it goes while there is more to say
    for words in (["list"], ["list", "--json"], ["export", "The one"]):
        command = [*COOKIE, "sessions", *words, "--data-dir", str(here.data)]
        with subprocess.Popen(
            command,
            cwd=here.workspace,
            env=here.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read(1)
            process.stdout.close()
            err = process.stderr.read()

        assert (process.returncode, err) == (0, b""), words


def test_deleting_goes_on_when_nobody_reads_what_was_deleted(here: Home) -> None:
    fill(here, 5)
    theirs, ours = os.pipe()
    os.close(theirs)
    ran = here.command(
        [*COOKIE, "sessions", "prune", "--older", "0s", "--data-dir", str(here.data)], stdout=ours
    )
    os.close(ours)

    assert (ran.code, one_line(ran.err)) == (0, "6 sessions deleted")
    assert here.space.trees() == []


def test_a_full_disk_behind_stdout_is_one_line(here: Home) -> None:
    assert here.run("hello", "The one that ran").code == 0
    for words in (["list"], ["export", "The one"], ["show", "The one"]):
        with Path("/dev/full").open("wb") as full:
            ran = here.command(
                [*COOKIE, "sessions", *words, "--data-dir", str(here.data)], stdout=full
            )

        assert ran.code == 1
        assert one_line(ran.err).startswith("can't write to stdout: "), words


# --- the ground ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("nfs", "{data} is no place for sessions: NFS can't promise that one process alone writes"),
        ("open", "{sessions}/"),
    ],
)
def test_a_run_refuses_a_disk_where_a_lock_is_none_and_leaves_nothing(
    here: Home, kind: str, told: str
) -> None:
    begun = time.monotonic()
    ran = here.command(
        [sys.executable, "-P", str(GROUND), kind, *here.words("hello", "hi")[len(COOKIE) :]]
    )

    assert (ran.code, ran.out) == (5, b"")
    said = one_line(ran.err)
    assert said.startswith(told.format(data=here.data, sessions=here.data / "sessions"))
    assert said.endswith("; choose a local disk with --data-dir")
    assert here.space.trees() == []
    assert time.monotonic() - begun < 10
