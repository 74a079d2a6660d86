"""Everything that is wrong with the config and the agents of a workspace, not only the first."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cookie.config.agents import CONTEXT_FILE, FOLDER, Agents, load_agents
from cookie.config.documents import BadDocument
from cookie.config.files import WORKSPACE_FOLDER, BadConfig, KeyPath, Layer, places, read_layer
from cookie.config.settings import Config, checked, merged
from ipc.faults import Fault


class Findings(NamedTuple):
    """What was read, and every complaint in the order of files."""

    layers: tuple[Layer, ...]
    config: Config | None  # None when a file of it can't be used
    agents: Agents | None  # None when a document can't be used
    wrong: tuple[Fault, ...]


# What is read and checked, and changes nothing before a later version; docs/guide/config.md says
# so too. A table stands for all that is in it.
LATER: Final[tuple[KeyPath, ...]] = (
    *(("approval",), ("context_compaction",), ("session_title",), ("delegation",), ("messaging",)),
    *(("workers", "idle_exit"), ("workers", "orphan_grace")),
    *(("workers", "memory_max"), ("workers", "pids_max")),
    *(("permissions",), ("server",), ("debug",), ("mcp",), ("plugins",)),
)


def not_in_force(layers: Sequence[Layer]) -> list[KeyPath]:
    """The keys of `LATER` that somebody set, in that order."""
    return [key for key in LATER if any(_is_set(layer.table, key) for layer in layers)]


def _is_set(table: object, key: KeyPath) -> bool:
    for part in key:
        if not isinstance(table, dict) or part not in table:
            return False
        table = table[part]
    return True


def inspect(data_dir: Path, cwd: Path, environ: Mapping[str, str]) -> Findings:
    """Read every layer and every document, selected or not; raises nothing."""
    wrong: list[BadConfig] = []
    files, layers = [], []
    for name, path in places(data_dir, cwd):
        try:
            layer = read_layer(name, path)
        except BadConfig as bad:
            wrong.append(bad)
            continue
        if layer is not None:
            layers.append(layer)
            files.append(checked(layer, environ, wrong))
    config = None if wrong else merged(files)
    documents, agents = _documents(data_dir, cwd)
    lacking = list(config.unusable.values()) if config is not None else []
    return Findings(tuple(layers), config, agents, (*wrong, *lacking, *documents))


def _documents(data_dir: Path, cwd: Path) -> tuple[list[BadDocument], Agents | None]:
    """The complaints about agent documents, one for each file, and the agents if there are none."""
    try:
        return [], load_agents(data_dir, cwd)
    except BadDocument as first:
        found = {str(first): first}
        for folder in _folders(data_dir, cwd):
            found |= {str(bad): bad for bad in _in_folder(folder)}
        # What is wrong between documents, or with a folder, only the loader finds.
        return sorted(found.values(), key=str), None


def _folders(data_dir: Path, cwd: Path) -> list[Path]:
    found: list[Path] = []
    for top in (data_dir / FOLDER, cwd / WORKSPACE_FOLDER / FOLDER):
        try:
            found += [top, *top.iterdir()]
        except OSError:  # it is not there, or the loader has said what is wrong with it
            continue
    return found


def _in_folder(folder: Path) -> list[BadDocument]:
    from cookie.config.frontmatter import read_document  # noqa: PLC0415 - YAML, where it is needed

    found: list[BadDocument] = []
    if not folder.is_dir() or folder.name.startswith("."):
        return found
    for path in sorted(folder.glob("*.md")):
        if path.name == CONTEXT_FILE or path.name.startswith(".") or path.is_dir():
            continue
        try:
            read_document(path, "user")
        except BadDocument as bad:
            found.append(bad)
    return found
