"""One answer of the Responses API while it comes: its pieces, each given once, made a turn.

Servers repeat a text in up to four places (deltas, part, item, response), and compatible ones
leave some of them out. So each place is only asked for what the earlier ones did not say.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipc.content import COUNT_MAX, FinishReason, Usage
from workers.providers.base import Assembler, Failed, Part, TextPart, ThinkingPart, ToolCallPart
from workers.providers.errors import in_stream
from workers.providers.responses_items import Item, is_item, kept_item, parts_in, says_more

FAMILY: Final = "responses"
NATIVE_BYTES_MAX: Final = 1024 * 1024  # what is kept of a turn beyond its content

_INCOMPLETE: Final[dict[str, FinishReason]] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}


class Response(Struct):
    """What counts of a response; what it repeats of the request is not even read."""

    id: Any = None
    model: Any = None
    status: Any = None
    output: Any = None
    usage: Any = None
    error: Any = None
    incomplete_details: Any = None

    @property
    def items(self) -> list[Item]:
        """Its output items."""
        return list(filter(is_item, self.output)) if isinstance(self.output, list) else []

    @property
    def reason(self) -> str:
        """Why it is incomplete, in the vendor's word."""
        details = self.incomplete_details
        reason = details.get("reason") if isinstance(details, dict) else None
        return reason if isinstance(reason, str) else "incomplete"


class _Open:
    """An output item that has begun: what has been given of it so far."""

    __slots__ = ("arguments", "call_id", "item_id", "name", "slots", "thinks", "whole")

    def __init__(self) -> None:
        self.slots: dict[tuple[str, Any], list[str]] = {}  # fragments by kind and index
        self.thinks: str | None = None  # the kind of its reasoning that came first
        self.call_id = ""
        self.item_id: str | None = None
        self.name = ""
        self.arguments: list[str] = []
        self.whole = False

    def call(self, item: Item) -> None:
        """Take what a function_call item says of itself."""
        self.item_id = _text(item.get("id")) or self.item_id
        self.call_id = _text(item.get("call_id")) or self.call_id or self.item_id or ""
        self.name = _text(item.get("name")) or self.name
        arguments = arguments_text(item.get("arguments"))
        if arguments:
            self.arguments = [arguments]


class Turn:
    """What has come so far, whichever way it came.

    `key` tells output items apart, None being the latest; `index` the pieces of one item that are
    of the same kind.
    """

    def __init__(self, *, native: bool) -> None:
        self.ended = False
        self.bytes = 0
        self._native = native
        self._assembler = Assembler()
        self._parts: list[Part] = []
        self._fragments: list[str] = []  # of one kind, not given yet
        self._thinking = False  # which kind
        self._thought: list[str] | None = None  # the slot of the last thinking, if nothing followed
        self._said: list[str] = []
        self._items: dict[Any, _Open] = {}
        self._latest = _Open()
        self._calls: list[_Open] = []  # begun and not given yet, in their order
        self._given: dict[str, str] = {}  # the arguments of each call that was given
        self._finished: list[tuple[Any, Item]] = []
        self._refused = False

    def taken(self) -> list[Part]:
        """The parts since the last time, neighbours merged."""
        self._flush()
        parts, self._parts = self._parts, []
        return parts

    # --- pieces --------------------------------------------------------------------------------

    def text(self, key: Any, kind: str, index: Any, text: str) -> None:
        """More text of one content part; `kind` is "text" or "refusal"."""
        if kind == "refusal":
            self._refused = True
        slot = self._slot(key, kind, index)
        slot.append(text)
        self._say(text)

    def think(self, key: Any, kind: str, index: Any, text: str) -> None:
        """More of one piece of reasoning; `kind` is "summary" or "reasoning"."""
        item = self._item(key)
        if item.thinks is not None and item.thinks != kind:
            return  # the same thoughts in another form
        item.thinks = kind
        slot = self._slot(key, kind, index)
        if self._thought is not slot and self._thought is not None:
            self._think("\n\n")
        slot.append(text)
        self._thought = slot
        self._think(text)

    def arguments(self, key: Any, text: str, *, whole: bool) -> None:
        """More arguments of a call, or all of them."""
        item = self._item(key)
        if not whole:
            item.arguments.append(text)
        elif text:
            item.arguments = [text]

    def settle(self, key: Any, kind: str, index: Any, whole: Any) -> None:
        """Give what is missing of a piece that is told whole."""
        if not isinstance(whole, str):
            return
        said = "".join(self._slot(key, kind, index))
        rest = whole[len(said) :]
        if rest and whole.startswith(said):
            more = self.text if kind in {"text", "refusal"} else self.think
            more(key, kind, index, rest)

    def begin(self, key: Any, item: Item) -> None:
        """An output item begins."""
        opened = self._latest = self._items[key] = _Open()
        if item["type"] == "function_call":
            opened.call(item)
            self._calls.append(opened)

    def finish_item(self, key: Any, item: Item) -> None:
        """An output item is there, whole."""
        self._finished.append((key, item))
        match item["type"]:
            case "function_call":
                self._finish_call(key, item)
            case "message":
                for index, part in enumerate(parts_in(item, "content")):
                    self.part(key, index, part)
            case "reasoning":
                for index, part in enumerate(parts_in(item, "summary")):
                    self.settle(key, "summary", index, part.get("text"))
                for index, part in enumerate(parts_in(item, "content")):
                    self.settle(key, "reasoning", index, part.get("text"))
            case _:
                pass

    def part(self, key: Any, index: Any, part: Item) -> None:
        """A content part as far as it is told."""
        match part.get("type"):
            case "output_text":
                self.settle(key, "text", index, part.get("text"))
            case "refusal":
                self.settle(key, "refusal", index, part.get("refusal"))
            case "reasoning_text":
                self.settle(key, "reasoning", index, part.get("text"))
            case "summary_text":
                self.settle(key, "summary", index, part.get("text"))
            case _:
                pass

    # --- the end -------------------------------------------------------------------------------

    def done(self, response: Response, *, complete: bool, word: str) -> None:
        """The response has ended as it should; `word` is the vendor's own for how."""
        items = response.items
        self._complete(items)
        self._flush()
        reason: FinishReason = "stop" if complete else _INCOMPLETE.get(word, "unknown")
        if reason == "stop" and self._given:
            reason = "tool_calls"
        elif reason == "stop" and self._refused:
            reason = "refused"
        about = {"id": response.id, "model": response.model}
        self._parts.append(
            self._assembler.done(
                reason,
                _usage(response.usage),
                native_replay=self._replay(items),
                provider_metadata={"stop_reason": word},
                response_metadata={k: v for k, v in about.items() if isinstance(v, str)},
            )
        )
        self.ended = True

    def fail(self, failed: Failed) -> None:
        """The response came to nothing."""
        self._flush()
        self._parts.append(failed)
        self.ended = True

    def refuse(self, error: Any, *, status: Any = None) -> None:
        """The provider says what went wrong: in an object, or in words alone."""
        told = error if isinstance(error, dict) else {"message": error}
        code = told.get("code") or told.get("type")
        self.fail(
            in_stream(
                message=_text(told.get("message")) or "",
                vendor_code=str(code) if code else None,
                status=status if isinstance(status, int) else None,
                bytes_received=self.bytes,
            )
        )

    def _complete(self, items: list[Item]) -> None:
        """Give what only the response itself tells."""
        if not self._items and not self._finished:
            for index, item in enumerate(items):
                self.finish_item(index, item)
            return
        told = {_call_id(item): item for item in items if item["type"] == "function_call"}
        for call in self._calls:
            if not call.whole and call.call_id in told:
                call.call(told[call.call_id])
            call.whole = True
        self._give_calls()
        whole = "".join(_words(items))
        said = "".join(self._said)
        if whole.startswith(said):
            self._say(whole[len(said) :])
        for call_id, item in told.items():
            if call_id not in self._given:
                self._finish_call(None, item)

    def _replay(self, told: list[Item]) -> dict[str, Any] | None:
        """The items to send back, if they say more than the content does."""
        if not self._native:
            return None
        finished = [item for _, item in self._finished]
        # An item's own event has its reasoning whole; some servers tell the response without items.
        items = [self._agreed(item) for item in (told if len(told) > len(finished) else finished)]
        kept = [item for item in map(kept_item, items) if item is not None]
        if not any(map(says_more, kept)):
            return None
        if len(msgspec.json.encode(kept)) > NATIVE_BYTES_MAX:
            return None
        return {"family": FAMILY, "items": kept}

    def _agreed(self, item: Item) -> Item:
        """A call with the id and the arguments that were given for it."""
        if item["type"] != "function_call":
            return item
        call_id = _call_id(item)
        arguments = self._given.get(call_id, item.get("arguments"))
        return item | {"call_id": call_id, "arguments": arguments}

    # --- inside --------------------------------------------------------------------------------

    def _item(self, key: Any) -> _Open:
        if key is None and self._items:
            return self._latest
        found = self._items.get(key)
        if found is None:
            found = self._items[key] = _Open()
        self._latest = found
        return found

    def _slot(self, key: Any, kind: str, index: Any) -> list[str]:
        slots = self._item(key).slots
        slot = slots.get((kind, index))
        if slot is None:
            slot = slots[kind, index] = []
        return slot

    def _say(self, text: str) -> None:
        if not text:
            return
        if self._thinking:
            self._flush()
            self._thinking = False
        self._thought = None
        self._fragments.append(text)
        self._said.append(text)

    def _think(self, text: str) -> None:
        if not self._thinking:
            self._flush()
            self._thinking = True
        self._fragments.append(text)

    def _flush(self) -> None:
        text = "".join(self._fragments)
        self._fragments.clear()
        if text and self._thinking:
            self._parts.append(ThinkingPart(text))
            self._assembler.thinking(text)
        elif text:
            self._parts.append(TextPart(text))
            self._assembler.text(text)

    def _finish_call(self, key: Any, item: Item) -> None:
        call_id = _text(item.get("call_id"))
        call = next((each for each in self._calls if call_id and each.call_id == call_id), None)
        if call is None:
            here = self._items.get(key)
            call = here if here is not None and here in self._calls and not here.whole else None
            if call is None:  # it was never said to begin
                call = here if here is not None and not here.name else _Open()
                self._calls.append(call)
        call.call(item)
        call.whole = True
        self._give_calls()

    def _give_calls(self) -> None:
        while self._calls and self._calls[0].whole:
            call = self._calls.pop(0)
            if not call.name:
                continue
            self._flush()
            self._thought = None
            part = ToolCallPart(
                model_call_id=call.call_id,
                name=call.name,
                arguments="".join(call.arguments),
                provider_item_id=call.item_id,
            )
            self._given[call.call_id] = part.arguments
            self._parts.append(part)
            self._assembler.add(part)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def arguments_text(value: object) -> str | None:
    """A call's arguments as JSON text, also from a server that says them as an object."""
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return _text(value)


def _call_id(item: Item) -> str:
    return _text(item.get("call_id")) or _text(item.get("id")) or ""


def _words(items: list[Item]) -> Iterator[str]:
    for item in items:
        if item["type"] == "message":
            for part in parts_in(item, "content"):
                yield _text(part.get("text")) or _text(part.get("refusal")) or ""


def _usage(found: Any) -> Usage:
    told = found if isinstance(found, dict) else {}
    into, out = told.get("input_tokens_details"), told.get("output_tokens_details")
    into = into if isinstance(into, dict) else {}
    out = out if isinstance(out, dict) else {}
    return Usage(
        input_tokens=_count(told.get("input_tokens")),
        output_tokens=_count(told.get("output_tokens")),
        reasoning_tokens=_count(out.get("reasoning_tokens")),
        cache_read_tokens=_count(into.get("cached_tokens")),
        cache_write_tokens=_count(into.get("cache_write_tokens")),
    )


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= COUNT_MAX else None
