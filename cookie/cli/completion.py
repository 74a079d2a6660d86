"""`cookie completion`: the script that teaches a shell to complete `cookie`."""

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """Which one."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="Of which shell.")],
) -> None:
    """Print the script that completes commands, flags, models, agents and sessions.

    In bash: eval "$(cookie completion bash)". docs/guide/headless.md has the others.
    """
    from typer._completion_shared import get_completion_script  # noqa: PLC0415 - not at a run

    from cookie.cli.shell import COMPLETE_VARIABLE, NAME  # noqa: PLC0415 - it imports us

    script = get_completion_script(
        prog_name=NAME, complete_var=COMPLETE_VARIABLE, shell=shell.value
    )
    typer.echo(script)
