"""The step that makes a new tree visible: whole, durable, and before anyone is told of it.

A root is born as `.new-<pid>-<nonce>` and becomes `.staging-<id>` when its lock is held (both by
the supervisor, which also sweeps what a crash leaves); its worker renames it to `<id>` at the
first user message. Why a plain rename(2) and not RENAME_NOREPLACE: no rename replaces a directory
that has something in it, and a tree always has its `owner.lock`; so this needs neither ctypes nor
a kernel or file system that knows the flag.
"""

import errno
from pathlib import Path
from typing import Final

from ipc.disk.files import sync_dir
from ipc.faults import Fault
from workers.store.tree import OwnedTree

_TAKEN: Final = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})


class AlreadyPublished(Fault):
    """There is a tree of that name; it is left as it is."""

    code = "already_published"


def publish(tree: OwnedTree, final: Path) -> None:
    """Give a staged tree its name, durably; the files in it must have been synced.

    Blocks: meant as `then` of the append that holds the first user message, so that nobody is
    told of an event whose tree a crash could lose. Raises AlreadyPublished, Fenced or OSError;
    after an OSError only a fresh look at the disk tells which name the tree has.
    """
    staged = tree.paths.directory
    tree.check()
    sync_dir(tree.fs, staged)
    try:
        tree.fs.rename(staged, final)
    except OSError as error:
        if error.errno in _TAKEN:
            raise AlreadyPublished(path=str(final)) from error
        raise
    tree.moved(final)
    sync_dir(tree.fs, final.parent)
