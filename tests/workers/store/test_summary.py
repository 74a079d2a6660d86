"""The metadata that a worker derives from the fold and writes at run ends."""

import asyncio
import errno
from pathlib import Path

from ipc.disk.log import read_log
from ipc.disk.metadata import read_metadata
from ipc.fold import SessionState, apply
from tests.fakes.fs import Fault, FaultyFs, RecordingFs
from tests.fakes.store import CREATED, SESSION, standard_scenario
from workers.store.summary import skipped_of, summarise, write_summary


def test_a_summary_says_what_a_listing_shows_and_is_read_back(tmp_path: Path) -> None:
    story = asyncio.run(standard_scenario(tmp_path / "space", RecordingFs()))
    where = story.tree.root
    where.events.write_bytes(where.events.read_bytes() + b"{torn")
    state, read = SessionState(), read_log(where.events)
    for event in read.events():
        apply(state, event)
    summary = summarise(state.view(), skipped_of(read))

    assert write_summary(where, summary)
    assert read_metadata(where.metadata, SESSION) == summary
    assert summary.session_id == SESSION
    assert summary.last_event_seq == 10
    assert summary.last_activity == "2026-01-02T03:04:05.000Z"
    assert summary.origin == CREATED.origin
    assert summary.revisions == CREATED.revisions
    assert [skipped.seq for skipped in summary.skipped_events] == [0]


def test_a_disk_that_refuses_costs_the_cache_only(tmp_path: Path) -> None:
    story = asyncio.run(standard_scenario(tmp_path / "space", RecordingFs()))
    state = SessionState()
    for event, _ in story.told:
        apply(state, event)
    full = FaultyFs(Fault(0, errno.ENOSPC, sticky=True))
    assert not write_summary(story.tree.root, summarise(state.view()), full)
    assert read_metadata(story.tree.root.metadata, SESSION) is None
