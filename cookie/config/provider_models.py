"""`[providers.<id>.models.<name>]`: one model of a provider, as its author says it is.

A model of the catalogue is only overridden, so everything about it is optional; a custom one says
itself what it can do. What a table has beside a name is read by `model_parts`, if it has anything.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from msgspec import Struct

from cookie.config.adaptors import SCRIPTED, Adaptor
from cookie.config.files import KeyPath
from cookie.config.reader import Reader
from cookie.config.schema import a_flag, a_text, check_known, is_table, named, near, needs, one_of
from cookie.config.secrets import Kept
from ipc.ids import BASE_VARIANT, VariantName, parse_model_key

if TYPE_CHECKING:
    from cookie.config.model_parts import (
        AdaptorOptions,
        Capabilities,
        GenerationOptions,
        PricingTable,
        Variant,
    )

EXTENDED_TTL: Final = "extended-cache-ttl-2025-04-11"

_ENDPOINT: Final = "is now adaptor_options.request_endpoint"
_INSIDE: Final = "belongs in capabilities = { context_tokens = ..., output_tokens = ... }"


class CustomModel(Struct, frozen=True, kw_only=True):
    """A model of a custom provider. `model_id` is its name on the wire, else the table's own."""

    GONE: ClassVar[Mapping[str, str]] = {
        "defaults": "is now generation_options",
        "options": "is now adaptor_options",
        "shape": _ENDPOINT,
        "context_limit": "is now capabilities.context_tokens",
        "max_output": "is now capabilities.output_tokens",
        "context_tokens": _INSIDE,
        "output_tokens": _INSIDE,
        "compaction": "belongs to models of the catalogue only; remove it",
        "temperature": "belongs in generation_options = { temperature = ... }",
        "max_output_tokens": "belongs in generation_options = { max_output_tokens = ... }",
    }

    enabled: bool = True
    display_name: str | None = None
    model_id: str | None = None
    capabilities: "Capabilities | None" = None  # only a scripted model may be without
    generation_options: "GenerationOptions | None" = None
    adaptor_options: "AdaptorOptions | None" = None
    pricing: "PricingTable | None" = None
    headers: dict[str, str | Kept] = {}
    variants: "dict[VariantName, Variant]" = {}
    default_variant: VariantName | None = None


class ManagedModel(Struct, frozen=True, kw_only=True):
    """What is different about a model of the catalogue; None = as the catalogue says."""

    GONE: ClassVar[Mapping[str, str]] = {
        "defaults": "is now generation_options",
        "options": "is now adaptor_options",
        "shape": _ENDPOINT,
        "capabilities": "come from the catalogue; a model of your own needs a custom provider",
    }

    enabled: bool | None = None
    display_name: str | None = None
    model_id: str | None = None
    generation_options: "GenerationOptions | None" = None
    adaptor_options: "AdaptorOptions | None" = None
    pricing: "PricingTable | None" = None
    headers: dict[str, str | Kept] = {}
    variants: "dict[VariantName, Variant]" = {}
    default_variant: VariantName | None = None
    compaction: Literal["unsupported", "openai-responses-compact", "azure-responses-compact"] = (
        "unsupported"
    )


# --- reading -----------------------------------------------------------------------------------

A_MODEL: Final = "printable, without blanks, at most 512 characters together with its provider"
_COMPACTIONS: Final = ("unsupported", "openai-responses-compact", "azure-responses-compact")


def read_custom(
    reader: Reader, key: KeyPath, value: object, adaptor: Adaptor, adaptor_name: str
) -> CustomModel:
    """One model of a custom provider; raises BadConfig."""
    table = _model_table(reader, key, value, CustomModel)
    if "capabilities" not in table and adaptor_name != SCRIPTED:
        example = "capabilities = { context_tokens = 128000, output_tokens = 8192 }"
        needs(reader.layer, key, "capabilities", example)
    model = CustomModel(**_fields(reader, key, table, adaptor))
    _default_variant(reader, key, model.default_variant, model.variants)
    return model


def read_managed(reader: Reader, key: KeyPath, value: object) -> ManagedModel:
    """What is said of one model of the catalogue; raises BadConfig."""
    table = _model_table(reader, key, value, ManagedModel)
    made = _fields(reader, key, table, None)
    if "compaction" in table:
        here = (*key, "compaction")
        made["compaction"] = one_of(reader.layer, here, table["compaction"], _COMPACTIONS)
    # Which variants the catalogue has is not known here, so any default may be right.
    return ManagedModel(**made)


def _model_table(
    reader: Reader, key: KeyPath, value: object, kind: type[CustomModel] | type[ManagedModel]
) -> dict[str, Any]:
    named(reader.layer, key, parse_model_key, f"{key[1]}/{key[-1]}", A_MODEL)
    table = is_table(reader.layer, key, value)
    check_known(reader.layer, key, table, kind.__struct_fields__, kind.GONE)
    return table


def _fields(
    reader: Reader, key: KeyPath, table: dict[str, Any], adaptor: Adaptor | None
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if set(table) - {"enabled", "default_variant", "compaction"}:
        from cookie.config.model_parts import read_parts  # noqa: PLC0415 - where there are some

        made = read_parts(reader, key, table, adaptor)
    if "enabled" in table:
        made["enabled"] = a_flag(reader.layer, (*key, "enabled"), table["enabled"])
    if "default_variant" in table:
        here = (*key, "default_variant")
        made["default_variant"] = a_text(reader.layer, here, table["default_variant"])
    return made


def _default_variant(
    reader: Reader,
    key: KeyPath,
    chosen: VariantName | None,
    variants: "Mapping[VariantName, Variant]",
) -> None:
    there = [name for name, variant in variants.items() if variant.enabled]
    if chosen is not None and chosen not in {*there, BASE_VARIANT}:
        known = ", ".join([*there, BASE_VARIANT])
        guess = near(chosen, [*there, BASE_VARIANT])
        reason = f"names no variant of this model; {guess}there is {known}"
        raise reader.layer.wrong((*key, "default_variant"), reason)
