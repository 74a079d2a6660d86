"""What Gemini answers, in events, as one object or as an array of them, as the parts of a turn."""

import math
import re
from collections import deque
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from ipc.content import COUNT_MAX, FinishReason, Usage
from ipc.events import ModelErrorKind
from workers.providers import errors, sse
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
from workers.providers.google_contents import FAMILY, Json, part_of

NATIVE_BYTES_MAX: Final = 1024**2  # of what is kept of one turn, as JSON
VALUE_BYTES_MAX: Final = 64 * 1024**2  # of one object of a body that is JSON
TAIL_BYTES_MAX: Final = 64 * 1024  # of the end of a body, where an error may stand bare

_ENCODE: Final = msgspec.json.Encoder().encode


# --- from bytes to chunks ----------------------------------------------------------------------


class Values:
    """The objects of a body that is JSON: one, or an array of them; pure, split anywhere."""

    __slots__ = ("_depth", "_escaped", "_limit", "_rest", "_text")

    def __init__(self, limit: int = VALUE_BYTES_MAX) -> None:
        self._limit = limit
        self._rest = bytearray()  # of the object that is not over yet
        self._depth = 0  # of braces
        self._text = False  # inside a string
        self._escaped = False  # ... right after a backslash

    @property
    def cut(self) -> bool:
        """Whether an object has begun and is not over."""
        return self._depth > 0

    def feed(self, data: bytes) -> list[bytes]:
        """The objects that these bytes end; raises sse.TooLong."""
        whole: list[bytes] = []
        start = at = 0
        if self._escaped and data:
            self._escaped, at = False, 1
        while (found := (_IN_TEXT if self._text else _OUTSIDE).search(data, at)) is not None:
            at = found.end()
            match found[0]:
                case b'"':
                    self._text = not self._text
                case b"\\":
                    self._escaped = at == len(data)
                    at += 1
                case b"{":
                    start = start if self._depth else found.start()
                    self._depth += 1
                case b"}" if self._depth:
                    self._depth -= 1
                    if not self._depth:
                        whole.append(bytes(self._rest + data[start:at]))
                        self._rest.clear()
                case _:
                    pass
        if self._depth:
            self._rest += data[start:]
            if len(self._rest) > self._limit:
                raise sse.TooLong(limit_bytes=self._limit)
        return whole


_IN_TEXT: Final = re.compile(rb'["\\]')
_OUTSIDE: Final = re.compile(rb'["{}]')
_NOTHING: Final = b" \t\r\n\xef\xbb\xbf"  # may stand before a body: blanks and its mark of order


class _Body:
    """The chunks of a body, whatever it calls itself: its first byte says how they are framed."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._events: sse.Events | None = None
        self._values: Values | None = None
        self._tail: deque[bytes] = deque()  # of a body of events
        self._tail_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The chunks that these bytes end; raises sse.TooLong."""
        if self._events is not None:
            self._keep(data)
            return [chunk for _, chunk in self._events.feed(data)]
        if self._values is not None:
            return self._values.feed(data)
        self._head += data
        begun = self._head.lstrip(_NOTHING)
        if not begun:
            return []
        if begun[0] in b"{[":
            self._values = Values()
        else:
            self._events = sse.Events()
        return self.feed(bytes(self._head))

    def end(self) -> list[bytes]:
        """What the body ends in: an event without its blank line, an error that is no event."""
        if self._events is None:
            return []
        return [chunk for _, chunk in self._events.end()] + self._stray()

    @property
    def cut(self) -> bool:
        """Whether the body ended inside an object."""
        return self._values is not None and self._values.cut

    def _keep(self, data: bytes) -> None:
        self._tail.append(data)
        self._tail_bytes += len(data)
        while self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES_MAX:
            self._tail_bytes -= len(self._tail.popleft())

    def _stray(self) -> list[bytes]:
        """The errors that the API writes between or after its events as bare lines of JSON.

        See googleapis/python-genai#1162. No line of an event begins with a brace.
        """
        tail = b"".join(self._tail)
        return [
            error
            for found in _STRAY.finditer(tail)
            for error in Values().feed(tail[found.end() - 1 :])[:1]
        ]


_STRAY: Final = re.compile(rb'[\r\n][ \t\r\n\[,]*\{(?=\s*"error"\s*:)')


# --- what a chunk says -------------------------------------------------------------------------


class _Counts(Struct, gc=False, rename="camel"):
    """Totals so far; what is no count is not reported."""

    prompt_token_count: Any = None
    cached_content_token_count: Any = None
    candidates_token_count: Any = None
    thoughts_token_count: Any = None
    tool_use_prompt_token_count: Any = None


class _Content(Struct):
    parts: list[Json] | None = None


class _Candidate(Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | int | None = None
    finish_message: Any = None
    index: Any = 0


class _Feedback(Struct, rename="camel"):
    block_reason: str | int | None = None
    block_reason_message: Any = None


class _Chunk(Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Counts | None = None
    model_version: Any = None
    response_id: Any = None
    error: Any = None


_ORIGIN: Final = 2  # things that a response says of itself: its id and its model
_CHUNKS: Final = msgspec.json.Decoder(_Chunk | list[_Chunk])
_DONE: Final = b"[DONE]"  # how some proxies end every stream

# The first numbers of the enum, which mean the same at all of Google's addresses.
_NUMBERED: Final = {1: "STOP", 2: "MAX_TOKENS", 3: "SAFETY", 4: "RECITATION", 5: "OTHER"}
_UNSAID: Final = frozenset({None, "", 0, "FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED"})
_FINISH: Final[dict[str, FinishReason]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "ESCALATION": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "OTHER": "other",
    "IMAGE_OTHER": "other",
    "NO_IMAGE": "other",
    "TOO_MANY_TOOL_CALLS": "other",
}
# Ends that are none: what the model wrote could not even be read as a call by its own server, so
# there is nothing to show the model its mistake with. Asked again it mostly writes a good one.
_BROKEN: Final[dict[str, tuple[ModelErrorKind, bool, str]]] = {
    "MALFORMED_FUNCTION_CALL": (
        "invalid_tool_input",
        True,
        "the model wrote a tool call that can't be read",
    ),
    "UNEXPECTED_TOOL_CALL": (
        "invalid_tool_input",
        True,
        "the model called a tool that it was not offered",
    ),
    "MALFORMED_RESPONSE": ("invalid_response", True, "the model wrote what can't be read"),
    "MISSING_THOUGHT_SIGNATURE": (
        "replay",
        False,
        "the history lacks a signature that the model wants to see again",
    ),
    "PUP_LIMITED_DISABLED": (
        "permission_denied",
        False,
        "the account is limited for what was asked with it before",
    ),
}


class _Run:
    """Plain text in pieces, of one kind: a part of the native form while it grows."""

    __slots__ = ("pieces", "thought")

    def __init__(self, piece: str, *, thought: bool) -> None:
        self.pieces = [piece]
        self.thought = thought


class Answer:
    """The decoder: chunks with a finish reason somewhere, then the end of the body."""

    def __init__(self) -> None:
        self.progress = 0
        self._over = False
        self._received = 0  # bytes
        self._body = _Body()
        self._parts: list[Part] = []
        self._assembler = Assembler()
        self._pieces: list[str] = []  # of text or of thinking, not given yet
        self._thinks = False  # which of the two
        self._items: list[_Run | Json] = []  # the native form
        self._calls = 0
        self._origin: Json = {}
        self._counts = _Counts()
        self._stop: Json = {}
        self._blocked: Json = {}

    def feed(self, data: bytes) -> Sequence[Part]:
        """The parts that these bytes complete."""
        if self._over:
            return []
        self._received += len(data)
        try:
            self._read(self._body.feed(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._fail(self._unreadable(error))
        except sse.TooLong as error:
            self._fail(self._broken("invalid_response", str(error)))
        return self._take()

    def end(self) -> Sequence[Part]:
        """The body ended: with a reason to finish the turn is whole, else it is none."""
        if self._over:
            return []
        try:
            self._read(self._body.end())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._fail(self._cut())  # in the middle of an event
        if not self._over:
            self._finish()
        return self._take()

    def _read(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            if payload == _DONE:
                continue
            told = _CHUNKS.decode(payload)
            for chunk in told if isinstance(told, list) else (told,):
                self._chunk(chunk)
                if self._over:
                    return

    def _take(self) -> list[Part]:
        """The parts since the last time."""
        if not self._over:
            self._flush()
        parts, self._parts = self._parts, []
        return parts

    def _fail(self, failed: Failed) -> None:
        self._flush()
        self._parts.append(failed)
        self._over = True

    # --- chunks

    def _chunk(self, chunk: _Chunk) -> None:
        if chunk.error is not None:
            self._fail(_reported(chunk.error, self._received))
            return
        if chunk.usage_metadata is not None:
            self._count(chunk.usage_metadata)
        if len(self._origin) < _ORIGIN:
            self._say_origin("id", chunk.response_id)
            self._say_origin("model", chunk.model_version)
        for candidate in chunk.candidates or ():
            if not candidate.index:  # another is one that nobody asked for
                self._candidate(candidate)
        feedback = chunk.prompt_feedback
        if feedback is not None and feedback.block_reason not in _UNSAID:
            reason = _word(feedback.block_reason)
            why = feedback.block_reason_message or "say it differently"
            message = f"the provider blocked the prompt ({reason}): {why}"
            self._blocked = {"stop_reason": reason, "message": message}

    def _say_origin(self, name: str, told: object) -> None:
        if name not in self._origin and isinstance(told, str) and told:
            self._origin[name] = told

    def _candidate(self, candidate: _Candidate) -> None:
        if candidate.content is not None:
            for part in candidate.content.parts or ():
                self._part(part)
        if self._over or candidate.finish_reason in _UNSAID:
            return
        reason = _word(candidate.finish_reason)
        self._stop = {"stop_reason": reason}
        if candidate.finish_message:
            self._stop["message"] = str(candidate.finish_message)
        if reason in _BROKEN:
            kind, again, why = _BROKEN[reason]
            said = f" ({candidate.finish_message})" if candidate.finish_message else ""
            self._fail(self._broken(kind, f"{why}{said}", code=reason, again=again))

    def _part(self, part: Json) -> None:
        self.progress += 1
        text = part.get("text")
        if isinstance(text, str):
            self._text(text, part)
            return
        call = part.get("functionCall")
        if isinstance(call, dict) and isinstance(call.get("name"), str) and call["name"]:
            self._call(call)
        self._items.append(part)

    def _text(self, text: str, part: Json) -> None:
        thought = part.get("thought") is True
        if thought is not self._thinks:
            self._flush()
            self._thinks = thought
        self._pieces.append(text)
        if len(part) > 1 + ("thought" in part):  # signed, or with more than we know
            self._items.append(part)
            signature = part.get("thoughtSignature")
            if isinstance(signature, str) and signature:
                self._flush(signature)
            return
        last = self._items[-1] if self._items else None
        if isinstance(last, _Run) and last.thought is thought:
            last.pieces.append(text)
        else:
            self._items.append(_Run(text, thought=thought))

    def _call(self, call: Json) -> None:
        if call.get("willContinue"):
            what = "the provider sends a tool call in pieces, which it was not asked to do"
            self._fail(self._broken("invalid_response", what))
            return
        args = call.get("args")
        arguments = "{}" if args is None else _ENCODE(args).decode()
        told = call.get("id")
        part = ToolCallPart(
            model_call_id=told if isinstance(told, str) and told else self._made_id(call),
            name=call["name"],
            arguments=arguments,
        )
        self._flush()
        self._assembler.add(part)
        self._parts.append(part)
        self._calls += 1

    def _made_id(self, call: Json) -> str:
        """The id of a call that came without: of its place in a response that has an id.

        Where the response has none, what was asked and how much was read before stand for it.
        """
        seed: str = self._origin.get("id", "")
        if not seed:
            seen = [call["name"], call.get("args"), self._counts.prompt_token_count]
            seed = sha256(_ENCODE(seen)).hexdigest()[:12]
        return f"call_{_ODD.sub('_', seed)}_{self._calls}"

    def _flush(self, signature: str | None = None) -> None:
        if not self._pieces:
            return
        text = "".join(self._pieces)
        self._pieces.clear()
        if self._thinks:
            if text or signature:
                self._assembler.thinking(text, signature)
                self._parts.append(ThinkingPart(text, signature=signature))
        elif text:
            self._assembler.text(text)
            self._parts.append(TextPart(text))

    def _count(self, counts: _Counts) -> None:
        """Later counts replace earlier ones, each by itself: a chunk may leave some out."""
        total = self._counts
        if counts.prompt_token_count is not None:
            total.prompt_token_count = counts.prompt_token_count
        if counts.cached_content_token_count is not None:
            total.cached_content_token_count = counts.cached_content_token_count
        if counts.candidates_token_count is not None:
            total.candidates_token_count = counts.candidates_token_count
        if counts.thoughts_token_count is not None:
            total.thoughts_token_count = counts.thoughts_token_count
        if counts.tool_use_prompt_token_count is not None:
            total.tool_use_prompt_token_count = counts.tool_use_prompt_token_count

    # --- the end

    def _finish(self) -> None:
        stop = self._stop or self._blocked
        if self._body.cut or not stop:
            self._fail(self._cut())
            return
        self._flush()
        done = self._assembler.done(
            self._reason(),
            self._spent(),
            native_replay=self._replay(),
            provider_metadata=stop,
            response_metadata=self._origin,
        )
        self._parts.append(done)
        self._over = True

    def _reason(self) -> FinishReason:
        if not self._stop:
            # The words that were blocked would be blocked again: this end takes them along.
            return "refused"
        reason = _FINISH.get(self._stop["stop_reason"], "unknown")
        return "tool_calls" if reason == "stop" and self._calls else reason

    def _spent(self) -> Usage:
        counts = self._counts
        thoughts = _number(counts.thoughts_token_count)
        read = (counts.prompt_token_count, counts.tool_use_prompt_token_count)
        return Usage(
            input_tokens=_sum(*map(_number, read)),
            output_tokens=_sum(_number(counts.candidates_token_count), thoughts),
            reasoning_tokens=thoughts,
            cache_read_tokens=_number(counts.cached_content_token_count),
        )

    def _replay(self) -> Json | None:
        """The parts as they are to be sent back, when they say more than the content."""
        items = [item for each in self._items if (item := _kept(each)) is not None]
        try:
            plain = [part_of(block) for block in self._assembler.content()]
            said = [part for part in plain if part is not None]
            if not items or items == msgspec.json.decode(_ENCODE(said)):
                return None
            native = {"family": FAMILY, "items": items}
            return native if len(_ENCODE(native)) <= NATIVE_BYTES_MAX else None
        except CannotEncode:
            return None  # arguments that are no object: the history mends them

    def _unreadable(self, error: Exception) -> Failed:
        return self._broken("invalid_response", f"the response can't be read: {error}")

    def _cut(self) -> Failed:
        return failure(
            "unexpected_eof",
            "the response ended before the model's turn did",
            stage="stream_finalize",
            bytes_received=self._received,
        )

    def _broken(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        code: str | None = None,
        again: bool | None = None,
    ) -> Failed:
        return failure(
            kind,
            message,
            stage="stream_decode",
            retryable=again,
            vendor_code=code,
            bytes_received=self._received,
        )


_COUNT_MAX: Final = 2**53  # tokens; what is more is no count
_ODD: Final = re.compile(r"[^a-zA-Z0-9_-]")


def _word(told: str | int | None) -> str:
    """The vendor's own word; some of its addresses give the number of it."""
    return _NUMBERED.get(told, str(told)) if isinstance(told, int) else str(told)


def _number(told: object) -> int | None:
    return told if isinstance(told, int) and 0 <= told < _COUNT_MAX else None


def _sum(*counts: int | None) -> int | None:
    told = [count for count in counts if count is not None]
    return sum(told) if told else None


def _kept(item: _Run | Json) -> Json | None:
    """One part as it is sent back; None for blank text and for a thought nobody signed."""
    if isinstance(item, _Run):
        text = "".join(item.pieces)
        return None if item.thought or not text.strip() else {"text": text}
    if item.get("thoughtSignature"):
        return item
    said = item.get("text")
    blank = isinstance(said, str) and not said.strip()
    return None if blank or item.get("thought") is True else item


# --- errors ------------------------------------------------------------------------------------


def _reported(told: Any, received: int) -> Failed:
    """An error that the provider put into a response that began well."""
    error = told if isinstance(told, dict) else {"message": str(told)}
    code, word, words = error.get("code"), error.get("status"), error.get("message")
    failed = errors.in_stream(
        message=words if isinstance(words, str) else "",
        vendor_code=word if isinstance(word, str) else None,
        status=code if isinstance(code, int) else None,
        bytes_received=received,
    )
    pause = _pause_ms(error.get("details"))
    if pause is None:
        return failed
    return Failed(error=structs.replace(failed.error, retry_after_ms=pause))


def _pause_ms(details: object) -> int | None:
    """How long Google wants to be left alone: `{"retryDelay": "17.5s"}` among the details."""
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and _SECONDS.fullmatch(delay):
            return min(math.ceil(float(delay[:-1]) * 1000), COUNT_MAX)
    return None


_SECONDS: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?s")
