"""ipc.rules: which labels a pattern covers, which of two patterns is more exact, which is none."""

import fnmatch
import re
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipc.rules import (
    ACTIONS,
    MODES,
    PATTERN_CHARS_MAX,
    BadMode,
    BadPattern,
    PermissionMode,
    Rule,
    check_pattern,
    matches,
    parse_mode,
    specificity,
)


@pytest.mark.parametrize(
    ("pattern", "label", "covered"),
    [
        ("*", "anything at all\nin two lines", True),
        ("*", "", True),
        ("", "", True),
        ("", "a", False),
        ("a", "a", True),
        ("a", "A", False),
        ("a", "ab", False),
        ("src/*", "src/a", True),
        ("src/*", "src/a/b/c.py", True),
        ("src/*", "src/", True),
        ("src/*", "src", False),
        ("src/*", "x/src/a", False),
        ("git *", "git push --force", True),
        ("git *", "git", False),
        ("git *", "git status; rm -rf /", True),
        ("git status", "git status", True),
        ("git status", "git status -s", False),
        ("*.py", "a/b.py", True),
        ("*.py", ".py", True),
        ("*.py", "a.pyc", False),
        ("*a*b*", "xxaxxbxx", True),
        ("*a*b*", "ba", False),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("ab*ba", "aba", False),
        ("*ab*ab*", "ab", False),
        ("*ab*ab*", "abab", True),
        ("**", "x", True),
        ("a**b", "ab", True),
        ("?", "a", True),
        ("?", "", False),
        ("?", "ab", False),
        ("*?*", "", False),
        ("*?*", "a", True),
        ("*?*", "/etc/passwd", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("*a?c*", "xaxacc", True),
        ("?\n", "\n\n", True),
        (".env*", ".env.local", True),
        (".env*", "a/.env", False),
        ("*/.env", "a/.env", True),
        ("/*", "/etc/passwd", True),
        ("/*", "etc/passwd", False),
        ("github_*", "github_delete_repo", True),
        ("*https://*.example.org/*", "https://a.example.org/x?y=1", True),
        ("*https://*.example.org/*", "https://example.org/", False),
        ("a.c", "abc", False),
        ("a+", "aa", False),
        ("(a|b)^$", "(a|b)^$", True),
        ("é*", "état", True),
    ],
)
def test_a_star_is_any_text_and_a_question_mark_any_character(
    pattern: str, label: str, covered: bool
) -> None:
    assert matches(pattern, label) is covered


def test_a_call_without_a_label_is_covered_by_the_bare_star_alone() -> None:
    assert matches("*", None)
    assert not any(matches(pattern, None) for pattern in ("**", "*?*", "", "a"))


@pytest.mark.parametrize(
    ("pattern", "label", "workspace", "covered"),
    [
        ("${workspace_dir}/*", "/w/a/b", "/w", True),
        ("${workspace_dir}/*", "a/b", "/w", True),
        ("${workspace_dir}/*", "/wider/a", "/w", False),
        ("${workspace_dir}/src/*", "src/x", "/w", True),
        ("${workspace_dir}/src/*", "lib/x", "/w", False),
        ("${workspace_dir}/*", "/w*x/a", "/w*x", True),
        ("${workspace_dir}/*", "/wAx/a", "/w*x", False),
        ("${workspace_dir}/*", "/wAx/a", "/w?x", False),
        ("${workspace_dir}/*", "artifact://" + "0" * 64, "/w", False),
        ("${workspace_dir}/*", "goal:current", "/w", False),
        ("${workspace_dir}/*", "/w/a", None, False),
        ("*", "a", "/w", True),
        ("src/*", "src/a", "/w", True),
        ("artifact://*", "artifact://" + "0" * 64, "/w", True),
    ],
)
def test_the_workspace_stands_for_itself_character_by_character(
    pattern: str, label: str, workspace: str | None, covered: bool
) -> None:
    assert matches(pattern, label, workspace) is covered
    assert (
        Rule(action="read", resource=pattern, effect="allow").matches(label, workspace) is covered
    )


@settings(max_examples=500, deadline=None)
@given(st.text("ab*?/\n", max_size=10), st.text("ab*?/\n", max_size=14))
def test_the_match_agrees_with_a_regular_expression(pattern: str, label: str) -> None:
    shape = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern)
    assert matches(pattern, label) is bool(re.fullmatch(shape, label, re.DOTALL))


@settings(max_examples=200, deadline=None)
@given(st.text("ab*?/.-", max_size=8), st.text("ab/.-", max_size=12))
def test_the_match_agrees_with_the_shells(pattern: str, label: str) -> None:
    assert matches(pattern, label) is fnmatch.fnmatchcase(label, pattern)


@pytest.mark.parametrize(
    "pattern",
    ["*a" * 40 + "*", "a*" * 40 + "b", "*a?" * 30 + "b", "*" * 200 + "b", "*" + "a?" * 40 + "b*"],
)
def test_no_pattern_blows_up_on_a_long_command(pattern: str) -> None:
    """Far beyond any life time if it backtracked; the deadline is a guard, not a measurement."""
    label = "a" * 200_000
    began = time.monotonic()
    assert not matches(pattern, label) or pattern.endswith("a*")
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", (0, -1)),
        ("**", (0, -2)),
        ("*?*", (0, -3)),
        ("/*", (1, -1)),
        ("git *", (4, -1)),
        ("git status", (10, 0)),
        ("", (0, 0)),
    ],
)
def test_literal_characters_count_for_and_wildcards_against_a_pattern(
    pattern: str, expected: tuple[int, int]
) -> None:
    assert specificity(pattern) == expected


def test_a_pattern_of_the_workspace_is_as_exact_as_what_it_stands_for() -> None:
    assert specificity("${workspace_dir}/*", "/home/me") == specificity("/home/me/*")


def test_more_literals_win_and_then_fewer_wildcards() -> None:
    ordered = ["*?*", "*", "/*", "*/.env", "*/.env.example"]
    assert sorted(ordered, key=specificity) == ordered
    assert specificity("a*b") > specificity("a*b*")


@pytest.mark.parametrize(
    "pattern", ["*", "src/*", ".env.*", "git push (--force)", "é ✓", "a?b", "$HOME"]
)
def test_an_ordinary_pattern_may_be_in_a_rule(pattern: str) -> None:
    for action in ACTIONS:
        assert check_pattern(action, pattern) == pattern


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a\nb",
        "a\x00",
        "\x7f",
        "\x85",
        "a\u202e",
        "\ud800",
        "a\\b",
        "[ab]",
        "{a,b}",
        "${env:HOME}",
        "${workspace_dir",
        "$workspace_dir}",
        "x" * (PATTERN_CHARS_MAX + 1),
    ],
)
def test_a_pattern_that_hides_something_may_not(pattern: str) -> None:
    for action in ACTIONS:
        with pytest.raises(BadPattern):
            check_pattern(action, pattern)


def test_the_workspace_is_for_read_and_write_only() -> None:
    for action in ACTIONS:
        if action in {"read", "write"}:
            assert check_pattern(action, "${workspace_dir}/*") == "${workspace_dir}/*"
        else:
            with pytest.raises(BadPattern):
                check_pattern(action, "${workspace_dir}/*")


@pytest.mark.parametrize(
    ("text", "mode"),
    [*[(mode, mode) for mode in MODES], ("auto-approve-n", "auto_approve_n")],
)
def test_a_mode_is_read_with_hyphens_or_underscores(text: str, mode: PermissionMode) -> None:
    assert parse_mode(text) == mode


@pytest.mark.parametrize("text", ["", "YOLO", "auto", "auto approve"])
def test_another_word_is_no_mode(text: str) -> None:
    with pytest.raises(BadMode):
        parse_mode(text)


def test_a_rule_of_an_unknown_action_or_effect_is_no_rule() -> None:
    for line in (
        b'{"action":"steer","resource":"*","effect":"allow"}',
        b'{"action":"read","resource":"*","effect":"maybe"}',
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(line, type=Rule)
