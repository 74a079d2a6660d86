"""The warning of a circle: what counts as one, and that it never changes what was said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.run.loops import BLOCK_CALLS_MAX, REPEATS_MIN, Circles, Outcome, reminders


def calls(*turns: str) -> list[Outcome]:
    """A letter is a call, another case another result, "!" before it a failure."""
    made = []
    for number, letters in enumerate(turns, 1):
        for place, letter in enumerate(letters):
            if letter != "!":
                failed = place > 0 and letters[place - 1] == "!"
                made.append(Outcome(number, letter.lower(), "{}", letter, not failed))
    return made


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        ("", []),
        ("a a", []),
        ("a a a", [2]),
        ("a a a a", [2]),
        (" ".join("a" * 13), [2, 5, 11]),  # again at each doubling
        ("a a b a a", []),
        ("a b a b a b", [5]),
        ("a b a b a b a", [5]),
        ("a b a b a b a b", [5]),
        ("ab ab ab", [5]),
        ("a ba ba b", [5]),
        ("b a a a", [3]),
        ("abcdefgh abcdefgh abcdefgh", [23]),
        ("abcdefghi abcdefghi abcdefghi", []),
        ("aaa", [2]),
        ("aaab", [3]),  # a turn is answered as a whole, in its last success
        ("a a A", []),  # another result is progress
        ("a a A a a", []),
        ("!a !a !a", []),  # no success to append it to
        ("!ab !ab !ab", [5]),
        ("b!a b!a b!a", [4]),
        ("a !b a !b a !b", []),  # the success is of a turn that was sent already
        ("a !b a !b a !b a", []),
    ],
)
def test_three_repeats_of_a_block_are_a_circle(turns: str, told: list[int]) -> None:
    assert sorted(reminders(calls(*turns.split()))) == told


def test_other_arguments_are_another_call() -> None:
    made = [Outcome(turn, "read", f'{{"page":{turn}}}', "same") for turn in range(1, 9)]
    assert reminders(made) == set()


def test_what_a_person_asks_for_again_is_no_circle() -> None:
    circles = Circles()
    for _ in range(3):
        assert [circles.turn(calls("a")), circles.turn(calls("a"))] == [None, None]
        circles.spoken()
    assert [circles.turn(calls("a")) for _ in range(4)] == [None, None, 0, None]


TURNS = st.lists(st.text("abAB!", min_size=1, max_size=5), max_size=14)


@given(TURNS, st.integers(0, 14))
def test_what_was_said_before_stays_as_it_was(turns: list[str], end: int) -> None:
    whole, begun = calls(*turns), calls(*turns[:end])
    assert reminders(begun) == {place for place in reminders(whole) if place < len(begun)}


@given(TURNS)
def test_a_reminder_stands_in_a_success_of_a_turn_that_ends_a_circle(turns: list[str]) -> None:
    made = calls(*turns)
    words = [(one.name, one.arguments, one.output, one.succeeded) for one in made]

    def circles_at(place: int) -> bool:
        seen = words[: place + 1]
        return any(
            len(seen) >= REPEATS_MIN * size and seen[-REPEATS_MIN * size :] == seen[-size:] * 3
            for size in range(1, BLOCK_CALLS_MAX + 1)
        )

    for place in reminders(made):
        same_turn = [n for n, one in enumerate(made) if one.turn == made[place].turn]
        assert made[place].succeeded
        assert not any(made[n].succeeded for n in same_turn if n > place)
        assert any(circles_at(n) for n in same_turn)
    # And the first time round is never missed where there is a success to say it in.
    for number in {one.turn for one in made}:
        places = [n for n, one in enumerate(made) if one.turn == number]
        first = any(circles_at(n) for n in places)
        earlier = any(circles_at(n) for n in range(places[0]))
        if first and not earlier and any(made[n].succeeded for n in places):
            assert reminders(made) & set(places)
