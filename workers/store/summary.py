"""The metadata of a session as its worker keeps it: derived from the fold, written at run ends."""

from ipc.disk.log import LogRead
from ipc.disk.metadata import SKIPPED_MAX, Metadata, write_metadata
from ipc.disk.paths import SessionPaths
from ipc.fold import SessionView
from ipc.methods.records import SkippedEvent
from ipc.seams.fs import REAL, Fs


def summarise(state: SessionView, skipped: tuple[SkippedEvent, ...] = ()) -> Metadata:
    """What a listing shows of a session that has its `session_created`."""
    created = state.created
    assert created is not None, "a session without session_created was opened"
    assert state.session_id is not None
    return Metadata(
        session_id=state.session_id,
        origin=created.origin,
        cwd_identity=created.cwd_identity,
        status=state.status,
        title=state.title.text,
        title_updated_seq=state.title.updated_seq,
        last_event_seq=state.seq,
        last_activity=state.last_timestamp,
        creation_selection=created.creation_selection,
        revisions=created.revisions,
        skipped_events=skipped,
    )


def skipped_of(read: LogRead) -> tuple[SkippedEvent, ...]:
    """The lines that opening a session passed over, at most SKIPPED_MAX of them."""
    notes = read.skipped[:SKIPPED_MAX]
    return tuple(SkippedEvent(seq=note.seq or 0, reason=note.reason) for note in notes)


def write_summary(where: SessionPaths, metadata: Metadata, fs: Fs = REAL) -> bool:
    """Write the cache; False when the disk refused, which costs a listing its freshness only."""
    try:
        write_metadata(where.metadata, metadata, fs)
    except OSError:
        return False
    return True
