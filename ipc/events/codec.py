"""The dress of events on disk and wire: strict when written, best effort a line when read."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipc.events import EVENT_TYPES, SEQ_MAX, Event, StoredEvent, tag_of
from ipc.events.mend import Unmendable, mend
from ipc.faults import Fault, clean

REASON_CHARS_MAX: Final = 200  # characters of the reason why a line was skipped
NOTES_MAX: Final = 16  # degradation notes of one line
HEAD_BYTES: Final = 4096  # of an unreadable line, searched for its seq and type

_TIMESTAMP = re.compile(r"\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-6]\d\.\d{3}Z", re.ASCII)
_SEQ = re.compile(rb'"seq":([1-9][0-9]{0,15}),')
_TYPE = re.compile(rb'"payload":\{"type":"([a-z0-9_]{1,64})"')
_ENVELOPE = frozenset(StoredEvent.__struct_fields__)
_BY_TAG: Final[Mapping[str, type[Event]]] = {tag_of(event): event for event in EVENT_TYPES}

# Whatever bytes may do to a JSON reader: not JSON, not UTF-8, too deep, too large a number.
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(StoredEvent).decode
_decode_raw = msgspec.json.Decoder().decode


class EncodeFault(Fault):
    """An event that may not be written, because no reader would get back what was meant."""

    code = "event_not_encodable"


class Read(Struct, frozen=True, gc=False):
    """A line that was read; `degraded` says which optional fields were replaced by defaults."""

    event: StoredEvent
    degraded: tuple[str, ...] = ()


class Skipped(Struct, frozen=True, gc=False):
    """A line that was not read, why, and what can be told of it all the same."""

    reason: str
    seq: int | None = None
    type: str | None = None


def encode(event: StoredEvent) -> bytes:
    """One line without its newline, proved readable; raises EncodeFault and returns nothing else.

    The proof is the reader itself: the line must decode to an equal event. So it also refuses
    what JSON drops in silence (NaN becomes null) and what would only fail on the day of a
    resume (a list in a tuple's place, a None in a required field).
    """
    payload = event.payload
    if _TIMESTAMP.fullmatch(event.timestamp) is None:
        raise _refused(event, "the timestamp is not RFC 3339 in UTC with milliseconds")
    for name, limit in payload.chars_max.items():
        text = getattr(payload, name)
        if text is not None and len(text) > limit:
            raise _refused(event, f"{name} has {len(text)} characters, at most {limit} fit")
    try:
        line = _encode(event)
        back = _decode(line)
    except (*_UNREADABLE, TypeError) as problem:
        raise _refused(event, f"{type(problem).__name__}: {problem}") from problem
    if back != event:
        raise _refused(event, "it would be read back as something else")
    return line


def read_line(line: bytes) -> Read | Skipped:
    """Read one line without its newline. Never raises, whatever the bytes (spec 1.4).

    An unknown type, a broken required field, bad JSON or an unknown envelope key skips the
    line. An optional field of a wrong type gets its default and a note; an absent one gets its
    default and no note, for that is how an older writer looks. Unknown payload fields are
    passed over: a newer writer had them.
    """
    try:
        return Read(_decode(line))
    except _UNREADABLE as problem:
        return _read_slowly(line, problem)


def _read_slowly(line: bytes, problem: Exception) -> Read | Skipped:
    try:
        raw = _decode_raw(line)
    except _UNREADABLE as worse:
        return _skip_unparsed(line, worse)
    seq, tag = _head(raw)
    refusal = _refuse_head(raw, seq, tag)
    if refusal is not None:
        return Skipped(_reason(refusal), seq, tag)
    notes: list[str] = []
    try:
        event = mend(raw, StoredEvent, notes)
    except Unmendable as broken:
        return Skipped(_reason(str(broken)), seq, tag)
    except _UNREADABLE:
        return Skipped(_reason(str(problem)), seq, tag)
    degraded = tuple(clean(note, REASON_CHARS_MAX) for note in notes[:NOTES_MAX])
    return Read(event, degraded)


def _refuse_head(raw: object, seq: int | None, tag: str | None) -> str | None:
    if not isinstance(raw, dict):
        return "not an object"
    unknown = sorted(set(raw) - _ENVELOPE)
    if unknown:
        return f"unknown envelope key {unknown[0]!r}"
    if seq is None:
        return "no valid seq"
    if tag is None:
        return "no payload type"
    return None if tag in _BY_TAG else f"unknown event type {tag!r}"


def _skip_unparsed(line: bytes, problem: Exception) -> Skipped:
    head = bytes(line[:HEAD_BYTES])
    seq, tag = _SEQ.search(head), _TYPE.search(head)
    number = None if seq is None else int(seq[1])
    return Skipped(
        _reason(f"not JSON: {problem}"),
        number if number is not None and number <= SEQ_MAX else None,
        None if tag is None else tag[1].decode("ascii"),
    )


def _head(raw: object) -> tuple[int | None, str | None]:
    """The seq and the type of a parsed line, where it has them."""
    if not isinstance(raw, dict):
        return None, None
    seq: Any = raw.get("seq")
    payload: Any = raw.get("payload")
    tag: Any = payload.get("type") if isinstance(payload, dict) else None
    good = isinstance(seq, int) and not isinstance(seq, bool) and 1 <= seq <= SEQ_MAX
    return seq if good else None, tag if isinstance(tag, str) else None


def _reason(text: str) -> str:
    return clean(text, REASON_CHARS_MAX)


def _refused(event: StoredEvent, reason: str) -> EncodeFault:
    return EncodeFault(
        event=tag_of(type(event.payload)), seq=event.seq, reason=clean(reason, REASON_CHARS_MAX)
    )
