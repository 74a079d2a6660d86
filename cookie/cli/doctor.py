"""`cookie doctor`: looks at all that a run rests on, and says what is wrong with it."""

from itertools import groupby
from typing import Annotated, Final

import typer
from msgspec import Struct

from cookie.cli import exits
from cookie.cli.advice import LINE_CHARS_MAX, explain, say
from cookie.cli.checkup import Finding, look, patient
from cookie.cli.output import Output, OutputBroken
from ipc.faults import Fault, clean

MARKS: Final = {"ok": "  ok  ", "note": "  -   ", "warn": "  !   ", "bad": "  BAD "}
NAME_COLUMNS: Final = 16


class Report(Struct, frozen=True, kw_only=True):
    """What `--json` prints."""

    healthy: bool
    findings: tuple[Finding, ...]


def doctor(
    data_dir: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Where sessions and config.toml are (~/.cookie-agent)."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as one JSON object.")] = False,
) -> None:
    """Look at versions, paths, disk, locks, config, models and sessions; print no secret.

    Exits 1 when something is wrong.
    """
    try:
        findings = tuple(look(patient(data_dir)))
    except (Fault, OSError) as trouble:
        say(explain(trouble))
        raise typer.Exit(exits.SETUP) from None
    wrong = [one for one in findings if one.state == "bad"]
    try:
        output = Output(None)
        if json:
            output.record(Report(healthy=not wrong, findings=findings))
        else:
            output.put(_page(findings))
        output.close()
    except OutputBroken as broken:
        say(explain(broken))
        raise typer.Exit(exits.FAILED) from None
    if wrong:
        raise typer.Exit(exits.FAILED)


def _page(findings: tuple[Finding, ...]) -> str:
    lines: list[str] = []
    for about, group in groupby(findings, key=lambda one: one.about):
        lines += ["", about] if lines else [about]
        for one in group:
            lines.append(f"{MARKS[one.state]}{one.name:<{NAME_COLUMNS}} {one.text}")
    wrong = sum(one.state == "bad" for one in findings)
    lines += ["", "All is well." if not wrong else f"{wrong} of these must be put right."]
    return "".join(f"{clean(line, LINE_CHARS_MAX)}\n" for line in lines)
