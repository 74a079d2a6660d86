"""The provider seam: how parts make a turn, and what a part stream may not do."""

from collections.abc import AsyncGenerator, Sequence

import pytest

from ipc.content import TextBlock, ThinkingBlock, ToolCallBlock, TurnBlock, Usage
from ipc.events import FrozenModelBinding
from ipc.ids import ModelKey, ProviderId
from tests.fakes.conversation import parts_of, request, user
from workers.providers import ADAPTORS, UnknownAdaptor, http, make
from workers.providers.base import (
    PASSING,
    Assembler,
    BrokenStream,
    ContentPart,
    Done,
    Outside,
    Part,
    Request,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    failure,
)

CALL = ToolCallPart(model_call_id="c1", name="bash", arguments="{}")
CALLED = ToolCallBlock(model_call_id="c1", name="bash", arguments="{}")
DONE = Done(content=(), finish_reason="stop", usage=Usage())
FAILED = failure("timeout", "silence", stage="stream_decode")


@pytest.mark.parametrize(
    ("parts", "blocks"),
    [
        ([], ()),
        ([TextPart("a"), TextPart("b")], (TextBlock(text="ab"),)),
        ([TextPart("")], ()),
        ([TextPart(" ")], (TextBlock(text=" "),)),
        ([ThinkingPart("a"), ThinkingPart("b")], (ThinkingBlock(text="ab"),)),
        ([ThinkingPart("")], ()),
        ([ThinkingPart("", "sig")], (ThinkingBlock(text="", signature="sig"),)),
        (
            [ThinkingPart("a"), ThinkingPart("", "s1"), ThinkingPart("b", "s2")],
            (ThinkingBlock(text="a", signature="s1"), ThinkingBlock(text="b", signature="s2")),
        ),
        (
            [ThinkingPart("a"), ThinkingPart("xyz", redacted=True), ThinkingPart("b")],
            (
                ThinkingBlock(text="a"),
                ThinkingBlock(text="xyz", redacted=True),
                ThinkingBlock(text="b"),
            ),
        ),
        (
            [TextPart("a"), ThinkingPart("t"), TextPart("b"), CALL, TextPart("c")],
            (
                TextBlock(text="a"),
                ThinkingBlock(text="t"),
                TextBlock(text="b"),
                CALLED,
                TextBlock(text="c"),
            ),
        ),
        ([TextPart("a"), ThinkingPart(""), TextPart("b")], (TextBlock(text="ab"),)),
        ([TextPart(""), CALL, TextPart("")], (CALLED,)),
        (
            [ToolCallPart(model_call_id="c", name="x", arguments="{", provider_item_id="i")],
            (ToolCallBlock(model_call_id="c", name="x", arguments="{", provider_item_id="i"),),
        ),
    ],
)
def test_parts_make_blocks_in_their_order(
    parts: Sequence[ContentPart], blocks: tuple[TurnBlock, ...]
) -> None:
    assembler = Assembler()
    for part in parts:
        assembler.add(part)

    assert assembler.content() == blocks
    assert assembler.done("stop", Usage()).content == blocks


@pytest.mark.parametrize("end", [DONE, FAILED])
@pytest.mark.parametrize("late", [TextPart(""), CALL, DONE, FAILED])
def test_nothing_follows_the_last_part(end: Part, late: Part) -> None:
    assembler = Assembler()
    assembler.add(end)

    with pytest.raises(BrokenStream):
        assembler.add(late)


def test_done_carries_what_only_its_wire_knows() -> None:
    usage = Usage(input_tokens=3)

    done = Assembler().done(
        "length",
        usage,
        native_replay={"items": [1]},
        provider_metadata={"a": 1},
        response_metadata={"b": 2},
    )

    assert done == Done(
        content=(),
        finish_reason="length",
        usage=usage,
        native_replay={"items": [1]},
        provider_metadata={"a": 1},
        response_metadata={"b": 2},
    )


class Wire:
    """A provider that sends these parts, then raises `boom` if there is one."""

    def __init__(self, *parts: Part, boom: Exception | None = None) -> None:
        self.parts = parts
        self.boom = boom
        self.closed = False

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        try:
            for part in self.parts:
                yield part
            if self.boom is not None:
                raise self.boom
        finally:
            self.closed = True


GOOD = Done(content=(TextBlock(text="a"), CALLED), finish_reason="tool_calls", usage=Usage())


@pytest.mark.parametrize("parts", [(TextPart("a"), CALL, GOOD), (TextPart("a"), FAILED), (DONE,)])
async def test_a_stream_that_keeps_the_contract_passes_unchanged(parts: tuple[Part, ...]) -> None:
    assert await parts_of(Wire(*parts), request(user("hi"))) == list(parts)


@pytest.mark.parametrize(
    "wire",
    [
        Wire(),
        Wire(TextPart("a")),
        Wire(DONE, DONE),
        Wire(FAILED, TextPart("a")),
        Wire(TextPart("b"), CALL, GOOD),
        Wire(CALL, TextPart("a"), GOOD),
        Wire(TextPart("a"), boom=ConnectionResetError()),
        Wire(DONE, boom=ValueError()),
    ],
)
async def test_a_stream_that_breaks_the_contract_is_found_out_and_closed(wire: Wire) -> None:
    with pytest.raises(BrokenStream):
        await parts_of(wire, request(user("hi")))

    assert wire.closed


@pytest.mark.parametrize(
    ("failed", "retryable"),
    [
        (failure("overload", "x", stage="response_headers"), True),
        (failure("auth", "x", stage="response_headers"), False),
        (failure("auth", "x", stage="response_headers", retryable=True), True),
        (failure("overload", "x", stage="response_headers", retryable=False), False),
    ],
)
def test_whether_to_try_again_follows_the_kind_unless_the_wire_knows_better(
    failed: Part, retryable: bool
) -> None:
    assert failed.error.retryable is retryable
    assert "invalid_request" not in PASSING


def test_a_failure_is_bounded_and_has_no_control_characters() -> None:
    error = failure("provider", "a\x1b[31m" + "x" * 9999, stage="connect").error

    assert len(error.message) == 4096
    assert error.message.startswith("a\ufffd[31mxxx")

    body = failure("provider", "x", stage="connect", response_body="\0" + "y" * 9999).error
    assert body.response_body is not None
    assert len(body.response_body) == 4096
    assert body.response_body.startswith("\ufffdyyy")


def binding(adaptor: str, **setup: object) -> FrozenModelBinding:
    return FrozenModelBinding(
        model=ModelKey("p/m"),
        provider_id=ProviderId("p"),
        adaptor=adaptor,
        wire_model="m",
        endpoint="http://127.0.0.1:9",  # where nobody answers
        setup=setup,
    )


@pytest.mark.parametrize("adaptor", sorted(ADAPTORS))
async def test_every_adaptor_of_the_table_can_be_made_and_keeps_the_contract(adaptor: str) -> None:
    outside = Outside()
    provider = make(binding(adaptor), outside)
    try:
        assert await parts_of(provider, request(user("hi")))
    finally:
        if outside.client is not None:
            await http.close(outside)


def test_an_adaptor_nobody_knows_is_named() -> None:
    with pytest.raises(UnknownAdaptor, match="adaptor=carrier-pigeon, model=p/m"):
        make(binding("carrier-pigeon"), Outside())
