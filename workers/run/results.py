"""What a model is told of its calls: each has a result, also when nobody knows what it came to."""

from typing import Any, Final

import msgspec

from ipc.content import FinishReason, ToolCallBlock
from ipc.fold import CallState
from workers.providers.base import ToolMessage
from workers.run.blocks import broken
from workers.run.loops import Outcome

DENIED: Final = "tool_denied"  # error code of a call that was refused; its message is JSON

# A turn that ended like this did not come to the end of its calls: none of them is run.
CUT: Final[frozenset[FinishReason]] = frozenset({"length", "content_filter", "refused"})
# A turn that ended like this is no history, unless one of its calls was taken up all the same.
FAILED: Final[frozenset[FinishReason]] = frozenset({"error", "aborted", "timeout", "cancelled"})


def denied(source: str, reason: str, feedback: str | None = None) -> str:
    """What the model is told about a refused call (spec 1.9)."""
    told = {"kind": DENIED, "source": source, "reason": reason, "feedback": feedback}
    return msgspec.json.encode(told).decode()


def result(
    sent: ToolCallBlock, asked: ToolCallBlock, call: CallState | None, finish: FinishReason
) -> ToolMessage:
    """The result of the call that is sent as `sent`, and was `asked` for in those words."""
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


def is_lost(asked: ToolCallBlock, call: CallState | None, finish: FinishReason) -> bool:
    """Whether a result is missing that there should be: each started call has an end event."""
    if call is not None:
        return call.ended is None
    return finish not in CUT and broken(asked) is None


def outcome(turn: int, call: CallState) -> Outcome:
    """An ended call as a step of the path that might be a circle."""
    assert call.ended is not None
    return Outcome(
        turn=turn,
        name=call.name,
        arguments=call.arguments,
        output=_output(call),
        succeeded=call.ended.outcome == "completed",
    )


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
