"""What Gemini is sent of a history: contents made of parts, results right after their calls."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from ipc.content import InputBlock, MediaBlock, TextBlock, ToolCallBlock, TurnBlock
from workers.providers.base import (
    AssistantMessage,
    CannotEncode,
    Media,
    Message,
    ToolMessage,
    UserMessage,
)

Json: TypeAlias = dict[str, Any]

FAMILY: Final = "google"  # of what `native_replay` keeps

# What stands for the signature of a call that this model did not sign, since it is another's:
# https://ai.google.dev/gemini-api/docs/thought-signatures (FAQ, "transfer a trace from a
# different model"). Without it a model that signs its calls refuses the whole history.
FOREIGN_SIGNATURE: Final = "skip_thought_signature_validator"

_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])


def contents(messages: Iterable[Message], media: Media, *, signs: bool) -> list[Json]:
    """The messages as contents of alternating roles, the first one a person's.

    `signs` says that the model refuses a call without a signature, and takes media inside a
    result. Raises CannotEncode for a call without its one result, or the other way round.
    """
    made = _Contents(media, signs=signs)
    for message in messages:
        made.add(message)
    made.close()
    if not made.said:
        raise CannotEncode("there is nothing to be said to the model")
    if made.said[0]["role"] == "model":
        made.said.insert(0, {"role": "user", "parts": [_text("(The conversation goes on.)")]})
    return made.said


class _Call(NamedTuple):
    """A call that was sent: our id of it, and what its result must repeat."""

    id: str
    name: str
    wire_id: str | None  # where the model gave it one itself


class _Contents:
    """Contents under construction."""

    def __init__(self, media: Media, *, signs: bool) -> None:
        self.said: list[Json] = []
        self._media = media
        self._signs = signs
        self._seen: set[str] = set()
        self._open: list[_Call] = []
        self._results: dict[str, ToolMessage] = {}

    def add(self, message: Message) -> None:
        match message:
            case ToolMessage(model_call_id=call):
                if call in self._results:
                    raise CannotEncode(f"a tool call has two results: {call}")
                self._results[call] = message
            case UserMessage(content=content):
                self.close()
                self._say("user", [part for block in content for part in self._input(block)])
            case AssistantMessage():
                self.close()
                self._turn(message)

    def close(self) -> None:
        """Say the results of the turn before, in the order of its calls."""
        calls, self._open = self._open, []
        results, self._results = self._results, {}
        odd = {call.id for call in calls} ^ set(results)
        if odd:
            raise CannotEncode(f"a tool call and its result don't pair: {min(odd)}")
        beside: list[Json] = []  # media that a result can't hold come after all the results
        parts = [self._result(call, results[call.id], beside) for call in calls]
        self._say("user", parts + beside)

    def _say(self, role: str, parts: list[Json]) -> None:
        if not parts:
            return
        if self.said and self.said[-1]["role"] == role:
            self.said[-1]["parts"].extend(parts)
        else:
            self.said.append({"role": role, "parts": parts})

    def _turn(self, message: AssistantMessage) -> None:
        blocks = [block for block in message.content if isinstance(block, ToolCallBlock)]
        parts = native_parts(message.native, blocks)
        if parts is None:
            parts = [part for block in message.content if (part := part_of(block)) is not None]
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        for block, call in zip(blocks, calls, strict=True):
            if block.model_call_id in self._seen:
                raise CannotEncode(f"two tool calls have one id: {block.model_call_id}")
            self._seen.add(block.model_call_id)
            self._open.append(_Call(block.model_call_id, call["name"], call.get("id")))
        self._say("model", _signed(parts) if self._signs else list(parts))

    def _input(self, block: InputBlock) -> list[Json]:
        if isinstance(block, MediaBlock):
            return [_medium(block, self._media)]
        return [_text(block.text)] if block.text.strip() else []

    def _result(self, call: _Call, message: ToolMessage, beside: list[Json]) -> Json:
        output = message.output if message.output.strip() else "(no output)"
        response: Json = {} if call.wire_id is None else {"id": call.wire_id}
        response["name"] = call.name
        response["response"] = {"error" if message.is_error else "output": output}
        attached = [_medium(block, self._media) for block in message.attachments]
        inside = [each for each in attached if self._signs and _fits_inside(each)]
        if inside:
            response["parts"] = inside
        beside += [each for each in attached if each not in inside]
        return {"functionResponse": response}


def _signed(parts: list[Json]) -> list[Json]:
    """The parts with a signature at the first call, which is where a model looks for one."""
    made = list(parts)
    first = next((at for at, part in enumerate(made) if "functionCall" in part), None)
    if first is not None and not made[first].get("thoughtSignature"):
        made[first] = {**made[first], "thoughtSignature": FOREIGN_SIGNATURE}
    return made


def native_parts(
    native: Mapping[str, Any] | None, blocks: list[ToolCallBlock]
) -> list[Json] | None:
    """The parts of a native form of this family; None for any other.

    Its calls must be those of the content, or the results would name what was never asked.
    """
    if native is None or native.get("family") != FAMILY:
        return None
    items = native.get("items")
    if not isinstance(items, list) or not items or not all(map(_is_part, items)):
        return None
    calls = [item["functionCall"] for item in items if "functionCall" in item]
    same = len(calls) == len(blocks) and all(map(_is_of, calls, blocks))
    return items if same else None


def _is_part(item: object) -> bool:
    if not isinstance(item, dict) or not item:
        return False
    call = item.get("functionCall", {"name": ""})
    return isinstance(call, dict) and isinstance(call.get("name"), str)


def _is_of(call: Json, block: ToolCallBlock) -> bool:
    return call["name"] == block.name and call.get("id") in {None, block.model_call_id}


def part_of(block: TurnBlock) -> Json | None:
    """One block of a turn in plain words; None for what may not go out like that.

    That is blank text, and all thinking: a thought goes back only in the form it came in. A
    call has no id, since the model has never heard of ours: results are told apart by order.
    """
    match block:
        case TextBlock(text=text) if text.strip():
            return _text(text)
        case ToolCallBlock():
            return {"functionCall": {"name": block.name, "args": _arguments(block)}}
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


def _text(text: str) -> Json:
    return {"text": text}


# --- media -------------------------------------------------------------------------------------

# https://ai.google.dev/gemini-api/docs: image, document, audio and video understanding.
_TAKEN: Final = frozenset(
    {
        "image/png",
        "image/jpeg",
        "image/webp",
        "image/heic",
        "image/heif",
        "application/pdf",
        "audio/wav",
        "audio/mp3",
        "audio/mpeg",
        "audio/aiff",
        "audio/aac",
        "audio/ogg",
        "audio/flac",
        "video/mp4",
        "video/mpeg",
        "video/quicktime",
        "video/mov",
        "video/avi",
        "video/x-flv",
        "video/mpg",
        "video/webm",
        "video/wmv",
        "video/3gpp",
    }
)
# ... and function calling: what may stand inside a result.
_INSIDE: Final = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf"})


def _medium(block: MediaBlock, media: Media) -> Json:
    data = media.get(block.digest)
    if data is None:
        return _not_sent(block, "it could not be read")
    if not data:
        return _not_sent(block, "it is empty")
    plain = block.mime.startswith("text/")
    if not plain and block.mime not in _TAKEN:
        return _not_sent(block, "the model takes no such file")
    mime = "text/plain" if plain else block.mime
    return {"inlineData": {"mimeType": mime, "data": b64encode(data).decode()}}


def _not_sent(block: MediaBlock, why: str) -> Json:
    return _text(f"[{block.mime} of {block.byte_length} bytes: not sent, {why}]")


def _fits_inside(part: Json) -> bool:
    return "inlineData" in part and part["inlineData"]["mimeType"] in _INSIDE
