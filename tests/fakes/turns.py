"""Whole turns as the families' servers send them, written by hand from the public protocols.

Each function gives the events of one response, in order; joined they are its body.
"""

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

Text = str | Sequence[str]  # its deltas


class Call(Struct, frozen=True):
    """A tool call of a turn; `arguments` may be broken, if it is a text."""

    id: str
    name: str
    arguments: dict[str, Any] | str = {}

    @property
    def json(self) -> str:
        """Its arguments as the model wrote them."""
        made = self.arguments
        return made if isinstance(made, str) else json.dumps(made)


def deltas(text: Text) -> list[str]:
    """The deltas of a text: those given, or one; none of an empty one."""
    return [text] if isinstance(text, str) and text else list(text)


def event(value: dict[str, Any] | str, name: str = "", end: str = "\n") -> bytes:
    """One server-sent event."""
    data = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    head = f"event: {name}{end}" if name else ""
    return f"{head}data: {data}{end}{end}".encode()


def halves(text: str) -> list[str]:
    """A text as two deltas, the way arguments come."""
    return [text[: len(text) // 2], text[len(text) // 2 :]]


# --- Anthropic Messages ------------------------------------------------------------------------


def anthropic_turn(
    text: Text = "",
    calls: Sequence[Call] = (),
    *,
    thinking: Text = "",
    signature: str = "c2lnbmF0dXJl",
    stop_reason: str | None = None,
    model: str = "double",
    input_tokens: int = 10,
    output_tokens: int = 5,
    cache_read: int = 0,
    cache_write: int = 0,
) -> list[bytes]:
    """A turn of Anthropic's Messages: thinking, text, then the calls."""
    usage = {
        "input_tokens": input_tokens,
        "cache_read_input_tokens": cache_read,
        "cache_creation_input_tokens": cache_write,
        "output_tokens": 1,
    }
    message = {
        "id": "msg_double",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    made = [{"type": "message_start", "message": message}, {"type": "ping"}]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if thinking:
        thoughts = [{"type": "thinking_delta", "thinking": each} for each in deltas(thinking)]
        thoughts.append({"type": "signature_delta", "signature": signature})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, thoughts))
    if text:
        words = [{"type": "text_delta", "text": each} for each in deltas(text)]
        blocks.append(({"type": "text", "text": ""}, words))
    for call in calls:
        parts = [{"type": "input_json_delta", "partial_json": each} for each in halves(call.json)]
        blocks.append(({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, parts))
    for index, (block, parts) in enumerate(blocks):
        made.append({"type": "content_block_start", "index": index, "content_block": block})
        made += [{"type": "content_block_delta", "index": index, "delta": each} for each in parts]
        made.append({"type": "content_block_stop", "index": index})
    reason = stop_reason or ("tool_use" if calls else "end_turn")
    delta = {"stop_reason": reason, "stop_sequence": None}
    made.append(
        {"type": "message_delta", "delta": delta, "usage": usage | {"output_tokens": output_tokens}}
    )
    made.append({"type": "message_stop"})
    return [event(each, str(each["type"])) for each in made]


def anthropic_error(kind: str, message: str) -> dict[str, Any]:
    """The body of a refusal; as an event its name is "error"."""
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": "req_double",
    }


# --- OpenAI Chat Completions -------------------------------------------------------------------


def chat_turn(
    text: Text = "",
    calls: Sequence[Call] = (),
    *,
    thinking: Text = "",
    finish_reason: str | None = None,
    model: str = "double",
    input_tokens: int = 10,
    output_tokens: int = 5,
    cached: int = 0,
    usage: bool = True,
    done: bool = True,
) -> list[bytes]:
    """A turn of Chat Completions; `thinking` goes into `reasoning_content`, as servers do."""
    said: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    said += [{"reasoning_content": each} for each in deltas(thinking)]
    said += [{"content": each} for each in deltas(text)]
    for index, call in enumerate(calls):
        begun = {"name": call.name, "arguments": ""}
        first = {"index": index, "id": call.id, "type": "function", "function": begun}
        said.append({"tool_calls": [first]})
        said += [
            {"tool_calls": [{"index": index, "function": {"arguments": each}}]}
            for each in halves(call.json)
        ]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in said]
    reason = finish_reason or ("tool_calls" if calls else "stop")
    choices.append({"index": 0, "delta": {}, "finish_reason": reason})
    chunk = {
        "id": "chatcmpl-double",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
    }
    made = [event(chunk | {"choices": [choice]}) for choice in choices]
    if usage:
        counted = {
            "prompt_tokens": input_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        made.append(event(chunk | {"choices": [], "usage": counted}))
    return [*made, event("[DONE]")] if done else made


def openai_error(message: str, kind: str, code: str | None = None) -> dict[str, Any]:
    """The body of a refusal of OpenAI and of those who are like it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


# --- OpenAI Responses --------------------------------------------------------------------------


def responses_turn(
    text: Text = "",
    calls: Sequence[Call] = (),
    *,
    thinking: Text = "",
    encrypted: str | None = None,
    status: str = "completed",
    incomplete: str | None = None,
    model: str = "double",
    input_tokens: int = 10,
    output_tokens: int = 5,
    cached: int = 0,
) -> list[bytes]:
    """A turn of Responses; `incomplete` is the reason of a turn that was cut short."""
    made: list[dict[str, Any]] = []
    output: list[dict[str, Any]] = []
    if thinking or encrypted:
        made += _reasoning_item(deltas(thinking), encrypted, output)
    if text:
        made += _message_item(deltas(text), output)
    for call in calls:
        made += _call_item(call, output)
    response: dict[str, Any] = {
        "id": "resp_double",
        "object": "response",
        "created_at": 1,
        "model": model,
        "status": "in_progress",
        "output": [],
        "usage": None,
        "error": None,
        "incomplete_details": None,
    }
    how = "incomplete" if incomplete else status
    last = response | {
        "status": how,
        "output": output,
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "usage": {
            "input_tokens": input_tokens,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input_tokens + output_tokens,
        },
    }
    made = [
        {"type": "response.created", "response": response},
        {"type": "response.in_progress", "response": response},
        *made,
        {"type": f"response.{how}", "response": last},
    ]
    return [
        event(each | {"sequence_number": number}, each["type"]) for number, each in enumerate(made)
    ]


def _item(
    item: dict[str, Any], whole: dict[str, Any], inner: list[dict[str, Any]], output: list[Any]
) -> list[dict[str, Any]]:
    at = {"output_index": len(output)}
    output.append(item | whole)
    return [
        {"type": "response.output_item.added", "item": item} | at,
        *(each | at | {"item_id": item["id"]} for each in inner),
        {"type": "response.output_item.done", "item": item | whole} | at,
    ]


def _message_item(words: list[str], output: list[Any]) -> list[dict[str, Any]]:
    part = {"type": "output_text", "annotations": [], "text": ""}
    whole = part | {"text": "".join(words)}
    inner: list[dict[str, Any]] = [
        {"type": "response.content_part.added", "content_index": 0, "part": part}
    ]
    inner += [
        {"type": "response.output_text.delta", "content_index": 0, "delta": each} for each in words
    ]
    inner.append({"type": "response.output_text.done", "content_index": 0, "text": whole["text"]})
    inner.append({"type": "response.content_part.done", "content_index": 0, "part": whole})
    item = {"id": f"msg_{len(output)}", "type": "message", "role": "assistant", "content": []}
    item["status"] = "in_progress"
    return _item(item, {"status": "completed", "content": [whole]}, inner, output)


def _reasoning_item(
    thoughts: list[str], encrypted: str | None, output: list[Any]
) -> list[dict[str, Any]]:
    part = {"type": "summary_text", "text": ""}
    whole = part | {"text": "".join(thoughts)}
    inner: list[dict[str, Any]] = []
    if thoughts:
        at = {"summary_index": 0}
        kind = "response.reasoning_summary"
        inner = [
            {"type": f"{kind}_part.added", "part": part} | at,
            *({"type": f"{kind}_text.delta", "delta": each} | at for each in thoughts),
            {"type": f"{kind}_text.done", "text": whole["text"]} | at,
            {"type": f"{kind}_part.done", "part": whole} | at,
        ]
    item = {"id": f"rs_{len(output)}", "type": "reasoning", "summary": []}
    more = {"summary": [whole] if thoughts else [], "encrypted_content": encrypted}
    return _item(item, more, inner, output)


def _call_item(call: Call, output: list[Any]) -> list[dict[str, Any]]:
    kind = "response.function_call_arguments"
    inner: list[dict[str, Any]] = [
        {"type": f"{kind}.delta", "delta": each} for each in halves(call.json)
    ]
    inner.append({"type": f"{kind}.done", "arguments": call.json, "name": call.name})
    item = {
        "id": f"fc_{len(output)}",
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": "",
        "status": "in_progress",
    }
    return _item(item, {"arguments": call.json, "status": "completed"}, inner, output)


def responses_failed(code: str, message: str) -> bytes:
    """The event of a turn that failed on the way."""
    response = {
        "id": "resp_double",
        "object": "response",
        "status": "failed",
        "output": [],
        "error": {"code": code, "message": message},
    }
    value = {"type": "response.failed", "sequence_number": 99, "response": response}
    return event(value, "response.failed")


# --- Gemini ------------------------------------------------------------------------------------


def gemini_turn(
    text: Text = "",
    calls: Sequence[Call] = (),
    *,
    thinking: Text = "",
    signature: str | None = None,
    finish_reason: str = "STOP",
    model: str = "double",
    input_tokens: int = 10,
    output_tokens: int = 5,
    thought_tokens: int = 0,
    cached: int = 0,
) -> list[bytes]:
    """A turn of Gemini's stream; the signature lies on the first call, or on the last text."""
    parts: list[dict[str, Any]] = [{"text": each, "thought": True} for each in deltas(thinking)]
    parts += [{"text": each} for each in deltas(text)]
    parts += [
        {"functionCall": {"id": call.id, "name": call.name, "args": json.loads(call.json)}}
        for call in calls
    ]
    if signature is not None:
        at = len(parts) - (len(calls) or 1)
        parts[at] = parts[at] | {"thoughtSignature": signature}
    counted: dict[str, Any] = {
        "promptTokenCount": input_tokens,
        "candidatesTokenCount": output_tokens,
        "totalTokenCount": input_tokens + output_tokens + thought_tokens,
    }
    if thought_tokens:
        counted["thoughtsTokenCount"] = thought_tokens
    if cached:
        counted["cachedContentTokenCount"] = cached
    made = []
    for number, part in enumerate(parts or [{"text": ""}], 1):
        candidate: dict[str, Any] = {"content": {"parts": [part], "role": "model"}, "index": 0}
        if number == max(len(parts), 1):
            candidate["finishReason"] = finish_reason
        chunk = {"candidates": [candidate], "usageMetadata": counted, "modelVersion": model}
        made.append(event(chunk | {"responseId": "double"}, end="\r\n"))
    return made


def gemini_error(code: int, status: str, message: str, *details: Any) -> dict[str, Any]:
    """The body of a refusal."""
    error: dict[str, Any] = {"code": code, "message": message, "status": status}
    return {"error": error | ({"details": list(details)} if details else {})}
