"""The metadata of a session: what a listing shows without opening a log, and its file.

It is a cache of the log. It may be missing, stale or damaged at any time, and nothing is lost.
"""

from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ipc.disk.files import read_small, replace
from ipc.events import RootOrigin
from ipc.ids import SessionId
from ipc.methods.records import SessionMeta
from ipc.seams.fs import REAL, Fs

SKIPPED_MAX: Final = 64  # skipped events that are listed
METADATA_BYTES_MAX: Final = 1 << 20

Metadata = SessionMeta  # what a client is sent is what the file holds


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
