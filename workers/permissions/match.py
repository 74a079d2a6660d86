"""What the rules say about one call: values in, a decision out."""

from collections.abc import Sequence
from itertools import chain
from typing import Final

from msgspec import Struct

from ipc.events import PolicyEvaluation, RuleSource
from ipc.rules import Action, Effect, Rule, matches, specificity

# Only path labels can lie inside a workspace; elsewhere `${workspace_dir}` is no rule's to use.
PATH_ACTIONS: Final[frozenset[Action]] = frozenset({"read", "write"})


class Decision(Struct, frozen=True, kw_only=True):
    """The effect on one label and the rule it comes from; no rule = nothing matched = deny."""

    effect: Effect
    source: RuleSource
    rule: Rule | None = None

    def evaluation(self, action: Action, label: str | None) -> PolicyEvaluation:
        """The decision as approval events carry it."""
        return PolicyEvaluation(
            action=action, label=label, effect=self.effect, source=self.source, rule=self.rule
        )


def decide(
    rules: Sequence[Rule],
    overlay: Sequence[Rule],
    action: Action,
    label: str | None,
    workspace: str,
) -> Decision:
    """What happens to a call (spec 1.9): the overlay speaks first, then the agent's rules.

    Within one of them the rule with more literal characters wins, then the one with fewer
    wildcards, then the later one. A call without a label is matched by `*` alone.
    """
    layers: tuple[tuple[RuleSource, Sequence[Rule]], ...] = (
        ("session_overlay", overlay),
        ("agent_document", rules),
    )
    for source, layer in layers:
        rule = _best(layer, action, label, workspace)
        if rule is not None:
            return Decision(effect=rule.effect, source=source, rule=rule)
    return Decision(effect="deny", source="default")


def _best(rules: Sequence[Rule], action: Action, label: str | None, workspace: str) -> Rule | None:
    inside = workspace if action in PATH_ACTIONS else None
    best: Rule | None = None
    score = (-1, 0)
    for rule in rules:
        if rule.action == action and matches(rule.resource, label, inside):
            found = specificity(rule.resource, inside)
            if best is None or found >= score:
                best, score = rule, found
    return best


def visible(rules: Sequence[Rule], overlay: Sequence[Rule], action: Action) -> bool:
    """Whether tools of `action` are offered at all: some rule allows or asks, whatever it names.

    A deny hides nothing; what it denies is decided call by call.
    """
    return any(rule.action == action and rule.effect != "deny" for rule in chain(rules, overlay))
