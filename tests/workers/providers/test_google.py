"""Gemini's requests: what is sent of a history, of tools and of wishes, and what never is."""

import json
from base64 import b64encode
from hashlib import sha256
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from ipc.content import MediaBlock, TextBlock, ThinkingBlock, ToolCallBlock, TurnBlock
from ipc.events import FrozenModelBinding
from ipc.events.base import Generation, ReasoningWish
from ipc.ids import Digest, ModelKey, ProviderId, SessionId
from tests.fakes import strict
from workers.providers.base import (
    AssistantMessage,
    CannotEncode,
    HttpCall,
    Media,
    Message,
    Request,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from workers.providers.google import ADDRESSES, Google
from workers.providers.google_contents import FOREIGN_SIGNATURE

PNG = b"\x89PNG"


def binding(wire_model: str = "gemini-2.5-flash", **more: Any) -> FrozenModelBinding:
    return FrozenModelBinding(
        model=ModelKey("google/x"),
        provider_id=ProviderId("google"),
        adaptor="google-gemini",
        wire_model=wire_model,
        **more,
    )


FLASH = Google(binding())
THREE = Google(binding("gemini-3-pro-preview"))


def request(*messages: Message, **more: Any) -> Request:
    return Request(**({"system": "", "messages": messages, "session_id": SessionId("s")} | more))


def sent(call: HttpCall) -> Any:
    return json.loads(call.body)


def contents(*messages: Message, wire: Google = FLASH, media: Media | None = None) -> Any:
    made = sent(wire.encode(request(*messages), media or {}))["contents"]
    for each in made:  # the SDK's own types know every field of it
        types.Content.model_validate(each)
    return made


def user(*texts: str) -> UserMessage:
    return UserMessage(content=tuple(TextBlock(text=text) for text in texts))


def said(*content: TurnBlock | str, native: dict[str, Any] | None = None) -> AssistantMessage:
    blocks = (TextBlock(text=each) if isinstance(each, str) else each for each in content)
    return AssistantMessage(content=tuple(blocks), native=native)


def call(call_id: str, name: str = "read", arguments: str = '{"path":"a"}') -> ToolCallBlock:
    return ToolCallBlock(model_call_id=call_id, name=name, arguments=arguments)


def result(call_id: str, output: str = "ok", name: str = "read", **more: Any) -> ToolMessage:
    return ToolMessage(model_call_id=call_id, name=name, output=output, **more)


def image(data: bytes = PNG, mime: str = "image/png") -> MediaBlock:
    digest = Digest(f"sha256:{sha256(data).hexdigest()}")
    return MediaBlock(mime=mime, digest=digest, byte_length=len(data))


def held(*blocks: MediaBlock, data: bytes = PNG) -> Media:
    return {block.digest: data for block in blocks}


def asked(parts: list[Any]) -> Any:
    return {"role": "user", "parts": parts}


def answered(parts: list[Any]) -> Any:
    return {"role": "model", "parts": parts}


# --- the whole ---------------------------------------------------------------------------------

TOOL = ToolSpec(
    name="read",
    description="Read a file.",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
)


def test_a_request_says_all_of_it_in_an_order_that_keeps_its_prefix() -> None:
    wire = Google(
        binding(
            generation=Generation(
                temperature=0.5, top_p=0.9, stop=("END", ""), seed=7, tool_choice="auto"
            ),
            reasoning=ReasoningWish(budget_tokens=2000),
        )
    )
    whole = request(
        user("hi"),
        said("I look.", call("c1")),
        result("c1", "text"),
        said("Done."),
        user("thanks"),
        system="Be brief.",
        tools=(TOOL,),
        max_output_tokens=100,
    )

    made = wire.encode(whole, {})

    assert made.url == (
        "https://generativelanguage.googleapis.com/v1beta/models/"
        "gemini-2.5-flash:streamGenerateContent?alt=sse"
    )
    assert made.headers == {"content-type": "application/json", "accept": "text/event-stream"}
    assert made.body.decode() == (
        '{"systemInstruction":{"parts":[{"text":"Be brief."}]},'
        '"tools":[{"functionDeclarations":[{"name":"read","description":"Read a file.",'
        '"parametersJsonSchema":{"type":"object","properties":{"path":{"type":"string"}},'
        '"required":["path"],"additionalProperties":false}}]}],'
        '"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}},'
        '"generationConfig":{"maxOutputTokens":100,"temperature":0.5,"topP":0.9,'
        '"stopSequences":["END"],"seed":7,'
        '"thinkingConfig":{"includeThoughts":true,"thinkingBudget":2000}},'
        '"contents":[{"role":"user","parts":[{"text":"hi"}]},'
        '{"role":"model","parts":[{"text":"I look."},'
        '{"functionCall":{"name":"read","args":{"path":"a"}}}]},'
        '{"role":"user","parts":[{"functionResponse":{"name":"read",'
        '"response":{"output":"text"}}}]},'
        '{"role":"model","parts":[{"text":"Done."}]},'
        '{"role":"user","parts":[{"text":"thanks"}]}]}'
    )


def test_a_bare_request_says_nothing_but_its_contents() -> None:
    assert sent(FLASH.encode(request(user("hi"), system=" "), {})) == {
        "contents": [asked([{"text": "hi"}])]
    }


@pytest.mark.parametrize(
    ("endpoint", "model", "url"),
    [
        (None, "models/gemini-x", f"{ADDRESSES['google-gemini'].endpoint}/models/gemini-x"),
        ("https://proxy.test/v1/", "g", "https://proxy.test/v1/models/g"),
        ("http://127.0.0.1:8000", "a b?c", "http://127.0.0.1:8000/models/a%20b%3Fc"),
    ],
)
def test_the_address_is_made_of_endpoint_and_model(
    endpoint: str | None, model: str, url: str
) -> None:
    made = Google(binding(model, endpoint=endpoint)).encode(request(user("hi")), {})

    assert made.url == f"{url}:streamGenerateContent?alt=sse"


# --- contents ----------------------------------------------------------------------------------


def test_results_come_right_after_their_calls_in_their_order() -> None:
    made = contents(
        user("hi"),
        said(call("c1"), call("c2", "bash", '{"command":"x"}')),
        result("c2", "no such file", "other", is_error=True),
        result("c1", " "),
        user("and?"),
    )

    assert made == [
        asked([{"text": "hi"}]),
        answered(
            [
                {"functionCall": {"name": "read", "args": {"path": "a"}}},
                {"functionCall": {"name": "bash", "args": {"command": "x"}}},
            ]
        ),
        asked(
            [
                {"functionResponse": {"name": "read", "response": {"output": "(no output)"}}},
                {"functionResponse": {"name": "bash", "response": {"error": "no such file"}}},
                {"text": "and?"},
            ]
        ),
    ]


def test_neighbours_of_one_role_become_one_content() -> None:
    assert contents(user("a"), user("b", "c"), said("d"), said("e")) == [
        asked([{"text": "a"}, {"text": "b"}, {"text": "c"}]),
        answered([{"text": "d"}, {"text": "e"}]),
    ]


def test_a_history_that_begins_with_the_model_gets_a_beginning() -> None:
    assert contents(said("d"), user("e"))[0] == asked([{"text": "(The conversation goes on.)"}])


def test_arguments_go_out_as_the_model_wrote_them() -> None:
    odd = '{ "n": 1e400, "big": 123456789012345678901234567890, "t": 1.10 }'

    body = FLASH.encode(request(user("a"), said(call("c", "f", odd)), result("c")), {}).body

    assert b'"args":' + odd.encode() in body


@pytest.mark.parametrize("arguments", ["", "  "])
def test_no_arguments_are_an_empty_object(arguments: str) -> None:
    made = contents(user("a"), said(call("c", "f", arguments)), result("c"))

    assert made[1]["parts"] == [{"functionCall": {"name": "f", "args": {}}}]


def test_blank_text_and_all_thinking_stay_at_home() -> None:
    made = contents(
        user(" ", "a"),
        said(
            ThinkingBlock(text="unsigned"),
            ThinkingBlock(text="another's", signature="sig"),
            ThinkingBlock(text="x", redacted=True),
            "\n",
            "b",
        ),
        said(" "),
        user("c"),
    )

    assert made == [asked([{"text": "a"}]), answered([{"text": "b"}]), asked([{"text": "c"}])]


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param((), id="nothing"),
        pytest.param((user(" "),), id="nothing but blanks"),
        pytest.param((user("a"), said(call("c"))), id="a call at the end"),
        pytest.param((user("a"), said(call("c")), user("b"), result("c")), id="a late result"),
        pytest.param((user("a"), result("c")), id="a result without a call"),
        pytest.param((user("a"), said(call("c")), result("d")), id="another's result"),
        pytest.param((user("a"), said(call("c")), result("c"), result("c")), id="two results"),
        pytest.param((user("a"), said(call("c"), call("c")), result("c")), id="an id twice"),
        pytest.param(
            (user("a"), said(call("c")), result("c"), said(call("c")), result("c")),
            id="an id again",
        ),
        pytest.param((user("a"), said(call("c", "f", "[]")), result("c")), id="no object"),
        pytest.param((user("a"), said(call("c", "f", "{")), result("c")), id="broken arguments"),
        pytest.param((user("\ud800"),), id="a lone surrogate"),
    ],
)
def test_what_the_api_would_refuse_is_not_sent(messages: tuple[Message, ...]) -> None:
    with pytest.raises(CannotEncode):
        FLASH.encode(request(*messages), {})


# --- signatures and native turns ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "signs"),
    [
        ("gemini-3-pro-preview", True),
        ("models/gemini-3.1-flash-lite", True),
        ("gemini-4-argon", True),
        ("google/gemini-flash-latest", True),
        ("gemini-2.5-pro", False),
        ("gemini-2.0-flash-001", False),
        ("gemini-pro", False),
        ("gemma-3-27b-it", False),
    ],
)
def test_foreign_calls_carry_the_documented_signature_where_one_is_wanted(
    model: str, signs: bool
) -> None:
    history = (user("a"), said("b", call("c1"), call("c2")), result("c1"), result("c2"))

    _, turn, _ = contents(*history, wire=Google(binding(model)))

    first, second = turn["parts"][1:]
    assert first.get("thoughtSignature") == (FOREIGN_SIGNATURE if signs else None)
    assert "thoughtSignature" not in second


NATIVE = {
    "family": "google",
    "items": [
        {"text": "Hm", "thought": True, "thoughtSignature": "AAAA"},
        {"functionCall": {"id": "c1", "name": "read", "args": {}}, "thoughtSignature": "BBBB"},
        {"functionCall": {"name": "read", "args": {"path": "b"}}},
        {"executableCode": {"language": "PYTHON", "code": "1"}},
    ],
}
TURN = (ThinkingBlock(text="Hm", signature="AAAA"), call("c1", arguments="{}"), call("x"))


def test_a_native_turn_goes_out_as_it_came_and_its_results_fit() -> None:
    made = contents(
        user("a"), said(*TURN, native=NATIVE), result("c1", "1"), result("x", "2"), wire=THREE
    )

    assert made[1] == answered(NATIVE["items"])  # type: ignore[arg-type]
    assert made[2] == asked(
        [
            {"functionResponse": {"id": "c1", "name": "read", "response": {"output": "1"}}},
            {"functionResponse": {"name": "read", "response": {"output": "2"}}},
        ]
    )


@pytest.mark.parametrize(
    "native",
    [
        NATIVE | {"family": "anthropic"},
        NATIVE | {"items": []},
        NATIVE | {"items": "AAAA"},
        NATIVE | {"items": [*NATIVE["items"], {}]},
        NATIVE | {"items": [*NATIVE["items"], "x"]},
        NATIVE | {"items": [*NATIVE["items"], {"functionCall": {"args": {}}}]},
        NATIVE | {"items": NATIVE["items"][:2]},  # another number of calls
        NATIVE | {"items": [{"functionCall": {"name": "a"}}, {"functionCall": {"name": "b"}}]},
        NATIVE
        | {
            "items": [
                {"functionCall": {"id": "other", "name": "read"}},
                {"functionCall": {"name": "read"}},
            ]
        },
    ],
)
def test_a_native_turn_that_does_not_fit_is_said_in_plain_words(native: dict[str, Any]) -> None:
    history = (user("a"), said(*TURN, native=native), result("c1"), result("x"))

    assert contents(*history)[1] == answered(
        [
            {"functionCall": {"name": "read", "args": {}}},
            {"functionCall": {"name": "read", "args": {"path": "a"}}},
        ]
    )


# --- media -------------------------------------------------------------------------------------


def test_media_stand_where_they_were_said() -> None:
    block = image()
    message = UserMessage(content=(TextBlock(text="a"), block, TextBlock(text="b")))

    (made,) = contents(message, media=held(block))

    assert made["parts"] == [
        {"text": "a"},
        {"inlineData": {"mimeType": "image/png", "data": b64encode(PNG).decode()}},
        {"text": "b"},
    ]


def test_text_files_are_plain_text() -> None:
    block = image(b"x = 1", "text/x-python")

    (made,) = contents(UserMessage(content=(block,)), media=held(block, data=b"x = 1"))

    assert made["parts"] == [
        {"inlineData": {"mimeType": "text/plain", "data": b64encode(b"x = 1").decode()}}
    ]


@pytest.mark.parametrize(
    ("block", "data", "why"),
    [
        (image(), None, "it could not be read"),
        (image(b""), b"", "it is empty"),
        (image(b"GIF8", "image/gif"), b"GIF8", "the model takes no such file"),
    ],
)
def test_media_that_can_not_be_sent_are_told_in_words(
    block: MediaBlock, data: bytes | None, why: str
) -> None:
    media = {} if data is None else {block.digest: data}

    (made,) = contents(UserMessage(content=(block,)), media=media)

    words = f"[{block.mime} of {block.byte_length} bytes: not sent, {why}]"
    assert made["parts"] == [{"text": words}]


def test_media_of_results_come_after_all_results_or_inside_where_a_model_takes_them() -> None:
    png, mp3 = image(), image(b"ID3", "audio/mpeg")
    history = (
        user("a"),
        said(call("c1"), call("c2")),
        result("c1", attachments=(png, mp3)),
        result("c2"),
    )
    media = {png.digest: PNG, mp3.digest: b"ID3"}
    inside = {"inlineData": {"mimeType": "image/png", "data": b64encode(PNG).decode()}}
    beside = {"inlineData": {"mimeType": "audio/mpeg", "data": b64encode(b"ID3").decode()}}
    plain = {"functionResponse": {"name": "read", "response": {"output": "ok"}}}

    assert contents(*history, media=media)[2] == asked([plain, plain, inside, beside])
    with_media = {"functionResponse": {**plain["functionResponse"], "parts": [inside]}}
    assert contents(*history, media=media, wire=THREE)[2] == asked([with_media, plain, beside])


# --- tools and wishes --------------------------------------------------------------------------


def schema(parameters: dict[str, Any]) -> Any:
    spec = ToolSpec(name="f", description="F.", parameters=parameters)
    body = sent(FLASH.encode(request(user("a"), tools=(spec,)), {}))
    (tool,) = body["tools"]
    types.Tool.model_validate(tool)
    (declared,) = tool["functionDeclarations"]
    return declared["parametersJsonSchema"]


def test_a_schema_is_sent_without_what_the_api_refuses() -> None:
    given_schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "$schema": {"type": "string", "const": "x"},  # a property of that name
            "a": {"anyOf": [{"$ref": "#/definitions/A", "description": "said twice"}]},
            "b": {"type": "array", "items": {"$schema": "x", "enum": [{"const": 1}]}},
            "c": {"type": "object", "additionalProperties": {"type": "string", "$schema": "y"}},
        },
        "definitions": {"A": {"type": "integer", "minimum": 1, "default": {"$ref": "kept"}}},
        "additionalProperties": False,
    }
    before = json.dumps(given_schema)

    assert schema(given_schema) == {
        "type": "object",
        "properties": {
            "$schema": {"type": "string", "enum": ["x"]},
            "a": {"anyOf": [{"$ref": "#/$defs/A"}]},
            "b": {"type": "array", "items": {"enum": [{"const": 1}]}},
            "c": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "$defs": {"A": {"type": "integer", "minimum": 1, "default": {"$ref": "kept"}}},
        "additionalProperties": False,
    }
    assert json.dumps(given_schema) == before


def test_a_tool_without_arguments_takes_an_object() -> None:
    assert schema({}) == {"type": "object"}
    assert schema({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}}) == {
        "$ref": "#/$defs/A",
        "$defs": {"A": {"type": "object"}},
    }


@pytest.mark.parametrize(
    ("wish", "config"),
    [
        (None, None),
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("named:read", {"mode": "ANY", "allowedFunctionNames": ["read"]}),
    ],
)
def test_a_choice_of_tools_is_told_where_there_are_tools(wish: str | None, config: Any) -> None:
    wire = Google(binding(generation=Generation(tool_choice=wish)))
    body = sent(wire.encode(request(user("a"), tools=(TOOL,)), {}))
    bare = sent(wire.encode(request(user("a")), {}))

    assert body.get("toolConfig") == (config and {"functionCallingConfig": config})
    assert "toolConfig" not in bare


SEEN = {"includeThoughts": True}


@pytest.mark.parametrize(
    ("model", "wish", "config"),
    [
        ("gemini-2.5-pro", None, None),
        ("gemini-2.5-pro", {"effort": "default"}, None),
        ("gemini-2.5-pro", {"effort": "none"}, {"thinkingBudget": 128}),
        ("gemini-2.5-flash", {"enabled": False}, {"thinkingBudget": 0}),
        ("gemini-2.5-flash", {"budget_tokens": 0}, {"thinkingBudget": 0}),
        ("gemini-2.5-flash", {"enabled": True}, SEEN | {"thinkingBudget": -1}),
        ("gemini-2.5-flash", {"effort": "low"}, SEEN | {"thinkingBudget": 1024}),
        ("gemini-2.5-flash", {"effort": "max"}, SEEN | {"thinkingBudget": 24_576}),
        ("gemini-2.5-flash", {"effort": "odd"}, SEEN | {"thinkingBudget": -1}),
        ("gemini-2.5-flash", {"budget_tokens": 31_999}, SEEN | {"thinkingBudget": 24_576}),
        ("gemini-2.5-flash-lite", {"budget_tokens": 10}, SEEN | {"thinkingBudget": 512}),
        ("gemini-2.5-pro", {"budget_tokens": 10}, SEEN | {"thinkingBudget": 128}),
        ("gemini-2.5-pro", {"budget_tokens": 31_999}, SEEN | {"thinkingBudget": 31_999}),
        ("own-model", {"budget_tokens": 77}, SEEN | {"thinkingBudget": 77}),
        ("gemini-3-pro-preview", {"effort": "high"}, SEEN | {"thinkingLevel": "HIGH"}),
        ("gemini-3-pro-preview", {"effort": "max"}, SEEN | {"thinkingLevel": "HIGH"}),
        ("gemini-3-pro-preview", {"effort": "minimal"}, SEEN | {"thinkingLevel": "LOW"}),
        ("gemini-3-flash-preview", {"effort": "minimal"}, SEEN | {"thinkingLevel": "MINIMAL"}),
        ("gemini-3-pro-preview", {"effort": "none"}, {"thinkingLevel": "LOW"}),
        ("gemini-3-flash-preview", {"enabled": False}, {"thinkingLevel": "MINIMAL"}),
        ("gemini-3-flash-preview", {"enabled": True}, SEEN),
        ("gemini-3-flash-preview", {"budget_tokens": 100}, SEEN | {"thinkingBudget": 100}),
    ],
)
def test_how_hard_to_think_is_said_in_the_words_of_the_model(
    model: str, wish: dict[str, Any] | None, config: Any
) -> None:
    reasoning = None if wish is None else ReasoningWish(**wish)
    body = sent(Google(binding(model, reasoning=reasoning)).encode(request(user("a")), {}))

    assert body.get("generationConfig", {}).get("thinkingConfig") == config
    if config is not None:
        types.ThinkingConfig.model_validate(config)


# --- laws --------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
NAMES = st.sampled_from(["read", "bash"])


@st.composite
def histories(draw: st.DrawFn) -> tuple[Message, ...]:
    """Turns as the history room lets them out: every call with its result, ids once."""
    made: list[Message] = [user("begin")]
    for turn in range(draw(st.integers(0, 4))):
        made.append(user(*draw(st.lists(TEXTS, max_size=2))))
        calls = [
            call(f"c{turn}-{at}", draw(NAMES), draw(st.sampled_from(["", "{}", '{"a":[1]}'])))
            for at in range(draw(st.integers(0, 2)))
        ]
        thought = ThinkingBlock(text=draw(TEXTS), signature=draw(st.none() | st.just("sig")))
        made.append(said(thought, draw(TEXTS), *calls))
        results = [
            result(one.model_call_id, draw(TEXTS), is_error=draw(st.booleans())) for one in calls
        ]
        made += draw(st.permutations(results))
    return tuple(made)


def check(made: list[Any], *, signs: bool) -> None:
    """The rules of the wire, in the words of its documentation."""
    roles = [each["role"] for each in made]
    assert roles[0] == "user"
    assert all(one != other for one, other in pairwise(roles))
    for at, each in enumerate(made):
        types.Content.model_validate(each)
        parts = each["parts"]
        assert parts
        assert all(part["text"].strip() for part in parts if "text" in part)
        assert not any(part.get("thought") for part in parts)
        names = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        first: Any = next((part for part in parts if "functionCall" in part), {})
        assert ("thoughtSignature" in first) == (signs and bool(names))
        told = [
            part["functionResponse"]["name"]
            for part in (made[at + 1]["parts"] if at + 1 < len(made) else ())
            if "functionResponse" in part
        ]
        assert told == names


@given(history=histories())
def test_every_history_makes_contents_that_the_wire_takes(history: tuple[Message, ...]) -> None:
    for wire, signs in ((FLASH, False), (THREE, True)):
        check(contents(*history, wire=wire), signs=signs)
        whole = request(*history, user("end"), system="Be brief.", tools=(TOOL,))
        strict.google(wire.encode(whole, {}).body, signs=signs)


@given(history=histories(), more=histories())
def test_a_history_that_grows_keeps_its_prefix_and_equal_ones_are_equal(
    history: tuple[Message, ...], more: tuple[Message, ...]
) -> None:
    renamed = tuple(_apart(message) for message in more)
    before = THREE.encode(request(*history, tools=(TOOL,)), {}).body
    again = msgspec.json.decode(msgspec.json.encode(request(*history, tools=(TOOL,))), type=Request)

    after = THREE.encode(request(*history, *renamed, tools=(TOOL,)), {}).body

    assert before == THREE.encode(again, {}).body
    assert after.startswith(before.removesuffix(b"]}]}"))


def _apart(message: Message) -> Message:
    """The same message with ids of its own."""
    if isinstance(message, ToolMessage):
        return msgspec.structs.replace(message, model_call_id=f"d{message.model_call_id}")
    if isinstance(message, AssistantMessage):
        content = tuple(
            msgspec.structs.replace(block, model_call_id=f"d{block.model_call_id}")
            if isinstance(block, ToolCallBlock)
            else block
            for block in message.content
        )
        return msgspec.structs.replace(message, content=content)
    return message
