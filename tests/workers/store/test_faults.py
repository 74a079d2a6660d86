"""The standard scenario under every single disk fault, and under every legal crash."""

import asyncio
import errno
from pathlib import Path

import pytest

from tests.fakes.fs import Fault, RecordingFs
from tests.fakes.store import check_crash_states, check_faults, standard_scenario

FAULTS = {
    "EIO": Fault(0, errno.EIO),
    "EIO from there on": Fault(0, errno.EIO, sticky=True),
    "ENOSPC": Fault(0, errno.ENOSPC),
    "ENOSPC from there on": Fault(0, errno.ENOSPC, sticky=True),
    "EDQUOT": Fault(0, errno.EDQUOT),
    "a short write": Fault(0, short=7),
    "short writes from there on": Fault(0, short=100, sticky=True),
    "half a write and then ENOSPC": Fault(0, short=300, then=errno.ENOSPC),
    "no progress": Fault(0, short=0),
}


@pytest.mark.parametrize("name", FAULTS)
def test_after_a_fault_at_any_call_nothing_told_is_lost_and_the_tree_opens(
    tmp_path: Path, name: str
) -> None:
    check_faults(tmp_path, FAULTS[name])


def test_no_crash_loses_a_commit_event_somebody_was_told_of(tmp_path: Path) -> None:
    assert check_crash_states(tmp_path) > 30


def test_every_file_of_a_tree_is_private(tmp_path: Path) -> None:
    story = asyncio.run(standard_scenario(tmp_path / "space", RecordingFs()))
    modes = {
        str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777
        for path in story.tree.directory.rglob("*")
    }
    assert {mode for path, mode in modes.items() if (tmp_path / path).is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if (tmp_path / path).is_file()} == {0o600}
