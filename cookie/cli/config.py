"""`cookie config`: check what was configured, and show every setting with its origin."""

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer

from cookie.cli import exits, whereabouts
from cookie.cli.advice import explain, one_line
from cookie.config.check import Findings, inspect, not_in_force
from cookie.config.files import key_text
from cookie.config.secrets import environment
from ipc.faults import Fault, clean

VALUE_CHARS_MAX = 400

DataDir = Annotated[
    str | None,
    typer.Option("--data-dir", metavar="PATH", help="Where config.toml is (~/.cookie-agent)."),
]

config = typer.Typer(
    name="config",
    help="Check the configuration of this folder, or show it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@config.command()
def check(data_dir: DataDir = None) -> None:
    """Read every config file and every agent document, and say all that is wrong with them."""
    found = _findings(data_dir)
    for bad in found.wrong:
        typer.echo(one_line(str(bad)))
    if found.wrong:
        typer.echo(_count(len(found.wrong), "mistake"))
        raise typer.Exit(exits.FAILED)
    for note in _notes(found):
        typer.echo(f"note: {one_line(note)}")
    typer.echo(f"ok: {_summary(found)}")


@config.command()
def show(
    data_dir: DataDir = None,
    origin: Annotated[
        bool, typer.Option("--origin", help="Say the file and line each value comes from.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Every setting in force. Secrets are masked; `${env:NAME}` stays as it was written."""
    from cookie.config.origin import rows  # noqa: PLC0415 - `check` needs none of it

    found = _findings(data_dir)
    if found.config is None:
        for bad in found.wrong:
            typer.echo(f"cookie: {one_line(str(bad))}", err=True)
        raise typer.Exit(exits.FAILED)
    for row in rows(found.config.settings, found.layers):
        key = key_text(row.key)
        if json:
            record = {"key": key, "value": row.value, "origin": row.origin, "secret": row.secret}
            record |= {"path": None if row.path is None else str(row.path), "line": row.line}
            typer.echo(jsonlib.dumps(record))
        else:
            place = f"  # {row.origin}" if origin else ""
            typer.echo(f"{key} = {_literal(row.value)}{clean(place, VALUE_CHARS_MAX)}")


def _findings(data_dir: str | None) -> Findings:
    try:
        around, cwd = whereabouts.around(data_dir), whereabouts.folder()
    except Fault as lost:
        typer.echo(f"cookie: {explain(lost)}", err=True)
        raise typer.Exit(exits.SETUP) from None
    return inspect(around.data_dir, Path(cwd), environment())


def _literal(value: Any) -> str:
    """A value as one writes it in the file, without what a terminal might obey."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return clean(f"[{', '.join(_literal(one) for one in value)}]", VALUE_CHARS_MAX)
    text = jsonlib.dumps(value, ensure_ascii=False)
    return clean(text, VALUE_CHARS_MAX)


def _notes(found: Findings) -> list[str]:
    """What is well written and still of no use, by provider."""
    from cookie.models.families import compiled  # noqa: PLC0415 - only when all is well

    assert found.config is not None, "nothing is wrong"
    settings = found.config.settings
    lame: dict[tuple[str, str], int] = {}
    for model in compiled(settings, found.config.unusable):
        if model.unavailable is not None and model.unavailable.kind != "disabled":
            which = (model.key.partition("/")[0], model.unavailable.reason)
            lame[which] = lame.get(which, 0) + 1
    for provider, table in settings.providers.items():
        if table.source == "models_dev" and not table.models:
            lame[provider, "this build has no catalogue of models yet"] = 0
    models = [
        f"{_count(count, 'model')} of {provider} can't be used: {why}"
        if count
        else f"{provider} can't be used: {why}"
        for (provider, why), count in lame.items()
    ]
    later = [key_text(key) for key in not_in_force(found.layers)]
    return [*models, *([f"not in force in this version: {', '.join(later)}"] if later else [])]


def _summary(found: Findings) -> str:
    from cookie.models.families import compiled  # noqa: PLC0415 - only when all is well

    assert found.config is not None, "nothing is wrong"
    assert found.agents is not None, "nothing is wrong"
    settings = found.config.settings
    models = compiled(settings, found.config.unusable)[:-1]  # the tour is nobody's
    usable = sum(one.unavailable is None for one in models)
    parts = [
        _count(len(found.layers), "config file"),
        _count(len(settings.providers), "provider"),
        _count(len(models), "model") + (f" ({usable} usable)" if usable < len(models) else ""),
        _count(len(found.agents.shared), "agent"),
        _count(len(found.agents.presets), "preset"),
    ]
    if settings.mcp_servers:
        parts.append(_count(len(settings.mcp_servers), "MCP server"))
    if settings.plugins:
        parts.append(_count(len(settings.plugins), "plugin"))
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
