"""The runtime of a workspace: what can run under one revision, as clients are told; pure.

Config and agents go in, a snapshot comes out (schema 5). Who reads the files, when and off which
loop is the supervisor's business; a running run keeps the plan it was admitted under.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from cookie.config.agents import Agents, snapshots
from cookie.config.schema import REHEARSAL
from cookie.config.settings import Config, Settings
from cookie.models.compile import adapted, revisions
from cookie.models.families import TOUR, Compiled, compiled
from ipc.events.base import AgentSnapshot, FallbackEntry, Revisions
from ipc.ids import BASE_VARIANT, ModelKey, ProviderId, VariantName, provider_of
from ipc.methods.runtime import (
    RUNTIME_SCHEMA,
    CatalogState,
    EffectiveAuth,
    RuntimeAgent,
    RuntimeModel,
    RuntimeProvider,
    RuntimeReason,
    RuntimeSnapshot,
    SetupField,
    Support,
)

if TYPE_CHECKING:
    from cookie.config.providers import Provider

NO_CATALOG: Final = CatalogState(stale=False)  # there is none yet, so none is out of date


class Runtime(Struct, frozen=True, kw_only=True):
    """One reading of a workspace. Its repr is the revision: the config has secrets beside it."""

    config: Config
    agents: Agents
    models: tuple[Compiled, ...]
    revisions: Revisions
    snapshot: RuntimeSnapshot

    def __repr__(self) -> str:
        return f"Runtime({self.revisions.runtime})"


def runtime(config: Config, agents: Agents) -> Runtime:
    """What a config and its agents come to. Equal ones have equal revisions."""
    known = compiled(config.settings, config.unusable)
    found = revisions(config.settings, agents, known)
    snapshot = RuntimeSnapshot(
        schema=RUNTIME_SCHEMA,
        runtime_revision=found.runtime,
        agent_revision=found.agent,
        model_revision=found.model,
        catalog_revision=found.catalog,
        manifest_revision=found.manifest,
        provider_state_revision=found.provider_state,
        recipe_registry_revision=found.recipe_registry,
        catalog_source="bootstrap",
        catalog_state=NO_CATALOG,
        provider_store_generation=0,
        agents=_agents(config.settings, agents, known),
        models=tuple(_model(one) for one in known if one.unavailable is None),
        providers=_providers(config, known),
    )
    return Runtime(config=config, agents=agents, models=known, revisions=found, snapshot=snapshot)


def changes(before: Runtime | None, after: Runtime) -> tuple[RuntimeReason, ...]:
    """Why clients are told of `after`, sorted; empty if there is nothing to tell."""
    if before is None:
        return ("startup",)
    if before.revisions.runtime == after.revisions.runtime and before.snapshot == after.snapshot:
        return ()
    reasons: list[RuntimeReason] = []
    if before.revisions.agent != after.revisions.agent:
        reasons.append("agent_reloaded")
    settled = structs.replace(before.snapshot, agents=(), agent_revision="", runtime_revision="")
    other = structs.replace(after.snapshot, agents=(), agent_revision="", runtime_revision="")
    if settled != other or before.config.settings != after.config.settings:
        reasons.append("config_reloaded")
    return tuple(sorted(reasons))


# --- agents ------------------------------------------------------------------------------------


def _agents(
    settings: Settings, agents: Agents, known: Sequence[Compiled]
) -> tuple[RuntimeAgent, ...]:
    """The shared set; a preset's own is in the plan of the session that chose it."""
    documents = agents.effective()
    authored = (one.key for one in known if one.unavailable is None and one.key != TOUR)
    chain = tuple(FallbackEntry(model=key) for key in [*authored][:1])
    made = {one.agent: one for one in snapshots(documents, chain)}
    enabled = [_agent(adapted(settings, known, one), known) for one in made.values()]
    disabled = [
        RuntimeAgent(id=one.agent, mode=one.mode, enabled=False, runnable_as_root=False)
        for one in documents.values()
        if one.agent not in made
    ]
    return tuple(sorted((*enabled, *disabled), key=lambda one: one.id))


def _agent(agent: AgentSnapshot, known: Sequence[Compiled]) -> RuntimeAgent:
    live = tuple(entry for entry in agent.fallback_chain if _can(known, entry))
    return RuntimeAgent(
        id=agent.agent,
        mode=agent.mode,
        enabled=True,
        # Also without a live fallback: then the first model that is available answers (spec 1.1).
        runnable_as_root=agent.mode in {"primary", "all"},
        delegation_targets=() if agent.delegation is None else agent.delegation.targets,
        resolved_fallback=live,
    )


def _can(known: Sequence[Compiled], entry: FallbackEntry) -> bool:
    wanted = None if entry.variant == BASE_VARIANT else entry.variant
    return any(
        one.key == entry.model and one.unavailable is None and wanted in _variants(one)
        for one in known
    )


# --- models and providers ----------------------------------------------------------------------


def _variants(model: Compiled) -> tuple[VariantName | None, ...]:
    return tuple(binding.variant for binding in model.bindings)


def _model(model: Compiled) -> RuntimeModel:
    base = model.bindings[0]
    named = tuple(binding for binding in model.bindings if binding.variant is not None)
    return RuntimeModel(
        key=model.key,
        display_name=model.display_name,
        capabilities=base.capabilities,
        variant_order=tuple(one.variant for one in named if one.variant is not None),
        variants={
            one.variant: {"wire_model": one.wire_model} for one in named if one.variant is not None
        },
        default_variant=model.default_variant,
    )


def _providers(config: Config, known: Sequence[Compiled]) -> tuple[RuntimeProvider, ...]:
    authored = tuple(
        _provider(config, provider_id, provider, known)
        for provider_id, provider in config.settings.providers.items()
    )
    rehearsal = RuntimeProvider(
        id=REHEARSAL,
        presence="current",
        support=Support(state="supported"),
        configuration="unconfigured",
        effective_auth_state="no_auth",
    )
    return (*authored, rehearsal)


def _provider(
    config: Config, provider_id: ProviderId, provider: "Provider", known: Sequence[Compiled]
) -> RuntimeProvider:
    mine = [one for one in known if provider_of(ModelKey(one.key)) == provider_id]
    lame = [one.unavailable for one in mine if one.unavailable is not None]
    why = next((one.reason for one in lame if one.kind == "unsupported"), None)
    if provider.source == "models_dev" and not mine:
        why = "this build has no catalogue of models yet"
    methods, fields = _recipe(provider)
    return RuntimeProvider(
        id=provider_id,
        presence="current",
        support=Support(state="supported" if why is None else "unsupported", reason=why),
        configuration="authored",
        effective_auth_state=_auth(config, provider_id, provider),
        auth_methods=methods,
        setup_fields=fields,
    )


def _recipe(provider: "Provider") -> tuple[tuple[str, ...], tuple[SetupField, ...]]:
    from cookie.config.adaptors import ADAPTORS  # noqa: PLC0415 - there is a provider

    if provider.source != "custom":
        return (), ()
    adaptor = ADAPTORS[provider.adaptor]
    must = [SetupField(name=name) for name in adaptor.setup]
    may = [SetupField(name=name, required=False) for name in adaptor.setup_may]
    return adaptor.methods, (*must, *may)


def _auth(config: Config, provider_id: ProviderId, provider: "Provider") -> EffectiveAuth:
    if provider_id in config.unusable:
        return "unavailable"
    if provider.source == "custom":
        auth = provider.auth
        if auth is None or not auth.values:
            return "no_auth"
        return "authored_api_key" if "api_key" in auth.values else "authored_override"
    if provider.api_key is not None:
        return "authored_api_key"
    return "authored_override" if provider.auth_override is not None else "unavailable"
