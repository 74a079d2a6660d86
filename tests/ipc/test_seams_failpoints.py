"""Failpoints: what COOKIE_FP may say, and what then happens."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ipc.seams.failpoints import ARMED, BadFailpoint, FailpointHit, Failpoints, Rule, parse


def run(code: str, fp: str | None) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ) if fp is None else {**os.environ, "COOKIE_FP": fp}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )


def test_a_test_run_is_not_armed() -> None:
    assert not ARMED


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", ()),
        ("log.write:1:kill", (Rule("log.write", 1, 1, "kill"),)),
        ("log.write:3+:eio", (Rule("log.write", 3, 0, "eio"),)),
        ("log.write:*:stop", (Rule("log.write", 1, 0, "stop"),)),
        (
            "a.b:2:exit=7, fs.write:1:short=3",
            (Rule("a.b", 2, 2, "exit", "7"), Rule("fs.write", 1, 1, "short", "3")),
        ),
        ("a:1:mark=/tmp/x:y=z", (Rule("a", 1, 1, "mark", "/tmp/x:y=z"),)),
        ("a:1:sleep=0.5", (Rule("a", 1, 1, "sleep", "0.5"),)),
    ],
)
def test_what_cookie_fp_may_say(text: str, rules: tuple[Rule, ...]) -> None:
    assert parse(text) == rules


@pytest.mark.parametrize(
    "text",
    [
        "log.write",
        "log.write:1",
        ":1:kill",
        "log write:1:kill",
        "a:0:kill",
        "a:-1:kill",
        "a:x:kill",
        "a:+:kill",
        "a:1:explode",
        "a:1:kill=9",
        "a:1:exit",
        "a:1:exit=256",
        "a:1:exit=x",
        "a:1:short=-1",
        "a:1:sleep=forever",
        "a:1:sleep=inf",
        "a:1:mark=",
        "a:1:mark",
    ],
)
def test_what_it_may_not_say(text: str) -> None:
    with pytest.raises(BadFailpoint):
        parse(text)


def test_a_bad_cookie_fp_is_one_line_and_exit_code_5() -> None:
    done = run("import ipc.seams.failpoints", "log.write:1:explode")
    assert done.returncode == 5
    assert done.stderr == "cookie: COOKIE_FP: 'explode' is not an action\n"


def test_only_the_chosen_visits_are_hit() -> None:
    points = Failpoints(parse("a:2:raise,b:3+:eio"))
    hits: list[str] = []
    for visit in range(1, 5):
        for name in ("a", "b", "c"):
            try:
                points.hit(name)
            except (FailpointHit, OSError):
                hits.append(f"{name}{visit}")
    assert hits == ["a2", "b3", "b4"]


@pytest.mark.parametrize("name", ["eio", "enospc", "edquot"])
def test_disk_errors_are_os_errors_with_their_number(name: str) -> None:
    with pytest.raises(OSError, match="failpoint") as hit:
        Failpoints(parse(f"fs.write:1:{name}")).hit("fs.write")
    assert hit.value.errno == getattr(errno, name.upper())


def test_a_short_write_is_a_byte_count_for_the_caller() -> None:
    points = Failpoints(parse("fs.write:1:short=3"))
    assert points.hit("fs.write") == 3
    assert points.hit("fs.write") is None


def test_a_mark_is_a_line_with_the_name_and_the_monotonic_time(tmp_path: Path) -> None:
    path = tmp_path / "marks"
    points = Failpoints(parse(f"a.b:*:mark={path}"))
    before = time.monotonic_ns()
    points.hit("a.b")
    points.hit("a.b")
    lines = [line.split() for line in path.read_text().splitlines()]
    assert [name for name, _ in lines] == ["a.b", "a.b"]
    assert before <= int(lines[0][1]) <= int(lines[1][1]) <= time.monotonic_ns()


@pytest.mark.parametrize(
    ("action", "code"), [("kill", -signal.SIGKILL), ("exit=9", 9), ("raise", 1)]
)
def test_an_armed_process_ends_as_it_was_told(action: str, code: int) -> None:
    done = run(
        "from ipc.seams.failpoints import ARMED, hit\nassert ARMED\nhit('x')\nhit('a.b')\nprint(1)",
        f"a.b:1:{action}",
    )
    assert (done.returncode, done.stdout) == (code, "")


def test_the_file_system_seam_visits_a_failpoint_for_each_call(tmp_path: Path) -> None:
    code = f"""
import os
from ipc.seams.fs import REAL
fd = REAL.open({str(tmp_path / "f")!r}, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
print(REAL.write(fd, b"0123456789"), REAL.write(fd, b"0123456789"))
try:
    REAL.fdatasync(fd)
except OSError as error:
    print(error.errno)
"""
    done = run(code, "fs.write:1:short=4,fs.fdatasync:1:eio")
    assert done.stdout.split() == ["4", "10", str(errno.EIO)]
