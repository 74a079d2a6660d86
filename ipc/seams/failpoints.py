"""Named failpoints: what `COOKIE_FP` asks to happen at a named place, and nothing without it.

`COOKIE_FP="name:nth:action[,name:nth:action...]"`. `nth` counts the visits of that name in this
process from 1; `*` is every visit, `n+` every visit from the n-th on. Actions: `kill` and `stop`
(SIGKILL, SIGSTOP to this process), `exit=CODE` (no clean-up), `raise`, `eio`, `enospc`, `edquot`
(an OSError), `short=N` (a write passes on N bytes only), `sleep=SECONDS` (blocks the thread),
`mark=PATH` (appends "name monotonic_ns" to PATH; no comma in PATH).

A call site writes `if ARMED: hit("name")`, so that an unarmed process pays one test of a constant.
"""

import errno
import itertools
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, NoReturn

VARIABLE: Final = "COOKIE_FP"
SETUP_EXIT: Final = 5  # spec 1.1: the environment is unusable

_NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*\Z")
_ERRNO: Final = {"eio": errno.EIO, "enospc": errno.ENOSPC, "edquot": errno.EDQUOT}
_PLAIN: Final = frozenset({"kill", "stop", "raise", *_ERRNO})


class FailpointHit(RuntimeError):
    """What the action `raise` raises: a fault that no code expects."""


class BadFailpoint(ValueError):
    """A `COOKIE_FP` that can't be read; the message says which part and why."""


class Rule(NamedTuple):
    """One entry: at visits `first..last` of `name` (`last` 0 = no end), do `action`."""

    name: str
    first: int
    last: int
    action: str
    argument: str = ""

    def matches(self, visit: int) -> bool:
        """Whether the `visit`-th visit (from 1) is one of this rule's."""
        return visit >= self.first and (not self.last or visit <= self.last)


def parse(text: str) -> tuple[Rule, ...]:
    """Read a `COOKIE_FP`; raises BadFailpoint."""
    return tuple(_parse_one(entry) for entry in text.split(",") if entry.strip())


def _parse_one(entry: str) -> Rule:
    parts = entry.strip().split(":", 2)
    if len(parts) != len(("name", "nth", "action")):
        raise BadFailpoint(f"{entry!r} is not name:nth:action")
    name, nth, action = parts
    if not _NAME.match(name):
        raise BadFailpoint(f"{name!r} is not a failpoint name")
    first, last = _parse_nth(nth)
    word, _, argument = action.partition("=")
    _check_action(word, argument, has_argument="=" in action)
    return Rule(name, first, last, word, argument)


def _parse_nth(nth: str) -> tuple[int, int]:
    if nth == "*":
        return 1, 0
    digits = nth.removesuffix("+")
    if not digits.isdecimal() or int(digits) < 1:
        raise BadFailpoint(f"{nth!r} is not a visit: use 1, 2, ..., 3+ or *")
    return int(digits), 0 if nth.endswith("+") else int(digits)


def _check_action(word: str, argument: str, *, has_argument: bool) -> None:
    if word in _PLAIN and not has_argument:
        return
    try:
        good = {
            "exit": lambda: 0 <= int(argument) <= 255,  # noqa: PLR2004 - what _exit can say
            "short": lambda: int(argument) >= 0,
            "sleep": lambda: 0 <= float(argument) < float("inf"),
            "mark": lambda: bool(argument) and "\0" not in argument,
        }[word]()
    except (KeyError, ValueError):
        good = False
    if not good:
        raise BadFailpoint(f"{word + ('=' + argument if has_argument else '')!r} is not an action")


class Failpoints:
    """The rules of one process and how often each name was visited; safe from any thread."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._rules: dict[str, list[Rule]] = {}
        for rule in rules:
            self._rules.setdefault(rule.name, []).append(rule)
        # next() of a count is one step under the interpreter lock; `n += 1` is not.
        self._visits: dict[str, Iterator[int]] = {name: itertools.count(1) for name in self._rules}

    def hit(self, name: str) -> int | None:
        """Visit `name` and do what is asked; a `short` write's byte count, else None."""
        rules = self._rules.get(name)
        if rules is None:
            return None
        visit = next(self._visits[name])
        short: int | None = None
        for rule in rules:
            if rule.matches(visit):
                answer = _ACTIONS[rule.action](rule)
                short = answer if answer is not None else short
        return short


def _signal(number: signal.Signals) -> Callable[[Rule], None]:
    def act(rule: Rule) -> None:
        os.kill(os.getpid(), number)

    return act


def _raise(rule: Rule) -> NoReturn:
    raise FailpointHit(rule.name)


def _os_error(rule: Rule) -> NoReturn:
    number = _ERRNO[rule.action]
    raise OSError(number, os.strerror(number), f"failpoint {rule.name}")


def _mark(rule: Rule) -> None:
    line = f"{rule.name} {time.monotonic_ns()}\n".encode()
    fd = os.open(rule.argument, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


_ACTIONS: Final[dict[str, Callable[[Rule], int | None]]] = {
    "kill": _signal(signal.SIGKILL),
    "stop": _signal(signal.SIGSTOP),
    "exit": lambda rule: os._exit(int(rule.argument)),
    "raise": _raise,
    "eio": _os_error,
    "enospc": _os_error,
    "edquot": _os_error,
    "short": lambda rule: int(rule.argument),
    "sleep": lambda rule: time.sleep(float(rule.argument)),
    "mark": _mark,
}


def _from_environment() -> tuple[Rule, ...]:
    # The one setting read here: it must act before any other room could pass it in.
    text = os.environ.get(VARIABLE, "")
    try:
        return parse(text)
    except BadFailpoint as bad:
        sys.stderr.write(f"cookie: {VARIABLE}: {bad}\n")
        sys.stderr.flush()
        sys.exit(SETUP_EXIT)


_RULES: Final = _from_environment()
ARMED: Final[bool] = bool(_RULES)
hit: Final = Failpoints(_RULES).hit
