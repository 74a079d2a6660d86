"""Values of every event, made from the types themselves: fixed ones for goldens, any for proofs."""

import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st
from msgspec import Meta, Struct

from ipc.events import AGENT_SNAPSHOT_SCHEMA, EVENT_TYPES, Event, StoredEvent

_INT64 = 2**63
_WORDS: dict[str, Any] = {
    "session_id": "01890000-0000-7000-8000-00000000000a",
    "run_id": "01890000-0000-7000-8000-00000000000b",
    "Digest": "0123456789abcdef" * 4,
    "Revision": "sha256:" + "fedcba9876543210" * 4,
    "Fingerprint": "sha256:" + "00112233445566778899aabbccddeeff" * 2,
    "AgentId": "primary",
    "ProviderId": "rehearsal",
    "ModelKey": "rehearsal/tour",
    "Handle": "explore_1a2b3c4d",
}
_NAMED: dict[str, Any] = {
    "schema": AGENT_SNAPSHOT_SCHEMA,
    "created_at": "2026-01-02T03:04:05.678Z",
    "expires_at": "2026-01-02T03:34:05.678Z",
    "cwd_identity": "/home/somebody/project",
}
JSON_SAMPLE: dict[str, Any] = {"text": "é", "count": 3, "ratio": 0.5, "none": None, "list": [True]}


def samples(event: type[Event]) -> list[Event]:
    """The event with everything set, once for each kind of record in it, and with defaults only."""
    whole = [_filled(event, choice, optional=True) for choice in range(_choices(event))]
    bare = _filled(event, 0, optional=False)
    return [*whole, *([bare] if bare not in whole else [])]


def all_samples() -> list[Event]:
    """The samples of every event, in the order of the union."""
    return [sample for event in EVENT_TYPES for sample in samples(event)]


def required_only(value: Any) -> Any:
    """A value as a writer left it that knew no optional field at all, at any depth."""
    if isinstance(value, Struct):
        config = value.__struct_config__
        tag = {config.tag_field: config.tag} if config.tag_field else {}
        fields = [field for field in msgspec.structs.fields(value) if field.required]
        rest = {field.encode_name: required_only(getattr(value, field.name)) for field in fields}
        return {**tag, **rest}
    return [required_only(part) for part in value] if isinstance(value, tuple) else value


def stored(payload: Event, seq: int = 1, run_id: str | None = _WORDS["run_id"]) -> StoredEvent:
    """A payload in an envelope like that of a real log."""
    return StoredEvent(
        engine_version="0.1.0",
        session_id=_WORDS["session_id"],
        run_id=run_id,  # type: ignore[arg-type]  # a sample, not an id somebody validated
        seq=seq,
        timestamp="2026-01-02T03:04:05.678Z",
        payload=payload,  # type: ignore[arg-type]  # every Event of ours is in the union
    )


def anything_of(wanted: Any) -> st.SearchStrategy[Any]:
    """A strategy for all values of a type of ours."""
    origin, args = get_origin(wanted), get_args(wanted)
    if isinstance(wanted, NewType):
        return anything_of(wanted.__supertype__)
    if wanted is Any:
        return _JSON
    if origin is Annotated:
        return _bounded_integers(wanted)
    if origin is Literal:
        return st.sampled_from(args)
    if origin in {Union, types.UnionType}:
        return st.one_of(*[anything_of(choice) for choice in args])
    if origin is tuple:
        return st.lists(anything_of(args[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(_TEXT, anything_of(args[1]), max_size=3)
    if isinstance(wanted, type) and issubclass(wanted, Struct):
        return anything_in(wanted)
    return _PLAIN[wanted]


def anything_in(record: type[Struct]) -> st.SearchStrategy[Any]:
    """A strategy for all values of a record, within the bounds a writer keeps."""
    limits = getattr(record, "chars_max", {})
    parts = {}
    for field in msgspec.structs.fields(record):
        part = anything_of(field.type)
        if field.name in limits:
            part = part.map(_cut(limits[field.name]))
        parts[field.name] = part
    return st.builds(record, **parts)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_INTEGERS = st.integers(-_INT64, 2 * _INT64 - 1)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), _INTEGERS, _FLOATS, _TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_TEXT, inner, max_size=3)),
    max_leaves=5,
)
_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: _TEXT,
    int: _INTEGERS,
    float: _FLOATS,
    bool: st.booleans(),
    type(None): st.none(),
}


def _cut(limit: int) -> Callable[[Any], Any]:
    return lambda text: text if text is None else text[:limit]


def _bounded_integers(wanted: Any) -> st.SearchStrategy[Any]:
    (meta,) = [part for part in get_args(wanted)[1:] if isinstance(part, Meta)]
    return st.integers(meta.ge, meta.le)  # type: ignore[arg-type]  # ours are whole numbers


def _choices(wanted: Any) -> int:
    """How many samples it takes until each member of the largest union was there once."""
    args = get_args(wanted)
    if isinstance(wanted, type) and issubclass(wanted, Struct):
        return max((_choices(field.type) for field in msgspec.structs.fields(wanted)), default=1)
    if get_origin(wanted) in {Union, types.UnionType}:
        members = [choice for choice in args if choice is not type(None)]
        return max(len(members), *[_choices(choice) for choice in members])
    if get_origin(wanted) is tuple:
        return 1  # a sequence shows every member at once
    return 1


def _filled(record: type[Struct], choice: int, *, optional: bool) -> Any:
    return record(
        **{
            field.name: _value(field.type, field.name, choice, optional=optional)
            for field in msgspec.structs.fields(record)
            if field.required or optional
        }
    )


def _value(wanted: Any, name: str, choice: int, *, optional: bool) -> Any:
    origin, args = get_origin(wanted), get_args(wanted)
    if isinstance(wanted, NewType):
        return _WORDS.get(wanted.__name__, f"01890000-0000-7000-8000-{_number(name):012x}")
    if origin is Annotated:
        return _number(name)
    if origin is Literal:
        return args[choice % len(args)]
    if origin in {Union, types.UnionType}:
        members = [member for member in args if member is not type(None)]
        return _value(members[choice % len(members)], name, choice, optional=optional)
    if origin is tuple:
        union = get_origin(args[0]) in {Union, types.UnionType}
        kinds = get_args(args[0]) if union else args[:1]
        return tuple(_value(kind, name, choice, optional=optional) for kind in kinds)
    if isinstance(wanted, type) and issubclass(wanted, Struct):
        return _filled(wanted, choice, optional=optional)
    if wanted is Any or (origin is dict and args[1] is Any):
        return JSON_SAMPLE
    if origin is dict:
        return {"some key": _value(args[1], name, choice, optional=optional)}
    if name in _NAMED:
        return _NAMED[name]
    return {str: f"some {name}", int: _number(name), float: 0.5, bool: True}[wanted]


def _number(name: str) -> int:
    """A small number that is the same for ever and differs between names."""
    return sum(name.encode()) % 997 + 1
