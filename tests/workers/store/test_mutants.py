"""Planted mistakes: each is caught by the check that guards against it, or the check is nothing.

The same checks pass for the classes that ship; see the last test.
"""

import errno
import fcntl
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.fakes.fs import Fault
from tests.fakes.store import (
    Parts,
    check_a_changed_lock_fences,
    check_crash_states,
    check_cuts,
    check_faults,
    check_the_lock_stays_with_the_others,
)
from workers.store.file import LogFile, LogPoisoned
from workers.store.log import LogWriter, Record, _Job
from workers.store.tree import LogBroken, OwnedTree

Check = Callable[[Path, Parts | None], object]


class SkipsTheSync(LogFile):
    def sync(self) -> None:
        pass


class SkipsTheHealing(LogFile):
    def append(self, lines: Sequence[bytes]) -> None:
        self._torn = False
        super().append(lines)


class RetriesTheSync(LogFile):
    def sync(self) -> None:
        try:
            self._fs.fdatasync(self._fd)
        except OSError:
            self._fs.fdatasync(self._fd)


class ShrugsAtAFailedSync(LogFile):
    def sync(self) -> None:
        try:
            super().sync()
        except LogPoisoned:
            self.stopped = None


class DoesNotCutBack(LogFile):
    def _cut_back(self, cause: OSError) -> None:
        self.size = self._fs.fstat(self._fd).st_size


class BelievesEveryWrite(LogFile):
    def append(self, lines: Sequence[bytes]) -> None:
        self._guard()
        data = b"".join(line + b"\n" for line in lines)
        if data:
            self.size += self._fs.write(self._fd, data)


class PublishesFirst(LogWriter):
    def _job(self, own: list[Record]) -> _Job:
        job = super()._job(own)
        if job.records:
            self._deliver(job.records)
        return job

    def _pass_on(self, job: _Job) -> LogBroken | None:
        if job.records:
            self._settled = job.records[-1][0].seq
        return None


class UsesNumbersTwice(LogWriter):
    def _fail(self, job: _Job, broken: LogBroken) -> None:
        super()._fail(job, broken)
        self._seq = max(self._settled - 1, 0)


class Unlocks(OwnedTree):
    def release(self) -> None:
        if self._lock_fd >= 0:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        super().release()


class TrustsItsLock(OwnedTree):
    def check(self) -> None:
        pass


def publishes_without_a_sync(tree: OwnedTree, final: Path) -> None:
    tree.fs.rename(tree.paths.directory, final)
    tree.moved(final)


def under(fault: Fault) -> Check:
    """The scenario with `fault` at each call."""
    return lambda tmp, parts: check_faults(tmp, fault, parts)


EIO, HALF = Fault(0, errno.EIO), Fault(0, short=300, then=errno.ENOSPC)
MUTANTS: dict[str, tuple[Parts, Check]] = {
    "skips the sync": (Parts(file=SkipsTheSync), check_crash_states),
    "publishes before the append": (Parts(writer=PublishesFirst), check_crash_states),
    "skips the healing of a torn line": (Parts(file=SkipsTheHealing), check_cuts),
    "unlocks instead of closing": (Parts(tree=Unlocks), check_the_lock_stays_with_the_others),
    "does not look at its lock": (Parts(tree=TrustsItsLock), check_a_changed_lock_fences),
    "tries a failed sync again": (Parts(file=RetriesTheSync), under(EIO)),
    "shrugs at a failed sync": (Parts(file=ShrugsAtAFailedSync), under(EIO)),
    "does not cut a failed write back": (Parts(file=DoesNotCutBack), under(HALF)),
    "believes every write was whole": (Parts(file=BelievesEveryWrite), under(Fault(0, short=7))),
    "syncs no directory": (Parts(publish=publishes_without_a_sync), check_crash_states),
    "uses numbers twice after a failure": (Parts(writer=UsesNumbersTwice), under(EIO)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_writer_that_makes_this_mistake_is_caught(tmp_path: Path, name: str) -> None:
    parts, check = MUTANTS[name]
    with pytest.raises(AssertionError):
        check(tmp_path, parts)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_writer_that_ships_passes_the_check_that_catches_the_mutant(
    tmp_path: Path, name: str
) -> None:
    _, check = MUTANTS[name]
    check(tmp_path, None)
