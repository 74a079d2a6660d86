"""The last gate before a request: what every provider demands of a history holds, or is made to."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import count, pairwise
from operator import is_
from typing import Final, TypeGuard, cast

from msgspec import Struct, structs

from ipc.content import InputBlock, MediaBlock, TextBlock, ThinkingBlock, ToolCallBlock, TurnBlock
from ipc.events import FrozenModelBinding, ModelCapabilities
from ipc.events.base import MediaLimit
from workers.providers.base import AssistantMessage, Message, ToolMessage, UserMessage
from workers.run.blocks import (
    CALL_ID,
    CALL_ID_STEM_CHARS_MAX,
    UNSAFE,
    blank,
    broken,
    safe_name,
    sound,
    sound_arguments,
    what,
)
from workers.run.history import Places, Projection, Repair

REQUEST_MEDIA_BYTES_MAX: Final = 14 * 1024 * 1024  # decoded; in base64 what the narrowest one takes
GO_ON: Final = "Go on."
BEGUN: Final = "(What came before is not shown.)"
LOST: Final = "interrupted: Nothing is known of what this call came to."
NOTHING_SAID: Final = "(no output)"


def check(projection: Projection, binding: FrozenModelBinding) -> Projection:
    """The same history as every provider takes it, with what had to be mended for that.

    Each call of an assistant message is answered exactly once, right after it and in order; no
    result stands alone; ids are unique, text is not blank, arguments are a JSON object, names and
    characters are of those that all take, media is what this model takes and no more of it. It
    begins with a user message and ends with one or a result, unless a paused turn goes back.
    What was sound goes through as it was.
    """
    gate = _Gate(projection)
    gate.inspect()
    gate.bound_media(binding.capabilities)
    return gate.framed()


class _Attached(Struct, frozen=True):
    """Media that was let out: in which message, and as which of its blocks or attachments."""

    message: int
    index: int
    block: MediaBlock


class _Gate:
    """A history under inspection: what was let out so far, with where it stands in the log."""

    def __init__(self, given: Projection) -> None:
        self._given = given
        self._out: list[Message] = []
        self._places: list[Places] = []
        self._media: list[_Attached] = []
        self._ids: set[str] = set()
        self._mended = Counter[Repair]()

    def inspect(self) -> None:
        """Let the messages out, each turn with its results right behind it."""
        messages, rows = self._given.messages, self._given.places
        turns = [n for n, one in enumerate(messages) if isinstance(one, AssistantMessage)]
        self._between((), 0, turns[0] if turns else len(messages))
        for n, end in pairwise((*turns, len(messages))):
            turn = messages[n]
            assert isinstance(turn, AssistantMessage)
            self._between(self._turn(turn, rows[n]), n + 1, end)

    def bound_media(self, can: ModelCapabilities) -> None:
        """Put words for media that this model does not take, and for the oldest of too much."""
        if self._media:
            for number, why in sorted(_surplus([one.block for one in self._media], can).items()):
                self._mended["dropped_media"] += 1
                self._put_words(self._media[number], why)

    def framed(self) -> Projection:
        """What was let out, from a user message to something that the model can answer."""
        given, out = self._given, self._out
        decisions = given.decisions
        if not out or not isinstance(out[0], UserMessage):
            self._mended["no_first_user"] += 1
            out.insert(0, _plain(BEGUN if out else GO_ON))
            self._places.insert(0, (None,))
            decisions = tuple(
                structs.replace(one, history_index=one.history_index + 1) for one in decisions
            )
        if isinstance(out[-1], AssistantMessage) and not given.paused:
            self._mended["last_assistant"] += 1
            self._let_out(_plain(GO_ON), (None,))
        if not self._mended:
            return given
        return structs.replace(
            given,
            messages=tuple(out),
            places=tuple(self._places),
            repairs=Counter(given.repairs) + self._mended,
            decisions=decisions,
        )

    def _let_out(self, message: Message, places: Places) -> None:
        self._out.append(message)
        self._places.append(places)

    # --- what stands between two turns

    def _between(self, calls: Sequence["_Call"], begin: int, end: int) -> None:
        """The results of `calls`, each right behind the other, then what people said."""
        messages, rows = self._given.messages, self._given.places
        results = {n: one for n in range(begin, end) if _is_result(one := messages[n])}
        answered = 0
        for call in calls:
            n = next((n for n, one in results.items() if one.model_call_id == call.asked), None)
            if n is None:
                self._mended["missing_result"] += 1
                self._result(call.sent, _LOST, (None,))
                continue
            if n != begin + answered:
                self._mended["result_order"] += 1
            answered += 1
            self._result(call.sent, results.pop(n), rows[n])
        if results:
            self._mended["orphan_result"] += len(results)
        for n in range(begin, end):
            said = messages[n]
            if isinstance(said, UserMessage):
                self._user(said, rows[n])

    def _result(self, sent: ToolCallBlock, result: ToolMessage, places: Places) -> None:
        output = self._sound(result.output)
        if not output or output.isspace():
            self._mended["empty_text"] += 1
            output = NOTHING_SAID
        told = (sent.model_call_id, sent.name, output)
        if told != (result.model_call_id, result.name, result.output):
            call_id, name, output = told
            result = structs.replace(result, model_call_id=call_id, name=name, output=output)
        for index, block in enumerate(result.attachments):
            self._media.append(_Attached(len(self._out), index, block))
        self._let_out(result, places)

    def _user(self, said: UserMessage, places: Places) -> None:
        content, at = self._blocks(said.content, places)
        if not content:
            self._mended["empty_message"] += 1
        elif content is said.content:
            self._let_out(said, at)
        else:
            self._let_out(UserMessage(content=cast("tuple[InputBlock, ...]", content)), at)

    # --- turns

    def _turn(self, said: AssistantMessage, places: Places) -> list["_Call"]:
        """Let a turn out; its calls, which are to be answered."""
        content, at = self._blocks(said.content, places)
        while content and isinstance(content[-1], ThinkingBlock):
            self._mended["trailing_thinking"] += 1
            content, at = content[:-1], at[:-1]
        if content is said.content and (content or said.native is not None):
            self._let_out(said, at)
        elif content:  # and without a native form, which would contradict it
            self._let_out(AssistantMessage(content=content), at)
        else:
            self._mended["empty_message"] += 1
        asked = (block for block in said.content if isinstance(block, ToolCallBlock))
        sent = (block for block in content if isinstance(block, ToolCallBlock))
        return [_Call(one.model_call_id, two) for one, two in zip(asked, sent, strict=True)]

    # --- blocks

    def _blocks(
        self, content: tuple[TurnBlock, ...], places: Places
    ) -> tuple[tuple[TurnBlock, ...], Places]:
        """The blocks of a message as they may go out; the same tuples if they all may."""
        safe = [self._block(block) for block in content]
        if all(map(is_, safe, content)):
            kept, at = content, places
        else:
            pairs = [pair for pair in zip(safe, places, strict=True) if pair[0] is not None]
            kept = tuple(block for block, _ in pairs if block is not None)
            at = tuple(place for _, place in pairs)
        for index, block in enumerate(kept):
            if isinstance(block, MediaBlock):
                self._media.append(_Attached(len(self._out), index, block))
        return kept, at

    def _block(self, block: TurnBlock) -> TurnBlock | None:
        if blank(block):
            self._mended["empty_text"] += 1
            return None
        match block:
            case TextBlock(text=text) | ThinkingBlock(text=text):
                safe = self._sound(text)
                return block if safe is text else structs.replace(block, text=safe)
            case ToolCallBlock():
                return self._call(block)
            case MediaBlock():
                return block

    def _call(self, block: ToolCallBlock) -> ToolCallBlock:
        call_id, name, arguments = block.model_call_id, block.name, block.arguments
        if not CALL_ID.fullmatch(call_id):
            self._mended["bad_call_id" if call_id else "missing_call_id"] += 1
            call_id = UNSAFE.sub("_", call_id)[:CALL_ID_STEM_CHARS_MAX] or "call"
        if call_id in self._ids:
            self._mended["duplicate_call_id"] += 1
            call_id = self._fresh(call_id)
        self._ids.add(call_id)
        if safe_name(name) != name:
            self._mended["bad_name"] += 1
            name = safe_name(name)
        if broken(block) or not arguments.strip():
            self._mended["broken_arguments"] += 1
            arguments = "{}"
        safe = sound_arguments(arguments)
        if safe != arguments:
            self._mended["control_characters"] += 1
            arguments = safe
        if (call_id, name, arguments) == (block.model_call_id, block.name, block.arguments):
            return block
        return structs.replace(block, model_call_id=call_id, name=name, arguments=arguments)

    def _fresh(self, call_id: str) -> str:
        stem = call_id[:CALL_ID_STEM_CHARS_MAX]
        return next(new for n in count(2) if (new := f"{stem}-{n}") not in self._ids)

    def _sound(self, text: str) -> str:
        safe = sound(text)
        if safe is not text:
            self._mended["control_characters"] += 1
        return safe

    def _put_words(self, media: _Attached, why: str) -> None:
        message, places = self._out[media.message], self._places[media.message]
        words = f"[{what(media.block)} stood here; {why}]"
        if isinstance(message, ToolMessage):
            # Attachments have no place for words. Those behind this one move up, so it is the
            # block and not the number that says which one goes.
            index = next(n for n, one in enumerate(message.attachments) if one is media.block)
            attachments = message.attachments
            self._out[media.message] = structs.replace(
                message,
                output=f"{message.output}\n\n{words}",
                attachments=(*attachments[:index], *attachments[index + 1 :]),
            )
            self._places[media.message] = (*places[: index + 1], *places[index + 2 :])
            return
        content: list[TurnBlock] = list(message.content)
        content[media.index] = TextBlock(text=words)
        if isinstance(message, AssistantMessage):
            self._out[media.message] = AssistantMessage(content=tuple(content))
        else:
            inputs = cast("list[InputBlock]", content)
            self._out[media.message] = UserMessage(content=tuple(inputs))


class _Call(Struct, frozen=True):
    """A call with the id that its result has, and as it goes out."""

    asked: str
    sent: ToolCallBlock


_LOST = ToolMessage(model_call_id="", name="", output=LOST, is_error=True)


def _is_result(message: Message) -> TypeGuard[ToolMessage]:
    return isinstance(message, ToolMessage)


def _plain(text: str) -> UserMessage:
    return UserMessage(content=(TextBlock(text=text),))


# --- media -------------------------------------------------------------------------------------


def _surplus(media: Sequence[MediaBlock], can: ModelCapabilities) -> dict[int, str]:
    """Which of the media, oldest first, may not go out, and why."""
    why = {n: told for n, one in enumerate(media) if (told := _unfit(one, can)) is not None}
    for limit in can.media_limits:
        alike = [n for n, one in enumerate(media) if n not in why and _is_of(one, limit)]
        kept = _newest(dict.fromkeys(alike, 1), limit.max_count)
        words = f"a request to this model holds {limit.max_count} of its kind, and newer ones came"
        why |= {n: f"it is no longer sent: {words}" for n in alike if n not in kept}
    sizes = {n: one.byte_length for n, one in enumerate(media) if n not in why}
    kept = _newest(sizes, REQUEST_MEDIA_BYTES_MAX)
    words = f"the media of one request may be {REQUEST_MEDIA_BYTES_MAX} bytes, and newer ones came"
    return why | {n: f"it is no longer sent: {words}" for n in sizes if n not in kept}


def _unfit(block: MediaBlock, can: ModelCapabilities) -> str | None:
    """Why a block can't be sent to this model whatever stands beside it."""
    told = f"{block.mime} of {block.byte_length} bytes"
    if not any(fnmatchcase(block.mime, pattern) for pattern in can.input_media):
        return f"it is not sent: this model takes no {block.mime}"
    top = [one.max_bytes for one in can.media_limits if _is_of(block, one)]
    bound = min([*top, REQUEST_MEDIA_BYTES_MAX])
    if block.byte_length > bound:
        return f"it is not sent: it is {told}, and this model takes {bound}"
    return None


def _is_of(block: MediaBlock, limit: MediaLimit) -> bool:
    return any(fnmatchcase(block.mime, pattern) for pattern in limit.mime_types)


def _newest(weights: Mapping[int, int], bound: int) -> set[int]:
    """The newest of them whose weights keep within `bound`, as they would have come one by one.

    When there is too much, a quarter more than must be goes, so that not every new one changes
    the beginning of the request, which the provider has in its cache.
    """
    kept: deque[int] = deque()
    total = 0
    for n, weight in weights.items():
        kept.append(n)
        total += weight
        if total > bound:
            while kept and total > max(bound - bound // 4, min(weight, bound)):
                total -= weights[kept.popleft()]
    return set(kept)
