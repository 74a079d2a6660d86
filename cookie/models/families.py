"""From what a person authored to models that can be called, or to the reason why one can't."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from cookie.config.schema import REHEARSAL
from cookie.config.secrets import Kept
from cookie.config.settings import Settings
from ipc.events.base import FrozenModelBinding, ModelCapabilities, Pricing
from ipc.ids import ModelKey, ProviderId, VariantName

if TYPE_CHECKING:
    from cookie.config.model_parts import Capabilities, PricingTable
    from cookie.config.provider_models import CustomModel
    from cookie.config.providers import CustomProvider, ManagedProvider

TOUR: Final = ModelKey(f"{REHEARSAL}/tour")

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
        lack = unusable.get(provider_id)
        if provider.source == "custom":
            for name, model in provider.models.items():
                yield _custom(provider_id, provider, name, model, lack)
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
    lack: Exception | None,
) -> Compiled:
    base = _binding(provider_id, provider, name, model)
    variants = [
        msgspec.structs.replace(base, variant=variant, wire_model=one.model_id or base.wire_model)
        for variant, one in model.variants.items()
        if one.enabled
    ]
    return Compiled(
        key=base.model,
        display_name=model.display_name or name,
        bindings=(base, *variants),
        default_variant=None if model.default_variant == "base" else model.default_variant,
        unavailable=_unavailable(provider, enabled=model.enabled, lack=lack),
    )


def _unavailable(
    provider: "CustomProvider", *, enabled: bool, lack: Exception | None
) -> Unavailable | None:
    from cookie.config.adaptors import BUILT  # noqa: PLC0415 - there is a provider, so it is loaded

    if not enabled:
        return Unavailable("disabled", "the config says enabled = false")
    if provider.adaptor not in BUILT:
        return Unavailable("unsupported", f"this build has no adaptor {provider.adaptor} yet")
    return None if lack is None else Unavailable("needs_credentials", str(lack))


def _binding(
    provider_id: ProviderId, provider: "CustomProvider", name: str, model: "CustomModel"
) -> FrozenModelBinding:
    can = model.capabilities
    endpoint, auth = provider.endpoint, provider.auth
    # A deployment is what Azure calls the model that is asked for.
    wire = model.model_id or _shown(provider.setup.get("deployment", name))
    return FrozenModelBinding(
        model=ModelKey(f"{provider_id}/{name}"),
        provider_id=provider_id,
        adaptor=provider.adaptor,
        wire_model=wire,
        endpoint=None if endpoint is None else _shown(endpoint),
        setup={field: _shown(value) for field, value in provider.setup.items()},
        auth_ref=next((one.ref for one in auth.values.values()), None) if auth else None,
        context_limit=None if can is None else can.context_tokens,
        max_output=None if can is None else can.output_tokens,
        capabilities=ModelCapabilities() if can is None else _capabilities(can),
        cache=_builtins(provider.cache),
        pricing=None if model.pricing is None else _pricing(model.pricing),
    )


def _shown(value: str | Kept) -> str:
    """A setting as it may stand in a plan and a log: what is secret by its template."""
    return value.shown if isinstance(value, Kept) else value


def _capabilities(can: "Capabilities") -> ModelCapabilities:
    parallel = can.tool_calling if can.parallel_tool_calls is None else can.parallel_tool_calls
    return ModelCapabilities(
        tools=can.tool_calling,
        reasoning=can.reasoning,
        parallel_tools=parallel,
        input_media=tuple(mime for media in can.media.values() for mime in media.mime_types),
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
