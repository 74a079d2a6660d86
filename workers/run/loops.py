"""When a model goes round in a circle: the same calls with the same results, again and again."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from msgspec import Struct

BLOCK_CALLS_MAX: Final = 8  # of the calls that come again
REPEATS_MIN: Final = 3  # in a row, the first included
REMINDER: Final = """<system-reminder>
You have made the same calls with the same results three times in a row or more. Making them again \
will not change the result. Try something else, or say what keeps you from going on.
</system-reminder>"""


class Outcome(Struct, frozen=True):
    """One call and what it came to, as the log has it: before an output is elided."""

    turn: int  # `model_turn_seq` of the turn that asked for it
    name: str
    arguments: str
    output: str  # what the model is told, whether it went well or not
    succeeded: bool = True


class Circles:
    """Follows the calls of a session, a turn at a time; a call costs a few steps, however many."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str, bool], int] = {}
        self._calls: list[int] = []  # each by its number in `_known`
        self._alike = [0] * (BLOCK_CALLS_MAX + 1)  # how many in a row equal the one so far back

    def spoken(self) -> None:
        """A person said something: what comes now may be what they want again."""
        self._calls.clear()
        self._alike = [0] * (BLOCK_CALLS_MAX + 1)

    def turn(self, outcomes: Sequence[Outcome]) -> int | None:
        """Take the calls of the next turn; the place among them of the result to remind in.

        None when the turn ends no third, sixth, twelfth ... repeat of a block of 1 to 8 calls, and
        when none of its own results is a success: those of turns before it were sent already.
        """
        repeats = [self._ends_a_repeat(one) for one in outcomes]
        successes = [place for place, one in enumerate(outcomes) if one.succeeded]
        return successes[-1] if any(repeats) and successes else None

    def _ends_a_repeat(self, one: Outcome) -> bool:
        what = (one.name, one.arguments, one.output, one.succeeded)
        calls, alike = self._calls, self._alike
        calls.append(self._known.setdefault(what, len(self._known)))
        lengths = range(1, min(BLOCK_CALLS_MAX, len(calls) - 1) + 1)
        for length in lengths:
            alike[length] = alike[length] + 1 if calls[-1] == calls[-1 - length] else 0
        # The shortest block that goes round: a longer one is made of it.
        circle = next((n for n in lengths if alike[n] >= (REPEATS_MIN - 1) * n), 0)
        return circle > 0 and alike[circle] % circle == 0 and _is_told(alike[circle] // circle + 1)


def _is_told(repeats: int) -> bool:
    """Whether this repeat is one to remind at: the third, then at each doubling.

    Each reminder stays in the history for good. One at every repeat would grow a request twice as
    fast as the circle itself does, and say nothing that the model has not just read.
    """
    times, rest = divmod(repeats, REPEATS_MIN)
    return rest == 0 and times.bit_count() == 1


def reminders(outcomes: Iterable[Outcome]) -> set[int]:
    """The positions of the results that `REMINDER` is appended to.

    `outcomes` are calls between which nobody spoke, in the model's order. A later turn
    changes nothing of the answer, so what was said to the model before stays as it was.
    """
    circles, told, begun = Circles(), set[int](), 0
    for _, group in groupby(outcomes, key=lambda one: one.turn):
        turn = tuple(group)
        place = circles.turn(turn)
        if place is not None:
            told.add(begun + place)
        begun += len(turn)
    return told
