"""From a plain table of a config file to a checked record, and what a person is told instead.

Every complaint says what the key must be and, where we can guess it, which slip was made. None
repeats a value: what stands in a wrong place may be a secret.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NoReturn, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from cookie.config.files import KeyPath, Layer
from ipc.faults import Fault, clean
from ipc.ids import ProviderId

LIMIT_MAX: Final = 2**53 - 1  # what JSON readers everywhere take as an exact number
DURATION_S_MAX: Final = 7 * 24 * 3600.0
TEXT: Final = "a text in quotes"
REHEARSAL: Final = ProviderId("rehearsal")  # built in, so nobody else may have the name

Positive = Annotated[int, Meta(ge=1, le=LIMIT_MAX)]
Natural = Annotated[int, Meta(ge=0, le=LIMIT_MAX)]
Whole = Annotated[int, Meta(ge=-LIMIT_MAX, le=LIMIT_MAX)]
Filled = Annotated[str, Meta(min_length=1)]


# A table of the file is a frozen Struct whose fields are the table's keys. It may have GONE, a
# mapping from keys that were there once or belong elsewhere to what to do instead; and DURATIONS,
# the fields that are durations, above zero unless they are in MAY_BE_ZERO too.
T = TypeVar("T", bound=Struct)
NOTHING_GONE: Final[Mapping[str, str]] = {}


class BadDuration(Fault):
    """A text that is no duration."""

    code = "bad_duration"


_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
A_DURATION: Final = 'a duration like "500ms", "30s", "10m", "1h" or "2d", at most 7 days'


def duration_s(text: str) -> float:
    """Seconds of "500ms", "30s", "10m", "1h" or "2d"; raises BadDuration."""
    match = re.fullmatch(r"([0-9]{1,9})(ms|s|m|h|d)", text)
    seconds = int(match[1]) * _UNITS[match[2]] if match else -1.0
    if not 0 <= seconds <= DURATION_S_MAX:
        raise BadDuration(text=ascii(text[:80]))
    return seconds


# --- tables ------------------------------------------------------------------------------------


def is_table(layer: Layer, key: KeyPath, value: object) -> dict[str, Any]:
    """`value`, which must be a table; raises BadConfig."""
    if not isinstance(value, dict):
        what = f"[{'.'.join(key)}]"
        raise layer.wrong(key, f"must be a table, like {what}, not {kind_of(value)}")
    return value


def record(layer: Layer, key: KeyPath, value: object, kind: type[T], **made: Any) -> T:
    """The record of a table; `made` are fields that the caller has read. Raises BadConfig."""
    table = is_table(layer, key, value)
    known = kind.__struct_fields__
    check_known(layer, key, table, known, getattr(kind, "GONE", {}))
    plain = {name: field for name, field in table.items() if name not in made}
    try:
        found = msgspec.convert(plain | made, kind)
    except msgspec.ValidationError as bad:
        _complain(layer, key, plain, kind, str(bad))
    for name in getattr(kind, "DURATIONS", ()):
        zero = name in getattr(kind, "MAY_BE_ZERO", ())
        _check_duration(layer, (*key, name), getattr(found, name), zero=zero)
    return found


def check_known(
    layer: Layer,
    key: KeyPath,
    table: Mapping[str, Any],
    known: Sequence[str],
    gone: Mapping[str, str] = NOTHING_GONE,
) -> None:
    """Refuse the first key that is not known, and say what was probably meant."""
    for name in table:
        if name in known:
            continue
        if name in gone:
            raise layer.wrong((*key, name), gone[name])
        raise layer.wrong((*key, name), f"unknown key; {near(name, known)}{listed(known)}")


def near(name: str, known: Iterable[str]) -> str:
    """ "did you mean `this`? " or nothing."""
    import difflib  # noqa: PLC0415 - only for who made a mistake

    found = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {found[0]}? " if found else ""


def listed(known: Sequence[str]) -> str:
    """What a table may have."""
    return f"it may have {', '.join(known)}" if known else "nothing belongs there"


def needs(layer: Layer, key: KeyPath, name: str, example: str = "") -> NoReturn:
    """Complain about a key that is missing."""
    like = f", for example {example}" if example else ""
    raise layer.wrong(key, f"needs the key {name}{like}")


def one_of(layer: Layer, key: KeyPath, value: object, known: Sequence[str]) -> str:
    """`value`, which must be one of these texts; raises BadConfig."""
    if isinstance(value, str) and value in known:
        return value
    guess = near(value, known) if isinstance(value, str) else ""
    raise layer.wrong(key, f"must be {_choice(known)}{'; ' + guess.strip() if guess else ''}")


def named(layer: Layer, key: KeyPath, parse: Callable[[str], Any], text: str, rule: str) -> Any:
    """What `parse` makes of a name of the file; `rule` says how such a name is written."""
    try:
        return parse(text)
    except Fault:
        raise layer.wrong(key, f"is no usable name: {rule}") from None


def a_text(
    layer: Layer, key: KeyPath, value: object, *, bytes_max: int = 65_536, empty: bool = False
) -> str:
    """`value`, which must be a text in one line; raises BadConfig."""
    if not isinstance(value, str):
        raise layer.wrong(key, f"must be {TEXT}, not {kind_of(value)}{_slip(TEXT, value)}")
    if not value and not empty:
        raise layer.wrong(key, "must not be empty")
    if len(value.encode("utf-8", "surrogatepass")) > bytes_max:
        raise layer.wrong(key, f"is longer than {bytes_max} bytes")
    if not is_plain(value):
        raise layer.wrong(key, "holds a control character or a line break")
    return value


def a_flag(layer: Layer, key: KeyPath, value: object) -> bool:
    """`value`, which must be true or false; raises BadConfig."""
    if not isinstance(value, bool):
        what = "true or false"
        raise layer.wrong(key, f"must be {what}, not {kind_of(value)}{_slip(what, value)}")
    return value


def is_plain(text: str) -> bool:
    """Whether a text has nothing in it that a terminal or a protocol might obey."""
    return clean(text, len(text)) == text


# --- what a person is told ---------------------------------------------------------------------

_PLACE: Final = r" - at `\$\.?(?P<field>[^`.\[]*)(?P<rest>[^`]*)`$"
_MISSING: Final = r"Object missing required field `(?P<name>.*?)`"


def _complain(
    layer: Layer, key: KeyPath, table: Mapping[str, Any], kind: type[Struct], text: str
) -> NoReturn:
    """What msgspec found wrong, as a sentence about a key of the file."""
    if (missing := re.match(_MISSING, text)) is not None and not re.search(_PLACE, text):
        needs(layer, key, missing["name"])
    place = re.search(_PLACE, text)
    name = place["field"] if place is not None else ""
    field = next((f for f in msgspec.structs.fields(kind) if f.name == name), None)
    if field is None:  # pragma: no cover - msgspec always names the field
        raise layer.wrong(key, text[:1].lower() + text[1:])
    is_duration = name in getattr(kind, "DURATIONS", ())
    value, what = table.get(name), A_DURATION if is_duration else describe(field.type)
    mismatch = f", not {kind_of(value)}" if _misfits(field.type, value) else ""
    guess = ""
    if (choice := _literals(field.type)) and isinstance(value, str):
        guess = near(value, choice).strip()
    slip = _slip(what, value) or (f"; {guess}" if guess else "")
    raise layer.wrong((*key, name), f"must be {what}{mismatch}{slip}")


def _check_duration(layer: Layer, key: KeyPath, text: str, *, zero: bool) -> None:
    try:
        if duration_s(text) > 0 or zero:
            return
    except BadDuration:
        pass
    raise layer.wrong(key, f"must be {A_DURATION}")


def describe(kind: Any) -> str:
    """A type of a field as a person calls it."""
    if (choice := _literals(kind)) != ():
        return _choice(choice)
    kind, meta = _bare(kind)
    if kind is bool:
        return "true or false"
    if kind is int:
        return f"a whole number{_range(meta)}"
    if kind is float:
        return f"a number{_range(meta)}"
    if get_origin(kind) is tuple:
        inner, _ = _bare(get_args(kind)[0])
        if choice := _literals(inner):
            return f"a list of {_choice(choice)}"
        return "a list of texts" if inner is str else "a list of numbers"
    if get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, Struct)):
        return "a table"
    return f"{TEXT} that is not empty" if meta is not None and meta.min_length else TEXT


def kind_of(value: object) -> str:
    """What a value of the file is, never the value itself."""
    names = {str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value)) or ("a list" if isinstance(value, list) else "a table")


def _bare(kind: Any) -> tuple[Any, Meta | None]:
    """A type without `| None` and its Annotated, and its Meta."""
    options = [one for one in get_args(kind) if one is not type(None)]
    if get_origin(kind) not in {Annotated, Literal, tuple, dict} and len(options) == 1:
        return _bare(options[0])
    if get_origin(kind) is Annotated:
        return get_args(kind)[0], next((m for m in get_args(kind) if isinstance(m, Meta)), None)
    return kind, None


def _literals(kind: Any) -> tuple[str, ...]:
    bare, _ = _bare(kind)
    return get_args(bare) if get_origin(bare) is Literal else ()


def _choice(known: Sequence[str]) -> str:
    quoted = [f'"{one}"' for one in known]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _range(meta: Meta | None) -> str:
    low, high = (meta.ge, meta.le) if meta is not None else (None, None)
    if meta is not None and meta.gt is not None:
        return f" above {meta.gt:g}"
    if high is not None and high < LIMIT_MAX:
        return f" from {low} to {high}"
    if low is not None and low >= 0:
        return f" of at least {low}"
    return ""


def _misfits(kind: Any, value: object) -> bool:
    bare, _ = _bare(kind)
    if _literals(kind):
        return not isinstance(value, str)
    if bare in {int, float}:
        return not isinstance(value, (int, float)) or isinstance(value, bool)
    origin = get_origin(bare)
    wanted = list if origin is tuple else dict if origin is dict else bare
    return isinstance(wanted, type) and not isinstance(value, wanted)


def _slip(what: str, value: object) -> str:
    """A way out of the slips that people make with TOML."""
    if isinstance(value, str) and what.startswith(("a whole", "a number")):
        return "; remove the quotes" if re.fullmatch(r"\s*[-+]?[0-9._]+\s*", value) else ""
    if isinstance(value, str) and what == "true or false":
        return "; remove the quotes" if value.lower() in {"true", "false"} else ""
    if what.startswith(TEXT) and isinstance(value, (int, float)):
        return "; put it in quotes"
    if what.startswith("a list") and not isinstance(value, (list, dict)):
        return "; put it in [ ]"
    return ""
