"""The list of sessions: metadata and names only."""

import os
from pathlib import Path

import pytest

from cookie.daemon import listing
from ipc.disk.metadata import Metadata, write_metadata
from ipc.disk.paths import WorkspacePaths, workspace_paths
from ipc.events import DelegatedOrigin, ModelSelection, Revisions, RootOrigin, RunSelection
from ipc.ids import AgentId, CallId, InvocationId, ModelKey, Revision, RunId, SessionId
from ipc.seams.fs import Fs, StrPath

REVISION = Revision("sha256:" + "0" * 64)
REVISIONS = Revisions(
    agent=REVISION,
    catalog=REVISION,
    manifest=REVISION,
    model=REVISION,
    provider_state=REVISION,
    recipe_registry=REVISION,
    runtime=REVISION,
)
SELECTION = RunSelection(
    agent=AgentId("default"), model=ModelSelection(model=ModelKey("rehearsal/tour"))
)
IDS = [SessionId(f"0190000{number}-0000-7000-8000-00000000000{number}") for number in range(6)]
NO_CWD = "/nowhere"


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspacePaths:
    found = workspace_paths(tmp_path / "data", tmp_path)
    found.directory.mkdir(parents=True)
    return found


def add(
    workspace: WorkspacePaths, root: SessionId, at: int, title: str | None = None, **changes: object
) -> None:
    """A session whose log changed `at` seconds after the epoch; its text is no log at all."""
    place = workspace.tree(root).root
    place.directory.mkdir()
    place.events.write_text("not a log\n")
    metadata = Metadata(
        session_id=root,
        origin=RootOrigin(),
        cwd_identity=NO_CWD,
        status="completed",
        title=title,
        title_updated_seq=0,
        last_event_seq=9,
        last_activity="2025-01-01T00:00:00.000Z",
        creation_selection=SELECTION,
        revisions=REVISIONS,
    )
    fields = {name: getattr(metadata, name) for name in metadata.__struct_fields__}
    write_metadata(place.metadata, Metadata(**{**fields, **changes}))
    os.utime(place.events, (at, at))


def test_the_session_that_changed_last_comes_first(workspace: WorkspacePaths) -> None:
    for number, at in ((0, 30), (1, 10), (2, 20)):
        add(workspace, IDS[number], at)

    found = listing.sessions(workspace)

    assert [one.session_id for one in found.sessions] == [IDS[0], IDS[2], IDS[1]]
    assert listing.newest(workspace, NO_CWD).session_id == IDS[0]


def test_no_log_is_ever_opened(workspace: WorkspacePaths) -> None:
    opened: list[str] = []

    class Watching(Fs):
        def open(self, path: StrPath, flags: int, mode: int = 0o600) -> int:
            opened.append(Path(path).name)
            return super().open(path, flags, mode)

    add(workspace, IDS[0], 1)
    listing.find(workspace, NO_CWD, IDS[0][:8], Watching())

    assert opened == ["metadata"]


def test_a_session_without_metadata_is_there_all_the_same(workspace: WorkspacePaths) -> None:
    """Its first run was killed before anybody wrote it: the one a person wants to go on with."""
    add(workspace, IDS[0], 10)
    add(workspace, IDS[1], 20)
    workspace.tree(IDS[1]).root.metadata.unlink()

    assert listing.newest(workspace, NO_CWD).session_id == IDS[1]


def test_bad_metadata_is_noted_and_hides_nothing(workspace: WorkspacePaths) -> None:
    add(workspace, IDS[0], 10)
    add(workspace, IDS[1], 20)
    add(workspace, IDS[2], 30)
    workspace.tree(IDS[1]).root.metadata.write_text("{")
    workspace.tree(IDS[2]).root.metadata.write_bytes(
        workspace.tree(IDS[0]).root.metadata.read_bytes()
    )

    found = listing.sessions(workspace)

    assert [one.session_id for one in found.sessions] == [IDS[2], IDS[1], IDS[0]]
    assert sorted(note.partition(": ")[0] for note in found.notes) == [
        str(workspace.tree(root).root.metadata) for root in (IDS[1], IDS[2])
    ]


def test_what_is_no_published_root_is_not_listed(workspace: WorkspacePaths) -> None:
    for name in (".staging-x", ".new-1-2", ".dead-3", "layout.json", "artifacts.shared"):
        (workspace.directory / name).mkdir()
    (workspace.directory / IDS[0]).mkdir()  # a child published first: no log of its own yet
    origin = DelegatedOrigin(
        root_session_id=IDS[2],
        parent_session_id=IDS[2],
        parent_run_id=RunId("r"),
        parent_tool_call_id=CallId("c"),
        invocation_id=InvocationId("i"),
        depth=1,
    )
    add(workspace, IDS[1], 10, origin=origin)

    assert listing.sessions(workspace) == listing.Listing((), ())


def test_a_workspace_nobody_worked_in_has_none(tmp_path: Path) -> None:
    nowhere = workspace_paths(tmp_path / "data", tmp_path)

    assert listing.sessions(nowhere) == listing.Listing((), ())
    with pytest.raises(listing.NotFound, match="no session in /nowhere yet"):
        listing.newest(nowhere, NO_CWD)


def test_a_directory_that_can_not_be_read_is_said_so(workspace: WorkspacePaths) -> None:
    class Closed(Fs):
        def listdir(self, path: StrPath) -> list[str]:
            raise PermissionError(13, "Permission denied", str(path))

    found = listing.sessions(workspace, Closed())

    assert found == listing.Listing(
        (), (f"{workspace.directory}: can't be read: Permission denied",)
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (IDS[5], IDS[5]),  # a whole id is believed
        ("01900000", IDS[0]),
        ("01900001-0000-70", IDS[1]),
        ("fix the p", IDS[1]),
        ("FIX THE L", IDS[0]),
    ],
)
def test_a_session_is_found_by_id_or_by_the_beginning_of_id_or_title(
    workspace: WorkspacePaths, text: str, found: SessionId
) -> None:
    add(workspace, IDS[0], 10, "Fix the lexer")
    add(workspace, IDS[1], 20, "Fix the parser")

    assert listing.find(workspace, NO_CWD, text) == found


def test_what_fits_two_sessions_names_both(workspace: WorkspacePaths) -> None:
    add(workspace, IDS[0], 10, "Fix the lexer")
    add(workspace, IDS[1], 20, "Fix the\x1b[31m parser")

    with pytest.raises(listing.Ambiguous) as refused:
        listing.find(workspace, NO_CWD, "fix")

    named = f"{IDS[1]} (Fix the\ufffd[31m parser), {IDS[0]} (Fix the lexer)"
    assert str(refused.value) == f"2 sessions begin with 'fix': {named}"


@pytest.mark.parametrize("text", ["", "  ", "019", "zz", "parser", "../../etc"])
def test_what_fits_no_session_is_said_so(workspace: WorkspacePaths, text: str) -> None:
    add(workspace, IDS[0], 10, "Fix the parser")

    with pytest.raises(listing.NotFound):
        listing.find(workspace, NO_CWD, text)
