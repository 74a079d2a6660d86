"""The judges of the wires: each takes a sound request, and refuses it with any one thing wrong."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.fakes import strict
from tests.fakes.strict import Refused

Judge = Callable[[bytes], None]
Change = Callable[[Any], object]

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
PNG = "iVBORw0KGgo="
IMAGE = f"data:image/png;base64,{PNG}"
SHORT, LONG = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}

ANTHROPIC = {
    "model": "m",
    "max_tokens": 4096,
    "stream": True,
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "tools": [{"name": "read", "description": "", "input_schema": SCHEMA, "cache_control": LONG}],
    "system": [{"type": "text", "text": "You are.", "cache_control": LONG}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I will"},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "t2", "name": "read", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "text"},
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "content": [{"type": "text", "text": "no"}],
                    "is_error": True,
                },
                {"type": "text", "text": "and?", "cache_control": SHORT},
            ],
        },
    ],
}


def blocks(body: Any, message: int) -> list[Any]:
    content: list[Any] = body["messages"][message]["content"]
    return content


ANTHROPIC_FAULTS: dict[str, Change] = {
    "extra inputs": lambda b: b.update(messages_=1),
    "lacks": lambda b: b.pop("max_tokens"),
    "too small": lambda b: b.update(max_tokens=0),
    "at least 1024": lambda b: b["thinking"].update(budget_tokens=1000),
    "above budget_tokens": lambda b: b.update(max_tokens=1024),
    "must be 1 when": lambda b: b.update(temperature=0.5),
    "may not force use": lambda b: b.update(tool_choice={"type": "any"}),
    "must not be empty": lambda b: b.update(messages=[]),
    "must use the user role": lambda b: b["messages"].pop(0),
    "roles must alternate": lambda b: b["messages"].append({"role": "user", "content": "x"}),
    "is none of": lambda b: b["messages"][1].update(role="system"),
    "messages.0.content: must not be empty": lambda b: blocks(b, 0).clear(),
    "messages.0.content.0: text must": lambda b: blocks(b, 0)[0].update(text=" \n"),
    "system.0: text must": lambda b: b["system"][0].update(text=""),
    "is no base64": lambda b: blocks(b, 0)[1]["source"].update(data="?"),
    "holds no data": lambda b: blocks(b, 0)[1]["source"].update(data=""),
    "'image/tiff'": lambda b: blocks(b, 0)[1]["source"].update(media_type="image/tiff"),
    "signature: text must": lambda b: blocks(b, 1)[0].update(signature=""),
    r"lacks \['signature'\]": lambda b: blocks(b, 1)[0].pop("signature"),
    "content.1: text must": lambda b: blocks(b, 1)[1].update(data=""),
    r"content.3.id: 'a b'": lambda b: (
        blocks(b, 1)[3].update(id="a b"),
        blocks(b, 2)[0].update(tool_use_id="a b"),
    ),
    "content.3.name": lambda b: blocks(b, 1)[3].update(name="a b"),
    "input: is no object": lambda b: blocks(b, 1)[3].update(input="{}"),
    "need tool_result blocks": lambda b: blocks(b, 2).pop(0),
    "immediately after": lambda b: blocks(b, 2)[0].update(tool_use_id="t9"),
    "must come first": lambda b: blocks(b, 2).reverse(),
    "must be unique": lambda b: (
        blocks(b, 1)[4].update(id="t1"),
        blocks(b, 2)[1].update(tool_use_id="t1"),
    ),
    "cannot be thinking": lambda b: (
        b["messages"].pop()
        and b["messages"][1].update(content=blocks(b, 1)[2:3] + blocks(b, 1)[:1])
    ),
    "without tool_result": lambda b: b["messages"].pop(),
    "may not stand in": lambda b: blocks(b, 0).append(blocks(b, 1)[0]),
    "must end with a user": lambda b: b["messages"].append(
        {"role": "assistant", "content": [{"type": "text", "text": "so"}]}
    ),
    "must define tools": lambda b: b.pop("tools"),
    "is that of an object": lambda b: b["tools"][0].update(input_schema={"type": "string"}),
    "maximum of 4": lambda b: [one.update(cache_control=SHORT) for one in blocks(b, 2)],
    "must not come after": lambda b: (
        blocks(b, 2)[2].update(cache_control=LONG) or b["system"][0].update(cache_control=SHORT)
    ),
    "thinking can't be cached": lambda b: blocks(b, 1)[0].update(cache_control=SHORT),
    "holds a NUL": lambda b: blocks(b, 1)[3].update(input={"path": "a\0"}),
}

RESPONSES = {
    "model": "m",
    "stream": True,
    "store": False,
    "instructions": "You are.",
    "max_output_tokens": 16,
    "prompt_cache_key": "session",
    "tools": [{"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}],
    "input": [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": IMAGE, "detail": "auto"},
            ],
        },
        {"type": "reasoning", "summary": [], "encrypted_content": "x"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I will"}],
        },
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "text"},
        {"type": "message", "role": "user", "content": "and?"},
    ],
}
RESPONSES_FAULTS: dict[str, Change] = {
    "extra inputs": lambda b: b.update(messages=[]),
    "at least 16": lambda b: b.update(max_output_tokens=5),
    "prompt_cache_key: too long": lambda b: b.update(prompt_cache_key="x" * 65),
    "instructions: text must": lambda b: b.update(instructions=""),
    "input: must not be empty": lambda b: b.update(input=[]),
    "text must be non-empty": lambda b: b["input"][0]["content"][0].update(text=" "),
    "content: must not be empty": lambda b: b["input"][0].update(content=[]),
    "is no data URL": lambda b: b["input"][0]["content"][1].update(image_url="x"),
    "unsupported image/tiff": lambda b: b["input"][0]["content"][1].update(
        image_url=f"data:image/tiff;base64,{PNG}"
    ),
    "is none of": lambda b: b["input"][2]["content"][0].update(type="input_text"),
    "required following item": lambda b: b["input"].__delitem__(slice(2, 5)),
    "says nothing": lambda b: b["input"][1].pop("encrypted_content"),
    "ids aren't found": lambda b: b["input"][1].update(id="rs_1"),
    "no tool output found for function call": lambda b: b["input"].__delitem__(slice(4, 6)),
    "no tool output found": lambda b: b["input"].pop(4),
    "no tool call found": lambda b: b["input"].pop(3),
    "comes twice": lambda b: b["input"].insert(3, b["input"][3]),
    "string too long": lambda b: b["input"][3].update(call_id="c" * 65),
    "arguments are no JSON object": lambda b: b["input"][3].update(arguments="[]"),
    "arguments are no JSON:": lambda b: b["input"][3].update(arguments="{"),
    "input.3.name": lambda b: b["input"][3].update(name=""),
    "input.4: text must": lambda b: b["input"][4].update(output=""),
    "invalid type": lambda b: b["input"][4].update(type="tool"),
    "tools: must be unique": lambda b: b["tools"].append(b["tools"][0]),
}

CHAT = {
    "model": "m",
    "stream": True,
    "stream_options": {"include_usage": True},
    "prompt_cache_key": "session",
    "tools": [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}],
    "messages": [
        {"role": "system", "content": "You are."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": IMAGE}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "read", "arguments": "{}"},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "text"},
        {"role": "user", "content": "and?"},
    ],
}


def tool_call(body: Any) -> Any:
    return body["messages"][2]["tool_calls"][0]


CHAT_FAULTS: dict[str, Change] = {
    "extra inputs": lambda b: b.update(system="x"),
    "only when streaming": lambda b: b.pop("stream"),
    "messages: must not be empty": lambda b: b.update(messages=[]),
    "messages.0.content: text must": lambda b: b["messages"][0].update(content=" "),
    "messages.1.content.0: text must": lambda b: b["messages"][1]["content"][0].update(text=""),
    "messages.1.content: must not": lambda b: b["messages"][1].update(content=[]),
    "is no data URL": lambda b: b["messages"][1]["content"][1]["image_url"].update(url="x"),
    "is none of": lambda b: b["messages"][1].update(role="human"),
    "content or tool_calls": lambda b: b["messages"][2].pop("tool_calls"),
    "tool_calls: must not be empty": lambda b: b["messages"][2].update(tool_calls=[]),
    "extra inputs are not permitted: ..reasoning'": lambda b: b["messages"][2].update(
        reasoning_=1, reasoning="x"
    ),
    "messages.2.tool_calls.0.id: text": lambda b: tool_call(b).update(id=""),
    "string too long": lambda b: tool_call(b).update(id="c" * 41),
    "arguments are no JSON": lambda b: tool_call(b)["function"].update(arguments="{"),
    "arguments are no JSON object": lambda b: tool_call(b)["function"].update(arguments="1"),
    "'a b'": lambda b: tool_call(b)["function"].update(name="a b"),
    "must be unique": lambda b: b["messages"][2]["tool_calls"].append(tool_call(b)),
    "come again": lambda b: b["messages"].extend(deepcopy(b["messages"][2:5])),
    "responds to no preceding": lambda b: b["messages"].insert(4, b["messages"][3]),
    "without response": lambda b: b["messages"].pop(3),
    "without response messages: ..c1": lambda b: b["messages"].__delitem__(slice(3, 5)),
    "messages.3.content: text must": lambda b: b["messages"][3].update(content=""),
    "ends with an assistant": lambda b: b["messages"].append(
        {"role": "assistant", "content": "so"}
    ),
    "no user message": lambda b: b.update(messages=b["messages"][:1]),
}
COMPATIBLE_FAULTS: dict[str, Change] = {
    "a system message must be the first": lambda b: (
        b["messages"].insert(3, b["messages"][0]) or b["messages"].insert(3, b["messages"].pop(4))
    ),
    "text alone must be a string": lambda b: b["messages"][1]["content"].pop(),
    "a tool message holds a string": lambda b: b["messages"][3].update(
        content=[{"type": "text", "text": "x"}]
    ),
}

GOOGLE = {
    "systemInstruction": {"parts": [{"text": "You are."}]},
    "tools": [{"functionDeclarations": [{"name": "read", "parametersJsonSchema": SCHEMA}]}],
    "contents": [
        {
            "role": "user",
            "parts": [{"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": PNG}}],
        },
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True},
                {"functionCall": {"name": "read", "args": {}}, "thoughtSignature": "c2ln"},
                {"functionCall": {"name": "bash", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "read", "response": {"output": "x"}}},
                {"functionResponse": {"name": "bash", "response": {"error": "x"}}},
                {"text": "and?"},
            ],
        },
    ],
}


def parts(body: Any, content: int) -> list[Any]:
    found: list[Any] = body["contents"][content]["parts"]
    return found


GOOGLE_FAULTS: dict[str, Change] = {
    "extra inputs": lambda b: b.update(messages=[]),
    "contents: must not be empty": lambda b: b.update(contents=[]),
    "must begin with a user": lambda b: b["contents"].pop(0),
    "turns alternate": lambda b: b["contents"].insert(0, b["contents"][0]),
    "parts: must not be empty": lambda b: parts(b, 0).clear(),
    "text must not be empty": lambda b: parts(b, 0)[0].update(text=""),
    "is no base64": lambda b: parts(b, 0)[1]["inlineData"].update(data="?"),
    "must have one value": lambda b: parts(b, 0)[0].update(parts(b, 0)[1]),
    "is the model's to say": lambda b: parts(b, 0).append(parts(b, 1)[1]),
    "not the model's to say": lambda b: parts(b, 1).append(parts(b, 2)[0]),
    "number of function response": lambda b: parts(b, 2).pop(0),
    "names another function": lambda b: parts(b, 2).insert(0, parts(b, 2).pop(1)),
    "id of another call": lambda b: parts(b, 2)[0]["functionResponse"].update(id="x"),
    "thought_signature": lambda b: parts(b, 1)[1].pop("thoughtSignature"),
    "args is no object": lambda b: parts(b, 1)[1]["functionCall"].update(args="{}"),
    "invalid name": lambda b: parts(b, 1)[1]["functionCall"].update(name="7zip"),
    "response is no object": lambda b: parts(b, 2)[0]["functionResponse"].update(response="x"),
    "must end with a user": lambda b: b["contents"].append(
        {"role": "model", "parts": [{"text": "so"}]}
    ),
    "unknown name": lambda b: b["tools"][0]["functionDeclarations"][0].update(
        parametersJsonSchema={**SCHEMA, "$schema": "x"}
    ),
    "invalid function name": lambda b: b["tools"][0]["functionDeclarations"][0].update(name="-"),
}


def anthropic(body: bytes) -> None:
    strict.anthropic(body, beta="extended-cache-ttl-2025-04-11")


def google(body: bytes) -> None:
    strict.google(body, signs=True)


WIRES: list[tuple[Judge, Any, dict[str, Change]]] = [
    (anthropic, ANTHROPIC, ANTHROPIC_FAULTS),
    (strict.responses, RESPONSES, RESPONSES_FAULTS),
    (strict.chat, CHAT, CHAT_FAULTS),
    (strict.compatible, CHAT, COMPATIBLE_FAULTS),
    (google, GOOGLE, GOOGLE_FAULTS),
]


@pytest.mark.parametrize(("judge", "body"), [(judge, body) for judge, body, _ in WIRES])
def test_a_sound_request_is_taken(judge: Judge, body: Any) -> None:
    judge(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("judge", "body", "reason", "change"),
    [(judge, body, *fault) for judge, body, faults in WIRES for fault in faults.items()],
)
def test_one_thing_wrong_is_refused(judge: Judge, body: Any, reason: str, change: Change) -> None:
    changed = deepcopy(body)
    change(changed)

    with pytest.raises(Refused, match=reason):
        judge(json.dumps(changed).encode())


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "no JSON"),
        (b"[]", "no object"),
        (b'{"a": NaN}', "NaN is no JSON"),
        (b'{"a": 1, "a": 2}', "a key comes twice"),
        (b'{"a": "\\u0000"}', "holds a NUL"),
        (b'{"a": ["\\ud800"]}', "half a character"),
        (b'{"a": "\xff"}', "no JSON"),
    ],
)
def test_a_body_is_json_in_characters_that_all_take(body: bytes, reason: str) -> None:
    for judge, *_ in WIRES:
        with pytest.raises(Refused, match=reason):
            judge(body)


def test_a_paused_turn_may_stand_at_the_end_and_an_hour_needs_its_beta() -> None:
    paused = deepcopy(ANTHROPIC)
    blocks(paused, 2)  # the results stay before it
    paused["messages"].append(  # type: ignore[attr-defined]
        {"role": "assistant", "content": [{"type": "text", "text": "so"}]}
    )
    strict.anthropic(json.dumps(paused).encode(), paused=True, beta="extended-cache-ttl")

    with pytest.raises(Refused, match="needs the extended-cache-ttl beta"):
        strict.anthropic(json.dumps(ANTHROPIC).encode())
