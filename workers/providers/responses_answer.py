"""What a server of the Responses API answers: a stream of events, or one object, made a turn."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from workers.providers.base import Failed, Part, failure
from workers.providers.responses_items import is_item
from workers.providers.responses_turn import Response, Turn, arguments_text
from workers.providers.sse import Events, TooLong

BODY_BYTES_MAX: Final = 64 * 1024 * 1024  # of an answer that is one JSON object

# --- a stream ----------------------------------------------------------------------------------


class _Event(Struct, gc=False):
    """All that any event of ours holds; each of them has a few of these."""

    type: Any = None
    delta: Any = None
    output_index: int | str | None = None
    content_index: int | str | None = 0
    summary_index: int | str | None = 0
    item_id: str | None = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    part: Any = None
    item: Any = None
    response: Raw = Raw()
    error: Any = None
    code: Any = None
    message: Any = None
    status: Any = None

    @property
    def key(self) -> int | str | None:
        """What tells output items apart. Some servers give an item another id in each event."""
        return self.item_id if self.output_index is None else self.output_index


_EVENT: Final = msgspec.json.Decoder(_Event)
_RESPONSE: Final = msgspec.json.Decoder(Response)
_TEXT_DELTA: Final = "response.output_text.delta"
_CONTENT: Final = (".delta", ".added", ".done")  # how the names of events with content end


class Stream:
    """Decodes server-sent events."""

    def __init__(self, *, native: bool) -> None:
        self.progress = 0
        self._events = Events()
        self._turn = Turn(native=native)

    def feed(self, data: bytes) -> Sequence[Part]:
        """The parts that these bytes complete."""
        turn = self._turn
        if turn.ended:
            return []
        turn.bytes += len(data)
        try:
            for name, payload in self._events.feed(data):
                self._take(name, payload)
                if turn.ended:
                    break
        except TooLong:
            turn.fail(self._broken("one event of the stream is longer than any may be"))
        except (msgspec.DecodeError, RecursionError) as error:
            turn.fail(self._broken(f"an event of the stream is no JSON: {error}"))
        return turn.taken()

    def end(self) -> Sequence[Part]:
        """What a last event without its blank line says; without a terminal one it is a failure."""
        turn = self._turn
        if turn.ended:
            return []
        with suppress(msgspec.DecodeError, RecursionError):  # it was cut
            for name, payload in self._events.end():
                self._take(name, payload)
        if not turn.ended:
            turn.fail(_cut(turn.bytes))
        return turn.taken()

    def _take(self, name: str, payload: bytes) -> None:
        event = _read(payload)
        if event is None:
            return
        kind = event.type
        if kind == _TEXT_DELTA:  # nearly all events are
            self.progress += 1
            if type(event.delta) is str:
                self._turn.text(event.key, "text", event.content_index, event.delta)
            return
        if not isinstance(kind, str):
            kind = "error" if event.error else name
        if kind.endswith(_CONTENT):
            self.progress += 1
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self._turn, event)

    def _broken(self, message: str) -> Failed:
        return failure(
            "invalid_response", message, stage="stream_decode", bytes_received=self._turn.bytes
        )


def _read(payload: bytes) -> _Event | None:
    """One event; None for what is no object, such as the [DONE] of another family."""
    try:
        return _EVENT.decode(payload)
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError:
        mended = _mended(payload)
        if mended is None:
            raise
        return _EVENT.decode(mended)


def _mended(payload: bytes) -> bytes | None:
    """What servers write that is not quite JSON: halves of surrogate pairs, NaN."""
    try:
        value = json.loads(payload, parse_constant=lambda _: None)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return text.encode("utf-8", "replace") if isinstance(value, dict) else None


def _cut(received: int) -> Failed:
    return failure(
        "unexpected_eof",
        "the response ended before it was complete",
        stage="stream_finalize",
        bytes_received=received,
    )


_Handler = Callable[[Turn, _Event], None]


def _text_done(turn: Turn, event: _Event) -> None:
    turn.settle(event.key, "text", event.content_index, event.text)


def _refusal(turn: Turn, event: _Event) -> None:
    if isinstance(event.delta, str):
        turn.text(event.key, "refusal", event.content_index, event.delta)


def _refusal_done(turn: Turn, event: _Event) -> None:
    turn.settle(event.key, "refusal", event.content_index, event.refusal)


def _content_part(turn: Turn, event: _Event) -> None:
    if isinstance(event.part, dict):
        turn.part(event.key, event.content_index, event.part)


def _summary_part(turn: Turn, event: _Event) -> None:
    if isinstance(event.part, dict):
        turn.part(event.key, event.summary_index, event.part)


def _summary(turn: Turn, event: _Event) -> None:
    if isinstance(event.delta, str):
        turn.think(event.key, "summary", event.summary_index, event.delta)


def _summary_done(turn: Turn, event: _Event) -> None:
    turn.settle(event.key, "summary", event.summary_index, event.text)


def _reasoning(turn: Turn, event: _Event) -> None:
    if isinstance(event.delta, str):
        turn.think(event.key, "reasoning", event.content_index, event.delta)


def _reasoning_done(turn: Turn, event: _Event) -> None:
    turn.settle(event.key, "reasoning", event.content_index, event.text)


def _item_added(turn: Turn, event: _Event) -> None:
    if is_item(event.item):
        turn.begin(event.key, event.item)


def _item_done(turn: Turn, event: _Event) -> None:
    if is_item(event.item):
        turn.finish_item(event.key, event.item)


def _arguments_delta(turn: Turn, event: _Event) -> None:
    if isinstance(event.delta, str):
        turn.arguments(event.key, event.delta, whole=False)


def _arguments_done(turn: Turn, event: _Event) -> None:
    turn.arguments(event.key, arguments_text(event.arguments) or "", whole=True)


def _completed(turn: Turn, event: _Event) -> None:
    turn.done(_response(event), complete=True, word="completed")


def _incomplete(turn: Turn, event: _Event) -> None:
    response = _response(event)
    turn.done(response, complete=False, word=response.reason)


def _failed(turn: Turn, event: _Event) -> None:
    turn.refuse(_response(event).error)


def _error(turn: Turn, event: _Event) -> None:
    beside = {"code": event.code, "message": event.message}
    turn.refuse(event.error or beside, status=event.status)


def _response(event: _Event) -> Response:
    try:
        return _RESPONSE.decode(event.response)
    except msgspec.DecodeError:  # there is none
        return Response()


_HANDLERS: Final[dict[str, _Handler]] = {
    "response.output_text.done": _text_done,
    "response.refusal.delta": _refusal,
    "response.refusal.done": _refusal_done,
    "response.content_part.added": _content_part,
    "response.content_part.done": _content_part,
    "response.reasoning_summary_part.added": _summary_part,
    "response.reasoning_summary_part.done": _summary_part,
    "response.reasoning_summary_text.delta": _summary,
    "response.reasoning_summary_text.done": _summary_done,
    "response.reasoning_text.delta": _reasoning,
    "response.reasoning_text.done": _reasoning_done,
    "response.output_item.added": _item_added,
    "response.output_item.done": _item_done,
    "response.function_call_arguments.delta": _arguments_delta,
    "response.function_call_arguments.done": _arguments_done,
    "response.completed": _completed,
    "response.incomplete": _incomplete,
    "response.failed": _failed,
    "error": _error,
}


# --- one object --------------------------------------------------------------------------------

_UNFINISHED: Final = ("queued", "in_progress")
_GONE: Final = ("failed", "cancelled")


class Whole:
    """Decodes a response that came as one JSON object; it says nothing before its end."""

    def __init__(self, *, native: bool) -> None:
        self.progress = 0
        self._body = bytearray()
        self._turn = Turn(native=native)

    def feed(self, data: bytes) -> Sequence[Part]:
        """Nothing, unless the body is longer than any answer."""
        turn = self._turn
        if turn.ended:
            return []
        turn.bytes += len(data)
        self.progress += bool(data)
        self._body += data
        if len(self._body) > BODY_BYTES_MAX:
            turn.fail(self._broken("the response is longer than any may be"))
        return turn.taken()

    def end(self) -> Sequence[Part]:
        """All of it."""
        turn = self._turn
        if not turn.ended:
            self._decode(bytes(self._body))
        self._body.clear()
        return turn.taken()

    def _decode(self, body: bytes) -> None:
        try:
            self._answer(_RESPONSE.decode(body))
        except msgspec.ValidationError:
            self._turn.fail(self._broken("the response is no JSON object"))
        except (msgspec.DecodeError, RecursionError) as error:
            mended = _mended(body)
            if mended is not None:
                self._answer(_RESPONSE.decode(mended))
            elif not body.strip() or "truncated" in str(error):
                self._turn.fail(_cut(self._turn.bytes))
            else:
                self._turn.fail(self._broken(f"the response is no JSON: {error}"))

    def _answer(self, response: Response) -> None:
        turn, status = self._turn, response.status
        if response.error or status in _GONE:
            turn.refuse(response.error)
        elif status in _UNFINISHED or not isinstance(response.output, list):
            turn.fail(self._broken("the response holds no answer"))
        elif status == "incomplete":
            turn.done(response, complete=False, word=response.reason)
        elif status is None or status == "completed":
            turn.done(response, complete=True, word="completed")
        else:
            turn.done(response, complete=False, word=str(status))

    def _broken(self, message: str) -> Failed:
        return failure(
            "invalid_response", message, stage="response_body", bytes_received=self._turn.bytes
        )
