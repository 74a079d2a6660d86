"""`cookie schema`: the JSON Schemas of what cookie writes and speaks."""

import json
from enum import StrEnum
from typing import Annotated

import typer


class Subject(StrEnum):
    """Of what."""

    EVENTS = "events"
    METHODS = "methods"


def schema(
    subject: Annotated[Subject, typer.Argument(help="Of what.")],
) -> None:
    """Print the JSON Schema of events (the session log) or methods (the daemon's protocol)."""
    from ipc.schema import event_schema, method_schema  # noqa: PLC0415 - builds every type's schema

    made = event_schema() if subject is Subject.EVENTS else method_schema()
    typer.echo(json.dumps(made, indent=2))
