"""Writes map.md, events.md and protocol.md from the code; `--check` only says which are stale."""

import argparse
import ast
import importlib
import inspect
import io
import pkgutil
import sys
import tokenize
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

import msgspec
from msgspec import Struct

ROOT = Path(__file__).resolve().parent.parent
FLOORS = ("cookie", "workers", "ipc")
NOTE = (
    "<!-- Written by docs/generate.py from the code (`make docs`). Change the code, not this. -->"
)

sys.path.insert(0, str(ROOT))  # this checkout, installed or not


# ---- map.md: the signs on the doors


class NoSign(Exception):
    """A module whose docstring does not open with a sentence that says what it owns."""


def sign(path: Path) -> str:
    """The first sentence of a module's docstring, on one line; raises NoSign."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if not text:
        raise NoSign(f"{path}: no sign on the door (a module docstring of one sentence)")
    return " ".join(text.split("\n\n")[0].split())


def modules(root: Path, floor: str) -> list[Path]:
    """The modules of a floor: a room's own sign, then its files, then the rooms inside it.

    Raises NoSign for a room without an `__init__`.
    """
    found = list((root / floor).rglob("*.py"))
    for room in {path.parent for path in found}:
        if not (room / "__init__.py").exists():
            raise NoSign(f"{room}: a room without an __init__.py has no sign")

    def order(path: Path) -> list[tuple[int, str]]:
        rooms = [(2, part) for part in path.parent.parts]
        return [*rooms, (0 if path.name == "__init__.py" else 1, path.name)]

    return sorted(found, key=order)


def map_page(root: Path) -> str:
    """The house as a tree of signs; raises NoSign for the first module without one."""
    lines = [NOTE, "", "# Map", "", "Three floors; `cookie` and `workers` stand on `ipc` and never"]
    lines += ["import each other. Each line is the sign on a module's door.", ""]
    for floor in FLOORS:
        lines += [f"## {floor}", ""]
        for path in modules(root, floor):
            inside = path.relative_to(root / floor)
            room = path.name == "__init__.py"
            depth = len(inside.parts) - (2 if room else 1)
            if room and depth < 0:
                lines += [sign(path), ""]
                continue
            name = f"**{inside.parent.name}/**" if room else f"`{inside.stem}`"
            lines.append(f"{'  ' * depth}- {name}: {sign(path)}")
        lines.append("")
    return "\n".join(lines)


# ---- types, as a reader of the wire spells them


class Words:
    """The named aliases and the remarks of some modules: what introspection alone forgets."""

    def __init__(self, names: Iterable[str]) -> None:
        self.aliases: dict[Any, str] = {}
        self.remarks: dict[tuple[str, str], str] = {}
        self.choices: dict[str, Any] = {}  # enumerations and unions that were spelled
        for name in names:
            module = importlib.import_module(name)
            self.remarks.update(_remarks(module))
            for word, value in vars(module).items():
                if get_origin(value) in {Literal, Annotated, Union, types.UnionType}:
                    self.aliases.setdefault(value, word)

    def spell(self, kind: Any) -> str:
        """A type in Markdown, with the words that the code uses for it."""
        alias = self._alias(kind)
        if alias is not None:
            return alias
        if isinstance(kind, NewType):
            return str(kind.__name__)
        origin, args = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self.spell(args[0])
        if origin is Literal:
            return " or ".join(f'"{value}"' for value in args)
        if origin in {Union, types.UnionType}:
            return " or ".join(self._members(args))
        if origin is tuple and args[-1] is Ellipsis:
            return f"[{self.spell(args[0])}, ...]"
        if origin is tuple:
            return f"[{', '.join(map(self.spell, args))}]"
        if origin is dict:
            return f"{{{self.spell(args[0])}: {self.spell(args[1])}}}"
        if kind in {None, type(None)}:
            return "null"
        return {str: "text", Any: "any", msgspec.Raw: "JSON"}.get(
            kind, getattr(kind, "__name__", str(kind))
        )

    def _members(self, args: tuple[Any, ...]) -> Iterator[str]:
        # `Alias | None` is flattened by Python: look for the alias in what is left without None.
        rest = tuple(arg for arg in args if arg is not type(None))
        alias = self._alias(Union[rest]) if len(rest) > 1 else None  # noqa: UP007 - of a tuple
        yield from [alias] if alias else map(self.spell, rest)
        if len(rest) < len(args):
            yield "null"

    def _alias(self, kind: Any) -> str | None:
        try:
            alias = self.aliases.get(kind)
        except TypeError:  # not hashable, so not a key
            return None
        if alias is not None and get_origin(kind) is not Annotated:
            self.choices[alias] = kind
        return alias


def _remarks(module: types.ModuleType) -> Iterator[tuple[tuple[str, str], str]]:
    """The comment beside each field of each class: ((class, field), comment)."""
    source = inspect.getsource(module)
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    remark = comments.get(line.end_lineno or line.lineno)
                    if remark and "noqa" not in remark:
                        yield (node.name, line.target.id), remark


def paragraphs(thing: type) -> str:
    """A docstring as Markdown; the text of a docstring is Markdown already."""
    return inspect.cleandoc(thing.__doc__ or "")


def fields_table(struct: type[Struct], words: Words) -> list[str]:
    """A table of the fields: name, type, default, remark."""
    fields = msgspec.structs.fields(struct)
    if not fields:
        return ["No fields.", ""]
    limits: dict[str, int] = getattr(struct, "chars_max", {})
    rows = ["| field | type | default | |", "|---|---|---|---|"]
    for field in fields:
        remark = words.remarks.get((struct.__name__, field.name), "")
        if field.name in limits:
            remark = "; ".join(filter(None, [f"at most {limits[field.name]} characters", remark]))
        cells = [f"`{field.encode_name}`", words.spell(field.type), _default(field), remark]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*rows, ""]


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return f"`{msgspec.json.encode(field.default).decode()}`"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{msgspec.json.encode(field.default_factory()).decode()}`"
    return "required"


def records(structs: Iterable[type[Struct]]) -> list[type[Struct]]:
    """Every struct that these ones are made of, themselves left out, by name."""
    asked, found = list(structs), set[type[Struct]]()
    seen = set(asked)
    while asked:
        for kind in msgspec.structs.fields(asked.pop()):
            for part in _structs_in(kind.type):
                if part not in seen:
                    seen.add(part)
                    found.add(part)
                    asked.append(part)
    return sorted(found, key=lambda struct: struct.__name__)


def _structs_in(kind: Any) -> Iterator[type[Struct]]:
    if isinstance(kind, type) and issubclass(kind, Struct) and get_origin(kind) is None:
        yield kind
    for part in get_args(kind):
        yield from _structs_in(part)


def section(struct: type[Struct], words: Words, title: str, level: int = 3) -> list[str]:
    """A heading, the docstring and the fields of one struct."""
    return [f"{'#' * level} {title}", "", paragraphs(struct), "", *fields_table(struct, words)]


def record_sections(structs: Iterable[type[Struct]], words: Words, level: int = 3) -> list[str]:
    """The records at the end of a page; a tagged one says its tag."""
    lines: list[str] = []
    for struct in structs:
        config = struct.__struct_config__
        tag = f" (`{config.tag_field}`: `{config.tag}`)" if config.tag_field else ""
        lines += section(struct, words, f"{struct.__name__}{tag}", level)
    return lines


def choices(words: Words, heading: str) -> list[str]:
    """The enumerations and unions that were named so far, and what each may be."""
    lines = [heading, ""]
    for name, choice in sorted(words.choices.items()):
        parts = [
            part.__name__ if isinstance(part, type) else f"`{part}`" for part in get_args(choice)
        ]
        lines.append(f"- **{name}**: {', '.join(parts)}")
    return [*lines, ""]


# ---- events.md


def events_page() -> str:
    """Every durable event: what it says, what may come before and after it, and its fields."""
    events = importlib.import_module("ipc.events")
    nouns = [importlib.import_module(name) for name in submodules("ipc.events")]
    words = Words(["ipc.ids", "ipc.content", "ipc.rules", "ipc.events", *submodules("ipc.events")])
    lines = [NOTE, "", "# Events", ""]
    lines += ["A session's log is one JSON object a line. A *commit* event is on disk before"]
    lines += [
        "anybody acts on it or hears of it; a *delta* may be lost with the machine. The payload"
    ]
    lines += ["is one of the events below, told apart by its `type`.", ""]
    lines += section(events.StoredEvent, words, "The envelope", level=2)
    words.choices.clear()  # the payload is what the rest of the page tells
    for noun in nouns:
        mine = [event for event in events.EVENT_TYPES if event.__module__ == noun.__name__]
        if mine:
            lines += [f"## {noun.__name__.rpartition('.')[2]}", "", noun.__doc__ or "", ""]
        for event in mine:
            weight = "delta" if event in events.DELTAS else "commit"
            lines += section(event, words, f"{events.tag_of(event)} ({weight})")
    rest = [one for one in records([events.StoredEvent]) if one not in events.EVENT_TYPES]
    lines += ["## Records", "", *record_sections(rest, words)]
    return "\n".join([*lines, *choices(words, "## Choices")])


# ---- protocol.md


def protocol_page() -> str:
    """What clients and the daemon say to each other, and what a supervisor and a worker do."""
    methods = ("ipc.methods", *submodules("ipc.methods"))
    shared = ("ipc.ids", "ipc.content", "ipc.rules", "ipc.events", "ipc.plan")
    words = Words([*shared, *methods])
    links = Words([*shared, "ipc.orders"])
    told = set(event_records())
    lines = [NOTE, "", "# Protocol", "", "Records of events that are named here stand in"]
    lines += ["[events.md](events.md).", ""]
    lines += [*methods_part(words, told), *choices(words, "### Choices of methods")]
    lines += [*frames_part(links, told), *plan_part(links, told)]
    return "\n".join(
        [*lines, *choices(links, "### Choices of frames and plan"), *faults_part(), ""]
    )


def methods_part(words: Words, told: set[type[Struct]]) -> list[str]:
    """The two tables of what travels between a client and the daemon, and their shapes."""
    methods = importlib.import_module("ipc.methods.table")
    lines = ["## Methods: clients and the daemon", ""]
    lines += [f"JSON-RPC 2.0, protocol {methods.PROTOCOL_VERSION} (compared exactly), with the"]
    lines += [f"extensions {', '.join(f'`{name}`' for name in methods.EXTENSIONS)} (marked +).", ""]
    lines += ["| method | params | result | routed by | errors |", "|---|---|---|---|---|"]
    shapes: dict[type[Struct], None] = {}
    for name, method in methods.METHODS.items():
        shapes |= {method.params: None, method.result: None}
        errors = ", ".join(f"`{code}`" for code in method.errors)
        if method.reasons:
            errors += f" ({', '.join(method.reasons)})"
        cells = [method.params.__name__, method.result.__name__, f"`{method.routed_by}`", errors]
        lines.append(f"| `{name}`{' +' if method.ours else ''} | {' | '.join(cells)} |")
    lines += ["", "| notification | params |", "|---|---|"]
    for name, params in methods.NOTIFICATIONS.items():
        shapes |= dict.fromkeys(params)
        lines.append(f"| `{name}` | {' or '.join(one.__name__ for one in params)} |")
    lines += ["", "### Shapes of methods", ""]
    structs = {*shapes, *records(shapes)} - told
    told |= structs
    return lines + record_sections(sorted(structs, key=lambda one: one.__name__), words, level=4)


def frames_part(words: Words, told: set[type[Struct]]) -> list[str]:
    """The orders down and the news up, and the birth that comes before them."""
    orders = importlib.import_module("ipc.orders")
    down, up = get_args(orders.Down), get_args(orders.Up)
    lines = ["## Frames: a supervisor and its workers", "", *theory(orders)]
    for title, heads in (
        ("Down", [head for head in down if head not in up]),
        ("Up", [head for head in up if head not in down]),
        ("Both ways", [head for head in up if head in down]),
        ("Birth", [orders.Birth]),
    ):
        lines += [f"### {title}", ""]
        for head in heads:
            tag = head.__struct_config__.tag
            lines += section(head, words, f"{head.__name__} (`{tag}`)", level=4)
    rest = [one for one in records({*down, *up, orders.Birth}) if one not in told]
    told |= set(rest)
    return [*lines, "### Records of frames", "", *record_sections(rest, words, level=4)]


def plan_part(words: Words, told: set[type[Struct]]) -> list[str]:
    """What a run is told."""
    plan = importlib.import_module("ipc.plan")
    lines = ["## The plan", "", *theory(plan)]
    mine = [plan.Plan, *(one for one in records([plan.Plan]) if one not in told)]
    return lines + record_sections(mine, words)


def faults_part() -> list[str]:
    """The codes of faults that have a JSON-RPC number of their own."""
    faults = importlib.import_module("ipc.faults")
    lines = ["## Faults", "", "A fault travels as its code, a message for people and facts. A code"]
    lines += ["that is not listed has the number of `engine_error`.", ""]
    lines += ["| code | JSON-RPC |", "|---|---|"]
    return [*lines, *(f"| `{code}` | {number} |" for code, number in faults.RPC_CODES.items())]


def event_records() -> list[type[Struct]]:
    """Every struct that events.md tells of."""
    events = importlib.import_module("ipc.events")
    return [events.StoredEvent, *records([events.StoredEvent])]


def theory(module: types.ModuleType) -> list[str]:
    """What a module says about itself."""
    return [inspect.cleandoc(module.__doc__ or ""), ""]


def submodules(package: str) -> list[str]:
    """The full names of the modules in a package."""
    found = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return [f"{package}.{info.name}" for info in found]


# ---- the command


def pages(root: Path = ROOT) -> dict[str, str]:
    """All generated pages: file name to text."""
    return {"map.md": map_page(root), "events.md": events_page(), "protocol.md": protocol_page()}


def stale(made: dict[str, str], folder: Path) -> list[str]:
    """The names of the pages in `folder` that are not what the code says."""
    return [
        name
        for name, text in made.items()
        if not (folder / name).exists() or (folder / name).read_bytes() != text.encode()
    ]


def main() -> int:
    """Write the pages, or with --check name the stale ones; 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, name what is stale")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where the pages are")
    asked = parser.parse_args()
    try:
        made = pages()
    except NoSign as missing:
        print(missing, file=sys.stderr)
        return 1
    old = stale(made, asked.docs)
    if asked.check:
        for name in old:
            print(f"{asked.docs / name} is stale: make docs", file=sys.stderr)
        return 1 if old else 0
    for name in old:
        (asked.docs / name).write_text(made[name], encoding="utf-8")
        print(f"wrote {asked.docs / name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
