"""The strict schema of config.toml, and how a workspace's file is laid over the user's.

A table of the workspace replaces the user's table of that name whole; providers are replaced one by
one. Each file is checked before they are merged, so an error always names the right one.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from cookie.config.files import BadConfig, KeyPath, Layer, load
from ipc.faults import Fault
from ipc.ids import ProviderId, parse_model_key, parse_provider_id

REHEARSAL: Final = ProviderId("rehearsal")  # built in, so nobody else may have the name
LIMIT_MAX: Final = 2**53 - 1  # what JSON readers everywhere take as an exact number
DURATION_S_MAX: Final = 7 * 24 * 3600.0

_Positive = Annotated[int, Meta(ge=1, le=LIMIT_MAX)]
_Table = TypeVar("_Table", bound=Struct)


class ToolOutputTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tool_output]`: how much of one stream of a tool's output a model sees."""

    max_lines: _Positive = 2000
    max_bytes: _Positive = 51_200


class ModelRetryTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[model_retry]`: how often a model is asked again; 0 = never, negative = without end."""

    standard_retries: Annotated[int, Meta(ge=-LIMIT_MAX, le=LIMIT_MAX)] = 3
    overload_retries: Annotated[int, Meta(ge=-LIMIT_MAX, le=LIMIT_MAX)] = 5
    backoff_ceiling_ms: _Positive = 60_000


class WorkersTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[workers]`: how long a worker may be silent, and what its tools inherit."""

    wedged_after: str = "30s"  # without an answer for so long it is ended
    link_patience: str = "30s"  # a supervisor that takes nothing slows a run for at most so long
    pass_env: tuple[str, ...] = ()  # variables that tools get although they are withheld

    def wedged_after_s(self) -> float:
        """Seconds."""
        return duration_s(self.wedged_after)

    def link_patience_ms(self) -> int:
        """Milliseconds."""
        return int(duration_s(self.link_patience) * 1000)


class ScriptedSetup(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`setup` of the adaptor `scripted`."""

    script: Annotated[str, Meta(min_length=1)]  # a path; relative to the config file's folder


class CustomModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.<id>.models.<name>]` of a custom provider. Limits are in tokens."""

    display_name: str | None = None
    model_id: str | None = None  # the name on the wire; the table's own name if there is none
    context_limit: _Positive | None = None
    max_output: _Positive | None = None


class CustomProvider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.<id>]` with `source = "custom"`."""

    source: Literal["custom"]
    adaptor: Literal["scripted"]
    setup: ScriptedSetup
    models: dict[str, CustomModel]


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that was configured, the defaults filled in."""

    providers: dict[ProviderId, CustomProvider] = {}
    tool_output: ToolOutputTable = ToolOutputTable()
    model_retry: ModelRetryTable = ModelRetryTable()
    workers: WorkersTable = WorkersTable()


TABLES: Final = Settings.__struct_fields__


class BadDuration(Fault):
    """A text that is no duration."""

    code = "bad_duration"


def load_settings(data_dir: Path, cwd: Path) -> Settings:
    """The settings of a workspace; raises BadConfig."""
    return merged([checked(layer) for layer in load(data_dir, cwd)])


def merged(layers: Sequence[dict[str, Any]]) -> Settings:
    """Checked tables, the later ones over the earlier ones."""
    tables: dict[str, Any] = {}
    for layer in layers:
        providers = tables.get("providers", {}) | layer.get("providers", {})
        tables |= layer
        if providers:
            tables["providers"] = providers
    return Settings(**tables)


def checked(layer: Layer) -> dict[str, Any]:
    """The tables of one file, checked; raises BadConfig naming file, line and key."""
    for name in layer.table:
        if name not in TABLES:
            raise layer.wrong((name,), f"unknown key; the tables are {', '.join(TABLES)}")
    kinds: dict[str, type[Struct]] = {
        "tool_output": ToolOutputTable,
        "model_retry": ModelRetryTable,
        "workers": WorkersTable,
    }
    tables: dict[str, Any] = {
        name: _table(layer, (name,), layer.table[name], kind)
        for name, kind in kinds.items()
        if name in layer.table
    }
    if "workers" in tables:
        _check_workers(layer, tables["workers"])
    if "providers" in layer.table:
        tables["providers"] = _providers(layer)
    return tables


def duration_s(text: str) -> float:
    """Seconds of "500ms", "30s", "10m" or "1h"; raises BadDuration."""
    match = re.fullmatch(r"([0-9]{1,9})(ms|s|m|h)", text)
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0 < seconds <= DURATION_S_MAX:
        raise BadDuration(text=ascii(text[:80]))
    return seconds


_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _check_workers(layer: Layer, table: WorkersTable) -> None:
    for name, text in (
        ("wedged_after", table.wedged_after),
        ("link_patience", table.link_patience),
    ):
        try:
            duration_s(text)
        except BadDuration:
            reason = 'must be a duration like "500ms", "30s", "10m" or "1h", at most 7 days'
            raise layer.wrong(("workers", name), reason) from None


def _providers(layer: Layer) -> dict[ProviderId, CustomProvider]:
    authored = _is_table(layer, ("providers",), layer.table["providers"])
    found: dict[ProviderId, CustomProvider] = {}
    for name, table in authored.items():
        key = ("providers", name)
        provider = _named(layer, key, parse_provider_id, name)
        if provider == REHEARSAL:
            raise layer.wrong(key, "is built in; give your provider another name")
        found[provider] = _provider(layer, key, _is_table(layer, key, table))
    return found


def _provider(layer: Layer, key: KeyPath, table: dict[str, Any]) -> CustomProvider:
    models = {}
    for name, model in _is_table(layer, (*key, "models"), table.get("models", {})).items():
        here = (*key, "models", name)
        _named(layer, here, parse_model_key, f"{key[-1]}/{name}")
        models[name] = _table(layer, here, model, CustomModel)
    setup_key = (*key, "setup")
    setup = _table(layer, setup_key, table.get("setup", {}), ScriptedSetup)
    provider = _table(layer, key, table | {"models": {}, "setup": {"script": "-"}}, CustomProvider)
    if not setup.script.isprintable():
        raise layer.wrong((*setup_key, "script"), "is no path: it holds a control character")
    if not models:
        raise layer.wrong(key, "needs at least one model: add a [providers.<id>.models.<name>]")
    script = layer.path.parent / Path(setup.script).expanduser()
    return msgspec.structs.replace(provider, models=models, setup=ScriptedSetup(script=str(script)))


def _named(layer: Layer, key: KeyPath, parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except Fault:
        reason = "is no usable name: lower-case letters, digits, `.`, `_` and `-` for a provider"
        raise layer.wrong(key, f"{reason}; no blanks in a model") from None


def _is_table(layer: Layer, key: KeyPath, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise layer.wrong(key, f"must be a table, not {_kind(value)}")
    return value


def _table(layer: Layer, key: KeyPath, value: object, kind: type[_Table]) -> _Table:
    table = _is_table(layer, key, value)
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as bad:
        raise _wrong(layer, key, table, str(bad), kind) from None


_PLACE: Final = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_FIELD: Final = re.compile(
    r"Object (?P<what>contains unknown|missing required) field `(?P<name>.*)`"
)


def _wrong(
    layer: Layer, key: KeyPath, table: dict[str, Any], text: str, kind: type[Struct]
) -> BadConfig:
    """msgspec's complaint as a sentence about a key of the file."""
    place = _PLACE.search(text)
    path = re.findall(r"[A-Za-z0-9_]+", place["path"]) if place else []
    here = (*key, *(part for part in path if not part.isdecimal()))
    reason = text[: place.start()] if place else text
    field = _FIELD.match(reason)
    if field is not None and field["what"] == "missing required":
        return layer.wrong(here, f"needs the key {field['name']}")
    if field is not None:
        known = ", ".join(kind.__struct_fields__)
        unknown = next((name for name in table if name not in kind.__struct_fields__), "?")
        return layer.wrong((*here, unknown), f"unknown key; it may have {known}")
    return layer.wrong(here, reason[:1].lower() + reason[1:])


def _kind(value: object) -> str:
    names = {str: "a string", bool: "a boolean", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), "that")
