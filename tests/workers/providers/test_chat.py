"""The wire of Chat Completions: what a request says, and what every kind of server's answer means.

The recorded cases are held against the vendor's SDK. Ollama's recording is of this wire; its own
/api/chat is not spoken here.
"""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import httpx2
import msgspec
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

from cookie.config.agents import DEFAULT_PROMPT, DEFAULT_RULES
from ipc.content import MediaBlock, TextBlock, ThinkingBlock, ToolCallBlock, Usage
from ipc.events import FrozenModelBinding
from ipc.events.base import Generation, ModelCapabilities, ReasoningWish
from ipc.ids import Digest, ModelKey, ProviderId
from tests.fakes.conversation import SESSION, request, user
from tests.fakes.wire import Case, cases, cuts, mutated, params, splits
from workers.providers import ADAPTORS, make
from workers.providers.base import (
    Assembler,
    AssistantMessage,
    CannotEncode,
    Done,
    Failed,
    Message,
    Outside,
    Part,
    Request,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from workers.providers.chat import Chat
from workers.providers.chat_answer import Stream, Whole
from workers.run.offer import tool_specs
from workers.tools import TOOLS

FAMILIES = (
    "openai-chat",
    "azure-openai",
    "cerebras",
    "deepseek",
    "groq",
    "mistral",
    "ollama",
    "openrouter",
    "xai",
)
SSE = "text/event-stream; charset=utf-8"
JSON = "application/json"


def binding(**more: Any) -> FrozenModelBinding:
    """A model behind a compatible server, changed as the test says."""
    facts: dict[str, Any] = {
        "model": ModelKey("p/m"),
        "provider_id": ProviderId("p"),
        "adaptor": "openai-compatible",
        "wire_model": "m-1",
        "endpoint": "http://127.0.0.1:8080/v1",
    }
    return FrozenModelBinding(**facts | more)


def openai_binding(**more: Any) -> FrozenModelBinding:
    """The same model at OpenAI itself."""
    return binding(adaptor="openai-chat", endpoint=None, **more)


# --- answers -------------------------------------------------------------------------------------


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> Any:
    """One chunk of a stream."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "c-1", "model": "m-1-0613", "choices": [choice], **more}


def sse(*chunks: Any, done: bool = True) -> bytes:
    """A body of these chunks, as most servers write it."""
    lines = [b"data: " + json.dumps(each).encode() for each in chunks]
    return b"".join(line + b"\n\n" for line in [*lines, *([b"data: [DONE]"] if done else [])])


def decoded(
    pieces: Iterable[bytes], content_type: str = SSE, bound: FrozenModelBinding | None = None
) -> list[Part]:
    """All parts, neighbours of a kind made one; held to the contract of a part stream."""
    decoder = Chat(bound or binding()).decoder(content_type)
    parts = [part for piece in pieces for part in decoder.feed(piece)]
    parts += decoder.end()
    assert not decoder.feed(b"data: {}\n\n")
    assert not decoder.end()
    assembler = Assembler()
    for part in parts:
        assembler.add(part)
    last = parts[-1]
    assert isinstance(last, Done | Failed)
    if isinstance(last, Done):
        assert last.content == assembler.content()
    return list(merged(parts))


def merged(parts: Sequence[Part]) -> Iterator[Part]:
    """The parts with neighbouring text, and neighbouring thinking, in one."""
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, TextPart | ThinkingPart) and kept and type(kept[-1]) is type(part):
            kept[-1] = type(part)(kept[-1].text + part.text)  # type: ignore[union-attr]
        else:
            kept.append(part)
    return iter(kept)


def done(body: bytes, content_type: str = SSE) -> Done:
    """The turn that a body makes."""
    last = decoded([body], content_type)[-1]
    assert isinstance(last, Done), last
    return last


def failed(body: bytes, content_type: str = SSE) -> tuple[str, str, str]:
    """Kind, stage and words of the failure that a body makes."""
    last = decoded([body], content_type)[-1]
    assert isinstance(last, Failed), last
    return last.error.kind, last.error.stage, last.error.message


def calls(body: bytes, content_type: str = SSE) -> list[tuple[str, str, str]]:
    """Id, name and arguments of the calls in a body, in their order."""
    return [
        (block.model_call_id, block.name, block.arguments)
        for block in done(body, content_type).content
        if isinstance(block, ToolCallBlock)
    ]


def fragment(
    arguments: Any = None, *, index: Any = None, call: str | None = None, name: str | None = None
) -> dict[str, Any]:
    """A piece of a tool call, without the fields it does not say."""
    function = {"name": name, "arguments": arguments}
    said = {"index": index, "id": call, "function": {k: v for k, v in function.items() if v}}
    return {k: v for k, v in said.items() if v is not None}


def called(*chunks: Sequence[dict[str, Any]], finish: str = "tool_calls") -> bytes:
    """A stream that carries these fragments, one list a chunk."""
    return sse(*(chunk({"tool_calls": list(each)}) for each in chunks), chunk({}, finish))


END = chunk({}, "stop")


def test_text_comes_as_it_is_streamed_and_makes_one_block() -> None:
    decoder = Chat(binding()).decoder(SSE)

    first = decoder.feed(sse(chunk({"role": "assistant", "content": ""}), done=False))
    second = decoder.feed(sse(chunk({"content": "Hel"}), chunk({"content": "lo"}), done=False))
    third = decoder.feed(sse(chunk({"content": "!"}), END | {"id": "", "model": "other"}))

    assert first == []
    assert second == [TextPart("Hello")]
    assert third == [
        TextPart("!"),
        Done(
            content=(TextBlock(text="Hello!"),),
            finish_reason="stop",
            usage=Usage(),
            provider_metadata={"stop_reason": "stop"},
            response_metadata={"id": "c-1", "model": "m-1-0613"},
        ),
    ]


def test_only_content_is_progress() -> None:
    decoder = Chat(binding()).decoder(SSE)
    seen = []
    for body in (
        b": OPENROUTER PROCESSING\n\n",
        sse(chunk({"role": "assistant", "content": ""}), done=False),
        sse(chunk({"content": "a"}), done=False),
        sse(chunk({"reasoning": "b"}), done=False),
        sse(chunk({"tool_calls": [fragment("{", index=0, call="x", name="n")]}), done=False),
        sse(chunk({"tool_calls": [fragment("}", index=0)]}), done=False),
        sse(chunk({}, "stop"), {"choices": [], "usage": {"prompt_tokens": 1}}),
    ):
        decoder.feed(body)
        seen.append(decoder.progress)

    assert seen == [0, 0, 1, 2, 3, 4, 4]


@pytest.mark.parametrize(
    ("deltas", "blocks"),
    [
        (
            [{"reasoning_content": "th"}, {"reasoning_content": "ink"}, {"content": "a"}],
            (ThinkingBlock(text="think"), TextBlock(text="a")),
        ),
        (
            [{"reasoning": "think", "content": ""}, {"content": "a", "reasoning": None}],
            (ThinkingBlock(text="think"), TextBlock(text="a")),
        ),
        (
            [{"reasoning": "x", "reasoning_content": "x", "content": "a"}],
            (ThinkingBlock(text="x"), TextBlock(text="a")),
        ),
        (
            [
                {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}]},
                {"content": [{"type": "text", "text": "a"}, {"type": "new", "x": 1}]},
                {"content": "b"},
            ],
            (ThinkingBlock(text="t"), TextBlock(text="ab")),
        ),
        (
            [{"content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "a"}]}],
            (ThinkingBlock(text="t"), TextBlock(text="a")),
        ),
        (
            [
                {"reasoning_details": [{"type": "reasoning.summary", "summary": "t"}]},
                {"content": "a"},
            ],
            (ThinkingBlock(text="t"), TextBlock(text="a")),
        ),
        ([{"content": "<think>t</think>a"}], (TextBlock(text="<think>t</think>a"),)),
        ([{"content": 7, "reasoning": {"a": 1}}, {"content": "a"}], (TextBlock(text="a"),)),
        ([{"role": "new_role", "content": "a", "audio": {}}], (TextBlock(text="a"),)),
    ],
)
def test_every_way_to_say_text_and_thinking_is_understood(
    deltas: list[dict[str, Any]], blocks: tuple[Any, ...]
) -> None:
    assert done(sse(*map(chunk, deltas), END)).content == blocks


def test_a_refusal_is_told_as_text_and_ends_the_turn_as_one() -> None:
    turn = done(sse(chunk({"refusal": "I can't "}), chunk({"refusal": "do that."}), END))

    assert turn.content == (TextBlock(text="I can't do that."),)
    assert (turn.finish_reason, turn.provider_metadata) == ("refused", {"stop_reason": "stop"})
    filtered = done(sse(chunk({"refusal": "No."}), chunk({}, "content_filter")))
    assert filtered.finish_reason == "content_filter"


ONE = '{"a":1}'
TWO = '{"b":2}'


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param(
            [
                [fragment("", index=0, call="x", name="one")],
                [fragment('{"a"', index=0)],
                [fragment(":1}", index=0)],
                [fragment("", index=1, call="y", name="two")],
                [fragment(TWO, index=1)],
            ],
            [("x", "one", ONE), ("y", "two", TWO)],
            id="as OpenAI streams",
        ),
        pytest.param(
            [
                [fragment('{"a"', index=0, call="x", name="one")],
                [fragment('{"b"', index=1, call="y", name="two")],
                [fragment(":1}", index=0), fragment(":2}", index=1)],
            ],
            [("x", "one", ONE), ("y", "two", TWO)],
            id="interleaved",
        ),
        pytest.param(
            [
                [fragment(TWO, index=1, call="y", name="two")],
                [fragment(ONE, index=0, call="x", name="one")],
            ],
            [("y", "two", TWO), ("x", "one", ONE)],
            id="in the order they began",
        ),
        pytest.param(
            [
                [fragment('{"a"', index=0)],
                [fragment(":1}", index=0, name="one")],
                [fragment(index=0, call="x")],
            ],
            [("x", "one", ONE)],
            id="arguments, name, id",
        ),
        pytest.param(
            [
                [fragment('{"a"', index=0, call="x", name="one")],
                [fragment(":1}", index=0, call="x", name="one")],
                [fragment("", index=0, call="x", name="one")],
            ],
            [("x", "one", ONE)],
            id="id and name repeated",
        ),
        pytest.param(
            [[fragment('{"a"', index=0, name="one")], [fragment(":1}", index=0, name="one")]],
            [("call_0", "one", ONE)],
            id="name repeated, no id",
        ),
        pytest.param(
            [
                [fragment(index=0, call="x", name="read_")],
                [fragment(ONE, index=0, name="file")],
            ],
            [("x", "read_file", ONE)],
            id="name in pieces",
        ),
        pytest.param(
            [
                [fragment(ONE, index=0, call="x", name="one")],
                [fragment(TWO, index=0, call="y", name="one")],
            ],
            [("x", "one", ONE), ("y", "one", TWO)],
            id="every index 0, ids differ",
        ),
        pytest.param(
            [
                [
                    fragment(ONE, index=0, call="x", name="one"),
                    fragment(TWO, index=0, call="y", name="two"),
                ]
            ],
            [("x", "one", ONE), ("y", "two", TWO)],
            id="every index 0 in one chunk",
        ),
        pytest.param(
            [
                [fragment('{"a"', index=0, call="x", name="one")],
                [fragment(":1}", index=0)],
                [fragment('{"b"', index=0, call="y", name="two")],
                [fragment(":2}", index=0)],
            ],
            [("x", "one", ONE), ("y", "two", TWO)],
            id="every index 0, in pieces",
        ),
        pytest.param(
            [[fragment(ONE, call="x", name="one"), fragment(TWO, call="y", name="two")]],
            [("x", "one", ONE), ("y", "two", TWO)],
            id="no index",
        ),
        pytest.param(
            [
                [fragment('{"a"', call="x", name="one")],
                [fragment('{"b"', call="y", name="two")],
                [fragment(":1}", call="x")],
                [fragment(":2}", call="y")],
            ],
            [("x", "one", ONE), ("y", "two", TWO)],
            id="no index, interleaved by id",
        ),
        pytest.param(
            [[fragment('{"a"', call="x", name="one")], [fragment(":1}")]],
            [("x", "one", ONE)],
            id="no index, rest without id",
        ),
        pytest.param(
            [[fragment(ONE, name="one"), fragment(TWO, name="one")]],
            [("call_0", "one", ONE), ("call_1", "one", TWO)],
            id="no index and no id",
        ),
        pytest.param(
            [[fragment(ONE, name="one")], [fragment(TWO, name="one")]],
            [("call_0", "one", ONE), ("call_1", "one", TWO)],
            id="no index and no id, in two chunks",
        ),
        pytest.param(
            [[fragment(ONE, index=0, name="one")], [fragment(TWO, index=0, name="two")]],
            [("call_0", "one", ONE), ("call_1", "two", TWO)],
            id="every index 0 and no id",
        ),
        pytest.param(
            [[fragment({"a": 1}, index=0, call="x", name="one")]],
            [("x", "one", ONE)],
            id="arguments as an object",
        ),
        pytest.param(
            [[fragment(ONE, index=0, call="call_1", name="one"), fragment(TWO, index=1, name="b")]],
            [("call_1", "one", ONE), ("call_1_", "b", TWO)],
            id="a made id is not a given one",
        ),
        pytest.param(
            [[fragment(index=0, call="x", name="one")], [{"index": 1}], [{}]],
            [("x", "one", "")],
            id="no arguments at all",
        ),
        pytest.param(
            [[fragment(ONE, index=[0], call="x", name="one")]],
            [("x", "one", ONE)],
            id="an index that is no number",
        ),
        pytest.param(
            [[fragment(ONE, index=0)], [fragment(index=0, call="x", name="one")]],
            [("x", "one", ONE)],
            id="whole arguments before the name",
        ),
        pytest.param(
            [[fragment(name="one"), fragment(name="two")]],
            [("call_0", "one", ""), ("call_1", "two", "")],
            id="names alone",
        ),
        pytest.param(
            [[fragment(ONE, index=0, name="one")], [fragment(" ", index=0, name="one")]],
            [("call_0", "one", ONE + " ")],
            id="name repeated after whole arguments",
        ),
        pytest.param(
            [
                [fragment('{"a":{"b":1}', index=0, name="re")],
                [fragment("}", index=0, name="ad")],
            ],
            [("call_0", "read", '{"a":{"b":1}}')],
            id="name and arguments in pieces",
        ),
    ],
)
def test_a_tool_call_is_put_together_however_it_is_cut(
    chunks: list[list[dict[str, Any]]], expected: list[tuple[str, str, str]]
) -> None:
    for finish in ("tool_calls", "stop"):
        body = called(*chunks, finish=finish)
        assert calls(body) == expected
        assert done(body).finish_reason == "tool_calls"


def test_a_legacy_function_call_is_a_call() -> None:
    body = sse(
        chunk({"function_call": {"name": "one", "arguments": '{"a"'}}),
        chunk({"function_call": {"arguments": ":1}"}}),
        chunk({}, "function_call"),
    )

    assert calls(body) == [("call_0", "one", ONE)]
    assert done(body).finish_reason == "tool_calls"


def test_calls_that_were_cut_off_are_told_as_far_as_they_came() -> None:
    body = called([fragment('{"a', index=0, call="x", name="one")], finish="length")

    assert calls(body) == [("x", "one", '{"a')]
    assert done(body).finish_reason == "length"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("model_length", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "tool_calls"),
        ("STOP", "stop"),
        ("galactic_alignment", "unknown"),
    ],
)
def test_the_stop_reason_is_mapped_and_the_servers_word_kept(word: str, reason: str) -> None:
    turn = done(sse(chunk({"content": "a"}), chunk({}, word)))

    assert (turn.finish_reason, turn.provider_metadata) == (reason, {"stop_reason": word})


WHOLE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 8},
    "completion_tokens_details": {"reasoning_tokens": 5},
}
COUNTED = Usage(
    input_tokens=100,
    output_tokens=20,
    reasoning_tokens=5,
    cache_read_tokens=64,
    cache_write_tokens=8,
)


@pytest.mark.parametrize(
    ("ends", "usage"),
    [
        ([END, {"choices": [], "usage": WHOLE}], COUNTED),
        ([chunk({}, "stop", usage=WHOLE)], COUNTED),
        ([{"choices": None, "usage": WHOLE}, END], COUNTED),
        ([chunk({}, "stop", x_groq={"usage": WHOLE})], COUNTED),
        ([{"choices": [{"delta": {}, "finish_reason": "stop", "usage": WHOLE}]}], COUNTED),
        ([chunk({}, usage={"prompt_tokens": 1}), chunk({}, "stop", usage=WHOLE)], COUNTED),
        (
            [chunk({}, "stop", usage={"prompt_tokens": 9, "prompt_cache_hit_tokens": 4})],
            Usage(input_tokens=9, cache_read_tokens=4),
        ),
        (  # xAI counts reasoning beside the output
            [
                chunk(
                    {},
                    "stop",
                    usage={
                        "prompt_tokens": 470,
                        "completion_tokens": 68,
                        "total_tokens": 723,
                        "completion_tokens_details": {"reasoning_tokens": 185},
                    },
                )
            ],
            Usage(input_tokens=470, output_tokens=253, reasoning_tokens=185),
        ),
        ([END], Usage()),
        (
            [chunk({}, "stop", usage={"prompt_tokens": -1, "completion_tokens": True})],
            Usage(),
        ),
        ([chunk({}, "stop", usage=[]), {"usage": "new", "x_groq": 3}], Usage()),
    ],
)
def test_usage_is_found_wherever_a_server_says_it(ends: list[Any], usage: Usage) -> None:
    assert done(sse(chunk({"content": "a"}), *ends)).usage == usage


def test_the_first_of_several_answers_counts() -> None:
    def numbered(index: int, text: str, finish: str | None = None) -> Any:
        return {"choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish}]}

    body = sse(
        numbered(1, "b"), numbered(0, "a"), numbered(1, "", "length"), numbered(0, "", "stop")
    )

    turn = done(body)

    assert (turn.content, turn.finish_reason) == ((TextBlock(text="a"),), "stop")


@pytest.mark.parametrize(
    "body",
    [
        sse(chunk({"content": "a"}), END, done=False),
        sse(chunk({"content": "a"}), END)[:-2],  # [DONE] without its blank line
        sse(chunk({"content": "a"}), END, done=False)[:-2],
        sse(chunk({"content": "a"}, ""), chunk(None, "stop")),
        sse(chunk({"content": "a"}), END, {"choices": []}),
        sse(chunk({"content": "a"}), {"choices": [{"finish_reason": "stop"}]}),
        sse(chunk({"content": "a"}), END).replace(b"data: ", b"data:"),
        b": OPENROUTER PROCESSING\n\n" + sse(chunk({"content": "a"}), END),
        b"data: null\n\n" + sse(chunk({"content": "a"}), END),
        b"event: new\ndata: not json\n\n" + sse(chunk({"content": "a"}), END),
        sse(chunk({"content": "a"}), END) + sse(chunk({"content": "late"})),
        sse({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}),
        sse(
            {"choices": [{"delta": {"content": "a"}, "message": {"content": "a"}}]},
            {"choices": [{"delta": {"content": ""}}]},
            {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]},
        ),
    ],
)
def test_servers_that_end_and_pad_a_stream_in_their_own_way_are_understood(body: bytes) -> None:
    turn = done(body)

    assert (turn.content, turn.finish_reason) == ((TextBlock(text="a"),), "stop")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b": nothing\n\n",
        b"data: [DONE]\n\n",
        sse(chunk({"content": "a"}), done=False),
        sse(chunk({"content": "a"})),
        sse(chunk({"content": "a"}, "")),
        sse(chunk({"content": "a"}), END, done=False)[:-9],
        b"<html>a gateway's page</html>",
    ],
)
def test_an_answer_without_its_stop_reason_is_cut_off(body: bytes) -> None:
    assert failed(body)[:2] == ("unexpected_eof", "stream_finalize")


@pytest.mark.parametrize(
    ("event", "kind", "words"),
    [
        ({"error": {"code": 429, "message": "slow down"}}, "rate_limited", "slow down"),
        ({"error": {"code": "503", "message": "later"}}, "overload", "later"),
        (
            {"error": {"type": "overloaded_error", "message": "busy", "code": None}},
            "overload",
            "busy",
        ),
        (
            {"error": {"code": "context_length_exceeded", "message": "too long"}},
            "context_length",
            "too long",
        ),
        (
            {
                "error": {
                    "code": 502,
                    "message": "Provider returned error",
                    "metadata": {"raw": "upstream fell over", "provider_name": "x"},
                }
            },
            "provider",
            "Provider returned error: upstream fell over",
        ),
        ({"error": "it broke"}, "provider", "it broke"),
        ({"object": "error", "message": "bad key", "code": 401}, "auth", "bad key"),
        (
            {"choices": [{"finish_reason": "error", "error": {"code": 529, "message": "busy"}}]},
            "overload",
            "busy",
        ),
    ],
)
def test_an_error_inside_the_stream_is_a_failure(event: Any, kind: str, words: str) -> None:
    for first in (chunk({"content": "a"}), END):
        body = sse(first, event, chunk({"content": "b"}), END)
        found = failed(body)
        assert found[:2] == (kind, "stream_decode")
        assert words in found[2]
    assert failed(json.dumps(event).encode(), JSON)[0] == kind


def test_what_was_said_before_an_error_is_told_before_it() -> None:
    parts = decoded([sse(chunk({"content": "a"}), {"error": {"message": "no"}})])

    assert parts[0] == TextPart("a")
    assert isinstance(parts[1], Failed)


@pytest.mark.parametrize(
    ("word", "kind"),
    [("error", "provider"), ("insufficient_system_resource", "overload"), ("abort", "provider")],
)
def test_a_turn_that_the_server_gave_up_is_a_failure(word: str, kind: str) -> None:
    assert failed(sse(chunk({"content": "a"}), chunk({}, word)))[0] == kind


@pytest.mark.parametrize(
    "event",
    [
        b"data: Internal error\n\n",
        b"event: error\ndata: no json\n\n",
        b'data: {"choices": 7}\n\n',
        b'data: {"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n\n",
    ],
)
def test_an_event_that_cannot_be_read_is_a_failure(event: bytes) -> None:
    body = sse(chunk({"content": "a"}), done=False) + event + sse(END)

    assert failed(body)[:2] == ("invalid_response", "stream_decode")


def test_half_a_character_becomes_a_mark_instead_of_an_end() -> None:
    half = rb'data: {"choices":[{"delta":{"content":"a\ud83d"}}]}' + b"\n\n"
    cut = b'data: {"choices":[{"delta":{"content":"\xf0\x9f"}}]}\n\n'

    assert done(half + cut + sse(END)).content == (TextBlock(text="a?\ufffd"),)


def test_a_failure_says_how_many_bytes_had_come() -> None:
    body = sse(chunk({"content": "a"}))
    last = decoded([body])[-1]

    assert isinstance(last, Failed)
    assert last.error.bytes_received == len(body)


def test_an_answer_is_bounded() -> None:
    stream, whole = Stream(native=True, limit=100), Whole(native=True, limit=100)
    told = [*stream.feed(b"data: " + b"x" * 200), *whole.feed(b"x" * 101)]

    assert [part.error.kind for part in told if isinstance(part, Failed)] == [
        "invalid_response",
        "invalid_response",
    ]
    assert [*stream.feed(b"x"), *whole.feed(b"x"), *stream.end(), *whole.end()] == []


def test_a_large_event_is_read() -> None:
    text = "x" * 5_000_000

    assert done(sse(chunk({"content": text}), END)).content == (TextBlock(text=text),)


# --- one object instead of a stream --------------------------------------------------------------


def whole(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return json.dumps({"id": "c-1", "model": "m", "choices": [choice], **more}).encode()


def test_an_answer_in_one_object_is_a_turn_like_a_streamed_one() -> None:
    call = {"id": "x", "type": "function", "function": {"name": "one", "arguments": ONE}}
    said = {"content": "a", "reasoning_content": "t", "refusal": None, "tool_calls": [call]}
    body = b"\n\n   " + whole(said, "tool_calls", usage=WHOLE)

    parts = decoded([body[:50], body[50:]], "Application/JSON; charset=utf-8")

    assert parts == [
        ThinkingPart("t"),
        TextPart("a"),
        ToolCallPart(model_call_id="x", name="one", arguments=ONE),
        Done(
            content=(
                ThinkingBlock(text="t"),
                TextBlock(text="a"),
                ToolCallBlock(model_call_id="x", name="one", arguments=ONE),
            ),
            finish_reason="tool_calls",
            usage=COUNTED,
            native_replay={"family": "chat", "items": [{"thinking": "reasoning_content"}]},
            provider_metadata={"stop_reason": "tool_calls"},
            response_metadata={"id": "c-1", "model": "m"},
        ),
    ]


def test_white_space_before_an_object_is_no_progress() -> None:
    decoder = Chat(binding()).decoder(JSON)
    seen = []
    for piece in (b"\n", b"   \n", b'{"choices"', b": []}"):
        decoder.feed(piece)
        seen.append(decoder.progress)

    assert seen == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "unexpected_eof"),
        (b"  \n", "unexpected_eof"),
        (whole({"content": "a"})[:-3], "unexpected_eof"),
        (b"<html>no</html>", "invalid_response"),
        (b"{}", "invalid_response"),
        (b"[]", "invalid_response"),
        (b'{"choices":[]}', "invalid_response"),
        (b'{"error":{"message":"no","type":"invalid_request_error"}}', "invalid_request"),
    ],
)
def test_an_object_that_is_no_answer_is_a_failure(body: bytes, kind: str) -> None:
    assert failed(body, JSON)[0] == kind


def test_an_object_that_leaves_the_stop_reason_out_is_whole_all_the_same() -> None:
    assert done(whole({"content": "a"}, None), JSON).finish_reason == "unknown"


# --- recorded traffic, and the SDK as its reader -------------------------------------------------

SPOKEN = [
    case
    for case in cases(*FAMILIES, ok=True)
    if case.path is None or case.path.endswith("/chat/completions")
]


def recorded(*, format: str | None = None) -> list[Any]:  # noqa: A002
    """The cases of this wire with a 2xx status; one that skips where there are no recordings."""
    if not SPOKEN:
        return params("openai-chat")
    found = [case for case in SPOKEN if format in {None, case.format}]
    return [pytest.param(case, id=case.id) for case in found]


def by_the_sdk(case: Case) -> dict[str, Any] | None:
    """What the vendor's SDK makes of a body; None when it raises."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            case.status, headers={"content-type": case.content_type}, content=case.body
        )

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    with openai.OpenAI(api_key="none", base_url="http://x/v1", http_client=http) as client:
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        try:
            if case.format == "json":
                return completion(client.chat.completions.create(**asked))
            state: Any = ChatCompletionStreamState()
            for each in client.chat.completions.create(**asked, stream=True):
                state.handle_chunk(each)
            return completion(state.current_completion_snapshot)
        except openai.APIError:
            return None


def completion(made: Any) -> dict[str, Any]:
    """An SDK's completion in our words; its own drops nothing, it keeps what it can't name."""
    choice = made.choices[0]
    message = choice.message
    extra = (message.model_extra or {}) if message is not None else {}
    usage = made.usage
    read = usage.prompt_tokens_details
    wrote = usage.completion_tokens_details
    thought = wrote.reasoning_tokens if wrote else None
    beside = usage.total_tokens == usage.prompt_tokens + usage.completion_tokens + (thought or 0)
    return {
        "text": (message.content or "") if message is not None else "",
        "thinking": extra.get("reasoning_content") or extra.get("reasoning") or "",
        "calls": [
            (call.id, call.function.name, call.function.arguments)
            for call in (message.tool_calls if message is not None else None) or ()
        ],
        "stop": choice.finish_reason,
        "input": usage.prompt_tokens,
        "output": usage.completion_tokens + ((thought or 0) if beside else 0),
        "reasoning": thought,
        "read": read.cached_tokens if read else None,
    }


def ours(turn: Done) -> dict[str, Any]:
    """A turn in the same words."""
    return {
        "text": "".join(b.text for b in turn.content if isinstance(b, TextBlock)),
        "thinking": "".join(b.text for b in turn.content if isinstance(b, ThinkingBlock)),
        "calls": [
            (b.model_call_id, b.name, b.arguments)
            for b in turn.content
            if isinstance(b, ToolCallBlock)
        ],
        "stop": turn.provider_metadata["stop_reason"],
        "input": turn.usage.input_tokens,
        "output": turn.usage.output_tokens,
        "reasoning": turn.usage.reasoning_tokens,
        "read": turn.usage.cache_read_tokens,
    }


@pytest.mark.parametrize("case", recorded())
def test_a_recorded_answer_is_read_as_the_vendors_sdk_reads_it(case: Case) -> None:
    last = decoded([case.body], case.content_type)[-1]
    oracle = by_the_sdk(case)

    if oracle is None:
        assert isinstance(last, Failed)
    else:
        assert isinstance(last, Done)
        assert ours(last) == oracle
        assert last.finish_reason == oracle["stop"]


def uncounted(parts: list[Part]) -> list[Part]:
    """The parts without how many bytes had come when a failure was seen: that depends on cuts."""
    *rest, last = parts
    if isinstance(last, Failed):
        last = Failed(error=msgspec.structs.replace(last.error, bytes_received=0))
    return [*rest, last]


@pytest.mark.parametrize("case", recorded())
def test_a_recorded_answer_is_the_same_wherever_its_bytes_are_split(case: Case) -> None:
    expected = uncounted(decoded([case.body], case.content_type))

    for pieces in splits(case.body):
        assert uncounted(decoded(pieces, case.content_type)) == expected


def without_native(parts: list[Part]) -> list[Part]:
    """The parts without what is kept for replay: it keeps unknown fields on purpose."""
    *rest, last = parts
    return [*rest, msgspec.structs.replace(last, native_replay=None)] if rest else parts


@pytest.mark.parametrize("case", recorded(format="sse"))
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_what_nobody_knows_changes_nothing(case: Case, seed: int) -> None:
    expected = decoded([case.body])
    found = decoded([mutated(case.body, random.Random(seed))])

    assert found[:-1] == expected[:-1]
    if isinstance(expected[-1], Failed):
        assert isinstance(found[-1], Failed)
        assert found[-1].error.kind == expected[-1].error.kind
    else:
        assert without_native(found) == without_native(expected)


@pytest.mark.parametrize("case", recorded(format="sse"))
def test_a_recorded_stream_that_was_cut_is_no_turn_before_its_stop_reason(case: Case) -> None:
    for cut in cuts(case.body):
        finished = b'"finish_reason":"' in cut and b'"error":{' not in cut
        assert isinstance(decoded([cut])[-1], Done) == finished


# --- requests ------------------------------------------------------------------------------------

PNG = MediaBlock(mime="Image/PNG", digest=Digest("sha256:" + "1" * 64), byte_length=4, name="a.png")
PDF = MediaBlock(mime="application/pdf", digest=Digest("sha256:" + "2" * 64), byte_length=4)
NAMED = msgspec.structs.replace(PDF, name="b.pdf")
WAV = MediaBlock(mime="audio/wav", digest=Digest("sha256:" + "3" * 64), byte_length=4)
MOV = MediaBlock(mime="video/mp4", digest=Digest("sha256:" + "4" * 64), byte_length=9)
BYTES = {PNG.digest: b"\x89PNG", PDF.digest: b"%PDF", WAV.digest: b"RIFF", MOV.digest: b"?"}
PNG_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}


def call(call_id: str = "c1", arguments: str = ONE, name: str = "one") -> ToolCallBlock:
    return ToolCallBlock(model_call_id=call_id, name=name, arguments=arguments)


def turn(*blocks: Any, native: dict[str, Any] | None = None) -> AssistantMessage:
    return AssistantMessage(content=blocks, native=native)


def result(call_id: str = "c1", output: str = "ok", *files: MediaBlock) -> ToolMessage:
    return ToolMessage(model_call_id=call_id, name="one", output=output, attachments=files)


def said(asked: Request, bound: FrozenModelBinding | None = None) -> dict[str, Any]:
    """The body of a request, read back."""
    found = msgspec.json.decode(Chat(bound or binding()).encode(asked, BYTES).body)
    assert isinstance(found, dict)
    return found


def messages(*asked: Message, bound: FrozenModelBinding | None = None) -> list[Any]:
    """The messages of a request's body."""
    return list(said(request(*asked), bound)["messages"])


def test_a_request_to_a_compatible_server_is_these_bytes() -> None:
    tool = ToolSpec(name="one", description="Does one.", parameters={"type": "object"})
    asked = msgspec.structs.replace(
        request(user("hi"), turn(TextBlock(text="I look."), call()), result(), system="Be brief."),
        tools=(tool,),
        max_output_tokens=4000,
    )

    found = Chat(binding()).encode(asked, {})

    assert found.url == "http://127.0.0.1:8080/v1/chat/completions"
    assert found.headers == {"content-type": "application/json", "accept": "text/event-stream"}
    assert found.body == (
        b'{"model":"m-1","stream":true,"stream_options":{"include_usage":true},"max_tokens":4000,'
        b'"prompt_cache_key":"01890000-0000-7000-8000-000000000000",'
        b'"tools":[{"type":"function","function":{"name":"one","description":"Does one.",'
        b'"parameters":{"type":"object"}}}],'
        b'"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"hi"},'
        b'{"role":"assistant","content":"I look.","tool_calls":[{"id":"c1","type":"function",'
        b'"function":{"name":"one","arguments":"{\\"a\\":1}"}}]},'
        b'{"role":"tool","tool_call_id":"c1","content":"ok"}]}'
    )


def test_a_request_to_openai_says_all_that_was_chosen() -> None:
    bound = openai_binding(
        generation=Generation(
            temperature=0.5, top_p=0.9, stop=("END",), seed=7, tool_choice="named:one"
        ),
        reasoning=ReasoningWish(effort="high"),
        options={"organization": "org-1", "project": "proj-1", "store": False},
        capabilities=ModelCapabilities(parallel_tools=False),
        cache={"prompt_cache_retention": "24h", "mode": "explicit", "ttl": "30m"},
    )
    asked = request(user("hi"), tools=("one",), max_output_tokens=9)

    found = Chat(bound).encode(asked, {})

    assert found.url == "https://api.openai.com/v1/chat/completions"
    assert found.headers == {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "openai-organization": "org-1",
        "openai-project": "proj-1",
    }
    assert msgspec.json.decode(found.body) == {
        "model": "m-1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["END"],
        "seed": 7,
        "reasoning_effort": "high",
        "store": False,
        "prompt_cache_key": SESSION,
        "prompt_cache_retention": "24h",
        "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
        "tools": [{"type": "function", "function": {"name": "one", "parameters": {}}}],
        "tool_choice": {"type": "function", "function": {"name": "one"}},
        "parallel_tool_calls": False,
        "messages": [{"role": "user", "content": "hi"}],
    }


def test_what_was_not_chosen_is_not_said() -> None:
    bound = binding(
        generation=Generation(tool_choice="required"),
        capabilities=ModelCapabilities(parallel_tools=False),
        reasoning=ReasoningWish(effort="default"),
        cache={"prompt_cache_key": ""},
        options={"organization": "org-1"},
    )

    found = Chat(bound).encode(request(user("hi")), {})

    assert "openai-organization" not in found.headers
    assert found.body == (
        b'{"model":"m-1","stream":true,"stream_options":{"include_usage":true},'
        b'"messages":[{"role":"user","content":"hi"}]}'
    )


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h", "http://h/chat/completions"),
        ("http://h/v1?api-version=1", "http://h/v1/chat/completions?api-version=1"),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
    ],
)
def test_the_path_goes_below_the_endpoint(endpoint: str, url: str) -> None:
    assert Chat(binding(endpoint=endpoint)).encode(request(user("hi")), {}).url == url


@pytest.mark.parametrize(
    ("cache", "key"),
    [
        (None, SESSION),
        ({"prompt_cache_key": "team-${session_id}"}, f"team-{SESSION}"),
        ({"prompt_cache_key": "same"}, "same"),
        ({"prompt_cache_key": ""}, None),
    ],
)
def test_a_compatible_server_is_told_the_key_that_the_config_says(
    cache: dict[str, Any] | None, key: str | None
) -> None:
    assert said(request(user("hi")), binding(cache=cache)).get("prompt_cache_key") == key


def test_a_cache_that_openai_manages_is_its_own_default() -> None:
    bound = openai_binding(cache={"mode": "auto", "system": False, "rolling": False})

    assert said(request(user("hi")), bound) == said(request(user("hi")), openai_binding())


def test_cache_breakpoints_stand_at_the_end_of_the_system_text_and_of_the_last_message() -> None:
    bound = openai_binding(cache={"system": True, "rolling": True})
    marker = {"prompt_cache_breakpoint": {"mode": "explicit"}}

    found = said(request(user("hi"), turn(call()), result(), system="Be brief."), bound)["messages"]

    assert found[0]["content"] == [{"type": "text", "text": "Be brief.", **marker}]
    assert found[1]["content"] == "hi"
    assert found[-1]["content"] == [{"type": "text", "text": "ok", **marker}]
    assert said(request(user("a"), user("b")), bound)["messages"][0]["content"] == "a"


@pytest.mark.parametrize(
    ("host", "absent"),
    [
        ("api.groq.com", "prompt_cache_key"),
        ("api.cerebras.ai", "prompt_cache_key"),
        ("api.mistral.ai", "stream_options"),
    ],
)
def test_a_server_is_not_told_by_default_what_it_refuses(host: str, absent: str) -> None:
    found = said(request(user("hi")), binding(endpoint=f"https://{host}/v1"))
    rest = {"stream_options", "prompt_cache_key"} - {absent}

    assert absent not in found
    assert rest <= set(found)


def test_a_cache_key_that_is_set_is_sent_to_anybody() -> None:
    bound = binding(endpoint="https://api.groq.com/openai/v1", cache={"prompt_cache_key": "k"})

    assert said(request(user("hi")), bound)["prompt_cache_key"] == "k"


LONG = "call_QrIV88ppSKBV3sdKw9Dkr9L5"


@pytest.mark.parametrize(
    ("host", "call_id", "kept"),
    [
        ("h", "call_0", True),
        ("h", "functions.read_a_long_file:12", True),
        ("h", LONG, False),
        ("h", "toolu_01A09q90qw90lq917835lq9", False),
        ("h", "with blank", False),
        ("api.mistral.ai", "VzeppoSaq", True),
        ("api.mistral.ai", "call_0", False),
    ],
)
def test_a_long_or_foreign_call_id_is_shortened_alike_in_call_and_result(
    host: str, call_id: str, *, kept: bool
) -> None:
    bound = binding(endpoint=f"https://{host}/v1")

    _, asked, answered = messages(user("hi"), turn(call(call_id)), result(call_id), bound=bound)

    sent = asked["tool_calls"][0]["id"]
    assert answered["tool_call_id"] == sent
    assert (sent == call_id) == kept
    assert kept or (len(sent) == 9 and sent.isalnum() and sent.isascii())


@pytest.mark.parametrize(
    "wish",
    [ReasoningWish(enabled=True), ReasoningWish(enabled=False), ReasoningWish(budget_tokens=9)],
)
def test_thinking_by_switch_or_budget_cannot_be_said(wish: ReasoningWish) -> None:
    with pytest.raises(CannotEncode) as refused:
        Chat(binding(reasoning=wish)).encode(request(user("hi")), {})

    assert refused.value.kind == "unsupported"


# --- messages ------------------------------------------------------------------------------------


def test_a_turn_of_calls_alone_has_no_content() -> None:
    _, asked, _, _ = messages(user("hi"), turn(call("a"), call("b")), result("a"), result("b"))

    assert asked["content"] is None
    assert [each["id"] for each in asked["tool_calls"]] == ["a", "b"]


def test_pictures_of_a_person_are_parts_and_texts_alone_are_one_text() -> None:
    texts = UserMessage(content=(TextBlock(text="a"), TextBlock(text=" "), TextBlock(text="b")))
    look = UserMessage(content=(TextBlock(text="Look:"), PNG, PDF, NAMED, WAV))
    url = "data:application/pdf;base64,JVBERg=="

    assert messages(texts, look) == [
        {"role": "user", "content": "a\n\nb"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look:"},
                PNG_PART,
                {"type": "file", "file": {"filename": "document.pdf", "file_data": url}},
                {"type": "file", "file": {"filename": "b.pdf", "file_data": url}},
                {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
            ],
        },
    ]


def test_media_that_cannot_be_sent_is_told_in_words() -> None:
    gone = msgspec.structs.replace(PNG, digest=Digest("sha256:" + "9" * 64))

    assert messages(UserMessage(content=(MOV, gone))) == [
        {
            "role": "user",
            "content": "[video/mp4 of 9 bytes: not sent, this provider has no form for it]\n\n"
            "[Image/PNG of 4 bytes: not sent, its bytes could not be read]",
        }
    ]


def test_pictures_of_tools_follow_the_last_result_of_their_turn() -> None:
    found = messages(
        user("hi"),
        turn(call("a"), call("b")),
        result("a", "one.png", PNG),
        result("b", "two", MOV),
        turn(TextBlock(text="Nice.")),
    )

    assert found[2:] == [
        {"role": "tool", "tool_call_id": "a", "content": "one.png"},
        {
            "role": "tool",
            "tool_call_id": "b",
            "content": "two\n\n[video/mp4 of 9 bytes: not sent, this provider has no form for it]",
        },
        {
            "role": "user",
            "content": [{"type": "text", "text": "[What one brought, call a]"}, PNG_PART],
        },
        {"role": "assistant", "content": "Nice."},
    ]
    assert messages(user("hi"), turn(call("a")), result("a", "one.png", PNG))[-1] == found[4]


@pytest.mark.parametrize(
    "blank",
    [
        turn(),
        turn(TextBlock(text=" \n")),
        turn(ThinkingBlock(text="t")),
        turn(ThinkingBlock(text="t", signature="s")),
        turn(ThinkingBlock(text="x", redacted=True), TextBlock(text="")),
        UserMessage(content=(TextBlock(text=" "),)),
    ],
)
def test_what_holds_nothing_is_not_sent(blank: Message) -> None:
    assert messages(user("hi"), blank, user("there")) == [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": "there"},
    ]


def test_blank_output_and_blank_arguments_are_filled_in() -> None:
    _, asked, answered = messages(user("hi"), turn(call(arguments="")), result(output=" "))

    assert asked["tool_calls"][0]["function"]["arguments"] == "{}"
    assert answered["content"] == "(no output)"


@pytest.mark.parametrize(
    "odd",
    [
        (),
        (UserMessage(content=(TextBlock(text=" "),)),),
        (user("hi"), turn(call())),
        (user("hi"), turn(call()), user("and?")),
        (user("hi"), turn(call()), user("and?"), result()),
        (user("hi"), turn(call("a"), call("b")), result("a")),
        (user("hi"), result()),
        (user("hi"), turn(call()), result(), result()),
        (user("hi"), turn(call("a"), call("a")), result("a")),
        (user("hi"), turn(call()), result(), turn(call()), result()),
        (user("hi"), turn(call(arguments="{")), result()),
        (user("hi"), turn(call(arguments="[]")), result()),
        (user("hi"), turn(call(arguments='"\ud800"')), result()),
        (user("\ud800"),),
    ],
)
def test_a_history_that_no_server_takes_is_refused(odd: tuple[Message, ...]) -> None:
    with pytest.raises(CannotEncode):
        Chat(binding()).encode(request(*odd, system="Be brief."), {})


def test_a_compatible_provider_without_an_endpoint_is_refused() -> None:
    with pytest.raises(CannotEncode):
        Chat(binding(endpoint=None)).encode(request(user("hi")), {})


# --- replay --------------------------------------------------------------------------------------


def replayed(body: bytes, **more: Any) -> tuple[Done, dict[str, Any]]:
    """A turn, and how it is sent back to the model that took it."""
    bound = binding(**more)
    last = decoded([body], bound=bound)[-1]
    assert isinstance(last, Done)
    results = [
        result(block.model_call_id) for block in last.content if isinstance(block, ToolCallBlock)
    ]
    spoken = turn(*last.content, native=last.native_replay)
    return last, messages(user("hi"), spoken, *results, bound=bound)[1]


CALLED = fragment(ONE, index=0, call="x", name="one")
SENT = {"id": "x", "type": "function", "function": {"name": "one", "arguments": ONE}}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_goes_back_in_the_field_it_came_in(field: str) -> None:
    body = sse(chunk({field: "th"}), chunk({field: "ink"}), chunk({"tool_calls": [CALLED]}), END)

    last, sent = replayed(body)

    assert last.native_replay == {"family": "chat", "items": [{"thinking": field}]}
    assert sent == {"role": "assistant", "content": None, field: "think", "tool_calls": [SENT]}


def test_chunks_of_thinking_go_back_as_chunks() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}
    text = {"type": "text", "text": "a"}
    body = sse(chunk({"content": [thought]}), chunk({"content": "a"}), END)

    last, sent = replayed(body)

    assert last.native_replay == {"family": "chat", "items": [{"thinking": "content"}]}
    assert sent == {"role": "assistant", "content": [thought, text]}


def test_reasoning_details_go_back_whole_and_unmodified() -> None:
    def detail(**fields: Any) -> Any:
        return chunk({"reasoning_details": [fields]})

    text = {"type": "reasoning.text", "index": 0, "format": "f"}
    second = {"type": "reasoning.text", "index": 1, "id": "r-1"}
    third = second | {"id": "r-2"}
    hidden = {"type": "reasoning.encrypted", "data": "abc", "index": 1, "new": [1]}
    other = hidden | {"data": "def"}
    body = sse(
        detail(**text, text="th"),
        detail(**text, text="ink"),
        detail(**text | {"format": None}, text="", signature="sig"),
        detail(**text, text="more"),
        detail(**second, text="!"),
        detail(**third, text="!"),
        detail(**hidden),
        detail(**other),
        chunk({"content": "a"}),
        END,
    )
    details = [
        text | {"text": "think", "signature": "sig"},
        text | {"text": "more"},
        second | {"text": "!"},
        third | {"text": "!"},
        hidden,
        other,
    ]

    last, sent = replayed(body)

    assert last.content == (ThinkingBlock(text="thinkmore!!"), TextBlock(text="a"))
    assert last.native_replay == {"family": "chat", "items": [{"reasoning_details": details}]}
    assert sent == {"role": "assistant", "content": "a", "reasoning_details": details}


def test_details_that_say_no_more_than_the_text_are_kept_for_a_loop_of_tools_alone() -> None:
    said = {"reasoning_details": [{"type": "reasoning.text", "text": "t", "index": 0}]}

    assert done(sse(chunk(said), chunk({"content": "a"}), END)).native_replay is None
    called = done(sse(chunk(said), chunk({"tool_calls": [CALLED]}), END))
    assert called.native_replay == {"family": "chat", "items": [said]}


def test_what_google_says_beside_a_call_goes_back_with_it() -> None:
    extra = {"google": {"thought_signature": "sig"}}
    body = sse(chunk({"tool_calls": [CALLED | {"extra_content": extra}]}), END)

    last, sent = replayed(body)

    assert last.native_replay == {"family": "chat", "items": [{"calls": {"x": extra}}]}
    assert sent["tool_calls"] == [SENT | {"extra_content": extra}]
    ids = [block.model_call_id for block in last.content if isinstance(block, ToolCallBlock)]
    assert list(last.native_replay["items"][0]["calls"]) == ids


@pytest.mark.parametrize(
    "native",
    [
        None,
        {},
        {"family": "anthropic", "items": [{"thinking": "reasoning"}]},
        {"family": "chat"},
        {"family": "chat", "items": []},
        {"family": "chat", "items": ["x"]},
        {"family": "chat", "items": [{"thinking": "role", "calls": 7, "reasoning_details": "x"}]},
    ],
)
def test_a_foreign_or_damaged_replay_is_passed_over(native: dict[str, Any] | None) -> None:
    spoken = turn(ThinkingBlock(text="t"), call("x"), native=native)

    assert messages(user("hi"), spoken, result("x"))[1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [SENT],
    }


def test_a_model_without_replay_keeps_and_is_sent_none() -> None:
    bound = binding(capabilities=ModelCapabilities(native_replay="unsupported"))
    spoken = turn(
        ThinkingBlock(text="t"),
        TextBlock(text="a"),
        native={"family": "chat", "items": [{"thinking": "reasoning"}]},
    )
    body = sse(chunk({"reasoning": "t"}), chunk({"content": "a"}), END)
    last = decoded([body], bound=bound)[-1]

    assert isinstance(last, Done)
    assert last.native_replay is None
    assert messages(user("hi"), spoken, bound=bound)[1] == {"role": "assistant", "content": "a"}


def test_a_replay_that_is_too_large_is_left_out() -> None:
    detail = {"type": "reasoning.encrypted", "data": "x" * 1024 * 1024}

    assert done(sse(chunk({"reasoning_details": [detail]}), END)).native_replay is None


def test_deepseek_is_sent_reasoning_with_each_turn_if_only_an_empty_one() -> None:
    bound = binding(
        endpoint="https://api.deepseek.com", capabilities=ModelCapabilities(reasoning=True)
    )

    assert messages(user("hi"), turn(call("x")), result("x"), bound=bound)[1] == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "",
        "tool_calls": [SENT],
    }
    plain = binding(endpoint="https://api.deepseek.com")
    assert "reasoning_content" not in messages(user("hi"), turn(call()), result(), bound=plain)[1]


# --- bytes ---------------------------------------------------------------------------------------

BLOCKS = st.one_of(
    st.text("ab \n", max_size=4).map(lambda text: TextBlock(text=text)),
    st.text("ab \n", max_size=4).map(lambda text: ThinkingBlock(text=text)),
)
NATIVES = st.sampled_from(
    [None, *({"family": "chat", "items": [{"thinking": f}]} for f in ("reasoning", "content"))]
)


@st.composite
def rounds(draw: st.DrawFn, number: int) -> list[Message]:
    """What one round adds to a history: a person, a turn, the results of its calls."""
    blocks = draw(st.lists(BLOCKS, max_size=3))
    ids = [f"{number}-{place}" for place in range(draw(st.integers(0, 2)))]
    blocks += [call(call_id) for call_id in ids]
    spoken = turn(*blocks, native=draw(NATIVES))
    files = draw(st.sampled_from([(), (PNG,), (MOV, PNG)]))
    return [user(f"u{number}"), spoken, *(result(each, "", *files) for each in ids)]


@given(st.data())
@settings(max_examples=60)
def test_a_growing_history_keeps_the_bytes_it_began_with(data: st.DataObject) -> None:
    history: list[Message] = []
    before = b""
    wire = Chat(binding())
    for number in range(4):
        history += data.draw(rounds(number))
        asked = request(*history, tools=("one",), system="s")
        body = wire.encode(asked, BYTES).body
        again = msgspec.structs.replace(asked, attempt=2, messages=tuple(history))
        assert Chat(binding()).encode(again, BYTES).body == body
        assert body.startswith(before)
        before = body.removesuffix(b"]}")


PARAMS: TypeAdapter[Any] = TypeAdapter(CompletionCreateParamsStreaming)


def seen(value: Any) -> Any:
    """A value that the SDK's types have checked, whose lists they check as they are read."""
    if isinstance(value, dict):
        return {key: seen(each) for key, each in value.items()}
    plain = value is None or isinstance(value, str | int | float)
    return value if plain else [seen(each) for each in value]


@given(st.data())
@settings(max_examples=60)
def test_a_request_is_one_that_the_vendors_sdk_has_types_for(data: st.DataObject) -> None:
    history = [
        message if isinstance(message, ToolMessage | UserMessage) else turn(*message.content)
        for number in range(2)
        for message in data.draw(rounds(number))
    ]
    cache = data.draw(st.sampled_from([None, {"system": True, "rolling": True, "ttl": "30m"}]))
    bound = openai_binding(
        cache=cache,
        generation=Generation(temperature=1.0, stop=("x",), tool_choice="named:one"),
        reasoning=ReasoningWish(effort="low"),
        capabilities=ModelCapabilities(parallel_tools=False),
    )
    last = UserMessage(content=(TextBlock(text="?"), PNG, PDF, WAV, MOV))

    body = said(request(*history, last, tools=("one",), system="s"), bound)

    assert seen(PARAMS.validate_python(body)) == body


def test_a_round_of_a_small_command_adds_few_bytes() -> None:
    def size(number: int) -> int:
        history: list[Message] = [user("hi")]
        for place in range(number):
            call_id = LONG[:-1] + "abc"[place]
            history.append(turn(call(call_id, '{"command":"true"}', "bash")))
            history.append(result(call_id, "(no output)"))
        return len(Chat(openai_binding()).encode(request(*history), {}).body)

    assert size(2) - size(1) <= 220


def test_a_first_request_is_small() -> None:
    tools = tool_specs(TOOLS, DEFAULT_RULES, ())
    asked = request(user("What does this project do?"), system=DEFAULT_PROMPT)
    asked = msgspec.structs.replace(asked, tools=tools, max_output_tokens=32_000)

    assert len(tools) == len(TOOLS)
    assert len(Chat(openai_binding()).encode(asked, {}).body) <= 6_000


@pytest.mark.parametrize("adaptor", ["openai-chat", "openai-compatible"])
def test_the_adaptors_of_this_wire_are_built_by_name(adaptor: str) -> None:
    assert ADAPTORS[adaptor] == "workers.providers.chat"
    assert make(binding(adaptor=adaptor), Outside()) is not None
