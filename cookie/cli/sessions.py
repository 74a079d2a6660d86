"""`cookie sessions`: list, read, search, export and delete what is on the disk."""

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer
from msgspec import Struct

from cookie.cli import candidates, exits, whereabouts
from cookie.cli.advice import explain, say
from cookie.cli.output import Output, OutputBroken
from cookie.daemon.listing import Listed, find, folder_of, workspaces
from cookie.daemon.listing import sessions as sessions_of
from ipc.disk.paths import TreePaths, WorkspacePaths, sessions_dir, workspace_paths
from ipc.faults import Fault, clean

if TYPE_CHECKING:
    from ipc.disk.log import LogRead
    from ipc.fold import SessionState

SNIPPET_CHARS: Final = 100
TITLE_CHARS: Final = 60
FOLDER_CHARS: Final = 200
EXPORT_BYTES: Final = 1 << 20  # written at once
NS: Final = 1_000_000_000
UNTITLED: Final = "(no title)"
UNFINISHED: Final = "unfinished"  # nobody came to write its metadata
_AGE: Final = re.compile(r"(\d{1,6})([smhdw])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

DataDir = Annotated[
    str | None,
    typer.Option("--data-dir", metavar="PATH", help="Where sessions live (~/.cookie-agent)."),
]
Everywhere = Annotated[
    bool, typer.Option("--all", help="Sessions of every folder, not only of this one.")
]
Which = Annotated[
    str,
    typer.Argument(
        metavar="SESSION",
        help="Its id, or how its id or its title begins.",
        autocompletion=candidates.sessions,
    ),
]

sessions = typer.Typer(
    name="sessions",
    help="List, read, search, export and delete sessions.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Row(Struct, frozen=True, kw_only=True):
    """One line of `sessions list --json`. What only metadata tells is null without it."""

    session_id: str
    title: str | None
    status: str | None
    cwd: str | None
    last_event_seq: int | None
    changed: float  # seconds since the epoch
    path: str


@sessions.command("list")
def list_(
    data_dir: DataDir = None,
    everywhere: Everywhere = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """The sessions of this folder, newest first. No log is opened."""
    now = time.time_ns()
    with _to_stdout() as out:
        rows = _listed(_here(data_dir), everywhere=everywhere)
        if json:
            for one in rows:
                out.record(_row(one))
        elif not rows:
            say("there are no sessions here yet")
        else:
            out.put("".join(_line(one, now, everywhere=everywhere) for one in rows))


@sessions.command()
def show(session: Which, data_dir: DataDir = None) -> None:
    """A session as Markdown: what was said and done, and what could not be read of it."""
    from cookie.cli.transcript import markdown  # noqa: PLC0415 - for this command alone

    with _to_stdout() as out:
        out.put(markdown(*_folded(_place(session, _here(data_dir)))))


@sessions.command()
def search(
    text: Annotated[str, typer.Argument(help="What to look for, in any case of letters.")],
    data_dir: DataDir = None,
    everywhere: Everywhere = False,
) -> None:
    """Sessions in which this was said, with the first place. Exits 1 when there is none.

    Looks at titles, prompts, answers, tool calls and what they put out.
    """
    if not text.strip():
        raise typer.BadParameter("say what to look for")
    wanted, found = re.compile(re.escape(text), re.IGNORECASE), False
    with _to_stdout() as out:
        for one in _listed(_here(data_dir), everywhere=everywhere):
            try:
                state, _ = _folded(one.place)
            except (Fault, OSError) as trouble:
                say(explain(trouble))
                continue
            if (hit := _hit(state, wanted)) is not None:
                out.put(f"{one.session_id}  {hit}\n")
                out.flush()
                found = True
    if not found:
        raise typer.Exit(exits.FAILED)


@sessions.command()
def export(
    session: Which,
    data_dir: DataDir = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Instead of stdout.")
    ] = None,
) -> None:
    """The readable events of a session as JSONL, each line exactly as it is in the log."""
    from ipc.disk.log import read_log  # noqa: PLC0415 - not for a list

    with _failing():
        place = _place(session, _here(data_dir))
        read = read_log(place.root.events)
        lines = (line for _, line in read)
        first = next(lines)  # or there is no session to export, and the file stays as it was
        with _writing(output) as out:
            _refuse_its_own(output, place)
            out.begin()
            waiting = out.line(first)
            for line in lines:
                waiting += out.line(line)
                if waiting >= EXPORT_BYTES:
                    out.flush()
                    waiting = 0
    if read.skipped_count:
        say(f"{_count(read.skipped_count, 'line')} of the log could not be read")


@sessions.command()
def delete(
    which: Annotated[
        list[str],
        typer.Argument(
            metavar="SESSION...", help="Which ones.", autocompletion=candidates.sessions
        ),
    ],
    data_dir: DataDir = None,
) -> None:
    """Delete sessions for good. Refuses one that a process owns at the moment.

    Exits 1 when one of them is still there; the others are gone all the same.
    """
    from cookie.daemon import locks  # noqa: PLC0415 - not for a list

    with _failing():
        here = _here(data_dir)
    told, failed = _Told(), False
    for session in which:
        try:
            place = _place(session, here)
            locks.delete(place)
        except (Fault, OSError) as trouble:
            say(explain(trouble))
            failed = True
        else:
            told.tell(f"deleted {place.directory.name}")
    if failed:
        raise typer.Exit(exits.FAILED)


@sessions.command()
def prune(
    older: Annotated[str, typer.Option(metavar="AGE", help="How long unchanged: 30d, 12h, 2w ...")],
    data_dir: DataDir = None,
    everywhere: Everywhere = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go, and delete nothing.")
    ] = False,
) -> None:
    """Delete the sessions that have not changed for so long; those in use stay."""
    from cookie.daemon import locks  # noqa: PLC0415 - not for a list

    limit_ns = time.time_ns() - _seconds(older) * NS
    with _failing():
        here = _here(data_dir)
        rows = _listed(here, everywhere=everywhere)
    if not dry_run:
        for workspace in _places(here, everywhere=everywhere):
            locks.sweep_unborn(workspace)  # and what a deletion left that did not come to its end
    told, gone = _Told(), 0
    for one in rows:
        if one.changed_ns > limit_ns:
            continue
        if not dry_run:
            try:
                locks.delete(one.place, unchanged_since_ns=limit_ns)
            except (Fault, OSError) as trouble:
                say(f"kept {one.session_id}: {explain(trouble)}")
                continue
        gone += 1
        told.tell(f"{'would delete' if dry_run else 'deleted'} {one.session_id}  {_title(one)}")
    say(f"{_count(gone, 'session')} {'would be deleted' if dry_run else 'deleted'}")


# --- where


class _Here(NamedTuple):
    """The data directory, and the folder whose sessions are meant."""

    data_dir: Path
    cwd: str

    @property
    def workspace(self) -> WorkspacePaths:
        return workspace_paths(self.data_dir, self.cwd)


def _here(data_dir: str | None) -> _Here:
    return _Here(whereabouts.around(data_dir).data_dir, whereabouts.folder())


def _places(here: _Here, *, everywhere: bool) -> tuple[WorkspacePaths, ...]:
    return workspaces(sessions_dir(here.data_dir)) if everywhere else (here.workspace,)


def _listed(here: _Here, *, everywhere: bool) -> list[Listed]:
    found: list[Listed] = []
    for place in _places(here, everywhere=everywhere):
        listing = sessions_of(place)
        found += listing.sessions
        for note in listing.notes:
            say(note)
    if everywhere:
        found.sort(key=lambda one: (one.changed_ns, one.session_id), reverse=True)
    return found


def _place(session: str, here: _Here) -> TreePaths:
    """The tree that is meant; a whole id may be of any folder. Raises a Fault."""
    from cookie.daemon.locks import NoSuchSession  # noqa: PLC0415 - not for a list

    root = find(here.workspace, here.cwd, session)
    for workspace in (here.workspace, *workspaces(sessions_dir(here.data_dir))):
        if workspace.tree(root).directory.is_dir():
            return workspace.tree(root)
    raise NoSuchSession(root, here.cwd, "and no other folder has it")


def _folded(place: TreePaths) -> "tuple[SessionState, LogRead]":
    """Fold a log without touching it; raises SessionUnreadable or OSError."""
    from ipc.disk.log import read_log  # noqa: PLC0415 - not for a list
    from ipc.fold import SessionState, apply  # noqa: PLC0415

    state, read = SessionState(), read_log(place.root.events)
    for event in read.events():
        apply(state, event)
    return state, read


def _refuse_its_own(output: str | None, place: TreePaths) -> None:
    """A log that is emptied to be filled with itself is lost."""
    if output is not None and Path(output).samefile(place.root.events):
        raise OSError(errno.EINVAL, "this is the session's own log; choose another file", output)


# --- what is shown


def _line(one: Listed, now: int, *, everywhere: bool) -> str:
    status = one.metadata.status if one.metadata is not None else UNFINISHED
    age = _age((now - one.changed_ns) // NS)
    line = f"{one.session_id}  {age:>4}  {status:<11}  {_title(one)}"
    return f"{line}  [{clean(_folder(one) or '?', FOLDER_CHARS)}]\n" if everywhere else f"{line}\n"


def _title(one: Listed) -> str:
    return clean(" ".join(one.title.split()) or UNTITLED, TITLE_CHARS)


def _folder(one: Listed) -> str | None:
    """Its workspace; for one without metadata as the workspace's directory tells it."""
    if one.metadata is not None:
        return one.metadata.cwd_identity
    folder = folder_of(WorkspacePaths(one.place.directory.parent))
    return None if folder is None else os.fsencode(folder).decode(errors="replace")


def _row(one: Listed) -> Row:
    metadata = one.metadata
    return Row(
        session_id=one.session_id,
        title=one.title or None,
        status=metadata.status if metadata is not None else None,
        cwd=_folder(one),
        last_event_seq=metadata.last_event_seq if metadata is not None else None,
        changed=one.changed_ns / NS,
        path=str(one.place.directory),
    )


def _hit(state: "SessionState", wanted: re.Pattern[str]) -> str | None:
    """Where it was said first, with some of what stands around it; None if it was not."""
    for where, text in _texts(state):
        if (match := wanted.search(text)) is not None:
            start = max(0, match.start() - SNIPPET_CHARS // 3)
            around = text[start : max(start + SNIPPET_CHARS, match.end())]
            return f"{where}: {clean(' '.join(around.split()), SNIPPET_CHARS * 2)}"
    return None


def _texts(state: "SessionState") -> Iterator[tuple[str, str]]:
    """All that was said, with its place: the number of its event and who said it."""
    from ipc.content import TextBlock, ThinkingBlock, ToolCallBlock  # noqa: PLC0415
    from ipc.fold import InjectedEntry, TurnEntry, UserEntry  # noqa: PLC0415

    yield "title", state.title.text or ""
    for entry in state.entries:
        if isinstance(entry, UserEntry | InjectedEntry):
            yield f"{entry.seq} prompt", entry.input.text
        elif isinstance(entry, TurnEntry):
            for block in entry.event.turn.content:
                if isinstance(block, TextBlock | ThinkingBlock):
                    yield f"{entry.seq} answer", block.text
                elif isinstance(block, ToolCallBlock):
                    yield f"{entry.seq} {block.name}", block.arguments
            for call in entry.calls:
                if call.ended is not None and call.ended.result is not None:
                    yield f"{call.ended_seq} output of {call.name}", call.ended.result.output


def _age(seconds: int) -> str:
    for unit in ("w", "d", "h", "m"):
        if seconds >= _UNITS[unit]:
            return f"{seconds // _UNITS[unit]}{unit}"
    return f"{max(seconds, 0)}s"


def _seconds(age: str) -> int:
    match = _AGE.fullmatch(age.strip())
    if match is None:
        raise typer.BadParameter(f"--older is a number and a unit like 30d, 12h or 2w, not {age!r}")
    return int(match[1]) * _UNITS[match[2]]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# --- how it ends


@contextlib.contextmanager
def _failing() -> Iterator[None]:
    """A fault becomes one line and an exit code; a reader that has had enough is no fault."""
    try:
        yield
    except OutputBroken as broken:
        if broken.facts["errno"] == errno.EPIPE:
            raise typer.Exit(exits.COMPLETED) from None
        say(explain(broken))
        raise typer.Exit(exits.FAILED) from None
    except (Fault, OSError) as trouble:
        say(explain(trouble))
        raise typer.Exit(exits.SETUP) from None


@contextlib.contextmanager
def _writing(path: str | None) -> Iterator[Output]:
    out = Output(path)
    try:
        yield out
    except BaseException:
        out.undo()
        raise
    out.close()


@contextlib.contextmanager
def _to_stdout() -> Iterator[Output]:
    with _failing(), _writing(None) as out:
        yield out


class _Told:
    """Lines on stdout about what was done; when nobody reads them the work goes on all the same."""

    def __init__(self) -> None:
        self._out: Output | None = None
        with contextlib.suppress(OutputBroken):
            self._out = Output(None)

    def tell(self, line: str) -> None:
        """One line, at once."""
        if self._out is not None:
            try:
                self._out.put(f"{line}\n")
                self._out.flush()
            except OutputBroken:
                self._out = None
