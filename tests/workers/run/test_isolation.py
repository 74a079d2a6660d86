"""A provider names the block that it refuses: it is found in the log, and the session goes on."""

import base64
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import msgspec
import pytest

from ipc.content import MediaBlock, TextBlock, ThinkingBlock, UserInput
from ipc.events import (
    BlockPlace,
    HistoryRepaired,
    ModelAttemptStarted,
    ModelErrorSummary,
    ModelTurn,
    ModelTurnCommitted,
    RunCompleted,
    RunStarted,
    SessionReverted,
    UserInputSubmitted,
)
from ipc.events.codec import encode, read_line
from ipc.fold import fold
from tests.fakes.desk import MemoryDesk, kit
from tests.fakes.logs import ANY, NOTHING_SPENT, Log, call, text
from tests.fakes.poison import FAMILIES, Family
from workers.providers.base import (
    AssistantMessage,
    Done,
    HttpCall,
    Media,
    Part,
    Request,
    TextPart,
    failure,
)
from workers.run.checker import check
from workers.run.drive import drive
from workers.run.history import Projection, project
from workers.run.isolation import ISOLATIONS_MAX, isolate, refused

EACH_FAMILY = pytest.mark.parametrize("name", list(FAMILIES))
SESSION: Any = "01890000-0000-7000-8000-00000000000a"


def picture(name: str) -> MediaBlock:
    return MediaBlock(mime="image/png", digest=name, byte_length=8, name=name)  # type: ignore[arg-type]


PICTURES: Media = {name: f"png of {name}.".encode() for name in ("first", "second", "third")}  # type: ignore[misc]


def a_session(family: Family) -> tuple[Log, dict[str, BlockPlace]]:
    """A session with pictures in a question and in results, and where each stands in its log."""
    log, places = Log(), dict[str, BlockPlace]()
    log.created()
    log.user("hello there")
    asked = UserInput(content=(text("what is this"), picture("first"), text("and that")))
    seq = log.add(UserInputSubmitted(input=asked))
    places["what is this"] = BlockPlace(seq=seq, index=0)
    places["first"] = BlockPlace(seq=seq, index=1)
    places["and that"] = BlockPlace(seq=seq, index=2)
    log.run_started("run")
    arguments = '{"path":"the argument"}'
    calls = (call("call_one", "read", arguments), call("call_two", "read"))
    seq = log.turn(text("let me see"), *calls, model=family.binding.resolved())
    places["let me see"] = BlockPlace(seq=seq, index=0)
    places["the argument"] = BlockPlace(seq=seq, index=1)
    log.started("call_one")
    log.started("call_two")
    seq = log.ended("call_two", "output two", attachments=(picture("second"), picture("third")))
    places["output two"] = BlockPlace(seq=seq, index=-1)
    places["second"] = BlockPlace(seq=seq, index=0)
    places["third"] = BlockPlace(seq=seq, index=1)
    seq = log.ended("call_one", "output one")
    places["output one"] = BlockPlace(seq=seq, index=-1)
    log.user("go on")
    return log, places


def projected(log: Log, family: Family) -> Projection:
    return check(project(fold(log.events).view(), family.binding.resolved()), family.binding)


def asked(projection: Projection) -> Request:
    return Request(system="You are.", messages=projection.messages, session_id=SESSION)


def refusal(message: str, **more: Any) -> ModelErrorSummary:
    kind = more.pop("kind", "invalid_request")
    return failure(kind, message, stage="response_headers", http_status=400, **more).error


def steps(value: Any, needle: str) -> Iterator[str | int]:
    """The way to the string that holds the needle, in a body that was sent."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in pairs:
        if needle in msgspec.json.encode(one).decode():
            yield key
            if isinstance(one, dict | list):
                yield from steps(one, needle)
            return


def said(path: list[str | int], name: str) -> str:
    """A place as the provider of this family says it."""
    root, *rest = path
    if name == "anthropic":
        return f"{root}." + ".".join(map(str, rest))
    return str(root) + "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in rest)


def needle_of(what: str) -> str:
    data = PICTURES.get(what)  # type: ignore[call-overload]
    return what if data is None else base64.b64encode(data).decode()


THINGS = ["first", "second", "third", "let me see", "the argument", "output one", "output two"]


@EACH_FAMILY
@pytest.mark.parametrize("what", THINGS)
def test_the_place_that_a_provider_names_is_found_in_the_log(name: str, what: str) -> None:
    family = FAMILIES[name]
    log, places = a_session(family)
    projection = projected(log, family)
    request = asked(projection)
    path = list(steps(msgspec.json.decode(family.encode(request, PICTURES)), needle_of(what)))
    words = "the image can't be read" if what in {"first", "second", "third"} else "is wrong"

    found = isolate(refusal(f"{said(path, name)}: {words}"), projection, request, family.encode)

    assert found == (places[what],)


@EACH_FAMILY
def test_texts_that_were_sent_as_one_are_isolated_as_one(name: str) -> None:
    family = FAMILIES[name]
    log = Log()
    log.created()
    seq = log.add(UserInputSubmitted(input=UserInput(content=(text("one"), text("two")))))
    projection = projected(log, family)
    request = asked(projection)
    path = list(steps(msgspec.json.decode(family.encode(request, {})), "two"))

    found = isolate(refusal(f"{said(path, name)}: bad"), projection, request, family.encode)

    both = (BlockPlace(seq=seq, index=0), BlockPlace(seq=seq, index=1))
    assert found == (both if name in {"chat", "compatible"} else both[1:])


FORMS = [
    "messages.0.content.2.image.source.base64.data: At least one of the image dimensions exceed",
    "messages.[0].content.[2]: Could not process image",
    "Invalid 'messages[0].content[2].image_url'. Expected a base64-encoded data URL",
    "{'loc': ('body', 'messages', 0, 'content', 2, 'image'), 'msg': 'bad'}",
]


@pytest.mark.parametrize("words", FORMS)
def test_a_place_is_understood_however_it_is_written(words: str) -> None:
    family = FAMILIES["anthropic"]
    log, places = a_session(family)
    projection = projected(log, family)

    assert isolate(refusal(words), projection, asked(projection), family.encode) == (
        places["first"],
    )


def test_of_a_whole_result_it_is_the_newest_picture_that_words_about_pictures_mean() -> None:
    family = FAMILIES["anthropic"]
    log, places = a_session(family)
    projection = projected(log, family)
    error = refusal("messages.2.content.1.tool_result: an image is too large")

    assert isolate(error, projection, asked(projection), family.encode) == (places["third"],)


def test_a_block_that_is_held_back_already_is_not_held_back_again() -> None:
    family = FAMILIES["anthropic"]
    log, places = a_session(family)
    held = HistoryRepaired(attempt_id=ANY, kinds=(), counts=(), isolated=(places["first"],))
    log.add(held)
    log.turn(text("so"))
    log.user("more")
    projection = projected(log, family)
    request = asked(projection)
    state = fold(log.events).view()

    assert refused(state, projection, request, refusal(FORMS[0]), ANY, family.encode) is None
    named = "messages.0.content.1: bad"
    assert refused(state, projection, request, refusal(named), ANY, family.encode) == (
        HistoryRepaired(
            attempt_id=ANY,
            kinds=("isolated",),
            counts=(2,),
            isolated=(places["what is this"],),
        )
    )


def test_a_place_may_stand_in_the_body_alone() -> None:
    family = FAMILIES["responses"]
    log, places = a_session(family)
    projection = projected(log, family)
    error = refusal(
        "Invalid value.", response_body='{"error":{"param":"input[1].content[1].image_url"}}'
    )

    assert isolate(error, projection, asked(projection), family.encode) == (places["first"],)


@pytest.mark.parametrize(
    "words",
    ["image exceeds 5 MB maximum", "Could not process image", "Unable to process input image"],
)
def test_a_picture_without_a_place_is_the_newest(words: str) -> None:
    family = FAMILIES["anthropic"]
    log, places = a_session(family)
    projection = projected(log, family)

    # call_two ended first, but its result stands last
    assert isolate(refusal(words), projection, asked(projection), None) == (places["third"],)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("invalid_request", "This model does not support image input"),
        ("model_not_found", "No endpoints found that support image input"),
    ],
)
def test_a_model_that_takes_no_pictures_is_sent_none_of_them(kind: str, words: str) -> None:
    family = FAMILIES["compatible"]
    log, places = a_session(family)
    projection = projected(log, family)

    found = isolate(refusal(words, kind=kind), projection, asked(projection), family.encode)

    assert found == (places["first"], places["second"], places["third"])


def test_a_call_may_be_named_by_its_id() -> None:
    family = FAMILIES["responses"]
    log, places = a_session(family)
    projection = projected(log, family)
    error = refusal("No tool output found for function call call_one.")

    found = isolate(error, projection, asked(projection), family.encode)

    assert found == (places["the argument"],)


def test_what_only_a_provider_understands_goes_as_a_whole_when_one_of_it_is_stale() -> None:
    family = FAMILIES["anthropic"]
    log = Log()
    log.created()
    log.user("go")
    model = family.binding.resolved()
    first = log.turn(ThinkingBlock(text="hm", signature="s"), text("so"), model=model)
    log.turn(text("plain"), model=model)
    log.user("go on")
    projection = projected(log, family)
    error = refusal("messages.1.content.0: Invalid `signature` in `thinking` block")

    places = isolate(error, projection, asked(projection), family.encode)

    assert places == (BlockPlace(seq=first, index=-1),)
    log.add(HistoryRepaired(attempt_id=ANY, kinds=(), counts=(), isolated=places))
    after = projected(log, family)
    assert [block.text for block in after.messages[1].content] == ["so"]  # type: ignore[union-attr]


def test_a_place_in_a_native_form_is_the_form_itself() -> None:
    family = FAMILIES["anthropic"]
    log = Log()
    log.created()
    log.user("go")
    items = [{"type": "server_tool_use", "id": "srv_1", "name": "x", "input": {}}]
    seq = log.add(
        ModelTurnCommitted(
            attempt_id=ANY,
            model_turn_seq=1,
            input_through_seq=1,
            resolved_model=family.binding.resolved(),
            turn=ModelTurn(
                content=(text("so"),),
                finish_reason="stop",
                usage=NOTHING_SPENT,
                native_replay={
                    "family": "anthropic",
                    "items": [*items, {"type": "text", "text": "so"}],
                },
            ),
        )
    )
    log.user("go on")
    projection = projected(log, family)
    error = refusal("messages.1.content.0: server_tool_use is not permitted")

    places = isolate(error, projection, asked(projection), family.encode)

    assert places == (BlockPlace(seq=seq, index=-1),)
    log.add(HistoryRepaired(attempt_id=ANY, kinds=(), counts=(), isolated=places))
    (turn,) = [m for m in projected(log, family).messages if isinstance(m, AssistantMessage)]
    assert (turn.native, turn.text) == (None, "so")


@pytest.mark.parametrize(
    "error",
    [
        refusal("temperature: must be 1"),
        refusal("messages.99.content.3: no such thing"),
        refusal("messages.1: something about the whole of it"),
        refusal("messages.1.content.0.type: Expected `thinking`, but found `text`"),
        refusal("tools.3.input_schema: bad"),
        refusal("messages.0.content.2: image", kind="overload"),
        refusal("messages.0.content.2: image", kind="model_not_found"),
    ],
)
def test_what_names_no_block_isolates_none(error: ModelErrorSummary) -> None:
    family = FAMILIES["anthropic"]
    log, _ = a_session(family)
    projection = projected(log, family)

    assert isolate(error, projection, asked(projection), family.encode) == ()


# --- case 6: a picture that the API will refuse


class Api:
    """A provider that refuses each picture named bad, by its place, and answers the rest."""

    def __init__(self, family: Family, bad: str) -> None:
        self.family = family
        self.bad = base64.b64encode(bad.encode()).decode()
        self.bodies: list[bytes] = []
        self.media = {name: name.encode() for name in ("bad", "good")}

    def encode(self, request: Request, media: Media) -> HttpCall:
        return self.family.wire().encode(request, media)

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        body = self.encode(request, self.media).body  # type: ignore[arg-type]
        self.family.judge(body, False)
        self.bodies.append(body)
        if self.bad in body.decode():
            place = said(list(steps(msgspec.json.decode(body), self.bad)), self.family.name)
            words = f"{place}: At least one of the image dimensions exceed max allowed size: 8000"
            yield failure("invalid_request", words, stage="response_headers", http_status=400)
            return
        yield TextPart("fine")
        yield Done(content=(text("fine"),), finish_reason="stop", usage=NOTHING_SPENT)


def seen(family: Family, desk: MemoryDesk) -> list[str]:
    """What became of the requests of a session."""
    told = []
    for payload in desk.payloads:
        match payload:
            case ModelAttemptStarted():
                told.append(f"attempt {payload.attempt_ordinal}, retry {payload.retry_ordinal}")
            case HistoryRepaired(isolated=isolated):
                told.append(f"repaired {len(isolated)}")
            case ModelTurnCommitted():
                told.append("turn")
            case RunCompleted():
                told.append("completed")
            case _:
                pass
    return told


def ask_again(desk: MemoryDesk, run: str) -> None:
    """A person says one more thing, and a run like the first one begins."""
    (first,) = (one for one in desk.payloads[:4] if isinstance(one, RunStarted))
    log = Log()
    log.seq, log.run = desk.state.seq, run
    log.user("and now?")
    log.add(first)
    for event in log.events:
        desk.take(event)


@EACH_FAMILY
async def test_case_6_a_refused_picture_is_held_back_and_two_more_turns_succeed(name: str) -> None:
    family = FAMILIES[name]
    api = Api(family, "bad")
    desk = MemoryDesk().open("look", binding=family.binding)
    desk.put(
        UserInputSubmitted(
            input=UserInput(
                content=(
                    text("these"),
                    MediaBlock(mime="image/png", digest="good", byte_length=4),  # type: ignore[arg-type]
                    MediaBlock(mime="image/png", digest="bad", byte_length=3),  # type: ignore[arg-type]
                )
            )
        )
    )

    await drive(desk, kit(api))

    assert seen(family, desk) == [
        "attempt 1, retry 0",
        "repaired 1",
        "attempt 2, retry 0",
        "turn",
        "completed",
    ]
    assert len(api.bodies) == 2
    assert b"[an image stood here; the provider refused it: " in api.bodies[1]
    assert desk.state.runs
    assert desk.payloads[-1] == RunCompleted(final_text="fine")

    lines = [encode(event) for event in desk.events]
    again = MemoryDesk([read_line(line).event for line in lines])  # type: ignore[union-attr]
    for turn in (2, 3):
        ask_again(again, f"run {turn}")
        await drive(again, kit(api))

        assert again.payloads[-1] == RunCompleted(final_text="fine")
    assert len(api.bodies) == 4  # one request a turn: nothing had to be refused again
    good = base64.b64encode(b"good")
    assert all(good in body and api.bad.encode() not in body for body in api.bodies[1:])
    assert api.bodies[2].startswith(api.bodies[1][: api.bodies[1].index(good)])


async def test_a_provider_that_refuses_everything_is_not_asked_for_ever() -> None:
    family = FAMILIES["anthropic"]
    api = Api(family, "")
    desk = MemoryDesk().open("look", binding=family.binding)
    pictures = tuple(
        MediaBlock(mime="image/png", digest="good", byte_length=4)  # type: ignore[arg-type]
        for _ in range(ISOLATIONS_MAX + 3)
    )
    desk.put(UserInputSubmitted(input=UserInput(content=pictures)))
    api.bad = base64.b64encode(b"good").decode()

    await drive(desk, kit(api))

    assert len(api.bodies) == ISOLATIONS_MAX + 1
    assert type(desk.payloads[-1]).__name__ == "RunFailed"


def test_a_block_stays_isolated_after_a_revert() -> None:
    family = FAMILIES["chat"]
    log, places = a_session(family)
    before = log.seq
    held = (places["first"],)
    log.add(HistoryRepaired(attempt_id=ANY, kinds=(), counts=(), isolated=held))
    log.turn(text("so"))
    log.add(SessionReverted(through_seq=before))

    projection = projected(log, family)

    assert projection.messages[1].content[1] == TextBlock(  # type: ignore[union-attr]
        text="[an image stood here; the provider refused it]"
    )
    assert projection.repairs == {"isolated": 1}
