"""`cookie demo`: the rehearsal's tour in a scratch folder, and then what it did and left there."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import typer

from cookie.cli import exits

MODEL: Final = "rehearsal/tour"
PROMPT: Final = "Show me around."
SEEDS: Final = {
    "README.md": (
        "# Cookies\n\nA scratch folder with one recipe in it, made for the tour of a rehearsal.\n"
    ),
    "recipe.txt": (
        "250 g flour\n150 g butter\n120 g brown sugar\n1 egg\n100 g dark chocolate, chopped\n"
        "1 pinch of salt\n\nMix, chill for an hour, bake 12 minutes at 180 degrees.\n"
    ),
}
FILES_SHOWN_MAX: Final = 10
LINES_SHOWN_MAX: Final = 6


def demo() -> None:
    """Watch an agent read, write, edit and run, without a model, a key or the network."""
    try:
        workspace = _workspace()
    except OSError as failed:
        typer.echo(f"cookie: can't make a scratch folder: {failed}", err=True)
        raise typer.Exit(exits.SETUP) from None
    data = workspace.parent / "data"
    flags = ["--model", MODEL, "--permission-mode", "yolo", "--data-dir", str(data), "--json"]
    typer.echo(f"In a scratch folder, {workspace}:\n\n$ cookie run {' '.join(flags)} '{PROMPT}'\n")
    code, summary = _run([*flags, PROMPT], workspace)
    for line in _report(summary, workspace, data):
        typer.echo(line)
    if code:
        typer.echo(f"The run ended with exit code {code}.", err=True)
    raise typer.Exit(code)


def _workspace() -> Path:
    """A fresh folder with two small files in it; left there, so that one can look around."""
    workspace = Path(tempfile.mkdtemp(prefix="cookie-demo-")) / "workspace"
    workspace.mkdir()
    for name, text in SEEDS.items():
        (workspace / name).write_text(text)
    return workspace


def _run(arguments: list[str], workspace: Path) -> tuple[int, dict[str, Any]]:
    """Run the installed command and tell its tool calls; its exit code and its last record."""
    summary: dict[str, Any] = {}
    command = [sys.executable, "-P", "-m", "cookie", "run", *arguments]
    with subprocess.Popen(command, cwd=workspace, stdout=subprocess.PIPE) as process:  # noqa: S603 - ourselves
        # Ctrl-C reaches both of us; the run knows how to end, and we tell what it came to.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert process.stdout is not None
        for line in process.stdout:
            record: dict[str, Any] = msgspec.json.decode(line)
            if record.get("type") == "summary":
                summary = record
            elif (step := _step(record)) is not None:
                typer.echo(f"  {step}")
    code = process.returncode
    return (128 - code if code < 0 else code), summary  # as a shell says that a signal ended it


def _step(record: dict[str, Any]) -> str | None:
    """One line for a record that a person wants to see, else None."""
    payload = record.get("event", {}).get("payload", {})
    if payload.get("type") != "tool_call_started":
        return None
    presentation = payload.get("presentation", {})
    title, argument = presentation.get("title", "?"), presentation.get("primary_argument")
    return title if argument is None or argument in title else f"{title} {argument}"


def _report(summary: dict[str, Any], workspace: Path, data: Path) -> Iterator[str]:
    """What a finished run came to, what it left, and how to look further."""
    session = summary.get("session_id")
    if summary.get("final_text"):
        yield f"\nThe answer:\n\n{_indented(summary['final_text'].splitlines())}"
    made = sorted(
        path
        for path in workspace.rglob("*")
        if path.is_file() and str(path.relative_to(workspace)) not in SEEDS
    )
    if made:
        yield "\nThe files it made:"
    for path in made[:FILES_SHOWN_MAX]:
        lines = path.read_text(errors="replace").splitlines()
        more = ["..."] if len(lines) > LINES_SHOWN_MAX else []
        yield f"\n  {path.relative_to(workspace)}, {len(lines)} lines:"
        yield _indented([*lines[:LINES_SHOWN_MAX], *more])
    if session is None:
        return
    for log in data.glob(f"sessions/*/{session}/events.jsonl"):
        with log.open("rb") as file:
            yield f"\nAll of it is in the session's log, {sum(1 for _ in file)} events:\n  {log}"
    yield "\nTo look further:"
    yield "  cookie schema events    what each line of that log means"
    yield (
        f"  cd {workspace} && \\\n"
        f"    cookie run --data-dir {data} --model {MODEL} --permission-mode yolo \\\n"
        f"    --resume-session {session} 'And again.'"
    )
    yield f"  rm -r {workspace.parent}    when you have seen enough"


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"    {line}".rstrip() for line in lines)
