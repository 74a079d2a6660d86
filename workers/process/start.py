"""The first and the last frame of a worker: flags, birth, the loop, the exit code."""

import faulthandler
import gc
import os
import select
import socket
import sys
import traceback
from importlib import import_module
from typing import Final

import uvloop

from ipc.faults import Fault
from ipc.life import NoBirth, recv_birth
from ipc.orders import Birth
from workers.process.worker import Worker
from workers.providers import ADAPTORS, LOCAL

EXIT_OK: Final = 0
EXIT_USAGE: Final = 2
EXIT_BROKEN: Final = 70  # EX_SOFTWARE of sysexits.h: the worker stopped itself, and said why


def main() -> None:
    """Be one worker; never returns."""
    life_fd, adaptors = _flags(sys.argv[1:])
    life = socket.socket(fileno=life_fd)
    os.set_inheritable(life.fileno(), False)
    faulthandler.enable()
    _preload(adaptors)
    # Turned off in `__main__`: what the imports made stays, so no collection need look at it.
    gc.freeze()
    gc.enable()
    code = EXIT_BROKEN
    try:
        _live(life)
        code = EXIT_OK
    except NoBirth:
        code = EXIT_OK  # started ahead of time and then not needed
    except BaseException as trouble:  # noqa: BLE001 - the outermost frame: told and not hidden
        _tell(trouble)
    sys.stderr.flush()
    os._exit(code)  # no atexit of anybody may hold up an end that is already recorded


def _flags(flags: list[str]) -> tuple[int, list[str]]:
    """What the flags leave open: the life socket, and the adaptors that will likely be needed.

    Read by hand, since argparse would hold up every start by seven milliseconds.
    """
    named = dict(flag.partition("=")[::2] for flag in flags)
    number, adaptors = named.pop("--life-fd", ""), named.pop("--preload", "")
    if named != {"--solo": "", "--on-eof": "end"} or not number.isdecimal():
        usage = "python -m workers --solo --on-eof=end --life-fd=N [--preload=ADAPTOR,...]"
        sys.stderr.write(f"usage: {usage}\n")
        sys.exit(EXIT_USAGE)
    return int(number), adaptors.split(",") if adaptors else []


def _preload(adaptors: list[str]) -> None:
    """Import what a request will need, and what keeping its key to ourselves does (`_settle`)."""
    modules = {ADAPTORS[name] for name in adaptors if name in ADAPTORS and name not in LOCAL}
    for module in [*sorted(modules), *(["workers.providers.http", "ctypes"] if modules else [])]:
        try:
            import_module(module)
        except Exception:  # noqa: BLE001 - whoever needs it fails by it; told here, as it happened
            traceback.print_exc(file=sys.stderr)


def _live(life: socket.socket) -> None:
    # No deadline: whoever started us may still be reading a prompt. EOF ends the wait.
    select.select([life], [], [])
    birth, fds = recv_birth(life)
    # No asyncio.Runner: its end waits for every thread of the executor, and one may be stuck in a
    # read of a pipe or a dead mount. What had to be awaited has been when `serve` returns.
    loop = uvloop.new_event_loop()
    loop.run_until_complete(_serve(life, birth, fds))


async def _serve(life: socket.socket, birth: Birth, fds: tuple[int, ...]) -> None:
    await Worker(birth, fds[0], life).serve()


def _tell(trouble: BaseException) -> None:
    """Faults in a line each, bugs with their traceback; the last line is what people are shown."""
    if isinstance(trouble, BaseExceptionGroup):
        for one in trouble.exceptions:
            _tell(one)
    elif isinstance(trouble, Fault):
        sys.stderr.write(f"cookie: {trouble}\n")
    else:
        traceback.print_exception(trouble, file=sys.stderr)
