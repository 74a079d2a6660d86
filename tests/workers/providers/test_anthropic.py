"""Anthropic's requests: the words of the API, what never goes out, and bytes that stay the same."""

from base64 import b64encode
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipc.content import MediaBlock, TextBlock, ThinkingBlock, ToolCallBlock, TurnBlock
from ipc.events import FrozenModelBinding
from ipc.events.base import Generation, ModelCapabilities, ReasoningWish
from ipc.ids import Digest, ModelKey, ProviderId
from tests.fakes.conversation import SESSION, user
from workers.providers.anthropic import EXTENDED_TTL, Anthropic
from workers.providers.base import (
    AssistantMessage,
    CannotEncode,
    Done,
    HttpCall,
    Media,
    Message,
    Request,
    ToolMessage,
    ToolSpec,
    UserMessage,
)

BASH = ToolSpec(
    name="bash",
    description="Run a command.",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}},
)
READ = ToolSpec(name="read", description="Read a file.", parameters={"type": "object"})
OFF = {"tools": "off", "system": "off", "rolling": "off"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
MINUTES = {"type": "ephemeral"}


def wire(model: str = "claude-sonnet-4-5", **more: Any) -> Anthropic:
    """The wire of a model, without cache markers unless it is told."""
    facts = {"adaptor": "anthropic", "cache": OFF, "provider_id": ProviderId("a"), **more}
    return Anthropic(FrozenModelBinding(model=ModelKey("a/b"), wire_model=model, **facts))


def call(
    *messages: Message,
    to: Anthropic | None = None,
    tools: tuple[ToolSpec, ...] = (),
    media: Media | None = None,
    **more: Any,
) -> HttpCall:
    facts = {"system": "", "session_id": SESSION, **more}
    return (to or wire()).encode(Request(messages=messages, tools=tools, **facts), media or {})


def body(*messages: Message, **more: Any) -> dict[str, Any]:
    """The JSON of a request after these messages."""
    made: dict[str, Any] = msgspec.json.decode(call(*messages, **more).body)
    return made


def said(*messages: Message, **more: Any) -> list[dict[str, Any]]:
    """The messages of the JSON, each text block as its text."""
    made: list[dict[str, Any]] = body(*messages, **more)["messages"]
    return made


def turn(*content: TurnBlock, native: list[Any] | None = None) -> AssistantMessage:
    kept = None if native is None else {"family": "anthropic", "items": native}
    return AssistantMessage(content=content, native=kept)


def asks(id_: str, arguments: str = "{}") -> ToolCallBlock:
    return ToolCallBlock(model_call_id=id_, name="bash", arguments=arguments)


def result(id_: str, output: str = "ok", **more: Any) -> ToolMessage:
    return ToolMessage(model_call_id=id_, name="bash", output=output, **more)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def file(mime: str, data: bytes, name: str | None = None) -> MediaBlock:
    return MediaBlock(
        mime=mime, digest=Digest(sha256(data).hexdigest()), byte_length=len(data), name=name
    )


HI = user("Hi")


# --- the whole ---------------------------------------------------------------------------------


def test_a_request_says_what_the_session_holds_in_the_words_of_the_api() -> None:
    made = call(
        user("List the files."),
        turn(
            ThinkingBlock(text="Hm", signature="c2ln"),
            TextBlock(text="Sure."),
            asks("t1", '{"command":  "ls"}'),
            asks("t2", ""),
        ),
        result("t1", "a.py"),
        result("t2", "no such command", is_error=True),
        user("And then?"),
        to=wire(cache=None, generation=Generation(temperature=0.5, stop=("END", " "))),
        system="Be brief.",
        tools=(BASH, READ),
    )

    assert made.url == "https://api.anthropic.com/v1/messages"
    assert made.headers == {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": EXTENDED_TTL,
    }
    bash = {
        "name": "bash",
        "description": "Run a command.",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
    }
    read = {"name": "read", "description": "Read a file.", "input_schema": {"type": "object"}}
    assert msgspec.json.decode(made.body) == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 4096,
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "stream": True,
        "tools": [bash, read | {"cache_control": HOUR}],
        "system": [text("Be brief.") | {"cache_control": HOUR}],
        "messages": [
            {"role": "user", "content": [text("List the files.")]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
                    text("Sure."),
                    {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "ls"}},
                    {"type": "tool_use", "id": "t2", "name": "bash", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "a.py"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "t2",
                        "content": "no such command",
                        "is_error": True,
                    },
                    text("And then?") | {"cache_control": MINUTES},
                ],
            },
        ],
    }
    assert b'"input":{"command":  "ls"}' in made.body  # as the model wrote it


def test_the_first_request_is_small() -> None:
    made = call(HI, to=wire(cache=None), system="s", tools=(READ,))
    assert len(made.body) - len(msgspec.json.encode(READ.parameters)) < 420


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        (None, "https://api.anthropic.com/v1/messages"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1/messages"),
    ],
)
def test_the_address_is_the_endpoint_s(endpoint: str | None, url: str) -> None:
    assert call(HI, to=wire(endpoint=endpoint)).url == url


# --- cache markers -----------------------------------------------------------------------------

Places = tuple[Any, Any, list[Any]]


def markers(made: dict[str, Any]) -> Places:
    """The markers on the tools, on the system, and on the blocks of all messages."""
    blocks = [block for message in made["messages"] for block in message["content"]]
    return (
        [tool.get("cache_control") for tool in made.get("tools", [])],
        [block.get("cache_control") for block in made.get("system", [])],
        [block.get("cache_control") for block in blocks],
    )


@pytest.mark.parametrize(
    ("cache", "places", "beta"),
    [
        (None, ([None, HOUR], [HOUR], [None, MINUTES]), EXTENDED_TTL),
        (OFF, ([None, None], [None], [None, None]), None),
        ({"tools": "off"}, ([None, None], [HOUR], [None, MINUTES]), EXTENDED_TTL),
        (
            {"tools": "5m", "system": "5m", "rolling": "off"},
            ([None, MINUTES], [MINUTES], [None, None]),
            None,
        ),
        ({"tools": "5m", "system": "1h"}, ([None, MINUTES], [MINUTES], [None, MINUTES]), None),
    ],
)
def test_what_is_kept_and_for_how_long_is_the_binding_s(
    cache: dict[str, str] | None, places: Places, beta: str | None
) -> None:
    two = UserMessage(content=(TextBlock(text="a"), TextBlock(text="b")))
    made = call(two, to=wire(cache=cache), system="Be brief.", tools=(BASH, READ))

    assert markers(msgspec.json.decode(made.body)) == places
    assert made.headers.get("anthropic-beta") == beta


def test_an_hour_that_nothing_is_kept_for_needs_no_beta() -> None:
    assert "anthropic-beta" not in call(HI, to=wire(cache=None)).headers


def test_betas_are_sent_once_each_in_the_order_they_were_given() -> None:
    options = {"beta": ("one-2025", EXTENDED_TTL, "two-2025", "one-2025")}
    made = call(HI, to=wire(cache=None, options=options), system="s")
    assert made.headers["anthropic-beta"] == f"one-2025,{EXTENDED_TTL},two-2025"


def test_a_marker_stands_on_a_block_that_can_bear_it() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    paused = turn(TextBlock(text="So"), native=[text("So"), search])

    _, _, rolling = markers(body(HI, paused, to=wire(cache=None)))
    assert rolling == [None, MINUTES, None]
    assert paused.native == {"family": "anthropic", "items": [text("So"), search]}


def test_a_turn_of_very_many_calls_is_marked_before_it_too() -> None:
    ids = [f"t{number}" for number in range(12)]
    many = (HI, turn(*map(asks, ids)), *map(result, ids))

    made = body(*many, to=wire(cache=None), system="s", tools=(BASH,))
    tools, system, rolling = markers(made)
    assert rolling == [MINUTES, *[None] * 23, MINUTES]
    assert sum(one is not None for one in (*tools, *system, *rolling)) == 4  # what the API takes


# --- who speaks when ---------------------------------------------------------------------------


def test_neighbours_of_one_role_are_one_message() -> None:
    assert said(user("a"), user("b"), turn(TextBlock(text="c")), turn(TextBlock(text="d"))) == [
        {"role": "user", "content": [text("a"), text("b")]},
        {"role": "assistant", "content": [text("c"), text("d")]},
    ]


def test_results_stand_first_whatever_was_said_meanwhile() -> None:
    made = said(HI, turn(asks("t1"), asks("t2")), result("t1"), user("Wait!"), result("t2"))
    assert [block["type"] for block in made[-1]["content"]] == [
        "tool_result",
        "tool_result",
        "text",
    ]
    assert [block.get("tool_use_id") for block in made[-1]["content"]] == ["t1", "t2", None]


def test_a_conversation_begins_with_a_person() -> None:
    assert [one["role"] for one in said(turn(TextBlock(text="Hello.")), HI)] == [
        "user",
        "assistant",
        "user",
    ]


@pytest.mark.parametrize(
    "silent",
    [
        UserMessage(content=(TextBlock(text=""), TextBlock(text=" \n"))),
        turn(TextBlock(text="")),
        turn(TextBlock(text="\n\n")),
        turn(ThinkingBlock(text="Hm")),
        turn(ThinkingBlock(text="Hm", signature="")),
        turn(ThinkingBlock(text="", redacted=True)),
        turn(ThinkingBlock(text="Hm", signature="c2ln")),  # nothing follows it
        turn(ThinkingBlock(text="xyz", redacted=True)),
        turn(file("image/png", b"png")),
        turn(),
    ],
)
def test_a_message_that_may_not_be_sent_is_left_out(silent: Message) -> None:
    assert said(user("a"), silent, user("b")) == [
        {"role": "user", "content": [text("a"), text("b")]}
    ]


def test_hidden_and_redacted_thinking_goes_back() -> None:
    thoughts = (
        ThinkingBlock(text="", signature="c2ln"),
        ThinkingBlock(text="xyz", redacted=True),
    )
    assert said(HI, turn(*thoughts, TextBlock(text="a")), HI)[1]["content"] == [
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "xyz"},
        text("a"),
    ]


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ((), "nothing to be said"),
        ((user(" "),), "nothing to be said"),
        ((HI, turn(asks("t1"))), "no result: t1"),
        ((HI, turn(asks("t1")), HI), "don't pair: t1"),
        ((HI, result("t1")), "don't pair: t1"),
        ((HI, turn(asks("t1")), result("t1"), result("t1")), "don't pair: t1"),
        ((HI, turn(asks("t1")), result("t2")), "don't pair: t1"),
        (
            (HI, turn(asks("t1")), result("t1"), turn(asks("t1")), result("t1")),
            "two tool calls have one id: t1",
        ),
        ((HI, turn(asks("t1", "{")), result("t1")), "no JSON object"),
        ((HI, turn(asks("t1", "[1]")), result("t1")), "no JSON object"),
        ((HI, turn(asks("t1", '{"a":"\\ud800"}')), result("t1")), "no JSON object"),
        ((user("\ud800"),), "is no JSON"),
    ],
)
def test_what_the_api_would_refuse_is_not_sent(history: tuple[Message, ...], words: str) -> None:
    with pytest.raises(CannotEncode, match=words):
        call(*history)


def test_an_id_of_another_family_is_written_in_letters_the_api_takes() -> None:
    odd, like = "functions.bash:0", "functions_bash_0"
    made = said(HI, turn(asks(odd), asks(like)), result(odd), result(like))
    ids = [block["id"] for block in made[1]["content"]]

    assert ids == ["functions_bash_0_8497fe9c", "functions_bash_0"]
    assert [block["tool_use_id"] for block in made[2]["content"]] == ids


def test_a_history_with_calls_defines_their_tools_even_where_none_is_offered() -> None:
    made = body(HI, turn(asks("t1")), result("t1"))
    assert (made["tool_choice"], made["tools"]) == (
        {"type": "none"},
        [{"name": "bash", "description": "", "input_schema": {"type": "object"}}],
    )


# --- results and media -------------------------------------------------------------------------

PNG = file("image/png", b"\x89PNG")
PDF = file("application/pdf", b"%PDF", "plan.pdf")
NOTE = file("text/markdown", b"# Note")
SOUND = file("audio/wav", b"RIFF")
BLANK = file("text/plain", b"\n")
MEDIA = {
    one.digest: data
    for one, data in [
        (PNG, b"\x89PNG"),
        (PDF, b"%PDF"),
        (NOTE, b"# Note"),
        (SOUND, b"RIFF"),
        (BLANK, b"\n"),
    ]
}


def source(mime: str, data: bytes) -> dict[str, Any]:
    return {"type": "base64", "media_type": mime, "data": b64encode(data).decode()}


SHOWN: list[tuple[MediaBlock, Any]] = [
    (PNG, {"type": "image", "source": source("image/png", b"\x89PNG")}),
    (
        PDF,
        {"type": "document", "source": source("application/pdf", b"%PDF"), "title": "plan.pdf"},
    ),
    (
        NOTE,
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "# Note"},
        },
    ),
    (SOUND, text("[audio/wav of 4 bytes: not sent, the model takes no such file]")),
    (BLANK, text("[text/plain of 1 bytes: not sent, it is empty]")),
    (
        file("image/png", b"lost"),
        text("[image/png of 4 bytes: not sent, it could not be read]"),
    ),
]


@pytest.mark.parametrize(("block", "shown"), SHOWN)
def test_media_is_sent_in_the_form_of_its_kind_or_told_in_words(
    block: MediaBlock, shown: dict[str, Any]
) -> None:
    asked = UserMessage(content=(TextBlock(text="See:"), block))
    answered = result("t1", "", attachments=(block,))

    assert said(asked, media=MEDIA)[0]["content"] == [text("See:"), shown]
    made = said(HI, turn(asks("t1")), answered, media=MEDIA)
    assert made[-1]["content"] == [{"type": "tool_result", "tool_use_id": "t1", "content": [shown]}]


@pytest.mark.parametrize(
    ("answer", "fields"),
    [
        (result("t1", "out"), {"content": "out"}),
        (result("t1", "\n"), {"content": "(no output)"}),
        (result("t1", "", is_error=True), {"content": "(no output)", "is_error": True}),
        (result("t1", "out", attachments=(PNG,)), {"content": [text("out"), SHOWN[0][1]]}),
    ],
)
def test_a_result_is_never_empty(answer: ToolMessage, fields: dict[str, Any]) -> None:
    made = said(HI, turn(asks("t1")), answer, media=MEDIA)
    assert made[-1]["content"] == [{"type": "tool_result", "tool_use_id": "t1", **fields}]


# --- the native form ---------------------------------------------------------------------------


def test_a_native_form_of_this_family_is_sent_in_place_of_the_content() -> None:
    items = [{"type": "hologram", "shape": [1]}, {**text("So"), "citations": [{"a": 1}]}]
    made = said(HI, turn(TextBlock(text="So"), native=items), HI)
    assert made[1]["content"] == items


@pytest.mark.parametrize(
    "native",
    [
        {"family": "responses", "items": [{"type": "reasoning"}]},
        {"family": "anthropic", "items": []},
        {"family": "anthropic", "items": "?"},
        {"family": "anthropic", "items": [{"text": "a"}]},
        {"family": "anthropic", "items": [{"type": "tool_use"}]},
        {},
    ],
)
def test_any_other_native_form_is_passed_over(native: dict[str, Any]) -> None:
    answer = AssistantMessage(content=(TextBlock(text="So"),), native=native)
    assert said(HI, answer, HI)[1]["content"] == [text("So")]


def test_what_was_kept_of_an_answer_goes_back_as_it_came() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "r"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    ask = {"type": "tool_use", "id": "t.1", "name": "bash", "input": {"command": "ls"}}
    thought = {"type": "thinking", "thinking": "", "signature": "c2ln"}
    content = [thought, search, found, text("So"), ask]
    answer = {"content": content, "stop_reason": "tool_use"}
    decoder = wire().decoder("application/json")
    decoder.feed(msgspec.json.encode(answer))
    done = decoder.end()[-1]
    assert isinstance(done, Done)

    back = AssistantMessage(content=done.content, native=done.native_replay)
    made = said(HI, back, result("t.1"))
    wire_id = made[2]["content"][0]["tool_use_id"]
    assert made[1]["content"] == [thought, search, found, text("So"), ask | {"id": wire_id}]


def test_a_paused_turn_and_what_followed_are_one_message() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    paused = turn(native=[search])
    assert said(HI, paused)[-1] == {"role": "assistant", "content": [search]}
    assert said(HI, paused, turn(TextBlock(text="So")), HI)[1]["content"] == [search, text("So")]


# --- how long, how hard, how freely ------------------------------------------------------------


def asked_for(model: str = "claude-sonnet-4-5", **more: Any) -> dict[str, Any]:
    """What a request says beside the conversation."""
    request = {name: more.pop(name) for name in ("tools", "max_output_tokens") if name in more}
    made = body(HI, to=wire(model, **more), **request)
    return {
        name: value
        for name, value in made.items()
        if name not in {"model", "messages", "stream", "tools"}
    }


@pytest.mark.parametrize(
    ("asked", "limit", "cap"),
    [
        (None, None, 4096),
        (None, 8000, 8000),
        (500, 8000, 500),
        (9000, 8000, 8000),
        (9000, None, 9000),
    ],
)
def test_an_answer_may_be_as_long_as_the_model_and_the_agent_allow(
    asked: int | None, limit: int | None, cap: int
) -> None:
    assert asked_for(max_output=limit, max_output_tokens=asked) == {"max_tokens": cap}


def budget(tokens: int) -> dict[str, Any]:
    return {"type": "enabled", "budget_tokens": tokens}


@pytest.mark.parametrize(
    ("wished", "asked", "limit", "made"),
    [
        (10_000, None, 64_000, (64_000, budget(10_000))),
        (31_999, None, 32_000, (32_000, budget(27_904))),
        (10_000, 8_000, 64_000, (14_096, budget(10_000))),
        (10_000, 100, 64_000, (10_100, budget(10_000))),
        (10_000, 100, None, (10_100, budget(10_000))),
        (10_000, 100, 8_192, (8_192, budget(8_092))),
        (10_000, None, None, (14_096, budget(10_000))),
        (10_000, None, 4_096, (4_096, budget(2_048))),
        (10_000, None, 2_000, (2_000, None)),
        (500, None, 64_000, (64_000, budget(1_024))),
        (0, None, 64_000, (64_000, {"type": "disabled"})),
    ],
)
def test_a_budget_leaves_room_for_the_answer(
    wished: int, asked: int | None, limit: int | None, made: tuple[int, dict[str, Any] | None]
) -> None:
    told = asked_for(
        reasoning=ReasoningWish(budget_tokens=wished), max_output=limit, max_output_tokens=asked
    )
    assert (told["max_tokens"], told.get("thinking")) == made


ADAPTIVE = {"type": "adaptive"}
SEEN = {"type": "adaptive", "display": "summarized"}
NO = {"type": "disabled"}


@pytest.mark.parametrize(
    ("model", "on", "off", "high", "budgeted"),
    [
        ("claude-3-7-sonnet-20250219", budget(16_384), NO, None, budget(2_000)),
        ("claude-sonnet-4-20250514", budget(16_384), NO, None, budget(2_000)),
        ("claude-haiku-4-5-20251001", budget(16_384), NO, None, budget(2_000)),
        ("glm-5", budget(16_384), NO, None, budget(2_000)),
        ("anthropic/claude-opus-4.6", ADAPTIVE, NO, ADAPTIVE, budget(2_000)),
        ("claude-opus-4-8", SEEN, NO, SEEN, SEEN),
        ("claude-sonnet-5", SEEN, NO, SEEN, SEEN),
        ("claude-haiku-5-5", SEEN, NO, SEEN, SEEN),
        ("claude-sonnet-5-5", SEEN, {"type": "between_tools"}, SEEN, SEEN),
        ("claude-opus-5-5", SEEN, None, SEEN, SEEN),
        ("claude-fable-5-1", SEEN, None, SEEN, SEEN),
        ("claude-mythos-preview", SEEN, None, SEEN, SEEN),
    ],
)
def test_thinking_is_asked_for_in_the_words_that_the_model_knows(
    model: str, on: Any, off: Any, high: Any, budgeted: Any
) -> None:
    def told(**wish: Any) -> tuple[Any, Any]:
        made = asked_for(model, reasoning=ReasoningWish(**wish), max_output=64_000)
        return made.get("thinking"), made.get("output_config")

    least = {"effort": "low"} if off is None else None
    assert told(enabled=True) == (on, None)
    assert told(enabled=False) == told(effort="none") == (off, least)
    assert told(effort="high") == (high, {"effort": "high"})
    assert told(effort="minimal") == (high, {"effort": "low"})
    assert told(effort="default") == (None, None)
    assert told(budget_tokens=2_000) == (budgeted, None)


def test_who_wishes_nothing_says_nothing() -> None:
    assert asked_for("claude-opus-5-5") == {"max_tokens": 4096}


@pytest.mark.parametrize(
    ("model", "reasoning", "told"),
    [
        ("claude-sonnet-4-5", None, {"temperature": 0.2}),
        ("claude-sonnet-4-5", ReasoningWish(enabled=False), {"temperature": 0.2}),
        ("claude-sonnet-4-5", ReasoningWish(enabled=True), {}),
        ("claude-opus-4-6", ReasoningWish(effort="low"), {}),
        ("claude-opus-4-7", None, {}),
        ("claude-opus-4-7", ReasoningWish(enabled=False), {}),
    ],
)
def test_a_temperature_is_sent_to_a_model_that_takes_one(
    model: str, reasoning: ReasoningWish | None, told: dict[str, Any]
) -> None:
    made = asked_for(model, reasoning=reasoning, generation=Generation(temperature=0.2, top_p=0.9))
    assert {name: made[name] for name in ("temperature", "top_p") if name in made} == told


def test_a_top_p_is_sent_alone() -> None:
    assert asked_for(generation=Generation(top_p=0.9)) == {"max_tokens": 4096, "top_p": 0.9}


ALONE = ModelCapabilities(parallel_tools=False)


@pytest.mark.parametrize(
    ("choice", "told", "told_to_a_thinker"),
    [
        (None, None, None),
        ("auto", {"type": "auto"}, {"type": "auto"}),
        ("none", {"type": "none"}, {"type": "none"}),
        ("required", {"type": "any"}, {"type": "auto"}),
        ("named:bash", {"type": "tool", "name": "bash"}, {"type": "auto"}),
        ("named:gone", {"type": "auto"}, {"type": "auto"}),
    ],
)
def test_a_tool_is_forced_on_a_model_that_does_not_think(
    choice: str | None, told: Any, told_to_a_thinker: Any
) -> None:
    def made(tools: tuple[ToolSpec, ...] = (BASH,), **more: Any) -> Any:
        generation = Generation(tool_choice=choice)
        return asked_for(tools=tools, generation=generation, **more).get("tool_choice")

    thinks = ReasoningWish(enabled=True)
    assert made() == told
    assert made(reasoning=thinks) == made(model="claude-opus-5-5") == told_to_a_thinker
    assert made(tools=()) is None
    alone = {} if choice == "none" else {"disable_parallel_tool_use": True}
    assert made(capabilities=ALONE) == (told or {"type": "auto"}) | alone


# --- the same bytes ----------------------------------------------------------------------------

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_BLOCKS = st.one_of(
    st.builds(TextBlock, text=_TEXTS),
    st.builds(ThinkingBlock, text=_TEXTS, signature=st.none() | _TEXTS, redacted=st.booleans()),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """What a session may hold: every call has its result, ids are of any family."""
    made: list[Message] = []
    for number in range(draw(st.integers(1, 4))):
        made += [user(one) for one in draw(st.lists(_TEXTS, max_size=2))]
        ids = [f"c.{number}:{each}" for each in range(draw(st.integers(0, 3)))]
        blocks = draw(st.lists(_BLOCKS, max_size=3))
        made.append(turn(*blocks, *map(asks, ids)))
        made += [result(id_, draw(_TEXTS)) for id_ in ids]
    return [*made, HI]


@given(history=histories())
@settings(max_examples=60, deadline=None)
def test_a_growing_history_keeps_its_bytes_and_never_says_what_the_api_refuses(
    history: list[Message],
) -> None:
    to = wire(cache={"rolling": "off"})
    whole = call(*history, to=to, system="s", tools=(BASH,))
    assert call(*history, to=to, system="s", tools=(BASH,)) == whole

    more = call(*history, turn(TextBlock(text="a")), user("b"), to=to, system="s", tools=(BASH,))
    assert more.body.startswith(whole.body.removesuffix(b"]}"))

    messages = msgspec.json.decode(whole.body)["messages"]
    roles = [message["role"] for message in messages]
    assert roles == (["user", "assistant"] * len(roles))[: len(roles)]
    assert roles[-1] == "user"
    for message in messages:
        assert message["content"]
        for block in message["content"]:
            assert block.get("text", "x").strip()
            assert block.get("signature", "x")
            assert block.get("data", "x")
        if message["role"] == "assistant":
            assert message["content"][-1]["type"] in {"text", "tool_use"}
