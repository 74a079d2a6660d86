"""When a supervisor is told how a tree is, on a loop whose time the test moves."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ipc.content import Usage
from ipc.fold import SessionState, apply
from ipc.orders import Status
from tests.fakes.logs import Log, call
from workers.process.pulse import AGAIN_S, EVERY_S, Pulse, pss_bytes


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """Timers and a time that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + delay, call))
        return self.timers[-1]

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [one for one in self.live if one.at <= until]:
            timer = min(due, key=lambda one: one.at)
            self.now = timer.at
            self.timers.remove(timer)
            timer.call()
        self.now = until

    @property
    def live(self) -> list[Timer]:
        return [one for one in self.timers if not one.cancelled]


class Watched:
    """A session in memory and the pulse over it."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.log = Log()
        self.state = SessionState()
        self.sent: list[tuple[float, Status]] = []
        self.pulse = Pulse(self.state.view(), self.send, self.loop)  # type: ignore[arg-type]

    def send(self, status: Status) -> None:
        self.sent.append((self.loop.now - 100.0, status))

    def happen(self, *what: Callable[[Log], object]) -> None:
        for one in what:
            before = len(self.log.events)
            one(self.log)
            for event in self.log.events[before:]:
                apply(self.state, event)
            self.pulse.touch()

    @property
    def told(self) -> list[tuple[float, str, tuple[str, ...], int]]:
        return [(at, one.state, one.runs, one.tokens) for at, one in self.sent]


def begin(log: Log) -> None:
    log.created()
    log.user("hi")
    log.run_started("run")


def test_nothing_is_said_before_the_tree_is_open() -> None:
    watched = Watched()
    watched.happen(begin)
    assert watched.sent == []
    watched.pulse.begin()
    assert watched.told == [(0.0, "running", ("run",), 0)]


def test_a_change_is_told_at_once_and_the_next_ones_together_a_second_later() -> None:
    watched = Watched()
    watched.pulse.begin()
    assert watched.told == [], "Ready has said that it is idle"
    watched.loop.advance(5)
    watched.happen(begin)
    for n in range(100):
        watched.loop.advance(0.001)
        watched.happen(lambda log, n=n: log.usage(Usage(input_tokens=n, output_tokens=1)))  # type: ignore[misc]
    assert watched.told == [(5.0, "running", ("run",), 0)]
    watched.loop.advance(EVERY_S)
    assert watched.told[1:] == [(6.0, "running", ("run",), sum(range(100)) + 100)]


def test_it_is_said_no_more_often_than_once_a_second_and_ends_with_the_truth() -> None:
    watched = Watched()
    watched.pulse.begin()
    watched.happen(begin)
    for _ in range(50):
        watched.loop.advance(0.13)
        watched.happen(lambda log: log.usage(Usage(output_tokens=1)))
    watched.happen(lambda log: log.run_ended())
    watched.loop.advance(10)
    times = [at for at, *_ in watched.told]
    assert all(later - earlier >= EVERY_S for earlier, later in pairwise(times))
    assert watched.told[-1][1:] == ("idle", (), 50)


def test_what_changes_nothing_is_not_told() -> None:
    watched = Watched()
    watched.happen(begin)
    watched.pulse.begin()
    watched.loop.advance(2)
    watched.happen(lambda log: log.attempt("a"), lambda log: log.delta("a", "x"))
    assert len(watched.sent) == 1


def test_a_run_is_looked_at_again_though_nothing_happens_and_idleness_is_not() -> None:
    watched = Watched()
    watched.happen(begin)
    watched.pulse.begin()
    watched.loop.advance(3 * AGAIN_S)
    assert [at for at, *_ in watched.told] == [0.0, AGAIN_S, 2 * AGAIN_S, 3 * AGAIN_S]
    watched.happen(lambda log: log.run_ended())
    watched.loop.advance(100)
    assert watched.told[-1][1] == "idle"
    assert watched.loop.live == []


def test_a_question_makes_it_wait() -> None:
    watched = Watched()
    watched.happen(begin)
    watched.pulse.begin()
    watched.happen(
        lambda log: log.turn(call("c")),
        lambda log: log.started("c"),
        lambda log: log.asked("q", "c"),
    )
    watched.loop.advance(EVERY_S)
    assert watched.told[-1][1] == "waiting"


def test_the_end_is_said_at_once_and_nothing_after_it() -> None:
    watched = Watched()
    watched.happen(begin)
    watched.pulse.begin()
    watched.pulse.drain()
    watched.pulse.stop()
    watched.happen(lambda log: log.run_ended())
    watched.loop.advance(100)
    assert [state for _, state, *_ in watched.told] == ["running", "draining"]


def test_the_memory_is_that_of_the_kernels_line(tmp_path: Path) -> None:
    source = tmp_path / "rollup"
    source.write_bytes(
        b"55d0-7ffe ---p 0 00:00 0 [rollup]\nRss:  9 kB\nPss:   1234 kB\nPss_Anon: 1 kB\n"
    )
    assert pss_bytes(source) == 1234 * 1024


@pytest.mark.parametrize("text", [None, b"", b"Rss: 1 kB\n"])
def test_a_kernel_that_does_not_tell_costs_the_figure_only(
    tmp_path: Path, text: bytes | None
) -> None:
    source: Any = tmp_path / "rollup"
    if text is not None:
        source.write_bytes(text)
    assert pss_bytes(source) == 0
