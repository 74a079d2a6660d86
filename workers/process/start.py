"""The first and the last frame of a worker: flags, birth, the loop, the exit code."""

import argparse
import asyncio
import faulthandler
import os
import select
import socket
import sys
import traceback
from typing import Final

import uvloop

from ipc.faults import Fault
from ipc.life import NoBirth, recv_birth
from ipc.orders import Birth
from ipc.seams import proc
from workers.process.worker import Worker

EXIT_OK: Final = 0
EXIT_BROKEN: Final = 70  # EX_SOFTWARE of sysexits.h: the worker stopped itself, and said why


def main() -> None:
    """Be one worker; never returns."""
    flags = _flags()
    faulthandler.enable()
    proc.set_subreaper()
    proc.set_dumpable(dumpable=False)
    life = socket.socket(fileno=flags.life_fd)
    os.set_inheritable(life.fileno(), False)
    code = EXIT_BROKEN
    try:
        code = _live(life)
    except NoBirth:
        code = EXIT_OK  # started ahead of time and then not needed
    except Fault as fault:
        sys.stderr.write(f"cookie: {fault}\n")
    except BaseException as bug:  # noqa: BLE001 - the outermost frame: it is told and not hidden
        _tell(bug)
    sys.stderr.flush()
    os._exit(code)  # no atexit of anybody may hold up an end that is already recorded


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workers")
    parser.add_argument("--solo", action="store_true", required=True)
    parser.add_argument("--life-fd", type=int, required=True)
    parser.add_argument("--on-eof", choices=("end",), required=True)
    return parser.parse_args()


def _live(life: socket.socket) -> int:
    # No deadline: whoever started us may still be reading a prompt. EOF ends the wait.
    select.select([life], [], [])
    birth, fds = recv_birth(life)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(life, birth, fds))
    return EXIT_OK


async def _serve(life: socket.socket, birth: Birth, fds: tuple[int, ...]) -> None:
    await Worker(birth, fds[0], life).serve()


def _tell(bug: BaseException) -> None:
    """Faults in a line each, bugs with their traceback."""
    for one in bug.exceptions if isinstance(bug, BaseExceptionGroup) else (bug,):
        if isinstance(one, BaseExceptionGroup):
            _tell(one)
        elif isinstance(one, Fault):
            sys.stderr.write(f"cookie: {one}\n")
        else:
            traceback.print_exception(one, file=sys.stderr)
