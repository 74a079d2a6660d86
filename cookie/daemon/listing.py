"""The sessions of a workspace as a list: from their metadata alone, no log is ever opened.

Metadata is a cache that is written when a run ends, so a session whose first run was killed has
none, and it is the one a person wants to go on with. Such a session is listed by what its directory
tells. The order is that of the logs' own times of change, since metadata may be hours behind.
"""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from ipc.disk.files import read_small
from ipc.disk.metadata import BadMetadata, Metadata, is_root, read_metadata
from ipc.disk.paths import TreePaths, WorkspacePaths
from ipc.events.base import RunSelection
from ipc.faults import Fault, clean
from ipc.ids import BadId, SessionId, parse_session_id
from ipc.seams.fs import REAL, Fs

CANDIDATES_MAX: Final = 5  # that an error names
TITLE_CHARS: Final = 60  # of a title that an error shows

_ID_PART: Final = re.compile(r"[0-9a-f][0-9a-f-]{3,35}")


class Listed(NamedTuple):
    """One root session of a workspace; `changed_ns` is when its log last grew (wall clock)."""

    session_id: SessionId
    place: TreePaths
    changed_ns: int
    metadata: Metadata | None

    @property
    def title(self) -> str:
        """Its title; empty when it has none or nobody wrote it down yet."""
        return (self.metadata.title if self.metadata is not None else None) or ""


class Listing(NamedTuple):
    """Sessions, newest first, and a line about each metadata file that could not be used."""

    sessions: tuple[Listed, ...]
    notes: tuple[str, ...]


class NotFound(Fault):
    """No session answers to what was asked for."""

    code = "session_not_found"

    def __init__(self, text: str, cwd: str) -> None:
        super().__init__(text=ascii(text[:80]), cwd=cwd)
        if text:
            self.args = (
                f"no session in {cwd} has an id or a title that begins with {text[:80]!r}",
            )
        else:
            self.args = (f"there is no session in {cwd} yet, so there is none to continue",)


class Ambiguous(Fault):
    """More than one session answers to what was asked for."""

    code = "session_ambiguous"

    def __init__(self, text: str, found: tuple[Listed, ...]) -> None:
        super().__init__(text=ascii(text[:80]), count=len(found))
        named = ", ".join(_named(one) for one in found[:CANDIDATES_MAX])
        more = ", …" if len(found) > CANDIDATES_MAX else ""
        self.args = (f"{len(found)} sessions begin with {text[:80]!r}: {named}{more}",)


def sessions(workspace: WorkspacePaths, fs: Fs = REAL) -> Listing:
    """All published root sessions of a workspace; never raises for the disk."""
    try:
        names = fs.listdir(workspace.directory)
    except (FileNotFoundError, NotADirectoryError):
        return Listing((), ())
    except OSError as no:
        return Listing((), (f"{workspace.directory}: can't be read: {no.strerror or no}",))
    found, notes = [], []
    for name in names:
        if (root := _root_id(name)) is None:
            continue
        place = workspace.tree(root)
        metadata = read_metadata(place.root.metadata, root, fs)
        if isinstance(metadata, BadMetadata):
            notes.append(f"{metadata.path}: {metadata.reason}")
            metadata = None
        changed = _changed_ns(place.root.events, fs)
        # No log: a child was published first, or the directory is being filled. It will be there
        # the next time.
        if changed is not None and (metadata is None or is_root(metadata)):
            found.append(Listed(root, place, changed, metadata))
    found.sort(key=lambda one: (one.changed_ns, one.session_id), reverse=True)
    return Listing(tuple(found), tuple(notes))


def workspaces(sessions: Path, fs: Fs = REAL) -> tuple[WorkspacePaths, ...]:
    """Every directory of a workspace in `sessions`, by name; never raises for the disk."""
    try:
        names = sorted(fs.listdir(sessions))
    except OSError:
        return ()
    return tuple(WorkspacePaths(sessions / name) for name in names)


def folder_of(workspace: WorkspacePaths, fs: Fs = REAL) -> str | None:
    """The folder that a workspace's directory is for; None when it does not say."""
    try:
        return os.fsdecode(read_small(fs, workspace.cwd))
    except (OSError, ValueError):
        return None


def newest(workspace: WorkspacePaths, cwd: str, fs: Fs = REAL) -> Listed:
    """The session that changed last, for `--continue`; raises NotFound."""
    found = sessions(workspace, fs).sessions
    if not found:
        raise NotFound("", cwd)
    return found[0]


def find(workspace: WorkspacePaths, cwd: str, text: str, fs: Fs = REAL) -> SessionId:
    """The session meant by `text`: an id, the beginning of one (4 digits or more) or of a title.

    A whole id is believed: whether it is there is told by whoever opens it. Raises NotFound or
    Ambiguous.
    """
    try:
        return parse_session_id(text)
    except BadId:
        pass
    all_of_them = sessions(workspace, fs).sessions
    wanted = text.casefold()
    by_id = bool(_ID_PART.fullmatch(text))
    found = tuple(
        one
        for one in all_of_them
        if (by_id and one.session_id.startswith(text))
        or (wanted.strip() and one.title.casefold().startswith(wanted))
    )
    if not found:
        raise NotFound(text, cwd)
    if len(found) > 1:
        raise Ambiguous(text, found)
    return found[0].session_id


def selection_of(workspace: WorkspacePaths, root: SessionId, fs: Fs = REAL) -> RunSelection | None:
    """What a session was created with, so that it goes on like that; None if nobody knows."""
    metadata = read_metadata(workspace.tree(root).root.metadata, root, fs)
    if metadata is None or isinstance(metadata, BadMetadata):
        return None
    return metadata.creation_selection


def _root_id(name: str) -> SessionId | None:
    try:
        return parse_session_id(name)
    except BadId:
        return None


def _changed_ns(events: Path, fs: Fs) -> int | None:
    try:
        return fs.stat(events).st_mtime_ns
    except OSError:
        return None


def _named(one: Listed) -> str:
    title = clean(one.title, TITLE_CHARS)
    return f"{one.session_id} ({title})" if title else one.session_id
