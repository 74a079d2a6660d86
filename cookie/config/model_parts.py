"""The parts of a model that most scripted ones do without: abilities, options, prices, variants."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from msgspec import Struct

from cookie.config.adaptors import Adaptor
from cookie.config.files import KeyPath
from cookie.config.reader import Reader
from cookie.config.schema import (
    Positive,
    Whole,
    a_text,
    check_known,
    is_table,
    kind_of,
    named,
    near,
    record,
)
from cookie.config.secrets import Kept
from ipc.ids import BASE_VARIANT, parse_variant_name

DISPLAY_NAME_BYTES_MAX: Final = 512
MODEL_ID_BYTES_MAX: Final = 2048
RATE_DIGITS: Final = 12  # decimals of a rate: a pico-dollar for a million tokens
RATE_USD_MAX: Final = 9000  # above it the pico-dollars are no exact JSON number any more

Modality = Literal["text", "image", "audio", "pdf", "video"]
MediaKind = Literal["image", "audio", "pdf", "video"]
_MIMES: Final = {"image": "image/", "audio": "audio/", "pdf": "application/pdf", "video": "video/"}


class Media(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much media of one kind a request may hold."""

    mime_types: tuple[str, ...]
    max_bytes: Positive
    max_count: Positive


class Capabilities(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model can do, as its author says; nobody asks the server. Limits are in tokens."""

    GONE: ClassVar[Mapping[str, str]] = {
        "cancellation": "follows from the adaptor; remove it",
    }

    context_tokens: Positive
    output_tokens: Positive
    input: tuple[Modality, ...] = ("text",)
    output: tuple[Literal["text"], ...] = ("text",)
    input_tokens: Positive | None = None
    tool_calling: bool = True
    parallel_tool_calls: bool | None = None  # as tool_calling, unless it is said
    structured_output: bool = True
    reasoning: bool = False
    temperature: bool = True
    top_p: bool = True
    seed: bool = False
    compaction: Literal["unsupported"] = "unsupported"
    native_replay: Literal["unsupported", "optional", "required"] | None = None
    media: dict[MediaKind, Media] = {}


class GenerationOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model is asked with; what is left out stays the provider's."""

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: Positive | None = None
    stop: tuple[str, ...] | None = None
    seed: Whole | None = None
    tool_choice: str | dict[str, str] | None = None


class AdaptorOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What only some adaptors know."""

    GONE: ClassVar[Mapping[str, str]] = {
        "api_path": 'is now request_endpoint, "completions" or "responses"',
        "api_version": "belongs in the provider's setup",
        "region": "belongs in the provider's setup",
        "location": "belongs in the provider's setup",
        "deployment": "belongs in the provider's setup",
    }

    request_endpoint: Literal["completions", "responses"] | None = None
    beta: tuple[str, ...] | None = None
    organization: str | None = None
    project: str | None = None
    store: bool | None = None


class PricingTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dollars for a million tokens, as decimal texts so that they stay exact."""

    input_per_million_usd: str | None = None
    output_per_million_usd: str | None = None
    reasoning_per_million_usd: str | None = None
    cache_read_per_million_usd: str | None = None
    cache_write_per_million_usd: str | None = None


class Reasoning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How hard a model thinks: by a word, a switch or a number of tokens."""

    type: Literal["effort", "toggle", "budget_tokens"]
    value: str | int | None = None
    enabled: bool | None = None


EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "default")


class Variant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`variants.<name>` of a model: what differs from the model itself."""

    GONE: ClassVar[Mapping[str, str]] = {
        "operation": "is gone: a table makes or changes a variant, enabled = false removes one",
        "defaults": "is now generation_options",
        "options": "is now adaptor_options",
        "shape": "is now adaptor_options.request_endpoint",
        "pricing": "can't differ in a variant; it belongs to the model",
    }

    enabled: bool = True
    display_name: str | None = None
    model_id: str | None = None
    generation_options: GenerationOptions | None = None
    adaptor_options: AdaptorOptions | None = None
    reasoning: Reasoning | None = None
    headers: dict[str, str | Kept] = {}


# --- reading -----------------------------------------------------------------------------------

A_VARIANT: Final = "printable, without blanks, at most 128 characters"


def read_parts(
    reader: Reader,
    key: KeyPath,
    table: dict[str, Any],
    adaptor: Adaptor | None,
) -> dict[str, Any]:
    """What a model's table has of these parts, by field; raises BadConfig.

    Without an adaptor the model is one of the catalogue, which will say what fits.
    """
    can: Capabilities | None = None
    if "capabilities" in table:
        can = _capabilities(reader, key, table["capabilities"])
    made = _common(reader, key, table, adaptor, can)
    if can is not None:
        made["capabilities"] = can
    if "pricing" in table:
        made["pricing"] = _pricing(reader, (*key, "pricing"), table["pricing"])
    if "variants" in table:
        here = (*key, "variants")
        made["variants"] = {
            name: _variant(reader, (*here, name), one, adaptor, can)
            for name, one in is_table(reader.layer, here, table["variants"]).items()
        }
    return made


def _common(
    reader: Reader,
    key: KeyPath,
    table: dict[str, Any],
    adaptor: Adaptor | None,
    capabilities: Capabilities | None,
) -> dict[str, Any]:
    """What a model and a variant have alike."""
    layer = reader.layer
    made: dict[str, Any] = {}
    if "display_name" in table:
        here = (*key, "display_name")
        name = a_text(layer, here, table["display_name"], bytes_max=DISPLAY_NAME_BYTES_MAX)
        if not name.strip():
            raise layer.wrong(here, "must not be blank")
        made["display_name"] = name
    if "model_id" in table:
        here = (*key, "model_id")
        wire = a_text(layer, here, table["model_id"], bytes_max=MODEL_ID_BYTES_MAX)
        if wire != wire.strip():
            raise layer.wrong(here, "begins or ends with a blank; remove it")
        made["model_id"] = wire
    if "generation_options" in table:
        here = (*key, "generation_options")
        made["generation_options"] = _generation(
            reader, here, table["generation_options"], capabilities
        )
    if "adaptor_options" in table:
        here = (*key, "adaptor_options")
        made["adaptor_options"] = _adaptor_options(reader, here, table["adaptor_options"], adaptor)
    if "headers" in table:
        from cookie.config.headers import read_headers  # noqa: PLC0415 - where there are some

        field = ".".join((*key[2:], "headers"))
        made["headers"] = read_headers(reader, (*key, "headers"), table["headers"], key[1], field)
    return made


def _variant(
    reader: Reader,
    key: KeyPath,
    value: object,
    adaptor: Adaptor | None,
    capabilities: Capabilities | None,
) -> Variant:
    layer = reader.layer
    named(layer, key, parse_variant_name, key[-1], A_VARIANT)
    if key[-1] == BASE_VARIANT:
        raise layer.wrong(key, "is what a model without a variant is called; choose another name")
    table = is_table(layer, key, value)
    check_known(layer, key, table, Variant.__struct_fields__, Variant.GONE)
    made = _common(reader, key, table, adaptor, capabilities)
    if "reasoning" in table:
        here = (*key, "reasoning")
        made["reasoning"] = _reasoning(reader, here, table["reasoning"], adaptor, capabilities)
    variant = record(layer, key, table, Variant, **made)
    if not variant.enabled and len(table) > 1:
        raise layer.wrong((*key, "enabled"), "false removes the variant; remove its other keys")
    return variant


def _capabilities(reader: Reader, model: KeyPath, value: object) -> Capabilities:
    layer, key = reader.layer, (*model, "capabilities")
    table = is_table(layer, key, value)
    made: dict[str, Any] = {}
    if "media" in table:
        here = (*key, "media")
        made["media"] = {
            kind: _media(reader, (*here, kind), one)
            for kind, one in is_table(layer, here, table["media"]).items()
        }
    found = record(layer, key, table, Capabilities, **made)
    if found.output_tokens > found.context_tokens:
        raise layer.wrong((*key, "output_tokens"), "is more than context_tokens")
    if found.input_tokens is not None and found.input_tokens > found.context_tokens:
        raise layer.wrong((*key, "input_tokens"), "is more than context_tokens")
    if found.parallel_tool_calls and not found.tool_calling:
        raise layer.wrong((*key, "parallel_tool_calls"), "needs tool_calling = true")
    for name in ("input", "output"):
        if not getattr(found, name):
            raise layer.wrong((*key, name), 'must not be empty; write ["text"]')
    kinds = set(found.input) - {"text"}
    if kinds != set(found.media):
        odd = min(kinds ^ set(found.media))
        if odd in kinds:
            reason = f"needs a table {odd}, since input names it: {_media_example(odd)}"
        else:
            reason = f"has a table {odd} that input does not name"
        raise layer.wrong((*key, "media"), reason)
    return found


def _media(reader: Reader, key: KeyPath, value: object) -> Media:
    if key[-1] not in _MIMES:
        kinds = ", ".join(_MIMES)
        raise reader.layer.wrong(key, f"unknown key; {near(key[-1], _MIMES)}it may have {kinds}")
    found = record(reader.layer, key, value, Media)
    fits = [one for one in found.mime_types if one.startswith(_MIMES[key[-1]])]
    if not found.mime_types or len(fits) < len(found.mime_types):
        like = _media_example(key[-1])
        raise reader.layer.wrong((*key, "mime_types"), f"must name {key[-1]} types, like {like}")
    return found


def _media_example(kind: str) -> str:
    types = {"image": "image/png", "audio": "audio/wav", "pdf": "application/pdf"}
    mime = types.get(kind, "video/mp4")
    return f'{{ mime_types = ["{mime}"], max_bytes = 5000000, max_count = 20 }}'


def _generation(
    reader: Reader, key: KeyPath, value: object, capabilities: Capabilities | None
) -> GenerationOptions:
    layer = reader.layer
    table = is_table(layer, key, value)
    made: dict[str, Any] = {}
    if "tool_choice" in table:
        made["tool_choice"] = _tool_choice(reader, (*key, "tool_choice"), table["tool_choice"])
    found = record(layer, key, table, GenerationOptions, **made)
    if capabilities is None:
        return found
    for name in ("temperature", "top_p", "seed"):
        if getattr(found, name) is not None and not getattr(capabilities, name):
            raise layer.wrong((*key, name), f"needs capabilities.{name} = true")
    if found.tool_choice is not None and not capabilities.tool_calling:
        raise layer.wrong((*key, "tool_choice"), "needs capabilities.tool_calling = true")
    if (found.max_output_tokens or 0) > capabilities.output_tokens:
        raise layer.wrong((*key, "max_output_tokens"), "is more than capabilities.output_tokens")
    return found


def _tool_choice(reader: Reader, key: KeyPath, value: object) -> str | dict[str, str]:
    if isinstance(value, str) and value in {"auto", "none", "required"}:
        return value
    if isinstance(value, dict) and set(value) == {"named"}:
        return {"named": a_text(reader.layer, (*key, "named"), value["named"], bytes_max=128)}
    reason = 'must be "auto", "none", "required" or { named = "tool" }'
    raise reader.layer.wrong(key, reason)


def _adaptor_options(
    reader: Reader, key: KeyPath, value: object, adaptor: Adaptor | None
) -> AdaptorOptions:
    layer = reader.layer
    found = record(layer, key, value, AdaptorOptions)
    if found.store:
        raise layer.wrong((*key, "store"), "can only be false: nothing is kept at the provider")
    if adaptor is None:
        return found
    known = {
        "request_endpoint": adaptor.endpoints,
        "beta": adaptor.anthropic,
        "organization": adaptor.openai,
        "project": adaptor.openai,
        "store": adaptor.endpoints,
    }
    for name, fits in known.items():
        if getattr(found, name) is not None and not fits:
            raise layer.wrong((*key, name), "means nothing to the adaptor of this provider")
    return found


def _reasoning(
    reader: Reader,
    key: KeyPath,
    value: object,
    adaptor: Adaptor | None,
    capabilities: Capabilities | None,
) -> Reasoning:
    layer = reader.layer
    table = is_table(layer, key, value)
    kind = table.get("type")
    shapes: dict[object, tuple[str, Any]] = {
        "effort": ("value", lambda v: v in EFFORTS),
        "toggle": ("enabled", lambda v: isinstance(v, bool)),
        "budget_tokens": ("value", lambda v: isinstance(v, int) and not isinstance(v, bool)),
    }
    if not isinstance(kind, str) or kind not in shapes or set(table) != {"type", shapes[kind][0]}:
        raise layer.wrong(key, _REASONING)
    field, fits = shapes[kind]
    if not isinstance(table[field], (str, int)) or not fits(table[field]):
        words = f"; {kind_of(table[field])} can't stand there" if kind != "effort" else ""
        raise layer.wrong((*key, field), (_EFFORT if kind == "effort" else _REASONING) + words)
    found = record(layer, key, table, Reasoning)
    if capabilities is not None and not capabilities.reasoning:
        raise layer.wrong(key, "needs capabilities.reasoning = true")
    if adaptor is not None and not (adaptor.efforts if kind == "effort" else adaptor.budgets):
        raise layer.wrong((*key, "type"), f"can't be {kind} with the adaptor of this provider")
    return found


_EFFORT: Final = f"must be one of {', '.join(EFFORTS)}, in quotes"
_REASONING: Final = (
    'must be { type = "effort", value = "high" }, { type = "toggle", enabled = true } '
    'or { type = "budget_tokens", value = 8000 }'
)


def _pricing(reader: Reader, key: KeyPath, value: object) -> PricingTable:
    layer = reader.layer
    for name, rate in is_table(layer, key, value).items():
        if name not in PricingTable.__struct_fields__:
            continue
        if not isinstance(rate, str):
            example = 'like "1.25", so that it stays exact'
            raise layer.wrong((*key, name), f"must be a text in quotes, {example}")
        if pico_usd(rate) is None:
            reason = f"must be dollars from 0 to {RATE_USD_MAX} with at most {RATE_DIGITS} decimals"
            raise layer.wrong((*key, name), reason)
    return record(layer, key, value, PricingTable)


_RATE: Final = r"\+?([0-9]{1,40})(?:\.([0-9]{1,40}))?(?:[eE]([+-]?[0-9]{1,2}))?"


def pico_usd(rate: str) -> int | None:
    """A decimal of dollars as whole pico-dollars; None if it is none, too exact or too much."""
    match = re.fullmatch(_RATE, rate)
    if match is None:
        return None
    whole, fraction, exponent = match[1], match[2] or "", int(match[3] or 0)
    shift = RATE_DIGITS + exponent - len(fraction)
    digits = int(whole + fraction)
    if shift < 0:
        digits, rest = divmod(digits, 10**-shift)
        if rest:
            return None
    else:
        digits *= 10**shift
    return digits if digits <= RATE_USD_MAX * 10**RATE_DIGITS else None
