"""What holds for all rules and all calls, and what a match costs."""

import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipc.rules import (
    ACTIONS,
    EFFECTS,
    WORKSPACE,
    Action,
    BadPattern,
    Effect,
    Rule,
    check_pattern,
    matches,
)
from workers.permissions.match import PATH_ACTIONS, decide, ranking, visible

W = "/w"
FREEDOM: Final[dict[Effect, int]] = {"deny": 0, "ask": 1, "allow": 2}
T = TypeVar("T")

# Few letters, so that rules and calls meet; the last ones are longer than one byte.
PATTERNS = st.text("ab/*?\n\u00e9\U0001f36a", min_size=1, max_size=8)
LABELS = st.text("ab/*\n\u00e9\U0001f36a", max_size=10)
CALLS = st.tuples(st.sampled_from(ACTIONS), st.none() | LABELS)


@st.composite
def rule(draw: Any, effects: Sequence[Effect] = EFFECTS) -> Rule:
    action = draw(st.sampled_from(ACTIONS[:3]))
    pattern = draw(PATTERNS)
    if action in PATH_ACTIONS and draw(st.booleans()):
        pattern = f"{WORKSPACE}/{pattern}"
    return Rule(action=action, resource=pattern, effect=draw(st.sampled_from(effects)))


RULES = st.lists(rule(), max_size=8)


def put(items: Sequence[T], item: T, place: int) -> list[T]:
    """The items with one more among them."""
    place %= len(items) + 1
    return [*items[:place], item, *items[place:]]


def effect(rules: Sequence[Rule], overlay: Sequence[Rule], call: tuple[Action, Any]) -> Effect:
    return decide(rules, overlay, *call, W).effect


@settings(max_examples=200, deadline=None)
@given(RULES, RULES, rule(("deny",)), st.integers(0), st.booleans(), CALLS)
def test_one_more_deny_never_allows_more(
    rules: list[Rule], overlay: list[Rule], deny: Rule, place: int, above: bool, call: Any
) -> None:
    before = effect(rules, overlay, call)
    if above:
        after = effect(rules, put(overlay, deny, place), call)
        seen = visible(rules, put(overlay, deny, place), call[0])
    else:
        after = effect(put(rules, deny, place), overlay, call)
        seen = visible(put(rules, deny, place), overlay, call[0])

    assert FREEDOM[after] <= FREEDOM[before]
    assert after in {before, "deny"}
    assert seen is visible(rules, overlay, call[0])


@settings(max_examples=200, deadline=None)
@given(st.lists(rule(("allow",)), max_size=8), st.lists(rule(("allow",))), CALLS, st.integers(0))
def test_a_set_that_only_allows_and_has_a_star_allows_every_call(
    rules: list[Rule], overlay: list[Rule], call: tuple[Action, str | None], place: int
) -> None:
    star = Rule(action=call[0], resource="*", effect="allow")

    assert effect(put(rules, star, place), overlay, call) == "allow"
    assert effect(rules, put(overlay, star, place), call) == "allow"


@settings(max_examples=200, deadline=None)
@given(RULES, rule(("deny",)), CALLS)
def test_a_deny_of_the_overlay_wins_over_every_rule_of_the_document(
    rules: list[Rule], deny: Rule, call: tuple[Action, str | None]
) -> None:
    action, label = call
    speaks = deny.action == action and deny.matches(label, W)

    decision = decide(rules, [deny], action, label, W)

    assert (decision.source == "session_overlay") is speaks
    if speaks:
        assert decision.effect == "deny"
    else:
        assert decision == decide(rules, [], action, label, W)


@settings(max_examples=200, deadline=None)
@given(RULES, RULES, rule(), st.integers(0), CALLS)
def test_a_rule_of_another_action_changes_nothing(
    rules: list[Rule], overlay: list[Rule], other: Rule, place: int, call: Any
) -> None:
    if other.action != call[0]:
        decision = decide(rules, overlay, *call, W)
        assert decide(put(rules, other, place), overlay, *call, W) == decision
        assert decide(rules, put(overlay, other, place), *call, W) == decision


@settings(max_examples=200, deadline=None)
@given(RULES, RULES, CALLS)
def test_what_is_not_offered_is_denied_whatever_it_is_called_with(
    rules: list[Rule], overlay: list[Rule], call: tuple[Action, str | None]
) -> None:
    if not visible(rules, overlay, call[0]):
        assert effect(rules, overlay, call) == "deny"


@settings(max_examples=200, deadline=None)
@given(RULES, RULES, CALLS)
def test_the_decision_is_the_first_of_the_ranking_and_that_of_a_plain_reading(
    rules: list[Rule], overlay: list[Rule], call: tuple[Action, str | None]
) -> None:
    ranked = ranking(rules, overlay, *call, W)
    decision = decide(rules, overlay, *call, W)

    assert [one.rule for one in ranked] == plainly(rules, overlay, *call)
    assert decision.rule == (ranked[0].rule if ranked else None)
    assert decision.effect == (ranked[0].rule.effect if ranked else "deny")
    layers = {"session_overlay": overlay, "agent_document": rules}
    assert all(one.rule == layers[one.source][one.place] for one in ranked)


def plainly(
    rules: Sequence[Rule], overlay: Sequence[Rule], action: Action, label: str | None
) -> list[Rule]:
    """The rules that match, strongest first, as the specification says it and no faster."""

    def written_out(one: Rule) -> str:
        return one.resource.replace(WORKSPACE, W) if action in PATH_ACTIONS else one.resource

    def speaks(one: Rule) -> bool:
        if label is None:
            return one.resource == "*"
        whole = label if label.startswith("/") or WORKSPACE not in one.resource else f"{W}/{label}"
        shape = "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in written_out(one))
        return re.fullmatch(shape, whole, re.DOTALL) is not None

    def strength(numbered: tuple[int, Rule]) -> tuple[int, int, int]:
        text = written_out(numbered[1])
        wildcards = text.count("*") + text.count("?")
        return len(text) - wildcards, -wildcards, numbered[0]

    found: list[Rule] = []
    for layer in (overlay, rules):
        mine = [(n, one) for n, one in enumerate(layer) if one.action == action and speaks(one)]
        found += [one for _, one in sorted(mine, key=strength, reverse=True)]
    return found


# Whole documents are read by the same check, whatever a person wrote into them.
WRITTEN = st.text(max_size=40) | st.text("ab/*?${}workspace_dir[]\\ \x00\n\u00e9", max_size=60)


def judge(action: Action, pattern: str, label: str | None) -> None:
    """A pattern is refused in one line, or it matches as a plain reading of it does."""
    told = ""
    try:
        check_pattern(action, pattern)
    except BadPattern as bad:
        told = str(bad)
    assert "\n" not in told
    if told:
        return
    one = Rule(action=action, resource=pattern, effect="allow")
    assert [found.rule for found in ranking([one], (), action, label, W)] == plainly(
        [one], (), action, label
    )


@given(st.sampled_from(ACTIONS), WRITTEN, st.none() | LABELS | WRITTEN)
def test_any_pattern_is_refused_in_one_line_or_read_plainly(
    action: Action, pattern: str, label: str | None
) -> None:
    judge(action, pattern, label)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=100_000, deadline=None)
@given(st.sampled_from(ACTIONS), WRITTEN | PATTERNS, st.none() | LABELS | WRITTEN)
def test_a_hundred_thousand_random_patterns(
    action: Action, pattern: str, label: str | None
) -> None:
    judge(action, pattern, label)


# --- what it costs -------------------------------------------------------------------------------


class Counted(str):
    """A label that counts how many of its characters somebody may have looked at."""

    looks = 0

    def find(self, piece: str, start: Any = 0, end: Any = None, /) -> int:
        end = len(self) if end is None else end
        found = super().find(piece, start, end)
        self.looks += (end if found < 0 else found + len(piece)) - start
        return found

    def startswith(self, piece: Any, *more: Any) -> bool:
        self.looks += max(len(piece), 1)
        return super().startswith(piece, *more)

    def endswith(self, piece: Any, *more: Any) -> bool:
        self.looks += max(len(piece), 1)
        return super().endswith(piece, *more)


@pytest.mark.parametrize(
    ("pattern", "unit"),
    [
        ("*" * 2000, "a"),
        ("*" * 2000 + "b", "a"),
        ("*a" * 2000, "a"),
        ("*a" * 2000 + "*b*", "a"),
        ("*ab" * 1300 + "*c*", "ab"),
        ("a*" * 2000 + "b", "a"),
        ("*" + "a" * 2000 + "b*", "a"),
        ("a" * 2000 + "*" + "a" * 2000, "a"),
        ("*a*b" * 1000 + "*c", "ab"),
        ("x*" * 2000, "a"),
    ],
)
@pytest.mark.parametrize("size", [1_000, 10_000, 100_000])
def test_each_character_is_looked_at_a_few_times_at_most(
    pattern: str, unit: str, size: int
) -> None:
    label = Counted((unit * size)[:size])

    matches(pattern, label)

    assert 0 < label.looks <= size + 4 * len(pattern)
