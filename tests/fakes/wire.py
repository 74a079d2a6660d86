"""Recorded traffic of providers, where it is at hand, and the ways to cut and to change a body.

The recordings are beside the repository and not in it: a test that needs them is skipped in a
clone that stands alone.
"""

import functools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

SHELF = Path(__file__).parents[2].parent / "shared" / "wire"

EVERY_BYTE_MAX = 6_000  # bytes of a body that is cut at each offset
SAMPLES = 200  # cuts of a longer one

# Objects whose fields a model or a person made up: one more field there would be another value.
FREE = frozenset({"args", "arguments", "input", "metadata", "parameters", "properties", "schema"})
# Fields with a word of the vendor's that means nothing for what a turn says.
PASSIVE = frozenset(
    {
        "service_tier",
        "system_fingerprint",
        "trafficType",
        "category",
        "probability",
        "inference_geo",
    }
)
NEW = "zzz_new"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded exchange."""

    id: str
    family: str
    format: str
    features: tuple[str, ...]
    path: str | None
    sent: Any  # the JSON of the request, None where it was not kept
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        """What its response says about itself, or would have said."""
        plain = "text/event-stream" if self.format == "sse" else "application/json"
        return self.headers.get("content-type", plain)


def cases(*families: str, format: str | None = None, ok: bool | None = None) -> list[Case]:  # noqa: A002
    """The cases of these families (file names without .jsonl); none where the shelf is missing.

    `ok` chooses those with a 2xx status, or those without.
    """
    found = [case for family in families for case in _read(family)]
    return [
        case
        for case in found
        if format in {None, case.format} and ok in {None, 200 <= case.status < 300}
    ]


def params(*families: str, format: str | None = None, ok: bool | None = None) -> list[Any]:  # noqa: A002
    """`cases` for `pytest.mark.parametrize`, one test each; one that skips where there are none."""
    found = cases(*families, format=format, ok=ok)
    if not found:
        return [pytest.param(None, marks=pytest.mark.skip("no recorded traffic beside the repo"))]
    return [pytest.param(case, id=case.id) for case in found]


@functools.cache
def _read(family: str) -> tuple[Case, ...]:
    path = SHELF / f"{family}.jsonl"
    if not path.exists():
        return ()
    return tuple(
        _case(record)
        for record in map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if "body" in record["response"]
    )


def _case(record: dict[str, Any]) -> Case:
    request, response = record["request"], record["response"]
    return Case(
        id=record["id"],
        family=record["family"],
        format=record["format"],
        features=tuple(record["features"]),
        path=request.get("path"),
        sent=request.get("json"),
        status=response["status"],
        headers=response["headers"],
        body=response["body"].encode(),
    )


# --- cuts --------------------------------------------------------------------------------------


def offsets(body: bytes, *, seed: int = 0) -> list[int]:
    """Where to cut: everywhere in a small body; in a long one at samples and at its delicate spots.

    Delicate are the edges of blank lines and the inside of characters of several bytes.
    """
    if len(body) <= EVERY_BYTE_MAX:
        return list(range(len(body) + 1))
    chance = random.Random(seed)
    delicate = [
        at
        for at in range(1, len(body))
        if body[at - 1 : at + 1] == b"\n\n" or body[at] & 0xC0 == 0x80
    ]
    few = chance.sample(delicate, min(SAMPLES // 2, len(delicate)))
    return sorted({0, 1, len(body) - 1, len(body), *few, *chance.sample(range(len(body)), SAMPLES)})


def splits(body: bytes, *, seed: int = 0) -> Iterator[list[bytes]]:
    """The body in pieces: two at each of `offsets`, then single bytes, then random ones."""
    for at in offsets(body, seed=seed):
        yield [body[:at], body[at:]]
    yield [body[at : at + 1] for at in range(len(body))]
    yield pieces(body, random.Random(seed))


def pieces(body: bytes, chance: random.Random, size: int = 40) -> list[bytes]:
    """The body in pieces of random length, `size` at most."""
    made = []
    at = 0
    while at < len(body):
        step = chance.randint(1, size)
        made.append(body[at : at + step])
        at += step
    return made


def events(body: bytes) -> list[bytes]:
    """The events of a body with line feeds, each with its blank line; joined they are the body."""
    plain = body.replace(b"\r\n", b"\n")
    return [part + b"\n\n" for part in plain.split(b"\n\n") if part.strip()]


def cuts(body: bytes) -> Iterator[bytes]:
    """The body up to and with each of its events, the last one left out."""
    whole = events(body)
    for count in range(len(whole)):
        yield b"".join(whole[:count])


# --- changes -----------------------------------------------------------------------------------


def mutated(body: bytes, chance: random.Random) -> bytes:
    """The same body as a newer version of its vendor might send it.

    Unknown events come in between (some of them known ones whose `type` became an unknown word),
    objects have unknown fields, passive words are unknown, comments and `id` lines are mixed in,
    lines end in another way. What the turn says is the same. Give `chance` from hypothesis:
    `st.randoms(use_true_random=False)`.
    """
    made: list[bytes] = []
    for event in events(body):
        while chance.random() < 0.25:
            made.append(_stranger(event, chance))
        made.append(_grown(event, chance))
    if chance.random() < 0.3:
        made.append(_stranger(made[-1], chance) if made else b": nothing\n\n")
    ending = chance.choice([b"\n", b"\n", b"\r\n", b"\r"])
    return b"".join(made).replace(b"\n", ending)


def _read_event(event: bytes) -> tuple[bytes, Any]:
    """Its name and its JSON; None for what is not one JSON object."""
    lines = event.strip().split(b"\n")
    name = next((line[6:].strip() for line in lines if line.startswith(b"event:")), b"")
    data = b"\n".join(line[5:].strip() for line in lines if line.startswith(b"data:"))
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    return name, value if isinstance(value, dict) else None


def _write_event(name: bytes, value: dict[str, Any], chance: random.Random) -> bytes:
    lines = [b": " + NEW.encode()] if chance.random() < 0.05 else []
    if chance.random() < 0.05:
        lines.append(chance.choice([b"id: 7", b"retry: 3000", b"zzz_field: 1"]))
    if name:
        lines.append(b"event: " + name)
    wide = chance.random() < 0.05  # the same JSON on several data lines
    text = json.dumps(value, indent=1 if wide else None)
    space = chance.choice([b" ", b" ", b""])
    lines += [b"data:" + space + line.encode() for line in text.split("\n")]
    return b"\n".join(lines) + b"\n\n"


def _stranger(event: bytes, chance: random.Random) -> bytes:
    """An event that nobody knows: made up, or like this one with unknown words for its types."""
    name, value = _read_event(event)
    made_up: dict[str, Any] = {"type": NEW, NEW: {"type": NEW, "index": 0, "text": NEW}}
    choice = chance.randrange(4)
    if choice == 0:
        return b": a comment\n\n"
    if choice == 1 or value is None or "type" not in value:
        return _write_event(chance.choice([b"", NEW.encode()]), made_up, chance)
    delta = value.get("delta")
    if choice == 2 and isinstance(delta, dict) and "type" in delta:
        return _write_event(name, value | {"delta": delta | {"type": NEW + "_delta"}}, chance)
    return _write_event(NEW.encode() if name else b"", value | {"type": NEW}, chance)


def _grown(event: bytes, chance: random.Random) -> bytes:
    """The event with unknown fields and unknown passive words."""
    name, value = _read_event(event)
    return event if value is None else _write_event(name, _more(value, chance), chance)


def _more(value: Any, chance: random.Random) -> Any:
    if isinstance(value, list):
        return [_more(each, chance) for each in value]
    if not isinstance(value, dict):
        return value
    made = {
        key: NEW
        if key in PASSIVE and isinstance(each, str) and chance.random() < 0.5
        else (each if key in FREE else _more(each, chance))
        for key, each in value.items()
    }
    if chance.random() < 0.2:
        odd = chance.choice([None, 0, 1.5, "", NEW, [], {}, [{"type": NEW}], {"text": NEW}])
        made = {NEW: odd} | made if chance.random() < 0.5 else made | {NEW: odd}
    return made
