"""Permission words: action, effect, rule, mode, and the wildcard match of a pattern and a label."""

import re
from functools import lru_cache
from typing import Final, Literal, get_args

from msgspec import Struct

from ipc.faults import Fault

Action = Literal[
    "read", "write", "bash", "delegate", "message", "mcp", "plugin", "skill", "webfetch"
]
Effect = Literal["allow", "ask", "deny"]
PermissionMode = Literal["auto_approve", "auto_approve_n", "auto_approve_y", "ask", "yolo"]

ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
EFFECTS: Final[tuple[Effect, ...]] = get_args(Effect)
MODES: Final[tuple[PermissionMode, ...]] = get_args(PermissionMode)

RULES_MAX: Final = 256  # rules of one document (spec 1.9)
PATTERN_CHARS_MAX: Final = 4096
WORKSPACE: Final = "${workspace_dir}"

_PATH_ACTIONS = frozenset({"read", "write"})
_FORBIDDEN = frozenset("\\[]{}")
_UNROOTED = ("artifact://", "goal:")  # labels of path actions that are no paths


class BadPattern(Fault):
    """A pattern that a rule may not have."""

    code = "bad_pattern"


class BadMode(Fault):
    """A text that names no permission mode."""

    code = "bad_permission_mode"


class Rule(Struct, frozen=True, kw_only=True):
    """One line of a policy: what happens to calls of `action` whose label matches `resource`."""

    action: Action
    resource: str
    effect: Effect

    def matches(self, label: str | None, workspace: str | None = None) -> bool:
        """Whether this rule speaks about a label of its own action."""
        return matches(self.resource, label, workspace)


def parse_mode(text: str) -> PermissionMode:
    """Read a mode; hyphens and underscores are the same (spec 1.1). Raises BadMode."""
    wanted = text.replace("-", "_")
    for mode in MODES:
        if mode == wanted:
            return mode
    raise BadMode(text=ascii(text[:80]), known=", ".join(MODES))


def check_pattern(action: Action, pattern: str) -> str:
    """The pattern, if a rule of `action` may have it (spec 1.9); raises BadPattern."""
    if not pattern:
        raise BadPattern(reason="a pattern may not be empty", action=action)
    if len(pattern) > PATTERN_CHARS_MAX:
        raise BadPattern(reason=f"longer than {PATTERN_CHARS_MAX} characters", action=action)
    plain = pattern.replace(WORKSPACE, "")
    if plain != pattern and action not in _PATH_ACTIONS:
        reason = f"{WORKSPACE} is for read and write only"
        raise BadPattern(reason=reason, action=action, pattern=ascii(pattern[:80]))
    for char in plain:
        if char in _FORBIDDEN or not char.isprintable():
            reason = f"the character {char!a} is not allowed"
            raise BadPattern(reason=reason, action=action, pattern=ascii(pattern[:80]))
    return pattern


def matches(pattern: str, label: str | None, workspace: str | None = None) -> bool:
    """Whether a pattern covers a label: `*` is any text, `/` included, `?` any one character.

    A call without a label is covered by `*` alone. `${workspace_dir}` stands for `workspace`,
    character by character even where that holds a `*`; a relative path label is then taken
    inside it. The time is linear in the label for a given pattern.
    """
    if label is None or pattern == "*":
        return pattern == "*"
    rooted = workspace is not None and WORKSPACE in pattern
    if rooted:
        if label.startswith(_UNROOTED):
            return False
        if not label.startswith("/"):
            label = f"{workspace}/{label}"
    return _covers(_pieces(pattern, workspace if rooted else None), label)


def specificity(pattern: str, workspace: str | None = None) -> tuple[int, int]:
    """How exact a pattern is: (literal characters, minus wildcards); the greater one wins."""
    wild = pattern.count("*") + pattern.count("?")
    literal = len(pattern) - wild
    if workspace is not None:
        literal += pattern.count(WORKSPACE) * (len(workspace) - len(WORKSPACE))
    return literal, -wild


def _covers(pieces: "tuple[_Piece, ...]", label: str) -> bool:
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return len(label) == first.length and first.at(label, 0)
    end = len(label) - last.length
    if end < first.length or not first.at(label, 0) or not last.at(label, end):
        return False
    position = first.length
    for piece in pieces[1:-1]:  # the leftmost place is the best: it leaves most for the others
        found = piece.find(label, position, end)
        if found < 0:
            return False
        position = found + piece.length
    return True


class _Piece:
    """The text between two `*`: of fixed length, so that there is nothing to backtrack into."""

    __slots__ = ("length", "shape", "text")

    def __init__(self, parts: list[str | None]) -> None:
        literal = [part for part in parts if part is not None]
        self.length = sum(len(part) for part in literal) + len(parts) - len(literal)
        self.text = "".join(literal)
        self.shape: re.Pattern[str] | None = None
        if len(literal) != len(parts):  # a None is a `?`
            self.shape = re.compile(
                "".join("." if part is None else re.escape(part) for part in parts), re.DOTALL
            )

    def at(self, label: str, position: int) -> bool:
        if self.shape is None:
            return label.startswith(self.text, position)
        return self.shape.match(label, position) is not None

    def find(self, label: str, start: int, end: int) -> int:
        if self.shape is None:
            return label.find(self.text, start, end)
        found = self.shape.search(label, start, end)
        return -1 if found is None else found.start()


@lru_cache(maxsize=4096)
def _pieces(pattern: str, workspace: str | None) -> tuple[_Piece, ...]:
    pieces: list[list[str | None]] = [[]]
    chunks = [pattern] if workspace is None else pattern.split(WORKSPACE)
    for number, chunk in enumerate(chunks):
        if number and workspace is not None:
            pieces[-1].append(workspace)
        for part in re.findall(r"[*?]|[^*?]+", chunk):
            if part == "*":
                pieces.append([])
            else:
                pieces[-1].append(None if part == "?" else part)
    return tuple(_Piece(parts) for parts in pieces)
