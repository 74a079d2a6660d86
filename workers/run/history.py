"""From the session to the messages a model is sent: paired, without holes, the same every time."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, assert_never

import msgspec
from msgspec import structs

from ipc.content import (
    FinishReason,
    InputBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    TurnBlock,
)
from ipc.events import InternalSummary, ResolvedModel
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

DENIED: Final = "tool_denied"  # error code of a call that was refused; its message is JSON
QUOTED_CHARS_MAX: Final = 1024  # of broken arguments, repeated to the model that wrote them
TOOL_NAME_CHARS_MAX: Final = 64  # what every provider takes

# A turn that ended like this did not come to the end of its calls: none of them is run.
CUT: Final[frozenset[FinishReason]] = frozenset({"length", "content_filter", "refused"})
# A turn that ended like this is no history, unless one of its calls was taken up all the same.
FAILED: Final[frozenset[FinishReason]] = frozenset({"error", "aborted", "timeout", "cancelled"})

_UNSAFE_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_JSON_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def messages(state: SessionView, reader: ResolvedModel | None = None) -> tuple[Message, ...]:
    """The history as the model that reads it may be sent it.

    Every call is followed by its one result, no text block is blank, no call id comes twice. A
    refused turn is left out together with the inputs it answers. Thinking of another wire model
    than the reader's loses its signature. The same state makes equal messages, and what was
    said before stays as it was while a session grows; only a revert, a checkpoint, an elided
    output and a refusal change it.
    """
    history = _History(reader)
    for entry in _visible(state):
        history.add(entry)
    return tuple(history.said)


def will_run(entry: TurnEntry) -> bool:
    """Whether the calls of a turn are to be taken up at all: a turn that was cut off runs none."""
    return entry.event.turn.finish_reason not in CUT | FAILED


def broken(block: ToolCallBlock) -> str | None:
    """Why a call cannot be run as it stands, for the model; None when its JSON is an object."""
    try:
        _JSON_OBJECT.decode(block.arguments or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        shown = block.arguments[:QUOTED_CHARS_MAX]
        return f"The arguments are no JSON object ({error}). They began: {shown}"
    return None


def denied(source: str, reason: str, feedback: str | None = None) -> str:
    """What the model is told about a refused call (spec 1.9)."""
    told = {"kind": DENIED, "source": source, "reason": reason, "feedback": feedback}
    return msgspec.json.encode(told).decode()


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

    def __init__(self, reader: ResolvedModel | None) -> None:
        self.said: list[Message] = []
        self._reader = reader
        self._ids: set[str] = set()  # of the calls so far
        self._asked: list[int] = []  # where the inputs stand that no turn has answered yet

    def add(self, entry: Entry) -> None:
        match entry:
            case UserEntry():
                if self._user(entry.input.content):
                    self._asked.append(len(self.said) - 1)
            case TurnEntry():
                self._turn(entry)
            case InjectedEntry(role="assistant"):
                text = (block for block in entry.input.content if isinstance(block, TextBlock))
                self._assistant(text)
            case InjectedEntry():
                self._user(entry.input.content)
            case SeedEntry(turns=turns):
                for turn in turns:
                    block = TextBlock(text=turn.text)
                    if turn.role == "assistant":
                        self._assistant((block,))
                    else:
                        self._user((block,))
            case SkillEntry(event=skill):
                self._user((TextBlock(text=skill.rendered_body),))
            case InstructionsEntry(entries=entries):
                shown = "\n".join(
                    f'<agent_md source="{one.source}">\n{one.text}\n</agent_md>' for one in entries
                )
                self._remind(shown)
            case RehydratedEntry(files=files):
                shown = "\n".join(
                    f'<file path="{file.path}">\n{file.content}\n</file>' for file in files
                )
                self._remind(f"Files as they are now:\n{shown}")
            case CheckpointEntry(event=event):
                assert isinstance(event.checkpoint, InternalSummary)
                self._remind(f"The conversation so far, in summary:\n{event.checkpoint.summary}")
            case NoticeEntry():
                pass
            case _:
                assert_never(entry)

    def _user(self, content: Iterable[InputBlock]) -> bool:
        kept = tuple(block for block in content if not _blank(block))
        if kept:
            self.said.append(UserMessage(content=kept))
        return bool(kept)

    def _remind(self, text: str) -> None:
        self._user((TextBlock(text=f"<system-reminder>\n{text}\n</system-reminder>"),))

    def _assistant(self, content: Iterable[TurnBlock]) -> None:
        kept = tuple(block for block in content if not _blank(block))
        if kept:
            self.said.append(AssistantMessage(content=kept))

    def _turn(self, entry: TurnEntry) -> None:
        turn = entry.event.turn
        asked, self._asked = self._asked, []
        if not entry.calls:
            if turn.finish_reason == "refused":
                # A model goes on refusing while the words it refused stand in the history.
                for place in reversed(asked):
                    del self.said[place]
                return
            if turn.finish_reason in FAILED:
                return
        wire_model = entry.event.resolved_model.wire_model
        same = self._reader is None or self._reader.wire_model == wire_model
        calls = {call.content_index: call for call in entry.calls}
        content: list[TurnBlock] = []
        results: list[ToolMessage] = []
        for index, block in enumerate(turn.content):
            match block:
                case ToolCallBlock():
                    sent = self._sendable(block, entry.event.model_turn_seq, index)
                    content.append(sent)
                    results.append(_result(sent, block, calls.get(index), turn.finish_reason))
                case ThinkingBlock() if not same:
                    if not block.redacted:
                        content.append(structs.replace(block, signature=None))
                case _:
                    content.append(block)
        kept = [block for block in content if not _blank(block)]
        while kept and isinstance(kept[-1], ThinkingBlock):
            kept.pop()  # providers refuse a turn that ends in thinking
        if kept:
            self.said.append(AssistantMessage(content=tuple(kept)))
            self.said.extend(results)

    def _sendable(self, block: ToolCallBlock, turn: int, index: int) -> ToolCallBlock:
        """The call with an id of its own, a name and arguments that every provider takes."""
        call_id = block.model_call_id
        if not call_id or call_id in self._ids:
            call_id = f"{call_id or 'call'}-{turn}-{index}"
        self._ids.add(call_id)
        name = _UNSAFE_NAME.sub("_", block.name)[:TOOL_NAME_CHARS_MAX] or "unknown"
        arguments = "{}" if broken(block) or not block.arguments else block.arguments
        if (call_id, name, arguments) == (block.model_call_id, block.name, block.arguments):
            return block
        return structs.replace(block, model_call_id=call_id, name=name, arguments=arguments)


def _blank(block: TurnBlock) -> bool:
    match block:
        case TextBlock(text=text):
            return not text.strip()
        case ThinkingBlock():
            return not (block.text.strip() or block.signature or block.redacted)
        case _:
            return False


# --- results -----------------------------------------------------------------------------------


def _result(
    sent: ToolCallBlock, asked: ToolCallBlock, call: CallState | None, finish: FinishReason
) -> ToolMessage:
    told: dict[str, Any] = {"model_call_id": sent.model_call_id, "name": sent.name}
    if call is None or call.ended is None:
        return ToolMessage(**told, output=_unanswered(asked, call, finish), is_error=True)
    ended = call.ended
    failed = ended.outcome != "completed"
    if call.elided is not None:
        uri = call.elided.retained.uri
        size = call.elided.original_bytes
        output = f'[An output of {size} bytes stood here. Read it: read(filePath="{uri}")]'
        return ToolMessage(**told, output=output, is_error=failed)
    attachments = () if ended.result is None else ended.result.attachments
    return ToolMessage(**told, output=_output(call), is_error=failed, attachments=attachments)


def _unanswered(asked: ToolCallBlock, call: CallState | None, finish: FinishReason) -> str:
    if call is not None:
        return "interrupted: The run ended before this call had a result."
    if finish in CUT:
        return (
            "not_run: The turn was cut off before it was complete, so none of its calls was run. "
            "Call again, in smaller steps."
        )
    why = broken(asked)
    if why is not None:
        return f"invalid_arguments: {why}"
    return "interrupted: The run ended before this call ran. It had no effect."


def _output(call: CallState) -> str:
    ended = call.ended
    assert ended is not None
    output = "" if ended.result is None else ended.result.output
    error = ended.error
    if error is not None and error.code == DENIED:
        is_json = error.message.startswith("{")
        return error.message if is_json else denied("policy", error.message)
    if error is not None:
        said = f"{error.code}: {error.message}"
        return f"{output}\n\n{said}" if output.strip() else said
    if output.strip():
        return output
    return "(no output)" if ended.outcome == "completed" else f"{ended.outcome}: No result."
