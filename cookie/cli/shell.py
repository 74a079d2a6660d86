"""The command table: finds the one command that was asked for and imports only that."""

import importlib
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ipc import VERSION

if TYPE_CHECKING:
    from cookie.cli.early import Spare

COMMANDS: Final = {
    "run": "cookie.cli.run",
    "sessions": "cookie.cli.sessions",
    "config": "cookie.cli.config",
    "schema": "cookie.cli.schema",
    "demo": "cookie.cli.demo",
}  # name -> module with a function of that name; one file a command
HIDDEN: Final = frozenset({"demo"})
EPILOG: Final = """\
Examples:

  cookie run -m rehearsal/tour --permission-mode yolo 'Show me around'

  cookie run --continue 'And now the tests'

  cookie run --json -f task.md > events.jsonl

  cookie schema events > events.schema.json
"""


def shell(spare: "Spare | None") -> None:
    """Read the command line and carry it out; `spare` is a worker that is starting already."""
    app = typer.Typer(
        name="cookie",
        help="A coding agent whose sessions are never lost.",
        epilog=EPILOG,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    wanted = {asked: COMMANDS[asked]} if asked in COMMANDS else COMMANDS
    for name, module in wanted.items():
        room = importlib.import_module(module)
        command = getattr(room, name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            settings = getattr(room, "CONTEXT", None)
            app.command(name=name, hidden=name in HIDDEN, context_settings=settings)(command)
    app(obj=spare)


def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"cookie {VERSION}")
        raise typer.Exit
