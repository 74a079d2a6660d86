"""Errors for people: what is said about a fault or an errno."""

import errno
import os

import pytest

from cookie.cli.advice import explain, one_line, readable, say
from ipc.faults import Fault, FaultBody, RemoteFault
from ipc.ids import BadId


def remote(code: str, **facts: str | int) -> RemoteFault:
    return RemoteFault(FaultBody(code=code, message=f"raw {code}", facts=facts))


@pytest.mark.parametrize(
    ("trouble", "line"),
    [
        (OSError(errno.ENOSPC, "x", "/d/log"), "/d/log: the disk is full; make room and try again"),
        (OSError(errno.ENOSPC, "x"), "/data: the disk is full; make room and try again"),
        (OSError(errno.EXDEV, "Invalid cross-device link"), "/data: Invalid cross-device link"),
        (OSError("no number"), "/data: no number"),
        (BadId(kind="model", text="'x'"), "there is no such model as 'x': a model is written pro"),
        (
            remote("append_failed", reason="[Errno 28] No space left on device", errno=28),
            "the session's log can't be written: the disk is full; make room and try again",
        ),
        (
            remote("log_poisoned", reason="sync failed: [Errno 5] Input/output error: 'f'"),
            "the session's log can't be trusted any more: sync failed: the disk can't do it",
        ),
        (remote("fenced"), "another process took the session over: no reason given"),
        (remote("who_knows"), "raw who_knows"),
    ],
)
def test_a_trouble_is_one_line_that_says_what_to_do(trouble: Fault | OSError, line: str) -> None:
    assert explain(trouble, "/data").startswith(line)


def test_an_errno_that_another_program_printed_is_said_in_our_words() -> None:
    raw = "exit code 70: OSError: [Errno 28] No space left on device: 'x y'; and more"

    assert readable(raw) == (
        "exit code 70: OSError: the disk is full; make room and try again; and more"
    )
    assert readable("[Errno 9999] x") == os.strerror(9999)


def test_a_line_is_one_line_whatever_it_is_made_of() -> None:
    assert one_line("a\n  b\tc\x1b[2J ") == "a b c\ufffd[2J"
    assert len(one_line("x" * 5000)) == 1000


def test_what_is_said_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    say("two\nlines \udcff")

    assert capfd.readouterr() == ("", "cookie: two lines \ufffd\n")
