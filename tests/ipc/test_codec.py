"""ipc.events.codec: strict when written, best effort when read, never an exception on bytes."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipc.content import TextBlock, ToolResult, UserInput, user_text
from ipc.events import (
    EVENT_TYPES,
    SEQ_MAX,
    Event,
    RunCompleted,
    RunFailed,
    RunStarted,
    StoredEvent,
    TextDelta,
    ToolCallProgress,
    ToolCallTerminated,
    UserInputSubmitted,
    tag_of,
)
from ipc.events.codec import (
    REASON_CHARS_MAX,
    EncodeFault,
    Read,
    Skipped,
    encode,
    read_line,
)
from ipc.ids import AttemptId, CallId
from tests.fakes.samples import all_samples, anything_in, required_only, samples, stored

DELTA = stored(TextDelta(attempt_id=AttemptId("a"), text="hello"), seq=7)
LINE = encode(DELTA)


def changed(line: bytes, *path: str | int, to: Any) -> bytes:
    """The line with one value replaced; a path ends at a key of an object or a list."""
    whole = msgspec.json.decode(line)
    place = whole
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return msgspec.json.encode(whole)


def without(line: bytes, *path: str) -> bytes:
    """The line without one key."""
    whole = msgspec.json.decode(line)
    place = whole
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return msgspec.json.encode(whole)


def skipped(line: bytes) -> Skipped:
    answer = read_line(line)
    assert isinstance(answer, Skipped)
    return answer


@pytest.mark.parametrize("event", EVENT_TYPES, ids=tag_of)
def test_every_event_is_read_back_as_it_was_written(event: type[Event]) -> None:
    for number, payload in enumerate(samples(event), start=1):
        line = encode(stored(payload, seq=number))
        answer = read_line(line)

        assert answer == Read(stored(payload, seq=number))
        assert encode(answer.event) == line


@pytest.mark.parametrize("event", EVENT_TYPES, ids=tag_of)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_value_of_an_event_round_trips_byte_for_byte(
    event: type[Event], data: st.DataObject
) -> None:
    whole = stored(data.draw(anything_in(event)))
    line = encode(whole)

    assert b"\n" not in line
    assert read_line(line) == Read(whole)
    assert encode(msgspec.structs.replace(whole)) == line


@pytest.mark.parametrize("event", EVENT_TYPES, ids=tag_of)
def test_a_field_of_a_newer_writer_is_passed_over(event: type[Event]) -> None:
    payload = samples(event)[0]
    line = changed(encode(stored(payload)), "payload", "of_a_newer_writer", to={"x": [1]})

    assert read_line(line) == Read(stored(payload))


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_at_all_make_the_reader_raise(line: bytes) -> None:
    assert isinstance(read_line(line), Skipped)


ALL_LINES = [encode(stored(payload)) for payload in all_samples()]


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(ALL_LINES), st.lists(st.integers(0, 10**6), min_size=1, max_size=3))
def test_no_flipped_bit_makes_the_reader_raise(line: bytes, flips: list[int]) -> None:
    hurt = bytearray(line)
    for flip in flips:
        hurt[flip // 8 % len(hurt)] ^= 1 << flip % 8

    answer = read_line(bytes(hurt))

    assert isinstance(answer, Read | Skipped)
    if isinstance(answer, Skipped):
        assert len(answer.reason) <= REASON_CHARS_MAX
        assert answer.reason.isprintable()


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(ALL_LINES), st.integers(0, 10**6), st.binary(max_size=40))
def test_no_torn_line_makes_the_reader_raise(line: bytes, cut: int, tail: bytes) -> None:
    torn = line[: cut % len(line)] + tail
    assert isinstance(read_line(torn), Read | Skipped)
    assert isinstance(read_line(line[: cut % len(line)]), Skipped)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(ALL_LINES), st.data())
def test_no_value_of_a_wrong_type_makes_the_reader_raise(line: bytes, data: st.DataObject) -> None:
    whole = msgspec.json.decode(line)
    place: Any = whole
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            place[key] = data.draw(
                st.sampled_from([None, True, -1, 1.5, "x", [], {}, ["x"], {"type": "text"}, 10**18])
            )
            break
        place = place[key]

    answer = read_line(msgspec.json.encode(whole))

    if isinstance(answer, Read) and not answer.degraded:
        assert isinstance(answer.event, StoredEvent)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"\0" * 4096,
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b"[" * 200_000 + b"]" * 200_000,
        LINE[:-2] + b',"deep":' + b"[" * 200_000 + b"]" * 200_000 + b"}}",
        b"\xff\xfe" + LINE,
        b"\xef\xbb\xbf" + LINE,
        LINE + LINE,
        LINE.replace(b"hello", b"\xf0\x9f"),
        LINE.replace(b"hello", b"\\ud800"),
        LINE.replace(b'"seq":7', b'"seq":1' + b"0" * 40),
        LINE.replace(b'"seq":7', b'"seq":1' + b"0" * 5000),
        LINE.replace(b'"seq":7', b'"seq":1e400'),
        LINE.replace(b'"seq":7', b'"seq":18446744073709551617'),
        LINE.replace(b'"seq":7', b'"seq":-7'),
        LINE.replace(b'"seq":7', b'"seq":0'),
        LINE.replace(b'"seq":7', b'"seq":true'),
        LINE.replace(b'"seq":7', b'"seq":"7"'),
    ],
    ids=lambda line: repr(line[:24]),
)
def test_hostile_lines_are_skipped(line: bytes) -> None:
    assert isinstance(read_line(line), Skipped)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            LINE.replace(b"text_delta", b"text_smell"),
            Skipped("unknown event type 'text_smell'", 7, "text_smell"),
        ),
        (
            changed(LINE, "mood", to="good"),
            Skipped("unknown envelope key 'mood'", 7, "text_delta"),
        ),
        (
            without(LINE, "run_id"),
            Skipped("no required `$.run_id`", 7, "text_delta"),
        ),
        (
            without(LINE, "payload", "text"),
            Skipped("no required `$.payload.text`", 7, "text_delta"),
        ),
        (
            changed(LINE, "payload", "text", to=3),
            Skipped("`$.payload.text`: Expected `str`, got `int`", 7, "text_delta"),
        ),
        (
            changed(LINE, "timestamp", to=None),
            Skipped("`$.timestamp`: Expected `str`, got `null`", 7, "text_delta"),
        ),
        (
            changed(LINE, "seq", to="x"),
            Skipped("no valid seq", None, "text_delta"),
        ),
        (
            changed(LINE, "payload", to=[]),
            Skipped("no payload type", 7, None),
        ),
        (
            LINE[:-3],
            Skipped("not JSON: Input data was truncated", 7, "text_delta"),
        ),
    ],
    ids=lambda value: value.reason if isinstance(value, Skipped) else "",
)
def test_a_skipped_line_says_why_and_which(line: bytes, expected: Skipped) -> None:
    assert read_line(line) == expected


def test_an_optional_field_of_a_wrong_type_gets_its_default_and_a_note() -> None:
    line = changed(encode(stored(RunCompleted(final_text="done"))), "payload", "final_text", to=5)

    assert read_line(line) == Read(
        stored(RunCompleted()),
        ("default taken: `$.payload.final_text`: Expected `str | null`, got `int`",),
    )


def test_an_absent_optional_field_is_how_an_older_writer_looks() -> None:
    line = without(encode(stored(RunCompleted(final_text="done"))), "payload", "final_text")
    assert read_line(line) == Read(stored(RunCompleted()))


@pytest.mark.parametrize("event", EVENT_TYPES, ids=tag_of)
def test_a_line_without_any_optional_field_is_read_with_the_defaults(event: type[Event]) -> None:
    for payload in samples(event):
        answer = read_line(msgspec.json.encode(required_only(stored(payload))))

        assert isinstance(answer, Read)
        assert answer.degraded == ()
        assert required_only(answer.event) == required_only(stored(payload))


def test_the_engine_version_of_the_envelope_is_optional_too() -> None:
    bare = msgspec.structs.replace(DELTA, engine_version=None)
    assert read_line(without(LINE, "engine_version")) == Read(bare)
    answer = read_line(changed(LINE, "engine_version", to=[1]))
    assert isinstance(answer, Read)
    assert (answer.event, len(answer.degraded)) == (bare, 1)


def test_deep_inside_a_record_only_the_broken_optional_part_is_lost() -> None:
    whole = next(p for p in samples(RunStarted) if isinstance(p, RunStarted))
    line = encode(stored(whole))
    hurt = changed(line, "payload", "selected_suffix", 0, "pricing", "cache_read", to="dear")
    hurt = changed(hurt, "payload", "agent", "delegation", "targets", to=7)

    answer = read_line(hurt)

    assert isinstance(answer, Read)
    read = answer.event.payload
    assert isinstance(read, RunStarted)
    (binding,) = read.selected_suffix
    assert binding.pricing is not None
    assert binding.pricing.cache_read is None
    assert binding.pricing.cache_write is not None
    assert read.agent.delegation is None  # its targets are required, so it goes as a whole
    assert read.client_run_id == whole.client_run_id
    assert [note.split(":")[1] for note in answer.degraded] == [
        " `$.payload.agent.delegation.targets`",
        " `$.payload.selected_suffix[0].pricing.cache_read`",
    ]


def test_a_display_block_of_a_newer_writer_costs_the_display_and_nothing_else() -> None:
    whole = next(
        p for p in samples(ToolCallTerminated) if isinstance(p, ToolCallTerminated) and p.result
    )
    line = changed(
        encode(stored(whole)), "payload", "result", "display", 0, to={"kind": "hologram"}
    )

    answer = read_line(line)

    assert isinstance(answer, Read)
    assert isinstance(answer.event.payload, ToolCallTerminated)
    assert answer.event.payload.result is not None
    assert answer.event.payload.result.display == ()
    assert len(answer.degraded) == 1


def test_a_block_of_a_newer_writer_in_required_content_skips_the_event() -> None:
    line = encode(stored(UserInputSubmitted(input=user_text("hi"))))
    hurt = changed(line, "payload", "input", "content", 0, to={"type": "smell", "of": "roses"})
    assert skipped(hurt).type == "user_input_submitted"


def test_notes_and_reasons_are_bounded_and_safe_to_print() -> None:
    line = changed(LINE, "payload", "type", to="\x1b]0;x\x07" + "y" * 10_000)
    reason = skipped(line).reason
    assert len(reason) == REASON_CHARS_MAX
    assert reason.isprintable()


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\v", "\f", "\r", "\n", "\0", "\x1c"])
def test_no_character_of_a_text_ends_a_line(mark: str) -> None:
    text = f"a{mark}b"
    payload = UserInputSubmitted(input=UserInput(content=(TextBlock(text=text),)))
    line = encode(stored(payload))

    assert b"\n" not in line
    assert b"\r" not in line
    assert read_line(line) == Read(stored(payload))


def test_a_line_of_windows_or_with_blanks_around_it_is_read() -> None:
    assert read_line(b" " + LINE + b"\r") == Read(DELTA)


CALL = CallId("c")


def terminated(**metadata: Any) -> Event:
    whole = samples(ToolCallTerminated)[0]
    assert isinstance(whole, ToolCallTerminated)
    result = ToolResult(title="t", output="o", metadata=metadata)
    return msgspec.structs.replace(whole, result=result)


@pytest.mark.parametrize(
    "payload",
    [
        TextDelta(attempt_id=AttemptId("a"), text="\ud800"),
        TextDelta(attempt_id=AttemptId("a"), text=None),  # type: ignore[arg-type]
        TextDelta(attempt_id=AttemptId("a"), text=b"x"),  # type: ignore[arg-type]
        UserInputSubmitted(input=UserInput(content=[TextBlock(text="x")])),  # type: ignore[arg-type]
        terminated(ratio=math.nan),
        terminated(ratio=math.inf),
        terminated(deep=[{"ratio": -math.inf}]),
        terminated(pair=(1, 2)),
        terminated(**{"\udfff": 1}),
        terminated(self=object()),
        terminated(digits={1: "one"}),
        RunFailed(error="x" * 4097),
        ToolCallProgress(tool_call_id=CALL, message="x" * 1025),
        ToolCallProgress(tool_call_id=CALL, message="x", output_chunk="x" * 1025),
    ],
    ids=lambda payload: repr(payload)[:40].encode("ascii", "replace").decode(),
)
def test_what_could_not_be_read_back_is_never_written(payload: Event) -> None:
    with pytest.raises(EncodeFault):
        encode(stored(payload))


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 0},
        {"seq": -1},
        {"seq": SEQ_MAX + 1},
        {"seq": True},
        {"run_id": 5},
        {"session_id": None},
        {"engine_version": "\ud800"},
        {"timestamp": "2026-01-02T03:04:05Z"},
        {"timestamp": "2026-01-02T03:04:05.678+00:00"},
        {"timestamp": "2026-01-02 03:04:05.678Z"},
        {"timestamp": "2026-01-02T03:04:05.678Z\n"},
        {"timestamp": "2026-13-99T03:04:05.678Z"},
        {"timestamp": ""},
    ],
    ids=repr,
)
def test_an_envelope_is_checked_like_its_payload(change: dict[str, Any]) -> None:
    with pytest.raises(EncodeFault):
        encode(msgspec.structs.replace(DELTA, **change))


def test_a_refusal_names_the_event_and_the_reason() -> None:
    with pytest.raises(EncodeFault) as refusal:
        encode(stored(RunFailed(error="x" * 5000), seq=9))
    assert refusal.value.code == "event_not_encodable"
    assert refusal.value.facts == {
        "event": "run_failed",
        "seq": 9,
        "reason": "error has 5000 characters, at most 4096 fit",
    }


def test_a_number_of_any_size_comes_back_or_is_refused() -> None:
    for number in (2**63, 2**64, -(2**64), 10**30):
        assert read_line(encode(stored(terminated(number=number)))) == Read(
            stored(terminated(number=number))
        )
    with pytest.raises(EncodeFault):
        encode(stored(terminated(number=10**5000)))


def test_data_nested_too_deeply_for_a_reader_is_refused_by_the_writer() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    try:
        with pytest.raises(EncodeFault):
            encode(stored(terminated(deep=deep)))
    finally:
        while deep:  # a list this deep may not be freed recursively
            deep = deep.pop()
