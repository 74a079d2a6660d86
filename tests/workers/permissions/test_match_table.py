"""Match, order and visibility of rules as a table: each row beside a twin that comes out otherwise.

`rules.txt` holds blocks of three lines: one set of rules and two calls, or one call and two sets of
rules, with the effect before what varies. A rule is "action effect pattern", one of the overlay has
a `+` before it, and "; " parts them. A call is "action label", or "action" alone without a label.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipc.rules import Action, Effect, Rule, check_pattern, matches
from workers.permissions.match import PATH_ACTIONS, decide, ranking, visible
from workers.tools.paths import label_of

TABLE = Path(__file__).with_name("rules.txt")
W = "/home/me/project"
NO_PATTERN = "${workspace_dir}*"  # for bash, in one row: no document may say so
NFC, NFD = "caf\u00e9", "cafe\u0301"  # one letter, or a letter and an accent

# Whether tools of an action are offered: (action, rules that show them, rules that do not).
TWO_SIGHTS = [
    ("read", "read allow *", ""),
    ("read", "read ask one/file", "read deny one/file"),
    ("read", "read allow x", "write allow x"),
    ("write", "+write allow *", "+read allow *"),
    ("write", "write ask *; +write deny *", "write deny *; +write deny *"),
    ("write", "write deny *; write ask x", "write deny *; read ask x"),
    ("bash", "bash deny *; +bash ask x", "bash deny *; +bash deny x"),
    ("bash", "bash allow ls; bash deny *", "bash deny ls; bash deny *"),
    ("bash", "bash deny *; bash allow ls", "bash deny *"),
    ("delegate", "delegate allow reviewer", "delegate deny reviewer"),
    ("delegate", "delegate ask *", "message ask *"),
    ("message", "message allow child", "delegate allow child"),
    ("mcp", "mcp ask github_*", "mcp deny github_*"),
    ("mcp", "mcp deny *; +mcp allow *", "mcp deny *; +plugin allow *"),
    ("plugin", "plugin allow nothing/at/all", "plugin deny *"),
    ("skill", "+skill allow review", "+plugin allow review"),
    ("webfetch", "webfetch ask https://a/*", "read allow https://a/*"),
    ("webfetch", "webfetch allow *; +webfetch deny *", "+webfetch deny *"),
]  # fmt: skip

# One pattern, two labels as they are: (pattern, covered, not covered).
TWO_LABELS = [
    ("*", "", None),
    ("**", "", None),
    ("a", "a", ""),
    ("a", "a", "aa"),
    ("a*", "a", "ba"),
    ("*a", "a", "ab"),
    ("*a*", "bab", "bbb"),
    ("a*b", "ab", "a"),
    ("a*b", "a/\n/b", "a/b/"),
    ("a**b", "ab", "ac"),
    ("*a*b*", "cacbc", "cbcac"),
    ("a*a", "aa", "a"),
    ("aa*aa", "aaaa", "aaa"),
    ("ab*ab*ab", "abxabab", "abab"),
    ("*ab*ab", "aabab", "aabb"),
    ("*.py", "a/b.py", "a/b.pyc"),
    ("src/*", "src/", "src"),
    ("?", "a", ""),
    ("?", "\n", "\n\n"),
    ("??", "ab", "a"),
    ("?*", "a", ""),
    ("*?", "ab", ""),
    ("?b", "ab", "b"),
    ("a?", "a?", "a"),
    ("a?c", "a?c", "a??c"),
    ("a?b?c", "axbxc", "axxxc"),
    ("*?b?*", "abc", "bc"),
    ("?a*a?", "xaay", "xay"),
    ("*a?c*", "xxabc", "xxac"),
    ("*?/?*", "a/b", "/b"),
    (NFC, NFC, NFD),
    (f"*{NFD}*", f"a{NFD}b", f"a{NFC}b"),
    ("caf?", NFC, NFD),
    ("caf??", NFD, NFC),
    ("\U0001f36a?", "\U0001f36ax", "\U0001f36a"),
    ("a\u00df", "a\u00df", "ass"),
    ("A*", "AB", "ab"),
    (".env", ".env", "xenv"),
    ("(a)|b", "(a)|b", "b"),
    ("^a$", "^a$", "a"),
    ("a-z", "a-z", "m"),
    ("$HOME/*", "$HOME/x", "/home/me/x"),
    ("# x", "# x", "#  x"),
    ("${workspace_dir}/*", "${workspace_dir}/x", f"{W}/x"),  # without a workspace it is text
]  # fmt: skip


def policy(text: str) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """The document's rules and those of the overlay."""
    layers: tuple[list[Rule], list[Rule]] = ([], [])
    for line in text.split("; ") if text.strip() else ():
        action, effect, resource = line.removeprefix("+").split(" ", 2)
        rule = Rule(action=action, effect=effect, resource=resource)  # type: ignore[arg-type]
        if resource != NO_PATTERN:
            check_pattern(rule.action, resource)
        layers[line.startswith("+")].append(rule)
    return tuple(layers[0]), tuple(layers[1])


def call(text: str) -> tuple[Action, str | None]:
    action, has_label, label = text.partition(" ")
    if not has_label:
        return action, None  # type: ignore[return-value]
    return action, label_of(label, W) if action in PATH_ACTIONS else label  # type: ignore[return-value]


def effect(rules: str, asked: str) -> Effect:
    document, overlay = policy(rules)
    decision = decide(document, overlay, *call(asked), W)
    ranked = ranking(document, overlay, *call(asked), W)
    first = (ranked[0].source, ranked[0].rule) if ranked else ("default", None)
    assert first == (decision.source, decision.rule)
    return decision.effect


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Each row of the text: what it is about, rules, call, effect."""
    about, kind, first = "", "", ""
    for line in TABLE.read_text(encoding="ascii").splitlines():
        if line.startswith("## "):
            about = line.removeprefix("## ")
        elif line.startswith("  "):
            wanted, second = line[2:7].strip(), line[8:]  # effects stand in a column
            rules, asked = (first, second) if kind == "rules" else (second, first)
            yield about, unescaped(rules), unescaped(asked), wanted
        elif line and not line.startswith("#"):
            kind, _, first = line.partition(" ")
            assert kind in {"rules", "call"}, line


def unescaped(text: str) -> str:
    return re.sub(
        r"\\(?:n|u(....)|U(.{8}))",
        lambda found: chr(int(found[1] or found[2] or "a", 16)),
        text,
    )


EFFECTS = list(rows())


@pytest.mark.parametrize(("about", "rules", "asked", "wanted"), EFFECTS)
def test_the_most_exact_rule_of_the_first_layer_decides(
    about: str, rules: str, asked: str, wanted: Effect
) -> None:
    assert effect(rules, asked) == wanted, about


@pytest.mark.parametrize(("action", "rules", "others"), TWO_SIGHTS)
def test_one_rule_that_does_not_deny_shows_the_tools(
    action: Action, rules: str, others: str
) -> None:
    assert visible(*policy(rules), action)
    assert not visible(*policy(others), action)


@pytest.mark.parametrize(("pattern", "covered", "other"), TWO_LABELS)
def test_a_pattern_covers_one_label_and_not_its_twin(
    pattern: str, covered: str, other: str | None
) -> None:
    if pattern == "*":
        assert matches(pattern, other), "the one pattern that covers a call without a label"
    else:
        assert not matches(pattern, other)
    assert matches(pattern, covered)


def test_the_twin_of_each_row_comes_out_otherwise() -> None:
    assert all(one[3] != twin[3] for one, twin in zip(EFFECTS[::2], EFFECTS[1::2], strict=True))


def test_the_table_has_at_least_three_hundred_rows_and_each_order_its_share() -> None:
    shares = Counter(about for about, *_ in EFFECTS)

    assert len({row[1:] for row in EFFECTS}) >= 300
    assert len(shares) == 16
    assert min(shares.values()) >= 6, shares
