"""The command table: finds the one command that was asked for and imports only that."""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from ipc import VERSION
from ipc.faults import clean

if TYPE_CHECKING:
    from cookie.cli.early import Spare

COMMANDS: Final = {
    "run": "cookie.cli.run",
    "sessions": "cookie.cli.sessions",
    "config": "cookie.cli.config",
    "permissions": "cookie.cli.permissions",
    "doctor": "cookie.cli.doctor",
    "completion": "cookie.cli.completion",
    "schema": "cookie.cli.schema",
    "demo": "cookie.cli.demo",
}  # name -> module with a function of that name; one file a command
NAME: Final = "cookie"
COMPLETE_VARIABLE: Final = "_COOKIE_COMPLETE"  # set by the script of `cookie completion`
HIDDEN: Final = frozenset({"demo"})
MISTAKE_CHARS_MAX: Final = 400  # of a line

EPILOG: Final = """\
Examples:

  cookie run -m rehearsal/tour --permission-mode yolo 'Show me around'

  cookie run --continue 'And now the tests'

  cookie run --json -f task.md > events.jsonl

  cookie schema events > events.schema.json
"""


class _Words(TyperGroup):
    """The command line; what it says of a mistake quotes the person's words, which may be hostile.

    They come from a script or a paste, and a terminal would obey them.
    """

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """See `TyperGroup`."""
        with _harmless():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """See `TyperGroup`."""
        with _harmless():
            return super().invoke(ctx)


@contextmanager
def _harmless() -> Iterator[None]:
    try:
        yield
    except TyperException as mistake:
        lines = mistake.message.split("\n")
        mistake.message = "\n".join(clean(line, MISTAKE_CHARS_MAX) for line in lines)
        raise


def shell(spare: "Spare | None") -> None:
    """Read the command line and carry it out; `spare` is a worker that is starting already."""
    app = typer.Typer(
        name=NAME,
        cls=_Words,
        help="A coding agent whose sessions are never lost.",
        epilog=EPILOG,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    asked = _asked()
    wanted = {asked: COMMANDS[asked]} if asked in COMMANDS else COMMANDS
    for name, module in wanted.items():
        room = importlib.import_module(module)
        command = getattr(room, name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            settings = getattr(room, "CONTEXT", None)
            app.command(name=name, hidden=name in HIDDEN, context_settings=settings)(command)
    if COMPLETE_VARIABLE in os.environ:
        from typer._completion_classes import completion_init  # noqa: PLC0415 - at each Tab alone

        completion_init()
    app(obj=spare, complete_var=COMPLETE_VARIABLE)


def _asked() -> str:
    """The command's name: the first word, or the first of the words that are being completed."""
    words = sys.argv
    if COMPLETE_VARIABLE in os.environ:
        typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
        words = typed.split()
    return words[1] if len(words) > 1 else ""


def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"cookie {VERSION}")
        raise typer.Exit
