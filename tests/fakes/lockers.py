"""Small programs that hold, race for, or lose a lock, each a real process."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def running(program: str, *args: str | Path) -> Iterator[subprocess.Popen[str]]:
    """`program` in a fresh interpreter in the checkout; killed at the end if need be."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, args)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    """The next line of a program; empty when it ended."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


# Locks the tree in argv[1] and keeps it until its stdin ends or it is killed.
HOLD = """
import sys
from pathlib import Path
from cookie.daemon import locks
from ipc.disk.paths import TreePaths
fd = locks.take(TreePaths(Path(sys.argv[1])))
locks.write_hint(fd, locks.me("run", 3))
print("held", flush=True)
sys.stdin.read()
"""

# Receives a descriptor over the socket whose number is argv[1], then keeps it.
KEEP = """
import socket, sys
sock = socket.socket(fileno=int(sys.argv[1]))
message, fds, _, _ = socket.recv_fds(sock, 1, 1)
print("got", flush=True)
sys.stdin.read()
"""

# Takes the tree in argv[1] argv[2] times; writes "+" when it has it, "-" before it lets go.
RACE = """
import os, sys
from pathlib import Path
from cookie.daemon import locks
from ipc.disk.paths import TreePaths
tree = TreePaths(Path(sys.argv[1]))
book = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND)
done = 0
while done < int(sys.argv[2]):
    try:
        fd = locks.take(tree)
    except locks.ForeignOwner:
        continue
    os.write(book, b"+")
    os.write(book, b"-")
    os.close(fd)
    done += 1
print("done", flush=True)
"""
