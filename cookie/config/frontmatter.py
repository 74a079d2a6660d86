"""The text of one agent document to its rules, models and limits: a strict YAML head and a prompt.

Spec 1.10. Every error is one line, `path:line: key: what is wrong`, and a person who follows it has
a document that loads. A document may name tools and models that do not exist here (yet).
"""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, get_args

from cookie.config.documents import AgentDocument, BadDocument, Limits
from ipc.events.base import AgentMode, DocumentSource, FallbackEntry
from ipc.ids import AgentId, BadId, ModelKey, parse_agent_id, parse_model_key, parse_variant_name
from ipc.outline import Misread, Node, read_outline
from ipc.rules import (
    ACTIONS,
    EFFECTS,
    RULES_MAX,
    Action,
    BadPattern,
    Effect,
    Rule,
    check_pattern,
)

FILE_BYTES_MAX: Final = 256 << 10
HEAD_BYTES_MAX: Final = 128 << 10
BODY_BYTES_MAX: Final = 128 << 10
ENTRIES_MAX: Final = 256  # of one mapping or list
DEPTH_MAX: Final = 16
DESCRIPTION_BYTES_MAX: Final = 512
MODELS_MAX: Final = 256
LIMIT_MAX: Final = 2**53 - 1
FENCE: Final = "---"
PARENT_MODEL: Final = "${parent_model}"
INTERNAL_IDS: Final = frozenset({"approval", "compaction", "title"})
DEFAULT_ID: Final = "default"

_MODES: Final[tuple[AgentMode, ...]] = get_args(AgentMode)
_CACHES: Final = ("anthropic", "bedrock", "openai")
_KEYS: Final = ("description", "mode", "enabled", "models", "limits", "permissions", "agent_md")
# Keys that documents once had: what to do instead, so that nobody has to look it up.
_GONE: Final = {
    "schema": "documents have no schema any more; remove it",
    "version": "documents have no version; remove it",
    "tools": "tools follow from permissions; remove it and write the actions under permissions",
    "model_fallback": "the fallback chain is now the list under models; move its entries there",
}


def read_document(path: Path, source: DocumentSource) -> AgentDocument:
    """Read the document of the agent that the file's name names; raises BadDocument."""
    try:
        agent = parse_agent_id(path.stem)
    except BadId:
        reason = "the file's name is the agent's id: lower-case letters, digits and single hyphens"
        raise BadDocument(path, f"{reason}, at most 64") from None
    if agent == DEFAULT_ID:
        raise BadDocument(path, "the id `default` belongs to the built-in agent; name it otherwise")
    head, body, first_line = _split(path, _text(path))
    return _Reader(path, first_line).document(agent, source, head, body)


def rule_lines(path: Path) -> tuple[int, ...]:
    """The line that each rule of a document is on, in the order of its `permissions`.

    Raises BadDocument for one that changed into something else since it was read.
    """
    head, _, first = _split(path, _text(path))
    try:
        root = read_outline(head).value
    except Misread as bad:
        raise BadDocument(path, bad.problem, line=bad.line + first - 1) from None
    permissions = root.get("permissions") if isinstance(root, dict) else None
    actions = permissions.value if permissions is not None else None
    lines: list[int] = []
    for node in actions.values() if isinstance(actions, dict) else ():
        mapped = node.value
        lines += [one.line for one in (mapped.values() if isinstance(mapped, dict) else [node])]
    return tuple(line + first - 1 for line in lines)


# --- the file ----------------------------------------------------------------------------------


def _text(path: Path) -> str:
    data = read_bounded(path, FILE_BYTES_MAX)
    try:
        return data.decode()
    except UnicodeDecodeError as bad:
        line = data.count(b"\n", 0, bad.start) + 1
        raise BadDocument(path, "is not UTF-8 text", line=line) from None


def read_bounded(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit`; raises BadDocument, and never waits."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as no:
        raise BadDocument(path, f"can't be read: {os.strerror(no.errno or 0)}") from None
    data = b""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise BadDocument(path, "is no regular file")
        while len(data) <= limit and (chunk := os.read(fd, limit + 1 - len(data))):
            data += chunk
    except OSError as no:
        raise BadDocument(path, f"can't be read: {os.strerror(no.errno or 0)}") from None
    finally:
        os.close(fd)
    if len(data) > limit:
        raise BadDocument(path, f"is larger than {limit} bytes")
    return data


def _split(path: Path, text: str) -> tuple[str, str, int]:
    """Head, body, and the line of the file that the head's first line is."""
    lines = text.removeprefix("\ufeff").split("\n")
    if lines[0].rstrip() != FENCE:
        raise BadDocument(path, f"a document begins with a line {FENCE}, its head, {FENCE}", line=1)
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == FENCE:
            head, body = "\n".join(lines[1:number]), "\n".join(lines[number + 1 :]).strip()
            break
    else:
        raise BadDocument(path, f"the head has no end: a line {FENCE} is missing", line=1)
    if len(head.encode()) > HEAD_BYTES_MAX:
        raise BadDocument(path, f"the head is larger than {HEAD_BYTES_MAX} bytes", line=2)
    if not body:
        raise BadDocument(path, "there is no prompt below the head; write one", line=number + 1)
    if len(body.encode()) > BODY_BYTES_MAX:
        reason = f"the prompt is larger than {BODY_BYTES_MAX} bytes"
        raise BadDocument(path, reason, line=number + 2)
    return head, body, 2


# --- the head ----------------------------------------------------------------------------------


class _Reader:
    """Reads the head of one file; `first` is the line of the file its first line is."""

    def __init__(self, path: Path, first: int) -> None:
        self._path = path
        self._shift = first - 1

    def document(
        self, agent: AgentId, source: DocumentSource, head: str, body: str
    ) -> AgentDocument:
        try:
            root = read_outline(head)
        except Misread as bad:
            raise BadDocument(self._path, bad.problem, line=bad.line + self._shift) from None
        table = self._mapping(root, "")
        self._bounds(root, "", 0)
        for key, node in table.items():
            if key in _GONE:
                self._wrong(node, key, _GONE[key])
            if key not in _KEYS:
                self._wrong(node, key, f"there is no such key; the keys are {', '.join(_KEYS)}")
        for key in ("description", "mode", "enabled"):
            if key not in table:
                raise BadDocument(self._path, f"the key `{key}` is missing", line=2)
        mode = self._mode(table["mode"], agent)
        models = self._models(table.get("models"), mode)
        if mode == "primary" and not models:
            self._wrong(table.get("models") or table["mode"], "models", "a primary agent needs one")
        return AgentDocument(
            agent=agent,
            path=str(self._path),
            source=source,
            description=self._description(table["description"]),
            mode=mode,
            enabled=self._truth(table["enabled"], "enabled"),
            body=body,
            models=models,
            limits=self._limits(table.get("limits"), mode),
            permissions=self._permissions(table.get("permissions")),
            agent_md=self._agent_md(table.get("agent_md"), mode),
        )

    def _bounds(self, node: Node, key: str, depth: int) -> None:
        value = node.value
        if isinstance(value, str) and "${env:" in value:
            self._wrong(node, key, "${env:...} is not read in agent documents")
        if not isinstance(value, dict | list):
            return
        if depth >= DEPTH_MAX:
            self._wrong(node, key, f"is nested deeper than {DEPTH_MAX} levels")
        if len(value) > ENTRIES_MAX:
            self._wrong(node, key, f"has more than {ENTRIES_MAX} entries")
        items = (
            value.items() if isinstance(value, dict) else ((str(i), n) for i, n in enumerate(value))
        )
        for name, child in items:
            if name == "<<":
                self._wrong(child, key, "merge keys (<<) are not read here")
            if "${env:" in name:
                self._wrong(child, key, "${env:...} is not read in agent documents")
            self._bounds(child, f"{key}.{name}" if key else name, depth + 1)

    def _description(self, node: Node) -> str:
        text = self._str(node, "description")
        size = len(text.encode())
        if not 1 <= size <= DESCRIPTION_BYTES_MAX:
            self._wrong(node, "description", f"has {size} bytes; 1 to {DESCRIPTION_BYTES_MAX} fit")
        if not text.isprintable():
            self._wrong(node, "description", "holds a control character; write one plain line")
        return text

    def _mode(self, node: Node, agent: AgentId) -> AgentMode:
        text = self._str(node, "mode")
        for mode in _MODES:
            if mode == text:
                break
        else:
            self._wrong(node, "mode", f"is {text!r}; it is one of {', '.join(_MODES)}")
        if agent in INTERNAL_IDS and mode != "internal":
            self._wrong(node, "mode", f"the agent `{agent}` is an internal one: write internal")
        return mode

    def _models(self, node: Node | None, mode: AgentMode) -> tuple[FallbackEntry, ...]:
        if node is None or node.value is None:
            return ()
        entries = self._list(node, "models")
        if len(entries) > MODELS_MAX:
            self._wrong(node, "models", f"has more than {MODELS_MAX} entries")
        models: list[FallbackEntry] = []
        for number, entry in enumerate(entries):
            key = f"models.{number}"
            made = self._model(entry, key, mode)
            if made.model in {one.model for one in models}:
                self._wrong(entry, key, f"the model {made.model} is in the chain already")
            models.append(made)
        return tuple(models)

    def _model(self, node: Node, key: str, mode: AgentMode) -> FallbackEntry:
        table = self._table(node, key, ("model", "variant", "cache"))
        if "model" not in table:
            self._wrong(node, key, "names no model; write { model: provider/model }")
        text = self._str(table["model"], f"{key}.model")
        variant_node = table.get("variant")
        variant = None
        if variant_node is not None and variant_node.value is not None:
            variant = self._parsed(variant_node, f"{key}.variant", parse_variant_name)
        if text == PARENT_MODEL:
            if mode != "internal":
                self._wrong(node, key, f"{PARENT_MODEL} is for internal agents only")
            if variant is not None:
                self._wrong(node, key, f"{PARENT_MODEL} takes no variant")
        else:
            self._parsed(table["model"], f"{key}.model", parse_model_key)
        cache = table.get("cache")
        return FallbackEntry(
            model=ModelKey(text),  # or the one expression
            variant=variant,
            cache=None if cache is None else self._cache(cache, f"{key}.cache"),
        )

    def _cache(self, node: Node, key: str) -> dict[str, Any]:
        table = self._table(node, key, _CACHES)
        if len(table) > 1:
            self._wrong(node, key, f"takes one of {', '.join(_CACHES)}")
        plain: dict[str, Any] = node.plain()
        for family, told in plain.items():
            self._check_cache(node, f"{key}.{family}", family, told)
        return plain

    def _check_cache(self, node: Node, key: str, family: Any, told: object) -> None:
        import msgspec  # noqa: PLC0415 - few documents say anything about a cache

        from cookie.config import provider_parts  # noqa: PLC0415

        if not isinstance(told, dict):
            self._wrong(node, key, "takes a mapping, like { system: off }")
        try:
            found = provider_parts.whole_cache(family, told)
        except msgspec.ValidationError as bad:
            known = ", ".join(provider_parts.CACHES[family].__struct_fields__)
            self._wrong(node, key, f"is not understood ({bad}); it may have {known}")
        if not provider_parts.in_order(found):
            self._wrong(node, f"{key}.system", provider_parts.OUT_OF_ORDER)

    def _limits(self, node: Node | None, mode: AgentMode) -> Limits:
        if node is None or node.value is None:
            return Limits()
        names = ("max_output_tokens", "timeout_ms", "max_input_tokens")
        table = self._table(node, "limits", names)
        if (gone := table.get("max_input_tokens")) is not None:
            reason = "is gone: the input budget follows from each model's context; remove it"
            self._wrong(gone, "limits.max_input_tokens", reason)
        output = self._count(table.get("max_output_tokens"), "limits.max_output_tokens")
        timeout = self._count(table.get("timeout_ms"), "limits.timeout_ms")
        if timeout and mode != "internal":
            self._wrong(table["timeout_ms"], "limits.timeout_ms", "is for internal agents only")
        return Limits(max_output_tokens=output, timeout_ms=timeout)

    def _permissions(self, node: Node | None) -> tuple[Rule, ...]:
        if node is None or node.value is None:
            return ()
        rules: list[Rule] = []
        for name, value in self._mapping(node, "permissions").items():
            key = f"permissions.{name}"
            action = self._action(value, key, name)
            if isinstance(value.value, dict):
                for pattern, effect in value.value.items():
                    rules.append(self._rule(effect, f"{key}.{pattern}", action, pattern))
            else:
                rules.append(self._rule(value, key, action, "*"))
        if len(rules) > RULES_MAX:
            self._wrong(node, "permissions", f"has {len(rules)} rules; at most {RULES_MAX} fit")
        return tuple(rules)

    def _action(self, node: Node, key: str, name: str) -> Action:
        action = next((one for one in ACTIONS if one == name), None)
        if action is None:
            self._wrong(node, key, f"there is no such action; the actions are {', '.join(ACTIONS)}")
        return action

    def _rule(self, node: Node, key: str, action: Action, pattern: str) -> Rule:
        text = node.value
        effect: Effect
        for effect in EFFECTS:
            if effect == text:
                break
        else:
            self._wrong(node, key, f"is {_shown(node)}; it is one of {', '.join(EFFECTS)}")
        try:
            check_pattern(action, pattern)
        except BadPattern as bad:
            self._wrong(node, key, str(bad.facts.get("reason", bad)))
        return Rule(action=action, resource=pattern, effect=effect)

    def _agent_md(self, node: Node | None, mode: AgentMode) -> bool | None:
        if node is None or node.value is None:
            return None
        if mode in {"subagent", "internal"}:
            self._wrong(node, "agent_md", f"a {mode} agent never loads AGENTS.md; remove it")
        return self._truth(node, "agent_md")

    # --- small steps

    def _wrong(self, node: Node, key: str, reason: str) -> NoReturn:
        raise BadDocument(self._path, reason, line=node.line + self._shift, key=key)

    def _mapping(self, node: Node, key: str) -> Mapping[str, Node]:
        if not isinstance(node.value, dict):
            self._wrong(node, key, f"is {node.kind()}; a mapping of names to values belongs here")
        return node.value

    def _table(self, node: Node, key: str, known: tuple[str, ...]) -> Mapping[str, Node]:
        table = self._mapping(node, key)
        for name, child in table.items():
            if name not in known:
                reason = f"there is no such key; the keys are {', '.join(known)}"
                self._wrong(child, f"{key}.{name}", reason)
        return table

    def _list(self, node: Node, key: str) -> list[Node]:
        if not isinstance(node.value, list):
            self._wrong(node, key, f"is {node.kind()}; a list belongs here")
        return node.value

    def _str(self, node: Node, key: str) -> str:
        if not isinstance(node.value, str):
            self._wrong(node, key, f"is {_shown(node)}; text belongs here (quote it)")
        return node.value

    def _truth(self, node: Node, key: str) -> bool:
        if not isinstance(node.value, bool):
            self._wrong(node, key, f"is {_shown(node)}; it is true or false")
        return node.value

    def _count(self, node: Node | None, key: str) -> int:
        if node is None or node.value is None:
            return 0
        value = node.value
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LIMIT_MAX:
            self._wrong(node, key, f"is {_shown(node)}; a whole number from 0 belongs here")
        return value

    def _parsed(self, node: Node, key: str, parse: Callable[[str], Any]) -> Any:
        text = self._str(node, key)
        try:
            return parse(text)
        except BadId:
            self._wrong(node, key, f"{text[:80]!r} is no name of that kind")


def _shown(node: Node) -> str:
    value = node.value
    return ascii(value)[:80] if isinstance(value, str | int | float | bool) else node.kind()
