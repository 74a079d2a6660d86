"""Where a command is: its data directory and the folder it was started in, or why there is none."""

import os
from pathlib import Path

from cookie.config.secrets import Surroundings, surroundings
from ipc.faults import Fault


class NoHome(Fault):
    """Nothing says where this person's data directory is."""

    code = "no_home"

    def __init__(self) -> None:
        super().__init__()
        self.args = ("there is no home directory to keep sessions in: give one with --data-dir",)


class NoFolder(Fault):
    """The current directory was removed under us."""

    code = "no_folder"

    def __init__(self) -> None:
        super().__init__()
        self.args = ("the current directory is gone: cd to one that is there",)


class PathNotText(Fault):
    """A path that JSON can't hold, so no log and no plan could name it."""

    code = "path_not_text"

    def __init__(self, what: str, path: str) -> None:
        shown = os.fsencode(path).decode(errors="replace")
        super().__init__(what=what, path=shown)
        self.args = (f"the {what} has a name that is not UTF-8: {shown}; rename it",)


def around(data_dir: str | None) -> Surroundings:
    """The surroundings with an absolute data directory; raises NoHome or PathNotText."""
    try:
        found = surroundings(data_dir)
    except RuntimeError:  # pathlib's word for a home that neither $HOME nor the system knows
        raise NoHome from None
    if not found.data_dir.is_absolute():
        raise NoHome
    _text("data directory", str(found.data_dir))
    return found


def folder() -> str:
    """The real path of the current directory; raises NoFolder or PathNotText."""
    try:
        return _text("current directory", os.path.realpath(Path.cwd()))
    except FileNotFoundError:
        raise NoFolder from None


def _text(what: str, path: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise PathNotText(what, path) from None
    return path
