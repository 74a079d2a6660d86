"""From the session to the messages a model is sent: paired, without holes, the same every time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias, assert_never

from msgspec import Struct, structs

from ipc.content import (
    InputBlock,
    MediaBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    TurnBlock,
)
from ipc.events import BlockPlace, InternalSummary, ReplayDecision, ResolvedModel
from ipc.fold import (
    CallState,
    CheckpointEntry,
    Entry,
    InjectedEntry,
    InstructionsEntry,
    NoticeEntry,
    RehydratedEntry,
    SeedEntry,
    SessionView,
    SkillEntry,
    TurnEntry,
    UserEntry,
)
from workers.providers.base import AssistantMessage, Message, ToolMessage, UserMessage
from workers.run.blocks import (
    CALL_ID,
    CALL_ID_STEM_CHARS_MAX,
    UNSAFE,
    blank,
    broken,
    in_words,
    safe_name,
    sound,
    sound_arguments,
)
from workers.run.loops import REMINDER, Circles
from workers.run.replay import (
    NativeReplay,
    continues,
    disposition,
    paused,
    same_source,
    without_blanks,
)
from workers.run.results import CUT, FAILED, is_lost, outcome, result

Repair = Literal[
    "bad_call_id",
    "bad_name",
    "broken_arguments",
    "control_characters",
    "dropped_media",
    "duplicate_call_id",
    "empty_message",
    "empty_text",
    "foreign_signature",
    "isolated",
    "last_assistant",
    "missing_call_id",
    "missing_result",
    "no_first_user",
    "orphan_result",
    "result_order",
    "trailing_thinking",
]  # what a history can be mended of; the words that history_repaired uses
Places: TypeAlias = tuple[BlockPlace | None, ...]


class Projection(Struct, frozen=True, kw_only=True):
    """A session as messages, and all that was decided in making them.

    `places` has a row for each message, with a place for each of its blocks; the row of a result
    is of its output, then of its attachments. None = it stands nowhere in the log. `repairs`
    counts what had to be mended. `decisions` has a row for each turn in `messages`, empty when no
    turn has a native form.
    """

    messages: tuple[Message, ...]
    places: tuple[Places, ...]
    repairs: Mapping[Repair, int] = {}
    decisions: tuple[ReplayDecision, ...] = ()
    unreplayed: tuple[int, ...] = ()  # `model_turn_seq` of turns that need their native form
    paused: bool = False  # the last message goes back to its provider to be gone on with


def messages(state: SessionView, reader: ResolvedModel | None = None) -> tuple[Message, ...]:
    """The messages of `project`."""
    return project(state, reader).messages


def project(
    state: SessionView,
    reader: ResolvedModel | None = None,
    replay: NativeReplay = "optional",
    *,
    warn: bool = True,
) -> Projection:
    """The history as the model that reads it may be sent it.

    Every call is followed by its one result, no text block is blank, no call id comes twice. A
    refused turn is left out together with the inputs it answers. Thinking of another wire model
    than the reader's loses its signature. What a provider refused is told in words. The same
    state makes an equal projection, and what was said before stays as it was while a session
    grows; only a revert, a checkpoint, an elided output and a refusal change it. `warn`: a model
    that goes round in a circle is told so (spec 1.8).
    """
    history = _History(state, reader, replay, warn=warn)
    for entry in _visible(state):
        history.add(entry)
    return history.projection()


def will_run(entry: TurnEntry) -> bool:
    """Whether the calls of a turn are to be taken up at all: a turn that was cut off runs none."""
    return entry.event.turn.finish_reason not in CUT | FAILED


# --- which entries count -----------------------------------------------------------------------


def _visible(state: SessionView) -> Iterator[Entry]:
    checkpoint = state.checkpoint
    # A window that a provider compacted natively can only be sent as such; without that, the
    # whole history is the truth.
    if checkpoint is None or not isinstance(checkpoint.event.checkpoint, InternalSummary):
        yield from (entry for entry in state.entries if not isinstance(entry, CheckpointEntry))
        return
    through = checkpoint.event.boundaries.source_through_seq
    told = [entry for entry in state.entries if isinstance(entry, InstructionsEntry)]
    yield checkpoint
    for entry in state.entries:
        if isinstance(entry, CheckpointEntry):
            continue
        # Skills stay (spec 1.17), and so does what the workspace said last (spec 1.10).
        stays = isinstance(entry, SkillEntry) or (told and entry is told[-1])
        if entry.seq > through or stays:
            yield entry


class _History:
    """Messages under construction."""

    def __init__(
        self, state: SessionView, reader: ResolvedModel | None, replay: NativeReplay, *, warn: bool
    ) -> None:
        self._said: list[Message] = []
        self._places: list[Places] = []
        self._reader = reader
        self._replay = replay
        self._isolated = state.isolated
        self._repairs = Counter[Repair]()
        self._decisions: list[ReplayDecision] = []
        self._has_native = False
        self._unreplayed: list[int] = []
        self._paused = -1  # how many messages there were with the newest paused turn as the last
        self._circles = Circles() if warn else None
        self._ids: set[str] = set()  # of the calls so far
        self._asked: list[int] = []  # where the inputs stand that no turn has answered yet

    def projection(self) -> Projection:
        return Projection(
            messages=tuple(self._said),
            places=tuple(self._places),
            repairs=self._repairs,
            decisions=tuple(self._decisions) if self._has_native else (),
            unreplayed=tuple(self._unreplayed),
            paused=self._paused == len(self._said),
        )

    def add(self, entry: Entry) -> None:
        match entry:
            case UserEntry():
                if self._circles is not None:
                    self._circles.spoken()
                if self._user(entry.seq, entry.input.content):
                    self._asked.append(len(self._said) - 1)
            case TurnEntry():
                self._turn(entry)
            case InjectedEntry(role="assistant"):
                self._assistant(entry.seq, entry.input.content)
            case InjectedEntry():
                self._user(entry.seq, entry.input.content)
            case SeedEntry(turns=turns):
                for index, turn in enumerate(turns):
                    block = TextBlock(text=turn.text)
                    if turn.role == "assistant":
                        self._assistant(entry.seq, (block,), index)
                    else:
                        self._user(entry.seq, (block,), index)
            case SkillEntry(event=skill):
                self._user(entry.seq, (TextBlock(text=skill.rendered_body),), -1)
            case InstructionsEntry(entries=entries):
                shown = "\n".join(_tagged("agent_md", "source", e.source, e.text) for e in entries)
                self._remind(entry.seq, shown)
            case RehydratedEntry(files=files):
                shown = "\n".join(_tagged("file", "path", f.path, f.content) for f in files)
                self._remind(entry.seq, f"Files as they are now:\n{shown}")
            case CheckpointEntry(event=event):
                assert isinstance(event.checkpoint, InternalSummary)
                summary = event.checkpoint.summary
                self._remind(entry.seq, f"The conversation so far, in summary:\n{summary}")
            case NoticeEntry():
                pass
            case _:
                assert_never(entry)

    def _say(self, message: Message, places: Places) -> None:
        self._said.append(message)
        self._places.append(places)

    def _user(self, seq: int, content: Iterable[InputBlock], first: int = 0) -> bool:
        kept, places = self._kept(seq, content, first)
        if kept:
            self._say(UserMessage(content=tuple(kept)), tuple(places))
        return bool(kept)

    def _assistant(self, seq: int, content: Iterable[InputBlock], first: int = 0) -> None:
        text = (block if isinstance(block, TextBlock) else None for block in content)
        kept, places = self._kept(seq, text, first)
        if kept:
            self._say(AssistantMessage(content=tuple(kept)), tuple(places))

    def _kept(
        self, seq: int, content: Iterable[InputBlock | None], first: int
    ) -> tuple[list[InputBlock], list[BlockPlace]]:
        """The blocks that are no holes, and where they stand; `first` is the index of the first."""
        kept: list[InputBlock] = []
        places: list[BlockPlace] = []
        whole = BlockPlace(seq=seq, index=-1)
        for index, block in enumerate(content, first):
            if block is None or self._is_blank(block):
                continue
            place = BlockPlace(seq=seq, index=index)
            words = self._isolated and (
                self._in_words(place, block) or self._in_words(whole, block)
            )
            kept.append(words or block)
            places.append(place)
        return kept, places

    def _is_blank(self, block: TurnBlock) -> bool:
        # Blanks are what a model may well say; a block of nothing should never have been stored.
        if isinstance(block, TextBlock) and not block.text:
            self._repairs["empty_text"] += 1
        return blank(block)

    def _in_words(self, place: BlockPlace, block: TurnBlock) -> TextBlock | None:
        """What stands for a block that a provider refused; None when it was not refused."""
        refusal = self._isolated.get(place)
        if refusal is None:
            return None
        self._repairs["isolated"] += 1
        return TextBlock(text=in_words(block, refusal))

    def _remind(self, seq: int, text: str) -> None:
        block = TextBlock(text=f"<system-reminder>\n{text}\n</system-reminder>")
        self._user(seq, (block,), -1)

    # --- turns

    def _turn(self, entry: TurnEntry) -> None:
        turn = entry.event.turn
        asked, self._asked = self._asked, []
        if not entry.calls:
            if turn.finish_reason == "refused":
                # A model goes on refusing while the words it refused stand in the history.
                for place in reversed(asked):
                    del self._said[place], self._places[place]
                return
            if turn.finish_reason in FAILED:
                return
        told = self._retold(entry)
        decided = disposition(turn, same=told.same, replay=self._replay, mended=told.mended)
        native = turn.native_replay if decided == "replayed" else None
        native = native and without_blanks(native)
        if native is None and told.same and self._replay == "required" and continues(turn):
            self._unreplayed.append(entry.event.model_turn_seq)
        if not told.blocks and native is None:
            return
        self._has_native |= turn.native_replay is not None
        self._decisions.append(ReplayDecision(history_index=len(self._said), disposition=decided))
        blocks = told.blocks if native is not None or turn.native_replay is None else told.bare()
        self._say(AssistantMessage(content=tuple(blocks), native=native), tuple(told.places))
        self._answers(entry, told)
        # Only its own provider can go on with it, and only from all that it said.
        if paused(turn) and told.same and (native is not None or turn.native_replay is None):
            self._paused = len(self._said)

    def _retold(self, entry: TurnEntry) -> "_Retold":
        """A turn without what the reader would refuse of it."""
        turn, seq = entry.event.turn, entry.seq
        told = _Retold(same=same_source(self._reader, entry.event.resolved_model))
        calls = {call.content_index: call for call in entry.calls}
        bare = bool(self._isolated) and BlockPlace(seq=seq, index=-1) in self._isolated
        if bare:
            told.mended = True
            self._repairs["isolated"] += 1
        for index, block in enumerate(turn.content):
            place = BlockPlace(seq=seq, index=index)
            if bare and isinstance(block, ThinkingBlock):
                continue
            if self._isolated and (words := self._in_words(place, block)) is not None:
                told.mended = True
                if not isinstance(block, ThinkingBlock):  # of which nobody misses anything
                    told.add(words, place)
                continue
            kept = self._block(told, block, entry.event.model_turn_seq, index)
            if kept is None:
                continue
            told.add(kept, place)
            if isinstance(block, ToolCallBlock) and isinstance(kept, ToolCallBlock):
                told.calls.append((kept, block, calls.get(index)))
        if told.drop_last_thinking():
            cut = turn.finish_reason in CUT or not told.blocks
            self._repairs["trailing_thinking"] += 1
            told.mended |= cut and not paused(turn)
        return told

    def _block(self, told: "_Retold", block: TurnBlock, turn: int, index: int) -> TurnBlock | None:
        match block:
            case ToolCallBlock():
                sent = self._sendable(block, turn, index, same=told.same)
                # No arguments at all and an empty object are the same to say.
                spelled = structs.replace(sent, arguments=block.arguments)
                told.mended |= (sent if block.arguments.strip() else spelled) != block
                return sent
            case ThinkingBlock() if not told.same:
                if block.redacted or block.signature is not None:
                    self._repairs["foreign_signature"] += 1
                    block = structs.replace(block, text="" if block.redacted else block.text)
                    block = structs.replace(block, signature=None, redacted=False)
        return None if self._is_blank(block) else self._in_safe_characters(told, block)

    def _in_safe_characters(self, told: "_Retold", block: TurnBlock) -> TurnBlock:
        if not isinstance(block, TextBlock | ThinkingBlock):
            return block
        text = sound(block.text)
        if text is block.text:
            return block
        self._repairs["control_characters"] += 1
        told.mended = True
        return structs.replace(block, text=text)

    def _answers(self, entry: TurnEntry, told: "_Retold") -> None:
        """The results of a turn's calls, in its order."""
        remind = self._reminded(entry, told)
        finish = entry.event.turn.finish_reason
        for sent, block, call in told.calls:
            message = result(sent, block, call, finish)
            if is_lost(block, call, finish):
                self._repairs["missing_result"] += 1
            if remind is not None and call is remind:
                message = structs.replace(message, output=f"{message.output}\n\n{REMINDER}")
            message, places = self._placed(message, call)
            self._say(message, places)

    def _reminded(self, entry: TurnEntry, told: "_Retold") -> CallState | None:
        """The call of a turn whose result says that the model goes round in a circle."""
        if self._circles is None:
            return None
        ended = [call for _, _, call in told.calls if call is not None and call.ended is not None]
        turn = entry.event.model_turn_seq
        place = self._circles.turn([outcome(turn, call) for call in ended])
        return None if place is None else ended[place]

    def _placed(self, message: ToolMessage, call: CallState | None) -> tuple[ToolMessage, Places]:
        """A result and where it stands, without what a provider refused of it."""
        if call is None or call.ended_seq is None:
            return message, (None,)
        seq = call.ended_seq
        whole = BlockPlace(seq=seq, index=-1)
        places = tuple(
            BlockPlace(seq=seq, index=index) for index in range(len(message.attachments))
        )
        if self._isolated:
            message, places = self._without_refused(message, whole, places)
        return message, (whole, *places)

    def _without_refused(
        self, message: ToolMessage, whole: BlockPlace, places: tuple[BlockPlace, ...]
    ) -> tuple[ToolMessage, tuple[BlockPlace, ...]]:
        output = message.output
        refusal = self._isolated.get(whole)
        if refusal is not None:
            self._repairs["isolated"] += 1
            output = in_words(TextBlock(text=output), refusal)
        kept: list[tuple[MediaBlock, BlockPlace]] = []
        for block, place in zip(message.attachments, places, strict=True):
            refusal = self._isolated.get(place)
            if refusal is None:
                kept.append((block, place))
                continue
            self._repairs["isolated"] += 1
            output = f"{output}\n\n{in_words(block, refusal)}"
        attachments = tuple(block for block, _ in kept)
        message = structs.replace(message, output=output, attachments=attachments)
        return message, tuple(place for _, place in kept)

    # --- calls

    def _sendable(
        self, block: ToolCallBlock, turn: int, index: int, *, same: bool
    ) -> ToolCallBlock:
        """The call with an id of its own, a name and arguments that every provider takes."""
        call_id = self._call_id(block.model_call_id, turn, index)
        name = safe_name(block.name)
        if name != block.name:
            self._repairs["bad_name"] += 1
        arguments = block.arguments if block.arguments.strip() else "{}"
        if broken(block):
            self._repairs["broken_arguments"] += 1
            arguments = "{}"
        safe = sound_arguments(arguments)
        if safe != arguments:
            self._repairs["control_characters"] += 1
            arguments = safe
        item = block.provider_item_id if same else None
        sent = structs.replace(
            block, model_call_id=call_id, name=name, arguments=arguments, provider_item_id=item
        )
        return block if sent == block else sent

    def _call_id(self, said: str, turn: int, index: int) -> str:
        """What a call is known by; its family puts that in the letters that its API takes."""
        call_id = said
        if said and not CALL_ID.fullmatch(said):
            self._repairs["bad_call_id"] += 1
            call_id = UNSAFE.sub("_", said)[:CALL_ID_STEM_CHARS_MAX]
        if not call_id or call_id in self._ids:
            self._repairs["duplicate_call_id" if call_id else "missing_call_id"] += 1
            call_id = f"{call_id[:CALL_ID_STEM_CHARS_MAX] or 'call'}-{turn}-{index}"
            while call_id in self._ids:
                call_id += "_"
        self._ids.add(call_id)
        return call_id


class _Retold(Struct, kw_only=True):
    """A turn on its way into the history; `mended`: its native form says something else."""

    same: bool  # the reader is who said it
    blocks: list[TurnBlock] = []
    places: list[BlockPlace] = []
    calls: list[tuple[ToolCallBlock, ToolCallBlock, CallState | None]] = []  # as sent, as asked
    mended: bool = False

    def add(self, block: TurnBlock, place: BlockPlace) -> None:
        self.blocks.append(block)
        self.places.append(place)

    def bare(self) -> list[TurnBlock]:
        """The blocks without the names of items that only the native form holds."""
        return [
            structs.replace(block, provider_item_id=None)
            if isinstance(block, ToolCallBlock) and block.provider_item_id is not None
            else block
            for block in self.blocks
        ]

    def drop_last_thinking(self) -> bool:
        """Providers refuse a turn that ends in thinking."""
        before = len(self.blocks)
        while self.blocks and isinstance(self.blocks[-1], ThinkingBlock):
            self.blocks.pop()
            self.places.pop()
        return len(self.blocks) < before


def _tagged(tag: str, key: str, name: str, text: str) -> str:
    """A text of a file between tags that it can't close: it is material and no word of ours."""
    kept = text
    for closing in (tag, "system-reminder"):
        kept = kept.replace(f"</{closing}", f"&lt;/{closing}")
    quoted = name.replace('"', "&quot;")
    return f'<{tag} {key}="{quoted}">\n{kept}\n</{tag}>'
