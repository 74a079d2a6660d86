"""What could stand at the cursor: names that shell completion offers, and nothing it could run.

A shell evaluates what it is offered, and names come from files of a workspace that a stranger may
have written. So only plain words are offered, and no title: models write those.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from cookie.config.agents import Agents

PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/@+-]*")
OFFERED_MAX: Final = 200


def models(ctx: typer.Context, incomplete: str) -> list[str]:
    """Models that can be called, as `provider/model`."""
    return _offered(lambda: _models(ctx), incomplete)


def agents(ctx: typer.Context, incomplete: str) -> list[str]:
    """Agents that may run, those of the preset included that was given before."""

    def found() -> list[str]:
        documents = _agents(ctx).effective(ctx.params.get("preset"))
        return [one.agent for one in documents.values() if one.runs_as_root]

    return _offered(found, incomplete)


def presets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Presets of this folder and this person."""
    return _offered(lambda: sorted(_agents(ctx).presets), incomplete)


def sessions(ctx: typer.Context, incomplete: str) -> list[str]:
    """Sessions of this folder by their ids, newest first."""
    return _offered(lambda: _sessions(ctx), incomplete)


# What follows is imported in a completion alone.


def _models(ctx: typer.Context) -> list[str]:
    from cookie.config.settings import load_config  # noqa: PLC0415
    from cookie.models.families import compiled  # noqa: PLC0415

    config = load_config(*_here(ctx))
    known = compiled(config.settings, config.unusable)
    return [one.key for one in known if one.unavailable is None]


def _agents(ctx: typer.Context) -> "Agents":
    from cookie.config.agents import load_agents  # noqa: PLC0415

    return load_agents(*_here(ctx))


def _sessions(ctx: typer.Context) -> list[str]:
    from cookie.daemon.listing import sessions as sessions_of  # noqa: PLC0415
    from ipc.disk.paths import workspace_paths  # noqa: PLC0415

    return [one.session_id for one in sessions_of(workspace_paths(*_here(ctx))).sessions]


def _here(ctx: typer.Context) -> "tuple[Path, Path]":
    from pathlib import Path  # noqa: PLC0415

    from cookie.cli import whereabouts  # noqa: PLC0415

    data_dir = ctx.params.get("data_dir")
    return whereabouts.around(data_dir).data_dir, Path(whereabouts.folder())


def _offered(names: Callable[[], Sequence[str]], incomplete: str) -> list[str]:
    try:
        found = names()
    except Exception:  # noqa: BLE001 - a Tab that finds nothing; a word here would tear the prompt
        return []
    plain = [name for name in found if name.startswith(incomplete) and PLAIN.fullmatch(name)]
    return plain[:OFFERED_MAX]
