"""`[providers.<id>]`: the two sources of models (spec 1.13), checked, their secrets apart."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from msgspec import Struct

from cookie.config.adaptors import ADAPTORS, METHODS, SCRIPTED, Adaptor
from cookie.config.files import KeyPath
from cookie.config.provider_models import CustomModel, ManagedModel, read_custom, read_managed
from cookie.config.reader import Reader
from cookie.config.schema import REHEARSAL, check_known, is_table, named, needs, one_of
from cookie.config.secrets import Kept
from ipc.ids import parse_provider_id

if TYPE_CHECKING:
    from cookie.config.provider_parts import Auth, Cache, Timeouts

NO_AUTH: Final = "no-auth-v1"


class CustomProvider(Struct, frozen=True, kw_only=True):
    """`source = "custom"`: everything is said here. A scripted one has no endpoint and auth."""

    GONE: ClassVar[Mapping[str, str]] = {
        "api_key": 'is written auth = { method = "bearer-api-key-v1", values = { api_key = ... } }',
        "base_url": "is called endpoint in a custom provider",
        "auth_override": "is called auth in a custom provider",
        "model": "is written as tables: [providers.<id>.models.<name>]",
    }

    source: Literal["custom"]
    adaptor: str
    endpoint: str | Kept | None = None
    auth: "Auth | None" = None
    setup: dict[str, str | Kept] = {}
    headers: dict[str, str | Kept] = {}
    cache: "Cache | None" = None
    timeouts: "Timeouts | None" = None
    models: dict[str, CustomModel] = {}


class ManagedProvider(Struct, frozen=True, kw_only=True):
    """`source = "models_dev"`: a provider of the catalogue, and what is different about it here."""

    GONE: ClassVar[Mapping[str, str]] = {
        "model_overrides": "is now models",
        "shape": "is now adaptor_options.request_endpoint of a model",
        "endpoint": "is called base_url in a provider of the catalogue",
        "adaptor": "comes from the catalogue; remove it, or make a custom provider",
        "auth": "is called api_key or auth_override in a provider of the catalogue",
    }

    source: Literal["models_dev"]
    base_url: str | Kept | None = None
    setup: dict[str, str | Kept] = {}
    api_key: Kept | None = None
    auth_override: "Auth | None" = None
    headers: dict[str, str | Kept] = {}
    cache: "Cache | None" = None
    timeouts: "Timeouts | None" = None
    models: dict[str, ManagedModel] = {}


Provider = CustomProvider | ManagedProvider

# --- reading -----------------------------------------------------------------------------------

A_PROVIDER: Final = "lower-case letters, digits, `.`, `_` and `-`, at most 64"
_AUTH_EXAMPLE: Final = (
    'auth = { method = "bearer-api-key-v1", values = { api_key = "${env:MY_API_KEY}" } }, '
    f'or auth = {{ method = "{NO_AUTH}" }} for a server that asks for no key'
)


def read_provider(reader: Reader, name: str, value: object) -> Provider:
    """One provider of the file; raises BadConfig."""
    layer, key = reader.layer, ("providers", name)
    provider = named(layer, key, parse_provider_id, name, A_PROVIDER)
    if provider == REHEARSAL:
        raise layer.wrong(key, "is built in; give your provider another name")
    table = is_table(layer, key, value)
    if "source" not in table:
        needs(layer, key, "source", 'source = "models_dev" or source = "custom"')
    source = one_of(layer, (*key, "source"), table["source"], ("models_dev", "custom"))
    return _custom(reader, key, table) if source == "custom" else _managed(reader, key, table)


def _custom(reader: Reader, key: KeyPath, table: dict[str, Any]) -> CustomProvider:
    layer = reader.layer
    check_known(layer, key, table, CustomProvider.__struct_fields__, CustomProvider.GONE)
    if "adaptor" not in table:
        needs(layer, key, "adaptor", 'adaptor = "openai-compatible"')
    name = one_of(layer, (*key, "adaptor"), table["adaptor"], tuple(ADAPTORS))
    adaptor = ADAPTORS[name]
    made: dict[str, Any] = {}
    if name == SCRIPTED:
        for odd in ("endpoint", "auth", "headers", "cache", "timeouts"):
            if odd in table:
                raise layer.wrong((*key, odd), "means nothing to a script; remove it")
    else:
        made = _reach(reader, key, table, adaptor)
    made["setup"] = _setup(reader, key, table, adaptor, name)
    models = is_table(layer, (*key, "models"), table.get("models", {}))
    if not models:
        raise layer.wrong(
            key, f"needs at least one model: add a [providers.{key[1]}.models.<name>]"
        )
    made["models"] = {
        model: read_custom(reader, (*key, "models", model), one, adaptor, name)
        for model, one in models.items()
    }
    if "cache" in made:
        from cookie.config.provider_parts import check_long_cache  # noqa: PLC0415 - it has some

        check_long_cache(reader, key, made["cache"], made["models"])
    return CustomProvider(source="custom", adaptor=name, **made)


def _reach(reader: Reader, key: KeyPath, table: dict[str, Any], adaptor: Adaptor) -> dict[str, Any]:
    """How the server of a custom provider is reached."""
    from cookie.config import provider_parts as parts  # noqa: PLC0415 - a script has none of these

    made = parts.read_parts(reader, key, table, adaptor.cache)
    made["endpoint"] = parts.read_endpoint(reader, key, table, "endpoint")
    if "auth" not in table:
        needs(reader.layer, key, "auth", _AUTH_EXAMPLE)
    made["auth"] = parts.read_auth(reader, (*key, "auth"), table["auth"], adaptor.methods)
    return made


def _managed(reader: Reader, key: KeyPath, table: dict[str, Any]) -> ManagedProvider:
    from cookie.config import provider_parts as parts  # noqa: PLC0415 - a script has none of these

    layer = reader.layer
    check_known(layer, key, table, ManagedProvider.__struct_fields__, ManagedProvider.GONE)
    if "api_key" in table and "auth_override" in table:
        raise layer.wrong((*key, "auth_override"), "and api_key exclude each other; keep one")
    made = parts.read_parts(reader, key, table, None)
    if "setup" in table:
        made["setup"] = _texts(reader, (*key, "setup"), table["setup"], key[1])
    if "api_key" in table:
        made["api_key"] = parts.read_credentials(reader, key, {"api_key": table["api_key"]})[
            "api_key"
        ]
    if "auth_override" in table:
        here = (*key, "auth_override")
        made["auth_override"] = parts.read_auth(
            reader, here, table["auth_override"], tuple(METHODS)
        )
    if "base_url" in table:
        made["base_url"] = parts.read_endpoint(reader, key, table, "base_url")
        local = isinstance(made["base_url"], str) and parts.host_is_here(made["base_url"])
        if not local and not {"api_key", "auth_override"} & set(table):
            reason = "needs api_key or auth_override beside it: a saved connection is never sent"
            raise layer.wrong((*key, "base_url"), f"{reason} to another address")
    made["models"] = {
        model: read_managed(reader, (*key, "models", model), one)
        for model, one in is_table(layer, (*key, "models"), table.get("models", {})).items()
    }
    return ManagedProvider(source="models_dev", **made)


def _setup(
    reader: Reader, key: KeyPath, table: dict[str, Any], adaptor: Adaptor, name: str
) -> dict[str, str | Kept]:
    layer, here = reader.layer, (*key, "setup")
    setup = is_table(layer, here, table.get("setup", {}))
    check_known(layer, here, setup, (*adaptor.setup, *adaptor.setup_may))
    for field in adaptor.setup:
        if field not in setup:
            example = (
                f"setup = {{ {', '.join(f'{one} = ' + _dots(one) for one in adaptor.setup)} }}"
            )
            needs(layer, here if setup else key, f"setup.{field}", example)
    found = _texts(reader, here, setup, key[1])
    if name == SCRIPTED:
        # Where a script lies is no secret, whatever it was made from, and a plan must say it.
        shown = found["script"]
        kept = reader.secrets.get(key[1], {}).pop("setup.script", None)
        plain = kept if kept is not None else shown.shown if isinstance(shown, Kept) else shown
        found["script"] = reader.path((*here, "script"), plain)
    return found


def _dots(field: str) -> str:
    return '"talk.yaml"' if field == "script" else '"..."'


def _texts(reader: Reader, key: KeyPath, value: object, owner: str) -> dict[str, str | Kept]:
    return {
        name: reader.text((*key, name), text, owner, f"setup.{name}", secret=False)
        for name, text in is_table(reader.layer, key, value).items()
    }
