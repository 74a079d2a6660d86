"""Which tools a model is offered: those whose action the rules leave a way to (spec 1.9)."""

from collections.abc import Mapping, Sequence

from ipc.rules import Rule
from workers.permissions.match import visible
from workers.providers.base import ToolSpec
from workers.run.desk import Desk, Kit
from workers.tools.base import Tool, json_schema


def overlay(desk: Desk, kit: Kit) -> tuple[Rule, ...]:
    """The rules laid over the agent's own: the session's, then those of this command."""
    own = desk.state.overlay
    return (*(own.rules if own is not None else ()), *kit.plan.overlay)


def tool_specs(
    tools: Mapping[str, type[Tool]], rules: Sequence[Rule], overlay: Sequence[Rule]
) -> tuple[ToolSpec, ...]:
    """The visible tools in the table's own order, which never changes within a build."""
    return tuple(
        ToolSpec(name=name, description=tool.description(), parameters=json_schema(tool))
        for name, tool in tools.items()
        if visible(rules, overlay, tool.action)
    )
