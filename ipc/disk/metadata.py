"""The metadata of a session: what a listing shows without opening a log, and its file.

It is a cache of the log. It may be missing, stale or damaged at any time, and nothing is lost.
"""

from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from ipc.content import Count
from ipc.disk.files import read_small, replace
from ipc.events import Revisions, RootOrigin, RunSelection, SessionOrigin
from ipc.ids import SessionId
from ipc.seams.fs import REAL, Fs

SKIPPED_MAX: Final = 64  # skipped events that are listed
METADATA_BYTES_MAX: Final = 1 << 20

SessionStatus = Literal["idle", "running", "completed", "failed", "cancelled", "interrupted"]


class SkippedEvent(Struct, frozen=True, kw_only=True):
    """A line of the log that is not in the history; `seq` None where the line did not tell."""

    seq: Count | None
    reason: str


class Metadata(Struct, frozen=True, kw_only=True):
    """SessionMeta of spec 1.3, as it is cached on disk and sent to clients."""

    session_id: SessionId
    origin: SessionOrigin
    cwd_identity: str
    status: SessionStatus
    title: str | None = None
    title_updated_seq: Count = 0
    last_event_seq: Count
    last_activity: str  # RFC 3339, of the last event
    creation_selection: RunSelection
    revisions: Revisions
    skipped_events: tuple[SkippedEvent, ...] = ()


class BadMetadata(Struct, frozen=True):
    """A metadata file that can't be used, and why; the log has the truth."""

    path: str
    reason: str


_decode = msgspec.json.Decoder(Metadata).decode


def read_metadata(path: Path, session: SessionId, fs: Fs = REAL) -> Metadata | BadMetadata | None:
    """The metadata of `session`; None when there is none (yet). Never raises for the disk."""
    try:
        metadata = _decode(read_small(fs, path, METADATA_BYTES_MAX))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        return BadMetadata(str(path), str(error))
    if metadata.session_id != session:
        return BadMetadata(str(path), f"it is of session {metadata.session_id}")
    return metadata


def write_metadata(path: Path, metadata: Metadata, fs: Fs = REAL) -> None:
    """Replace the metadata by a staged sibling and a rename; only the tree's owner may."""
    replace(fs, path, msgspec.json.encode(metadata) + b"\n")


def is_root(metadata: Metadata) -> bool:
    """Whether the session is the root of its tree."""
    return isinstance(metadata.origin, RootOrigin)
