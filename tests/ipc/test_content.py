"""ipc.content and ipc.faults: what is said, and what went wrong, in words that cross a process."""

import msgspec
import pytest

from ipc.content import (
    COUNT_MAX,
    DiffDisplay,
    DisplayBlock,
    ListingDisplay,
    MediaBlock,
    TerminalDisplay,
    TextBlock,
    TextDisplay,
    ThinkingBlock,
    ToolCallBlock,
    ToolResult,
    TurnBlock,
    Usage,
    UserInput,
    user_text,
)
from ipc.faults import (
    FACT_CHARS_MAX,
    FACTS_MAX,
    Fault,
    FaultBody,
    RemoteFault,
    clean,
    rpc_code,
)
from ipc.ids import Digest

PICTURE = MediaBlock(mime="image/png", digest=Digest("ab" * 32), byte_length=3, name="a.png")


@pytest.mark.parametrize(
    ("block", "tag"),
    [
        (TextBlock(text="hi"), "text"),
        (ThinkingBlock(text="hm", signature="s", redacted=True), "thinking"),
        (ToolCallBlock(model_call_id="1", name="read", arguments='{"a": 1'), "tool_call"),
        (PICTURE, "media"),
    ],
)
def test_a_block_of_a_turn_is_known_by_its_type(block: TurnBlock, tag: str) -> None:
    line = msgspec.json.encode(block)
    assert msgspec.json.decode(line)["type"] == tag
    assert msgspec.json.decode(line, type=TurnBlock) == block


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        (TextDisplay(text="hi"), "text"),
        (DiffDisplay(path="a", hunks="@@", added=1, removed=0), "diff"),
        (TerminalDisplay(command="ls", head="a", exit_code=None), "terminal"),
        (ListingDisplay(path=".", entries=("a",)), "listing"),
    ],
)
def test_a_display_block_is_known_by_its_kind(block: DisplayBlock, kind: str) -> None:
    line = msgspec.json.encode(block)
    assert msgspec.json.decode(line)["kind"] == kind
    assert msgspec.json.decode(line, type=DisplayBlock) == block


def test_the_text_of_an_input_is_its_text_blocks() -> None:
    mixed = UserInput(content=(TextBlock(text="look"), PICTURE, TextBlock(text="there")))
    assert mixed.text == "look\n\nthere"
    assert user_text("hi").text == "hi"


def test_a_result_of_two_words_is_a_whole_result() -> None:
    line = b'{"title":"t","output":"o","of_a_newer_writer":1}'
    assert msgspec.json.decode(line, type=ToolResult) == ToolResult(title="t", output="o")


@pytest.mark.parametrize("count", [b"-1", b"9223372036854775808", b"1e30", b"true", b'"1"'])
def test_a_count_is_a_whole_number_that_fits_64_bits(count: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"input_tokens":' + count + b"}", type=Usage)
    fits = msgspec.json.decode(b'{"input_tokens":%d}' % COUNT_MAX, type=Usage)
    assert fits == Usage(input_tokens=COUNT_MAX)


class NoTea(Fault):
    """Somebody asked for tea."""

    code = "no_tea"


def test_a_fault_is_a_code_and_facts() -> None:
    fault = NoTea(pot="blue", cups=2)
    assert str(fault) == "no_tea: pot=blue, cups=2"
    assert fault.body() == FaultBody(
        code="no_tea", message="no_tea: pot=blue, cups=2", facts={"pot": "blue", "cups": 2}
    )
    assert fault.rpc_code() == rpc_code("engine_error") == -32000
    assert str(NoTea()) == "no_tea"


def test_a_fault_that_crosses_a_process_is_bounded_and_safe_to_print() -> None:
    facts = {f"f{n}": "\x1b[31m" + "x" * 10_000 for n in range(100)}
    body = NoTea(**facts).body()
    assert len(body.facts) == FACTS_MAX
    for text in (body.message, *body.facts.values()):
        assert isinstance(text, str)
        assert len(text) <= FACT_CHARS_MAX
        assert text.isprintable()


def test_a_fault_passed_on_keeps_its_code() -> None:
    body = FaultBody(code="cursor_ahead", message="too far", facts={"last_seq": 4})
    fault = RemoteFault(body)
    assert (fault.body(), fault.rpc_code(), str(fault)) == (
        body,
        rpc_code("cursor_ahead"),
        "too far",
    )


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("plain", 5, "plain"),
        ("plainer", 5, "plai…"),
        ("a\nb\x07\u202e", 9, "a\ufffdb\ufffd\ufffd"),
        ("\ud800", 9, "\ufffd"),
        ("", 1, ""),
    ],
)
def test_cleaned_text_is_short_and_printable(text: str, limit: int, expected: str) -> None:
    assert clean(text, limit) == expected
