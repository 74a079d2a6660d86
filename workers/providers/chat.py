"""OpenAI's Chat Completions: the wire of `openai-chat`, and of the many servers that speak it too.

What comes back is read in `chat_answer`.
"""

import re
from base64 import b32encode, b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from ipc.content import MediaBlock, TextBlock, ThinkingBlock, ToolCallBlock
from ipc.events import FrozenModelBinding
from workers.providers.base import (
    AssistantMessage,
    CannotEncode,
    Decoder,
    HttpCall,
    Media,
    Request,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from workers.providers.chat_answer import CHUNKS, FAMILY, FIELDS, Stream, Whole

if TYPE_CHECKING:
    from workers.providers.base import Outside, Provider

ENDPOINT: Final = "https://api.openai.com/v1"
PATH: Final = "/chat/completions"
OPENAI: Final = frozenset({"openai-chat", "openai-responses"})  # the latter by request_endpoint

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def make(binding: FrozenModelBinding, outside: "Outside") -> "Provider":
    """The provider of a frozen binding."""
    from workers.providers.http import HttpProvider  # noqa: PLC0415 - a codec needs no aiohttp

    return HttpProvider(Chat, binding, outside)


# --- what servers differ in ----------------------------------------------------------------------


class Habits(Struct, frozen=True):
    """Where a server that says it is compatible is not, as far as a 4xx would follow from it."""

    cache_key: bool = True  # is told the default prompt_cache_key; one that is set always is
    usage: bool = True  # knows stream_options.include_usage; without it tells its usage anyway
    short_ids: bool = False  # takes call ids of nine letters and digits, no others
    echo: bool = False  # while it thinks, wants reasoning_content in each turn, if only empty


USUAL: Final = Habits()
HABITS: Final[dict[str, Habits]] = {  # by the host's name
    "api.cerebras.ai": Habits(cache_key=False),
    "api.deepseek.com": Habits(echo=True),
    "api.groq.com": Habits(cache_key=False),
    "api.mistral.ai": Habits(usage=False, short_ids=True),
}


# --- the request ---------------------------------------------------------------------------------

# Ids that are sent as they came. Others are long, or foreign: OpenAI takes 40 characters, Mistral
# exactly 9, and each is said twice a call for as long as the history lives. Kimi reads its own.
_KEPT_ID: Final = re.compile(r"[!-~]{1,20}|functions\.[\w-]{1,64}:\d{1,4}", re.ASCII)
_SHORT_ID: Final = re.compile(r"[a-zA-Z0-9]{9}")

_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_SOUNDS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_PDF: Final = "application/pdf"

_MARKER: Final = {"mode": "explicit"}


class Chat:
    """Chat Completions as one model is asked: a pure codec."""

    def __init__(self, binding: FrozenModelBinding) -> None:
        self._binding = binding
        self._openai = binding.adaptor in OPENAI
        endpoint = binding.endpoint or (ENDPOINT if self._openai else "")
        self._url = _address(endpoint)
        self._habits = HABITS.get(urlsplit(endpoint).hostname or "", USUAL)
        self._native = binding.capabilities.native_replay != "unsupported"

    def encode(self, request: Request, media: Media) -> HttpCall:
        """The call of one attempt; the messages come last, so that a history grows at its end."""
        if not self._url:
            raise CannotEncode("an openai-compatible provider needs an endpoint")
        body = {
            "model": self._binding.wire_model,
            "stream": True,
            **self._settings(request),
            **self._caching(request),
            **self._tools(request.tools),
            "messages": self._messages(request, media),
        }
        try:
            encoded = msgspec.json.encode(body)
        except (UnicodeEncodeError, TypeError, RecursionError) as error:
            raise CannotEncode(f"the request is no JSON: {error}") from error
        return HttpCall(url=self._url, headers=self._headers(), body=encoded)

    def decoder(self, content_type: str) -> Decoder:
        """Of server-sent events, or of one object when the server did not stream."""
        if content_type.partition(";")[0].strip().lower() == "application/json":
            return Whole(native=self._native)
        return Stream(native=self._native)

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        for name in ("organization", "project"):
            value = self._binding.options.get(name)
            if value and self._openai:
                headers[f"openai-{name}"] = str(value)
        return headers

    def _settings(self, request: Request) -> dict[str, Any]:
        asked = self._binding.generation
        limit = "max_completion_tokens" if self._openai else "max_tokens"
        settings = {
            "stream_options": {"include_usage": True} if self._habits.usage else None,
            limit: request.max_output_tokens,
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "stop": list(asked.stop) or None,
            "seed": asked.seed,
            "reasoning_effort": self._effort(),
            "store": self._binding.options.get("store"),
        }
        return {name: value for name, value in settings.items() if value is not None}

    def _effort(self) -> str | None:
        wish = self._binding.reasoning
        if wish is None:
            return None
        if wish.effort is None:
            reason = "this family is told how hard to think by a word (reasoning_effort)"
            raise CannotEncode(reason, "unsupported")
        return None if wish.effort == "default" else wish.effort

    def _caching(self, request: Request) -> dict[str, Any]:
        """The key that finds a session's cached prefix again, and how long it is kept."""
        table = self._binding.cache
        if not self._openai:
            if table is None and not self._habits.cache_key:
                return {}
            template = str((table or {}).get("prompt_cache_key", "${session_id}"))
            key = template.replace("${session_id}", request.session_id)
            return {"prompt_cache_key": key} if key else {}
        said: dict[str, Any] = {"prompt_cache_key": request.session_id}
        options: dict[str, Any] = {}
        if table:
            if table.get("prompt_cache_retention"):
                said["prompt_cache_retention"] = table["prompt_cache_retention"]
            if table.get("mode") == "explicit":  # "auto" is what it does unasked
                options["mode"] = "explicit"
            if table.get("ttl"):
                options["ttl"] = table["ttl"]
        return said | ({"prompt_cache_options": options} if options else {})

    def _tools(self, specs: Sequence[ToolSpec]) -> dict[str, Any]:
        if not specs:
            return {}
        said: dict[str, Any] = {"tools": [_tool(spec) for spec in specs]}
        choice = self._binding.generation.tool_choice
        if choice is not None:
            kind, _, name = choice.partition(":")
            named = {"type": "function", "function": {"name": name}}
            said["tool_choice"] = named if kind == "named" else choice
        # True is every server's own way, and some models refuse to be told.
        if not self._binding.capabilities.parallel_tools:
            said["parallel_tool_calls"] = False
        return said

    # --- messages ------------------------------------------------------------------------------

    def _messages(self, request: Request, media: Media) -> list[dict[str, Any]]:
        said: list[dict[str, Any]] = []
        if request.system.strip():
            said.append({"role": "system", "content": request.system})
        start = len(said)
        pairs = _Pairs()
        shown: list[dict[str, Any]] = []  # what the tool results of this round brought to see
        for message in request.messages:
            if isinstance(message, ToolMessage):
                said.append(self._result(message, media, shown, pairs))
                continue
            _show(said, shown)
            pairs.close()
            if isinstance(message, AssistantMessage):
                told = self._turn(message, pairs)
            else:
                content = _user_content(message, media)
                told = {"role": "user", "content": content} if content else None
            if told is not None:
                said.append(told)
        _show(said, shown)
        pairs.close()
        if len(said) == start:
            raise CannotEncode("there is nothing to answer: no message holds any text")
        self._mark(said, start)
        return said

    def _mark(self, said: list[dict[str, Any]], start: int) -> None:
        table = self._binding.cache
        if not table:
            return
        if table.get("system") and start:
            said[0] = _marked(said[0])
        if table.get("rolling"):
            said[-1] = _marked(said[-1])

    def _turn(self, message: AssistantMessage, pairs: "_Pairs") -> dict[str, Any] | None:
        native = _native_item(message.native) if self._native else {}
        text = [_turn_text(block) for block in message.content if not _silent(block)]
        content: Any = "".join(text) or None
        if content is not None and not content.strip():
            content = None
        field = native.get("thinking")
        thought = "".join(
            block.text for block in message.content if isinstance(block, ThinkingBlock)
        )
        if field == CHUNKS and thought:
            content = _chunks(message)
        calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
        if content is None and not calls:
            return None
        said: dict[str, Any] = {"role": "assistant", "content": content}
        details = native.get("reasoning_details")
        if isinstance(details, list):
            said["reasoning_details"] = details
        elif field in FIELDS and thought:
            said[field] = thought
        if self._habits.echo and self._binding.capabilities.reasoning:
            said.setdefault("reasoning_content", "")
        if calls:
            extras = native.get("calls")
            said["tool_calls"] = [
                self._call(call, pairs, extras if isinstance(extras, dict) else {})
                for call in calls
            ]
        return said

    def _call(self, call: ToolCallBlock, pairs: "_Pairs", extras: dict[str, Any]) -> dict[str, Any]:
        arguments = call.arguments or "{}"
        try:
            _OBJECT.decode(arguments)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            reason = f"the arguments of call {call.model_call_id!r} are no JSON object"
            raise CannotEncode(reason) from error
        wire_id = pairs.asked(call.model_call_id, self._wire_id(call.model_call_id))
        said: dict[str, Any] = {
            "id": wire_id,
            "type": "function",
            "function": {"name": call.name, "arguments": arguments},
        }
        if call.model_call_id in extras:
            said["extra_content"] = extras[call.model_call_id]
        return said

    def _result(
        self, message: ToolMessage, media: Media, shown: list[dict[str, Any]], pairs: "_Pairs"
    ) -> dict[str, Any]:
        wire_id = pairs.answered(message.model_call_id)
        notes: list[str] = []
        files: list[dict[str, Any]] = []
        for block in message.attachments:
            part = _media_part(block, media)
            if part["type"] == "text":
                notes.append(part["text"])
            else:
                files.append(part)
        if files:  # a tool message holds text alone
            label = f"[What {message.name} brought, call {wire_id}]"
            shown.extend([{"type": "text", "text": label}, *files])
        output = message.output if message.output.strip() else "(no output)"
        content = "\n\n".join([output, *notes])
        return {"role": "tool", "tool_call_id": wire_id, "content": content}

    def _wire_id(self, call_id: str) -> str:
        """What a call is named on the wire: a pure function of its id in the history."""
        kept = _SHORT_ID if self._habits.short_ids else _KEPT_ID
        if kept.fullmatch(call_id):
            return call_id
        return b32encode(sha256(call_id.encode("utf-8", "replace")).digest())[:9].decode().lower()


class _Pairs:
    """Holds each call to its one result, and ids to be there once; raises CannotEncode."""

    def __init__(self) -> None:
        self._wire: set[str] = set()  # ever used
        self._open: dict[str, str] = {}  # our id to the wire's, of the turn before

    def asked(self, call_id: str, wire_id: str) -> str:
        if wire_id in self._wire:
            raise CannotEncode(f"the call id {call_id!r} is there twice")
        self._wire.add(wire_id)
        self._open[call_id] = wire_id
        return wire_id

    def answered(self, call_id: str) -> str:
        wire_id = self._open.pop(call_id, None)
        if wire_id is None:
            raise CannotEncode(f"a result answers no open call: {call_id!r}")
        return wire_id

    def close(self) -> None:
        if self._open:
            raise CannotEncode(f"calls have no result: {', '.join(self._open)}")


def _address(endpoint: str) -> str:
    """Where requests go: the path below an endpoint's own, its query kept."""
    if not endpoint:
        return ""
    parts = urlsplit(endpoint)
    path = parts.path.rstrip("/").removesuffix(PATH) + PATH
    return urlunsplit(parts._replace(path=path, fragment=""))


def _tool(spec: ToolSpec) -> dict[str, Any]:
    said: dict[str, Any] = {"name": spec.name}
    if spec.description.strip():
        said["description"] = spec.description
    return {"type": "function", "function": said | {"parameters": spec.parameters}}


def _user_content(message: UserMessage, media: Media) -> str | list[dict[str, Any]]:
    """A text where there is nothing else: every server takes that."""
    parts = [
        {"type": "text", "text": block.text}
        if isinstance(block, TextBlock)
        else _media_part(block, media)
        for block in message.content
        if not (isinstance(block, TextBlock) and not block.text.strip())
    ]
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _media_part(block: MediaBlock, media: Media) -> dict[str, Any]:
    """The block in the family's own form, or a text that says why it is not sent."""
    mime = block.mime.lower()
    data = media.get(block.digest)
    if data is None:
        return _not_sent(block, "its bytes could not be read")
    if mime in _IMAGES:
        return {"type": "image_url", "image_url": {"url": _data_url(mime, data)}}
    if mime == _PDF:
        name = block.name or "document.pdf"
        return {"type": "file", "file": {"filename": name, "file_data": _data_url(mime, data)}}
    if mime in _SOUNDS:
        sound = {"data": b64encode(data).decode(), "format": _SOUNDS[mime]}
        return {"type": "input_audio", "input_audio": sound}
    return _not_sent(block, "this provider has no form for it")


def _not_sent(block: MediaBlock, why: str) -> dict[str, Any]:
    size = block.byte_length
    return {"type": "text", "text": f"[{block.mime} of {size} bytes: not sent, {why}]"}


def _data_url(mime: str, data: bytes) -> str:
    return f"data:{mime};base64,{b64encode(data).decode()}"


def _show(said: list[dict[str, Any]], shown: list[dict[str, Any]]) -> None:
    if shown:
        said.append({"role": "user", "content": list(shown)})
        shown.clear()


def _silent(block: object) -> bool:
    return isinstance(block, ThinkingBlock | ToolCallBlock)


def _turn_text(block: object) -> str:
    if isinstance(block, MediaBlock):
        note = _not_sent(block, "a turn of the model is sent as text")
        return str(note["text"])
    return block.text if isinstance(block, TextBlock) else ""


def _chunks(message: AssistantMessage) -> list[dict[str, Any]]:
    """A turn as Mistral streams it: thinking and text in their order."""
    chunks: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, ThinkingBlock) and block.text.strip():
            chunks.append({"type": "thinking", "thinking": [{"type": "text", "text": block.text}]})
        elif isinstance(block, TextBlock) and block.text.strip():
            chunks.append({"type": "text", "text": block.text})
    return chunks


def _native_item(native: dict[str, Any] | None) -> dict[str, Any]:
    """What this family kept of a turn; nothing when another did."""
    if not native or native.get("family") != FAMILY:
        return {}
    items = native.get("items")
    first = items[0] if isinstance(items, list) and items else None
    return first if isinstance(first, dict) else {}


def _marked(message: dict[str, Any]) -> dict[str, Any]:
    """The message with a cache breakpoint at its end, which only a content part can carry."""
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    if not parts:
        return message
    parts[-1] = parts[-1] | {"prompt_cache_breakpoint": _MARKER}
    return message | {"content": parts}
