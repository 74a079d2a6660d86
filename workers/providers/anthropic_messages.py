"""The conversation in the words of Anthropic's Messages: blocks, roles that alternate, pairs."""

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from ipc.content import (
    InputBlock,
    MediaBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    TurnBlock,
)
from workers.providers.base import (
    AssistantMessage,
    CannotEncode,
    Media,
    Message,
    ToolMessage,
    UserMessage,
)

FAMILY: Final = "anthropic"  # of what `native_replay` keeps

Json: TypeAlias = dict[str, Any]

_OBJECT: Final = msgspec.json.Decoder(Json)


def messages(history: Iterable[Message], media: Media) -> list[Json]:
    """The messages, neighbours of one role made one, since roles must alternate."""
    said = _without_last_thoughts(_spoken(history, media))
    if said and said[0]["role"] == "assistant":
        said.insert(0, {"role": "user", "content": [text_block("(The conversation goes on.)")]})
    return said


def _without_last_thoughts(spoken: list[Json]) -> list[Json]:
    """The same without what the API refuses: a turn of the model that ends in thinking."""
    said: list[Json] = []
    for message in spoken:
        blocks = message["content"]
        while message["role"] == "assistant" and blocks and blocks[-1]["type"] in _THOUGHTS:
            blocks.pop()
        _say(said, message["role"], blocks)
    return said


_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})


def _spoken(history: Iterable[Message], media: Media) -> list[Json]:
    said: list[Json] = []
    for message in history:
        match message:
            case UserMessage(content=content):
                _say(said, "user", _input(content, media))
            case ToolMessage():
                _say(said, "user", [_result(message, media)])
            case AssistantMessage():
                _say(said, "assistant", _turn(message))
    return said


def _say(said: list[Json], role: str, blocks: list[Json]) -> None:
    if not blocks:
        return
    if not said or said[-1]["role"] != role:
        said.append({"role": role, "content": blocks})
        return
    content: list[Json] = said[-1]["content"]
    if blocks[0]["type"] != "tool_result":
        content.extend(blocks)
        return
    # Results come first, whatever else a person said meanwhile.
    results = sum(block["type"] == "tool_result" for block in content)
    content[results:results] = blocks


def check(said: list[Json]) -> None:
    """Raises CannotEncode for what the API would refuse: a call without its result, and so on."""
    if not said:
        raise CannotEncode("there is nothing to be said to the model")
    seen: set[str] = set()
    open_calls: list[str] = []
    for message in said:
        content = message["content"]
        answered = [one["tool_use_id"] for one in content if one["type"] == "tool_result"]
        if sorted(answered) != sorted(open_calls):
            odd = min(set(answered) ^ set(open_calls), default=answered[0] if answered else "")
            raise CannotEncode(f"a tool call and its result don't pair: {odd}")
        open_calls = [one["id"] for one in content if one["type"] == "tool_use"]
        for call in open_calls:
            if call in seen:
                raise CannotEncode(f"two tool calls have one id: {call}")
            seen.add(call)
    if open_calls:
        raise CannotEncode(f"a tool call has no result: {open_calls[0]}")


def text_block(text: str) -> Json:
    """A block of text, which must not be blank."""
    return {"type": "text", "text": text}


def _input(content: Iterable[InputBlock], media: Media) -> list[Json]:
    blocks = []
    for block in content:
        if isinstance(block, MediaBlock):
            blocks.append(_medium(block, media))
        elif block.text.strip():  # a blank one makes the API refuse the request
            blocks.append(text_block(block.text))
    return blocks


def _result(message: ToolMessage, media: Media) -> Json:
    output = message.output if message.output.strip() else ""
    attached = [_medium(block, media) for block in message.attachments]
    content: str | list[Json] = output or "(no output)"
    if attached:
        content = [text_block(output), *attached] if output else attached
    made: Json = {
        "type": "tool_result",
        "tool_use_id": _wire_id(message.model_call_id),
        "content": content,
    }
    if message.is_error:
        made["is_error"] = True
    return made


_IMAGES: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})


def _medium(block: MediaBlock, media: Media) -> Json:
    data = media.get(block.digest)
    if data is None:
        return _not_sent(block, "it could not be read")
    if block.mime in _IMAGES:
        return {"type": "image", "source": _base64(block.mime, data)}
    if block.mime == "application/pdf":
        return _document(block, _base64(block.mime, data))
    if block.mime.startswith("text/"):
        text = data.decode(errors="replace")
        if not text.strip():
            return _not_sent(block, "it is empty")
        return _document(block, {"type": "text", "media_type": "text/plain", "data": text})
    return _not_sent(block, "the model takes no such file")


def _base64(mime: str, data: bytes) -> Json:
    return {"type": "base64", "media_type": mime, "data": b64encode(data).decode()}


def _document(block: MediaBlock, source: Json) -> Json:
    made: Json = {"type": "document", "source": source}
    if block.name and block.name.strip():
        made["title"] = block.name
    return made


def _not_sent(block: MediaBlock, why: str) -> Json:
    return text_block(f"[{block.mime} of {block.byte_length} bytes: not sent, {why}]")


def _turn(message: AssistantMessage) -> list[Json]:
    """A turn as it was, when its native form may be sent, else in the words of its content."""
    items = _native(message.native)
    if items is None:
        return [made for block in message.content if (made := block_of(block)) is not None]
    return [
        {**item, "id": _wire_id(item["id"])} if item["type"] == "tool_use" else item
        for item in items
    ]


def _native(native: Json | None) -> list[Json] | None:
    """The blocks of a native form of this family; None for any other."""
    if native is None or native.get("family") != FAMILY:
        return None
    items = native.get("items")
    if not isinstance(items, list) or not items:
        return None
    return items if all(_is_block(item) for item in items) else None


def _is_block(item: object) -> bool:
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        return False
    return item["type"] != "tool_use" or isinstance(item.get("id"), str)


def block_of(block: TurnBlock) -> Json | None:
    """One block of a turn; None for what may not go out: blank text, unsigned thinking."""
    match block:
        case TextBlock(text=text) if text.strip():
            return text_block(text)
        case ThinkingBlock(text=text, redacted=True) if text:
            return {"type": "redacted_thinking", "data": text}
        case ThinkingBlock(text=text, signature=signature, redacted=False) if signature:
            return {"type": "thinking", "thinking": text, "signature": signature}
        case ToolCallBlock():
            return {
                "type": "tool_use",
                "id": _wire_id(block.model_call_id),
                "name": block.name,
                "input": _arguments(block),
            }
        case _:
            return None


def _arguments(call: ToolCallBlock) -> Raw:
    """The model's own JSON, byte for byte, so that numbers stay as it wrote them."""
    text = call.arguments if call.arguments.strip() else "{}"
    try:
        _OBJECT.decode(text)
        return Raw(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        reason = f"the arguments of {call.name} are no JSON object: {error}"
        raise CannotEncode(reason, "invalid_tool_input") from error


_ODD: Final = re.compile(r"[^a-zA-Z0-9_-]")


def _wire_id(call_id: str) -> str:
    """The id of a call in letters that the API takes; another family's may have more."""
    plain = _ODD.sub("_", call_id)
    if plain == call_id and plain:
        return plain
    # Ids that differ in odd letters only must not become one.
    return f"{plain}_{sha256(call_id.encode(errors='surrogatepass')).hexdigest()[:8]}"
