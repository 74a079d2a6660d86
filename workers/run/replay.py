"""The native forms of earlier turns: which of them a request may hold, and what became of each."""

from typing import Any, Final, Literal

import msgspec

from ipc.content import ThinkingBlock, ToolCallBlock
from ipc.events import ModelTurn, ReplayDisposition, ResolvedModel

NativeReplay = Literal["unsupported", "optional", "required"]

NATIVE_BYTES_MAX: Final = 1024 * 1024  # of one turn's native form, as JSON
PAUSED: Final = "pause_turn"  # a provider's word for a turn that it wants back to go on with


def same_source(reader: ResolvedModel | None, writer: ResolvedModel) -> bool:
    """Whether what only its own provider understands may go back: to an equal wire model.

    Two providers of different kinds may use one name for a model; they can't read each other.
    """
    if reader is None:
        return True
    return reader.wire_model == writer.wire_model and _kind(reader) == _kind(writer)


def disposition(
    turn: ModelTurn, *, same: bool, replay: NativeReplay, mended: bool
) -> ReplayDisposition:
    """What becomes of a turn's native form; `same` as `same_source` says it of the reader.

    `mended`: what stands beside it was changed, so that the two would contradict each other.
    """
    native = turn.native_replay
    if native is None:
        return "no_artifact"
    if not same:
        return "discarded_wire_model"
    if replay == "unsupported":
        return "discarded_unsupported"
    if mended or not isinstance(native.get("family"), str) or not _sound(native):
        return "discarded_invalid"
    return "replayed"


def without_blanks(native: dict[str, Any]) -> dict[str, Any]:
    """A native form without the blank texts in it, which its own provider would refuse."""
    items = native.get("items")
    if not isinstance(items, list) or not any(map(_is_blank_text, items)):
        return native
    return {**native, "items": [item for item in items if not _is_blank_text(item)]}


def _is_blank_text(item: object) -> bool:
    if not isinstance(item, dict) or item.get("type") != "text":
        return False
    text = item.get("text")
    return isinstance(text, str) and not text.strip()


def continues(turn: ModelTurn) -> bool:
    """Whether a model that requires its native forms can't go on from the content alone."""
    return any(isinstance(block, ThinkingBlock | ToolCallBlock) for block in turn.content)


def paused(turn: ModelTurn) -> bool:
    """Whether a turn goes back as it is, for its provider to go on with it."""
    return turn.finish_reason == "other" and turn.provider_metadata.get("stop_reason") == PAUSED


def _kind(model: ResolvedModel) -> str:
    return model.adaptor.partition("-")[0]  # anthropic, openai, google, azure, ...


def _sound(native: dict[str, object]) -> bool:
    try:
        encoded = msgspec.json.encode(native)
    except (TypeError, ValueError, RecursionError):  # UnicodeEncodeError is a ValueError
        return False
    return len(encoded) <= NATIVE_BYTES_MAX and b"\\u0000" not in encoded
