"""What the Responses API answers: each text once, calls in their order, no success that was cut.

The recorded cases are held against the vendor's SDK; xAI and DeepSeek speak this wire too.
"""

import json
import random
from collections.abc import Iterable
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc.content import TextBlock, ThinkingBlock, ToolCallBlock, Usage
from ipc.events import FrozenModelBinding
from ipc.events.base import ModelCapabilities
from ipc.ids import ModelKey, ProviderId
from tests.fakes.wire import Case, cases, cuts, mutated, splits
from workers.providers.base import (
    Assembler,
    Done,
    Failed,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from workers.providers.responses import Responses
from workers.providers.responses_turn import NATIVE_BYTES_MAX
from workers.providers.sse import EVENT_BYTES_MAX

SSE = "text/event-stream; charset=utf-8"
JSON = "application/json"
BINDING = FrozenModelBinding(
    model=ModelKey("p/m"),
    provider_id=ProviderId("p"),
    adaptor="openai-responses",
    wire_model="m-1",
)
USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 8},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 120,
}
COUNTED = Usage(
    input_tokens=100,
    output_tokens=20,
    reasoning_tokens=5,
    cache_read_tokens=64,
    cache_write_tokens=8,
)


# --- streams in a few words --------------------------------------------------------------------


def event(kind: str, **more: Any) -> dict[str, Any]:
    """One event of a stream; only what the test is about."""
    return {"type": f"response.{kind}", **more}


def sse(*events: dict[str, Any]) -> bytes:
    """A body of these events, as OpenAI writes it."""
    return b"".join(
        b"event: %s\ndata: %s\n\n" % (each.get("type", "").encode(), json.dumps(each).encode())
        for each in events
    )


def response(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A response object."""
    facts = {"id": "resp_1", "model": "m-1-0613", "status": "completed", "error": None}
    return {**facts, "output": list(output), "usage": USAGE, **more}


def completed(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    return event("completed", response=response(*output, **more))


def incomplete(reason: str | None, *output: dict[str, Any]) -> dict[str, Any]:
    details = None if reason is None else {"reason": reason}
    told = response(*output, status="incomplete", incomplete_details=details)
    return event("incomplete", response=told)


def message(*texts: str, **more: Any) -> dict[str, Any]:
    parts = [{"type": "output_text", "annotations": [], "logprobs": [], "text": t} for t in texts]
    facts = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant"}
    return {**facts, "content": parts, **more}


def call(number: int, name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    facts = {"id": f"fc_{number}", "type": "function_call", "status": "completed"}
    return {**facts, "call_id": f"call_{number}", "name": name, "arguments": arguments, **more}


def thought(*summary: str, **more: Any) -> dict[str, Any]:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"id": "rs_1", "type": "reasoning", "summary": parts, **more}


def added(index: int, item: dict[str, Any]) -> dict[str, Any]:
    """An item begins: what it will hold is not there yet."""
    empty: dict[str, Any] = {"arguments": ""} if "arguments" in item else {"content": []}
    return event("output_item.added", output_index=index, item={**item, **empty})


def ended(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return event("output_item.done", output_index=index, item=item)


def delta(text: str, index: int = 0, part: int = 0) -> dict[str, Any]:
    where = {"output_index": index, "content_index": part, "item_id": "msg_1"}
    return event("output_text.delta", **where, delta=text)


def arguments(text: str, index: int) -> dict[str, Any]:
    return event("function_call_arguments.delta", output_index=index, delta=text)


def decoded(
    pieces: Iterable[bytes], content_type: str = SSE, binding: FrozenModelBinding = BINDING
) -> list[Part]:
    """All parts, neighbours of a kind made one; held to the contract of a part stream."""
    decoder = Responses(binding).decoder(content_type)
    parts = [part for piece in pieces for part in decoder.feed(piece)]
    parts += decoder.end()
    assert not decoder.feed(sse(completed()))
    assert not decoder.end()
    assembler = Assembler()
    for part in parts:
        assembler.add(part)
    last = parts[-1]
    assert isinstance(last, Done | Failed)
    if isinstance(last, Done):
        assert last.content == assembler.content()
    return merged(parts)


def merged(parts: Iterable[Part]) -> list[Part]:
    kept: list[Part] = []
    for part in parts:
        before = kept[-1] if kept else None
        if isinstance(part, TextPart) and isinstance(before, TextPart):
            kept[-1] = TextPart(before.text + part.text)
        elif isinstance(part, ThinkingPart) and isinstance(before, ThinkingPart):
            kept[-1] = ThinkingPart(before.text + part.text)
        else:
            kept.append(part)
    return kept


def done(*events: dict[str, Any], binding: FrozenModelBinding = BINDING) -> Done:
    last = decoded([sse(*events)], binding=binding)[-1]
    assert isinstance(last, Done), last
    return last


def failed(body: bytes, content_type: str = SSE) -> Failed:
    last = decoded([body], content_type)[-1]
    assert isinstance(last, Failed), last
    return last


def called(number: int, name: str, text: str, item_id: str | None = "") -> ToolCallPart:
    item_id = f"fc_{number}" if item_id == "" else item_id
    return ToolCallPart(
        model_call_id=f"call_{number}", name=name, arguments=text, provider_item_id=item_id
    )


ONE, TWO = call(1, "bash", '{"command":"ls"}'), call(2, "read", '{"path":"a"}')
ONE_PART = called(1, "bash", '{"command":"ls"}')
TWO_PART = called(2, "read", '{"path":"a"}')
HELLO = [
    event("created", response=response(status="in_progress", usage=None)),
    event("in_progress", response=response(status="in_progress", usage=None)),
    added(0, message()),
    event("content_part.added", output_index=0, content_index=0, part=message("")["content"][0]),
    delta("Hel"),
    delta("lo"),
    event("output_text.done", output_index=0, content_index=0, text="Hello"),
    event(
        "content_part.done", output_index=0, content_index=0, part=message("Hello")["content"][0]
    ),
    ended(0, message("Hello")),
    completed(message("Hello")),
]


# --- text --------------------------------------------------------------------------------------


def test_a_stream_of_text_is_a_turn() -> None:
    assert decoded([sse(*HELLO)]) == [
        TextPart("Hello"),
        Done(
            content=(TextBlock(text="Hello"),),
            finish_reason="stop",
            usage=COUNTED,
            provider_metadata={"stop_reason": "completed"},
            response_metadata={"id": "resp_1", "model": "m-1-0613"},
        ),
    ]


def test_deltas_are_given_as_they_come_and_those_of_one_feed_together() -> None:
    decoder = Responses(BINDING).decoder(SSE)

    assert [
        list(decoder.feed(sse(delta("a"), delta("b"), delta("c")))),
        list(decoder.feed(sse(delta("d"), event("output_text.done", text="abcd")))),
        list(decoder.feed(sse(event("reasoning_text.delta", delta="t"), delta("e"), delta("f")))),
    ] == [[TextPart("abc")], [TextPart("d")], [ThinkingPart("t"), TextPart("ef")]]


@pytest.mark.parametrize(
    ("told", "part"),
    [
        (event("output_text.delta", delta="a"), TextPart("a")),
        (event("output_text.done", text="a"), TextPart("a")),
        (event("content_part.added", part={"type": "output_text", "text": "a"}), TextPart("a")),
        (event("content_part.done", part={"type": "output_text", "text": "a"}), TextPart("a")),
        (event("content_part.done", part={"type": "refusal", "refusal": "a"}), TextPart("a")),
        (
            event("content_part.done", part={"type": "reasoning_text", "text": "a"}),
            ThinkingPart("a"),
        ),
        (event("refusal.delta", delta="a"), TextPart("a")),
        (event("refusal.done", refusal="a"), TextPart("a")),
        (event("reasoning_summary_text.delta", delta="a"), ThinkingPart("a")),
        (event("reasoning_summary_text.done", text="a"), ThinkingPart("a")),
        (
            event("reasoning_summary_part.done", part={"type": "summary_text", "text": "a"}),
            ThinkingPart("a"),
        ),
        (event("reasoning_text.delta", delta="a"), ThinkingPart("a")),
        (event("reasoning_text.done", text="a"), ThinkingPart("a")),
        (event("output_item.done", item=message("a")), TextPart("a")),
        (event("output_item.done", item=thought("a")), ThinkingPart("a")),
    ],
)
def test_each_event_that_tells_something_gives_it_at_once(told: dict[str, Any], part: Part) -> None:
    assert list(Responses(BINDING).decoder(SSE).feed(sse(told))) == [part]


@pytest.mark.parametrize(
    "left_out",
    [
        ("output_text.delta",),
        ("output_text.delta", "output_text.done"),
        ("output_text.delta", "output_text.done", "content_part.done"),
        ("output_text.delta", "output_text.done", "content_part.done", "output_item.done"),
        ("output_text.delta", "output_text.done", "content_part", "output_item"),
        ("output_text.done",),
        ("content_part", "output_item"),
        ("output_text.done", "content_part", "output_item"),
        ("created", "in_progress"),
    ],
)
def test_a_text_is_given_once_wherever_it_is_told(left_out: tuple[str, ...]) -> None:
    told = [
        each
        for each in HELLO
        if not each["type"].startswith(tuple("response." + n for n in left_out))
    ]

    assert len(told) < len(HELLO)
    assert decoded([sse(*told)])[:-1] == [TextPart("Hello")]


@pytest.mark.parametrize(
    "events",
    [
        # the last delta was lost
        [delta("Hel"), ended(0, message("Hello")), completed(message("Hello"))],
        # the beginning comes with the part
        [
            event("content_part.added", output_index=0, part={"type": "output_text", "text": "He"}),
            delta("llo"),
            completed(message("Hello")),
        ],
        # the response is told without its items
        [delta("Hello"), ended(0, message("Hello")), completed()],
        [delta("Hello"), event("completed", response=None)],
        [delta("Hello"), event("completed")],
        # what is told whole is not quite what was streamed: that stays
        [delta("Hello"), ended(0, message(" Hello")), completed(message("  Hello  "))],
        # no place is named at all
        [
            event("output_text.delta", delta="Hel"),
            event("output_text.delta", delta="lo"),
            event("output_text.done", text="Hello"),
            event("output_item.done", item=message("Hello")),
            completed(message("Hello")),
        ],
        # another id in each event
        [
            event("output_text.delta", output_index=0, item_id="a", delta="Hel"),
            event("output_text.delta", output_index=0, item_id="b", delta="lo"),
            event("output_item.done", output_index=0, item=message("Hello", id="c")),
            completed(message("Hello", id="d")),
        ],
        # the items of the end are not those of the stream
        [delta("Hello", index=1), ended(1, message("Hello")), completed(message("Hello"))],
    ],
)
def test_a_text_is_given_once_by_servers_with_their_own_ways(events: list[dict[str, Any]]) -> None:
    assert decoded([sse(*events)])[:-1] == [TextPart("Hello")]


def test_messages_that_share_an_index_are_both_given_once() -> None:
    events = [
        added(0, message()), delta("one "), ended(0, message("one ")),
        added(0, message()), delta("two"), ended(0, message("two")),
        added(0, message()), ended(0, message(" three")),
        completed(message("one "), message("two"), message(" three")),
    ]  # fmt: skip

    assert decoded([sse(*events)])[:-1] == [TextPart("one two three")]


def test_parts_of_one_message_are_told_apart() -> None:
    events = [
        delta("a", part=0), delta("b", part=1),
        event("output_text.done", output_index=0, content_index=0, text="a"),
        event("output_text.done", output_index=0, content_index=1, text="bc"),
        completed(message("a", "bc")),
    ]  # fmt: skip

    assert decoded([sse(*events)])[:-1] == [TextPart("abc")]


@pytest.mark.parametrize(
    "events",
    [
        [
            event("refusal.delta", output_index=0, delta="I "),
            event("refusal.delta", delta="won't", output_index=0),
        ],
        [event("refusal.done", output_index=0, refusal="I won't")],
        [ended(0, message(content=[{"type": "refusal", "refusal": "I won't"}]))],
        [],
    ],
)
def test_a_refusal_is_text_and_says_so(events: list[dict[str, Any]]) -> None:
    end = completed(message(content=[{"type": "refusal", "refusal": "I won't"}]))
    turn = done(*events, end)

    assert (turn.content, turn.finish_reason) == ((TextBlock(text="I won't"),), "refused")


# --- thinking ----------------------------------------------------------------------------------


def summary(text: str, piece: int, index: int = 0) -> dict[str, Any]:
    return event(
        "reasoning_summary_text.delta", output_index=index, summary_index=piece, delta=text
    )


def test_pieces_of_reasoning_are_paragraphs_and_go_back_as_they_came() -> None:
    first = thought("**A**\n\nb", "**C**", encrypted_content="gAAA", status=None)
    second = thought("d", id="rs_2", encrypted_content="gBBB", content=[])
    events = [
        added(0, first),
        event("reasoning_summary_part.added", output_index=0, summary_index=0,
              part={"type": "summary_text", "text": ""}),
        summary("**A**", 0), summary("\n\nb", 0),
        event("reasoning_summary_text.done", output_index=0, summary_index=0, text="**A**\n\nb"),
        event("reasoning_summary_part.done", output_index=0, summary_index=0,
              part={"type": "summary_text", "text": "**A**\n\nb"}),
        summary("**C**", 1),
        ended(0, first),
        ended(1, second),
        delta("hi", index=2),
        ended(2, message("hi")),
        completed(first, second, message("hi")),
    ]  # fmt: skip

    parts = decoded([sse(*events)])

    assert parts[:-1] == [ThinkingPart("**A**\n\nb\n\n**C**\n\nd"), TextPart("hi")]
    assert isinstance(parts[-1], Done)
    assert parts[-1].native_replay == {
        "family": "responses",
        "items": [
            {"type": "reasoning", "summary": first["summary"], "encrypted_content": "gAAA"},
            {"type": "reasoning", "summary": second["summary"], "encrypted_content": "gBBB"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "hi"}],
            },
        ],
    }


def test_reasoning_that_is_told_in_two_forms_is_given_in_the_first() -> None:
    both = thought("short", content=[{"type": "reasoning_text", "text": "long"}])
    raw = event("reasoning_text.delta", output_index=0, content_index=0, delta="long")
    end = [ended(0, both), delta("hi", index=1), completed(both, message("hi"))]

    assert decoded([sse(raw, *end)])[:-1] == [ThinkingPart("long"), TextPart("hi")]
    assert decoded([sse(summary("sh", 0), *end)])[:-1] == [ThinkingPart("short"), TextPart("hi")]
    assert decoded([sse(*end)])[:-1] == [ThinkingPart("short"), TextPart("hi")]


def test_thinking_between_texts_stays_where_it_was() -> None:
    events = [
        summary("a", 0), delta("b", index=1), summary("c", 0, index=2), delta("d", index=3),
        summary("e", 0, index=4), ended(5, ONE), summary("f", 0, index=6), completed(),
    ]  # fmt: skip

    assert done(*events).content == (
        ThinkingBlock(text="a"),
        TextBlock(text="b"),
        ThinkingBlock(text="c"),
        TextBlock(text="d"),
        ThinkingBlock(text="e"),
        ToolCallBlock(model_call_id="call_1", name="bash", arguments='{"command":"ls"}',
                      provider_item_id="fc_1"),
        ThinkingBlock(text="f"),
    )  # fmt: skip


# --- calls -------------------------------------------------------------------------------------

BOTH = [
    added(0, ONE), arguments('{"command"', 0),
    added(1, TWO), arguments('{"path":"a"}', 1), ended(1, TWO),
    arguments(':"ls"}', 0), ended(0, ONE),
]  # fmt: skip


def test_calls_are_given_whole_and_in_the_order_they_began() -> None:
    decoder = Responses(BINDING).decoder(SSE)
    given = [list(decoder.feed(sse(each))) for each in BOTH]

    assert given == [[], [], [], [], [], [], [ONE_PART, TWO_PART]]
    turn = done(*BOTH, completed(ONE, TWO))
    assert turn.finish_reason == "tool_calls"
    assert turn.content == (
        ToolCallBlock(model_call_id="call_1", name="bash", arguments='{"command":"ls"}',
                      provider_item_id="fc_1"),
        ToolCallBlock(model_call_id="call_2", name="read", arguments='{"path":"a"}',
                      provider_item_id="fc_2"),
    )  # fmt: skip
    assert turn.native_replay is None


@pytest.mark.parametrize(
    "events",
    [
        [ended(0, ONE), ended(1, TWO)],
        [ended(0, ONE), ended(1, TWO), completed(ONE, TWO)],
        [completed(ONE, TWO)],
        [added(0, ONE), added(1, TWO), completed(ONE, TWO)],
        [added(0, ONE), arguments('{"com', 0), completed(ONE, TWO)],
        [
            added(0, ONE), arguments(ONE["arguments"], 0),
            added(1, TWO), arguments(TWO["arguments"], 1),
        ],
        # never said to begin
        [
            arguments(ONE["arguments"], 0), ended(0, call(1, "bash", "")),
            arguments("{", 1), ended(1, TWO),
        ],
        [
            added(0, ONE), added(1, TWO),
            event("function_call_arguments.done", output_index=1, arguments=TWO["arguments"]),
            event("function_call_arguments.done", output_index=0, arguments=ONE["arguments"]),
        ],
        # all of them at one index
        [added(0, ONE), added(0, TWO), ended(0, ONE), ended(0, TWO)],
        # a server that says arguments as an object, or an item whose arguments stayed empty
        [
            ended(0, call(1, "bash", {"command": "ls"})),
            added(1, TWO), arguments(TWO["arguments"], 1), ended(1, call(2, "read", "")),
        ],
    ],
)  # fmt: skip
def test_calls_are_given_once_wherever_they_are_told(events: list[dict[str, Any]]) -> None:
    if events[-1]["type"] != "response.completed":
        events = [*events, completed()]

    assert decoded([sse(*events)])[:-1] == [ONE_PART, TWO_PART]


def test_a_call_without_an_id_has_that_of_its_item() -> None:
    item = {"id": "fc_9", "type": "function_call", "name": "bash", "arguments": "{}"}

    assert decoded([sse(ended(0, item), completed(item))])[:-1] == [
        ToolCallPart(model_call_id="fc_9", name="bash", arguments="{}", provider_item_id="fc_9")
    ]


def test_calls_of_one_id_are_both_given_as_they_came() -> None:
    again = call(1, "bash", "{}", id="fc_3")

    assert decoded([sse(ended(0, ONE), ended(1, again), completed(ONE, again))])[:-1] == [
        ONE_PART,
        called(1, "bash", "{}", "fc_3"),
    ]


def test_broken_arguments_come_as_they_are() -> None:
    cut = call(1, "bash", '{"comm', status="incomplete")
    events = [added(0, cut), arguments('{"comm', 0), ended(0, cut)]
    parts = decoded([sse(*events, incomplete("max_output_tokens", cut))])

    assert parts[0] == called(1, "bash", '{"comm')
    assert isinstance(parts[1], Done)
    assert parts[1].finish_reason == "length"


# --- native replay -----------------------------------------------------------------------------


def test_items_that_nobody_here_knows_are_kept() -> None:
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"q": 1}}
    newer = {"id": "zz_1", "type": "zz_call", "status": "completed", "zz": [1], "none": None}
    custom = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "c", "name": "n", "input": "i"}
    compaction = {"id": "cmp_1", "type": "compaction", "encrypted_content": "g", "created_by": "x"}
    said = message("hi", phase="final_answer")
    items: list[dict[str, Any]] = [search, newer, custom, said, ONE, compaction]
    events = [
        each
        for index, item in enumerate(items)
        for each in (added(index, item), ended(index, item))
    ]

    turn = done(*events, completed(*items))

    assert turn.native_replay == {
        "family": "responses",
        "items": [
            {"type": "web_search_call", "status": "completed", "action": {"q": 1}},
            {"id": "zz_1", "type": "zz_call", "status": "completed", "zz": [1]},
            {"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "i"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "hi"}],
                "phase": "final_answer",
            },
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": "bash",
                "arguments": '{"command":"ls"}',
            },
            {"type": "compaction", "encrypted_content": "g"},
        ],
    }
    assert turn.content[1:] == (
        ToolCallBlock(model_call_id="call_1", name="bash", arguments='{"command":"ls"}',
                      provider_item_id="fc_1"),
    )  # fmt: skip


def test_items_for_replay_are_looked_for_wherever_they_are_told() -> None:
    sealed = thought(encrypted_content="g")
    by_item = done(delta("hi", index=1), ended(0, sealed), ended(1, message("hi")), completed())
    by_end = done(delta("hi", index=1), completed(sealed, message("hi")))

    assert by_item.native_replay == by_end.native_replay
    assert by_item.native_replay is not None
    assert [each["type"] for each in by_item.native_replay["items"]] == ["reasoning", "message"]


def test_what_is_known_of_each_token_is_not_kept() -> None:
    part = {"type": "output_text", "text": "hi", "logprobs": [{"token": "hi"}], "annotations": [1]}
    turn = done(completed(message(content=[part])))

    assert turn.native_replay is not None
    assert turn.native_replay["items"][0]["content"] == [
        {"type": "output_text", "text": "hi", "annotations": [1]}
    ]


def test_ids_and_arguments_in_the_replay_are_those_of_the_content() -> None:
    odd = {key: value for key, value in ONE.items() if key != "call_id"} | {"arguments": ""}
    sealed = thought(encrypted_content="g")
    events = [ended(0, sealed), added(1, odd), arguments('{"command":"ls"}', 1), ended(1, odd)]
    turn = done(*events, completed(sealed, odd))

    assert isinstance(turn.content[0], ToolCallBlock)
    assert turn.native_replay is not None
    kept = turn.native_replay["items"][1]
    assert (kept["call_id"], kept["arguments"]) == ("fc_1", '{"command":"ls"}')
    assert (turn.content[0].model_call_id, turn.content[0].arguments) == (
        kept["call_id"],
        kept["arguments"],
    )


@pytest.mark.parametrize(
    ("items", "binding"),
    [
        ([message("hi")], BINDING),
        ([thought("only words"), message("hi")], BINDING),
        ([thought(encrypted_content="g" * NATIVE_BYTES_MAX), message("hi")], BINDING),
        (
            [thought(encrypted_content="g"), message("hi")],
            FrozenModelBinding(
                model=ModelKey("p/m"),
                provider_id=ProviderId("p"),
                adaptor="openai-responses",
                wire_model="m-1",
                capabilities=ModelCapabilities(native_replay="unsupported"),
            ),
        ),
    ],
    ids=["nothing more", "nothing that can go back", "too much", "unsupported"],
)
def test_nothing_is_kept_for_replay_when_it_would_say_no_more(
    items: list[dict[str, Any]], binding: FrozenModelBinding
) -> None:
    turn = done(completed(*items), binding=binding)

    assert turn.content[-1] == TextBlock(text="hi")
    assert turn.native_replay is None


# --- ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "reason", "word"),
    [
        (completed(message("x")), "stop", "completed"),
        (completed(message("x"), ONE), "tool_calls", "completed"),
        (completed(message("x"), status="zz_new"), "stop", "completed"),
        (incomplete("max_output_tokens", message("x")), "length", "max_output_tokens"),
        (incomplete("content_filter", message("x")), "content_filter", "content_filter"),
        (incomplete("zz_new", message("x")), "unknown", "zz_new"),
        (incomplete(None, message("x")), "unknown", "incomplete"),
        (incomplete("max_output_tokens", message("x"), ONE), "length", "max_output_tokens"),
    ],
)
def test_how_a_turn_ended_is_said_in_our_words_and_in_the_vendor_s(
    end: dict[str, Any], reason: str, word: str
) -> None:
    turn = done(end)

    assert (turn.finish_reason, turn.provider_metadata) == (reason, {"stop_reason": word})
    assert turn.content[0] == TextBlock(text="x")
    assert turn.usage == COUNTED


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (USAGE, COUNTED),
        (None, Usage()),
        ([], Usage()),
        ({"input_tokens": 7}, Usage(input_tokens=7)),
        ({"input_tokens": -1, "output_tokens": "9"}, Usage()),
        ({"input_tokens": 2**70, "output_tokens": True}, Usage()),
        (
            {"input_tokens": 7, "input_tokens_details": None, "output_tokens_details": {}},
            Usage(input_tokens=7),
        ),
        (
            {"output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 0}},
            Usage(output_tokens=3, reasoning_tokens=0),
        ),
    ],
)
def test_usage_is_what_was_reported(told: Any, usage: Usage) -> None:
    assert done(completed(message("x"), usage=told)).usage == usage


def error(**facts: Any) -> dict[str, Any]:
    return {"type": "error", "sequence_number": 3, **facts}


def broke(code: str | None, words: str = "it broke") -> dict[str, Any]:
    told = {"code": code, "message": words}
    return event("failed", response=response(status="failed", error=told, output=[]))


@pytest.mark.parametrize(
    ("end", "kind", "code", "retryable"),
    [
        (broke("server_error"), "provider", "server_error", True),
        (broke("rate_limit_exceeded"), "rate_limited", "rate_limit_exceeded", True),
        (broke("invalid_prompt"), "invalid_request", "invalid_prompt", False),
        (broke("context_length_exceeded"), "context_length", "context_length_exceeded", False),
        (broke("insufficient_quota"), "quota", "insufficient_quota", False),
        (broke(None), "provider", None, True),
        (event("failed"), "provider", None, True),
        (error(code="slow_down", message="busy"), "overload", "slow_down", True),
        (error(code=None, message="no reason"), "provider", None, True),
        (error(code=429, message="slow down"), "rate_limited", "429", True),
        (
            error(error={"type": "invalid_request_error", "code": None, "message": "bad"}),
            "invalid_request", "invalid_request_error", False,
        ),
        (
            {"error": {"type": "server_error", "message": "it broke"}},
            "provider", "server_error", True,
        ),
        ({"error": "it broke"}, "provider", None, True),
    ],
)  # fmt: skip
def test_an_error_in_the_stream_is_a_failure(
    end: dict[str, Any], kind: str, code: str | None, retryable: bool
) -> None:
    body = sse(delta("part of it"), end)
    parts = decoded([body, b"data: {}\n\n"])

    assert parts[0] == TextPart("part of it")
    assert isinstance(parts[1], Failed)
    found = parts[1].error
    assert (found.kind, found.vendor_code, found.retryable) == (kind, code, retryable)
    assert (found.stage, found.bytes_received) == ("stream_decode", len(body))


def test_the_words_of_a_failure_are_the_vendor_s() -> None:
    assert (
        "the server had an error"
        in failed(sse(broke("x", "the server had an error"))).error.message
    )
    assert "it was this" in failed(sse(error(code=None, message="it was this"))).error.message


def test_a_stream_without_its_end_is_a_failure() -> None:
    for body in cuts(sse(*HELLO)):
        found = failed(body).error
        assert (found.kind, found.stage, found.retryable, found.bytes_received) == (
            "unexpected_eof",
            "stream_finalize",
            True,
            len(body),
        )


def test_a_last_event_counts_without_its_blank_line_but_not_without_its_end() -> None:
    body = sse(*HELLO)

    assert decoded([body.rstrip()]) == decoded([body])
    for lost in (3, 10, 40):
        assert failed(body[:-lost]).error.kind == "unexpected_eof"


def test_what_comes_after_the_end_is_not_read() -> None:
    body = sse(*HELLO, delta("more"), error(message="no")) + b"data: [DONE]\n\ndata: {{{\n\n"

    assert decoded([body]) == decoded([sse(*HELLO)])


@pytest.mark.parametrize(
    "odd",
    [
        b"data: [DONE]\n\n", b"data: null\n\n", b"data: 7\n\n", b'data: ["type"]\n\n',
        b": a comment\n\n", b"event: ping\n\n", b"data: {}\n\n", b'data: {"type": 7}\n\n',
        b'data: {"type": "keepalive", "sequence_number": 3}\n\n',
        b'event: response.output_text.delta\ndata: {"type": "zz", "delta": "zz"}\n\n',
        b'data: {"type": "response.output_text.delta", "delta": {"stdout": "zz"}}\n\n',
        b'data: {"type": "response.output_text.delta"}\n\n',
        b'data: {"type": "response.output_text.done", "text": null}\n\n',
        b'data: {"type": "response.output_text.delta", "delta": "zz", "content_index": []}\n\n',
        b'data: {"type": "response.output_item.added", "item": null}\n\n',
        b'data: {"type": "response.output_item.added", "item": {"type": 7}}\n\n',
        b'data: {"type": "response.output_item.done", "item": "zz"}\n\n',
        b'data: {"type": "response.content_part.done", "part": null}\n\n',
        b'data: {"type": "response.content_part.added", "part": {"type": "zz", "text": "zz"}}\n\n',
        b'data: {"type": "response.function_call_arguments.delta", "delta": null}\n\n',
        b'data: {"type": "response.shell_call_output_content.delta", "delta": {"x": 1}}\n\n',
    ],
)  # fmt: skip
def test_what_nobody_here_knows_is_passed_over(odd: bytes) -> None:
    body = sse(*HELLO[:5]) + odd + sse(*HELLO[5:])

    assert decoded([body]) == decoded([sse(*HELLO)])


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        (rb'{"type":"response.output_text.delta","delta":"a\ud83d"}', "a?"),
        (rb'{"type":"response.output_text.delta","delta":"\ud83d\ude00"}', "\N{GRINNING FACE}"),
        (b'{"type":"response.output_text.delta","delta":"a","logprobs":[NaN,-Infinity]}', "a"),
    ],
)
def test_what_is_almost_json_is_read(odd: bytes, text: str) -> None:
    assert decoded([b"data: " + odd + b"\n\n" + sse(completed())])[0] == TextPart(text)


@pytest.mark.parametrize(
    "odd",
    [b"{{{", b"no json", b'{"type":"\xff"}', b'{"type":' + b"[" * 100_000, b'{"x": 1e999, y}'],
)
def test_what_is_no_json_is_a_failure(odd: bytes) -> None:
    found = failed(sse(delta("a")) + b"data: " + odd + b"\n\n" + sse(completed())).error

    assert (found.kind, found.stage) == ("invalid_response", "stream_decode")


def test_an_event_without_end_is_a_failure() -> None:
    found = failed(b"data: " + b"x" * EVENT_BYTES_MAX).error

    assert (found.kind, found.stage) == ("invalid_response", "stream_decode")


def test_an_event_of_five_megabytes_is_read() -> None:
    text = "x" * 5_000_000

    assert decoded([sse(delta(text), completed(message(text)))])[0] == TextPart(text)


def test_only_content_is_progress() -> None:
    decoder = Responses(BINDING).decoder(SSE)
    seen = []
    for each in (
        event("created", response=response()), event("in_progress"), {"type": "keepalive"},
        {"type": "zz"}, added(0, message()), delta("a"), summary("t", 0), added(1, ONE),
        arguments("{", 1), event("mcp_call_arguments.delta", delta="x"), ended(1, ONE),
        event("web_search_call.searching"), completed(),
    ):  # fmt: skip
        decoder.feed(sse(each))
        seen.append(decoder.progress)
    decoder.feed(b": ping\n\n")

    assert seen == [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 7]


# --- one object --------------------------------------------------------------------------------


def whole(*output: dict[str, Any], **more: Any) -> bytes:
    return json.dumps(response(*output, **more), indent=2).encode()


def test_an_object_is_the_same_turn_as_a_stream() -> None:
    items = (thought("t", encrypted_content="g"), message("a", "b"), ONE, TWO)

    assert decoded([whole(*items)], "application/json; charset=utf-8") == decoded(
        [sse(completed(*items))]
    )
    assert decoded([whole(*items)], JSON)[:-1] == [
        ThinkingPart("t"),
        TextPart("ab"),
        ONE_PART,
        TWO_PART,
    ]


@pytest.mark.parametrize(
    ("facts", "reason", "word"),
    [
        ({}, "stop", "completed"),
        ({"status": None}, "stop", "completed"),
        ({"status": "zz_new"}, "unknown", "zz_new"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "length", "max_output_tokens",
        ),
        ({"status": "incomplete"}, "unknown", "incomplete"),
    ],
)  # fmt: skip
def test_an_object_says_how_it_ended(facts: dict[str, Any], reason: str, word: str) -> None:
    last = decoded([whole(message("x"), **facts)], JSON)[-1]

    assert isinstance(last, Done)
    assert (last.finish_reason, last.provider_metadata) == (reason, {"stop_reason": word})


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "unexpected_eof"),
        (b" \n", "unexpected_eof"),
        (whole(message("x"))[:-2], "unexpected_eof"),
        (b"<html>no</html>", "invalid_response"),
        (b"[]", "invalid_response"),
        (b"null", "invalid_response"),
        (b"{}", "invalid_response"),
        (b"[" * 100_000, "invalid_response"),
        (b'{"output": [], "x": 1e999, "y": NaN}', "invalid_response"),
        (whole(status="in_progress"), "invalid_response"),
        (whole(status="queued"), "invalid_response"),
        (whole(status="cancelled"), "provider"),
        (whole(status="failed"), "provider"),
        (whole(status="failed", error={"code": "slow_down", "message": "no"}), "overload"),
        (b'{"error": {"message": "no", "type": "invalid_request_error"}}', "invalid_request"),
        (b'{"error": "no"}', "provider"),
    ],
)  # fmt: skip
def test_an_object_that_is_no_answer_is_a_failure(body: bytes, kind: str) -> None:
    assert failed(body, JSON).error.kind == kind


def test_an_object_is_never_a_success_before_its_end() -> None:
    body = whole(message("x"), ONE)
    for at in range(len(body)):
        assert failed(body[:at], JSON).error.kind == "unexpected_eof"


# --- recorded traffic, and the SDK as its reader -------------------------------------------------

RECORDED = [
    case
    for case in cases("openai-responses", "xai", "deepseek", ok=True)
    if (case.path or "").endswith("/responses")
]
NONE = pytest.mark.skip("no recorded traffic beside the repo")
ALL = [pytest.param(each, id=each.id) for each in RECORDED] or [pytest.param(None, marks=NONE)]
STREAMS = [pytest.param(each, id=each.id) for each in RECORDED if each.format == "sse"] or [
    pytest.param(None, marks=NONE)
]


def sdk(case: Case) -> Any:
    """What the vendor's own library makes of the same bytes."""

    def answer(_: Any) -> Any:
        headers = {"content-type": case.content_type}
        return httpx2.Response(200, headers=headers, content=case.body)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    with openai.OpenAI(api_key="none", base_url="http://x/v1", http_client=http) as client:
        if case.format == "json":
            return client.responses.create(model="m", input="hi")
        with client.responses.stream(model="m", input="hi") as stream:
            return stream.get_final_response()


def by_sdk(case: Case) -> dict[str, Any]:
    """The SDK's response in our words."""
    made = sdk(case)
    thoughts = [
        piece.text
        for item in made.output
        if item.type == "reasoning"
        for piece in (item.summary or item.content or [])
    ]
    calls = [
        (item.call_id, item.name, item.arguments, item.id)
        for item in made.output
        if item.type == "function_call"
    ]
    usage = made.usage
    return {
        "text": made.output_text,
        "thinking": "".join(thoughts),
        "calls": calls,
        "finish": {"completed": "tool_calls" if calls else "stop"}[made.status],
        "usage": Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
            cache_read_tokens=usage.input_tokens_details.cached_tokens,
            cache_write_tokens=usage.input_tokens_details.cache_write_tokens,
        ),
        "about": {"id": made.id, "model": made.model},
    }


def by_us(parts: list[Part]) -> dict[str, Any]:
    """Our turn in the same words; paragraphs of thinking are ours."""
    turn = parts[-1]
    assert isinstance(turn, Done), turn
    thoughts = [block.text for block in turn.content if isinstance(block, ThinkingBlock)]
    calls = [block for block in turn.content if isinstance(block, ToolCallBlock)]
    return {
        "text": "".join(block.text for block in turn.content if isinstance(block, TextBlock)),
        "thinking": "".join(thoughts),
        "calls": [
            (block.model_call_id, block.name, block.arguments, block.provider_item_id)
            for block in calls
        ],
        "finish": turn.finish_reason,
        "usage": turn.usage,
        "about": turn.response_metadata,
    }


@pytest.mark.parametrize("case", ALL)
def test_a_recorded_answer_is_what_the_sdk_makes_of_it(case: Case) -> None:
    ours, theirs = by_us(decoded([case.body], case.content_type)), by_sdk(case)

    for told in (ours, theirs):
        told["thinking"] = "".join(told["thinking"].split())
    assert ours == theirs


@pytest.mark.parametrize("case", ALL)
def test_a_recorded_answer_is_the_same_however_it_is_split(case: Case) -> None:
    expected = decoded([case.body], case.content_type)

    for pieces in splits(case.body):
        assert decoded(pieces, case.content_type) == expected


@pytest.mark.parametrize("case", STREAMS)
def test_a_recorded_stream_that_was_cut_is_never_a_turn(case: Case) -> None:
    for body in cuts(case.body):
        assert failed(body).error.kind == "unexpected_eof"


@pytest.mark.parametrize("case", STREAMS)
@given(seed=st.integers(0, 2**32))
def test_news_from_the_vendor_change_nothing(case: Case, seed: int) -> None:
    expected = by_us(decoded([case.body], case.content_type))
    body = mutated(case.body, random.Random(seed))

    assert by_us(decoded([body], case.content_type)) == expected


@given(seed=st.integers(0, 2**32), at=st.integers(0, 4000))
def test_news_change_nothing_in_a_stream_by_hand(seed: int, at: int) -> None:
    end = completed(thought("t"), message("Hello"), ONE, TWO)
    plain = sse(summary("t", 0), *HELLO[2:9], *BOTH, end)
    body = mutated(plain, random.Random(seed))

    assert by_us(decoded([body[:at], body[at:]])) == by_us(decoded([plain]))
