"""Trees as a whole: the list of live ones, and what changed in it."""

from msgspec import Struct

from ipc.methods.records import TreeRow


class WorkersListResult(Struct, frozen=True, kw_only=True):
    """What `cookie ps` shows."""

    trees: tuple[TreeRow, ...]


class TreesChanged(Struct, frozen=True, kw_only=True):
    """Notification: the trees whose row changed."""

    trees: tuple[TreeRow, ...]
