"""Reads scripts: YAML to turns and steps, or one line that says where and what is expected."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast, get_args

from ipc.content import FinishReason, Usage
from ipc.events import ModelErrorKind, ModelErrorStage
from ipc.faults import FACT_CHARS_MAX, Fault, clean
from ipc.outline import BYTES_MAX, Misread, Node, read_outline
from workers.providers.script import (
    ENDINGS,
    FAIL_MESSAGE,
    Call,
    Cut,
    Delay,
    Fail,
    Finish,
    Pattern,
    Report,
    Say,
    Script,
    Span,
    Stall,
    Step,
    Think,
    ToolWhen,
    Turn,
    When,
)

REPEAT_MAX: Final = 10_000_000  # times one step or turn may be repeated
SECONDS_MAX: Final = 86_400.0  # of one wait
COUNT_MAX: Final = 10**15  # of tokens, characters, milliseconds

_FROM = re.compile(r"([1-9][0-9]*)\+\Z")

T = TypeVar("T")
Read = Callable[[Node, str], T]


class BadScript(Fault):
    """A script that can't be read; the message is one line: file, line, what is expected."""

    code = "bad_script"

    def __init__(self, file: str, line: int, problem: str) -> None:
        super().__init__(file=file, line=line, problem=problem)
        self.args = (clean(f"{file}:{line}: {problem}", FACT_CHARS_MAX),)


def load_script(path: str) -> Script:
    """Read a script from a file; raises BadScript, also when there is no such file."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except (OSError, ValueError) as failed:  # ValueError: a NUL in the path
        why = failed.strerror if isinstance(failed, OSError) else "not a path"
        raise BadScript(path, 1, f"can't read the script: {why}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as bad:
        raise BadScript(path, data.count(b"\n", 0, bad.start) + 1, "expected UTF-8") from None
    return parse_script(text, path)


def parse_script(text: str, name: str = "script") -> Script:
    """Read a script; `name` is what errors call it. Raises BadScript."""
    try:
        return Script(_turns(read_outline(text)), name)
    except Misread as bad:
        raise BadScript(name, bad.line, bad.problem) from None


# --- turns -------------------------------------------------------------------------------------


def _turns(document: Node) -> tuple[Turn, ...]:
    nodes = _list(document, "a list of turns")
    if not nodes:
        raise Misread(document.line, "expected at least one turn")
    turns = tuple(_turn(node) for node in nodes)
    _check_reach(turns, nodes)
    return turns


def _turn(node: Node) -> Turn:
    if isinstance(node.value, list):
        return Turn(_steps(node, "steps"))
    if not isinstance(node.value, dict) or "steps" not in node.value:
        if isinstance(node.value, dict) and "when" in node.value:
            raise Misread(node.line, "a turn with 'when' needs 'steps'")
        return Turn((_step(node),))
    fields = _Fields(node, "a turn")
    when = fields.take("when", _when, None)
    turn = Turn(fields.need("steps", _steps), when, fields.take("repeat", _repeat, 1))
    fields.done()
    if when is not None and turn.repeat > 1:
        raise Misread(node.line, "a turn with 'when' answers each time it fits: it has no 'repeat'")
    return turn


def _check_reach(turns: tuple[Turn, ...], nodes: list[Node]) -> None:
    """A turn that always fits hides those without a condition, and all that come after it."""
    always = next((n for n, turn in enumerate(turns) if turn.when == When()), None)
    for number, (turn, node) in enumerate(zip(turns, nodes, strict=True)):
        if always is not None and (number > always or turn.when is None):
            line = nodes[always].line
            raise Misread(node.line, f"never reached: the turn of line {line} fits everything")


def _steps(node: Node, what: str) -> tuple[Step, ...]:
    nodes = _list(node, f"{what} as a list")
    steps = tuple(_step(step) for step in nodes)
    for step, after in zip(steps, nodes[1:], strict=False):
        if isinstance(step, ENDINGS):
            word = type(step).__name__.lower().replace("fail", "error")
            raise Misread(after.line, f"nothing can follow {word!r}: it ends the turn")
    return steps


def _step(node: Node) -> Step:
    if isinstance(node.value, str) and node.value in _BARE:
        return _BARE[node.value]
    verbs = ", ".join(_VERBS)
    if not isinstance(node.value, dict):
        found = repr(node.value) if isinstance(node.value, str) else node.kind()
        raise Misread(node.line, f"expected a step, one of {verbs}; found {found}")
    here = [name for name in node.value if name in _VERBS]
    if not here:
        found = ", ".join(map(repr, node.value)) or "nothing"
        raise Misread(node.line, f"expected a step, one of {verbs}; found {found}")
    if len(here) > 1:
        raise Misread(node.line, f"a step does one thing, found {' and '.join(here)}")
    fields = _Fields(node, f"the step {here[0]!r}")
    step = _VERBS[here[0]](fields)
    fields.done()
    return step


# --- steps -------------------------------------------------------------------------------------


def _say(fields: "_Fields") -> Say:
    text = fields.need("say", _texts)
    return Say(text, *_pieces(fields, text))


def _think(fields: "_Fields") -> Think:
    text = fields.need("think", _texts)
    return Think(text, *_pieces(fields, text), fields.take("signature", _text, None))


def _pieces(fields: "_Fields", text: str | tuple[str, ...]) -> tuple[int, int, float, int]:
    chars, chunks = fields.take("chars", _whole, 0), fields.take("chunks", _whole, 0)
    if (chars > 0) + (chunks > 0) + isinstance(text, tuple) > 1:
        raise Misread(fields.line, "cut a text in one way: chars, chunks, or a list of pieces")
    return chars, chunks, fields.take("every", _seconds, 0.0), fields.take("repeat", _repeat, 1)


def _call(fields: "_Fields") -> Call:
    repeat = fields.take("repeat", _repeat, 1)
    return fields.need("call", lambda node, _: _called(node, repeat))


def _called(node: Node, repeat: int) -> Call:
    fields = _Fields(node, "call")
    name = fields.need("name", _text)
    args, raw = fields.take("args", _arguments, None), fields.take("raw", _text, None)
    if args is not None and raw is not None:
        raise Misread(node.line, "a call has 'args' or 'raw', not both")
    call = Call(name, args or {}, raw, fields.take("id", _text, None), repeat)
    fields.done()
    return call


def _error(fields: "_Fields") -> Fail:
    return fields.need("error", _failed)


def _failed(node: Node, what: str) -> Fail:
    if isinstance(node.value, str):
        return Fail(_kind(node, what))
    fields = _Fields(node, "error")
    fail = Fail(
        fields.need("kind", _kind),
        fields.take("message", _text, FAIL_MESSAGE),
        fields.take("stage", _stage, None),
        fields.take("retryable", _boolean, None),
        fields.take("http_status", _whole, None),
        fields.take("vendor_code", _text, None),
        fields.take("retry_after_ms", _whole, None),
        fields.take("response_body", _text, None),
    )
    fields.done()
    return fail


def _usage(node: Node, _: str) -> Usage:
    fields = _Fields(node, "usage")
    usage = Usage(**{name: fields.take(name, _whole, None) for name in Usage.__struct_fields__})
    fields.done()
    return usage


def _only(node: Node, what: str) -> None:
    if node.value not in (None, True):
        raise Misread(node.line, f"{what!r} takes nothing; write '{what}: true'")


def _stall(fields: "_Fields") -> Stall:
    fields.need("stall", _only)
    return Stall()


def _cut(fields: "_Fields") -> Cut:
    fields.need("cut", _only)
    return Cut()


_BARE: Final[dict[str, Step]] = {"stall": Stall(), "cut": Cut()}
_VERBS: Final[dict[str, Callable[["_Fields"], Step]]] = {
    "say": _say,
    "think": _think,
    "call": _call,
    "delay": lambda fields: Delay(fields.need("delay", _seconds)),
    "usage": lambda fields: Report(fields.need("usage", _usage)),
    "finish": lambda fields: Finish(fields.need("finish", _reason)),
    "error": _error,
    "stall": _stall,
    "cut": _cut,
}


# --- matchers ----------------------------------------------------------------------------------


def _when(node: Node, _: str) -> When:
    fields = _Fields(node, "when")
    when = When(
        turn=fields.take("turn", _span, None),
        round=fields.take("round", _span, None),
        attempt=fields.take("attempt", _span, None),
        user=fields.take("user", _pattern, None),
        assistant=fields.take("assistant", _pattern, None),
        tool=fields.take("tool", _tool_when, None),
        text=fields.take("text", _pattern, None),
        system=fields.take("system", _pattern, None),
        tools_include=fields.take("tools_include", _names, ()),
    )
    fields.done()
    return when


def _tool_when(node: Node, _: str) -> ToolWhen:
    if isinstance(node.value, str):
        return ToolWhen(name=node.value)
    fields = _Fields(node, "tool")
    tool = ToolWhen(
        name=fields.take("name", _text, None),
        args=fields.take("args", _pattern, None),
        output=fields.take("output", _pattern, None),
        error=fields.take("error", _boolean, None),
    )
    fields.done()
    return tool


def _span(node: Node, what: str) -> Span:
    if isinstance(node.value, str) and (found := _FROM.match(node.value)):
        return Span(first=int(found[1]))
    nodes = node.value if isinstance(node.value, list) else [node]
    numbers = tuple(_whole(each, what) for each in nodes)
    if not numbers or 0 in numbers:
        raise Misread(node.line, f"{what} counts from 1; write 1, [1, 3] or 2+")
    return Span(numbers)


def _pattern(node: Node, what: str) -> Pattern:
    text = _text(node, what)
    try:
        return Pattern.parse(text)
    except re.error as bad:
        raise Misread(node.line, f"{what} is no regular expression: {bad}") from None


# --- values ------------------------------------------------------------------------------------


class _Fields:
    """A mapping that is read field by field, and refuses what nobody asked for."""

    def __init__(self, node: Node, what: str) -> None:
        if not isinstance(node.value, dict):
            raise Misread(node.line, f"expected {what} as a mapping, found {node.kind()}")
        self.line = node.line
        self._what = what
        self._left = dict(node.value)
        self._known: list[str] = []

    def take(self, name: str, read: Read[T], default: T) -> T:
        """The field `name` as `read` understands it, or `default`."""
        self._known.append(name)
        node = self._left.pop(name, None)
        return default if node is None else read(node, name)

    def need(self, name: str, read: Read[T]) -> T:
        """The field `name`, which must be there."""
        if name not in self._left:
            raise Misread(self.line, f"{self._what} needs {name!r}")
        self._known.append(name)
        return read(self._left.pop(name), name)

    def done(self) -> None:
        """Refuse what is left."""
        for name, node in self._left.items():
            known = ", ".join(self._known)
            raise Misread(node.line, f"{self._what} has no {name!r}; it may have {known}")


def _list(node: Node, what: str) -> list[Node]:
    if not isinstance(node.value, list):
        raise Misread(node.line, f"expected {what}, found {node.kind()}")
    return node.value


def _text(node: Node, what: str) -> str:
    if not isinstance(node.value, str):
        hint = "" if isinstance(node.value, list | dict) or node.value is None else "; quote it"
        raise Misread(node.line, f"expected {what} as text, found {node.kind()}{hint}")
    return node.value


def _texts(node: Node, what: str) -> str | tuple[str, ...]:
    if isinstance(node.value, list):
        return tuple(_text(each, what) for each in node.value)
    return _text(node, what)


def _names(node: Node, what: str) -> tuple[str, ...]:
    texts = _texts(node, what)
    return texts if isinstance(texts, tuple) else (texts,)


def _whole(node: Node, what: str) -> int:
    value = node.value
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= COUNT_MAX:
        raise Misread(node.line, f"expected {what} as a whole number from 0, found {_shown(node)}")
    return value


def _repeat(node: Node, what: str) -> int:
    value = _whole(node, what)
    if not 1 <= value <= REPEAT_MAX:
        raise Misread(node.line, f"expected {what} from 1 to {REPEAT_MAX}, found {value}")
    return value


def _seconds(node: Node, what: str) -> float:
    value = node.value
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Misread(node.line, f"expected {what} in seconds, found {_shown(node)}")
    if not 0 <= value <= SECONDS_MAX:
        raise Misread(
            node.line, f"expected {what} from 0 to {SECONDS_MAX:g} seconds, found {value}"
        )
    return float(value)


def _boolean(node: Node, what: str) -> bool:
    if not isinstance(node.value, bool):
        raise Misread(node.line, f"expected {what} as true or false, found {_shown(node)}")
    return node.value


def _arguments(node: Node, what: str) -> dict[str, Any]:
    if not isinstance(node.value, dict):
        raise Misread(node.line, f"expected {what} as a mapping, found {node.kind()}; or use 'raw'")
    return cast("dict[str, Any]", node.plain())


def _kind(node: Node, what: str) -> ModelErrorKind:
    return cast("ModelErrorKind", _one_of(node, what, get_args(ModelErrorKind)))


def _stage(node: Node, what: str) -> ModelErrorStage:
    return cast("ModelErrorStage", _one_of(node, what, get_args(ModelErrorStage)))


def _reason(node: Node, what: str) -> FinishReason:
    return cast("FinishReason", _one_of(node, what, get_args(FinishReason)))


def _one_of(node: Node, what: str, known: tuple[str, ...]) -> str:
    if not isinstance(node.value, str) or node.value not in known:
        raise Misread(node.line, f"expected {what} to be one of {', '.join(known)}")
    return node.value


def _shown(node: Node) -> str:
    return node.kind() if isinstance(node.value, list | dict) else repr(node.value)
