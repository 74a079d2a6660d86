"""Bad input: one clear line that says what to do, the right exit code, and nothing lost or left."""

import os
import re
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cookie.cli.output import RECORD_PREFIX
from tests.house.runs import (
    COOKIE,
    YOLO,
    Home,
    Ran,
    held,
    home,
    is_full,
    one_line,
    resume_words,
    until,
    usage_line,
)

pytestmark = pytest.mark.house

USAGE, INTERRUPTED, SETUP = 2, 4, 5
STRANGER = "0198b5a4-5df0-7000-8000-000000000000"


@pytest.fixture
def here() -> Iterator[Home]:
    with home() as made:
        yield made
        assert made.left() == []


# --- the words of the command line ---------------------------------------------------------------

USAGES = [
    pytest.param(words, line, id=line[:44])
    for words, line in [
        ([], "there is no prompt: cookie run 'what to do' (or - for stdin, or -f FILE)"),
        (["hi", "-p", "hi"], "give the prompt once, not as PROMPT and --prompt"),
        (["fix", "it"], "the prompt is one argument, put it in quotes: 'it' is left over"),
        (["  "], "the prompt: it is empty; say what to do"),
        ([b"\xff"], "the prompt: not UTF-8 text at byte 0"),
        (["hi", "-o", "xml"], "--output is one of text, json, none, not 'xml'"),
        (["hi", "--json", "-o", "text"], "--json and --output say the same thing: give one of"),
        (["hi", "-o", "none", "--output-file", "x"], "--output none writes nothing, so --out"),
        (["hi", "--json", "--stream"], "--stream prints text as it comes; --json has the same"),
        (["hi", "--permission-mode", "maybe"], "--permission-mode is one of auto-approve, auto-"),
        (["hi", "--max-turns", "0"], "Invalid value for '--max-turns': '0' is not a whole number"),
        (["hi", "--timeout", "1e3"], "Invalid value for '--timeout': '1e3' is not a whole number"),
        (["hi", "--timeout", "9" * 30], f"Invalid value for '--timeout': '{'9' * 30}' is not a "),
        (["hi", "--data-dir", ""], "--data-dir is empty: give it a value or leave it out"),
        (["hi", "--allowed-tools", ","], "--allowed-tools is empty: name tools or leave it out"),
        (["hi", "--continue", "--resume-session", "x"], "--continue and --resume-session can't"),
        (["hi", "--colour"], "No such option: --colour"),
        (["hi", "-p"], "Option '-p' requires an argument."),
    ]
]


@pytest.mark.parametrize(("words", "line"), USAGES)
def test_a_wrong_command_line_is_told_before_anything_is_touched(
    here: Home, words: list[str | bytes], line: str
) -> None:
    ran = here.command([*COOKIE, "run", *words])

    assert (ran.code, ran.out) == (USAGE, b"")
    assert usage_line(ran.err).startswith(line)
    assert not (here.path / ".cookie-agent").exists()


TOUR = ["-m", "rehearsal/tour"]
WORDS = [
    (["-m", "nope"], USAGE, "there is no such model as 'nope': a model is written provider/model"),
    (["--allowed-tools", "read,webfetch"], USAGE, "--allowed-tools does not take 'webfetch'; it"),
    (["-m", "nope/x"], SETUP, "there is no model nope/x; there is: hello/script, "),
    (["-a", "ghost"], SETUP, "there is no agent 'ghost'; there is: "),
    (["--resume-session", "nothing"], SETUP, "no session in .* has an id or a title that begins"),
    (["--resume-session", STRANGER], SETUP, f"no session {STRANGER} in .*: no workspace has it"),
    (["--continue"], SETUP, "there is no session in .* yet, so there is none to continue"),
    (["-f", "missing.md"], SETUP, "the prompt file: missing.md: it is not there"),
    (["-f", "."], SETUP, r"\.: it is a directory where a file should be"),
    (["--output-file", "."], SETUP, r"can't write to \.: Is a directory"),
    (["--output-file", "no/such/file"], SETUP, "can't write to no/such/file: No such file or "),
    (
        [*TOUR, "--data-dir", "a-file"],
        SETUP,
        "/.*/a-file/.*: a part of this path is a file where a dir",
    ),
    ([*TOUR, "--data-dir", "/proc/cookie"], SETUP, "/proc/cookie: it is not there"),
    (["--data-dir", b"caf\xe9"], SETUP, "the data directory has a name that is not UTF-8: .*"),
    (["--data-dir", "x" * 300], SETUP, "/.*x/config.toml: can.t be read: File name too long"),
    (["--data-dir", "~nobody-of-this-name/x"], SETUP, "there is no home directory to keep sessio"),
]


@pytest.mark.parametrize(("words", "code", "line"), WORDS, ids=[line[:44] for *_, line in WORDS])
def test_a_wrong_value_is_one_line_and_the_output_file_keeps_what_it_held(
    here: Home, words: list[str | bytes], code: int, line: str
) -> None:
    (here.workspace / "a-file").write_text("not a directory\n")
    kept = here.workspace / "kept.txt"
    kept.write_text("the last answer\n")
    prompt = [] if "-f" in words else ["hi"]
    target = [] if "--output-file" in words else ["--output-file", str(kept)]

    ran = here.command([*here.words("hello"), *target, *words, *prompt])

    assert (ran.code, ran.out) == (code, b"")
    assert re.match(line, one_line(ran.err)), ran.err
    assert kept.read_text() == "the last answer\n"
    assert here.space.trees() == []


def test_an_output_file_that_was_made_for_nothing_is_removed(here: Home) -> None:
    assert here.run("hello", "-m", "no/model", "--output-file", "new.txt", "hi").code == SETUP
    assert not (here.workspace / "new.txt").exists()


def test_a_session_of_another_folder_is_not_opened_from_here(here: Home) -> None:
    elsewhere = here.path / "elsewhere"
    elsewhere.mkdir()
    begun = here.run("hello", "--json", "hi", cwd=elsewhere)

    ran = here.run("hello", "--resume-session", begun.summary["session_id"], "hi")

    assert ran.code == SETUP
    assert one_line(ran.err).endswith(f"it belongs to {elsewhere}; start cookie there")


def test_a_session_with_nothing_open_needs_a_prompt_to_go_on(here: Home) -> None:
    assert here.run("hello", "hi").code == 0

    for words in (["--continue"], ["--continue", "--json"]):
        ran = here.run("hello", *words)
        assert ran.code == SETUP
        assert one_line(ran.err).endswith("has no open run to go on with: give a prompt")
    assert (ran.summary["status"], ran.summary["exit_code"]) == ("failed", SETUP)
    assert ran.summary["error"] in ran.err


def test_without_any_model_the_tour_is_named(here: Home) -> None:
    here.config.unlink()

    ran = here.command([*COOKIE, "run", "--data-dir", str(here.data), "hi"])

    assert ran.code == SETUP
    assert "try `--model rehearsal/tour`, which needs no key and no network" in one_line(ran.err)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = [", r"config\.toml:\d+: not valid TOML: "),
        ("[workers]\nwedged = 3\n", r"config\.toml:2: workers\.wedged: unknown key; "),
        ('[workers]\nwedged_after = "soon"\n', r"config\.toml:2: workers\.wedged_after: must be a"),
    ],
)
def test_a_wrong_config_is_told_with_its_path_and_line(here: Home, text: str, line: str) -> None:
    here.config.write_text(text)

    ran = here.run("hello", "hi")

    assert ran.code == SETUP
    assert re.match(re.escape(str(here.data)) + "/" + line, one_line(ran.err)), ran.err


# --- prompts -------------------------------------------------------------------------------------


def two_mib(more: int) -> bytes:
    return b"a" * (2 * 1024 * 1024 + more)


@pytest.mark.parametrize(
    ("prompt", "line"),
    [
        (b"", "stdin: it is empty; say what to do"),
        (b"a\0b", "stdin: not a text: it has a NUL character at 1"),
        (b"caf\xe9", "stdin: not UTF-8 text at byte 3"),
        (b"\xed\xa0\x80", "stdin: not UTF-8 text at byte 0"),  # a lone surrogate
        (two_mib(1), "stdin: more than 2097152 bytes are not taken as a prompt"),
    ],
    ids=["empty", "NUL", "latin", "surrogate", "too much"],
)
def test_a_prompt_that_is_none_is_refused(here: Home, prompt: bytes, line: str) -> None:
    ran = here.run("hello", "-", stdin=prompt)

    assert (ran.code, ran.out, one_line(ran.err)) == (SETUP, b"", line)
    assert here.space.trees() == []


def test_the_longest_prompt_is_taken_whole(here: Home) -> None:
    (here.workspace / "long.md").write_bytes(two_mib(0))

    assert here.run("hello", "-f", "long.md").code == 0
    assert b'"' + two_mib(0) + b'"' in here.log()


def test_a_closed_stdin_that_is_asked_for_is_told(here: Home) -> None:
    ran = here.command(["sh", "-c", 'exec "$@" <&-', "sh", *here.words("hello", "-")])

    assert ran.code == SETUP
    assert one_line(ran.err) == "stdin: it is closed, so there is no prompt to read"


# --- the surroundings ----------------------------------------------------------------------------


def test_a_folder_that_is_gone_is_told(here: Home) -> None:
    gone = here.path / "gone"
    gone.mkdir()
    argv = ["sh", "-c", 'rmdir "$0"; exec "$@"', str(gone), *here.words("hello", "hi")]

    ran = here.command(argv, cwd=gone)

    assert ran.code == SETUP
    assert one_line(ran.err) == "the current directory is gone: cd to one that is there"


def test_a_folder_whose_name_is_no_text_is_told(here: Home) -> None:
    odd = Path(os.fsdecode(os.fsencode(here.path) + b"/caf\xe9"))
    odd.mkdir()

    ran = here.run("hello", "hi", cwd=odd)

    assert ran.code == SETUP
    assert one_line(ran.err).startswith("the current directory has a name that is not UTF-8: ")


def test_a_runtime_directory_that_is_no_use_is_passed_over(here: Home) -> None:
    for useless in ("", "relative", "/proc/no-such", "/" + "x" * 200):
        ran = here.run("hello", "hi", env={"XDG_RUNTIME_DIR": useless})
        assert (ran.code, ran.err) == (0, "")


def test_without_a_home_the_system_is_asked_for_one(here: Home) -> None:
    argv = [*COOKIE, "run", "-m", "no/model", "hi"]

    ran = here.command(["env", "-u", "HOME", *argv])

    assert ran.code == SETUP  # for the model, and not for the home
    assert "no model no/model" in one_line(ran.err)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_directory_that_may_not_be_written_is_told(here: Home) -> None:
    closed = here.path / "closed"
    closed.mkdir(mode=0o500)

    ran = here.run("hello", "hi", "-m", "rehearsal/tour", "--data-dir", str(closed))

    assert ran.code == SETUP
    assert "no permission; check its owner and mode, or choose --data-dir" in one_line(ran.err)


FULL = "the disk is full; make room and try again"


@pytest.mark.parametrize("call", ["fs.mkdir:*", "fs.open:1", "fs.write:1", "fs.rename:1"])
def test_a_disk_that_is_full_from_the_start_is_told(here: Home, call: str) -> None:
    ran = here.run("hello", "hi", env={"COOKIE_FP": f"{call}:enospc"})

    assert (ran.code, ran.out) == (SETUP, b"")
    assert re.search("the disk is full|No space left", one_line(ran.err)), ran.err


# Before the model's first word and behind it: there the run goes on, here it is interrupted.
@pytest.mark.parametrize("write", [3, 4])
def test_a_disk_that_fills_up_on_the_way_loses_nothing_that_was_said(
    here: Home, write: int
) -> None:
    full = {"COOKIE_FP": f"log.write:{write}+:enospc"}

    ran = here.run("tool_round", *YOLO, "--json", "hi", env=full)

    assert ran.code == 1
    said = one_line(ran.err)
    assert "the disk is full; make room and try again" in said
    assert ran.summary["exit_code"] == 1
    told = [line.removeprefix(RECORD_PREFIX)[:-1] for line in ran.out.splitlines()[:-1]]
    assert here.log().splitlines()[: len(told)] == told

    went_on = here.command([*COOKIE, "run", *resume_words(ran.err)])
    if went_on.code:
        assert (went_on.code, write) == (INTERRUPTED, 4)
        assert one_line(went_on.err).startswith("interrupted: ")
        went_on = here.command([*COOKIE, "run", *resume_words(went_on.err)])

    assert went_on.code == 0, went_on.err


def limited(bytes_max: int) -> Callable[[], None]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, bytes_max))

    return limit


def test_a_file_size_limit_is_told_like_a_full_disk(here: Home) -> None:
    ran = here.run("hello", "hi", preexec_fn=limited(2048))

    assert ran.code == SETUP
    assert "the file may not grow any more; raise `ulimit -f`" in one_line(ran.err)
    assert here.run("hello", "hi").code == 0


# --- the output ----------------------------------------------------------------------------------


def test_a_closed_stdout_is_told_before_anything_runs(here: Home) -> None:
    closed = ["sh", "-c", 'exec "$@" >&-', "sh"]

    ran = here.command([*closed, *here.words("hello", "hi")])

    assert ran.code == SETUP
    assert one_line(ran.err) == (
        "can't write to stdout: it is closed; use --output-file FILE or --output none"
    )
    assert here.space.trees() == []
    for elsewhere in (["--output", "none"], ["--output-file", "answer.txt"]):
        assert here.command([*closed, *here.words("hello", "hi", *elsewhere)]).code == 0
    assert (here.workspace / "answer.txt").read_text() == "Hello from the script.\n"


def test_closed_stdin_and_stderr_harm_nothing(here: Home) -> None:
    for closing in ("<&-", "2>&-", "<&- 2>&-"):
        ran = here.command(["sh", "-c", f'exec "$@" {closing}', "sh", *here.words("hello", "hi")])
        assert (ran.code, ran.out, ran.err) == (0, b"Hello from the script.\n", "")


@pytest.mark.parametrize(
    ("words", "code"),
    [([], 1), (["--stream"], None), (["--json"], None), (["--output-file", "/dev/full"], 1)],
    ids=["text", "stream", "json", "file"],
)
def test_an_answer_that_can_not_be_written_is_no_success_and_is_kept(
    here: Home, words: list[str], code: int | None
) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = here.run("hello", *words, "hi", stdout=full)

    # A run that was still going is cancelled (4); one that was over has failed to tell (1).
    assert ran.code in ({code} if code else {1, 4})
    said = one_line(ran.err)
    assert re.match(r"can't write to (stdout|/dev/full): No space left on device; ", said)
    session = re.search(r"cookie sessions show (\S+)", said)
    assert session, said
    went_on = here.run("hello", "--resume-session", session[1], "again")
    assert (went_on.code, went_on.text) == (0, "Hello from the script.\n")


@pytest.mark.parametrize("words", [["--json"], ["--stream"]], ids=["json", "stream"])
def test_a_reader_that_goes_away_ends_the_run(here: Home, words: list[str]) -> None:
    with here.start("drip", *words, "hi") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        err = process.stderr.read().decode()

    assert process.returncode == 4
    assert one_line(err).startswith("can't write to stdout: Broken pipe; what was done is kept: ")
    assert here.types()[-1] == "run_cancelled"
    assert here.log().splitlines()[-1].endswith(b'"reason":"output_broken"}}')


@pytest.mark.parametrize("limit", [None, "--timeout"])
def test_a_reader_that_stands_still_holds_up_no_end(here: Home, limit: str | None) -> None:
    # Long enough that a slow start still fills the pipe before it is over.
    words = [] if limit is None else [limit, "5"]
    with here.start("torrent", "--json", *words, "hi") as process:
        assert process.stderr is not None
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        until(lambda: is_full(pipe))
        if limit is None:
            process.send_signal(signal.SIGINT)
        err = process.stderr.read().decode()
        process.wait()

    assert process.returncode == 4
    assert one_line(err).startswith("can't write to stdout: its reader stands still; what was ")
    assert here.types()[-1] == "run_cancelled"


@pytest.mark.parametrize(
    "words", [["run", "--help"], ["--help"], ["--version"], ["schema", "events"]], ids=" ".join
)
def test_what_else_is_printed_to_a_full_disk_is_told(here: Home, words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = here.command([*COOKIE, *words], stdout=full)

    assert ran.code == 1
    assert one_line(ran.err) == f"stdout: {FULL}"


def test_descriptors_that_run_out_are_told(here: Home) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (13, 13))

    ran = here.run("hello", "hi", preexec_fn=few)

    assert ran.code == SETUP
    assert "too many open files; raise `ulimit -n`" in one_line(ran.err)


def test_a_wrong_failpoint_is_told(here: Home) -> None:
    ran: Ran = here.run("hello", "hi", env={"COOKIE_FP": "nonsense"})

    assert (ran.code, one_line(ran.err)) == (SETUP, "COOKIE_FP: 'nonsense' is not name:nth:action")


def test_an_interrupt_before_there_is_a_run_ends_us_as_it_ends_any_program(here: Home) -> None:
    with here.start("hello", "-", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"half a prom")
        process.stdin.flush()
        until(lambda: held(process.stdin.fileno()) == 0)
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()

    assert (process.returncode, err) == (-signal.SIGINT, b"")
