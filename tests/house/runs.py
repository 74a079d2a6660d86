"""`cookie run` as a stranger runs it: a home of its own, real processes, and what they left."""

import contextlib
import fcntl
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.house.kills import Space, _config, space

COOKIE = (sys.executable, "-P", "-m", "cookie")
DEADLINE_S = 30.0  # for a loaded machine; nothing here is judged by its speed but a promise of it
SCRIPTS = ("hello", "tool_round", "four_tools", "drip", "sleep", "stall", "endless", "empty")
SCRIPTS += ("counted", "batch", "escapes", "torrent", "refused_key", "overload", "limited")
YOLO = ("--permission-mode", "yolo")


@dataclass(frozen=True)
class Ran:
    """One command that ended: its exit code, and both streams as they came."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [one["event"] for one in self.records if one["type"] == "event"]

    @property
    def kinds(self) -> list[str]:
        return [event["payload"]["type"] for event in self.events]

    @property
    def summary(self) -> dict[str, Any]:
        last = self.records[-1]
        assert last["type"] == "summary"
        return last


class Home:
    """A person's home with scripted models, and a workspace in it."""

    def __init__(self, here: Space) -> None:
        self.space = here
        self.path, self.workspace, self.data = here.home, here.workspace, here.data
        self.config = self.data / "config.toml"
        self.config.write_text(_config(SCRIPTS))
        passed = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
        self.env = here.env | {name: os.environ[name] for name in passed if name in os.environ}

    def words(self, script: str, *words: str) -> list[str]:
        """The command line that has `script` answer."""
        return [*COOKIE, "run", "--data-dir", str(self.data), "-m", f"{script}/script", *words]

    def run(self, script: str, *words: str, **how: Any) -> Ran:
        """Run it to its end."""
        return self.command(self.words(script, *words), **how)

    def command(
        self,
        argv: Sequence[str | bytes],
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        stdin: bytes | int = subprocess.DEVNULL,
        **more: Any,
    ) -> Ran:
        given: dict[str, Any] = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
        done = subprocess.run(
            argv,
            check=False,
            cwd=cwd or self.workspace,
            env=self.env | (env or {}),
            timeout=DEADLINE_S,
            **given,
            **streams,
        )
        return Ran(done.returncode, done.stdout or b"", (done.stderr or b"").decode())

    def start(self, script: str, *words: str, **how: Any) -> "subprocess.Popen[bytes]":
        """Start it; SIGINT and SIGHUP are as a shell's foreground leaves them."""
        streams = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "stdin": subprocess.DEVNULL,
        }
        return subprocess.Popen(
            self.words(script, *words),
            cwd=self.workspace,
            env=self.env | how.pop("env", {}),
            preexec_fn=how.pop("preexec", as_in_foreground),  # noqa: PLW1509 - no threads here
            **(streams | how),
        )

    def log(self) -> bytes:
        return self.space.log()

    def types(self) -> list[str]:
        return [json.loads(line)["payload"]["type"] for line in self.log().splitlines()]

    def left(self) -> list[str]:
        """What no command may leave: processes, sockets, trees that nobody published."""
        strays = self.space.until_alone()
        unborn = [one.name for one in self.space.trees() if one.name.startswith(".")]
        return [*strays, *map(str, self.space.incarnations()), *unborn]


def as_in_foreground() -> None:
    """In the child: what a test runner in the background ignores is not ignored."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def home() -> Iterator[Home]:
    """A home that is empty at the end of it but for what its sessions are made of."""
    with space() as here:
        yield Home(here)


def until(seen: Callable[[], object]) -> None:
    """Wait until it is so."""
    limit = time.monotonic() + DEADLINE_S
    while not seen():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.005)


def held(pipe: int) -> int:
    """Bytes that were written to a pipe and not read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4), sys.byteorder)


def is_full(pipe: int) -> bool:
    """Whether the pipe that is read here takes nothing more."""
    other_end = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY)
    try:
        return not select.select([], [other_end], [], 0)[1]
    finally:
        os.close(other_end)


def one_line(err: str) -> str:
    """The one line that was said; a second one, or a traceback, is a failure."""
    assert "Traceback" not in err, err
    assert err.endswith("\n"), err
    assert err.count("\n") == 1, err
    assert err.startswith("cookie: "), err
    return err.removeprefix("cookie: ").rstrip("\n")


def usage_line(err: str) -> str:
    """The one line below click's usage."""
    assert "Traceback" not in err, err
    found = re.fullmatch(r"(?:Usage: .*\nTry '.*' for help\.\n\n)?Error: (.*)\n", err)
    assert found, err
    return found[1]


def resume_words(err: str) -> list[str]:
    """The arguments of `cookie run` in the line that resumes a session."""
    _, found, line = err.strip().rpartition("go on with: cookie run ")
    assert found, err
    return shlex.split(line)
