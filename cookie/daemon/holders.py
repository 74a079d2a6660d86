"""Who holds which tree, seen from outside: nothing is locked to find out, so nobody is disturbed.

To try a lock is to hold it for a moment, and a command that starts in that moment would be told
that the session is owned. The kernel's own list says it without; where there is none, the text in
owner.lock is believed, checked against pid and start time.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from cookie.daemon.locks import Holder, read_hint
from ipc.disk.paths import TreePaths, WorkspacePaths
from ipc.seams.fs import REAL, Fs

_LOCKS: Final = Path("/proc/locks")
# One that only waits has an arrow behind its number.
_FLOCK: Final = re.compile(
    r"^\d+: FLOCK +\S+ +\S+ +-?\d+ ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE
)


class Held(NamedTuple):
    """One tree that somebody holds; `holder` is None when its lock does not say who."""

    tree: TreePaths
    holder: Holder | None

    @property
    def who(self) -> str:
        """Who it is, for people."""
        return str(self.holder) if self.holder is not None else "a process that does not say who"


def held(workspace: WorkspacePaths, fs: Fs = REAL) -> Iterator[Held]:
    """The trees of a workspace that are held, published or not, by name; never raises."""
    locked = flocked()
    inodes = {inode for _device, inode in locked or ()}
    try:
        names = sorted(fs.listdir(workspace.directory))
    except OSError:
        return
    for name in names:
        tree = TreePaths(workspace.directory / name)
        try:
            status = fs.stat(tree.lock, follow=False)
        except OSError:
            continue
        if locked is not None and status.st_ino not in inodes:
            continue
        holder = _hint(tree, fs)
        # Some file systems (btrfs) tell stat(2) another device than the kernel's list has.
        known = (status.st_dev, status.st_ino) in (locked or ())
        if known or (holder is not None and holder.lives()):
            yield Held(tree, holder)


def flocked() -> set[tuple[int, int]] | None:
    """Device and inode of every file that is flocked on this machine; None if nobody tells."""
    try:
        return parsed(_LOCKS.read_text())
    except OSError:
        return None


def parsed(text: str) -> set[tuple[int, int]]:
    """The same from the text of /proc/locks (proc(5)); what is no such line is passed over."""
    return {
        (os.makedev(int(major, 16), int(minor, 16)), int(inode))
        for major, minor, inode in _FLOCK.findall(text)
    }


def _hint(tree: TreePaths, fs: Fs) -> Holder | None:
    try:
        fd = fs.open(tree.lock, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return read_hint(fd, fs)
    finally:
        fs.close(fd)
