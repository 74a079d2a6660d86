"""Microseconds that the gate takes for one call: 256 rules, a label of 10 KB, `decide` and `judge`.

`python benchmarks/gate.py` prints medians of alternating rounds, beside one regular expression a
rule, which is how patterns are matched without this. Nothing but the last rule matches, so that
all are tried. It fails when the median is over the bar, or when a pattern full of `*` takes more
than its share of a longer label.
"""

import argparse
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ipc.ids import ApprovalId, CallId
from ipc.rules import RULES_MAX, Rule, matches
from workers.permissions.gate import Question, identify, judge, operation_fingerprint
from workers.permissions.match import decide

BAR_US = 100.0
BAR_GROWTH = 4.0  # of the time for a label twice as long; 2 is linear
LABEL_CHARS = 10_240
STARS = 2_000
WORKSPACE = "/home/somebody/project"
INSIDE = ("*rm -rf*", "*sudo *", "*--force*", "*| sh*")  # each of them reads the whole label


def policy() -> tuple[Rule, ...]:
    """As many rules as a document may have, all for one action, in likely proportions."""
    patterns = ["*", *INSIDE]
    patterns += [f"*.{suffix:02}" for suffix in range(12)]
    patterns += [f"make target-{number:02}" for number in range(40)]
    patterns += [f"tool-{number:03} run *" for number in range(RULES_MAX - len(patterns))]
    return tuple(Rule(action="bash", resource=text, effect="ask") for text in patterns)


def label() -> str:
    """A command that writes a file: text of the kind that models put into one."""
    text = Path(__file__).read_text(encoding="utf-8").replace("rm -rf", "").replace("sudo", "")
    command = "cat > gate.py <<'END'\n" + "".join(
        line
        for line in (text * 9).splitlines(keepends=True)
        if not any(rule.matches(line) for rule in policy()[1:])
    )
    return command[: LABEL_CHARS - 4] + "\nEND"


class Gate:
    """One prepared call before the rules, in two ways."""

    def __init__(self) -> None:
        self.rules, self.label = policy(), label()
        self.operation = identify("bash", "bash", {"command": self.label}, self.label, WORKSPACE)
        self.fingerprint = operation_fingerprint(self.operation)
        self.shapes = [
            re.compile(
                "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in rule.resource),
                re.DOTALL,
            )
            for rule in self.rules
        ]
        decided = decide(self.rules, (), "bash", self.label, WORKSPACE)
        assert decided.rule == self.rules[0], decided
        assert self.plain() == 1

    def ours(self) -> None:
        """Decide and judge."""
        decision = decide(self.rules, (), "bash", self.label, WORKSPACE)
        judge(
            Question(
                approval_id=ApprovalId("q"),
                call_id=CallId("c"),
                operation=self.operation,
                fingerprint=self.fingerprint,
                decision=decision,
            ),
            mode="auto_approve",
            attended=True,
            asked_before=0,
        )

    def plain(self) -> int:
        """How many of the rules match, by their regular expressions alone."""
        return sum(shape.fullmatch(self.label) is not None for shape in self.shapes)

    def prepare(self) -> None:
        """What comes before the gate: the identity of the call and its fingerprint."""
        made = identify("bash", "bash", {"command": self.label}, self.label, WORKSPACE)
        operation_fingerprint(made)


def us(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e6


def median(rounds: int, *works: Callable[[], object]) -> list[float]:
    """Medians, alternating, so that a busy machine hurts all of them."""
    found = [[us(work) for work in works] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*found, strict=True)]


def growth(pattern: str, rounds: int) -> float:
    """How much longer a label twice as long takes."""
    short, long = ("a" * (LABEL_CHARS * times) for times in (1, 2))
    one, two = median(rounds, lambda: matches(pattern, short), lambda: matches(pattern, long))
    print(f"{pattern[:6]}... of {len(pattern):,}: {one:.0f} us, twice the label {two:.0f} us")
    return two / one


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("rounds", type=int, nargs="?", default=1000)
    rounds = asked.parse_args().rounds
    gate = Gate()
    inside = tuple(
        Rule(action="bash", resource=f"*never-{number:03}*", effect="deny")
        for number in range(RULES_MAX)
    )
    ours, plain, prepared, worst = median(
        rounds,
        gate.ours,
        gate.plain,
        gate.prepare,
        lambda: decide(inside, (), "bash", gate.label, WORKSPACE),
    )
    print(f"regular expressions: {plain:.0f} us")
    print(f"identity and fingerprint, before the gate: {prepared:.0f} us")
    print(f"{RULES_MAX} rules that all look inside: {worst:.0f} us, {worst / RULES_MAX:.1f} each")
    full = ("*a" * (STARS - 1) + "*b*", "*" + "a?" * (STARS // 2) + "b*")  # all but the b is there
    grown = max(growth(pattern, max(rounds // 50, 5)) for pattern in full)
    print(
        f"gate, {RULES_MAX} rules, {len(gate.label):,} characters: {ours:.0f} us "
        f"(bar {BAR_US:.0f}), {ours / plain:.2f} of the regular expressions"
    )
    return 0 if ours <= BAR_US and grown <= BAR_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
