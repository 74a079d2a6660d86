"""The `cookie` script: starts what `cookie run` will need, then reads the command line."""

import os
import sys


def main() -> None:
    """Run the command line; the process exits with the command's code (spec 1.1)."""
    _keep_standard_descriptors()
    early = None
    if sys.argv[1:2] == ["run"] and not {"--help", "-h"} & set(sys.argv):
        from cookie.cli.early import start_worker  # noqa: PLC0415

        # Before typer is imported, and before the flags are known to be right: the worker's
        # imports take as long as ours, and the machine has more than one core.
        early = start_worker()
    from cookie.cli.shell import shell  # noqa: PLC0415 - imports typer

    shell(early)


def _keep_standard_descriptors() -> None:
    """A standard stream that was closed must not become a socket or a log of ours."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
