"""From settings and the flags of one command to the frozen plan that a worker is told."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from cookie.config import agents as agents_of
from cookie.config.settings import REHEARSAL, CustomProvider, Settings
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
    ProviderId,
    Revision,
    VariantName,
    parse_model_key,
)
from ipc.plan import ModelRetry, Plan, RunLimits, ToolOutput, fingerprint, sealed
from ipc.rules import Action, BadPattern, PermissionMode, Rule, check_pattern

TOUR: Final = ModelKey(f"{REHEARSAL}/tour")
UNATTENDED_TIMEOUT_MS: Final = 30_000  # spec 1.9: of a question nobody is there to answer
KNOWN_MAX: Final = 8  # models an error names

# --allowed-tools (spec 1.1): names that stand for an action, and actions that take a name.
_WHOLE: Final[tuple[Action, ...]] = ("read", "write", "bash", "delegate", "mcp", "plugin")
_NAMED: Final[tuple[Action, ...]] = ("plugin", "skill")


class NoRunnableModel(Fault):
    """No model is configured and none was asked for."""

    code = "no_runnable_model"

    def __init__(self) -> None:
        super().__init__()
        tour = f"try `--model {TOUR}`, which needs no key and no network"
        self.args = (f"no model is configured: {tour}, or add a provider to config.toml",)


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
        names = ", ".join((*_WHOLE, *(f"{action}:<name>" for action in _NAMED)))
        self.args = (f"--allowed-tools does not take {name[:80]!r}; it takes: {names}",)


class Selection(Struct, frozen=True, kw_only=True):
    """What a person chose for one command; None = what is configured decides."""

    model: str | None = None  # "provider/model"
    variant: str | None = None
    agent: str | None = None


def bindings(settings: Settings) -> tuple[FrozenModelBinding, ...]:
    """Every model that may be called: the authored ones in their order, then the built-in tour."""
    authored = [
        binding
        for provider, table in settings.providers.items()
        for binding in _custom(provider, table)
    ]
    return (*authored, _tour())


def build_plan(
    settings: Settings,
    selection: Selection,
    *,
    permission_mode: PermissionMode = "auto_approve",
    allowed_tools: Sequence[str] = (),
    max_turns: int | None = None,
    attended: bool = False,
    env: dict[str, str] | None = None,
) -> Plan:
    """The sealed plan of one command.

    Raises NoRunnableModel, NoSuchModel, NoSuchAgent, BadAllowedTool, or BadPlan over a limit.
    """
    models = bindings(settings)
    chosen = _choose(models, selection)
    agents = agents_of.agents(_chain(models, chosen))
    agent = agents_of.choose(agents, selection.agent)
    retry, output = settings.model_retry, settings.tool_output
    return sealed(
        Plan(
            revisions=_revisions(settings, agents, models),
            agents=agents,
            models=models,
            default_selection=RunSelection(agent=agent.agent, model=chosen),
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
            approval_timeout_ms=0 if attended else UNATTENDED_TIMEOUT_MS,
            env=env or {},
            pass_env=settings.workers.pass_env,
            link_patience_ms=settings.workers.link_patience_ms(),
        )
    )


def overlay(allowed_tools: Sequence[str]) -> tuple[Rule, ...]:
    """The rules of --allowed-tools: each name allows, none denies; raises BadAllowedTool."""
    rules = []
    for name in allowed_tools:
        action, _, resource = name.partition(":")
        known = _NAMED if resource else _WHOLE
        if action not in known or name.endswith(":"):
            raise BadAllowedTool(name)
        try:
            check_pattern(action, resource or "*")
        except BadPattern:
            raise BadAllowedTool(name) from None
        rules.append(Rule(action=action, resource=resource or "*", effect="allow"))
    return tuple(rules)


def _custom(provider: ProviderId, table: CustomProvider) -> list[FrozenModelBinding]:
    return [
        FrozenModelBinding(
            model=ModelKey(f"{provider}/{name}"),
            provider_id=provider,
            adaptor=table.adaptor,
            wire_model=model.model_id or name,
            setup=msgspec.to_builtins(table.setup),
            context_limit=model.context_limit,
            max_output=model.max_output,
        )
        for name, model in table.models.items()
    ]


def _tour() -> FrozenModelBinding:
    return FrozenModelBinding(
        model=TOUR, provider_id=REHEARSAL, adaptor="rehearsal", wire_model="tour"
    )


def _choose(models: Sequence[FrozenModelBinding], selection: Selection) -> ModelSelection:
    known = [binding.model for binding in models]
    wanted = parse_model_key(selection.model) if selection.model is not None else None
    if wanted is None and known == [TOUR]:
        raise NoRunnableModel
    if wanted is not None and wanted not in known:
        raise NoSuchModel(f"model {wanted}", known)
    if selection.variant not in {None, BASE_VARIANT}:
        raise NoSuchModel(f"variant {selection.variant} of {wanted or known[0]}", [BASE_VARIANT])
    variant = VariantName(selection.variant) if selection.variant is not None else None
    return ModelSelection(model=wanted or known[0], variant=variant)


def _chain(
    models: Sequence[FrozenModelBinding], chosen: ModelSelection
) -> tuple[FallbackEntry, ...]:
    """The synthesized agent is bound to one model: the first that is available (spec 1.10)."""
    first = models[0].model if models[0].model != TOUR else chosen.model
    return (FallbackEntry(model=first),)


def _revisions(
    settings: Settings, agents: Sequence[AgentSnapshot], models: Sequence[FrozenModelBinding]
) -> Revisions:
    def revision(*parts: object) -> Revision:
        return Revision(fingerprint(parts))

    return Revisions(
        agent=revision("agents", agents),
        catalog=revision("catalog", None),  # there is none yet
        manifest=revision("manifest", models),
        model=revision("models", [binding.resolved() for binding in models]),
        provider_state=revision("provider_state", None),
        recipe_registry=revision("recipes", sorted({binding.adaptor for binding in models})),
        runtime=revision("runtime", settings, agents, models),
    )
