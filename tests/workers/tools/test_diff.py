"""Hunks: they say what changed, where, and no more than fits."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from workers.tools.diff import (
    HUNK_CHARS_MAX,
    LEFT_OUT,
    Change,
    diff_display,
    whole_change,
)

LINES = st.lists(st.sampled_from("abcdef"), max_size=30).map(
    lambda lines: "".join(f"{line}\n" for line in lines)
)


def patched(old: str, hunks: str) -> str:
    """The old text with the hunks applied, each checked against it."""
    lines, result, at = old.split("\n")[:-1], [], 0
    for hunk in re.split(r"^(?=@@ )", hunks, flags=re.MULTILINE)[1:]:
        header, *body = hunk.rstrip("\n").split("\n")
        first, ours, new_first, theirs = map(
            int, re.fullmatch(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@", header).groups()
        )
        start = first - 1 if ours else first
        result += lines[at:start]
        assert len(result) == (new_first - 1 if theirs else new_first)
        assert sum(line[0] != "+" for line in body) == ours
        assert sum(line[0] != "-" for line in body) == theirs
        at = start
        for line in body:
            if line[0] != "+":
                assert lines[at] == line[1:]
                at += 1
            if line[0] != "-":
                result.append(line[1:])
    return "".join(f"{line}\n" for line in result + lines[at:])


@given(LINES, LINES)
@settings(deadline=None)
def test_a_patch_made_of_the_hunks_gives_the_new_content(old: str, new: str) -> None:
    display = diff_display("f", old.encode(), whole_change(old.encode(), new.encode()))

    assert patched(old, display.hunks) == new
    assert display.added - display.removed == new.count("\n") - old.count("\n")


@given(LINES, st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["", "x", "y\nz", "\n"]))))
@settings(deadline=None)
def test_many_changes_of_one_file_give_hunks_in_order(
    old: str, places: list[tuple[int, str]]
) -> None:
    data = old.encode()
    changes: list[Change] = []
    for start, text in sorted(places):
        free = changes[-1].end if changes else 0
        if free <= start < len(data) - 1:  # the last newline stays: no file without one here
            changes.append(Change(start, start + 1, text.encode()))
    new = data
    for change in reversed(changes):
        new = new[: change.start] + change.text + new[change.end :]

    assert patched(old, diff_display("f", data, changes).hunks) == new.decode()


def test_equal_contents_have_no_change() -> None:
    assert whole_change(b"a\n", b"a\n") == []
    assert diff_display("f", b"a\n", []).hunks == ""


def test_a_new_file_is_all_added() -> None:
    display = diff_display("f", b"", whole_change(b"", b"a\nb\n"))

    assert (display.hunks, display.added, display.removed) == ("@@ -0,0 +1,2 @@\n+a\n+b", 2, 0)


def test_a_great_many_changes_are_counted_and_not_all_shown() -> None:
    old = b"x\n" * 10 * 5000
    changes = [Change(20 * n, 20 * n + 1, b"y") for n in range(5000)]
    display = diff_display("f", old, changes)

    assert (display.added, display.removed) == (5000, 5000)
    assert len(display.hunks) < HUNK_CHARS_MAX + 100
    assert display.hunks.endswith(LEFT_OUT)


def test_a_long_line_is_cut() -> None:
    display = diff_display("f", b"a" * 10_000, [Change(0, 1, b"b")])

    assert display.hunks == "@@ -1,1 +1,1 @@\n-" + "a" * 400 + "…\n+b" + "a" * 399 + "…"
