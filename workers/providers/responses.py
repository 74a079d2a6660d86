"""OpenAI's Responses API: the wire of `openai-responses`, and of compatible servers that speak it.

Nothing is kept at the provider (store=false): each request says the whole conversation again, and
what a turn holds beyond its text and calls goes back as the items that it came in. What comes
back is read in `responses_answer`.
"""

import re
from base64 import b32encode, b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Raw

from ipc.content import (
    MediaBlock,
    TextBlock,
    ToolCallBlock,
)
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
from workers.providers.responses_answer import Stream, Whole
from workers.providers.responses_items import Item, is_item, sendable
from workers.providers.responses_turn import FAMILY

if TYPE_CHECKING:
    from workers.providers.base import Outside, Provider

ENDPOINT: Final = "https://api.openai.com/v1"
PATH: Final = "/responses"
COMPATIBLE: Final = "openai-compatible"  # the adaptor that has no endpoint of its own
OUTPUT_TOKENS_MIN: Final = 16  # a smaller limit is a 400, so it is sent as this one

_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])


def make(binding: FrozenModelBinding, outside: "Outside") -> "Provider":
    """The provider of a frozen binding."""
    from workers.providers.http import HttpProvider  # noqa: PLC0415 - a codec needs no aiohttp

    return HttpProvider(Responses, binding, outside)


# --- the request -------------------------------------------------------------------------------

_KEPT_ID: Final = re.compile(r"[!-~]{1,64}", re.ASCII)  # what the API takes as a call's id
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_PDF: Final = "application/pdf"
_MARK: Final = {"prompt_cache_breakpoint": {"mode": "explicit"}}


class Responses:
    """The Responses API as one model is asked: a pure codec."""

    def __init__(self, binding: FrozenModelBinding) -> None:
        self._binding = binding
        self._compatible = binding.adaptor == COMPATIBLE
        self._url = _address(binding.endpoint or ("" if self._compatible else ENDPOINT))
        self._native = binding.capabilities.native_replay != "unsupported"
        self._cache = binding.cache or {}

    def encode(self, request: Request, media: Media) -> HttpCall:
        """The call of one attempt; the input comes last, so that a history grows at its end."""
        if not self._url:
            raise CannotEncode("an openai-compatible provider needs an endpoint")
        said = _Input(media, native=self._native, rolling=bool(self._cache.get("rolling")))
        instructions = self._system(request.system, said)
        said.tell(request.messages)
        body = {
            "model": self._binding.wire_model,
            "stream": True,
            "store": False,
            **self._settings(request),
            **self._caching(request),
            **instructions,
            **self._tools(request.tools),
            "input": said.items,
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
            if value:
                headers[f"openai-{name}"] = str(value)
        return headers

    def _settings(self, request: Request) -> dict[str, Any]:
        asked = self._binding.generation
        if asked.stop or asked.seed is not None:
            raise CannotEncode("the Responses API knows neither stop nor seed", "unsupported")
        limit = request.max_output_tokens
        thinks = self._binding.capabilities.reasoning or self._binding.reasoning is not None
        settings = {
            # A model that does not reason answers this one with a 400.
            "include": ["reasoning.encrypted_content"] if thinks and self._native else None,
            "max_output_tokens": None if limit is None else max(limit, OUTPUT_TOKENS_MIN),
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "reasoning": self._reasoning(),
        }
        return {name: value for name, value in settings.items() if value is not None}

    def _reasoning(self) -> dict[str, str] | None:
        wish = self._binding.reasoning
        if wish is None:
            return None
        if wish.budget_tokens is not None:
            reason = "this family is told how hard to think by a word, not by a number of tokens"
            raise CannotEncode(reason, "unsupported")
        effort = "none" if wish.enabled is False else wish.effort
        if effort == "none":
            return {"effort": "none"}
        said = {} if effort in {None, "default"} else {"effort": str(effort)}
        return said | {"summary": "auto"}

    def _caching(self, request: Request) -> dict[str, Any]:
        """The key that finds a session's cached prefix again, and how long it is kept."""
        if self._compatible:
            template = str(self._cache.get("prompt_cache_key", "${session_id}"))
            key = template.replace("${session_id}", request.session_id)
            return {"prompt_cache_key": key} if key else {}
        said: dict[str, Any] = {"prompt_cache_key": request.session_id}
        retention = self._cache.get("prompt_cache_retention")
        if retention:
            said["prompt_cache_retention"] = retention
        options: dict[str, Any] = {}
        if self._cache.get("mode") == "explicit":  # "auto" is what it does unasked
            options["mode"] = "explicit"
        if self._cache.get("ttl"):
            options["ttl"] = self._cache["ttl"]
        return said | ({"prompt_cache_options": options} if options else {})

    def _system(self, text: str, said: "_Input") -> dict[str, str]:
        if not text.strip():
            return {}
        if not self._cache.get("system"):
            return {"instructions": text}
        # Instructions are a plain string, which has no place for a mark; a message has.
        part = {"type": "input_text", "text": text} | _MARK
        said.items.append({"type": "message", "role": "developer", "content": [part]})
        return {}

    def _tools(self, specs: Sequence[ToolSpec]) -> dict[str, Any]:
        if not specs:
            return {}
        said: dict[str, Any] = {"tools": [_tool(spec) for spec in specs]}
        choice = self._binding.generation.tool_choice
        if choice is not None:
            kind, _, name = choice.partition(":")
            said["tool_choice"] = {"type": "function", "name": name} if kind == "named" else choice
        said["parallel_tool_calls"] = self._binding.capabilities.parallel_tools
        return said


class _Input:
    """The items of one request; holds each call to its one result and ids to be there once."""

    def __init__(self, media: Media, *, native: bool, rolling: bool) -> None:
        self.items: list[Item] = []
        self._media = media
        self._native = native
        self._rolling = rolling
        self._ids: set[str] = set()  # of the wire, ever used
        self._open: dict[str, str] = {}  # our id to the wire's, of the turn before

    def tell(self, messages: Sequence[UserMessage | AssistantMessage | ToolMessage]) -> None:
        """All messages in their order; raises CannotEncode."""
        start = len(self.items)
        for index, message in enumerate(messages):
            if isinstance(message, ToolMessage):
                following = messages[index + 1 : index + 2]
                last = not (following and isinstance(following[0], ToolMessage))
                self._result(message, last=last)
                continue
            self._close()
            if isinstance(message, AssistantMessage):
                self._turn(message)
            else:
                self._user(message)
        self._close()
        if len(self.items) == start:
            raise CannotEncode("there is nothing to answer: no message holds any text")

    def _user(self, message: UserMessage) -> None:
        parts = [self._part(block) for block in message.content if not _blank(block)]
        if parts:
            self._mark(parts)
            self.items.append({"type": "message", "role": "user", "content": parts})

    def _result(self, message: ToolMessage, *, last: bool) -> None:
        wire_id = self._open.pop(message.model_call_id, None)
        if wire_id is None:
            raise CannotEncode(f"a result answers no open call: {message.model_call_id!r}")
        output: Any = message.output if message.output.strip() else "(no output)"
        if message.attachments or (self._rolling and last):
            parts: list[Item] = [{"type": "input_text", "text": output}]
            parts += [self._part(block) for block in message.attachments]
            if last:
                self._mark(parts)
            output = parts
        self.items.append({"type": "function_call_output", "call_id": wire_id, "output": output})

    def _mark(self, parts: list[Item]) -> None:
        """A prefix is only found again at a mark, so those of earlier requests stay where they are.

        The API writes the last few of them and looks for the last 80.
        """
        if self._rolling:
            parts[-1] = parts[-1] | _MARK

    def _part(self, block: TextBlock | MediaBlock) -> Item:
        if isinstance(block, TextBlock):
            return {"type": "input_text", "text": block.text}
        mime = block.mime.lower()
        data = self._media.get(block.digest)
        if data is None:
            return {"type": "input_text", "text": _not_sent(block, "its bytes could not be read")}
        if mime in _IMAGES:
            return {"type": "input_image", "detail": "auto", "image_url": _data_url(mime, data)}
        if mime == _PDF:
            name = block.name or "document.pdf"
            return {"type": "input_file", "filename": name, "file_data": _data_url(mime, data)}
        return {"type": "input_text", "text": _not_sent(block, "this API has no form for it")}

    # --- turns of the model ----------------------------------------------------------------------

    def _turn(self, message: AssistantMessage) -> None:
        asked = [block for block in message.content if isinstance(block, ToolCallBlock)]
        ids = [block.model_call_id for block in asked]
        for item in self._replayed(message.native, ids) or _plain_items(message):
            if item["type"] == "function_call":
                self.items.append(self._call(item))
            else:
                self.items.append(item)

    def _replayed(self, native: dict[str, Any] | None, ids: list[str]) -> list[Item]:
        """The items a turn came in, if they are ours and make the calls that the history knows."""
        if native is None or not self._native or native.get("family") != FAMILY:
            return []
        items = native.get("items")
        if not isinstance(items, list) or not all(map(is_item, items)):
            return []
        if [item.get("call_id") for item in items if item["type"] == "function_call"] != ids:
            return []
        return sendable(items)

    def _call(self, item: Item) -> Item:
        call_id, arguments = item["call_id"], item.get("arguments") or "{}"
        try:
            _OBJECT.decode(arguments)
        except (msgspec.DecodeError, TypeError, UnicodeEncodeError, RecursionError) as error:
            reason = f"the arguments of call {call_id!r} are no JSON object"
            raise CannotEncode(reason) from error
        wire_id = _wire_id(call_id)
        if wire_id in self._ids:
            raise CannotEncode(f"the call id {call_id!r} is there twice")
        self._ids.add(wire_id)
        self._open[call_id] = wire_id
        return item | {"call_id": wire_id, "arguments": arguments}

    def _close(self) -> None:
        if self._open:
            raise CannotEncode(f"calls have no result: {', '.join(self._open)}")


def _address(endpoint: str) -> str:
    """Where requests go: the path below an endpoint's own, its query kept."""
    if not endpoint:
        return ""
    parts = urlsplit(endpoint)
    path = parts.path.rstrip("/").removesuffix(PATH) + PATH
    return urlunsplit(parts._replace(path=path, fragment=""))


def _tool(spec: ToolSpec) -> Item:
    said: Item = {"type": "function", "name": spec.name}
    if spec.description.strip():
        said["description"] = spec.description
    return said | {"parameters": spec.parameters, "strict": False}


def _blank(block: TextBlock | MediaBlock) -> bool:
    return isinstance(block, TextBlock) and not block.text.strip()


def _not_sent(block: MediaBlock, why: str) -> str:
    return f"[{block.mime} of {block.byte_length} bytes: not sent, {why}]"


def _data_url(mime: str, data: bytes) -> str:
    return f"data:{mime};base64,{b64encode(data).decode()}"


def _wire_id(call_id: str) -> str:
    """What a call is named on the wire: a pure function of its id in the history."""
    if _KEPT_ID.fullmatch(call_id):
        return call_id
    digest = sha256(call_id.encode("utf-8", "replace")).digest()
    return "call_" + b32encode(digest)[:24].decode().lower()


def _plain_items(message: AssistantMessage) -> Iterator[Item]:
    """A turn in the words that any model of this wire takes; it can say no foreign reasoning."""
    for block in message.content:
        match block:
            case ToolCallBlock():
                yield {
                    "type": "function_call",
                    "call_id": block.model_call_id,
                    "name": block.name,
                    "arguments": block.arguments,
                }
            case MediaBlock():
                yield _answer(_not_sent(block, "a turn of a model can't hold it here"))
            case TextBlock() if not _blank(block):
                yield _answer(block.text)


def _answer(text: str) -> Item:
    part = {"type": "output_text", "text": text}
    return {"type": "message", "role": "assistant", "content": [part]}
