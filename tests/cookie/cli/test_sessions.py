"""`cookie sessions`, command by command, on real files."""

import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from cookie.cli.sessions import sessions
from cookie.daemon import locks
from ipc.disk.metadata import read_metadata
from ipc.disk.paths import workspace_paths
from tests.fakes.lockers import HOLD, running, said
from tests.fakes.logs import Log, call, text, tool_round
from tests.fakes.shelf import Shelf, session_id, titled

DAY = 86_400.0
ONE, TWO, THREE = (session_id(number) for number in (1, 2, 3))
ESCAPES = "\x1b]0;owned\x07 \x9b31m red \u202e olleh\r"
OBEYED = ("\x1b", "\x07", "\x9b", "\u202e", "\r")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    here = Shelf(tmp_path / "data", tmp_path / "ws")
    monkeypatch.chdir(here.cwd)
    return here


Cookie = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cookie(shelf: Shelf, capfd: pytest.CaptureFixture[str]) -> Cookie:
    """Run `cookie sessions ...`; the exit code and both streams."""

    def run(*words: str, home: bool = True) -> tuple[int, str, str]:
        command = typer.main.get_command(sessions)
        where = ["--data-dir", str(shelf.data)] if home else []
        code = command.main([*words, *where], prog_name="cookie sessions", standalone_mode=False)
        out, err = capfd.readouterr()
        return code or 0, out, err

    return run


def short(title: str) -> Log:
    log = Log()
    log.created()
    log.user(title)
    return titled(log, title)


# --- list ----------------------------------------------------------------------------------------


def test_a_list_is_newest_first_with_age_state_and_title(shelf: Shelf, cookie: Cookie) -> None:
    now = time.time()
    shelf.put(1, titled(tool_round(), "Do three things"), age_s=3 * DAY, now=now)
    shelf.put(2, short("Fix the\u3000parser"), age_s=70, now=now)
    shelf.put(3, short("never written down"), age_s=20 * DAY, now=now, metadata=False)

    code, out, err = cookie("list")

    assert (code, err) == (0, "")
    assert out == (
        f"{TWO}    1m  idle         Fix the parser\n"
        f"{ONE}    3d  completed    Do three things\n"
        f"{THREE}    2w  unfinished   (no title)\n"
    )


def test_a_list_opens_no_log_and_stats_each_session_once(
    shelf: Shelf, cookie: Cookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is a directory can be looked at and not opened as a file."""
    for number in range(3):
        tree = shelf.put(number, short(f"number {number}"))
        tree.root.events.unlink()
        tree.root.events.mkdir()
    looked: list[str] = []
    real = os.stat

    def watching(path: Any, **how: Any) -> os.stat_result:
        if "sessions" in os.fspath(path).split("/"):
            looked.append(Path(path).name)
        return real(path, **how)

    monkeypatch.setattr(os, "stat", watching)
    code, out, err = cookie("list")

    assert (code, out.count("number"), err) == (0, 3, "")
    assert looked.count("events.jsonl") == 3
    assert len(looked) <= 3 + 2  # and the directory of the workspace


def test_json_is_an_object_a_line(shelf: Shelf, cookie: Cookie) -> None:
    shelf.put(1, short("Ünder\x9b way"), now=1_700_000_000)
    shelf.put(2, short("x"), now=1_600_000_000, metadata=False)

    code, out, _ = cookie("list", "--json")

    first, second = map(json.loads, out.splitlines())
    assert code == 0
    assert first == {
        "session_id": ONE,
        "title": "Ünder\x9b way",
        "status": "idle",
        "cwd": "/w",
        "last_event_seq": 3,
        "changed": 1_700_000_000,
        "path": str(shelf.workspace.tree(ONE).directory),
    }
    assert (second["title"], second["status"], second["cwd"]) == (None, None, str(shelf.cwd))


def test_no_sessions_are_no_error(shelf: Shelf, cookie: Cookie) -> None:
    assert cookie("list") == (0, "", "cookie: there are no sessions here yet\n")
    assert cookie("list", "--json") == (0, "", "")
    assert cookie("list", "--all") == (0, "", "cookie: there are no sessions here yet\n")


def test_metadata_that_is_damaged_is_said_so_and_the_session_is_listed(
    shelf: Shelf, cookie: Cookie
) -> None:
    tree = shelf.put(1, short("x"))
    tree.root.metadata.write_text('{"session_id": "\x1b[2J"}')

    code, out, err = cookie("list")

    assert (code, out.split()[0], "unfinished" in out) == (0, ONE, True)
    assert err.startswith(f"cookie: {tree.root.metadata}: ")
    assert err.count("\n") == 1


def test_all_lists_every_folder_and_names_it(shelf: Shelf, cookie: Cookie) -> None:
    other = Shelf(shelf.data, shelf.cwd.parent / "other")
    shelf.put(1, short("here"), age_s=1)
    other.put(2, short("there"), metadata=False)
    (shelf.data / "sessions" / "a file").touch()

    code, out, _ = cookie("list", "--all")

    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [TWO, ONE]
    assert out.splitlines()[0].endswith(f"(no title)  [{other.cwd}]")
    assert cookie("list")[1].count("\n") == 1


def test_a_title_does_nothing_to_a_terminal(shelf: Shelf, cookie: Cookie) -> None:
    shelf.put(1, short(f"{ESCAPES}{'long ' * 30}"), now=time.time())

    _, out, _ = cookie("list")

    assert not [character for character in OBEYED if character in out]
    assert "\ufffd]0;owned\ufffd" in out
    assert len(out.splitlines()[0]) == 36 + 2 + 4 + 2 + 11 + 2 + 60


def test_a_folder_that_is_gone_is_said_so(shelf: Shelf, cookie: Cookie) -> None:
    shelf.cwd.rmdir()

    for words in (["list"], ["show", "x"], ["delete", "x"], ["prune", "--older", "1d"]):
        assert cookie(*words) == (
            5,
            "",
            "cookie: the current directory is gone: cd to one that is there\n",
        )


# --- one session ---------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [ONE, ONE[:8], "Do thr", "do THREE things"])
def test_a_session_is_named_by_id_or_by_how_its_id_or_title_begins(
    shelf: Shelf, cookie: Cookie, named: str
) -> None:
    shelf.put(1, titled(tool_round(), "Do three things"))
    shelf.put(2, short("Do it"))

    code, out, err = cookie("show", named)

    assert (code, out.splitlines()[0], err) == (0, "# Do three things", "")


def test_a_whole_id_is_found_in_whatever_folder_it_is(shelf: Shelf, cookie: Cookie) -> None:
    """`list --all` shows it, so that it can be asked for."""
    other = Shelf(shelf.data, shelf.cwd.parent / "other")
    tree = other.put(2, short("There it is"))

    assert cookie("show", TWO)[1].startswith("# There it is\n")
    assert cookie("export", TWO)[1].encode() == tree.root.events.read_bytes()
    assert cookie("show", TWO[:8])[0] == 5  # a beginning is of this folder
    assert cookie("delete", TWO) == (0, f"deleted {TWO}\n", "")
    assert not tree.directory.exists()


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("fix", "2 sessions begin with 'fix': "),
        ("nothing like it", "no session in {cwd} has an id or a title that begins with "),
        (THREE, f"no session {THREE} in {{cwd}}: and no other folder has it"),
        ("../../etc", "no session in {cwd} has an id or a title that begins with "),
        ("\x1b[2J", "no session in {cwd} has an id or a title that begins with "),
    ],
)
@pytest.mark.parametrize("command", ["show", "export", "delete"])
def test_a_session_that_is_not_there_is_one_line(
    shelf: Shelf, cookie: Cookie, command: str, named: str, told: str
) -> None:
    shelf.put(1, short("Fix the lexer"))
    shelf.put(2, short("Fix the parser"))

    code, out, err = cookie(command, named)

    assert (code, out) == (1 if command == "delete" else 5, "")
    assert err.startswith(f"cookie: {told.format(cwd=shelf.cwd)}")
    assert (err.count("\n"), "\x1b" in err) == (1, False)
    assert len(list(shelf.workspace.directory.glob("0*"))) == 2


def test_a_log_that_nobody_can_read_is_one_line_and_changes_nothing(
    shelf: Shelf, cookie: Cookie
) -> None:
    tree = shelf.put(1, short("x"))
    tree.root.events.write_text("no log\n")
    before = shelf.cwd / "export.jsonl"
    before.write_text("what was there")

    for words in (["show", ONE], ["export", ONE], ["export", ONE, "-o", str(before)]):
        code, out, err = cookie(*words)
        assert (code, out) == (5, "")
        assert err.startswith("cookie: the session's log can't be read: ")
    assert before.read_text() == "what was there"


# --- export --------------------------------------------------------------------------------------


def test_what_is_exported_is_the_log_byte_for_byte(shelf: Shelf, cookie: Cookie) -> None:
    tree = shelf.put(1, tool_round())
    file = shelf.cwd / "export.jsonl"
    file.write_text("longer than " * 10_000)
    file.chmod(0o640)

    assert cookie("export", ONE) == (0, tree.root.events.read_text(), "")
    assert cookie("export", ONE, "-o", str(file)) == (0, "", "")
    assert file.read_bytes() == tree.root.events.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_what_can_not_be_read_is_left_out_and_counted(shelf: Shelf, cookie: Cookie) -> None:
    tree = shelf.put(1, tool_round())
    lines = tree.root.events.read_bytes().splitlines(keepends=True)
    bad = [*lines[:5], b"\x00\xffgarbage\n", *lines[6:], lines[3][:20]]
    tree.root.events.write_bytes(b"".join(bad))

    code, out, err = cookie("export", ONE)

    assert (code, out.encode()) == (0, b"".join([*lines[:5], *lines[6:]]))
    assert err == "cookie: 2 lines of the log could not be read\n"


def test_a_log_is_not_exported_into_itself(shelf: Shelf, cookie: Cookie) -> None:
    tree = shelf.put(1, tool_round())
    before = tree.root.events.read_bytes()
    link = shelf.cwd / "link.jsonl"
    link.symlink_to(tree.root.events)

    code, _, err = cookie("export", ONE, "-o", str(link))

    assert (code, err) == (
        5,
        f"cookie: {link}: this is the session's own log; choose another file\n",
    )
    assert tree.root.events.read_bytes() == before


# --- search --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("THREE", "2 prompt: do three things"),
        ("all done", "9 answer: all done"),
        ("needle in", '6 bash: {"command": "find needle in hay"}'),
        ("file te", "8 output of bash: file text"),
        ("the ti", "title: The title"),
    ],
)
def test_search_finds_what_was_said_and_done_and_tells_where(
    shelf: Shelf, cookie: Cookie, wanted: str, place: str
) -> None:
    log = Log()
    log.created()
    log.user("do three things")
    log.run_started("run")
    log.attempt("a")
    find = call("c", arguments='{"command": "find needle in hay"}')
    log.turn(text("let me see"), find, attempt="a")
    log.started("c")
    log.ended("c", "file text")
    log.turn(text("all done"), attempt="b")
    log.run_ended()
    shelf.put(1, titled(log, "The title"))
    shelf.put(2, short("something else"))

    assert cookie("search", wanted) == (0, f"{ONE}  {place}\n", "")


def test_search_finds_nothing_with_exit_code_1_and_passes_over_what_is_damaged(
    shelf: Shelf, cookie: Cookie
) -> None:
    shelf.put(1, short("needle"))
    shelf.put(2, short("needle")).root.events.write_text("damaged")

    code, out, err = cookie("search", "needle")
    assert (code, out) == (0, f"{ONE}  title: needle\n")
    assert err.startswith("cookie: the session's log can't be read: ")

    assert cookie("search", "hay")[:2] == (1, "")
    with pytest.raises(Exception, match="say what to look for"):
        cookie("search", " ")


def test_a_hit_is_one_line_that_does_nothing_to_a_terminal(shelf: Shelf, cookie: Cookie) -> None:
    log = Log()
    log.created()
    log.user(f"before\n{'x' * 300} {ESCAPES}ﬁNeedle\nİ after {'y' * 300}")
    shelf.put(1, log)

    code, out, _ = cookie("search", "needle")

    assert (code, out.count("\n")) == (0, 1)
    assert "Needle" in out
    assert not [character for character in OBEYED if character in out]
    assert len(out) < 250


# --- delete and prune ----------------------------------------------------------------------------


def test_what_is_deleted_is_gone_with_all_below_it(shelf: Shelf, cookie: Cookie) -> None:
    tree = shelf.put(1, short("x"))
    child = tree.child(session_id(5)).directory
    child.mkdir(parents=True)
    (child / "events.jsonl").touch()
    outside = shelf.cwd / "outside"
    outside.write_text("stays")
    (tree.directory / "link").symlink_to(outside)
    shelf.put(2, short("y"))

    assert cookie("delete", ONE) == (0, f"deleted {ONE}\n", "")

    assert [one.name for one in shelf.workspace.directory.iterdir() if one.is_dir()] == [TWO]
    assert outside.read_text() == "stays"


def test_a_session_that_a_process_owns_is_not_deleted_and_the_others_are(
    shelf: Shelf, cookie: Cookie
) -> None:
    owned = shelf.put(1, short("owned"))
    shelf.put(2, short("free"))

    with running(HOLD, owned.directory) as holder:
        assert said(holder) == "held"
        code, out, err = cookie("delete", ONE, TWO)
        assert (code, out) == (1, f"deleted {TWO}\n")
        assert err == (
            "cookie: session is owned by another cookie process: "
            f"a `cookie run` with pid {holder.pid}\n"
        )
        pruned = cookie("prune", "--older", "0s")
        assert pruned[:2] == (0, "")
        assert pruned[2].startswith(f"cookie: kept {ONE}: session is owned by another")
        assert pruned[2].endswith("cookie: 0 sessions deleted\n")

    assert owned.root.events.read_bytes()
    assert read_metadata(owned.root.metadata, ONE) is not None
    assert cookie("delete", ONE)[0] == 0


def test_a_reader_may_read_what_a_process_owns(shelf: Shelf, cookie: Cookie) -> None:
    owned = shelf.put(1, short("owned"))

    with running(HOLD, owned.directory) as holder:
        assert said(holder) == "held"
        assert cookie("show", ONE)[0] == 0
        assert cookie("export", ONE)[0] == 0
        assert cookie("list")[0] == 0


def test_what_a_broken_off_deletion_left_is_not_listed_and_a_sweep_takes_it(
    shelf: Shelf, cookie: Cookie
) -> None:
    """`.dead-` is out of the way already; the next process that makes a session removes it."""
    shelf.put(1, short("x")).directory.rename(shelf.workspace.dead("1234").directory)

    assert cookie("list")[1] == ""
    assert cookie("delete", ".dead-1234")[0] == 1
    assert locks.sweep_unborn(shelf.workspace) == 1
    assert not [one for one in shelf.workspace.directory.iterdir() if one.is_dir()]


def test_prune_takes_what_is_older_and_a_dry_run_takes_nothing(
    shelf: Shelf, cookie: Cookie
) -> None:
    now = time.time()
    shelf.put(1, short("old \x1b[31m"), age_s=31 * DAY, now=now)
    shelf.put(2, short("young"), age_s=29 * DAY, now=now)
    shelf.put(3, short("x"), age_s=40 * DAY, now=now, metadata=False)

    assert cookie("prune", "--older", "30d", "--dry-run") == (
        0,
        f"would delete {ONE}  old \ufffd[31m\nwould delete {THREE}  (no title)\n",
        "cookie: 2 sessions would be deleted\n",
    )
    assert cookie("list")[1].count("\n") == 3

    assert cookie("prune", "--older", "30d") == (
        0,
        f"deleted {ONE}  old \ufffd[31m\ndeleted {THREE}  (no title)\n",
        "cookie: 2 sessions deleted\n",
    )
    assert [line.split()[0] for line in cookie("list")[1].splitlines()] == [TWO]
    assert cookie("prune", "--older", "30d")[2] == "cookie: 0 sessions deleted\n"


def test_a_session_that_went_on_while_it_was_found_old_is_kept(shelf: Shelf) -> None:
    """The age is looked at again when nobody else can write any more."""
    now = time.time()
    tree = shelf.put(1, short("x"), age_s=DAY, now=now)
    long_ago = int((now - 2 * DAY) * 1e9)

    with pytest.raises(locks.Changed, match="it has changed meanwhile"):
        locks.delete(tree, unchanged_since_ns=long_ago)
    os.close(locks.take(tree))  # it is there, and free

    locks.delete(tree, unchanged_since_ns=int(now * 1e9))
    assert not tree.directory.exists()


def test_prune_also_takes_what_a_broken_off_deletion_left(shelf: Shelf, cookie: Cookie) -> None:
    shelf.put(1, short("x")).directory.rename(shelf.workspace.dead("1234").directory)

    assert cookie("prune", "--older", "1d", "--dry-run")[2].endswith(
        "0 sessions would be deleted\n"
    )
    assert shelf.workspace.dead("1234").directory.exists()
    assert cookie("prune", "--older", "1d")[2] == "cookie: 0 sessions deleted\n"
    assert not [one for one in shelf.workspace.directory.iterdir() if one.is_dir()]


def test_prune_all_takes_them_from_every_folder(shelf: Shelf, cookie: Cookie) -> None:
    other = Shelf(shelf.data, shelf.cwd.parent / "other")
    other.put(1, short("there"))
    shelf.put(2, short("here"))

    assert cookie("prune", "--older", "1d")[2] == "cookie: 1 session deleted\n"
    assert cookie("prune", "--older", "1d", "--all")[2] == "cookie: 1 session deleted\n"


@pytest.mark.parametrize("age", ["30", "d", "-1d", "1.5d", "1y", "", "9999999d", "1d1d"])
def test_an_age_that_is_none_is_refused_before_anything_goes(
    shelf: Shelf, cookie: Cookie, age: str
) -> None:
    shelf.put(1, short("x"))

    with pytest.raises(Exception, match="--older is a number and a unit like 30d"):
        cookie("prune", "--older", age)
    assert workspace_paths(shelf.data, shelf.cwd).tree(ONE).directory.exists()


def test_a_call_without_its_end_and_a_search_in_it_do_no_harm(shelf: Shelf, cookie: Cookie) -> None:
    log = Log()
    log.created()
    log.user("go")
    log.run_started("run")
    log.attempt("a")
    log.turn(text("hm"), call("c1"), attempt="a")
    log.started("c1")
    shelf.put(1, log)

    code, out, _ = cookie("show", ONE)

    assert (code, "_No result._" in out, "_A run is open._" in out) == (0, True, True)
    assert cookie("search", "hm")[0] == 0
