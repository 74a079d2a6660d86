"""What Anthropic's Messages answer, a stream of events or one object, as the parts of a turn."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from ipc.content import FinishReason, Usage
from workers.providers import errors, sse
from workers.providers.anthropic_messages import FAMILY, Json, block_of
from workers.providers.base import (
    Assembler,
    CannotEncode,
    Failed,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    failure,
)

NATIVE_BYTES_MAX: Final = 1024**2  # of what is kept of one turn, as JSON
BODY_BYTES_MAX: Final = 64 * 1024**2  # of an answer that is one object

_ENCODE: Final = msgspec.json.Encoder().encode
_OBJECT: Final = msgspec.json.Decoder(Json)


class _Delta(Struct, gc=False):
    """The change of a block; which field counts is said by `type`."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    citation: Json | None = None
    content: str | None = None
    encrypted_content: str | None = None


class _BlockDelta(Struct, gc=False):
    delta: _Delta
    index: int = 0


class _BlockStart(Struct):
    content_block: Raw
    index: int = 0


class _BlockStop(Struct):
    index: int = 0


class _MessageStart(Struct):
    message: Json = {}


class _MessageDelta(Struct):
    delta: Json = {}
    usage: Any = None


class _Error(Struct):
    error: Any = None
    request_id: Any = None


class _Type(Struct):
    type: Any = None


class _DeltaType(Struct):
    delta: _Type


class _Input(Struct):
    input: Raw | UnsetType = UNSET


class _Message(Struct):
    content: list[Raw] = []


_DELTA: Final = msgspec.json.Decoder(_BlockDelta)
_DELTAS: Final = frozenset(
    {
        "text_delta",
        "thinking_delta",
        "input_json_delta",
        "signature_delta",
        "citations_delta",
        "compaction_delta",
    }
)
# The blocks whose deltas are all known here. Another one is kept for replay as it began, unless
# a delta came that would have changed it.
_FOLDED: Final = frozenset(
    {
        "text",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "server_tool_use",
        "mcp_tool_use",
        "compaction",
    }
)
_FINISH: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
    "pause_turn": "other",
    "compaction": "other",
}
_DETAILS: Final = ("type", "category", "explanation")  # of a refusal
_COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)


class _Block:
    """A block of the answer while it grows."""

    __slots__ = ("arguments", "closed", "fields", "given", "kind", "strange", "texts")

    def __init__(self, kind: str, fields: Json) -> None:
        self.kind = kind
        self.fields = fields  # as it began
        self.given: str | None = None  # the input that stood in its beginning
        self.texts: list[str] = []
        self.arguments: list[str] = []
        self.closed = False
        self.strange = False  # something came that can't be folded

    @property
    def input(self) -> str:
        """The JSON of a call's arguments: what was streamed, else what it began with."""
        streamed = "".join(self.arguments)
        given = "" if self.given in {None, "null"} else self.given
        return streamed if streamed.strip() else given or "{}"

    def item(self) -> Json | None:
        """The block as it is sent back; None for one that may not be. Raises DecodeError."""
        made = dict(self.fields)
        match self.kind:
            case "text":
                made["text"] = "".join(self.texts)
                if not made.get("citations"):
                    made.pop("citations", None)
                return made if made["text"].strip() else None
            case "thinking":
                made["thinking"] = "".join(self.texts)
                return made if made.get("signature") else None
            case "redacted_thinking":
                return made if made.get("data") else None
            case "tool_use":
                if made.get("caller") in (None, {"type": "direct"}):
                    made.pop("caller", None)  # what a call without one has
            case _:
                pass
        if self.kind == "tool_use" or self.arguments:
            made["input"] = _OBJECT.decode(self.input)
        return made


class _Answer:
    """Folds blocks and their deltas into parts and, in the end, the turn."""

    def __init__(self) -> None:
        self.progress = 0
        self.over = False
        self._received = 0  # bytes
        self._parts: list[Part] = []
        self._assembler = Assembler()
        self._all: list[_Block] = []
        self._open: dict[int, _Block] = {}
        self._calls: list[_Block] = []  # begun and not given yet
        self._run: list[str] = []  # text of one block that is not given yet
        self._run_of: _Block | None = None
        self._message: Json = {}
        self._stop: Json = {}
        self._usage: dict[str, int] = {}

    def take(self) -> list[Part]:
        """The parts since the last time."""
        self._flush()
        parts, self._parts = self._parts, []
        return parts

    def fail(self, failed: Failed) -> None:
        """End in a failure."""
        self._flush()
        self._parts.append(failed)
        self.over = True

    # --- blocks

    def begin(self, index: int, raw: Raw) -> None:
        """A block begins, with some of its content or all of it."""
        fields = _OBJECT.decode(raw)
        kind = fields.get("type")
        block = _Block(kind if isinstance(kind, str) else "", fields)
        self.progress += 1
        self._close(self._open.get(index))
        self._open[index] = block
        self._all.append(block)
        match block.kind:
            case "text":
                self.grow(block, fields.get("text"))
            case "thinking":
                self.grow(block, fields.get("thinking"))
            case "redacted_thinking":
                self._flush()
                self._give(ThinkingPart(_string(fields, "data"), redacted=True))
            case "tool_use":
                given = msgspec.json.decode(raw, type=_Input).input
                block.given = None if given is UNSET else bytes(given).decode()
                self._calls.append(block)
            case _:
                pass

    def grow(self, block: _Block, text: object) -> None:
        """More text of a block; what comes in one go becomes one part."""
        if not isinstance(text, str) or not text:
            return
        if self._run_of is not block:
            self._flush()
            self._run_of = block
        self._run.append(text)

    def change(self, index: int, delta: _Delta) -> None:
        """One delta. One that does not fit its block is passed over, as the vendor's SDK does."""
        self.progress += 1
        block = self._open.get(index)
        if block is None:
            return
        kind = block.kind
        match delta.type:
            case "text_delta" if kind == "text":
                self.grow(block, delta.text)
            case "thinking_delta" if kind == "thinking":
                self.grow(block, delta.thinking)
            case "input_json_delta":
                block.arguments.append(delta.partial_json or "")
            case "signature_delta" if kind == "thinking":
                block.fields["signature"] = delta.signature
            case "citations_delta" if kind == "text":
                cited = block.fields.get("citations") or []
                block.fields["citations"] = [*cited, delta.citation]
            case "compaction_delta" if kind == "compaction":
                block.fields["content"] = delta.content
                block.fields["encrypted_content"] = delta.encrypted_content
            case _:
                block.strange = kind not in _FOLDED

    def finish_block(self, index: int) -> None:
        """A block is whole."""
        self._close(self._open.pop(index, None))

    def _close(self, block: _Block | None) -> None:
        if block is None or block.closed:
            return
        block.closed = True
        if self._run_of is block:
            self._flush()
        if block.kind == "thinking":
            signature = _string(block.fields, "signature")
            if signature:
                self._flush()
                self._give(ThinkingPart("", signature=signature))
        elif block.kind == "tool_use":
            self._give_calls()

    def _give_calls(self) -> None:
        """The calls that are whole, in the order they began."""
        while self._calls and self._calls[0].closed:
            block = self._calls.pop(0)
            self._flush()
            self._give(
                ToolCallPart(
                    model_call_id=_string(block.fields, "id"),
                    name=_string(block.fields, "name"),
                    arguments=block.input,
                )
            )

    def _flush(self) -> None:
        block = self._run_of
        if block is None:
            return
        text = "".join(self._run)
        self._run.clear()
        self._run_of = None
        block.texts.append(text)
        self._give(TextPart(text) if block.kind == "text" else ThinkingPart(text))

    def _give(self, part: Part) -> None:
        self._assembler.add(part)
        self._parts.append(part)

    # --- the message

    def about(self, message: Json) -> None:
        """What the provider says of the message as a whole: its id, its model, its usage."""
        self._message |= {name: message[name] for name in ("id", "model") if message.get(name)}
        self.count(message.get("usage"))

    def stopped(self, told: Json) -> None:
        """Why the model stopped, as far as it is told."""
        names = ("stop_reason", "stop_sequence")
        self._stop |= {name: told[name] for name in names if told.get(name) is not None}
        details = told.get("stop_details")
        if isinstance(details, dict):  # it may hold a token, too, which is nobody's business
            said = {name: text for name in _DETAILS if (text := _string(details, name))}
            self._stop["stop_details"] = said

    def count(self, usage: object) -> None:
        """Counts are totals, so the last ones hold; what is no count is not reported."""
        if not isinstance(usage, dict):
            return
        details = usage.get("output_tokens_details")
        thought = details.get("thinking_tokens") if isinstance(details, dict) else None
        told = {name: usage.get(name) for name in _COUNTS} | {"thinking_tokens": thought}
        for name, value in told.items():
            if type(value) is int and 0 <= value < 2**53:
                self._usage[name] = value

    def finish(self) -> None:
        """The message is whole: the turn, or a failure when nobody said why it stopped."""
        for block in self._all:
            self._close(block)
        reason = self._stop.get("stop_reason")
        if not isinstance(reason, str) or not reason:
            self.fail(self._broken("the message ended without a reason to stop", eof=True))
            return
        self._flush()
        done = self._assembler.done(
            self._reason(reason),
            self._spent(),
            native_replay=self._replay(),
            provider_metadata=self._stop,
            response_metadata=self._origin(),
        )
        self._parts.append(done)
        self.over = True

    def _reason(self, told: str) -> FinishReason:
        reason = _FINISH.get(told, "unknown")
        calls = any(block.kind == "tool_use" for block in self._all)
        return "tool_calls" if reason == "stop" and calls else reason

    def _spent(self) -> Usage:
        counts = self._usage
        whole = counts.get("input_tokens")
        read, written = (counts.get(f"cache_{way}_input_tokens") for way in ("read", "creation"))
        return Usage(
            input_tokens=None if whole is None else whole + (read or 0) + (written or 0),
            output_tokens=counts.get("output_tokens"),
            reasoning_tokens=counts.get("thinking_tokens"),
            cache_read_tokens=read,
            cache_write_tokens=written,
        )

    def _origin(self) -> Json:
        """The id of the message and the model that wrote it, which a fallback changes."""
        for block in self._all:
            if block.kind == "fallback" and isinstance(block.fields.get("to"), dict):
                self._message |= {"model": block.fields["to"].get("model")}
        return self._message

    def _replay(self) -> Json | None:
        """The blocks as they are to be sent back, when they say more than the content."""
        if any(block.strange for block in self._all):
            return None
        try:
            items = [made for block in self._all if (made := block.item()) is not None]
            content = self._assembler.content()
            plain = [made for block in content if (made := block_of(block)) is not None]
            if not items or items == msgspec.json.decode(_ENCODE(plain)):
                return None
            native = {"family": FAMILY, "items": items}
            return native if len(_ENCODE(native)) <= NATIVE_BYTES_MAX else None
        except (CannotEncode, msgspec.DecodeError, RecursionError):
            return None  # arguments that are no JSON: the history mends them, so they'd not go out

    def _error(self, data: bytes) -> None:
        """What the provider says went wrong, in the middle of a response that began well."""
        try:
            event = msgspec.json.decode(data, type=_Error)
        except msgspec.DecodeError:
            event = _Error(error=data.decode(errors="replace"))
        told = event.error if isinstance(event.error, dict) else {"message": event.error}
        failed = errors.in_stream(
            message=_string(told, "message"),
            vendor_code=_string(told, "type") or None,
            bytes_received=self._received,
        )
        if isinstance(event.request_id, str):
            error = structs.replace(failed.error, request_id=event.request_id)
            failed = Failed(error=error)
        self.fail(failed)

    def _broken(self, message: str, *, eof: bool = False) -> Failed:
        return failure(
            "unexpected_eof" if eof else "invalid_response",
            message,
            stage="stream_finalize" if eof else "stream_decode",
            bytes_received=self._received,
        )


def _string(fields: Json, name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _mended(data: bytes) -> bytes | None:
    r"""JSON without halves of surrogate pairs, `\ud83d` alone; None if it has none.

    A proxy that cuts text where JavaScript counts characters sends them, and only Python's own
    reader takes them.
    """
    if b"\\u" not in data:
        return None
    import json  # noqa: PLC0415 - hardly ever needed

    try:
        text = json.dumps(json.loads(data), ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


class Stream(_Answer):
    """The decoder of server-sent events; `message_stop` is the last."""

    def __init__(self) -> None:
        super().__init__()
        self._events = sse.Events()

    def feed(self, data: bytes) -> Sequence[Part]:
        """The parts that these bytes complete."""
        if self.over:
            return []
        self._received += len(data)
        try:
            for name, payload in self._events.feed(data):
                try:
                    self._event(name, payload)
                except msgspec.DecodeError:
                    if (mended := _mended(payload)) is None:
                        raise
                    self._event(name, mended)
                if self.over:
                    break
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.fail(self._broken(f"an event of the stream can't be read: {error}"))
        except sse.TooLong as error:
            self.fail(self._broken(str(error)))
        return self.take()

    def end(self) -> Sequence[Part]:
        """The body ended: without its last event, the turn is none."""
        if self.over:
            return []
        for _, payload in self._events.end():  # one whose blank line is missing
            self._last(payload)
        if not self.over:
            self.fail(self._broken("the stream ended before the message did", eof=True))
        return self.take()

    def _event(self, name: str, payload: bytes) -> None:
        if name == "content_block_delta":
            self._delta(payload)
            return
        match name or _type_of(payload):
            case "content_block_delta":
                self._delta(payload)
            case "content_block_start":
                start = msgspec.json.decode(payload, type=_BlockStart)
                self.begin(start.index, start.content_block)
            case "content_block_stop":
                self.finish_block(msgspec.json.decode(payload, type=_BlockStop).index)
            case "message_start":
                self.about(msgspec.json.decode(payload, type=_MessageStart).message)
            case "message_delta":
                told = msgspec.json.decode(payload, type=_MessageDelta)
                self.stopped(told.delta)
                self.count(told.usage)
            case "message_stop":
                self.finish()
            case "error":
                self._error(payload)
            case _:
                pass  # a ping, or what nobody knows yet

    def _delta(self, payload: bytes) -> None:
        try:
            event = _DELTA.decode(payload)
        except msgspec.ValidationError:
            # A kind of delta from after this was written may use our names for other things.
            if msgspec.json.decode(payload, type=_DeltaType).delta.type in _DELTAS:
                raise
            return
        self.change(event.index, event.delta)

    def _last(self, payload: bytes) -> None:
        try:
            kind = _type_of(payload)
        except msgspec.DecodeError:
            return  # cut in the middle
        if kind == "message_stop":
            self.finish()
        elif kind == "error":
            self._error(payload)


def _type_of(payload: bytes) -> object:
    return msgspec.json.decode(payload, type=_Type).type


class Whole(_Answer):
    """The decoder of an answer that is one object, whatever was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._body: list[bytes] = []

    def feed(self, data: bytes) -> Sequence[Part]:
        """Nothing before the end, unless there is too much of it."""
        if self.over:
            return []
        self._received += len(data)
        self._body.append(data)
        if self._received > BODY_BYTES_MAX:
            self.fail(self._broken(f"the response is longer than {BODY_BYTES_MAX} bytes"))
        return self.take()

    def end(self) -> Sequence[Part]:
        """The parts of the whole answer."""
        if self.over:
            return []
        body = b"".join(self._body)
        self._body.clear()
        try:
            try:
                self._read(body)
            except msgspec.DecodeError:
                if (mended := _mended(body)) is None:
                    raise
                self._read(mended)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            cut = "truncated" in str(error)
            self.fail(self._broken(f"the response can't be read: {error}", eof=cut))
        return self.take()

    def _read(self, body: bytes) -> None:
        fields = _OBJECT.decode(body)
        if fields.get("error") is not None:
            self._error(body)
            return
        self.about(fields)
        self.stopped(fields)
        blocks = msgspec.json.decode(body, type=_Message).content
        for index, raw in enumerate(blocks):
            self.begin(index, raw)
            self.finish_block(index)
        self.finish()
