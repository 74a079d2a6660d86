"""The settings of a workspace: the strict schema of config.toml, and one file laid over the other.

A table of the workspace replaces the user's table of that name whole; providers, MCP servers and
plugins are replaced one by one. Each file is checked before they are merged, so an error always
names the right one. The tables that most files do not have are read by modules of their own, which
are imported when such a table is there: a run pays for what it was configured with.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

from msgspec import Struct

from cookie.config.files import BadConfig, KeyPath, Layer, load
from cookie.config.schema import (
    Positive,
    Whole,
    duration_s,
    is_table,
    near,
    record,
)
from cookie.config.secrets import Vault, environment

if TYPE_CHECKING:
    from cookie.config.providers import Provider
    from cookie.config.reader import Reader
    from cookie.config.servers import McpServerTable, PluginTable
    from ipc.ids import ProviderId


class ToolOutputTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tool_output]`: how much of one stream of a tool's output a model sees."""

    NAME: ClassVar = "tool_output"

    max_lines: Positive = 2000
    max_bytes: Positive = 51_200


class ModelRetryTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[model_retry]`: how often a model is asked again; 0 = never, negative = without end."""

    NAME: ClassVar = "model_retry"

    standard_retries: Whole = 3
    overload_retries: Whole = 5
    backoff_ceiling_ms: Positive = 60_000


class WorkersTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[workers]`: how long a worker may be silent or idle, what it may use, what tools inherit."""

    NAME: ClassVar = "workers"
    DURATIONS: ClassVar = ("wedged_after", "link_patience", "idle_exit", "orphan_grace")

    wedged_after: str = "30s"  # without an answer for so long it is ended
    link_patience: str = "30s"  # a supervisor that takes nothing slows a run for at most so long
    idle_exit: str = "10m"  # with nothing to do for so long it ends by itself
    orphan_grace: str = "5m"  # without a supervisor, and with nothing to do
    memory_max: Positive | None = None  # bytes of one tree, its tools included
    pids_max: Positive | None = None  # processes of one tree
    pass_env: tuple[str, ...] = ()  # variables that tools get although they are withheld

    def wedged_after_s(self) -> float:
        """Seconds."""
        return duration_s(self.wedged_after)

    def link_patience_ms(self) -> int:
        """Milliseconds."""
        return int(duration_s(self.link_patience) * 1000)


class NamedTable(Protocol):
    """A table of the file that is there once, and can be left out."""

    NAME: ClassVar[str]

    def __init__(self) -> None: ...


_T = TypeVar("_T", bound=NamedTable)


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that was configured, without a secret. What was left out has its default."""

    providers: "dict[ProviderId, Provider]" = {}
    tool_output: ToolOutputTable = ToolOutputTable()
    model_retry: ModelRetryTable = ModelRetryTable()
    workers: WorkersTable = WorkersTable()
    mcp_servers: "dict[str, McpServerTable]" = {}
    plugins: "dict[str, PluginTable]" = {}  # in the order their hooks are asked
    others: dict[str, Any] = {}  # the tables of `cookie.config.tables` that are there, by name

    def table(self, kind: type[_T]) -> _T:
        """A table of `cookie.config.tables`, with its defaults where there is none."""
        found = self.others.get(kind.NAME)
        return found if isinstance(found, kind) else kind()


class Config(Struct, frozen=True, kw_only=True):
    """The settings, their secrets apart, and what can't be used although it is well written.

    `unusable` is by owner: a provider's id, `mcp:<name>`, `plugin:<name>` or `http`.
    """

    settings: Settings = Settings()
    vault: Vault = Vault()
    unusable: dict[str, BadConfig] = {}

    def __repr__(self) -> str:
        return f"Config({self.vault!r})"


class Read:
    """What one file came to: its tables, and its secrets and complaints by owner."""

    __slots__ = ("lacking", "secrets", "tables", "variables")

    def __init__(self) -> None:
        self.tables: dict[str, Any] = {}
        self.secrets: dict[str, dict[str, str]] = {}
        self.lacking: dict[str, BadConfig] = {}
        self.variables: set[str] = set()

    def __repr__(self) -> str:
        return f"Read({', '.join(self.tables)})"


EVERY_RUN: Final[dict[str, type[Struct]]] = {
    ToolOutputTable.NAME: ToolOutputTable,
    ModelRetryTable.NAME: ModelRetryTable,
    WorkersTable.NAME: WorkersTable,
}
# In the order they are listed to people, which is that of spec 1.20 and then ours.
TABLES: Final = (
    *("server", "tool_output", "approval", "agent_md", "context_compaction", "model_retry"),
    *("session_title", "delegation", "messaging", "loop_warning", "providers", "mcp", "plugins"),
    *("http", "workers", "permissions", "debug"),
)
_SCHEMA: Final = "config files have no schema and no version any more; remove the line"
_GONE: Final[Mapping[str, str]] = {
    "schema": _SCHEMA,
    "schema_version": _SCHEMA,
    "version": _SCHEMA,
    "pricing": "prices are written in [providers.<id>.models.<name>.pricing]; move them there",
    "prompt_caching": "the cache is written in [providers.<id>.cache]; move it there",
    "project_context": "is now [agent_md]",
    "mcp_servers": "is written [mcp.servers.<name>]",
    "mcpServers": "is written [mcp.servers.<name>]",
    "provider": "is written [providers.<id>]",
    "plugin": "is written [plugins.<name>]",
    "agents": "agents are documents in the folder agents beside this file; remove it here",
    "model": "a model is chosen with --model or in an agent's document; remove it here",
    "runtime": "tables stand at the top: write [messaging], not [runtime.messaging]",
}


def load_settings(data_dir: Path, cwd: Path) -> Settings:
    """The settings of a workspace; raises BadConfig."""
    return load_config(data_dir, cwd).settings


def load_config(data_dir: Path, cwd: Path, environ: Mapping[str, str] | None = None) -> Config:
    """The config of a workspace; raises BadConfig. `environ` is for `${env:NAME}`, else ours."""
    layers = load(data_dir, cwd)
    if not any(layer.table for layer in layers):
        return Config()
    variables = environment() if environ is None else environ
    return merged([checked(layer, variables) for layer in layers])


def merged(files: Sequence[Read]) -> Config:
    """What the files came to, the later ones over the earlier ones."""
    tables: dict[str, Any] = {}
    secrets: dict[str, dict[str, str]] = {}
    lacking: dict[str, BadConfig] = {}
    for file in files:
        together = {name: tables.get(name, {}) | file.tables.get(name, {}) for name in _ONE_BY_ONE}
        tables |= file.tables | together
        for owner in _owners(file):
            secrets.pop(owner, None)
            lacking.pop(owner, None)
        secrets |= file.secrets
        lacking |= file.lacking
    names = {"mcp_servers", "plugins", "providers", *EVERY_RUN}
    settings = Settings(
        **{name: table for name, table in tables.items() if name in names},
        others={name: table for name, table in tables.items() if name not in names},
    )
    # Also the variables of a definition that was replaced: to somebody they are secrets.
    variables = {name for file in files for name in file.variables}
    return Config(settings=settings, vault=Vault(secrets, variables), unusable=lacking)


_ONE_BY_ONE: Final = ("providers", "mcp_servers", "plugins")


def _owners(file: Read) -> list[str]:
    """What a file defines anew, so that nothing of an earlier definition may stay."""
    return [
        *file.tables.get("providers", {}),
        *(f"mcp:{name}" for name in file.tables.get("mcp_servers", {})),
        *(f"plugin:{name}" for name in file.tables.get("plugins", {})),
        *(["http"] if "http" in file.tables else []),
    ]


def checked(layer: Layer, environ: Mapping[str, str], wrong: list[BadConfig] | None = None) -> Read:
    """The tables of one file, checked; raises BadConfig naming file, line and key.

    With a list to put complaints in it goes on after each, table by table, and raises nothing.
    """
    read = Read()
    if not layer.table:
        return read
    from cookie.config.reader import Reader  # noqa: PLC0415 - most starts have no file to read

    reader = Reader(layer, environ)
    for name in layer.table:
        for part, step in _steps(reader, read, name):
            try:
                step(*part)
            except BadConfig as bad:
                if wrong is None:
                    raise
                wrong.append(bad)
    try:
        reader.stray()
    except BadConfig as bad:
        if wrong is None:
            raise
        if bad.facts not in [one.facts for one in wrong]:
            wrong.append(bad)
    read.secrets, read.lacking, read.variables = reader.secrets, reader.lacking, reader.variables
    return read


# One unit of the file that can be wrong by itself: a function and what it is called with.
_Steps = list[tuple[tuple[Any, ...], Callable[..., None]]]


def _steps(reader: "Reader", read: Read, name: str) -> _Steps:
    """The units of one top-level key, so that one broken provider does not hide another."""
    if name == "providers":
        return _each(reader, read, ("providers",), "providers", _provider)
    if name == "plugins":
        return _each(reader, read, ("plugins",), "plugins", _plugin)
    if name == "mcp":
        return [((reader,), _mcp), *_each(reader, read, ("mcp", "servers"), "mcp_servers", _server)]
    return [((reader, read, name), _table)]


def _each(
    reader: "Reader", read: Read, key: KeyPath, into: str, step: Callable[..., None]
) -> _Steps:
    value: object = reader.layer.table
    for part in key:
        value = value.get(part, {}) if isinstance(value, dict) else {}
    if not isinstance(value, dict):
        return [((reader.layer, key, value), _refuse)]
    into_table = read.tables.setdefault(into, {})
    return [((reader, into_table, name, one), step) for name, one in value.items()]


def _refuse(layer: Layer, key: KeyPath, value: object) -> None:
    is_table(layer, key, value)


def _provider(reader: "Reader", into: dict[str, Any], name: str, value: object) -> None:
    from cookie.config.providers import read_provider  # noqa: PLC0415 - where there is one

    into[name] = read_provider(reader, name, value)


def _server(reader: "Reader", into: dict[str, Any], name: str, value: object) -> None:
    from cookie.config.servers import read_server  # noqa: PLC0415 - where there is one

    into[name] = read_server(reader, name, value)


def _plugin(reader: "Reader", into: dict[str, Any], name: str, value: object) -> None:
    from cookie.config.servers import read_plugin  # noqa: PLC0415 - where there is one

    into[name] = read_plugin(reader, name, value)


def _mcp(reader: "Reader") -> None:
    layer = reader.layer
    for name in is_table(layer, ("mcp",), layer.table["mcp"]):
        if name != "servers":
            reason = f"unknown key; a server is written [mcp.servers.{name}]"
            raise layer.wrong(("mcp", name), reason)


def _table(reader: "Reader", read: Read, name: str) -> None:
    layer, kind = reader.layer, EVERY_RUN.get(name)
    if kind is not None:
        read.tables[name] = record(layer, (name,), layer.table[name], kind)
    elif name in TABLES:
        from cookie.config.tables import read_table  # noqa: PLC0415 - where there is one

        read.tables[name] = read_table(reader, name)
    else:
        raise layer.wrong((name,), _unknown(layer, name))


def _unknown(layer: Layer, name: str) -> str:
    """What to say of a key at the top of the file that is no table of ours."""
    if name in _GONE:
        return _GONE[name]
    from cookie.config.tables import KINDS  # noqa: PLC0415 - only for who made a mistake

    homes = [
        f"[{table}]"
        for table, kind in (EVERY_RUN | KINDS).items()
        if name in kind.__struct_fields__ and not isinstance(layer.table[name], dict)
    ]
    if homes:
        return f"belongs in {' or '.join(sorted(homes))}, below that line"
    return f"unknown key; {near(name, TABLES)}the tables are {', '.join(TABLES)}"
