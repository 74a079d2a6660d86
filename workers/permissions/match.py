"""What the rules say about one call: values in, a decision out."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from msgspec import Struct

from ipc.events import PolicyEvaluation, RuleSource
from ipc.rules import Action, Effect, Rule, Shape, rooted, shape_of

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


class Match(Struct, frozen=True, kw_only=True):
    """A rule that speaks about a call: where it stands, and how exact it is there."""

    source: RuleSource
    place: int  # among the rules of its source, from 0
    rule: Rule
    specificity: tuple[int, int]  # literal characters, minus wildcards


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
    for found in _matches(rules, overlay, action, label, workspace):
        return Decision(effect=found.rule.effect, source=found.source, rule=found.rule)
    return Decision(effect="deny", source="default")


def ranking(
    rules: Sequence[Rule],
    overlay: Sequence[Rule],
    action: Action,
    label: str | None,
    workspace: str,
) -> tuple[Match, ...]:
    """Every rule that matches, the one that decides first, each stronger than those after it."""
    return tuple(_matches(rules, overlay, action, label, workspace))


def visible(rules: Sequence[Rule], overlay: Sequence[Rule], action: Action) -> bool:
    """Whether tools of `action` are offered at all: some rule allows or asks, whatever it names.

    A deny hides nothing; what it denies is decided call by call.
    """
    return any(rule.action == action and rule.effect != "deny" for rule in chain(rules, overlay))


def _matches(
    rules: Sequence[Rule],
    overlay: Sequence[Rule],
    action: Action,
    label: str | None,
    workspace: str,
) -> Iterator[Match]:
    layers: tuple[tuple[RuleSource, Sequence[Rule]], ...] = (
        ("session_overlay", overlay),
        ("agent_document", rules),
    )
    for source, layer in layers:
        for place, rule, shape in _layer(tuple(layer), action, workspace).matching(label):
            yield Match(source=source, place=place, rule=rule, specificity=shape.specificity)


class _Layer:
    """The rules of one action in the order of their strength, which no label changes."""

    def __init__(self, rules: Sequence[Rule], action: Action, workspace: str) -> None:
        self._workspace = workspace
        inside = workspace if action in PATH_ACTIONS else None
        found = [
            (place, rule, shape_of(rule.resource, inside))
            for place, rule in enumerate(rules)
            if rule.action == action
        ]
        self._strongest_first = sorted(found, key=lambda one: (one[2].specificity, one[0]))[::-1]
        # By the text they begin with, so that a long list costs little; the rest by looking.
        self._heads: dict[int, dict[str, list[int]]] = {}
        self._others: list[int] = []
        for number, (_, _, shape) in enumerate(self._strongest_first):
            if shape.head and not shape.rooted:
                same_length = self._heads.setdefault(len(shape.head), {})
                same_length.setdefault(shape.head, []).append(number)
            else:
                self._others.append(number)

    def matching(self, label: str | None) -> Iterator[tuple[int, Rule, Shape]]:
        """Place, rule and shape of those that match, the strongest first."""
        whole = rooted(label, self._workspace)
        for number in self._others if label is None else self._candidates(label):
            place, rule, shape = self._strongest_first[number]
            if shape.covers(whole if shape.rooted else label):
                yield place, rule, shape

    def _candidates(self, label: str) -> list[int]:
        found = list(self._others)
        for length, heads in self._heads.items():
            found += heads.get(label[:length], ())
        return sorted(found)


_layer = lru_cache(maxsize=64)(_Layer)  # an agent's rules stay the same for a whole run
