"""Reading a damaged record: an optional field of a wrong type gives way to its default."""

import types
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo

T = TypeVar("T", bound=Struct)

_BROKEN = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


class Unmendable(Exception):
    """A required part is broken; the message says which."""


def mend(raw: object, wanted: type[T], notes: list[str]) -> T:
    """`raw` as a `wanted`, with one note for each optional field replaced by its default.

    Raises Unmendable when something required is broken, at whatever depth.
    """
    whole = _mend(raw, wanted, "$", notes)
    try:
        return msgspec.convert(whole, wanted)
    except _BROKEN as problem:
        raise Unmendable(str(problem)) from problem


def _mend(raw: Any, wanted: Any, path: str, notes: list[str]) -> Any:
    """`raw` without what is broken and optional; it fits `wanted` then, or Unmendable is raised.

    Goes down the types, never down the data, so that no nesting of the data can be too deep.
    """
    try:
        msgspec.convert(raw, wanted)
    except _BROKEN as problem:
        if isinstance(raw, dict):
            record = _record(raw, wanted)
            if record is not None:
                return _mend_record(raw, record, path, notes)
        elif isinstance(raw, list) and get_origin(wanted) is tuple:
            item = get_args(wanted)[0]
            return [_mend(part, item, f"{path}[{n}]", notes) for n, part in enumerate(raw)]
        elif get_origin(wanted) in {Union, types.UnionType}:
            return _mend_choice(raw, wanted, path, notes, problem)
        raise _unmendable(path, problem) from problem
    else:
        return raw


def _mend_choice(raw: Any, wanted: Any, path: str, notes: list[str], problem: BaseException) -> Any:
    for choice in get_args(wanted):
        if get_origin(choice) is tuple and isinstance(raw, list):
            return _mend(raw, choice, path, notes)
    raise _unmendable(path, problem) from problem


def _mend_record(
    raw: dict[str, Any], record: type[Struct], path: str, notes: list[str]
) -> dict[str, Any]:
    whole = dict(raw)
    for field in _fields(record):
        name = field.encode_name
        if name not in raw:
            if field.required:
                raise Unmendable(f"no required `{path}.{name}`")
            continue
        try:
            whole[name] = _mend(raw[name], field.type, f"{path}.{name}", notes)
        except Unmendable as broken:
            if field.required:
                raise
            del whole[name]
            notes.append(f"default taken: {broken}")
    return whole


def _record(raw: dict[str, Any], wanted: Any) -> type[Struct] | None:
    """The struct that a mapping was meant to be: the one of `wanted` that has its tag."""
    union = get_origin(wanted) in {Union, types.UnionType}
    for choice in get_args(wanted) if union else (wanted,):
        if isinstance(choice, type) and issubclass(choice, Struct):
            config = choice.__struct_config__
            if config.tag_field is None or raw.get(config.tag_field) == config.tag:
                return choice
    return None


@cache
def _fields(record: type[Struct]) -> tuple[FieldInfo, ...]:
    return msgspec.structs.fields(record)


def _unmendable(path: str, problem: BaseException) -> Unmendable:
    return Unmendable(f"`{path}`: {problem}")
