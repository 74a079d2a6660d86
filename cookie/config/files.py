"""The two config files of a workspace: read within limits, as plain tables that know their lines.

The user's file is `<data dir>/config.toml`, the workspace's `<cwd>/.cookie-agent/config.toml`, of
the exact directory and none above it. A missing or an empty file is fine. Every limit of spec 1.20
is checked on the text, before the TOML parser sees it, where the parser itself would pay more for
a bad file than we want to.
"""

import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from ipc.faults import Fault, clean

FILE_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 32
ENTRIES_MAX: Final = 4096  # keys and list items of one file together
STRING_BYTES_MAX: Final = 256 << 10
INTEGER_BITS_MAX: Final = 64
WORD_CHARS_MAX: Final = 4096  # of a number or a bare key: the parser would backtrack in it

CONFIG_NAME: Final = "config.toml"
WORKSPACE_FOLDER: Final = ".cookie-agent"

LayerName = Literal["user", "workspace"]
KeyPath = tuple[str, ...]


class BadConfig(Fault):
    """A config file that can't be used; its text is one line: file, line, key, what is wrong."""

    code = "bad_config"

    def __init__(
        self, path: Path, reason: str, *, line: int | None = None, key: KeyPath = ()
    ) -> None:
        where = f"{path}:{line}" if line is not None else str(path)
        named = f"{key_text(key)}: " if key else ""
        super().__init__(path=str(path), line=line or 0, key=key_text(key), reason=reason)
        self.args = (clean(f"{where}: {named}{reason}", 2000),)


class Layer(NamedTuple):
    """One config file that is there: its table as parsed, and its text to find lines in."""

    name: LayerName
    path: Path
    table: dict[str, Any]
    text: str

    def __repr__(self) -> str:
        return f"Layer({self.name}, {str(self.path)!r})"  # what is in it may be a secret

    def wrong(self, key: KeyPath, reason: str) -> BadConfig:
        """The fault for one key of this file, with its line where that can be told."""
        return BadConfig(self.path, reason, line=line_of(self.text, key), key=key)


def load(data_dir: Path, cwd: Path) -> tuple[Layer, ...]:
    """The layers that are there, user before workspace; raises BadConfig."""
    layers = (read_layer(name, path) for name, path in places(data_dir, cwd))
    return tuple(layer for layer in layers if layer is not None)


def read_layer(name: LayerName, path: Path) -> Layer | None:
    """One file as a layer; None if there is none; raises BadConfig."""
    data = _read_bytes(path)
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError as bad:
        line = data.count(b"\n", 0, bad.start) + 1
        raise BadConfig(path, "not UTF-8; save the file as UTF-8", line=line) from None
    text = text.removeprefix("\ufeff")  # some editors begin a file with it, and TOML knows it not
    if not text.strip():
        return Layer(name, path, {}, text)
    _check_text(path, text)
    layer = Layer(name, path, _parse(path, text), text)
    _check_values(layer)
    return layer


def places(data_dir: Path, cwd: Path) -> tuple[tuple[LayerName, Path], ...]:
    """The files that are looked for, the user's before the workspace's; they need not be there."""
    user, workspace = data_dir / CONFIG_NAME, cwd / WORKSPACE_FOLDER / CONFIG_NAME
    if os.path.realpath(user) == os.path.realpath(workspace):  # cookie started in the home folder
        return (("user", user),)
    return (("user", user), ("workspace", workspace))


def key_text(key: KeyPath) -> str:
    """A key as one writes it in the file: dotted, quoted where it must be."""
    bare = re.compile(r"[A-Za-z0-9_-]+")
    return ".".join(part if bare.fullmatch(part) else f'"{part}"' for part in key)


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line of each key and table of a file; of the keys in an inline table there is none.

    A table that only its parts open, as `[a.b]` does `a`, is where the first of them is.
    """
    found: dict[KeyPath, int] = {}
    implied: dict[KeyPath, int] = {}
    for key, line in _key_lines(text):
        found[key] = line
        for part in range(1, len(key)):
            implied.setdefault(key[:part], line)
    return implied | found


def line_of(text: str, key: KeyPath) -> int | None:
    """The line that sets `key` or, if none does, that opens the nearest table above it."""
    return nearest_line(key_lines(text), key)


def nearest_line(lines: Mapping[KeyPath, int], key: KeyPath) -> int | None:
    """What `line_of` says, of lines that were looked up once."""
    while key:
        if key in lines:
            return lines[key]
        key = key[:-1]
    return None


def _read_bytes(path: Path) -> bytes | None:
    try:
        # Not blocking: a named pipe in its place must not hang the start.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as no:
        raise BadConfig(path, f"can't be read: {_errno_text(no)}") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise BadConfig(path, f"is {kind}; a TOML file belongs there")
        if status.st_size > FILE_BYTES_MAX:  # not one byte of it is read
            raise BadConfig(path, f"is larger than {FILE_BYTES_MAX} bytes")
        with os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as no:
        raise BadConfig(path, f"can't be read: {_errno_text(no)}") from None
    finally:
        os.close(fd)
    if len(data) > FILE_BYTES_MAX:
        raise BadConfig(path, f"is larger than {FILE_BYTES_MAX} bytes")
    return data


def _errno_text(no: OSError) -> str:
    return os.strerror(no.errno) if no.errno else str(no)


def _parse(path: Path, text: str) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - most starts have no config file and need not pay for it

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as bad:  # ValueError: also an integer of 5,000 digits
        at = re.search(r" \(at line (\d+), column \d+\)| \(at end of document\)", str(bad))
        line = int(at[1]) if at and at[1] else text.count("\n") + 1 if at else None
        reason = _plainly(str(bad)[: at.start()]) if at else "a value that is too long or too deep"
        raise BadConfig(path, f"not valid TOML: {reason}", line=line) from None


# What the parser says, and what a person does about it.
_WORDS: Final = (
    ("Invalid value", "no value: a text needs quotes, true and false are in lower case"),
    ("Expected '=' after a key", "a key without its =; write key = value"),
    ("Unterminated string", "a text whose closing quote is missing"),
    ("Illegal character '\\n'", "a text whose closing quote is missing on its line"),
    ("Invalid hex value", "a backslash in \"...\" is written twice; in '...' it is written once"),
    ("Unescaped '\\'", "a backslash in \"...\" is written twice; in '...' it is written once"),
    ("Unclosed array", "a [ that is never closed"),
    ("Unclosed inline table", "a { that is not closed on its line"),
    ("Invalid initial character for a key", "a key is missing, or there is a comma before a }"),
    ("Expected newline or end", "the line goes on after its value; remove what is too much"),
    ("Cannot overwrite a value", "this key or table was there before; keep one of the two"),
    ("Cannot declare", "this table was opened before; put its keys together"),
    ("Cannot mutate", "this table was opened before, in another way; put its keys together"),
    ("Expected ']'", "a table is opened with [name]"),
    ("Invalid statement", "no statement; write key = value or [table]"),
)


def _plainly(reason: str) -> str:
    return next((words for start, words in _WORDS if reason.startswith(start)), reason)


# --- the text, token by word: linear, and without holding more than one word


_LEXEME: Final = r'''
        (?P<string> """(?:[^\\"]|\\.|"(?!""))*+"{3,5} | \'\'\'(?:[^']|'(?!''))*+\'{3,5})
      | (?P<open> """ | \'\'\')
      | (?P<line> "(?:[^"\\\n]|\\.)*+" | '[^'\n]*+')
      | (?P<open_line> ["'])
      | (?P<comment>\#[^\n]*+)
      | (?P<bare>[A-Za-z0-9_-]++)
      | (?P<blank>[ \t\r]++)
      | (?P<mark>.)'''
_KINDS: Final = {"line": "string"}


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """Kind, text and offset of each word; the last is `open` where a text is never closed."""
    for match in re.finditer(_LEXEME, text, re.DOTALL | re.VERBOSE):
        kind = match.lastgroup or "mark"
        if kind in {"open", "open_line"}:
            yield "open", match.group(), match.start()
            return  # to look for an end twice would be quadratic
        if kind not in {"comment", "blank"}:
            yield _KINDS.get(kind, kind), match.group(), match.start()


def _check_text(path: Path, text: str) -> None:
    """Refuse what would cost the parser more than its size: depth, entries, endless keys."""
    depth = parts = equals = commas = headers = 0
    at_start = True
    for kind, word, offset in _tokens(text):
        if kind == "mark":
            depth += (word in "[{") - (word in "]}")
            parts = parts + 1 if word == "." else 0
            equals += word == "="
            commas += word == ","
            headers += word == "[" and at_start
        elif kind == "open":
            reason = (
                f"a text whose closing quote is missing{'' if len(word) > 1 else ' on its line'}"
            )
            line = text.count("\n", 0, offset) + 1
            raise BadConfig(path, f"not valid TOML: {reason}", line=line)
        elif kind == "bare" and len(word) > WORD_CHARS_MAX:
            reason = f"a number or a key of more than {WORD_CHARS_MAX} letters"
            raise BadConfig(path, reason, line=text.count("\n", 0, offset) + 1)
        elif kind == "string" and len(word) > STRING_BYTES_MAX:
            _check_length(path, word, text.count("\n", 0, offset) + 1)
        if max(depth, parts) > DEPTH_MAX or max(equals, commas, headers) > ENTRIES_MAX:
            deep = max(depth, parts) > DEPTH_MAX
            limit = f"nested deeper than {DEPTH_MAX}" if deep else _too_many()
            raise BadConfig(path, limit, line=text.count("\n", 0, offset) + 1)
        at_start = word == "\n"


def _check_length(path: Path, word: str, line: int) -> None:
    """A text without escapes is as long as it looks; the parser would go through it by letters."""
    if "\\" not in word and len(word.strip("\"'").encode("utf-8", "replace")) > STRING_BYTES_MAX:
        raise BadConfig(path, f"a text longer than {STRING_BYTES_MAX} bytes", line=line)


def _key_lines(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Each key set by a statement or opened by a header, with its line; inline tables are left."""
    table: KeyPath = ()
    key: list[str] = []
    header = value = False
    depth, line, at = 0, 1, 0
    for kind, word, offset in _tokens(text):
        line, at = line + text.count("\n", at, offset), offset
        if kind in {"bare", "string"} and not value:
            key.append(_unquoted(word))
        elif word == "\n" and not depth:
            key, header, value = [], False, False
        elif value:
            inside = kind == "mark" and not header
            depth += ((word in "[{") - (word in "]}")) * inside
        elif word == "[" and not key:
            header = True
        elif (word == "=") or (word == "]" and header):
            table = tuple(key) if header else table
            value = True
            yield (table if header else (*table, *key)), line


def _unquoted(word: str) -> str:
    return word[1:-1] if word[:1] in {'"', "'"} else word


# --- the values


def _check_values(layer: Layer) -> None:
    entries = 0
    todo: list[tuple[KeyPath, Any, int]] = [((), layer.table, 0)]
    while todo:
        key, value, depth = todo.pop()
        if (reason := _complaint(value, depth)) is not None:
            raise layer.wrong(key, reason)
        children: list[tuple[KeyPath, Any]] = []
        if isinstance(value, dict):
            children = [((*key, name), child) for name, child in value.items()]
        elif isinstance(value, list):
            children = [(key, child) for child in value]
        entries += len(children)
        if entries > ENTRIES_MAX:
            raise layer.wrong(key, _too_many())
        todo += [(name, child, depth + 1) for name, child in children]


def _complaint(value: object, depth: int) -> str | None:
    if depth > DEPTH_MAX:
        return f"nested deeper than {DEPTH_MAX}"
    match value:
        case bool() | dict() | list():
            return None
        case str():
            size = len(value.encode("utf-8", "surrogatepass"))
            return f"longer than {STRING_BYTES_MAX} bytes" if size > STRING_BYTES_MAX else None
        case int():
            big = value.bit_length() >= INTEGER_BITS_MAX
            return f"an integer of more than {INTEGER_BITS_MAX} bits" if big else None
        case float():
            return None if math.isfinite(value) else "must be a finite number"
        case _:
            return "dates and times are not used here; write a string"


def _too_many() -> str:
    return f"more than {ENTRIES_MAX} entries"
