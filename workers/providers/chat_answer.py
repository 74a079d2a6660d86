"""What a server of Chat Completions answers: a stream of chunks, or one object, made a turn.

Text between <think> tags is text: a server that can take them out says so in a field of its own.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from json import JSONDecodeError
from json import dumps as plain_dumps
from json import loads as plain_loads
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipc.content import COUNT_MAX, FinishReason, Usage
from ipc.events import ModelErrorKind, ModelErrorStage
from workers.providers.base import (
    Assembler,
    Failed,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    failure,
)
from workers.providers.errors import in_stream
from workers.providers.sse import EVENT_BYTES_MAX, Events, TooLong

FAMILY: Final = "chat"
NATIVE_BYTES_MAX: Final = 1024 * 1024  # what is kept of a turn beyond its content
BODY_BYTES_MAX: Final = 64 * 1024 * 1024  # of an answer that is one JSON object

# The fields that servers name a turn's reasoning; CHUNKS is Mistral's way, in the content itself.
FIELDS: Final = ("reasoning_content", "reasoning")
CHUNKS: Final = "content"

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

# Types are named only where every server agrees; what may differ is looked at when it is used.


class _Function(Struct, gc=False):
    name: Any = None
    arguments: Any = None


class _Fragment(Struct, gc=False):
    index: Any = None
    id: Any = None
    function: _Function | None = None
    extra_content: Any = None  # Google's: a signature of the thought behind the call


class _Delta(Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    refusal: Any = None
    tool_calls: list[_Fragment] | None = None
    function_call: _Function | None = None


class _Choice(Struct, gc=False):
    index: Any = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: Any = None
    usage: Any = None  # Moonshot says it here
    error: Any = None


class _Chunk(Struct, gc=False):
    id: Any = None
    object: Any = None
    model: Any = None
    choices: list[_Choice] | None = None
    usage: Any = None
    x_groq: Any = None
    error: Any = None
    message: Any = None  # these of an error that is not wrapped
    type: Any = None
    code: Any = None


_CHUNK: Final = msgspec.json.Decoder(_Chunk)
_NO_FUNCTION: Final = _Function()
_NO_CHUNK: Final = _Chunk()
_STATUS: Final = re.compile(r"[45]\d\d")

REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "refusal": "refused",
}
# Words that say that a turn was given up, not ended.
GIVEN_UP: Final[dict[str, ModelErrorKind]] = {
    "error": "provider",
    "network_error": "provider",
    "abort": "provider",
    "insufficient_system_resource": "overload",
}


class _Broken(Exception):
    """An event that holds no chunk; `cut` when it only ends too early."""

    def __init__(self, reason: str, *, cut: bool) -> None:
        super().__init__(reason)
        self.cut = cut


class _Growing:
    """A tool call under construction."""

    __slots__ = ("arguments", "extra", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra: Any = None

    def goes_on(self, call_id: str, name: str, arguments: str, *, again: bool) -> bool:
        """Whether a fragment belongs here. `again`: its event had one for this call before.

        Servers give every call of a turn the index 0, or none at all, or repeat id and name with
        each fragment: where ids don't tell, a name that comes after whole arguments does.
        """
        if call_id and self.id:
            return call_id == self.id
        if not name or not self.name:
            return True
        if again:
            return False
        if name == self.name and not arguments.lstrip().startswith("{"):
            return True
        ended = bool(self.arguments) and self.arguments[-1].rstrip().endswith("}")
        return not (ended and _whole("".join(self.arguments)))

    def grow(self, call_id: str, name: str, arguments: str) -> None:
        self.id = self.id or call_id
        if name:
            self.name = name if name.startswith(self.name) else self.name + name
        if arguments:
            self.arguments.append(arguments)


class _Detail:
    """One of OpenRouter's reasoning_details, put together from its fragments."""

    __slots__ = ("fields", "texts")

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.texts: dict[str, list[str]] = {}

    def takes(self, other: dict[str, Any]) -> bool:
        """Whether `other` is more of this one: what is encrypted or signed is whole."""
        fields = self.fields
        ids = {fields.get("id"), other.get("id")} - {None}
        return (
            fields.get("type") == other.get("type") != "reasoning.encrypted"
            and fields.get("index") == other.get("index")
            and not fields.get("signature")
            and len(ids) <= 1
        )

    def add(self, other: dict[str, Any]) -> None:
        for name, value in other.items():
            if name in {"text", "summary"} and isinstance(value, str):
                self.texts.setdefault(name, []).append(value)
                self.fields.setdefault(name, None)
            elif self.fields.get(name) is None:
                self.fields[name] = value

    def whole(self) -> dict[str, Any]:
        texts = {name: "".join(texts) for name, texts in self.texts.items()}
        return {name: texts.get(name, value) for name, value in self.fields.items()}


class _Turn:
    """A turn under construction, out of chunks; `parts` is what it has to tell since `take`."""

    def __init__(self, *, native: bool) -> None:
        self.finish = ""  # the server's own word
        self.progress = 0
        self.received = 0  # bytes
        self.over = False
        self._native = native
        self._assembler = Assembler()
        self._parts: list[Part] = []
        self._run: list[str] = []  # neighbouring text, or neighbouring thinking
        self._thinks = False
        self._pieces = 0  # of anything
        self._refused = False
        self._field = ""  # where the thinking came in
        self._details: list[_Detail] = []
        self._calls: list[_Growing] = []
        self._at: dict[int, _Growing] = {}
        self._usage: dict[str, Any] = {}
        self._about: dict[str, Any] = {}

    def take(self) -> list[Part]:
        """What there is to tell since the last time."""
        self._flush()
        parts, self._parts = self._parts, []
        return parts

    def chunk(self, chunk: _Chunk) -> None:
        """Take what one event says."""
        if chunk.error or chunk.object == "error":
            self.fail(_told(chunk.error or chunk, self.received))
            return
        if chunk.choices:
            for choice in chunk.choices:
                if not choice.index:  # of several answers the first; it is often not numbered
                    self._choice(choice)
        if chunk.x_groq and isinstance(chunk.x_groq, dict):
            self._count(chunk.x_groq.get("usage"))
        if chunk.usage:
            self._count(chunk.usage)
        if not self._about:
            about = {"id": chunk.id, "model": chunk.model}
            self._about = {name: value for name, value in about.items() if value}

    def end(self) -> None:
        """The body has said all it had to say."""
        if self.over:
            return
        given_up = GIVEN_UP.get(self.finish.lower())
        if not self.finish:
            reason = "the answer ended before the model had finished its turn"
            self.fail(self._failure("unexpected_eof", reason))
        elif given_up is not None:
            reason = f"the provider gave the turn up: finish_reason {self.finish}"
            self.fail(self._failure(given_up, reason, vendor_code=self.finish))
        else:
            self._done()

    def fail(self, failed: Failed) -> None:
        """End the turn with a failure; what was said before is still told."""
        if not self.over:
            self._flush()
            self._parts.append(failed)
            self.over = True

    def broken(self, reason: str) -> None:
        """End the turn because the body can't be read."""
        self.fail(self._failure("invalid_response", reason))

    # --- what a chunk holds --------------------------------------------------------------------

    def _choice(self, choice: _Choice) -> None:
        delta = choice.delta
        if delta is None and not self._pieces:
            delta = choice.message
        if delta is not None:
            content = delta.content
            if type(content) is str and content and not _more(delta):  # once a token
                self._say(content, thinks=False)
                self.progress += 1
            else:
                self._delta(delta)
        if choice.finish_reason:
            self.finish = str(choice.finish_reason)
        if choice.usage:
            self._count(choice.usage)
        if choice.error:
            self.fail(_told(choice.error, self.received))

    def _delta(self, delta: _Delta) -> None:
        content = delta.content
        before = self._pieces
        self._think(delta)
        if isinstance(content, str):
            self._say(content, thinks=False)
        elif isinstance(content, list):
            self._chunks(content)
        if isinstance(delta.refusal, str) and delta.refusal:
            self._refused = True
            self._say(delta.refusal, thinks=False)
        if delta.tool_calls:
            self._fragments(delta.tool_calls)
        if delta.function_call is not None:
            self._fragments((_Fragment(function=delta.function_call),))
        if self._pieces > before:
            self.progress += 1

    def _think(self, delta: _Delta) -> None:
        details = delta.reasoning_details
        told = ""
        if isinstance(details, list):
            told = "".join(self._detail(item) for item in details if isinstance(item, dict))
        for field in FIELDS:
            text = getattr(delta, field)
            if isinstance(text, str) and text:  # some say the same in both
                self._field = field
                self._say(text, thinks=True)
                return
        self._say(told, thinks=True)

    def _detail(self, item: dict[str, Any]) -> str:
        if not self._details or not self._details[-1].takes(item):
            self._details.append(_Detail())
        self._details[-1].add(item)
        self._pieces += 1
        text = item.get("text") or item.get("summary")
        return text if isinstance(text, str) else ""

    def _chunks(self, chunks: list[Any]) -> None:
        for chunk in chunks:
            if not isinstance(chunk, dict):
                continue
            thinking = chunk.get("thinking")
            if chunk.get("type") == "thinking":
                self._field = CHUNKS
                inner = thinking if isinstance(thinking, list) else [{"text": thinking}]
                for part in inner:
                    self._say_of(part, thinks=True)
            else:
                self._say_of(chunk, thinks=False)

    def _say_of(self, part: Any, *, thinks: bool) -> None:
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str):
            self._say(text, thinks=thinks)

    def _say(self, text: str, *, thinks: bool) -> None:
        if text:
            if thinks is not self._thinks:
                self._flush()
                self._thinks = thinks
            self._run.append(text)
            self._pieces += 1

    def _flush(self) -> None:
        if not self._run:
            return
        text = "".join(self._run)
        self._run.clear()
        if self._thinks:
            self._assembler.thinking(text)
            self._parts.append(ThinkingPart(text))
        else:
            self._assembler.text(text)
            self._parts.append(TextPart(text))

    def _fragments(self, fragments: Iterable[_Fragment]) -> None:
        touched: list[_Growing] = []
        for fragment in fragments:
            function = fragment.function or _NO_FUNCTION
            call_id = fragment.id if isinstance(fragment.id, str) else ""
            name = function.name if isinstance(function.name, str) else ""
            arguments = _arguments(function.arguments)
            if not (call_id or name or arguments or fragment.extra_content):
                continue
            index = fragment.index if type(fragment.index) is int else None
            call = self._candidate(index, call_id)
            if call is None or not call.goes_on(call_id, name, arguments, again=call in touched):
                call = _Growing()
                self._calls.append(call)
            if index is not None:
                self._at[index] = call
            call.grow(call_id, name, arguments)
            call.extra = call.extra or fragment.extra_content
            touched.append(call)
            self._pieces += 1

    def _candidate(self, index: int | None, call_id: str) -> _Growing | None:
        if index is not None:
            return self._at.get(index)
        named = (call for call in reversed(self._calls) if call_id and call.id == call_id)
        return next(named, self._calls[-1] if self._calls else None)

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage = usage

    # --- the end -------------------------------------------------------------------------------

    def _done(self) -> None:
        self._flush()
        calls = list(self._named())
        for call in calls:
            self._assembler.add(call)
            self._parts.append(call)
        self._parts.append(
            self._assembler.done(
                self._reason(),
                _usage(self._usage),
                native_replay=self._kept(calls) if self._native else None,
                provider_metadata={"stop_reason": self.finish},
                response_metadata=self._about,
            )
        )
        self.over = True

    def _named(self) -> Iterator[ToolCallPart]:
        """The calls in the order they began; one without an id is named by its place."""
        used = {call.id for call in self._calls}
        for place, call in enumerate(self._calls):
            call_id = call.id or f"call_{place}"
            while not call.id and call_id in used:
                call_id += "_"
            arguments = "".join(call.arguments)
            yield ToolCallPart(model_call_id=call_id, name=call.name, arguments=arguments)

    def _reason(self) -> FinishReason:
        reason = REASONS.get(self.finish.lower(), "unknown")
        if self._refused and reason == "stop":
            return "refused"
        return "tool_calls" if self._calls and reason == "stop" else reason

    def _kept(self, calls: list[ToolCallPart]) -> dict[str, Any] | None:
        """What an equal model is to be sent back beside the content: see `Chat._turn`."""
        item: dict[str, Any] = {}
        details = [detail.whole() for detail in self._details]
        if details and (calls or any(one.get("signature") or one.get("data") for one in details)):
            item["reasoning_details"] = details
        elif self._field:
            item["thinking"] = self._field
        extras = {
            part.model_call_id: call.extra
            for part, call in zip(calls, self._calls, strict=True)
            if call.extra is not None
        }
        if extras:
            item["calls"] = extras
        if not item or len(msgspec.json.encode(item)) > NATIVE_BYTES_MAX:
            return None
        return {"family": FAMILY, "items": [item]}

    def _failure(self, kind: ModelErrorKind, reason: str, vendor_code: str | None = None) -> Failed:
        ended = kind == "unexpected_eof"
        stage: ModelErrorStage = "stream_finalize" if ended else "stream_decode"
        return failure(
            kind,
            reason,
            stage=stage,
            vendor_code=vendor_code,
            bytes_received=self.received,
        )


class Stream:
    """The decoder of server-sent events."""

    def __init__(self, *, native: bool, limit: int = EVENT_BYTES_MAX) -> None:
        self._events = Events(limit)
        self._turn = _Turn(native=native)
        self.progress = 0

    def feed(self, data: bytes) -> Sequence[Part]:
        """The parts that these bytes complete: text that came together is one part."""
        turn = self._turn
        if turn.over:
            return ()
        turn.received += len(data)
        try:
            for name, event in self._events.feed(data):
                try:
                    chunk = _CHUNK.decode(event)
                except (msgspec.DecodeError, RecursionError):
                    if event.startswith(b"[DONE]"):
                        turn.end()
                    else:
                        self._odd(name, event)
                else:
                    turn.chunk(chunk)
                if turn.over:
                    break
        except TooLong as error:
            turn.broken(str(error))
        self.progress = turn.progress
        return turn.take()

    def end(self) -> Sequence[Part]:
        """The last parts, if the body ended without [DONE]."""
        turn = self._turn
        if turn.over:
            return ()
        for _, event in self._events.end():
            try:
                turn.chunk(_read(event))
            except _Broken:
                break  # cut off, or [DONE] without its blank line
        turn.end()
        self.progress = turn.progress
        return turn.take()

    def _odd(self, name: str, event: bytes) -> None:
        try:
            self._turn.chunk(_read(event))
        except _Broken as error:
            if name in {"", "message", "error"}:
                shown = event[:200].decode("utf-8", "replace")
                self._turn.broken(f"an event of the stream can't be read ({error}): {shown}")


class Whole:
    """The decoder of one JSON object, for a server that does not stream."""

    def __init__(self, *, native: bool, limit: int = BODY_BYTES_MAX) -> None:
        self._limit = limit
        self._body = bytearray()
        self._turn = _Turn(native=native)
        self.progress = 0

    def feed(self, data: bytes) -> Sequence[Part]:
        """Nothing but a failure before the end: an object is read whole."""
        turn = self._turn
        if turn.over:
            return ()
        turn.received += len(data)
        self._body += data
        if len(self._body) > self._limit:
            turn.broken(f"the answer is longer than {self._limit} bytes")
        elif data.strip():  # OpenRouter sends white space while it waits
            self.progress += 1
        return turn.take()

    def end(self) -> Sequence[Part]:
        """All parts of the turn."""
        turn = self._turn
        if turn.over:
            return ()
        try:
            chunk = _read(bytes(self._body))
        except _Broken as error:
            if not error.cut:
                turn.broken(f"the answer can't be read ({error})")
        else:
            turn.chunk(chunk)
            if not turn.finish and chunk.choices:
                turn.finish = "unknown"  # an object that can be read was not cut
            elif not turn.finish:
                turn.broken("the answer holds no choices")
        turn.end()
        return turn.take()


def _more(delta: _Delta) -> Any:
    """Whether a delta holds anything beside its content."""
    return (
        delta.reasoning_content
        or delta.reasoning
        or delta.tool_calls
        or delta.refusal
        or delta.reasoning_details
        or delta.function_call
    )


# --- values --------------------------------------------------------------------------------------


def _read(data: bytes) -> _Chunk:
    """A chunk, with a second look at what msgspec refuses; raises _Broken."""
    try:
        return _CHUNK.decode(data)
    except RecursionError as error:
        raise _Broken("it is nested too deep", cut=False) from error
    except msgspec.ValidationError as error:
        if not data.lstrip().startswith(b"{"):
            return _NO_CHUNK  # null, a number: nothing that a model said
        raise _Broken(str(error), cut=False) from error
    except msgspec.DecodeError as error:
        refused = error
    # Half of a surrogate pair, or bytes that are no UTF-8: a tokenizer cut a character in two.
    try:
        loose = plain_dumps(plain_loads(data.decode("utf-8", "replace")), ensure_ascii=False)
        return _CHUNK.decode(loose.encode("utf-8", "replace"))
    except (JSONDecodeError, msgspec.DecodeError, RecursionError):
        raise _Broken(str(refused), cut="truncated" in str(refused)) from refused


def _whole(arguments: str) -> bool:
    try:
        _OBJECT.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False
    return True


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def _usage(said: dict[str, Any]) -> Usage:
    """Tokens as told; xAI counts reasoning beside the output, which its total gives away."""
    read = _inner(said, "prompt_tokens_details")
    wrote = _inner(said, "completion_tokens_details")
    asked, answered = _number(said.get("prompt_tokens")), _number(said.get("completion_tokens"))
    thought = _number(wrote.get("reasoning_tokens"))
    total = _number(said.get("total_tokens"))
    if asked is not None and answered is not None and thought and total:
        beside = asked + answered + thought
        answered = answered + thought if total == beside else answered
    cached = _number(read.get("cached_tokens"))
    return Usage(
        input_tokens=asked,
        output_tokens=answered,
        reasoning_tokens=thought,
        cache_read_tokens=_number(said.get("prompt_cache_hit_tokens"))
        if cached is None
        else cached,
        cache_write_tokens=_number(read.get("cache_write_tokens")),
    )


def _inner(said: dict[str, Any], name: str) -> dict[str, Any]:
    inner = said.get(name)
    return inner if isinstance(inner, dict) else {}


def _number(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= COUNT_MAX else None


def _told(error: Any, received: int) -> Failed:
    """The failure that an error inside the stream is: an object, a text, or a bare chunk."""
    if isinstance(error, _Chunk):
        error = {"message": error.message, "code": error.code, "type": error.type}
    if not isinstance(error, dict):
        return in_stream(message=str(error), bytes_received=received)
    code = error.get("code")
    status = int(code) if isinstance(code, int | str) and _STATUS.fullmatch(str(code)) else None
    words = (word for word in (code, error.get("type")) if isinstance(word, str))
    raw = _inner(error, "metadata").get("raw")  # OpenRouter: what the provider behind it said
    message = str(error.get("message") or "the provider reported an error")
    return in_stream(
        message=f"{message}: {raw}" if isinstance(raw, str) and raw else message,
        vendor_code=next((word for word in words if word and not word.isdecimal()), None),
        status=status,
        bytes_received=received,
    )
