"""Which block of the history a provider refused, from its words; the next request holds it back."""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct, structs

from ipc.content import MediaBlock, TextBlock, ThinkingBlock, ToolCallBlock, TurnBlock
from ipc.events import BlockPlace, HistoryRepaired, ModelErrorSummary
from ipc.fold import NoticeEntry, SessionView, TurnEntry, UserEntry
from ipc.ids import AttemptId, Digest
from workers.providers.base import (
    AssistantMessage,
    CannotEncode,
    Media,
    Message,
    Request,
    ToolMessage,
)
from workers.run.history import Places, Projection

Encode: TypeAlias = Callable[[Request, Media], bytes]  # the body of a request, as JSON

ISOLATIONS_MAX: Final = 4  # refused requests for one turn that are made again without a block
CALL_ID_CHARS_MIN: Final = 6  # of an id that is looked for in a sentence

# The words for a place: `messages.12.content.3.image`, `input[5].content[1]`,
# `messages.[7].content.[0]`, `GenerateContentRequest.contents[3].parts[2]`, and a list of names
# and numbers, which is what servers say that check their requests with pydantic.
_ROOTS: Final = r"(messages|input|contents)"
_PATH: Final = re.compile(rf"\b{_ROOTS}((?:\.?\[\d+\]|\.\d+|\.[A-Za-z_]\w*)+)")
_LISTED: Final = re.compile(rf"[\"']{_ROOTS}[\"']((?:\s*,\s*(?:\d+|[\"'][\w.-]+[\"']))+)")
_TOKEN: Final = re.compile(r"\d+|[A-Za-z_]\w*")

_OF_MEDIA: Final = re.compile(
    r"image|picture|photo|media|document|\bpdf\b|audio|video|base64", re.IGNORECASE
)
_OF_THE_MODEL: Final = re.compile(
    r"(?:model|endpoint).{0,60}\bsupport.{0,30}(?:image|media|document|pdf|audio|video)",
    re.IGNORECASE,
)
_OF_SIGNATURES: Final = re.compile(r"signature|encrypted[ _]content", re.IGNORECASE)
# What is missing there, and not what is too much: to take a block away would not help.
_OF_ORDER: Final = re.compile(r"expected .{0,3}thinking", re.IGNORECASE)

# A router says of a model that takes no pictures that there is no such model.
_KINDS: Final = frozenset({"invalid_request", "model_not_found", "unsupported"})

_MARK: Final = "mark{}mark"
_MARKED: Final = re.compile(r"mark(\d+)mark")


def refused(
    state: SessionView,
    projection: Projection,
    request: Request,
    error: ModelErrorSummary,
    attempt_id: AttemptId,
    encode: Encode | None,
) -> HistoryRepaired | None:
    """What makes the next request of this turn do without the block that was refused, if one was.

    It belongs right before the attempt_abandoned of its attempt, in the same append: from then
    on the fold holds the block back, also in another worker.
    """
    if _isolations(state) >= ISOLATIONS_MAX:
        return None
    found = isolate(error, projection, request, encode)
    places = tuple(place for place in found if place not in state.isolated)
    if not places:
        return None
    repairs = dict(projection.repairs)
    repairs["isolated"] = repairs.get("isolated", 0) + len(places)
    kinds = tuple(sorted(repairs))
    return HistoryRepaired(
        attempt_id=attempt_id,
        kinds=kinds,
        counts=tuple(repairs[kind] for kind in kinds),
        isolated=places,
    )


def isolate(
    error: ModelErrorSummary, projection: Projection, request: Request, encode: Encode | None
) -> tuple[BlockPlace, ...]:
    """The places of the blocks that a refusal is about; none when nobody can tell.

    `request` is the one that was refused, with the messages of `projection`. `encode` says it in
    the words of its family; without, only what needs no counting is understood.
    """
    if error.kind not in _KINDS:
        return ()
    words = f"{error.message}\n{error.response_body or ''}".replace("\\", "")
    if error.kind != "invalid_request" and not _OF_THE_MODEL.search(words):
        return ()
    if _OF_ORDER.search(words):
        return ()
    if _OF_SIGNATURES.search(words) and (turns := _turns_with_secrets(projection)):
        return turns
    if _OF_THE_MODEL.search(words):
        return _media(projection)
    if encode is not None and (named := _named(words, projection, request, encode)):
        return named
    if called := _called(words, projection):
        return called
    return _media(projection)[-1:] if _OF_MEDIA.search(words) else ()


def _isolations(state: SessionView) -> int:
    """How many requests for the turn that is sought were refused for a block."""
    count = 0
    for entry in reversed(state.entries):
        if isinstance(entry, TurnEntry | UserEntry):
            break
        if isinstance(entry, NoticeEntry) and isinstance(entry.event, HistoryRepaired):
            count += bool(entry.event.isolated)
    return count


# --- without a place ---------------------------------------------------------------------------


def _turns_with_secrets(projection: Projection) -> tuple[BlockPlace, ...]:
    """The turns that hold what only a provider understands: when one is stale, all are."""
    places = []
    for message, row in zip(projection.messages, projection.places, strict=True):
        if isinstance(message, AssistantMessage) and row and row[0] is not None:
            secret = any(isinstance(b, ThinkingBlock) and b.signature for b in message.content)
            if secret or message.native is not None:
                places.append(BlockPlace(seq=row[0].seq, index=-1))
    return tuple(places)


def _called(words: str, projection: Projection) -> tuple[BlockPlace, ...]:
    """The call whose id a sentence says."""
    for message, row in zip(projection.messages, projection.places, strict=True):
        if not isinstance(message, AssistantMessage):
            continue
        for block, place in zip(message.content, row, strict=True):
            if isinstance(block, ToolCallBlock) and place is not None:
                call_id = block.model_call_id
                if len(call_id) >= CALL_ID_CHARS_MIN and call_id in words:
                    return (place,)
    return ()


def _media(projection: Projection) -> tuple[BlockPlace, ...]:
    """All media of a request, oldest first."""
    rows = zip(projection.messages, projection.places, strict=True)
    blocks = (pair for message, row in rows for pair in _blocks(message, row))
    return tuple(
        place for block, place in blocks if isinstance(block, MediaBlock) and place is not None
    )


def _blocks(message: Message, row: Places) -> Iterator[tuple[TurnBlock, BlockPlace | None]]:
    if isinstance(message, ToolMessage):
        yield from zip((TextBlock(text=message.output), *message.attachments), row, strict=True)
    else:
        yield from zip(message.content, row, strict=True)


# --- by a place --------------------------------------------------------------------------------

# A place counts the elements of the body that was sent. How a family groups and merges messages is
# known to its codec alone, so the codec is asked: it encodes the same messages once more with a
# mark in each block, and the mark at that place names the block. A second description of each
# family's grouping, here, would be wrong at the first change of a codec.


class _Mark(Struct, frozen=True):
    place: BlockPlace
    media: bool = False


def _named(
    words: str, projection: Projection, request: Request, encode: Encode
) -> tuple[BlockPlace, ...]:
    paths = list(_paths(words))
    if not paths:
        return ()
    probe = _Probe()
    marked = tuple(map(probe.message, projection.messages, projection.places))
    try:
        body = msgspec.json.decode(encode(structs.replace(request, messages=marked), probe.media))
    except CannotEncode:
        return ()
    about_media = bool(_OF_MEDIA.search(words))
    for path in paths:
        for node in _along(body, path):
            marks = probe.marks(node)
            if marks:
                return _picked(node, marks, about_media=about_media)
    return ()


def _paths(words: str) -> Iterator[tuple[str | int, ...]]:
    for found in (*_PATH.finditer(words), *_LISTED.finditer(words)):
        tokens = (int(one) if one.isdigit() else one for one in _TOKEN.findall(found[2]))
        path = (found[1], *tokens)
        if any(isinstance(token, int) for token in path):
            yield path


def _along(body: Any, path: tuple[str | int, ...]) -> list[Any]:
    """The nodes at a path's end, deepest first, up to what its last number names."""
    node, nodes = body.get(path[0]), list[Any]()
    for token in path[1:]:
        if isinstance(token, int):
            if not isinstance(node, list) or token >= len(node):
                break  # a text where the words see a list of one, or a body of another request
            node = node[token]
            nodes = [node]
        elif isinstance(node, dict) and token in node:  # else it names the kind of the block
            node = node[token]
            nodes.append(node)
    return nodes[::-1]


def _picked(node: Any, marks: list[_Mark], *, about_media: bool) -> tuple[BlockPlace, ...]:
    media = [mark.place for mark in marks if mark.media]
    if about_media and media:
        return (media[-1],)
    if isinstance(node, str):  # neighbours that were sent as one text
        return tuple(mark.place for mark in marks)
    whole = isinstance(node, list) or (isinstance(node, dict) and "role" in node)
    return () if whole and len(marks) > 1 else (marks[0].place,)


class _Probe:
    """Makes messages of the same shape with a mark in each block."""

    def __init__(self) -> None:
        self.media: dict[Digest, bytes] = {}
        self._marks: list[_Mark] = []
        self._in_base64: dict[str, int] = {}

    def marks(self, node: Any) -> list[_Mark]:
        """The marks in a part of the body, each once, in their order."""
        text = msgspec.json.encode(node).decode()
        found = {(one.start(), int(one[1])) for one in _MARKED.finditer(text)}
        found |= {
            (text.index(data), number) for data, number in self._in_base64.items() if data in text
        }
        return [self._marks[number] for number in dict.fromkeys(n for _, n in sorted(found))]

    def message(self, message: Message, row: Places) -> Message:
        """The message with its blocks marked."""
        if isinstance(message, ToolMessage):
            output, *attachments = row
            return structs.replace(
                message,
                output=self._text(output),
                attachments=tuple(map(self._medium, message.attachments, attachments)),
            )
        content: Any = tuple(map(self._block, message.content, row))
        if isinstance(message, AssistantMessage) and message.native is not None:
            return structs.replace(message, content=content, native=self._native(message, row))
        return structs.replace(message, content=content)

    def _block(self, block: TurnBlock, place: BlockPlace | None) -> TurnBlock:
        match block:
            case TextBlock():
                return TextBlock(text=self._text(place))
            case ThinkingBlock():
                return structs.replace(block, text=self._text(place))
            case ToolCallBlock():
                arguments = msgspec.json.encode({"mark": self._text(place)}).decode()
                return structs.replace(block, arguments=arguments)
            case MediaBlock():
                return self._medium(block, place)

    def _text(self, place: BlockPlace | None) -> str:
        return "no mark" if place is None else self._mark(_Mark(place))

    def _mark(self, mark: _Mark) -> str:
        self._marks.append(mark)
        return _MARK.format(len(self._marks) - 1)

    def _medium(self, block: MediaBlock, place: BlockPlace | None) -> MediaBlock:
        if place is None:
            return block
        data = self._mark(_Mark(place, media=True)).encode()
        digest = Digest(data.hex())
        self.media[digest] = data
        self._in_base64[b64encode(data).decode()] = len(self._marks) - 1
        return structs.replace(block, digest=digest)

    def _native(self, message: AssistantMessage, row: Places) -> dict[str, Any] | None:
        """A native form whose items hold a mark as one more field; they stand for the whole."""
        native: dict[str, Any] = dict(message.native or {})
        items = native.get("items")
        if isinstance(items, list) and row and row[0] is not None:
            whole = BlockPlace(seq=row[0].seq, index=-1)
            native["items"] = [
                {**item, "mark": self._text(whole)} if isinstance(item, dict) else item
                for item in items
            ]
        return native


def body_of(encode: Callable[[Request, Media], Any]) -> Encode:
    """An `Encode` out of a `Wire.encode`."""
    return lambda request, media: bytes(encode(request, media).body)
