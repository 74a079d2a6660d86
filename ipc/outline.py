"""YAML read as an outline: values that know their line, and none of YAML's surprises.

Anchors, aliases, tags and duplicate keys are refused, so that a small file can't stand for a huge
or ambiguous one. Plain words follow YAML 1.2: only true, false, null and numbers are not text, so
`no` and `12:30` stay what they say.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, Final, cast

import yaml

from ipc.faults import Fault

BYTES_MAX: Final = 1 << 20  # of one document
DEPTH_MAX: Final = 32  # lists and mappings inside each other
NODES_MAX: Final = 100_000  # values of one document
DIGITS_MAX: Final = 18  # of a whole number: fits 64 bits on every peer

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_WHOLE = re.compile(r"[-+]?[0-9]+\Z")
_DECIMAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")


class Misread(Fault):
    """A document that is not what its reader expects; `line` counts from 1."""

    code = "bad_outline"

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(line=line, problem=problem)
        self.line = line
        self.problem = problem


class Node:
    """One value of a document: a scalar, a list of nodes, or a mapping of names to nodes.

    `line` is where a reader looks for it, from 1: for the value of a mapping, the line of its key.
    """

    __slots__ = ("line", "value")

    def __init__(self, line: int, value: Any) -> None:
        self.line = line
        self.value: str | int | float | bool | list[Node] | dict[str, Node] | None = value

    def plain(self) -> Any:
        """The value without its lines, as JSON would have it."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def kind(self) -> str:
        """What the value is, in a word for people."""
        match self.value:
            case dict():
                return "a mapping"
            case list():
                return "a list"
            case str():
                return "text"
            case bool():
                return "true" if self.value else "false"
            case None:
                return "nothing"
            case _:
                return "a number"


def read_outline(text: str) -> Node:
    """Read one document; raises Misread."""
    if len(text) > BYTES_MAX or len(text.encode("utf-8", "surrogatepass")) > BYTES_MAX:
        raise Misread(1, f"expected at most {BYTES_MAX} bytes")
    try:
        return _Reader(yaml.parse(text, Loader=_LOADER)).document()
    except yaml.MarkedYAMLError as bad:
        mark = bad.problem_mark or bad.context_mark
        words = ", ".join(part for part in (bad.context, bad.problem) if part)
        raise Misread(mark.line + 1 if mark else 1, f"not YAML: {words}") from None
    except yaml.reader.ReaderError as bad:
        line = text.count("\n", 0, bad.position) + 1
        raise Misread(line, f"not YAML: {bad.reason}") from None


class _Reader:
    """Builds nodes from parser events; what an outline may not hold is refused on sight."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._nodes = 0
        self._depth = 0

    def document(self) -> Node:
        self._next()  # the start of the stream
        if isinstance(first := self._next(), yaml.StreamEndEvent):
            return Node(_line(first), None)
        root = self._node(self._next())
        self._next()  # the end of the document
        if not isinstance(more := self._next(), yaml.StreamEndEvent):
            raise Misread(_line(more), "expected one document, here a second one starts")
        return root

    def _next(self) -> Any:
        return next(self._events)

    def _node(self, event: Any) -> Node:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise Misread(_line(event), f"expected at most {NODES_MAX} values")
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise Misread(_line(event), "anchors (&) and aliases (*) are not read here")
        if event.tag is not None:
            raise Misread(_line(event), f"tags are not read here, found {event.tag}")
        if isinstance(event, yaml.ScalarEvent):
            return Node(_line(event), _scalar(event) if event.implicit[0] else event.value)
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise Misread(_line(event), f"expected at most {DEPTH_MAX} levels")
        many = isinstance(event, yaml.SequenceStartEvent)
        node = Node(_line(event), self._list() if many else self._mapping())
        self._depth -= 1
        return node

    def _list(self) -> list[Node]:
        nodes: list[Node] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            nodes.append(self._node(event))
        return nodes

    def _mapping(self) -> dict[str, Node]:
        nodes: dict[str, Node] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise Misread(_line(event), "expected a name before the colon")
            self._node(event)  # for its refusals only: a name is taken as it is written
            if event.value in nodes:
                raise Misread(_line(event), f"{event.value!r} is given twice")
            node = self._node(self._next())
            node.line = _line(event)
            nodes[event.value] = node
        return nodes


def _line(event: Any) -> int:
    return cast("int", event.start_mark.line) + 1


def _scalar(event: Any) -> str | int | float | bool | None:
    text: str = event.value
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _WHOLE.match(text):
        if len(text.lstrip("+-")) > DIGITS_MAX:
            raise Misread(_line(event), f"a number of at most {DIGITS_MAX} digits, else quote it")
        return int(text)
    if _DECIMAL.match(text):
        number = float(text)
        if math.isinf(number):
            raise Misread(_line(event), f"{text} is too large for a number, quote it")
        return number
    return text
