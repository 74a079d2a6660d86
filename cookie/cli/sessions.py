"""`cookie sessions`: list, read, search, export and delete what is on the disk."""

import json as jsonlib
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cookie.cli import exits
from cookie.cli.advice import explain
from cookie.config.secrets import surroundings
from cookie.daemon import locks
from cookie.daemon.listing import Listed, find
from cookie.daemon.listing import sessions as sessions_of
from ipc.disk.log import LogRead, read_log
from ipc.disk.paths import TreePaths, WorkspacePaths, sessions_dir, workspace_paths
from ipc.faults import Fault, clean
from ipc.fold import SessionState, TurnEntry, UserEntry, apply

SNIPPET_CHARS: Final = 100
TITLE_CHARS: Final = 60
NS: Final = 1_000_000_000
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
    str, typer.Argument(metavar="SESSION", help="Its id, or how its id or its title begins.")
]

sessions = typer.Typer(
    name="sessions",
    help="List, read, search, export and delete sessions.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@sessions.command("list")
def list_(
    data_dir: DataDir = None,
    everywhere: Everywhere = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """The sessions of this folder, newest first. No log is opened."""
    now = time.time_ns()
    rows = _listed(data_dir, everywhere=everywhere)
    if json:
        for one in rows:
            typer.echo(jsonlib.dumps(_row(one)))
        return
    if not rows:
        typer.echo("There are no sessions here yet.", err=True)
        return
    for one in rows:
        status = one.metadata.status if one.metadata is not None else "unfinished"
        age = _age((now - one.changed_ns) // NS)
        title = clean(one.title or "(no title)", TITLE_CHARS)
        typer.echo(f"{one.session_id}  {age:>4}  {status:<11}  {title}")


@sessions.command()
def show(session: Which, data_dir: DataDir = None) -> None:
    """A session as Markdown: what was said and done, and what could not be read of it."""
    from cookie.cli.transcript import markdown  # noqa: PLC0415 - for this command alone

    with _faults():
        state, read = _open(_place(session, data_dir))
        typer.echo(markdown(state, read), nl=False)


@sessions.command()
def search(
    text: Annotated[str, typer.Argument(help="What to look for, in any case of letters.")],
    data_dir: DataDir = None,
    everywhere: Everywhere = False,
) -> None:
    """Sessions in which this was said, with the place. Exits 1 when there is none."""
    wanted, found = text.casefold(), False
    for one in _listed(data_dir, everywhere=everywhere):
        try:
            state, _ = _open(one.place)
        except (Fault, OSError) as trouble:
            typer.echo(f"cookie: {explain(trouble)}", err=True)
            continue
        for said in _texts(state):
            at = said.casefold().find(wanted)
            if at >= 0:
                start = max(0, at - SNIPPET_CHARS // 3)
                snippet = " ".join(said[start : start + SNIPPET_CHARS].split())
                typer.echo(f"{one.session_id}  {clean(snippet, SNIPPET_CHARS)}")
                found = True
                break
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
    with _faults():
        read = read_log(_place(session, data_dir).root.events)
        lines = (line + b"\n" for _, line in read)
        if output is None:
            for line in lines:
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        else:
            with Path(output).open("wb") as file:
                file.writelines(lines)
    if read.skipped_count:
        typer.echo(f"cookie: {read.skipped_count} lines could not be read", err=True)


@sessions.command()
def delete(
    which: Annotated[list[str], typer.Argument(metavar="SESSION...", help="Which ones.")],
    data_dir: DataDir = None,
) -> None:
    """Delete sessions for good. Refuses one that a process owns at the moment."""
    failed = False
    for session in which:
        try:
            place = _place(session, data_dir)
            locks.delete(place)
        except (Fault, OSError) as trouble:
            typer.echo(f"cookie: {explain(trouble)}", err=True)
            failed = True
        else:
            typer.echo(f"deleted {place.directory.name}")
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
    limit_ns = time.time_ns() - _seconds(older) * NS
    gone = 0
    for one in _listed(data_dir, everywhere=everywhere):
        if one.changed_ns > limit_ns:
            continue
        if not dry_run:
            try:
                locks.delete(one.place)
            except (Fault, OSError) as trouble:
                typer.echo(f"cookie: kept {one.session_id}: {explain(trouble)}", err=True)
                continue
        gone += 1
        title = clean(one.title or "(no title)", TITLE_CHARS)
        typer.echo(f"{'would delete' if dry_run else 'deleted'} {one.session_id}  {title}")
    typer.echo(f"{gone} sessions" + (" would be deleted" if dry_run else " deleted"), err=True)


def _listed(data_dir: str | None, *, everywhere: bool) -> list[Listed]:
    home = surroundings(data_dir).data_dir
    if not everywhere:
        places = [workspace_paths(home, Path.cwd())]
    else:
        folder = sessions_dir(home)
        names = sorted(os.listdir(folder)) if folder.is_dir() else []  # noqa: PTH208 - names
        places = [WorkspacePaths(folder / name) for name in names]
    found: list[Listed] = []
    for place in places:
        listing = sessions_of(place)
        found += listing.sessions
        for note in listing.notes:
            typer.echo(f"cookie: {note}", err=True)
    return sorted(found, key=lambda one: (one.changed_ns, one.session_id), reverse=True)


def _place(session: str, data_dir: str | None) -> TreePaths:
    cwd = os.path.realpath(Path.cwd())
    workspace = workspace_paths(surroundings(data_dir).data_dir, cwd)
    root = find(workspace, cwd, session)
    place = workspace.tree(root)
    if not place.directory.is_dir():
        raise locks.NoSuchSession(root, cwd, locks.whereabouts(workspace, root))
    return place


def _open(place: TreePaths) -> tuple[SessionState, LogRead]:
    """Fold a log without touching it; raises SessionUnreadable or OSError."""
    state, read = SessionState(), read_log(place.root.events)
    for event in read.events():
        apply(state, event)
    return state, read


def _texts(state: SessionState) -> Iterator[str]:
    yield state.title.text or ""
    for entry in state.entries:
        if isinstance(entry, UserEntry):
            yield entry.input.text
        elif isinstance(entry, TurnEntry):
            for block in entry.event.turn.content:
                yield getattr(block, "text", "") or getattr(block, "arguments", "")


def _row(one: Listed) -> dict[str, Any]:
    metadata = one.metadata
    return {
        "session_id": one.session_id,
        "title": one.title or None,
        "status": metadata.status if metadata is not None else None,
        "cwd": metadata.cwd_identity if metadata is not None else None,
        "last_event_seq": metadata.last_event_seq if metadata is not None else None,
        "changed": one.changed_ns / NS,
        "path": str(one.place.directory),
    }


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


class _faults:  # noqa: N801 - reads as a with-statement
    """Turns a fault into one line and exit code 5."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(exits.SETUP) from None
        if isinstance(error, (Fault, OSError)):
            typer.echo(f"cookie: {explain(error)}", err=True)
            raise typer.Exit(exits.SETUP) from None
