"""Each call that `cookie run` makes of its file system fails, in the worker and in the command.

EIO and ENOSPC, once and from then on, and writes that stop short. What must hold: the person is
told in one clear line, with the right exit code; what anybody was told of is in the log; a failed
sync is never tried again; and the session goes on when the disk does, or says why it does not.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.house.kills import RECORD_PREFIX, RECORD_SUFFIX, ROOT, Space, _config, parse, space

pytestmark = pytest.mark.house

ARMED = Path(__file__).with_name("armed.py")
SEAM = ROOT / "ipc" / "seams" / "fs.py"
CALLS = re.findall(r'hit\("fs\.(\w+)"\)', SEAM.read_text())
DEADLINE_S = 30.0
CODES = {0, 1, 5}  # completed, failed, not set up
SAMPLES = 1  # of each call, in the short form


class Fault(NamedTuple):
    """`action` at the n-th call of that name in that process; with a `+`, at all from there on."""

    side: str
    call: str
    nth: str
    action: str

    def __str__(self) -> str:
        return f"{self.side} {self.failpoint}"

    @property
    def failpoint(self) -> str:
        return f"fs.{self.call}:{self.nth}:{self.action}"


class Ran(NamedTuple):
    """A command that has ended: its code, what it said, the events it told of."""

    code: int
    err: str
    told: list[bytes]
    summary: dict[str, object]


@pytest.fixture
def home() -> Iterator[Space]:
    with new_home() as here:
        yield here


class new_home:  # noqa: N801 - used as the function that it is
    """A home whose model plays faults.yaml."""

    def __enter__(self) -> Space:
        self._space = space()
        here = self._space.__enter__()
        (here.data / "config.toml").write_text(_config(["faults", "stall"]))
        return here

    def __exit__(self, *error: object) -> None:
        self._space.__exit__(None, None, None)


def run(home: Space, side: str, fp: str, *words: str, model: str = "faults") -> Ran:
    """`cookie run --json` with failpoints in one process."""
    flags = ["-m", f"{model}/script", "--permission-mode", "yolo", "--data-dir", str(home.data)]
    done = subprocess.run(
        [sys.executable, "-P", str(ARMED), side, fp, "run", "--json", *flags, *words],
        env=home.env | {"PYTHONPATH": str(ROOT)},
        cwd=home.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    lines = done.stdout.splitlines()
    told = [
        line[len(RECORD_PREFIX) : -len(RECORD_SUFFIX)]
        for line in lines
        if line.startswith(RECORD_PREFIX)
    ]
    last = json.loads(lines[-1]) if lines and b'"type":"summary"' in lines[-1][:20] else {}
    return Ran(done.returncode, done.stderr.decode(), told, last)


def counts(home: Space, side: str, *words: str) -> Counter[str]:
    """How often each call of the seam is made by one process of the standard scenario."""
    mark = home.home / "marks"
    fp = ",".join(f"fs.{call}:*:mark={mark}" for call in CALLS)
    ran = run(home, side, fp, *words)
    assert (ran.code, ran.err) == (0, "")
    return Counter(line.split()[0].removeprefix("fs.") for line in mark.read_text().splitlines())


def complaints(home: Space, fault: Fault, *words: str) -> list[str]:
    """One run under a fault, and one after it: all that is wrong with them."""
    before = home.log()
    mark = home.home / "syncs"
    mark.unlink(missing_ok=True)
    # A rule that marks comes first: it counts the visit that the next one lets fail.
    fp = f"log.sync:*:mark={mark},{fault.failpoint}"
    ran = run(home, fault.side, fp, *(words or ["begin"]))
    found = [*spoken(ran), *kept(home, before, ran)]
    syncs = len(mark.read_text().splitlines()) if mark.exists() else 0
    if (fault.side, fault.call) == ("worker", "fdatasync") and not words:
        first = int(fault.nth.removesuffix("+"))
        if ran.code == 0:
            found.append("a failed sync was not noticed")
        if syncs > first:
            found.append(f"sync {first} failed and {syncs - first} more were tried")
    left = home.until_alone()
    if left:
        found.append(f"alive: {left}")
    return found + goes_on(home, ran)


def spoken(ran: Ran) -> list[str]:
    """What a person is told: nothing when all is well, else one line that says what is wrong."""
    found = []
    if ran.code not in CODES:
        found.append(f"exit code {ran.code}")
    if "Traceback" in ran.err:
        found.append("a traceback")
    lines = ran.err.splitlines()
    if not all(line.startswith("cookie: ") for line in lines):
        found.append("a line that is not ours")
    if ran.code and not lines:
        found.append("it failed and said nothing")
    if ran.code == 0 and lines:
        found.append("it went well and complained")
    if ran.summary and ran.summary["exit_code"] != ran.code:
        found.append(f"the summary says exit code {ran.summary['exit_code']}, it was {ran.code}")
    return found + ([f"said: {ran.err!r}"] if found else [])


def kept(home: Space, before: bytes, ran: Ran) -> list[str]:
    """What was there is there, and so is all that was told, in its order."""
    log = home.log()
    found = [] if log.startswith(before) else ["the log is not what it was"]
    rest = iter(parse(log).lines)
    found += [f"told and lost: {line[:150]!r}" for line in ran.told if line not in rest]
    effects = home.effects()
    if len(effects) > 1:
        found.append(f"an effect happened {len(effects)} times")
    return found


def goes_on(home: Space, ran: Ran) -> list[str]:
    """The session can be gone on with; where none was made, none was told of."""
    if home.tree is None:
        return ["a session was told of and is not there"] if ran.told else []
    before = home.log()
    again = run(home, "worker", "", "--resume-session", home.tree.directory.name, "again")
    found = [] if again.code == 0 else [f"it does not go on: {again.code} {again.err!r}"]
    found += kept(home, before, again)
    if parse(home.log()).bad:
        found.append("a line of the log cannot be read")
    if parse(home.log()).events[-1]["payload"]["type"] != "run_completed":
        found.append("the last run did not complete")
    return found


def sampled(side: str, count: Counter[str]) -> list[Fault]:
    """A few of all: each call with each kind of fault, at places that go through its calls."""
    faults = []
    kinds = [("", "eio"), ("+", "enospc"), ("", "enospc"), ("+", "eio")]
    for number, call in enumerate(sorted(count)):
        for sample in range(SAMPLES):
            nth = 1 + (count[call] * (2 * sample + 1) // (2 * SAMPLES) + number) % count[call]
            sticky, action = kinds[(number + sample) % len(kinds)]
            faults.append(Fault(side, call, f"{nth}{sticky}", action))
    if count["write"]:
        faults.append(Fault(side, "write", str((count["write"] + 1) // 2), "short=1"))
    return faults


def everything(side: str, count: Counter[str]) -> list[Fault]:
    faults = []
    for call in sorted(count):
        for nth in range(1, count[call] + 1):
            for action in ("eio", "enospc"):
                faults += [Fault(side, call, f"{nth}{more}", action) for more in ("", "+")]
            if call == "write":
                faults += [Fault(side, call, f"{nth}{more}", "short=7") for more in ("", "+")]
    return faults


def judged(faults: list[Fault]) -> dict[str, list[str]]:
    wrong = {}
    for fault in faults:
        with new_home() as home:
            if found := complaints(home, fault):
                wrong[str(fault)] = found
    return wrong


@pytest.mark.timeout(240)  # some dozens of commands, one after the other
@pytest.mark.parametrize("side", ["worker", "command"])
def test_calls_that_fail_here_and_there_lose_nothing_and_are_told(home: Space, side: str) -> None:
    assert judged(sampled(side, counts(home, side, "begin"))) == {}


@pytest.mark.long
@pytest.mark.parametrize("side", ["worker", "command"])
def test_each_call_that_fails_loses_nothing_and_is_told(home: Space, side: str) -> None:
    assert judged(everything(side, counts(home, side, "begin"))) == {}


def test_the_seam_knows_the_calls_that_this_counts() -> None:
    assert {"open", "write", "fdatasync", "fsync", "rename", "flock"} <= set(CALLS)
