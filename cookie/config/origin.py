"""Every setting with its value and the place it comes from, secrets masked; for people."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct, structs

from cookie.config.files import KeyPath, Layer, key_lines, nearest_line
from cookie.config.secrets import Kept
from cookie.config.settings import EVERY_RUN, TABLES, Settings
from cookie.config.tables import KINDS

DEFAULT: Final = "default"
_ONE_BY_ONE: Final = {
    "providers": ("providers",),
    "mcp": ("mcp", "servers"),
    "plugins": ("plugins",),
}


class Row(NamedTuple):
    """One setting. `path` and `line` are None for a default; `secret`: the value is masked."""

    key: KeyPath
    value: Any  # as JSON has it; None = not set, and somebody else decides
    path: Path | None = None
    line: int | None = None
    secret: bool = False

    @property
    def origin(self) -> str:
        """ "default" or "<path>:<line>"."""
        if self.path is None:
            return DEFAULT
        return str(self.path) if self.line is None else f"{self.path}:{self.line}"


def rows(settings: Settings, layers: tuple[Layer, ...]) -> list[Row]:
    """Every setting in force, in the order tables are documented; `layers` it came from."""
    files = [_File(layer) for layer in layers]
    found: list[Row] = []
    for name in TABLES:
        if name in _ONE_BY_ONE:
            for key, entry in _entries(settings, name):
                found += _of(key, entry, _owner(files, key))
        else:
            found += _of((name,), _table(settings, name), _owner(files, (name,)))
    return found


class _File:
    """A layer, its lines looked up once."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self._lines = key_lines(layer.text)

    def has(self, key: KeyPath) -> KeyPath | None:
        """The key as the file writes it; None if it does not set it."""
        value: Any = self.layer.table
        written: list[str] = []
        for part in key:
            if not isinstance(value, dict):
                return None
            name = part if part in value else _same_header(value, part)
            if name is None:
                return None
            written.append(name)
            value = value[name]
        return tuple(written)

    def line(self, key: KeyPath) -> int | None:
        return nearest_line(self._lines, key)


def _same_header(table: Mapping[str, Any], name: str) -> str | None:
    """Headers are the one thing whose case is not kept."""
    return next((one for one in table if one.lower() == name), None)


def _owner(files: list[_File], key: KeyPath) -> _File | None:
    """The file whose table is in force: the last that has it, since it replaces the others."""
    return next((file for file in reversed(files) if file.has(key) is not None), None)


def _table(settings: Settings, name: str) -> Struct:
    if name in EVERY_RUN:
        table: Struct = getattr(settings, name)
        return table
    found: Struct = settings.others.get(name) or KINDS[name]()
    return found


def _entries(settings: Settings, name: str) -> Iterator[tuple[KeyPath, Struct]]:
    held: Mapping[Any, Struct] = settings.providers
    if name != "providers":
        held = settings.plugins if name == "plugins" else settings.mcp_servers
    for entry, table in held.items():
        yield (*_ONE_BY_ONE[name], entry), table


def _of(key: KeyPath, value: Any, file: _File | None) -> Iterator[Row]:
    """The leaves of a value. A list is one; so is a table of which nothing is set."""
    if isinstance(value, Kept):
        yield _row(key, value.shown, file, secret=True)
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            child = getattr(value, name)
            if _worth(child) or _set(file, (*key, name)) is not None:
                yield from _of((*key, name), child, file)
    elif isinstance(value, dict) and value:
        for name, child in value.items():
            yield from _of((*key, name), child, file)
    else:
        yield _row(key, list(value) if isinstance(value, tuple) else value, file, secret=False)


def _worth(child: Any) -> bool:
    """Whether a default says something: not of a table without one set key, nor of an empty map."""
    if isinstance(child, Struct):
        return any(_worth(one) for one in structs.asdict(child).values())
    return child is not None and child != {}


def _set(file: _File | None, key: KeyPath) -> KeyPath | None:
    return None if file is None else file.has(key)


def _row(key: KeyPath, value: Any, file: _File | None, *, secret: bool) -> Row:
    written = _set(file, key)
    if file is None or written is None:
        return Row(key, value, secret=secret)
    return Row(key, value, file.layer.path, file.line(written), secret)
