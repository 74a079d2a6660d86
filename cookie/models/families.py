"""From what a person authored to models that can be called, or to the reason why one can't."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from cookie.config.schema import REHEARSAL
from cookie.config.secrets import Kept
from cookie.config.settings import Settings
from ipc.events.base import (
    FrozenModelBinding,
    Generation,
    MediaLimit,
    ModelCapabilities,
    ModelTimeouts,
    Pricing,
    ReasoningWish,
)
from ipc.ids import ModelKey, ProviderId, SecretRef, VariantName

if TYPE_CHECKING:
    from cookie.config.model_parts import (
        Capabilities,
        GenerationOptions,
        PricingTable,
        Reasoning,
        Variant,
    )
    from cookie.config.provider_models import CustomModel
    from cookie.config.provider_parts import Timeouts
    from cookie.config.providers import CustomProvider, ManagedProvider

TOUR: Final = ModelKey(f"{REHEARSAL}/tour")
NO_AUTH: Final = "no-auth-v1"  # a binding says it by saying no method
_HEADERS: Final = "headers."  # before the name of a header whose value is a secret

Unusable: TypeAlias = Mapping[str, Exception]  # by owner, as `cookie.config.settings.Config` has it
NOTHING: Final[Unusable] = {}

UnavailableKind = Literal["unsupported", "needs_credentials", "disabled"]


class Unavailable(Struct, frozen=True):
    """Why a model that somebody configured can't be called (spec 1.13)."""

    kind: UnavailableKind
    reason: str  # goes on after "can't be used: "


class Compiled(Struct, frozen=True):
    """One configured model: a binding for itself, then one for each of its variants."""

    key: ModelKey
    display_name: str
    bindings: tuple[FrozenModelBinding, ...] = ()
    default_variant: VariantName | None = None  # None = the model itself
    unavailable: Unavailable | None = None


def compiled(settings: Settings, unusable: Unusable = NOTHING) -> tuple[Compiled, ...]:
    """Every configured model, in the order they were written, and the built-in tour at the end."""
    return (*_authored(settings, unusable), _tour())


def _tour() -> Compiled:
    binding = FrozenModelBinding(
        model=TOUR, provider_id=REHEARSAL, adaptor="rehearsal", wire_model="tour"
    )
    return Compiled(TOUR, "A tour of cookie, without a key and a network", (binding,))


def _authored(settings: Settings, unusable: Unusable) -> Iterator[Compiled]:
    for provider_id, provider in settings.providers.items():
        if provider.source == "custom":
            for name, model in provider.models.items():
                yield _custom(provider_id, provider, name, model, unusable)
        else:
            yield from _managed(provider_id, provider)


def _managed(provider_id: ProviderId, provider: "ManagedProvider") -> Iterator[Compiled]:
    why = Unavailable("unsupported", "this build has no catalogue of models yet")
    for name, model in provider.models.items():
        key = ModelKey(f"{provider_id}/{name}")
        yield Compiled(key, model.display_name or name, unavailable=why)


def _custom(
    provider_id: ProviderId,
    provider: "CustomProvider",
    name: str,
    model: "CustomModel",
    unusable: Unusable,
) -> Compiled:
    base = _binding(provider_id, provider, name, model)
    variants = [
        _varied(base, provider, model, variant, one)
        for variant, one in model.variants.items()
        if one.enabled
    ]
    return Compiled(
        key=base.model,
        display_name=model.display_name or name,
        bindings=(base, *variants),
        default_variant=None if model.default_variant == "base" else model.default_variant,
        unavailable=_unavailable(provider_id, provider, unusable, enabled=model.enabled),
    )


def _unavailable(
    provider_id: ProviderId, provider: "CustomProvider", unusable: Unusable, *, enabled: bool
) -> Unavailable | None:
    from cookie.config.adaptors import BUILT, HTTP  # noqa: PLC0415 - there is a provider

    if not enabled:
        return Unavailable("disabled", "the config says enabled = false")
    if provider.adaptor not in BUILT:
        return Unavailable("unsupported", f"this build has no adaptor {provider.adaptor} yet")
    lack = unusable.get(provider_id)
    if lack is None and provider.adaptor in HTTP:
        lack = unusable.get("http")  # round a proxy that can't be reached no request may go
    return None if lack is None else Unavailable("needs_credentials", str(lack))


def _binding(
    provider_id: ProviderId, provider: "CustomProvider", name: str, model: "CustomModel"
) -> FrozenModelBinding:
    can = model.capabilities
    endpoint, auth = provider.endpoint, provider.auth
    # A deployment is what Azure calls the model that is asked for.
    wire = model.model_id or _shown(provider.setup.get("deployment", name))
    headers, secrets = _headers(provider.headers, model.headers)
    secrets |= {f"setup.{field}": one.ref for field, one in _kept(provider.setup)}
    if isinstance(endpoint, Kept):
        secrets["endpoint"] = endpoint.ref
    method = None if auth is None or auth.method == NO_AUTH else auth.method
    return FrozenModelBinding(
        model=ModelKey(f"{provider_id}/{name}"),
        provider_id=provider_id,
        adaptor=provider.adaptor,
        wire_model=wire,
        endpoint=None if endpoint is None else _shown(endpoint),
        setup={field: _shown(value) for field, value in provider.setup.items()},
        auth_ref=next((one.ref for one in auth.values.values()), None) if auth else None,
        context_limit=None if can is None else can.context_tokens,
        max_output=_max_output(can, model.generation_options),
        capabilities=ModelCapabilities() if can is None else _capabilities(can),
        cache=_builtins(provider.cache),
        pricing=None if model.pricing is None else _pricing(model.pricing),
        auth=method,
        auth_header=None if auth is None else auth.parameters.get("header_name"),
        headers=headers,
        secrets=secrets,
        generation=_generation(model.generation_options),
        options=_said(model.adaptor_options),
        timeouts=ModelTimeouts() if provider.timeouts is None else _timeouts(provider.timeouts),
    )


def _varied(
    base: FrozenModelBinding,
    provider: "CustomProvider",
    model: "CustomModel",
    name: VariantName,
    variant: "Variant",
) -> FrozenModelBinding:
    """A variant: what it says itself in the place of what its model says, key by key."""
    asked = (model.generation_options, variant.generation_options)
    headers, secrets = _headers(provider.headers, model.headers, variant.headers)
    others = {place: ref for place, ref in base.secrets.items() if not place.startswith(_HEADERS)}
    return msgspec.structs.replace(
        base,
        variant=name,
        wire_model=variant.model_id or base.wire_model,
        max_output=_max_output(model.capabilities, *asked),
        headers=headers,
        secrets=secrets | others,
        generation=_generation(*asked),
        reasoning=None if variant.reasoning is None else _reasoning(variant.reasoning),
        options=_said(model.adaptor_options, variant.adaptor_options),
    )


def _shown(value: str | Kept) -> str:
    """A setting as it may stand in a plan and a log: what is secret by its template."""
    return value.shown if isinstance(value, Kept) else value


def _kept(table: Mapping[str, str | Kept]) -> Iterator[tuple[str, Kept]]:
    return ((name, value) for name, value in table.items() if isinstance(value, Kept))


def _headers(*tables: Mapping[str, str | Kept]) -> tuple[dict[str, str], dict[str, SecretRef]]:
    """The headers of a request from the widest table to the narrowest, plain and secret ones.

    An empty one stays: it takes away what the adaptor itself would send.
    """
    together: dict[str, str | Kept] = {}
    for table in tables:
        together |= table
    plain = {name: value for name, value in together.items() if isinstance(value, str)}
    return plain, {f"{_HEADERS}{name}": value.ref for name, value in _kept(together)}


def _said(*tables: Struct | None) -> dict[str, Any]:
    """What the tables say, the later ones over the earlier ones; what is left out is in none."""
    found: dict[str, Any] = {}
    for table in tables:
        plain = {} if table is None else msgspec.to_builtins(table)
        found |= {name: _listed(value) for name, value in plain.items() if value is not None}
    return found


def _listed(value: Any) -> Any:
    """As it comes back from JSON: a plan that was sent is equal to the one that was made."""
    return list(value) if isinstance(value, tuple) else value


def _generation(*tables: "GenerationOptions | None") -> Generation:
    said = _said(*tables)
    said.pop("max_output_tokens", None)
    choice = said.get("tool_choice")
    if isinstance(choice, dict):
        said["tool_choice"] = f"named:{choice['named']}"
    return Generation(**said | {"stop": tuple(said.get("stop", ()))})


def _max_output(can: "Capabilities | None", *tables: "GenerationOptions | None") -> int | None:
    """What a model can write and what it is asked to, whichever is less."""
    asked = _said(*tables).get("max_output_tokens")
    limits = (None if can is None else can.output_tokens, asked)
    return min((limit for limit in limits if limit is not None), default=None)


def _reasoning(wish: "Reasoning") -> ReasoningWish:
    if isinstance(wish.value, str):
        return ReasoningWish(effort=wish.value)
    return ReasoningWish(enabled=wish.enabled, budget_tokens=wish.value)


def _timeouts(table: "Timeouts") -> ModelTimeouts:
    return ModelTimeouts(
        connect_ms=_ms(table.connect_seconds),
        headers_ms=_ms(table.headers_seconds),
        credentials_ms=_ms(table.credentials_seconds),
        stream_idle_ms=_ms(table.stream_idle_seconds),
    )


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _capabilities(can: "Capabilities") -> ModelCapabilities:
    parallel = can.tool_calling if can.parallel_tool_calls is None else can.parallel_tool_calls
    return ModelCapabilities(
        tools=can.tool_calling,
        reasoning=can.reasoning,
        parallel_tools=parallel,
        input_media=tuple(mime for media in can.media.values() for mime in media.mime_types),
        media_limits=tuple(
            MediaLimit(
                mime_types=media.mime_types, max_bytes=media.max_bytes, max_count=media.max_count
            )
            for media in can.media.values()
        ),
        native_replay=can.native_replay or "optional",
    )


def _builtins(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain


def _pricing(table: "PricingTable") -> Pricing | None:
    """The rates in pico-dollars; None without both of those that every request needs."""
    from cookie.config.model_parts import pico_usd  # noqa: PLC0415 - there is a model

    def rate(text: str | None) -> int | None:
        return None if text is None else pico_usd(text)

    cost_in, cost_out = rate(table.input_per_million_usd), rate(table.output_per_million_usd)
    if cost_in is None or cost_out is None:
        return None
    return Pricing(
        input=cost_in,
        output=cost_out,
        reasoning=rate(table.reasoning_per_million_usd),
        cache_read=rate(table.cache_read_per_million_usd),
        cache_write=rate(table.cache_write_per_million_usd),
    )
