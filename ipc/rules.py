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
    inside it.
    """
    shape = shape_of(pattern, workspace)
    return shape.covers(rooted(label, workspace) if shape.rooted else label)


def specificity(pattern: str, workspace: str | None = None) -> tuple[int, int]:
    """How exact a pattern is: (literal characters, minus wildcards); the greater one wins."""
    return shape_of(pattern, workspace).specificity


def rooted(label: str | None, workspace: str | None) -> str | None:
    """A path label from the root, as patterns with `${workspace_dir}` want it; None: no path."""
    if label is None or workspace is None or label.startswith(_UNROOTED):
        return None
    return label if label.startswith("/") else f"{workspace}/{label}"


# --- patterns made ready --------------------------------------------------------------------------


class Shape:
    """A pattern made ready for many labels; the time for one is linear in its length.

    Between two `*` stands a piece of fixed length, and the leftmost place for it leaves most for
    the others: there is nothing to come back to, however many `*` there are.
    """

    __slots__ = (
        "_first", "_last", "_least", "_middle", "_plain", "_starred", "_tail",
        "bare", "head", "rooted", "specificity",
    )  # fmt: skip

    def __init__(self, pattern: str, workspace: str | None) -> None:
        pieces = _pieces(pattern, workspace)
        literal = sum(len(piece.text) for piece in pieces)
        singles = sum(piece.length for piece in pieces) - literal
        self.bare = pattern == "*"  # the one that also covers a call without a label
        self.rooted = workspace is not None and WORKSPACE in pattern
        self.specificity = (literal, 1 - len(pieces) - singles)
        self._first, self._last = pieces[0], pieces[-1]
        self._middle = tuple(piece for piece in pieces[1:-1] if piece.length)
        self.head, self._tail = self._first.head, self._last.tail  # up to the nearest wildcard
        self._least = literal + singles
        self._starred = len(pieces) > 1
        self._plain = not singles and not self._middle  # then its two ends say it all

    def covers(self, label: str | None) -> bool:
        """Whether it means this label, which has to be `rooted` if the shape is."""
        if label is None:
            return self.bare
        # Nearly every label is refused here; what follows is slower.
        if not label.startswith(self.head) or not label.endswith(self._tail):
            return False
        if self._starred:
            return len(label) >= self._least and (self._plain or self._fits(label))
        return len(label) == self._least and self._first.at(label, 0)

    def _fits(self, label: str) -> bool:
        end = len(label) - self._last.length
        if not self._first.at(label, 0) or not self._last.at(label, end):
            return False
        position = self._first.length
        for piece in self._middle:
            found = piece.find(label, position, end)
            if found < 0:
                return False
            position = found + piece.length
        return True


class _Piece:
    """The text between two `*`: literal characters, with a `?` (None) here and there."""

    __slots__ = ("gapped", "head", "length", "tail", "text")

    def __init__(self, parts: list[str | None]) -> None:
        literal = [part for part in parts if part is not None]
        self.text = "".join(literal)
        self.length = len(self.text) + len(parts) - len(literal)
        self.head = self.tail = self.text  # before the first `?`, after the last one
        self.gapped: re.Pattern[str] | None = None
        if len(literal) != len(parts):
            gap = parts.index(None)
            self.head = "".join(literal[:gap])
            self.tail = "".join(literal[len(literal) - parts[::-1].index(None) :])
            shape = "".join("." if part is None else re.escape(part) for part in parts)
            self.gapped = re.compile(shape, re.DOTALL)

    def at(self, label: str, position: int) -> bool:
        if self.gapped is None:
            return label.startswith(self.text, position)
        return self.gapped.match(label, position) is not None

    def find(self, label: str, start: int, end: int) -> int:
        if self.gapped is None:
            return label.find(self.text, start, end)
        found = self.gapped.search(label, start, end)
        return -1 if found is None else found.start()


@lru_cache(maxsize=1024)
def shape_of(pattern: str, workspace: str | None = None) -> Shape:
    """The shape of a pattern; `workspace` as for `matches`."""
    return Shape(pattern, workspace)


def _pieces(pattern: str, workspace: str | None) -> list[_Piece]:
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
    return [_Piece(parts) for parts in pieces]
