"""The last gate: what a provider would refuse is mended in a private copy, and said."""

from typing import Any

import pytest
from msgspec import structs

from ipc.content import MediaBlock, TextBlock, ThinkingBlock, ToolCallBlock
from ipc.events import BlockPlace, ModelCapabilities, ReplayDecision
from ipc.events.base import MediaLimit
from tests.fakes.logs import BINDING, call, text
from workers.providers.base import AssistantMessage, Message, ToolMessage, UserMessage
from workers.run.checker import BEGUN, GO_ON, LOST, NOTHING_SAID, REQUEST_MEDIA_BYTES_MAX, check
from workers.run.history import Projection

ASKED = UserMessage(content=(text("go"),))


def place(seq: int, index: int = 0) -> BlockPlace:
    return BlockPlace(seq=seq, index=index)


def projected(*messages: Message, **more: Any) -> Projection:
    """A history whose blocks stand in events 0, 1, 2, ..., one a message."""
    places = []
    for seq, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            attached = (place(seq, n) for n in range(len(message.attachments)))
            places.append((place(seq, -1), *attached))
        else:
            places.append(tuple(place(seq, n) for n in range(len(message.content))))
    return Projection(messages=messages, places=tuple(places), **more)


def turn(*content: Any, native: Any = None) -> AssistantMessage:
    return AssistantMessage(content=content, native=native)


def result(call_id: str, output: str = "done", *attached: MediaBlock) -> ToolMessage:
    return ToolMessage(model_call_id=call_id, name="bash", output=output, attachments=attached)


def picture(size: int = 3, mime: str = "image/png") -> MediaBlock:
    return MediaBlock(mime=mime, digest="d", byte_length=size)  # type: ignore[arg-type]


def lost(call_id: str) -> ToolMessage:
    return ToolMessage(model_call_id=call_id, name="bash", output=LOST, is_error=True)


def test_a_sound_history_goes_through_as_it_was() -> None:
    given = projected(
        ASKED,
        turn(ThinkingBlock(text="hm"), text("so"), call("c1"), call("c2"), native={"family": "x"}),
        result("c1"),
        result("c2"),
        UserMessage(content=(text("and\x1b[0m\r\n\tthen?"),)),
    )

    assert check(given, BINDING) is given


CASES: list[tuple[str, tuple[Message, ...], tuple[Message, ...], dict[str, int]]] = [
    (
        "a call without a result",
        (turn(call("c1"), call("c2")), result("c2")),
        (turn(call("c1"), call("c2")), lost("c1"), result("c2")),
        {"missing_result": 1},
    ),
    (
        "a result that nobody asked for",
        (turn(text("so")), result("c1"), ASKED),
        (turn(text("so")), ASKED),
        {"orphan_result": 1},
    ),
    (
        "a second result",
        (turn(call("c1")), result("c1"), result("c1", "again")),
        (turn(call("c1")), result("c1")),
        {"orphan_result": 1},
    ),
    (
        "results in another order, and late",
        (turn(call("c1"), call("c2")), result("c2"), ASKED, result("c1")),
        (turn(call("c1"), call("c2")), result("c1"), result("c2"), ASKED),
        {"result_order": 2},
    ),
    (
        "one id for two calls",
        (turn(call("c1"), call("c1")), result("c1", "a"), result("c1", "b")),
        (turn(call("c1"), call("c1-2")), result("c1", "a"), result("c1-2", "b")),
        {"duplicate_call_id": 1},
    ),
    (
        "one id in two turns",
        (turn(call("c1")), result("c1"), turn(call("c1")), result("c1")),
        (turn(call("c1")), result("c1"), turn(call("c1-2")), result("c1-2")),
        {"duplicate_call_id": 1},
    ),
    (
        "no id, and an id that no wire takes",
        (turn(call(""), call("a\nb")), result(""), result("a\nb")),
        (turn(call("call"), call("a_b")), result("call"), result("a_b")),
        {"missing_call_id": 1, "bad_call_id": 1},
    ),
    (
        "a name that no wire takes",
        (turn(call("c1", "a b")), result("c1")),
        (turn(call("c1", "a_b")), structs.replace(result("c1"), name="a_b")),
        {"bad_name": 1},
    ),
    (
        "arguments that are no object",
        (turn(call("c1", arguments="{"), call("c2", arguments="")), result("c1"), result("c2")),
        (turn(call("c1"), call("c2")), result("c1"), result("c2")),
        {"broken_arguments": 2},
    ),
    (
        "a NUL in arguments",
        (turn(call("c1", arguments='{"a":["\\u0000"]}')), result("c1")),
        (turn(call("c1", arguments='{"a":["\\ufffd"]}')), result("c1")),
        {"control_characters": 1},
    ),
    (
        "blank text",
        (turn(text(""), call("c1")), result("c1", " "), UserMessage(content=(text("\n"),))),
        (turn(call("c1")), result("c1", NOTHING_SAID)),
        {"empty_text": 3, "empty_message": 1},
    ),
    (
        "characters that providers refuse",
        (turn(text("a\0b")), UserMessage(content=(text("\ud800\x08"),))),
        (turn(text("a\ufffdb")), UserMessage(content=(text("\ufffd\ufffd"),))),
        {"control_characters": 2},
    ),
    (
        "thinking at the end of a turn",
        (turn(text("so"), ThinkingBlock(text="hm", signature="s")), ASKED),
        (turn(text("so")), ASKED),
        {"trailing_thinking": 1},
    ),
    (
        "a turn of nothing",
        (turn(), ASKED),
        (ASKED,),
        {"empty_message": 1},
    ),
    (
        "the model's word at the end",
        (turn(text("so")),),
        (turn(text("so")), UserMessage(content=(text(GO_ON),))),
        {"last_assistant": 1},
    ),
]


@pytest.mark.parametrize(
    ("given", "made", "repairs"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_what_is_wrong_is_mended_and_counted(
    given: tuple[Message, ...], made: tuple[Message, ...], repairs: dict[str, int]
) -> None:
    checked = check(projected(ASKED, *given), BINDING)

    assert checked.messages == (ASKED, *made)
    assert checked.repairs == repairs
    assert check(checked, BINDING) is checked  # and it is sound now


def test_a_message_that_was_mended_has_no_native_form() -> None:
    native = {"family": "anthropic", "items": []}
    given = projected(
        ASKED, turn(text("a\0"), native=native), ASKED, turn(text("b"), native=native)
    )

    checked = check(structs.replace(given, paused=True), BINDING)

    assert checked.messages[1:] == (turn(text("a\ufffd")), ASKED, turn(text("b"), native=native))


def test_the_beginning_is_a_persons_and_decisions_stay_with_their_turns() -> None:
    decided = ReplayDecision(history_index=0, disposition="replayed")
    given = projected(turn(text("so")), ASKED, decisions=(decided,))

    checked = check(given, BINDING)

    assert checked.messages == (UserMessage(content=(text(BEGUN),)), turn(text("so")), ASKED)
    assert checked.places == ((None,), (place(0),), (place(1),))
    assert checked.decisions == (ReplayDecision(history_index=1, disposition="replayed"),)
    assert check(projected(), BINDING).messages == (UserMessage(content=(text(GO_ON),)),)


def test_a_paused_turn_goes_back_as_the_last() -> None:
    given = projected(ASKED, turn(text("so")), paused=True)

    assert check(given, BINDING) is given


def test_places_stay_with_their_blocks() -> None:
    given = projected(
        UserMessage(content=(text(""), text("go"))),
        turn(text(" "), call("c1"), call("c2")),
        result("c2", "b", picture()),
    )

    checked = check(given, BINDING)

    assert checked.places == (
        (place(0, 1),),
        (place(1, 1), place(1, 2)),
        (None,),
        (place(2, -1),),  # the picture is words in the output now
    )


# --- media


def taking(*limits: MediaLimit) -> Any:
    can = ModelCapabilities(input_media=("image/*",), media_limits=limits)
    return structs.replace(BINDING, capabilities=can)


def shown(projection: Projection) -> list[Any]:
    """The media of a history and what was put for them, oldest first."""
    seen: list[Any] = []
    for message in projection.messages:
        if isinstance(message, ToolMessage):
            seen += [message.output.partition("\n\n")[2] or None, *message.attachments]
        else:
            seen += [
                b if isinstance(b, MediaBlock) else getattr(b, "text", None)
                for b in message.content
            ]
    return [one for one in seen if one not in {None, "go"}]


NO_SOUND = "[a file of type audio/wav stood here; it is not sent: this model takes no audio/wav]"


def test_media_that_the_model_does_not_take_is_told_in_words() -> None:
    given = projected(
        UserMessage(content=(text("go"), picture(), picture(mime="audio/wav"))),
        turn(call("c1")),
        result("c1", "seen", picture(mime="audio/wav"), picture()),
    )

    checked = check(given, taking())

    assert checked.messages[0] == UserMessage(
        content=(
            text("go"),
            picture(),
            text(NO_SOUND),
        )
    )
    assert checked.messages[2] == result(
        "c1",
        f"seen\n\n{NO_SOUND}",
        picture(),
    )
    assert checked.places[2] == (place(2, -1), place(2, 1))
    assert checked.repairs == {"dropped_media": 2}
    assert check(checked, taking()) is checked


TOO_LARGE = (
    "[an image stood here; it is not sent: it is image/png of 101 bytes, and this model takes 100]"
)


def test_what_is_too_large_by_itself_is_not_sent() -> None:
    limit = MediaLimit(mime_types=("image/png",), max_bytes=100, max_count=9)
    given = projected(UserMessage(content=(picture(101), picture(100), picture(101, "image/gif"))))

    assert shown(check(given, taking(limit))) == [
        TOO_LARGE,
        picture(100),
        picture(101, "image/gif"),
    ]


def test_the_newest_media_stay_and_the_beginning_changes_seldom() -> None:
    limit = MediaLimit(mime_types=("image/*",), max_bytes=100, max_count=8)
    kept = []
    for count in range(1, 16):
        given = projected(*(UserMessage(content=(picture(n),)) for n in range(1, count + 1)))
        seen = shown(check(given, taking(limit)))
        kept.append([one.byte_length for one in seen if isinstance(one, MediaBlock)])

    assert [len(one) for one in kept] == [1, 2, 3, 4, 5, 6, 7, 8, 6, 7, 8, 6, 7, 8, 6]
    assert kept[8] == [4, 5, 6, 7, 8, 9]
    assert kept[10] == [4, 5, 6, 7, 8, 9, 10, 11]  # nothing before the new ones has changed


def test_all_media_together_are_bounded_and_a_limit_of_none_is_kept() -> None:
    most = REQUEST_MEDIA_BYTES_MAX
    given = projected(UserMessage(content=(picture(most // 2), picture(10), picture(most))))
    assert [one for one in shown(check(given, taking())) if isinstance(one, MediaBlock)] == [
        picture(most)
    ]

    none = MediaLimit(mime_types=("image/*",), max_bytes=100, max_count=0)
    assert not any(isinstance(one, MediaBlock) for one in shown(check(given, taking(none))))


def test_a_text_and_a_call_are_all_that_a_mended_turn_needs() -> None:
    given = projected(
        ASKED,
        turn(TextBlock(text=" "), ToolCallBlock(model_call_id="c", name="bash", arguments="{}")),
    )

    assert check(given, BINDING).messages == (ASKED, turn(call("c")), lost("c"))
