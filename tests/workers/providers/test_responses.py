"""What a request says on the wire of the Responses API, and what never stands in one."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ipc.content import MediaBlock, TextBlock, ThinkingBlock, ToolCallBlock
from ipc.events import FrozenModelBinding
from ipc.events.base import Generation, ModelCapabilities, ReasoningWish
from ipc.ids import Digest, ModelKey, ProviderId
from tests.fakes import strict
from tests.fakes.conversation import SESSION, request, user
from workers.providers import ADAPTORS, make
from workers.providers.base import (
    AssistantMessage,
    CannotEncode,
    Done,
    HttpCall,
    Message,
    Outside,
    ToolMessage,
    ToolSpec,
)
from workers.providers.responses import Responses

REASONS = ModelCapabilities(reasoning=True)
TOOL = ToolSpec(
    name="bash",
    description="Run a command.",
    parameters={
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
)


def binding(**more: Any) -> FrozenModelBinding:
    """A model at OpenAI, changed as the test says."""
    facts: dict[str, Any] = {
        "model": ModelKey("p/m"),
        "provider_id": ProviderId("p"),
        "adaptor": "openai-responses",
        "wire_model": "m-1",
    }
    return FrozenModelBinding(**facts | more)


def compatible(**more: Any) -> FrozenModelBinding:
    """A model behind a compatible server that speaks this wire."""
    return binding(
        adaptor="openai-compatible",
        endpoint="http://127.0.0.1:8080/v1",
        options={"request_endpoint": "responses"},
        **more,
    )


def called(
    *messages: Message,
    bound: FrozenModelBinding | None = None,
    media: dict[Digest, bytes] | None = None,
    tools: tuple[ToolSpec, ...] = (),
    **more: Any,
) -> HttpCall:
    asked = structs.replace(request(*(messages or [user("hi")]), **more), tools=tools)
    return Responses(bound or binding()).encode(asked, media or {})


def body(*messages: Message, **more: Any) -> dict[str, Any]:
    """The JSON of a request."""
    made: dict[str, Any] = json.loads(called(*messages, **more).body)
    return made


def said(*messages: Message, **more: Any) -> list[dict[str, Any]]:
    """The input of a request."""
    made: list[dict[str, Any]] = body(*messages, **more)["input"]
    return made


def call(number: int, arguments: str = "{}", **more: Any) -> ToolCallBlock:
    facts = {"model_call_id": f"call_{number}", "name": "bash", "arguments": arguments}
    return ToolCallBlock(**facts | more)


def result(number: int, output: str = "ok", **more: Any) -> ToolMessage:
    facts: dict[str, Any] = {"model_call_id": f"call_{number}", "name": "bash", "output": output}
    return ToolMessage(**facts | more)


def turn(
    *content: Any, native: list[Any] | None = None, family: str = "responses"
) -> AssistantMessage:
    blocks = tuple(TextBlock(text=one) if isinstance(one, str) else one for one in content)
    kept = None if native is None else {"family": family, "items": native}
    return AssistantMessage(content=blocks, native=kept)


def picture(mime: str = "image/png", name: str | None = None) -> MediaBlock:
    return MediaBlock(mime=mime, digest=Digest("d1"), byte_length=3, name=name)


def text_in(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def user_in(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(parts)}


def answer_in(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text}
    return {"type": "message", "role": "assistant", "content": [part]}


def call_in(number: int, arguments: str = "{}") -> dict[str, Any]:
    facts = {"type": "function_call", "call_id": f"call_{number}"}
    return facts | {"name": "bash", "arguments": arguments}


def output_in(number: int, output: Any = "ok") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": output}


BYTES = {Digest("d1"): b"\x89P\n"}
URL = "data:%s;base64," + base64.b64encode(b"\x89P\n").decode()


# --- the whole of it ---------------------------------------------------------------------------


def test_a_request_says_all_of_this_in_this_order() -> None:
    wish = ReasoningWish(effort="high")
    generation = Generation(temperature=0.5, top_p=0.9, tool_choice="auto")
    bound = binding(capabilities=REASONS, reasoning=wish, generation=generation)

    made = called(
        user("list them"),
        turn("I look.", call(1, '{"command":"ls"}')),
        result(1, "a\nb"),
        bound=bound,
        tools=(TOOL,),
        system="You are cookie.",
        max_output_tokens=4000,
    )

    assert made.url == "https://api.openai.com/v1/responses"
    assert made.headers == {"content-type": "application/json", "accept": "text/event-stream"}
    assert made.body.decode() == (
        '{"model":"m-1","stream":true,"store":false,"include":["reasoning.encrypted_content"],'
        '"max_output_tokens":4000,"temperature":0.5,"top_p":0.9,'
        '"reasoning":{"effort":"high","summary":"auto"},'
        f'"prompt_cache_key":"{SESSION}",'
        '"instructions":"You are cookie.",'
        '"tools":[{"type":"function","name":"bash","description":"Run a command.",'
        '"parameters":{"type":"object","properties":{"command":{"type":"string"}},'
        '"required":["command"]},"strict":false}],'
        '"tool_choice":"auto","parallel_tool_calls":true,'
        '"input":[{"type":"message","role":"user","content":[{"type":"input_text",'
        '"text":"list them"}]},'
        '{"type":"message","role":"assistant","content":[{"type":"output_text",'
        '"text":"I look."}]},'
        '{"type":"function_call","call_id":"call_1","name":"bash",'
        '"arguments":"{\\"command\\":\\"ls\\"}"},'
        '{"type":"function_call_output","call_id":"call_1","output":"a\\nb"}]}'
    )


def test_the_least_request_says_this() -> None:
    assert body(user("hi")) == {
        "model": "m-1",
        "stream": True,
        "store": False,
        "prompt_cache_key": SESSION,
        "input": [user_in(text_in("hi"))],
    }


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        (None, "https://api.openai.com/v1/responses"),
        ("http://127.0.0.1:1234/v1/", "http://127.0.0.1:1234/v1/responses"),
        ("https://x/v1/responses", "https://x/v1/responses"),
        ("https://x/y?version=1#z", "https://x/y/responses?version=1"),
    ],
)
def test_a_request_goes_below_its_endpoint(endpoint: str | None, url: str) -> None:
    assert called(bound=binding(endpoint=endpoint)).url == url


def test_a_compatible_provider_needs_an_endpoint() -> None:
    with pytest.raises(CannotEncode, match="needs an endpoint"):
        called(bound=binding(adaptor="openai-compatible"))


def test_organization_and_project_are_headers() -> None:
    bound = binding(options={"organization": "org-1", "project": "proj-1", "store": False})

    assert called(bound=bound).headers == {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "openai-organization": "org-1",
        "openai-project": "proj-1",
    }


def test_both_ways_to_this_wire_are_known() -> None:
    assert ADAPTORS["openai-responses"] == "workers.providers.responses"
    for bound in (binding(), compatible(), structs.replace(compatible(), adaptor="openai-chat")):
        assert hasattr(make(bound, Outside()), "stream")


# --- settings ----------------------------------------------------------------------------------

BARE = {"model", "stream", "store", "input", "prompt_cache_key"}


@pytest.mark.parametrize(
    ("facts", "asked", "settings"),
    [
        ({}, {}, {}),
        ({}, {"max_output_tokens": 100}, {"max_output_tokens": 100}),
        ({}, {"max_output_tokens": 1}, {"max_output_tokens": 16}),
        ({"max_output": 32000}, {}, {}),
        ({"generation": Generation(temperature=0.0)}, {}, {"temperature": 0.0}),
        ({"generation": Generation(top_p=0.1)}, {}, {"top_p": 0.1}),
        ({"generation": Generation(tool_choice="none")}, {}, {}),
        ({"capabilities": REASONS}, {}, {"include": ["reasoning.encrypted_content"]}),
        ({"capabilities": ModelCapabilities(reasoning=True, native_replay="unsupported")}, {}, {}),
        ({}, {"system": " \n"}, {}),
        ({}, {"system": " be brief "}, {"instructions": " be brief "}),
    ],
)
def test_settings_are_said_where_they_are_set(
    facts: dict[str, Any], asked: dict[str, Any], settings: dict[str, Any]
) -> None:
    made = body(bound=binding(**facts), **asked)

    assert {name: value for name, value in made.items() if name not in BARE} == settings


@pytest.mark.parametrize(
    ("wish", "reasoning"),
    [
        (ReasoningWish(effort="low"), {"effort": "low", "summary": "auto"}),
        (ReasoningWish(effort="xhigh"), {"effort": "xhigh", "summary": "auto"}),
        (ReasoningWish(effort="default"), {"summary": "auto"}),
        (ReasoningWish(effort="none"), {"effort": "none"}),
        (ReasoningWish(enabled=True), {"summary": "auto"}),
        (ReasoningWish(enabled=False), {"effort": "none"}),
    ],
)
def test_a_wish_for_thinking_is_a_word(wish: ReasoningWish, reasoning: dict[str, str]) -> None:
    made = body(bound=binding(reasoning=wish))

    assert made["reasoning"] == reasoning
    assert made["include"] == ["reasoning.encrypted_content"]


@pytest.mark.parametrize(
    "facts",
    [
        {"reasoning": ReasoningWish(budget_tokens=1000)},
        {"generation": Generation(stop=("x",))},
        {"generation": Generation(seed=0)},
    ],
)
def test_what_this_wire_has_no_word_for_is_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(CannotEncode) as refused:
        called(bound=binding(**facts))

    assert refused.value.kind == "unsupported"


@pytest.mark.parametrize(
    ("choice", "parallel", "told"),
    [
        (None, True, {"parallel_tool_calls": True}),
        (None, False, {"parallel_tool_calls": False}),
        ("required", True, {"tool_choice": "required", "parallel_tool_calls": True}),
        (
            "named:bash",
            True,
            {"tool_choice": {"type": "function", "name": "bash"}, "parallel_tool_calls": True},
        ),
    ],
)
def test_tools_are_offered_as_they_are(
    choice: str | None, parallel: bool, told: dict[str, Any]
) -> None:
    capabilities = ModelCapabilities(parallel_tools=parallel)
    bound = binding(generation=Generation(tool_choice=choice), capabilities=capabilities)
    silent = ToolSpec(name="now", description="", parameters={})

    made = body(bound=bound, tools=(TOOL, silent))

    assert {name: value for name, value in made.items() if name not in BARE} == told | {
        "tools": [
            {
                "type": "function",
                "name": "bash",
                "description": "Run a command.",
                "parameters": TOOL.parameters,
                "strict": False,
            },
            {"type": "function", "name": "now", "parameters": {}, "strict": False},
        ]
    }


# --- the provider's cache ----------------------------------------------------------------------

MARK = {"mode": "explicit"}


@pytest.mark.parametrize(
    ("bound", "told"),
    [
        (binding(), {"prompt_cache_key": SESSION}),
        (binding(adaptor="openai-chat"), {"prompt_cache_key": SESSION}),
        (binding(cache={}), {"prompt_cache_key": SESSION}),
        (
            binding(cache={"prompt_cache_key": "mine", "mode": "auto", "ttl": None}),
            {"prompt_cache_key": SESSION},
        ),
        (
            binding(cache={"prompt_cache_retention": "24h"}),
            {"prompt_cache_key": SESSION, "prompt_cache_retention": "24h"},
        ),
        (
            binding(cache={"mode": "explicit", "ttl": "30m"}),
            {
                "prompt_cache_key": SESSION,
                "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
            },
        ),
        (compatible(), {"prompt_cache_key": SESSION}),
        (compatible(cache={"prompt_cache_key": ""}), {}),
        (
            compatible(cache={"prompt_cache_key": "team-${session_id}"}),
            {"prompt_cache_key": f"team-{SESSION}"},
        ),
        (compatible(cache={"prompt_cache_key": "team"}), {"prompt_cache_key": "team"}),
    ],
)
def test_the_cache_is_told_which_session_it_is(
    bound: FrozenModelBinding, told: dict[str, Any]
) -> None:
    made = body(bound=bound)

    assert {name: value for name, value in made.items() if name.startswith("prompt_")} == told


def test_a_mark_behind_the_system_prompt_makes_it_a_message() -> None:
    made = body(user("hi"), bound=binding(cache={"system": True}), system="be brief")

    assert "instructions" not in made
    assert made["input"] == [
        {
            "type": "message",
            "role": "developer",
            "content": [text_in("be brief") | {"prompt_cache_breakpoint": MARK}],
        },
        user_in(text_in("hi")),
    ]


def test_rolling_marks_stay_where_they_were() -> None:
    marked = {"prompt_cache_breakpoint": MARK}
    lost = text_in("[image/png of 3 bytes: not sent, its bytes could not be read]")

    assert said(
        user("a"),
        turn("b", call(1), call(2)),
        result(1, attachments=(picture(),)),
        result(2, "two", attachments=(picture(),)),
        user("c"),
        bound=binding(cache={"rolling": True}),
    ) == [
        user_in(text_in("a") | marked),
        answer_in("b"),
        call_in(1),
        call_in(2),
        output_in(1, [text_in("ok"), lost]),
        output_in(2, [text_in("two"), lost | marked]),
        user_in(text_in("c") | marked),
    ]


# --- media -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            picture(),
            {"type": "input_image", "detail": "auto", "image_url": URL % "image/png"},
        ),
        (
            picture("IMAGE/JPEG"),
            {"type": "input_image", "detail": "auto", "image_url": URL % "image/jpeg"},
        ),
        (
            picture("application/pdf", "a.pdf"),
            {
                "type": "input_file",
                "filename": "a.pdf",
                "file_data": URL % "application/pdf",
            },
        ),
        (
            picture("application/pdf"),
            {
                "type": "input_file",
                "filename": "document.pdf",
                "file_data": URL % "application/pdf",
            },
        ),
        (
            picture("audio/wav"),
            text_in("[audio/wav of 3 bytes: not sent, this API has no form for it]"),
        ),
        (
            picture("image/tiff"),
            text_in("[image/tiff of 3 bytes: not sent, this API has no form for it]"),
        ),
    ],
)
def test_media_are_sent_in_the_family_s_form(block: MediaBlock, part: dict[str, Any]) -> None:
    told = user("see")
    seen = structs.replace(told, content=(*told.content, block))

    assert said(seen, media=BYTES) == [user_in(text_in("see"), part)]


def test_media_of_a_tool_are_in_its_result() -> None:
    assert said(user("a"), turn(call(1)), result(1, "here", attachments=(picture(),)), media=BYTES)[
        -1
    ] == output_in(
        1,
        [
            text_in("here"),
            {"type": "input_image", "detail": "auto", "image_url": URL % "image/png"},
        ],
    )


def test_a_picture_alone_is_a_message() -> None:
    told = structs.replace(user(""), content=(TextBlock(text=" "), picture()))

    assert said(told) == [
        user_in(text_in("[image/png of 3 bytes: not sent, its bytes could not be read]"))
    ]


def test_a_picture_that_a_model_made_is_told_in_words() -> None:
    why = "a turn of a model can't hold it here"

    assert said(user("a"), turn("b", picture()), user("c"), media=BYTES)[1:3] == [
        answer_in("b"),
        answer_in(f"[image/png of 3 bytes: not sent, {why}]"),
    ]


# --- what never stands in a request --------------------------------------------------------------


def test_empty_text_and_foreign_thinking_are_left_out() -> None:
    assert said(
        user("a"),
        turn("", " \n", ThinkingBlock(text="hm", signature="foreign"), "b"),
        user(" "),
        turn(ThinkingBlock(text="hm")),
        turn(),
        user("c"),
    ) == [user_in(text_in("a")), answer_in("b"), user_in(text_in("c"))]


def test_the_order_of_text_and_calls_is_kept() -> None:
    assert said(user("a"), turn("b", call(1), "c"), result(1, " ")) == [
        user_in(text_in("a")),
        answer_in("b"),
        call_in(1),
        answer_in("c"),
        output_in(1, "(no output)"),
    ]


def test_no_item_has_an_id() -> None:
    made = said(user("a"), turn(call(1, provider_item_id="fc_1")), result(1))

    assert made[1:] == [call_in(1), output_in(1)]


@pytest.mark.parametrize("arguments", ["", "{}"])
def test_a_call_without_arguments_has_an_empty_object(arguments: str) -> None:
    assert said(user("a"), turn(call(1, arguments)), result(1))[1] == call_in(1)


@pytest.mark.parametrize("arguments", ["{", "[]", "null", "1", "{}x", '{"a":"\ud83d"}'])
def test_broken_arguments_cannot_be_said(arguments: str) -> None:
    with pytest.raises(CannotEncode, match="no JSON object"):
        called(user("a"), turn(call(1, arguments)), result(1))


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([user(" ")], "nothing to answer"),
        ([turn("")], "nothing to answer"),
        ([user("a"), turn(call(1))], "no result: call_1"),
        ([user("a"), turn(call(1), call(2)), result(2)], "no result: call_1"),
        ([user("a"), turn(call(1)), user("b"), result(1)], "no result: call_1"),
        ([user("a"), turn("b"), result(1)], "no open call: 'call_1'"),
        ([user("a"), turn(call(1)), result(1), result(1)], "no open call: 'call_1'"),
        ([user("a"), turn(call(1), call(1)), result(1), result(1)], "there twice"),
        ([user("a"), turn(call(1)), result(1), turn(call(1)), result(1)], "there twice"),
        ([user("a\ud83d")], "no JSON"),
    ],
)
def test_a_history_that_would_be_refused_cannot_be_said(
    messages: list[Message], reason: str
) -> None:
    with pytest.raises(CannotEncode, match=reason) as refused:
        called(*messages)

    assert refused.value.kind == "invalid_request"


@pytest.mark.parametrize(
    "call_id",
    ["x" * 65, "", "a b", "\N{SNOWMAN}", "call\n"],
    ids=["long", "none", "gap", "odd", "line"],
)
def test_an_id_that_the_api_refuses_is_another_one_on_the_wire(call_id: str) -> None:
    messages = (
        user("a"),
        turn(call(1, model_call_id=call_id), call(2)),
        result(2),
        result(1, model_call_id=call_id),
    )
    made = said(*messages)

    assert made == said(*messages)
    assert (made[1]["call_id"], made[2]["call_id"]) == (made[4]["call_id"], made[3]["call_id"])
    assert made[1]["call_id"].startswith("call_")
    assert len(made[1]["call_id"]) == 29


# --- native replay -----------------------------------------------------------------------------

SEALED = {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
SEARCH = {"type": "web_search_call", "status": "completed", "action": {"type": "search"}}


def test_a_turn_goes_back_in_the_items_that_it_came_in() -> None:
    items = [SEALED, SEARCH, {**call_in(1), "namespace": "zz"}, {"type": "zz", "id": "zz_1"}]

    assert said(user("a"), turn(ThinkingBlock(text="t"), call(1), native=items), result(1)) == [
        user_in(text_in("a")),
        *items,
        output_in(1),
    ]


@pytest.mark.parametrize(
    ("message", "bound"),
    [
        (turn("b", native=[SEALED, answer_in("native")], family="chat"), None),
        (turn("b", native=[SEALED, answer_in("native"), call_in(1)]), None),
        (turn("b", native=[SEALED]), None),
        (turn("b", native=[]), None),
        (turn("b", native=["zz"]), None),
        (turn("b", native=[{"type": 7}]), None),
        (
            turn("b", native=[SEALED, answer_in("native")]),
            binding(capabilities=ModelCapabilities(native_replay="unsupported")),
        ),
    ],
    ids=["foreign", "other calls", "no answer", "empty", "no items", "no types", "unsupported"],
)
def test_a_native_form_that_does_not_fit_is_ignored(
    message: AssistantMessage, bound: FrozenModelBinding | None
) -> None:
    assert said(user("a"), message, user("c"), bound=bound) == [
        user_in(text_in("a")),
        answer_in("b"),
        user_in(text_in("c")),
    ]


def test_calls_that_nobody_answers_and_reasoning_before_nothing_stay_here() -> None:
    custom = {"type": "custom_tool_call", "call_id": "c_1", "name": "n", "input": "i"}
    hosted = {"type": "shell_call", "call_id": "s_1"}
    shown = {"type": "shell_call_output", "call_id": "s_1", "output": []}
    items = [hosted, shown, SEALED, answer_in("b"), SEALED, custom]

    assert said(user("a"), turn("b", native=items), user("c"))[1:-1] == [
        hosted,
        shown,
        SEALED,
        answer_in("b"),
    ]


def test_a_native_call_is_held_to_the_same_rules() -> None:
    with pytest.raises(CannotEncode, match="no JSON object"):
        called(user("a"), turn(call(1), native=[SEALED, call_in(1, "{")]), result(1))
    with pytest.raises(CannotEncode, match="no result"):
        called(user("a"), turn(call(1), native=[SEALED, call_in(1)]))
    long = "x" * 70
    made = said(
        user("a"),
        turn(call(1, model_call_id=long), native=[SEALED, {**call_in(1), "call_id": long}]),
        result(1, model_call_id=long),
    )
    assert made[2]["call_id"] == made[3]["call_id"] != long


def test_what_came_in_a_stream_goes_back_as_the_api_wants_it() -> None:
    reasoning = {
        "id": "rs_1", "type": "reasoning", "status": None, "content": [],
        "summary": [{"type": "summary_text", "text": "t"}], "encrypted_content": "gAAA",
    }  # fmt: skip
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [
            {"type": "output_text", "text": "b", "annotations": [], "logprobs": []},
            {"type": "output_text", "text": " ", "annotations": []},
        ],
    }  # fmt: skip
    asked = {"id": "fc_1", "status": "completed", **call_in(1, '{"command":"ls"}')}
    items = [reasoning, message, asked]
    told = {"id": "r", "model": "m", "status": "completed", "output": items}
    decoder = Responses(binding()).decoder("application/json")
    decoder.feed(json.dumps(told).encode())
    done = decoder.end()[-1]
    assert isinstance(done, Done)

    replayed = AssistantMessage(content=done.content, native=done.native_replay)

    strict.responses(called(user("a"), replayed, result(1)).body)
    assert said(user("a"), replayed, result(1)) == [
        user_in(text_in("a")),
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "t"}],
            "encrypted_content": "gAAA",
        },
        answer_in("b"),
        call_in(1, '{"command":"ls"}'),
        output_in(1),
    ]
    assert [item["call_id"] for item in (done.native_replay or {})["items"][2:]] == [
        block.model_call_id for block in done.content if isinstance(block, ToolCallBlock)
    ]


# --- the same history, the same bytes ------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Rounds of a person, a model and its tools, as the history room lets them out."""
    made: list[Message] = []
    for number in range(draw(st.integers(1, 4))):
        made.append(user(draw(st.sampled_from(["hi", "\N{SNOWMAN}", '"quoted"\n']))))
        calls = [call(10 * number + each) for each in range(draw(st.integers(0, 3)))]
        text = draw(st.sampled_from(["", "so", "é\n"])) or ("so" if not calls else "")
        native = [answer_in("so"), *(call_in(10 * number + each) for each in range(len(calls)))]
        made.append(turn(text, *calls, native=draw(st.sampled_from([None, [SEALED, *native]]))))
        for each in range(len(calls)):
            attachments = draw(st.sampled_from([(), (picture(),)]))
            output = draw(st.sampled_from(["ok", "", "x" * 100]))
            made.append(result(10 * number + each, output, attachments=attachments))
    return made


CACHES: list[dict[str, Any] | None] = [
    None,
    {"prompt_cache_retention": "24h"},
    {"mode": "explicit", "ttl": "30m", "system": True, "rolling": True},
]


@given(history=histories(), cache=st.sampled_from(CACHES))
def test_a_history_that_grows_keeps_its_bytes(
    history: list[Message], cache: dict[str, Any] | None
) -> None:
    bound = binding(cache=cache, capabilities=REASONS)
    facts: dict[str, Any] = {"bound": bound, "media": BYTES, "tools": (TOOL,), "system": "s"}
    whole = called(*history, user("more"), **facts).body

    strict.responses(whole)
    assert called(*history, user("more"), **facts).body == whole
    ends = [i for i, each in enumerate(history) if not isinstance(each, AssistantMessage)]
    for end in ends:
        after = history[end + 1 : end + 2]
        if after and isinstance(after[0], ToolMessage):
            continue
        part = called(*history[: end + 1], **facts).body
        assert part.endswith(b"]}")
        assert whole.startswith(part[:-2])
