"""The `cookie` script: starts what `cookie run` will need, then reads the command line."""

import _signal  # type: ignore[import-not-found]  # `signal` imports enum, and no worker works yet
import gc
import os
import sys

TYPE_CHECKING = False  # the worker is started before typing is imported
if TYPE_CHECKING:
    from cookie.cli.early import Spare


def main() -> None:
    """Run the command line; the process exits with the command's code (spec 1.1)."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        # Until there is a run to cancel, Ctrl-C ends us as it ends any program: a traceback
        # through half-done imports would tell nobody anything.
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    _keep_standard_descriptors()
    spare = None
    if sys.argv[1:2] == ["run"] and not {"--help", "-h"} & set(sys.argv):
        from cookie.cli.early import start_early  # noqa: PLC0415

        gc.disable()  # until everything is imported: there is no garbage in it
        # Before typer is imported, and before the flags are known to be right: the worker's
        # imports take as long as ours, and the machine has more than one core.
        spare = start_early(sys.argv[1:])
    try:
        _shell(spare)
    finally:
        if spare is not None:
            spare.abandon()


def _shell(spare: "Spare | None") -> None:
    from cookie.cli.shell import shell  # noqa: PLC0415 - imports typer

    try:
        shell(spare)
    except OSError as failed:
        from cookie.cli.advice import explain, say  # noqa: PLC0415 - seldom needed
        from cookie.cli.exits import FAILED  # noqa: PLC0415

        # What a command did not expect: mostly that what it prints can't be written.
        say(explain(failed, "stdout"))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter's own end fails at it
        sys.exit(FAILED)


def _keep_standard_descriptors() -> None:
    """A standard stream that was closed must not become a socket or a log of ours."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
