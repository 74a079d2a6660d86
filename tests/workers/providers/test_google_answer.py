"""Gemini's answers: every kind of part, every way a body is framed or breaks, the SDK as oracle."""

import json
import random
from collections.abc import Iterable
from typing import Any

import httpx2
import msgspec
import pytest
from google import genai
from google.genai import types
from google.genai.errors import APIError
from hypothesis import given
from hypothesis import strategies as st

from ipc.content import TextBlock, ThinkingBlock, ToolCallBlock, Usage
from ipc.events import FrozenModelBinding
from ipc.ids import ModelKey, ProviderId, SessionId
from tests.fakes import wire
from workers.providers.base import (
    Assembler,
    AssistantMessage,
    Done,
    Failed,
    Part,
    Request,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from workers.providers.google import Google
from workers.providers.google_answer import NATIVE_BYTES_MAX, TAIL_BYTES_MAX, Answer, Values
from workers.providers.sse import TooLong

SSE = "text/event-stream"
WIRE = Google(
    FrozenModelBinding(
        model=ModelKey("g/g"),
        provider_id=ProviderId("g"),
        adaptor="google-gemini",
        wire_model="gemini-3-pro-preview",
    )
)
ID = "rACzaZ-p8eE"


def chunk(*parts: dict[str, Any], finish: str | int | None = None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "gemini-x", "responseId": ID} | fields


def sse(*chunks: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\r\n\r\n" for each in chunks)


def parts_of(pieces: Iterable[bytes], content_type: str = SSE) -> list[Part]:
    decoder = WIRE.decoder(content_type)
    parts = [part for piece in pieces for part in decoder.feed(piece)]
    return parts + list(decoder.end())


def last(body: bytes, content_type: str = SSE) -> Part:
    return parts_of([body], content_type)[-1]


def done(body: bytes, content_type: str = SSE) -> Done:
    part = last(body, content_type)
    assert isinstance(part, Done), part
    return part


def failed(body: bytes) -> Failed:
    part = last(body)
    assert isinstance(part, Failed), part
    return part


def call(name: str, args: Any = None, **more: Any) -> dict[str, Any]:
    inner = {"name": name} | ({} if args is None else {"args": args})
    if "id" in more:
        inner["id"] = more.pop("id")
    return {"functionCall": inner} | more


# --- content -----------------------------------------------------------------------------------


def test_text_thinking_and_a_call_become_a_turn() -> None:
    body = sse(
        chunk({"text": "Hm", "thought": True}),
        chunk({"text": "m.", "thought": True}),
        chunk({"text": "Hel"}),
        chunk({"text": "lo"}),
        chunk(call("read", {"path": "a"}), finish="STOP"),
    )

    assert parts_of([body]) == [
        ThinkingPart("Hmm."),
        TextPart("Hello"),
        ToolCallPart(model_call_id=f"call_{ID}_0", name="read", arguments='{"path":"a"}'),
        Done(
            content=(
                ThinkingBlock(text="Hmm."),
                TextBlock(text="Hello"),
                ToolCallBlock(model_call_id=f"call_{ID}_0", name="read", arguments='{"path":"a"}'),
            ),
            finish_reason="tool_calls",
            usage=Usage(),
            provider_metadata={"stop_reason": "STOP"},
            response_metadata={"id": ID, "model": "gemini-x"},
        ),
    ]


def test_text_is_given_as_it_comes() -> None:
    decoder = Answer()
    one, two = sse(chunk({"text": "a"})), sse(chunk({"text": "b"}))

    assert (decoder.feed(one), decoder.feed(two)) == ([TextPart("a")], [TextPart("b")])


def test_progress_counts_parts_and_no_bare_counts() -> None:
    decoder = Answer()
    decoder.feed(sse({"usageMetadata": {"promptTokenCount": 1}}, chunk()))
    before = decoder.progress
    decoder.feed(sse(chunk({"text": "a"}, {"text": "b", "thought": True}), chunk(call("f"))))

    assert (before, decoder.progress) == (0, 3)


def test_calls_keep_the_ids_the_model_gave_them() -> None:
    turn = done(sse(chunk(call("f", {}, id="x1"), call("g", {}, id="x2"), finish="STOP")))

    assert [block.model_call_id for block in turn.content if isinstance(block, ToolCallBlock)] == [
        "x1",
        "x2",
    ]


def test_calls_without_ids_get_one_of_their_place() -> None:
    body = sse(chunk(call("f")), chunk(call("f")), chunk(finish="STOP"))

    blocks = done(body).content

    assert blocks == (
        ToolCallBlock(model_call_id=f"call_{ID}_0", name="f", arguments="{}"),
        ToolCallBlock(model_call_id=f"call_{ID}_1", name="f", arguments="{}"),
    )
    assert blocks == done(body).content


def test_a_response_without_an_id_still_names_its_calls_apart() -> None:
    def ids(prompt: int) -> list[str]:
        counts = {"promptTokenCount": prompt}
        bare = chunk(call("f"), call("f"), finish="STOP", usageMetadata=counts, responseId=None)
        return [block.model_call_id for block in done(sse(bare)).content]  # type: ignore[union-attr]

    assert len({*ids(10), *ids(20)}) == 4
    assert ids(10) == ids(10)


def test_odd_letters_of_a_response_id_stay_out_of_the_ids_of_calls() -> None:
    body = sse(chunk(call("f"), finish="STOP", responseId="a/b=c"))

    (block,) = done(body).content

    assert isinstance(block, ToolCallBlock)
    assert block.model_call_id == "call_a_b_c_0"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (None, "{}"),
        ({}, "{}"),
        ({"a": 1.5, "b": [1, "ü\n"], "c": None}, '{"a":1.5,"b":[1,"ü\\n"],"c":null}'),
        ("broken", '"broken"'),
    ],
)
def test_arguments_are_given_as_json(args: Any, said: str) -> None:
    (block,) = done(sse(chunk(call("f", args), finish="STOP"))).content

    assert block == ToolCallBlock(model_call_id=f"call_{ID}_0", name="f", arguments=said)


def test_a_call_in_pieces_is_none() -> None:
    body = sse(chunk({"functionCall": {"name": "f", "willContinue": True}}), chunk(finish="STOP"))

    error = failed(body).error

    assert (error.kind, error.retryable) == ("invalid_response", False)


def test_a_signature_belongs_to_the_thought_it_came_with() -> None:
    body = sse(
        chunk({"text": "Hm.", "thought": True, "thoughtSignature": "AAA="}),
        chunk({"text": "Yes", "thoughtSignature": "BBB="}, finish="STOP"),
    )

    turn = done(body)

    assert turn.content == (
        ThinkingBlock(text="Hm.", signature="AAA="),
        TextBlock(text="Yes"),
    )
    assert turn.native_replay == {
        "family": "google",
        "items": [
            {"text": "Hm.", "thought": True, "thoughtSignature": "AAA="},
            {"text": "Yes", "thoughtSignature": "BBB="},
        ],
    }


def test_a_signature_on_empty_text_is_kept_and_says_nothing() -> None:
    body = sse(
        chunk({"text": "Yes"}), chunk({"text": "", "thoughtSignature": "BBBB"}, finish="STOP")
    )

    turn = done(body)

    assert turn.content == (TextBlock(text="Yes"),)
    assert turn.native_replay is not None
    assert turn.native_replay["items"] == [
        {"text": "Yes"},
        {"text": "", "thoughtSignature": "BBBB"},
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "s1"}},
        {"zzz_new": {"a": [1, None]}},
        {"functionCall": {"args": {}}},
    ],
)
def test_a_part_we_have_no_words_for_is_kept_for_replay(part: dict[str, Any]) -> None:
    body = sse(chunk({"text": "a"}, part, {"text": "b"}, finish="STOP"))

    turn = done(body)

    assert turn.content == (TextBlock(text="ab"),)
    assert turn.native_replay == {
        "family": "google",
        "items": [{"text": "a"}, part, {"text": "b"}],
    }


def test_what_plain_words_say_as_well_is_not_kept_twice() -> None:
    body = sse(
        chunk({"text": "a"}, {"text": "thinks", "thought": True}, {"text": "b"}),
        chunk({"text": " "}, call("f", {"x": 1.0}), finish="STOP"),
    )

    assert done(body).native_replay is None


def test_blank_text_and_unsigned_thoughts_do_not_go_back() -> None:
    body = sse(
        chunk({"text": "\n"}, {"text": "Hm", "thought": True}),
        chunk({"text": " ", "zzz_new": 1}, {"text": "Hm", "thought": True, "zzz_new": 1}),
        chunk(call("f", {}, thoughtSignature="SSSS"), finish="STOP"),
    )

    native = done(body).native_replay

    assert native is not None
    assert native["items"] == [call("f", {}, thoughtSignature="SSSS")]


def test_a_native_form_that_is_too_large_is_left_out() -> None:
    data = "A" * NATIVE_BYTES_MAX
    body = sse(chunk({"inlineData": {"mimeType": "image/png", "data": data}}, finish="STOP"))

    assert done(body).native_replay is None


def test_a_candidate_nobody_asked_for_is_passed_over() -> None:
    second = {"content": {"parts": [{"text": "no"}]}, "finishReason": "SAFETY", "index": 1}
    told = chunk({"text": "yes"}, finish="STOP")
    told["candidates"].insert(0, second)

    turn = done(sse(told))

    assert (turn.content, turn.finish_reason) == ((TextBlock(text="yes"),), "stop")


# --- how it ends -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("STOP", "stop"),
        (1, "stop"),
        ("MAX_TOKENS", "length"),
        (2, "length"),
        ("SAFETY", "content_filter"),
        (3, "content_filter"),
        ("RECITATION", "content_filter"),
        ("LANGUAGE", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
        ("MODEL_ARMOR", "content_filter"),
        ("OTHER", "other"),
        (5, "other"),
        ("ZZZ_NEW", "unknown"),
        (77, "unknown"),
    ],
)
def test_a_finish_reason_has_our_word_and_keeps_its_own(word: str | int, reason: str) -> None:
    turn = done(sse(chunk({"text": "a"}, finish=word)))
    names: dict[str | int, str] = {1: "STOP", 2: "MAX_TOKENS", 3: "SAFETY", 5: "OTHER"}

    assert turn.finish_reason == reason
    assert turn.provider_metadata == {"stop_reason": names.get(word, str(word))}


def test_a_turn_that_was_cut_off_keeps_its_reason_although_it_calls() -> None:
    assert done(sse(chunk(call("f"), finish="MAX_TOKENS"))).finish_reason == "length"


def test_what_google_says_about_an_end_is_kept() -> None:
    told = chunk({"text": "a"}, finish="SAFETY")
    told["candidates"][0]["finishMessage"] = "Because."

    assert done(sse(told)).provider_metadata == {"stop_reason": "SAFETY", "message": "Because."}


@pytest.mark.parametrize("word", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
def test_a_call_its_own_server_could_not_read_may_be_tried_again(word: str) -> None:
    told = chunk(finish=word)
    told["candidates"][0]["finishMessage"] = "Malformed function call: print(x"
    decoder = Answer()

    (part,) = decoder.feed(sse(told))

    assert isinstance(part, Failed)
    assert (part.error.kind, part.error.retryable) == ("invalid_tool_input", True)
    assert part.error.vendor_code == word
    assert "Malformed function call: print(x" in part.error.message
    assert (decoder.feed(sse(chunk({"text": "a"}, finish="STOP"))), decoder.end()) == ([], [])


@pytest.mark.parametrize(
    ("word", "kind", "again"),
    [
        ("MALFORMED_RESPONSE", "invalid_response", True),
        ("MISSING_THOUGHT_SIGNATURE", "replay", False),
        ("PUP_LIMITED_DISABLED", "permission_denied", False),
    ],
)
def test_an_end_that_is_none_is_a_failure(word: str, kind: str, again: bool) -> None:
    error = failed(sse(chunk({"text": "a"}, finish=word))).error

    assert (error.kind, error.retryable, error.stage) == (kind, again, "stream_decode")


def test_what_follows_the_finish_reason_still_counts() -> None:
    body = sse(
        chunk({"text": "a"}, finish="STOP"),
        chunk({"text": "", "thoughtSignature": "SSSS"}),
        {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1}},
    )

    turn = done(body)

    assert turn.usage == Usage(input_tokens=3, output_tokens=1)
    assert turn.native_replay is not None


def test_a_blocked_prompt_is_refused_in_words() -> None:
    body = sse(
        {
            "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
            "usageMetadata": {"promptTokenCount": 9},
            "responseId": ID,
        }
    )

    assert parts_of([body]) == [
        Done(
            content=(),
            finish_reason="refused",
            usage=Usage(input_tokens=9),
            provider_metadata={
                "stop_reason": "PROHIBITED_CONTENT",
                "message": "the provider blocked the prompt (PROHIBITED_CONTENT): "
                "say it differently",
            },
            response_metadata={"id": ID},
        )
    ]


def test_feedback_without_a_reason_blocks_nothing() -> None:
    feedback = {"promptFeedback": {"safetyRatings": [], "blockReason": ""}}

    assert done(sse(chunk({"text": "a"}, finish="STOP") | feedback)).finish_reason == "stop"
    assert failed(sse(feedback)).error.kind == "unexpected_eof"


# --- usage -------------------------------------------------------------------------------------


def test_usage_counts_the_whole_input_and_the_thoughts() -> None:
    counts = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 10,
        "thoughtsTokenCount": 5,
        "toolUsePromptTokenCount": 7,
        "totalTokenCount": 122,
    }

    assert done(sse(chunk(finish="STOP", usageMetadata=counts))).usage == Usage(
        input_tokens=107, output_tokens=15, reasoning_tokens=5, cache_read_tokens=60
    )


def test_later_counts_replace_earlier_ones_each_by_itself() -> None:
    body = sse(
        chunk(usageMetadata={"promptTokenCount": 10, "thoughtsTokenCount": 4}),
        chunk(usageMetadata={"promptTokenCount": 11, "candidatesTokenCount": 2}, finish="STOP"),
        {"usageMetadata": {"cachedContentTokenCount": 1, "toolUsePromptTokenCount": 3}},
        {"usageMetadata": {"totalTokenCount": 20}},
    )

    assert done(body).usage == Usage(
        input_tokens=14, output_tokens=6, reasoning_tokens=4, cache_read_tokens=1
    )


@pytest.mark.parametrize("odd", [-1, "12", 1.5, 2**64, [], None])
def test_what_is_no_count_is_not_reported(odd: Any) -> None:
    body = sse(chunk(finish="STOP", usageMetadata={"promptTokenCount": odd}))

    assert done(body).usage == Usage()


# --- errors inside a response ------------------------------------------------------------------

EXHAUSTED = {
    "error": {
        "code": 429,
        "message": "Resource has been exhausted (e.g. check quota).",
        "status": "RESOURCE_EXHAUSTED",
        "details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "17.5s"}],
    }
}


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(sse(EXHAUSTED), id="an event"),
        pytest.param(sse([EXHAUSTED]), id="an event with a list"),
        pytest.param(json.dumps(EXHAUSTED, indent=2).encode(), id="bare lines"),
        pytest.param(b"\r\n[" + json.dumps(EXHAUSTED, indent=2).encode() + b"]", id="a bare list"),
        pytest.param(json.dumps(EXHAUSTED).encode() + b"\n\n" + sse({}), id="one bare line"),
    ],
)
@pytest.mark.parametrize("finish", [None, "STOP"])
def test_an_error_inside_a_stream_is_one(tail: bytes, finish: str | None) -> None:
    body = sse(chunk({"text": "a"}), chunk({"text": "b"}, finish=finish)) + tail

    for pieces in ([body], *wire.splits(body)):
        parts = parts_of(pieces)
        assert "".join(part.text for part in parts if isinstance(part, TextPart)) == "ab"
        end = parts[-1]
        assert isinstance(end, Failed)
        assert (end.error.kind, end.error.retryable) == ("rate_limited", True)
        assert (end.error.http_status, end.error.vendor_code) == (429, "RESOURCE_EXHAUSTED")
        assert end.error.retry_after_ms == 17_500


def test_a_body_that_is_nothing_but_an_error_is_one() -> None:
    error = {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
    whole = json.dumps([{"error": error}], indent=2).encode()

    for pieces in wire.splits(whole):
        (end,) = parts_of(pieces)
        assert isinstance(end, Failed)
        assert (end.error.kind, end.error.http_status) == ("overload", 503)


def test_an_error_of_an_unknown_shape_is_told_too() -> None:
    error = failed(sse({"error": "no luck"})).error

    assert error.kind == "provider"
    assert "no luck" in error.message


def test_a_bare_error_is_found_only_at_the_end_of_a_long_body() -> None:
    long = sse(chunk({"text": "x" * TAIL_BYTES_MAX}))
    bare = b"\n" + json.dumps(EXHAUSTED).encode() + b"\n"

    assert failed(long + bare).error.kind == "rate_limited"
    assert failed(bare + long).error.kind == "rate_limited"  # it began with it


def test_text_that_looks_like_an_error_is_text() -> None:
    text = '\n{"error": {"code": 429, "message": "x"}}\n'

    assert done(sse(chunk({"text": text}, finish="STOP"))).content == (TextBlock(text=text),)


@pytest.mark.parametrize(
    "broken",
    [
        b"data: {\n\n",
        b"data: 7\n\n",
        b'data: {"candidates": 7}\n\n',
        b'data: {"candidates": [{"content": {"parts": ["text"]}}]}\n\n',
        b'data: {"candidates": [{"finishReason": {}}]}\n\n',
        b'data: {"candidates": [{"content": {"parts": [{"text": "\xff"}]}}]}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
    ],
)
def test_an_event_that_cannot_be_read_ends_the_turn(broken: bytes) -> None:
    decoder = Answer()

    *_, end = decoder.feed(sse(chunk({"text": "a"})) + broken)

    assert isinstance(end, Failed)
    assert end.error.kind == "invalid_response"
    assert decoder.feed(sse(chunk(finish="STOP"))) == []
    assert decoder.end() == []


# --- framings ----------------------------------------------------------------------------------

CHUNKS = (
    chunk({"text": 'Tschüß }{][ \\ " '}),
    chunk(call("f", {"a": '}"\\', "b": [{}]}), thoughtSignature="SSSS"),
    chunk({"text": "\\"}, finish="STOP", usageMetadata={"promptTokenCount": 3}),
)


@pytest.mark.parametrize("content_type", [SSE, "application/json", ""])
def test_an_array_of_chunks_is_the_same_turn_split_anywhere(content_type: str) -> None:
    array = b"[" + b"\n,\r\n".join(json.dumps(each, indent=2).encode() for each in CHUNKS) + b"\n]"
    whole = parts_of([sse(*CHUNKS)])
    decoder = Answer()

    assert parts_of([array], content_type) == whole
    for pieces in wire.splits(array):
        assert joined(parts_of(pieces, content_type)) == joined(whole)
    assert decoder.feed(array[: array.index(b",\r\n")]) == whole[:1]  # without waiting for the rest


def test_one_whole_object_is_a_turn() -> None:
    body = json.dumps(chunk({"text": "a"}, call("f"), finish="STOP"), indent=1).encode()

    assert parts_of([b"\n", body], "application/json; charset=UTF-8") == parts_of(
        [sse(chunk({"text": "a"}, call("f"), finish="STOP"))]
    )


@pytest.mark.parametrize("at", range(1, 40))
def test_a_json_body_cut_inside_an_object_is_no_turn(at: int) -> None:
    array = json.dumps([*CHUNKS, {"usageMetadata": {"promptTokenCount": 30}}]).encode()

    assert failed(array[: -at - 2]).error.kind == "unexpected_eof"


def test_an_object_without_end_is_given_up() -> None:
    values = Values(limit=100)
    values.feed(b'{"a": "')

    with pytest.raises(TooLong):
        values.feed(b"x" * 100)


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=12,
    ),
    chance=st.randoms(use_true_random=False),
    indent=st.none() | st.just(1),
    ascii_only=st.booleans(),
)
def test_objects_are_found_whatever_they_hold(
    value: Any,
    chance: random.Random,
    indent: int | None,
    ascii_only: bool,
) -> None:
    objects = [{"a": value}, {}, {"b": [value, {"c": value}]}]
    body = json.dumps(objects, indent=indent, ensure_ascii=ascii_only).encode(
        errors="surrogatepass"
    )
    values = Values()

    found = [each for piece in wire.pieces(body, chance, 7) for each in values.feed(piece)]

    assert [json.loads(each) for each in found] == objects
    assert not values.cut


def test_the_mark_that_some_proxies_end_with_is_passed_over() -> None:
    body = sse(chunk({"text": "a"}, finish="STOP")) + b"data: [DONE]\n\n"

    assert done(body).content == (TextBlock(text="a"),)


@pytest.mark.parametrize("body", [b"", b"\n", b"<html>no</html>", b": ping\n\n", b"{", b"[]"])
def test_a_body_that_says_nothing_is_no_turn(body: bytes) -> None:
    error = failed(body).error

    assert (error.kind, error.stage) == ("unexpected_eof", "stream_finalize")
    assert error.retryable


# --- recorded traffic, and Google's own SDK as oracle ------------------------------------------


def joined(parts: Iterable[Part]) -> tuple[Any, Part]:
    """What the parts say, however they were cut: their blocks and the last part."""
    assembler = Assembler()
    end: Part | None = None
    for end in parts:
        assembler.add(end)
    assert end is not None
    if isinstance(end, Failed):
        end = Failed(error=msgspec.structs.replace(end.error, bytes_received=0))
    return assembler.content(), end


def in_words(body: bytes) -> bytes:
    """The body with words where one recorded address gave numbers, which the SDK can't read."""

    def said(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: said(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [said(each) for each in value]
        words = {"finishReason": "STOP", "trafficType": "ON_DEMAND", "modality": "TEXT"}
        return words.get(key, value) if value == 1 else value

    return json.dumps(said(json.loads(body))).encode()


def sdk_chunks(body: bytes, *, whole: bool = False) -> list[types.GenerateContentResponse]:
    """What the SDK makes of a body; there is no network."""

    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": SSE}, content=body)

    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    options = types.HttpOptions(httpx_client=client)
    models = genai.Client(api_key="none", http_options=options).models
    if whole:
        return [models.generate_content(model="m", contents="x")]
    return list(models.generate_content_stream(model="m", contents="x"))


def told_by_sdk(body: bytes, *, whole: bool = False) -> Any:
    """Text, thinking, calls, stop reason and usage as the SDK reads them."""
    chunks = sdk_chunks(in_words(body) if whole else body, whole=whole)
    candidates = [one.candidates[0] for one in chunks if one.candidates]
    parts = [part for one in candidates for part in (one.content and one.content.parts) or ()]
    usage = chunks[-1].usage_metadata
    assert usage is not None
    reasons = [one.finish_reason for one in candidates if one.finish_reason is not None]
    return {
        "text": "".join(part.text or "" for part in parts if not part.thought),
        "thinking": "".join(part.text or "" for part in parts if part.thought),
        "calls": [
            (part.function_call.name, part.function_call.args)
            for part in parts
            if part.function_call
        ],
        "stop": str(reasons[-1].value),
        "usage": (
            usage.prompt_token_count,
            (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
            usage.thoughts_token_count,
            usage.cached_content_token_count,
        ),
        "id": chunks[-1].response_id,
        "model": chunks[-1].model_version,
    }


def told_by_us(turn: Done) -> Any:
    blocks = turn.content
    usage = turn.usage
    return {
        "text": "".join(block.text for block in blocks if isinstance(block, TextBlock)),
        "thinking": "".join(block.text for block in blocks if isinstance(block, ThinkingBlock)),
        "calls": [
            (block.name, json.loads(block.arguments))
            for block in blocks
            if isinstance(block, ToolCallBlock)
        ],
        "stop": turn.provider_metadata["stop_reason"],
        "usage": (
            usage.input_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
            usage.cache_read_tokens,
        ),
        "id": turn.response_metadata["id"],
        "model": turn.response_metadata["model"],
    }


@pytest.mark.parametrize("case", wire.params("gemini", ok=True))
def test_a_recorded_answer_says_what_the_sdk_says(case: wire.Case) -> None:
    assert told_by_us(done(case.body, case.content_type)) == told_by_sdk(
        case.body, whole=case.format == "json"
    )


@pytest.mark.parametrize("case", wire.params("gemini", ok=True))
def test_a_recorded_answer_says_the_same_at_every_split(case: wire.Case) -> None:
    whole = joined(parts_of([case.body]))

    for pieces in wire.splits(case.body):
        assert joined(parts_of(pieces)) == whole


@pytest.mark.parametrize("case", wire.params("gemini", format="sse", ok=True))
def test_a_recorded_stream_cut_before_its_finish_reason_is_no_turn(case: wire.Case) -> None:
    for body in wire.cuts(case.body):
        assert b'"finishReason"' not in body  # in these it stands in the last event
        end = last(body)
        assert isinstance(end, Failed)
        assert end.error.kind == "unexpected_eof"


@pytest.mark.parametrize("case", wire.params("gemini", ok=True))
def test_a_recorded_answer_cut_inside_is_no_turn(case: wire.Case) -> None:
    end = len(case.body.rstrip())
    for at in (*wire.offsets(case.body[:end])[:-1], end - 1):
        part = last(case.body[:at])
        assert isinstance(part, Failed), at
        assert part.error.kind == "unexpected_eof"


MADE = sse(
    chunk({"text": "Hm", "thought": True}, usageMetadata={"promptTokenCount": 5}),
    chunk({"text": "m", "thought": True, "thoughtSignature": "SSSS"}),
    chunk({"text": "Grüße"}),
    chunk({"text": "."}, call("f", {"a": 1})),
    chunk(call("g", {"b": "x"}, thoughtSignature="TTTT")),
    chunk({"text": "", "thoughtSignature": "UUUU"}, finish="STOP"),
    {
        "usageMetadata": {"promptTokenCount": 5, "thoughtsTokenCount": 3, "totalTokenCount": 8},
        "modelVersion": "gemini-x",
        "responseId": ID,
    },
)


def test_a_made_stream_says_what_the_sdk_says() -> None:
    assert told_by_us(done(MADE)) == told_by_sdk(MADE)


@pytest.mark.parametrize(
    "tail", [sse(EXHAUSTED), b"\n" + json.dumps(EXHAUSTED, indent=2).encode() + b"\n"]
)
def test_an_error_is_one_to_the_sdk_too(tail: bytes) -> None:
    body = sse(chunk({"text": "a"})) + tail

    with pytest.raises(APIError, match="RESOURCE_EXHAUSTED"):
        sdk_chunks(body)
    assert failed(body).error.kind == "rate_limited"


def test_a_stream_cut_after_any_event_is_a_turn_only_once_it_has_finished() -> None:
    ends = [type(last(body)) for body in wire.cuts(MADE)]

    assert ends == [Failed] * 6 + [Done]


def test_an_event_that_is_cut_after_the_finish_reason_is_missed() -> None:
    error = failed(MADE.rstrip()[:-1]).error

    assert (error.kind, error.stage) == ("unexpected_eof", "stream_finalize")


def test_a_last_event_needs_no_blank_line() -> None:
    assert done(MADE.rstrip()) == done(MADE)


def test_a_made_stream_says_the_same_at_every_split() -> None:
    for pieces in wire.splits(MADE):
        assert joined(parts_of(pieces)) == joined(parts_of([MADE]))


def without_native(told: tuple[Any, Part]) -> tuple[Any, Part]:
    blocks, end = told
    assert isinstance(end, Done)
    return blocks, msgspec.structs.replace(end, native_replay=None)


@pytest.mark.parametrize(
    "case", [pytest.param(None, id="made"), *wire.params("gemini", format="sse", ok=True)]
)
@given(seed=st.integers())
def test_what_is_unknown_changes_nothing(case: wire.Case | None, seed: int) -> None:
    chance = random.Random(seed)
    body = MADE if case is None else case.body
    newer = wire.mutated(body, chance)

    # An unknown field of a part is kept for replay, so the native form may say more.
    assert without_native(joined(parts_of(wire.pieces(newer, chance, 200)))) == without_native(
        joined(parts_of([body]))
    )


# --- and back ----------------------------------------------------------------------------------


def sent_back(turn: Done) -> list[dict[str, Any]]:
    calls = [block for block in turn.content if isinstance(block, ToolCallBlock)]
    results = [
        ToolMessage(model_call_id=block.model_call_id, name=block.name, output="ok")
        for block in calls
    ]
    asked = UserMessage(content=(TextBlock(text="hi"),))
    said = AssistantMessage(content=turn.content, native=turn.native_replay)
    request = Request(system="", messages=(asked, said, *results), session_id=SessionId("s"))
    contents: list[dict[str, Any]] = json.loads(WIRE.encode(request, {}).body)["contents"]
    return contents


def test_a_native_turn_goes_back_part_for_part() -> None:
    _user, model, results = sent_back(done(MADE))

    assert model["parts"] == [
        {"text": "m", "thought": True, "thoughtSignature": "SSSS"},
        {"text": "Grüße."},
        # the first call of a turn must be signed; here only the second was
        call("f", {"a": 1}, thoughtSignature="skip_thought_signature_validator"),
        call("g", {"b": "x"}, thoughtSignature="TTTT"),
        {"text": "", "thoughtSignature": "UUUU"},
    ]
    assert results["parts"] == [
        {"functionResponse": {"name": name, "response": {"output": "ok"}}} for name in "fg"
    ]


def test_a_result_repeats_the_id_the_model_gave() -> None:
    _user, model, results = sent_back(done(sse(chunk(call("f", {}, id="x1"), finish="STOP"))))

    assert model["parts"][0]["functionCall"] == {"id": "x1", "name": "f", "args": {}}
    assert results["parts"] == [
        {"functionResponse": {"id": "x1", "name": "f", "response": {"output": "ok"}}}
    ]


@pytest.mark.parametrize("case", wire.params("gemini", ok=True))
def test_a_recorded_turn_goes_back_as_it_came(case: wire.Case) -> None:
    turn = done(case.body)
    chunks = (
        [json.loads(case.body)]
        if case.format == "json"
        else [json.loads(one[6:]) for one in wire.events(case.body)]
    )
    came = [part for one in chunks for part in one["candidates"][0]["content"]["parts"]]
    signed_or_said = [part for part in came if not part.get("thought")]

    _user, model, *_ = sent_back(turn)

    assert model["parts"] == signed_or_said
    assert turn.native_replay is not None
    calls = [block for block in turn.content if isinstance(block, ToolCallBlock)]
    kept = [item["functionCall"] for item in turn.native_replay["items"] if "functionCall" in item]
    for block, item in zip(calls, kept, strict=True):
        assert item.get("id") in {None, block.model_call_id}
        assert (item["name"], item["args"]) == (block.name, json.loads(block.arguments))
