"""From settings and the flags of one command to the frozen plan that a worker is told."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, structs, to_builtins

from cookie.config import agents as agents_of
from cookie.config.agents import Agents
from cookie.config.settings import Settings
from cookie.models.families import NOTHING, TOUR, Compiled, Unusable, compiled
from ipc.events.base import (
    AgentSnapshot,
    FallbackEntry,
    FrozenModelBinding,
    ModelSelection,
    Revisions,
    RunSelection,
)
from ipc.faults import Fault
from ipc.ids import (
    BASE_VARIANT,
    ModelKey,
    PresetName,
    Revision,
    VariantName,
    parse_model_key,
)
from ipc.plan import AgentMd, Http, ModelRetry, Plan, RunLimits, ToolOutput, fingerprint, sealed
from ipc.rules import Action, BadPattern, PermissionMode, Rule, check_pattern

NO_AGENTS: Final = Agents()
UNATTENDED_TIMEOUT_MS: Final = 30_000  # spec 1.9: of a question nobody is there to answer
KNOWN_MAX: Final = 8  # models an error names

# --allowed-tools (spec 1.1): names that stand for an action, and actions that take a name.
WHOLE: Final[tuple[Action, ...]] = ("read", "write", "bash", "delegate", "mcp", "plugin")
_NAMED: Final[tuple[Action, ...]] = ("plugin", "skill")


class NoRunnableModel(Fault):
    """No model is configured and none was asked for."""

    code = "no_runnable_model"

    def __init__(self, models: Sequence[Compiled] = ()) -> None:
        super().__init__()
        tour = f"try `--model {TOUR}`, which needs no key and no network"
        lame = [one for one in models if one.unavailable is not None]
        if not lame:
            self.args = (f"no model is configured: {tour}, or add a provider to config.toml",)
            return
        whys = "; ".join(
            f"{one.key}: {one.unavailable.reason}" for one in lame[:2] if one.unavailable
        )
        more = f"; and {len(lame) - 2} more" if len(lame) > 2 else ""  # noqa: PLR2004
        self.args = (f"no model can be used ({whys}{more}): {tour}",)


class ModelUnavailable(Fault):
    """A model was asked for that is configured and still can't be called."""

    code = "model_unavailable"

    def __init__(self, model: Compiled) -> None:
        reason = "" if model.unavailable is None else model.unavailable.reason
        super().__init__(model=model.key, reason=reason)
        self.args = (f"the model {model.key} can't be used: {reason}",)


class NoSuchModel(Fault):
    """A model or a variant was asked for that nobody configured."""

    code = "no_such_model"

    def __init__(self, wanted: str, known: Sequence[str]) -> None:
        super().__init__(model=ascii(wanted[:80]))
        more = f" and {len(known) - KNOWN_MAX} more" if len(known) > KNOWN_MAX else ""
        self.args = (f"there is no {wanted[:80]}; there is: {', '.join(known[:KNOWN_MAX])}{more}",)


class BadAllowedTool(Fault):
    """A name that --allowed-tools does not take."""

    code = "bad_allowed_tool"

    def __init__(self, name: str) -> None:
        super().__init__(name=ascii(name[:80]))
        names = ", ".join((*WHOLE, *(f"{action}:<name>" for action in _NAMED)))
        self.args = (f"--allowed-tools does not take {name[:80]!r}; it takes: {names}",)


class Selection(Struct, frozen=True, kw_only=True):
    """What a person chose for one command; None = what is configured decides."""

    model: str | None = None  # "provider/model"
    variant: str | None = None
    agent: str | None = None
    preset: str | None = None
    before: RunSelection | None = None  # of the session that goes on; no error if it is gone


def bindings(settings: Settings, unusable: Unusable = NOTHING) -> tuple[FrozenModelBinding, ...]:
    """Every model that may be called: the authored ones in their order, then the built-in tour."""
    return _available(compiled(settings, unusable))


def _available(models: Sequence[Compiled]) -> tuple[FrozenModelBinding, ...]:
    return tuple(binding for one in models if one.unavailable is None for binding in one.bindings)


def build_plan(
    settings: Settings,
    selection: Selection,
    *,
    permission_mode: PermissionMode = "auto_approve",
    allowed_tools: Sequence[str] = (),
    max_turns: int | None = None,
    attended: bool = False,
    env: dict[str, str] | None = None,
    authored: Agents = NO_AGENTS,
    unusable: Unusable = NOTHING,
) -> Plan:
    """The sealed plan of one command. `unusable` is what `Config` says of providers.

    Raises NoRunnableModel, NoSuchModel, ModelUnavailable, NoSuchAgent, NotRootRunnable,
    NoSuchPreset, BadAllowedTool, or BadPlan over a limit.
    """
    known = compiled(settings, unusable)
    models = _available(known)
    preset = _preset(selection, authored)
    documents = authored.effective(preset)
    agents = tuple(
        adapted(settings, known, one)
        for one in agents_of.snapshots(documents, _default_chain(models, selection))
    )
    agent = agents_of.choose(documents, agents, _agent(selection, agents))
    chosen = _choose(known, models, selection, agent.fallback_chain)
    retry, output = settings.model_retry, settings.tool_output
    return sealed(
        Plan(
            revisions=revisions(settings, authored, known),
            agents=agents,
            models=models,
            default_selection=RunSelection(agent=agent.agent, model=chosen, preset=preset),
            limits=RunLimits(max_turns=max_turns),
            model_retry=ModelRetry(
                standard_retries=retry.standard_retries,
                overload_retries=retry.overload_retries,
                backoff_ceiling_ms=retry.backoff_ceiling_ms,
            ),
            tool_output=ToolOutput(max_lines=output.max_lines, max_bytes=output.max_bytes),
            permission_mode=permission_mode,
            overlay=overlay(allowed_tools),
            attended=attended,
            agent_md=_agent_md(settings),
            approval_timeout_ms=_approval_timeout_ms(settings, attended=attended),
            env=env or {},
            pass_env=settings.workers.pass_env,
            http=_http(settings),
            loop_warning=_loop_warning(settings),
            link_patience_ms=settings.workers.link_patience_ms(),
        )
    )


def overlay(allowed_tools: Sequence[str]) -> tuple[Rule, ...]:
    """The rules of --allowed-tools: each name allows, none denies; raises BadAllowedTool."""
    rules = []
    for name in allowed_tools:
        action, _, resource = name.partition(":")
        known = _NAMED if resource else WHOLE
        if action not in known or name.endswith(":"):
            raise BadAllowedTool(name)
        try:
            check_pattern(action, resource or "*")
        except BadPattern:
            raise BadAllowedTool(name) from None
        rules.append(Rule(action=action, resource=resource or "*", effect="allow"))
    return tuple(rules)


# The tables below are asked only when they are there: their schema is a module of its own, and
# what a plan says without them is what they would say too.


def _agent_md(settings: Settings) -> AgentMd:
    if "agent_md" not in settings.others:
        return AgentMd()
    from cookie.config.tables import AgentMdTable  # noqa: PLC0415

    table = settings.table(AgentMdTable)
    return AgentMd(enabled=table.enabled, max_bytes=table.max_bytes)


def _approval_timeout_ms(settings: Settings, *, attended: bool) -> int:
    asked = None
    if "approval" in settings.others:
        from cookie.config.tables import ApprovalTable  # noqa: PLC0415

        asked = settings.table(ApprovalTable).timeout_ms
    return asked if asked is not None else 0 if attended else UNATTENDED_TIMEOUT_MS


def _http(settings: Settings) -> Http:
    if "http" not in settings.others:
        return Http()
    from cookie.config.secrets import Kept  # noqa: PLC0415
    from cookie.config.tables import HttpTable  # noqa: PLC0415

    table = settings.table(HttpTable)
    proxy = table.proxy.ref if isinstance(table.proxy, Kept) else None
    return Http(ca_file=table.ca_file, proxy=proxy)


def _loop_warning(settings: Settings) -> bool:
    if "loop_warning" not in settings.others:
        return True
    from cookie.config.tables import LoopWarningTable  # noqa: PLC0415

    return settings.table(LoopWarningTable).enabled


def adapted(settings: Settings, known: Sequence[Compiled], agent: AgentSnapshot) -> AgentSnapshot:
    """An agent's snapshot with what the settings have to say in it."""
    chain, delegation = _settled(known, agent.fallback_chain), agent.delegation
    if delegation is not None and "delegation" in settings.others:
        from cookie.config.tables import DelegationTable  # noqa: PLC0415

        depth = settings.table(DelegationTable).max_depth
        delegation = structs.replace(delegation, effective_depth_ceiling=depth)
    if chain == agent.fallback_chain and delegation is agent.delegation:
        return agent
    return structs.replace(agent, fallback_chain=chain, delegation=delegation)


def _settled(
    known: Sequence[Compiled], chain: Sequence[FallbackEntry]
) -> tuple[FallbackEntry, ...]:
    """A chain in which who names no variant has the model's default one by its name.

    And who says how a prompt is cached has a whole table of the model's family, or nothing.
    """
    default = any(one.default_variant for one in known)
    if not default and all(entry.cache is None for entry in chain):
        return tuple(chain)
    return tuple(
        structs.replace(
            entry,
            variant=entry.variant or _default_variant(known, entry.model),
            cache=None if entry.cache is None else _cache(known, entry.model, entry.cache),
        )
        for entry in chain
    )


def _cache(
    known: Sequence[Compiled], model: ModelKey, told: Mapping[str, Any]
) -> dict[str, Any] | None:
    """What an entry says for its model's family; None: the provider's and the family's say it."""
    from cookie.config.adaptors import ADAPTORS  # noqa: PLC0415 - for an entry with a cache
    from cookie.config.provider_parts import whole_cache  # noqa: PLC0415

    adaptor = next(
        (one.bindings[0].adaptor for one in known if one.key == model and one.bindings), ""
    )
    family = ADAPTORS[adaptor].cache if adaptor in ADAPTORS else None
    if family is None or family not in told:
        return None
    plain: dict[str, Any] = to_builtins(whole_cache(family, told[family]))
    return plain


def _default_variant(known: Sequence[Compiled], model: ModelKey) -> VariantName | None:
    return next((one.default_variant for one in known if one.key == model), None)


def _choose(
    known: Sequence[Compiled],
    models: Sequence[FrozenModelBinding],
    selection: Selection,
    chain: Sequence[FallbackEntry],
) -> ModelSelection:
    """The model that was asked for; else the first of the agent's chain that can be called.

    If none of the chain can, the first model that can at all, in its default variant (spec 1.1).
    """
    keys = list(dict.fromkeys(binding.model for binding in models))
    variant = None if selection.variant is None else VariantName(selection.variant)
    if selection.model is not None:
        wanted = parse_model_key(selection.model)
        if wanted not in keys:
            raise _no_such_model(known, wanted, keys)
        chosen = ModelSelection(model=wanted, variant=variant)
    elif selection.before is not None and _goes_on(models, selection, chain):
        before = selection.before.model
        chosen = ModelSelection(model=before.model, variant=variant or before.variant)
    else:
        live = [entry for entry in chain if _can(models, entry.model, entry.variant)]
        first = live[0] if live else None
        authored = [model for model in keys if model != TOUR]
        if first is None and not authored:
            raise NoRunnableModel(known)
        if first is None:
            chosen = ModelSelection(model=authored[0], variant=variant)
        else:
            chosen = ModelSelection(model=first.model, variant=variant or first.variant)
    if not _can(models, chosen.model, chosen.variant):
        variants = [str(one.variant or BASE_VARIANT) for one in models if one.model == chosen.model]
        raise NoSuchModel(f"variant {chosen.variant} of {chosen.model}", variants)
    if chosen.variant is None:
        return structs.replace(chosen, variant=_default_variant(known, chosen.model))
    return chosen


def _no_such_model(known: Sequence[Compiled], wanted: ModelKey, keys: Sequence[str]) -> Fault:
    lame = next((one for one in known if one.key == wanted), None)
    return NoSuchModel(f"model {wanted}", keys) if lame is None else ModelUnavailable(lame)


def _can(
    models: Sequence[FrozenModelBinding], model: ModelKey, variant: VariantName | None
) -> bool:
    wanted = None if variant == BASE_VARIANT else variant
    return any(one.model == model and one.variant == wanted for one in models)


def _default_chain(
    models: Sequence[FrozenModelBinding], selection: Selection
) -> tuple[FallbackEntry, ...]:
    """The synthesized agent is bound to one model: the first that is available (spec 1.10)."""
    for binding in models:
        if binding.model != TOUR:
            return (FallbackEntry(model=binding.model),)
    wanted = None if selection.model is None else parse_model_key(selection.model)
    return (FallbackEntry(model=wanted),) if wanted == TOUR else ()


def _goes_on(
    models: Sequence[FrozenModelBinding], selection: Selection, chain: Sequence[FallbackEntry]
) -> bool:
    """Whether a session keeps its model: it can still be called, and no other agent was asked for.

    Another agent brings its own chain.
    """
    before = selection.before
    if before is None or not _can(models, before.model.model, before.model.variant):
        return False
    asked = selection.agent is not None and selection.agent != before.agent
    return not asked or before.model.model in {entry.model for entry in chain}


def _preset(selection: Selection, authored: Agents) -> PresetName | None:
    """The preset asked for; else the session's, unless it is gone: then the shared agents."""
    if selection.preset is not None:
        return PresetName(selection.preset)
    before = None if selection.before is None else selection.before.preset
    return before if before in authored.presets else None


def _agent(selection: Selection, agents: Sequence[AgentSnapshot]) -> str | None:
    """The agent asked for; else the session's, unless it is gone: then whoever is first."""
    if selection.agent is not None or selection.before is None:
        return selection.agent
    before = selection.before.agent
    roots = {one.agent for one in agents if one.mode in {"primary", "all"}}
    return before if before in roots else None


def revisions(settings: Settings, authored: Agents, known: Sequence[Compiled]) -> Revisions:
    """The seven revisions of a config: equal for a daemon and a command that read the same."""

    def revision(*parts: object) -> Revision:
        return Revision(fingerprint(parts))

    models = _available(known)
    agents = (authored, agents_of.DEFAULT_PROMPT, agents_of.DEFAULT_RULES)
    return Revisions(
        agent=revision("agents", agents),
        catalog=revision("catalog", None),  # there is none yet
        manifest=revision("manifest", models),
        model=revision("models", [binding.resolved() for binding in models]),
        provider_state=revision("provider_state", None),
        recipe_registry=revision("recipes", sorted({binding.adaptor for binding in models})),
        runtime=revision("runtime", settings, agents, models),
    )
