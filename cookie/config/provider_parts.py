"""The parts of a provider that a scripted one does without: auth, address, timeouts, cache."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from cookie.config.adaptors import METHODS, CacheFamily
from cookie.config.files import KeyPath
from cookie.config.provider_models import EXTENDED_TTL, CustomModel
from cookie.config.reader import Reader
from cookie.config.schema import check_known, is_table, needs, one_of, record
from cookie.config.secrets import Kept
from ipc.ids import ProviderId, SecretRef
from ipc.seams.net import is_loopback

AUTH: Final = "auth"  # the field all credentials of a provider are kept under, as one JSON object
CACHE_KEY_CHARS_MAX: Final = 64
SESSION_ID_CHARS: Final = 36

_Seconds = Annotated[float, Meta(gt=0, le=86_400)]
_Ttl = Literal["1h", "5m", "off"]


class Auth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a provider knows us. Every value is secret, and all are kept under one reference."""

    method: str
    values: dict[str, Kept] = {}
    parameters: dict[str, str] = {}


class Timeouts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds until a request is given up; the last one is of silence in a stream."""

    GONE: ClassVar[Mapping[str, str]] = {
        "stream_idle_s": "is written stream_idle_seconds",
        "connect_s": "is written connect_seconds",
    }

    connect_seconds: _Seconds = 10
    headers_seconds: _Seconds = 30
    credentials_seconds: _Seconds = 30
    stream_idle_seconds: _Seconds = 90


class AnthropicCache(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a prompt is marked as worth keeping, and for how long."""

    system: _Ttl = "1h"
    tools: _Ttl = "1h"
    rolling: Literal["5m", "off"] = "5m"


class BedrockCache(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same places; Bedrock keeps all of them for five minutes unless it is told otherwise."""

    system: _Ttl = "5m"
    tools: _Ttl = "5m"
    rolling: Literal["5m", "off"] = "5m"


class OpenAICache(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said beside the key of the session, which is always sent."""

    GONE: ClassVar[Mapping[str, str]] = {
        "prompt_cache_key": "is always the session's id here; remove it",
    }

    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    mode: Literal["auto", "explicit"] | None = None
    ttl: Literal["30m"] | None = None
    system: bool = False
    rolling: bool = False


class CompatibleCache(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The key that a compatible server is told; an empty one is not sent."""

    prompt_cache_key: str = "${session_id}"


Cache = AnthropicCache | BedrockCache | OpenAICache | CompatibleCache


CACHES: Final[dict[CacheFamily, type[Cache]]] = {
    "anthropic": AnthropicCache,
    "bedrock": BedrockCache,
    "openai": OpenAICache,
    "compatible": CompatibleCache,
}


# --- reading -----------------------------------------------------------------------------------


def read_parts(
    reader: Reader, key: KeyPath, table: dict[str, Any], cache: CacheFamily | None
) -> dict[str, Any]:
    """Headers, timeouts and cache of a provider, as far as it has them; raises BadConfig."""
    made: dict[str, Any] = {}
    if "headers" in table:
        from cookie.config.headers import read_headers  # noqa: PLC0415 - where there are some

        made["headers"] = read_headers(
            reader, (*key, "headers"), table["headers"], key[1], "headers"
        )
    if "timeouts" in table:
        made["timeouts"] = record(reader.layer, (*key, "timeouts"), table["timeouts"], Timeouts)
    if "cache" in table:
        made["cache"] = _cache(reader, (*key, "cache"), table, cache)
    return made


def read_auth(reader: Reader, key: KeyPath, value: object, methods: tuple[str, ...]) -> Auth:
    """How a provider knows us; raises BadConfig."""
    layer = reader.layer
    table = is_table(layer, key, value)
    check_known(layer, key, table, Auth.__struct_fields__)
    if "method" not in table:
        needs(layer, key, "method", f'method = "{methods[0]}"')
    name = one_of(layer, (*key, "method"), table["method"], methods)
    method = METHODS[name]
    values = is_table(layer, (*key, "values"), table.get("values", {}))
    check_known(layer, (*key, "values"), values, (*method.fields, *method.fields_may))
    for field in method.fields:
        if field not in values:
            needs(layer, key, f"values.{field}", f'values = {{ {field} = "${{env:MY_API_KEY}}" }}')
    parameters = is_table(layer, (*key, "parameters"), table.get("parameters", {}))
    known = ("header_name",) if method.header_names else ()
    check_known(layer, (*key, "parameters"), parameters, known)
    if known:
        if "header_name" not in parameters:
            example = f'parameters = {{ header_name = "{method.header_names[0]}" }}'
            needs(layer, key, "parameters.header_name", example)
        here = (*key, "parameters", "header_name")
        one_of(layer, here, parameters["header_name"], method.header_names)
    return Auth(
        method=name,
        values=read_credentials(reader, (*key, "values"), values),
        parameters=dict(parameters),
    )


def read_credentials(reader: Reader, key: KeyPath, values: Mapping[str, Any]) -> dict[str, Kept]:
    """The credential fields of a provider, which go to a worker as one JSON object."""
    owner, found = key[1], {}
    whole = SecretRef(provider_id=ProviderId(owner), field=AUTH)
    for name, value in values.items():
        kept = reader.text((*key, name), value, owner, f"{AUTH}.{name}", secret=True)
        assert isinstance(kept, Kept), "secret texts are kept"
        found[name] = Kept(ref=whole, shown=kept.shown)
    mine = reader.secrets.get(owner, {})
    together = {name: mine.pop(f"{AUTH}.{name}") for name in values if f"{AUTH}.{name}" in mine}
    if together and len(together) == len(values):
        mine[AUTH] = msgspec.json.encode(together).decode()
    return found


def read_endpoint(reader: Reader, key: KeyPath, table: Mapping[str, Any], name: str) -> str | Kept:
    if name not in table:
        needs(reader.layer, key, name, f'{name} = "https://api.example.com/v1"')
    return reader.text((*key, name), table[name], key[1], name, secret=False, check=check_endpoint)


def check_endpoint(address: str) -> str | None:
    """What is wrong with the address of a model's server; None if nothing is."""
    try:
        split = urlsplit(address)
        host, _ = split.hostname, split.port
    except ValueError:
        return "is no address of a server"
    if split.scheme not in {"http", "https"} or not host:
        return 'must be a whole address, like "https://api.example.com/v1"'
    if split.username is not None or split.password is not None:
        return "must not hold a name or a password; use auth or headers"
    if split.query or split.fragment or "?" in address or "#" in address:
        return "must end before ? and #"
    if split.scheme == "http" and not is_loopback(host):
        return "must begin with https://; http:// is for this machine only (127.0.0.1, localhost)"
    if any(c.isspace() for c in address):
        return "must not hold blanks"
    return None


def host_is_here(address: str) -> bool:
    return is_loopback(urlsplit(address).hostname or "")


# --- the prompt cache (spec 1.14) --------------------------------------------------------------


def _cache(
    reader: Reader, key: KeyPath, table: dict[str, Any], family: CacheFamily | None
) -> Cache:
    layer = reader.layer
    value = is_table(layer, key, table["cache"])
    if family is None and table.get("source") == "custom":
        raise layer.wrong(key, "can't be set: the adaptor of this provider caches by itself")
    if family is None:  # of the catalogue, which says later what it is
        family = _guess(value)
    found = record(layer, key, value, CACHES[family])
    if not in_order(found):
        raise layer.wrong((*key, "system"), OUT_OF_ORDER)
    if isinstance(found, CompatibleCache):
        _check_cache_key(reader, (*key, "prompt_cache_key"), found.prompt_cache_key)
    return found


OUT_OF_ORDER: Final = 'can\'t be "1h" after tools = "5m": what is kept longer must come first'


def in_order(cache: Cache) -> bool:
    """Whether nothing is to be kept longer than what stands before it in a prompt."""
    if not isinstance(cache, AnthropicCache | BedrockCache):
        return True
    return (cache.tools, cache.system) != ("5m", "1h")


def whole_cache(family: CacheFamily, table: Mapping[str, Any]) -> Cache:
    """A cache as an agent's document says it, the rest from the family's defaults.

    Raises msgspec.ValidationError.
    """
    return msgspec.convert(dict(table), CACHES[family])


def _guess(value: dict[str, Any]) -> CacheFamily:
    """The family whose table this looks most like."""
    if "prompt_cache_key" in value:
        return "compatible"
    known = set(OpenAICache.__struct_fields__) - {"system", "rolling"}
    switches = any(isinstance(value.get(name), bool) for name in ("system", "rolling"))
    return "openai" if known & set(value) or switches else "anthropic"


def _check_cache_key(reader: Reader, key: KeyPath, text: str) -> None:
    plain = text.replace("${session_id}", "")
    if "${" in plain:
        raise reader.layer.wrong(key, "may name ${session_id} and nothing else")
    chars = len(plain) + SESSION_ID_CHARS * text.count("${session_id}")
    if chars > CACHE_KEY_CHARS_MAX:
        reason = f"is longer than {CACHE_KEY_CHARS_MAX} characters with its ${{session_id}}"
        raise reader.layer.wrong(key, reason)


def check_long_cache(
    reader: Reader, key: KeyPath, cache: Cache | None, models: Mapping[str, CustomModel]
) -> None:
    """An hour must be asked for by a beta header, which is never sent on somebody's behalf."""
    if not isinstance(cache, AnthropicCache) or "1h" not in {cache.system, cache.tools}:
        return
    for name, model in models.items():
        if model.enabled and EXTENDED_TTL not in _beta(model):
            reason = f'needs adaptor_options = {{ beta = ["{EXTENDED_TTL}"] }} for a cache of "1h"'
            raise reader.layer.wrong((*key, "models", name), reason)


def _beta(model: CustomModel) -> tuple[str, ...]:
    options = model.adaptor_options
    return () if options is None else options.beta or ()
