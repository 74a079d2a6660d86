"""Anthropic's answers: every kind of event, every way a stream breaks, and the SDK as oracle."""

import random
from collections.abc import Iterable
from typing import Any

import anthropic
import httpx2
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipc.content import TextBlock, ThinkingBlock, ToolCallBlock, Usage
from ipc.events import FrozenModelBinding
from ipc.ids import ModelKey, ProviderId
from tests.fakes import wire
from workers.providers.anthropic import Anthropic
from workers.providers.anthropic_answer import BODY_BYTES_MAX, NATIVE_BYTES_MAX
from workers.providers.base import (
    Assembler,
    Decoder,
    Done,
    Failed,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)

SSE = "text/event-stream; charset=utf-8"
JSON = "application/json"
WIRE = Anthropic(
    FrozenModelBinding(
        model=ModelKey("a/b"), provider_id=ProviderId("a"), adaptor="anthropic", wire_model="b"
    )
)


def event(kind: str, **fields: Any) -> bytes:
    """One event as the API writes it."""
    data = msgspec.json.encode({"type": kind, **fields})
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    """A whole block: its start, its deltas, its stop."""
    return b"".join(
        (
            event("content_block_start", index=index, content_block=start),
            *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
            event("content_block_stop", index=index),
        )
    )


def stream(*blocks: bytes, stop: str | None = "end_turn", usage: Any = None) -> bytes:
    """A whole message around these blocks."""
    counts = {"input_tokens": 10, "output_tokens": 1}
    return b"".join(
        (
            event("message_start", message={"id": "m1", "model": "b", "usage": counts}),
            event("ping"),
            *blocks,
            event("message_delta", delta={"stop_reason": stop}, usage=usage),
            event("message_stop"),
        )
    )


def text(value: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": value}


def thinking(value: str) -> dict[str, Any]:
    return {"type": "thinking_delta", "thinking": value}


def signature(value: str) -> dict[str, Any]:
    return {"type": "signature_delta", "signature": value}


def arguments(*values: str) -> list[dict[str, Any]]:
    return [{"type": "input_json_delta", "partial_json": value} for value in values]


def tool(id_: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": "bash", "input": {}, **more}


SAY = block(0, {"type": "text", "text": ""}, text("Hel"), text("lo"))


def parts_of(decoder: Decoder, chunks: Iterable[bytes]) -> list[Part]:
    """All that a body in these chunks comes to."""
    parts = [part for chunk in chunks for part in decoder.feed(chunk)]
    return [*parts, *decoder.end()]


def last(body: bytes, content_type: str = SSE) -> Part:
    return parts_of(WIRE.decoder(content_type), [body])[-1]


def done(body: bytes, content_type: str = SSE) -> Done:
    """The turn of a whole body, after a check that its parts are those of its content."""
    parts = parts_of(WIRE.decoder(content_type), [body])
    turn = parts[-1]
    assert isinstance(turn, Done), turn
    assembler = Assembler()
    for part in parts:
        assembler.add(part)
    assert assembler.content() == turn.content
    return turn


def failed(body: bytes, content_type: str = SSE) -> tuple[str, str, str]:
    part = last(body, content_type)
    assert isinstance(part, Failed)
    return part.error.kind, part.error.stage, part.error.message


def call(id_: str, arguments: str) -> ToolCallBlock:
    return ToolCallBlock(model_call_id=id_, name="bash", arguments=arguments)


# --- blocks ------------------------------------------------------------------------------------


def test_text_is_given_as_it_comes_and_a_turn_is_done_at_its_last_event() -> None:
    decoder = WIRE.decoder(SSE)
    given = [list(decoder.feed(one)) for one in wire.events(stream(SAY))]

    turn = Done(
        content=(TextBlock(text="Hello"),),
        finish_reason="stop",
        usage=Usage(input_tokens=10, output_tokens=1),
        provider_metadata={"stop_reason": "end_turn"},
        response_metadata={"id": "m1", "model": "b"},
    )
    assert given == [[], [], [], [TextPart("Hel")], [TextPart("lo")], [], [], [turn]]
    assert (list(decoder.feed(stream(SAY))), list(decoder.end())) == ([], [])


def test_neighbouring_text_of_one_read_is_one_part() -> None:
    thought = block(0, {"type": "thinking", "thinking": "", "signature": ""}, *map(thinking, "abc"))
    said = block(1, {"type": "text", "text": ""}, *map(text, "xyz"))

    parts = parts_of(WIRE.decoder(SSE), [stream(thought, said)])
    assert parts[:-1] == [ThinkingPart("abc"), TextPart("xyz")]


def test_progress_counts_content_and_no_pings() -> None:
    decoder = WIRE.decoder(SSE)
    counts = []
    body = stream(SAY, block(1, tool("t1"), *arguments('{"a"', ":1}")))
    for one in wire.events(body):
        decoder.feed(one)
        counts.append(decoder.progress)
    assert counts == [0, 0, 1, 2, 3, 3, 4, 5, 6, 6, 6, 6]


@pytest.mark.parametrize(
    ("blocks", "content"),
    [
        pytest.param(
            [block(0, {"type": "text", "text": "All "}, text("at once"))],
            (TextBlock(text="All at once"),),
            id="text in the start of a block",
        ),
        pytest.param(
            [
                block(
                    0,
                    {"type": "thinking", "thinking": "", "signature": ""},
                    thinking("Hm"),
                    thinking("m."),
                    signature("c2ln"),
                )
            ],
            (ThinkingBlock(text="Hmm.", signature="c2ln"),),
            id="signed thinking",
        ),
        pytest.param(
            [block(0, {"type": "thinking", "thinking": "", "signature": ""}, signature("c2ln"))],
            (ThinkingBlock(text="", signature="c2ln"),),
            id="hidden thinking",
        ),
        pytest.param(
            [block(0, {"type": "thinking", "thinking": "Hm", "signature": "c2ln"})],
            (ThinkingBlock(text="Hm", signature="c2ln"),),
            id="thinking whole in the start",
        ),
        pytest.param(
            [
                block(0, {"type": "thinking", "thinking": ""}, thinking("a"), signature("1")),
                block(1, {"type": "redacted_thinking", "data": "xyz"}),
                block(2, {"type": "thinking", "thinking": ""}, thinking("b"), signature("2")),
            ],
            (
                ThinkingBlock(text="a", signature="1"),
                ThinkingBlock(text="xyz", redacted=True),
                ThinkingBlock(text="b", signature="2"),
            ),
            id="redacted thinking between two others",
        ),
        pytest.param(
            [
                SAY,
                block(1, tool("t1"), *arguments("", '{"cmd": ', '"ls"}')),
                block(2, tool("t2", input={"cmd": "pwd"})),
                block(3, tool("t3"), *arguments("")),
                block(4, tool("t4", input=None)),
            ],
            (
                TextBlock(text="Hello"),
                call("t1", '{"cmd": "ls"}'),
                call("t2", '{"cmd":"pwd"}'),
                call("t3", "{}"),
                call("t4", "{}"),
            ),
            id="parallel calls, streamed, whole and empty",
        ),
        pytest.param(
            [block(0, tool("t1"), *arguments('{"cmd": "l'))],
            (call("t1", '{"cmd": "l'),),
            id="a call whose arguments broke off",
        ),
        pytest.param(
            [
                event("content_block_start", index=0, content_block=tool("t1")),
                event("content_block_start", index=1, content_block=tool("t2")),
                event("content_block_delta", index=1, delta=arguments('{"b":2}')[0]),
                event("content_block_stop", index=1),
                event("content_block_delta", index=0, delta=arguments('{"a":1}')[0]),
                event("content_block_stop", index=0),
            ],
            (call("t1", '{"a":1}'), call("t2", '{"b":2}')),
            id="calls that end in another order than they began",
        ),
        pytest.param(
            [event("content_block_start", index=0, content_block=tool("t1", input={"a": 1}))],
            (call("t1", '{"a":1}'),),
            id="a call that nobody closed",
        ),
        pytest.param(
            [
                event("content_block_start", index=0, content_block={"type": "thinking"}),
                event("content_block_delta", index=0, delta=thinking("Hm")),
                event("content_block_delta", index=0, delta=signature("c2ln")),
                block(0, {"type": "text", "text": ""}, text("So")),
            ],
            (ThinkingBlock(text="Hm", signature="c2ln"), TextBlock(text="So")),
            id="a block that began where another was open",
        ),
        pytest.param([], (), id="nothing"),
        pytest.param([block(0, {"type": "text", "text": ""})], (), id="an empty text"),
    ],
)
def test_a_block_becomes_content_and_says_nothing_more(
    blocks: list[bytes], content: tuple[Any, ...]
) -> None:
    turn = done(stream(*blocks))
    assert (turn.content, turn.native_replay) == (content, None)


SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "s1",
    "content": [
        {"type": "web_search_result", "url": "https://a.example", "encrypted_content": "x"}
    ],
}
CITED = {"type": "web_search_result_location", "url": "https://a.example", "encrypted_index": "y"}


@pytest.mark.parametrize(
    ("blocks", "content", "items"),
    [
        pytest.param(
            [
                block(0, SEARCH, *arguments("", '{"query": "', 'r"}')),
                block(1, FOUND),
                block(
                    2,
                    {"type": "text", "text": "", "citations": []},
                    text("So"),
                    {"type": "citations_delta", "citation": CITED},
                    text(" it is"),
                ),
                block(3, {"type": "text", "text": "", "citations": None}, text(".")),
            ],
            (TextBlock(text="So it is."),),
            [
                SEARCH | {"input": {"query": "r"}},
                FOUND,
                {"type": "text", "text": "So it is", "citations": [CITED]},
                {"type": "text", "text": "."},
            ],
            id="a search with citations",
        ),
        pytest.param(
            [
                block(
                    0,
                    {"type": "mcp_tool_use", "id": "m1", "server_name": "s", "input": {}},
                    *arguments('{"a":1}'),
                ),
                block(1, {"type": "mcp_tool_result", "tool_use_id": "m1", "content": []}),
                SAY,
            ],
            (TextBlock(text="Hello"),),
            [
                {"type": "mcp_tool_use", "id": "m1", "server_name": "s", "input": {"a": 1}},
                {"type": "mcp_tool_result", "tool_use_id": "m1", "content": []},
                {"type": "text", "text": "Hello"},
            ],
            id="tools of the provider's own MCP client",
        ),
        pytest.param(
            [
                block(
                    0,
                    {"type": "compaction", "content": None},
                    {"type": "compaction_delta", "content": "Sum.", "encrypted_content": "e"},
                ),
                block(1, {"type": "text", "text": ""}, text("Hi")),
            ],
            (TextBlock(text="Hi"),),
            [
                {"type": "compaction", "content": "Sum.", "encrypted_content": "e"},
                {"type": "text", "text": "Hi"},
            ],
            id="a compaction",
        ),
        pytest.param(
            [block(0, {"type": "hologram", "shape": [1, 2]}), SAY],
            (TextBlock(text="Hello"),),
            [{"type": "hologram", "shape": [1, 2]}, {"type": "text", "text": "Hello"}],
            id="a block nobody knows",
        ),
        pytest.param(
            [
                block(
                    0,
                    {"type": "thinking", "thinking": "", "signature": "", "kept": 1},
                    thinking("Hm"),
                    signature("c2ln"),
                ),
                block(1, {"type": "thinking", "thinking": ""}, thinking("unsigned")),
                block(2, {"type": "redacted_thinking", "data": "xyz"}),
                block(3, {"type": "text", "text": ""}, text("\n\n")),
                block(4, tool("t1", caller={"type": "direct"}), *arguments('{"a": 1.0}')),
                block(5, tool("t2", caller={"type": "code_execution_20260120", "tool_id": "s1"})),
            ],
            (
                ThinkingBlock(text="Hm", signature="c2ln"),
                ThinkingBlock(text="unsigned"),
                ThinkingBlock(text="xyz", redacted=True),
                TextBlock(text="\n\n"),
                call("t1", '{"a": 1.0}'),
                call("t2", "{}"),
            ),
            [
                {"type": "thinking", "thinking": "Hm", "signature": "c2ln", "kept": 1},
                {"type": "redacted_thinking", "data": "xyz"},
                tool("t1", input={"a": 1.0}),
                tool("t2", caller={"type": "code_execution_20260120", "tool_id": "s1"}),
            ],
            id="neither unsigned thinking nor blank text",
        ),
    ],
)
def test_what_the_content_cannot_say_is_kept_for_replay(
    blocks: list[bytes], content: tuple[Any, ...], items: list[Any]
) -> None:
    turn = done(stream(*blocks))
    assert (turn.content, turn.native_replay) == (content, {"family": "anthropic", "items": items})


@pytest.mark.parametrize(
    "blocks",
    [
        [block(0, SEARCH, *arguments('{"query": ')), block(1, FOUND)],
        [block(0, FOUND), block(1, tool("t1"), *arguments("{"))],
        [block(0, {"type": "hologram"}, {"type": "hologram_delta", "light": 1})],
        [block(0, FOUND | {"content": "x" * NATIVE_BYTES_MAX})],
    ],
    ids=["broken input", "broken arguments", "a delta nobody knows", "too much"],
)
def test_what_could_not_be_sent_back_whole_is_not_kept(blocks: list[bytes]) -> None:
    assert done(stream(*blocks)).native_replay is None


def test_the_model_that_a_fallback_went_to_is_the_one_that_answered() -> None:
    hop = {"type": "fallback", "from": {"model": "b"}, "to": {"model": "c"}}
    turn = done(stream(block(0, hop), block(1, {"type": "text", "text": "ok"})))

    assert turn.response_metadata == {"id": "m1", "model": "c"}
    assert turn.native_replay is not None
    assert turn.native_replay["items"][0] == hop


# --- how it ends -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "alone", "with_a_call"),
    [
        ("end_turn", "stop", "tool_calls"),
        ("stop_sequence", "stop", "tool_calls"),
        ("tool_use", "tool_calls", "tool_calls"),
        ("max_tokens", "length", "length"),
        ("model_context_window_exceeded", "length", "length"),
        ("refusal", "refused", "refused"),
        ("pause_turn", "other", "other"),
        ("compaction", "other", "other"),
        ("a_later_word", "unknown", "unknown"),
    ],
)
def test_why_a_model_stopped_is_said_in_our_words_and_kept_in_its_own(
    word: str, alone: str, with_a_call: str
) -> None:
    turns = [done(stream(SAY, stop=word)), done(stream(SAY, block(1, tool("t")), stop=word))]

    assert [turn.finish_reason for turn in turns] == [alone, with_a_call]
    assert [turn.provider_metadata for turn in turns] == [{"stop_reason": word}] * 2


def test_what_else_is_said_about_the_end_is_kept_but_for_tokens() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": None, "credit_token": "tok"}
    told = {"stop_reason": "refusal", "stop_sequence": "END", "stop_details": details}
    body = event("message_delta", delta=told) + event("message_stop")

    assert done(body).provider_metadata == {
        "stop_reason": "refusal",
        "stop_sequence": "END",
        "stop_details": {"type": "refusal", "category": "bio"},
    }


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (None, Usage(input_tokens=10, output_tokens=1)),
        ({"output_tokens": 7}, Usage(input_tokens=10, output_tokens=7)),
        (
            {
                "input_tokens": 4,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 20,
                "output_tokens": 7,
                "output_tokens_details": {"thinking_tokens": 5},
            },
            Usage(
                input_tokens=124,
                output_tokens=7,
                reasoning_tokens=5,
                cache_read_tokens=100,
                cache_write_tokens=20,
            ),
        ),
        (
            {"output_tokens": -1, "input_tokens": "many", "output_tokens_details": 5},
            Usage(input_tokens=10, output_tokens=1),
        ),
        ([], Usage(input_tokens=10, output_tokens=1)),
    ],
)
def test_usage_is_the_last_total_and_its_input_is_the_whole_input(told: Any, usage: Usage) -> None:
    assert done(stream(SAY, usage=told)).usage == usage


def test_counts_of_the_start_hold_until_they_are_told_again() -> None:
    counts = {"input_tokens": 3, "cache_read_input_tokens": 9, "cache_creation_input_tokens": 1}
    start = event("message_start", message={"usage": counts | {"output_tokens": 1}})
    more = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2})
    later = event("message_delta", delta={"stop_reason": None}, usage={"output_tokens": 5})

    turn = done(start + more + later + event("message_stop"))
    assert turn.finish_reason == "stop"
    assert turn.usage == Usage(
        input_tokens=13, output_tokens=5, cache_read_tokens=9, cache_write_tokens=1
    )


def test_a_turn_without_a_reason_to_stop_is_none() -> None:
    assert failed(stream(SAY, stop=None)) == (
        "unexpected_eof",
        "stream_finalize",
        "the message ended without a reason to stop",
    )


def test_a_stream_cut_after_any_event_or_in_it_is_no_turn() -> None:
    body = stream(SAY, block(1, tool("t1"), *arguments('{"a":1}')))
    whole = body.removesuffix(b"\n\n")
    for cut in range(len(whole)):
        part = last(body[:cut])
        assert isinstance(part, Failed)
        assert (part.error.kind, part.error.stage) == ("unexpected_eof", "stream_finalize")
        assert (part.error.retryable, part.error.bytes_received) == (True, cut)
    assert done(whole) == done(body)


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "overload", True),
        ({"type": "rate_limit_error", "message": "Slow down"}, "rate_limited", True),
        ({"type": "api_error", "message": "Internal server error"}, "provider", True),
        ({"type": "authentication_error", "message": "invalid x-api-key"}, "auth", False),
        (
            {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8"},
            "context_length",
            False,
        ),
        ({"type": "invalid_request_error", "message": "no"}, "invalid_request", False),
        ({"type": "a_later_error", "message": "no"}, "provider", True),
    ],
)
def test_an_error_in_a_stream_is_a_failure_of_its_own_kind(
    error: dict[str, str], kind: str, retryable: bool
) -> None:
    told = event("error", error=error, request_id="req_1")
    begun = stream(SAY).partition(b"event: message_delta")[0]
    for body in (begun + told + event("message_stop"), begun + told.strip()):
        parts = parts_of(WIRE.decoder(SSE), [body])
        assert parts[0] == TextPart("Hello")
        assert isinstance(parts[-1], Failed)
        failure = parts[-1].error
        assert (failure.kind, failure.retryable, failure.stage) == (
            kind,
            retryable,
            "stream_decode",
        )
        assert (failure.vendor_code, failure.request_id) == (error["type"], "req_1")
        assert error["message"] in failure.message


@pytest.mark.parametrize("data", [b"upstream is gone", b'{"error": "gone"}', b"[]", b"\xff"])
def test_an_error_in_any_shape_is_a_failure(data: bytes) -> None:
    assert failed(b"event: error\ndata: " + data + b"\n\n")[0] == "provider"


@pytest.mark.parametrize(
    "body",
    [
        b'event: content_block_delta\ndata: {"index":0,"delta":{"type":"text_delta","te\n\n',
        b'event: content_block_delta\ndata: {"index":0,"delta":{"type":"text_delta","text":3}}\n\n',
        b'event: content_block_delta\ndata: {"index":0}\n\n',
        b"event: content_block_start\ndata: {}\n\n",
        b"event: message_delta\ndata: \xff\xfe\n\n",
        b'event: message_start\ndata: {"a": "\\u12"}\n\n',
        b"data: no JSON at all\n\n",
    ],
)
def test_an_event_that_cannot_be_read_is_a_failure(body: bytes) -> None:
    assert failed(body + stream(SAY))[:2] == ("invalid_response", "stream_decode")


def test_what_nobody_knows_yet_changes_nothing() -> None:
    strange = [
        b"event: later\ndata: not even JSON\n\n",
        event("later_still", content=[1]),
        b": a comment\n\n",
        event("content_block_delta", index=0, delta={"type": "later_delta", "text": {"a": 1}}),
        event("content_block_delta", index=0, delta={"type": "later_delta"}),
        event("content_block_delta", index=9, delta=text("of no block")),
        event("content_block_stop", index=9),
        event("content_block_delta", index=0, delta=thinking("in a text")),
    ]
    plain = wire.events(stream(SAY))
    for at in range(3, 6):
        body = b"".join((*plain[:at], *strange, *plain[at:]))
        assert done(body) == done(stream(SAY))


def test_events_without_names_are_known_by_their_type() -> None:
    body = stream(SAY, block(1, tool("t1"), *arguments('{"a":1}')))
    nameless = b"\n".join(line for line in body.split(b"\n") if not line.startswith(b"event:"))

    assert done(nameless) == done(body)


def test_half_a_surrogate_pair_becomes_the_sign_for_what_cannot_be_read() -> None:
    halves = block(0, {"type": "text", "text": ""}, text("HALF"), text("é😀"))
    body = stream(halves).replace(b"HALF", rb"a\ud83d")

    assert done(body).content == (TextBlock(text="a�é😀"),)


# --- one object --------------------------------------------------------------------------------

MESSAGE = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "b",
    "content": [
        {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
        {"type": "text", "text": "Hello", "citations": None},
        tool("t1", input={"a": 1}),
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "output_tokens": 1},
}


def test_an_answer_in_one_object_is_the_same_turn() -> None:
    body = msgspec.json.encode(MESSAGE)
    streamed = stream(
        block(0, {"type": "thinking", "thinking": ""}, thinking("Hm"), signature("c2ln")),
        block(1, {"type": "text", "text": ""}, text("Hello")),
        block(2, tool("t1"), *arguments('{"a":1}')),
        stop="tool_use",
    )

    assert done(body, JSON) == done(streamed)
    decoder = WIRE.decoder("application/json;charset=utf-8")
    assert (list(decoder.feed(body[:9])), list(decoder.feed(body[9:]))) == ([], [])
    assert list(decoder.end()) == [
        ThinkingPart("Hm"),
        ThinkingPart("", "c2ln"),
        TextPart("Hello"),
        ToolCallPart(model_call_id="t1", name="bash", arguments='{"a":1}'),
        done(streamed),
    ]
    assert (list(decoder.feed(body)), list(decoder.end()), decoder.progress) == ([], [], 3)


def test_an_object_that_is_cut_is_no_turn() -> None:
    body = msgspec.json.encode(MESSAGE)
    kinds = {failed(body[:cut], JSON)[0] for cut in range(len(body))}
    assert kinds == {"unexpected_eof"}


def test_an_object_that_is_no_message_is_a_failure() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    bodies = [msgspec.json.encode(error), b'{"error":"gone"}', b"<html></html>", b"[1]", b"{}"]

    assert [failed(body, JSON)[0] for body in bodies] == [
        "overload",
        "provider",
        "invalid_response",
        "invalid_response",
        "unexpected_eof",
    ]


def test_an_object_without_an_end_is_given_up() -> None:
    decoder = WIRE.decoder(JSON)
    part = list(decoder.feed(b" " * (BODY_BYTES_MAX + 1)))[-1]

    assert isinstance(part, Failed)
    assert (part.error.kind, list(decoder.end())) == ("invalid_response", [])


# --- recorded traffic --------------------------------------------------------------------------


def sdk_message(case: wire.Case, body: bytes) -> Any:
    """What the vendor's SDK makes of a body."""

    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": case.content_type}, content=body)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    with anthropic.Anthropic(api_key="none", http_client=http, max_retries=0) as client:
        asked: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
        if case.format == "json":
            return client.beta.messages.create(**asked)
        with client.beta.messages.stream(**asked) as streamed:
            return streamed.get_final_message()


def told(turn: Done) -> dict[str, Any]:
    """A turn in the shape that an SDK's message can be brought into."""
    blocks = turn.content
    return {
        "text": "".join(one.text for one in blocks if isinstance(one, TextBlock)),
        "thinking": [(one.text, one.signature) for one in blocks if isinstance(one, ThinkingBlock)],
        "calls": [
            (one.model_call_id, one.name, msgspec.json.decode(one.arguments))
            for one in blocks
            if isinstance(one, ToolCallBlock)
        ],
        "stop": turn.provider_metadata["stop_reason"],
        "origin": turn.response_metadata,
        "usage": turn.usage,
    }


def sdk_told(message: Any) -> dict[str, Any]:
    blocks = message.content
    usage = message.usage
    read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    details = usage.output_tokens_details
    return {
        "text": "".join(one.text for one in blocks if one.type == "text"),
        "thinking": [(one.thinking, one.signature) for one in blocks if one.type == "thinking"],
        "calls": [(one.id, one.name, one.input) for one in blocks if one.type == "tool_use"],
        "stop": message.stop_reason,
        "origin": {"id": message.id, "model": message.model},
        "usage": Usage(
            input_tokens=usage.input_tokens + (read or 0) + (written or 0),
            output_tokens=usage.output_tokens,
            reasoning_tokens=details and details.thinking_tokens,
            cache_read_tokens=read,
            cache_write_tokens=written,
        ),
    }


def sdk_blocks(message: Any) -> list[dict[str, Any]]:
    """The blocks of an SDK's message as they would be sent back."""
    blocks = [one.to_dict() for one in message.content]
    for one in blocks:
        if one["type"] == "tool_use" and one.get("caller") == {"type": "direct"}:
            del one["caller"]
        if not one.get("citations", True):
            del one["citations"]
    return [one for one in blocks if one.get("text", "x").strip()]


RECORDED = wire.params("anthropic-messages", ok=True)
STREAMED = wire.params("anthropic-messages", ok=True, format="sse")


@pytest.mark.parametrize("case", RECORDED)
def test_a_recorded_answer_is_what_the_sdk_makes_of_it(case: wire.Case) -> None:
    message = sdk_message(case, case.body)
    turn = done(case.body, case.content_type)

    assert told(turn) == sdk_told(message)
    if turn.native_replay is not None:
        assert turn.native_replay["items"] == sdk_blocks(message)


@pytest.mark.parametrize("case", RECORDED)
def test_a_recorded_answer_is_the_same_however_it_was_split(case: wire.Case) -> None:
    whole = done(case.body, case.content_type)
    for chunks in wire.splits(case.body):
        assert parts_of(WIRE.decoder(case.content_type), chunks)[-1] == whole


@pytest.mark.parametrize("case", STREAMED)
def test_a_recorded_stream_cut_after_any_event_is_no_turn(case: wire.Case) -> None:
    for body in wire.cuts(case.body):
        assert failed(body)[:2] == ("unexpected_eof", "stream_finalize")


def without_news(value: Any) -> Any:
    """A value without what `wire.mutated` puts in."""
    if isinstance(value, list):
        return [without_news(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {key: one for key, one in value.items() if key not in {wire.NEW, *wire.PASSIVE}}
    return {key: without_news(one) for key, one in kept.items()}


@pytest.mark.parametrize("case", STREAMED)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_unknown_words_in_a_recorded_stream_change_nothing(case: wire.Case, seed: int) -> None:
    chance = random.Random(seed)  # drawing each choice by itself is too much for a long body
    plain = done(case.body)
    body = wire.mutated(case.body, chance)
    parts = parts_of(WIRE.decoder(SSE), wire.pieces(body, chance, 500))
    turn = parts[-1]

    assert isinstance(turn, Done)
    assert told(turn) == told(plain)
    assert turn.finish_reason == plain.finish_reason
    if plain.native_replay is not None:
        assert without_news(turn.native_replay) == without_news(plain.native_replay)


@pytest.mark.parametrize("case", RECORDED)
def test_the_calls_kept_for_replay_are_those_of_the_content(case: wire.Case) -> None:
    turn = done(case.body, case.content_type)
    items = (turn.native_replay or {"items": []})["items"]
    kept = [one["id"] for one in items if one["type"] == "tool_use"]
    calls = [one.model_call_id for one in turn.content if isinstance(one, ToolCallBlock)]
    assert kept in ([], calls)
