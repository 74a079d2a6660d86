"""Where everything of a session tree lies (spec 1.5), as values: nothing here touches a tree."""

import hashlib
import os
import re
from pathlib import Path
from typing import Final

from msgspec import Struct

from ipc.ids import SessionId

KEY_HEX_DIGITS: Final = 16
SUFFIX_CHARS_MAX: Final = 32

NEW_PREFIX: Final = ".new-"  # a root being made, its lock not yet taken for sure
STAGING_PREFIX: Final = ".staging-"  # a root with a name and an owner, not yet published
DEAD_PREFIX: Final = ".dead-"  # taken out of the way by a sweeper, about to be deleted

_NOT_IN_SUFFIX = re.compile(r"[^a-z0-9._]+")


def workdir_hash(cwd: str | os.PathLike[str]) -> str:
    """The 16 hex digits a workspace is looked up by: of its real path, as bytes."""
    real = os.fsencode(os.path.realpath(cwd))
    return hashlib.blake2b(real).hexdigest()[:KEY_HEX_DIGITS]


def workdir_key(cwd: str | os.PathLike[str]) -> str:
    """`<16 hex>` or `<16 hex>-<suffix>`, the suffix a readable rest of the last path part."""
    name = Path(os.path.realpath(cwd)).name.lower()
    suffix = _NOT_IN_SUFFIX.sub("-", name)[:SUFFIX_CHARS_MAX].strip("-_")
    return f"{workdir_hash(cwd)}-{suffix}" if suffix else workdir_hash(cwd)


class SessionPaths(Struct, frozen=True):
    """The files of one session, root or child, below its own directory."""

    directory: Path

    @property
    def events(self) -> Path:
        """The log: one event a line."""
        return self.directory / "events.jsonl"

    @property
    def metadata(self) -> Path:
        """The cache that a listing reads; may be missing or stale."""
        return self.directory / "metadata"


class TreePaths(Struct, frozen=True):
    """The files of one session tree below its root's directory, whatever that is called now."""

    directory: Path

    @property
    def root(self) -> SessionPaths:
        """The root session's own files."""
        return SessionPaths(self.directory)

    @property
    def lock(self) -> Path:
        """The file whose flock is the right to write below `directory`. Never unlinked."""
        return self.directory / "owner.lock"

    @property
    def artifacts(self) -> Path:
        """The directory of content-addressed files."""
        return self.directory / "artifacts"

    @property
    def subagents(self) -> Path:
        """The directory of the child sessions."""
        return self.directory / "subagents"

    @property
    def index(self) -> Path:
        """The cache of the tree's shape; may be missing or stale."""
        return self.subagents / "index.json"

    def child(self, child: SessionId) -> SessionPaths:
        """The files of one child session; children of children lie beside it."""
        return SessionPaths(self.subagents / child)


class WorkspacePaths(Struct, frozen=True):
    """The directory of one workspace below `sessions/`."""

    directory: Path

    @property
    def layout(self) -> Path:
        """`{"version":2}`; written once."""
        return self.directory / "layout.json"

    @property
    def cwd(self) -> Path:
        """The workspace's real path, as bytes without a newline; written once."""
        return self.directory / "cwd"

    def tree(self, root: SessionId) -> TreePaths:
        """A published tree."""
        return TreePaths(self.directory / root)

    def new(self, pid: int, nonce: str) -> TreePaths:
        """A tree being made by process `pid`."""
        return TreePaths(self.directory / f"{NEW_PREFIX}{pid}-{nonce}")

    def staging(self, root: SessionId) -> TreePaths:
        """A tree that is owned and not yet published."""
        return TreePaths(self.directory / f"{STAGING_PREFIX}{root}")

    def dead(self, nonce: str) -> TreePaths:
        """A tree about to be deleted."""
        return TreePaths(self.directory / f"{DEAD_PREFIX}{nonce}")


def default_data_dir() -> Path:
    """`~/.cookie-agent`, where all of a user's state lies unless told otherwise."""
    return Path("~/.cookie-agent").expanduser()


def sessions_dir(data_dir: Path) -> Path:
    """The directory that holds one directory a workspace."""
    return data_dir / "sessions"


def workspace_paths(data_dir: Path, cwd: str | os.PathLike[str]) -> WorkspacePaths:
    """The directory of `cwd`: the one that is there with its hash, whatever its suffix is."""
    key, digits = workdir_key(cwd), workdir_hash(cwd)
    here = sessions_dir(data_dir)
    if not (here / key).is_dir():
        try:
            names = sorted(os.listdir(here))  # noqa: PTH208 - names, not paths
        except OSError:
            names = []
        for name in names:
            if name == digits or name.startswith(f"{digits}-"):
                return WorkspacePaths(here / name)
    return WorkspacePaths(here / key)
