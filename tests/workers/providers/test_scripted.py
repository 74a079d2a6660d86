"""Scripts on the part stream: what a scripted model says, and how it fails."""

import asyncio
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from ipc.content import TextBlock, ThinkingBlock, ToolCallBlock, Usage
from ipc.events import FrozenModelBinding, ModelErrorSummary
from ipc.ids import ModelKey, ProviderId
from tests.fakes.conversation import Waits, parts_of, request, user
from workers.providers import make
from workers.providers.base import (
    AssistantMessage,
    Done,
    Failed,
    Outside,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from workers.providers.script import (
    Call,
    Cut,
    Delay,
    Fail,
    Finish,
    Pattern,
    Report,
    Say,
    Span,
    Stall,
    Step,
    Think,
    Turn,
    When,
)
from workers.providers.scripted import BREATH_PARTS, Scripted

SCRIPTS = Path(__file__).parents[2] / "fakes" / "scripts"
HI = request(user("hi"))


def done(*content: object, reason: str = "stop", **usage: int) -> Done:
    return Done(content=content, finish_reason=reason, usage=Usage(**usage))


def failed(kind: str, **facts: object) -> Failed:
    words = {"message": "the script says so", "stage": "response_headers", "retryable": False}
    return Failed(error=ModelErrorSummary(kind=kind, **{**words, **facts}))


def call(id_: str, name: str, arguments: str) -> tuple[ToolCallPart, ToolCallBlock]:
    facts = {"model_call_id": id_, "name": name, "arguments": arguments}
    return ToolCallPart(**facts), ToolCallBlock(**facts)


ONE, ONE_BLOCK = call("call_1_1", "bash", '{"command":"ls"}')
TWO, TWO_BLOCK = call("call_1_2", "bash", "{")
MINE, MINE_BLOCK = call("mine", "read", "{}")


@pytest.mark.parametrize(
    ("steps", "parts"),
    [
        ([], [done()]),
        ([Say("hi")], [TextPart("hi"), done(TextBlock(text="hi"))]),
        ([Say("")], [done()]),
        ([Say("a" * 5, chars=2)],
         [TextPart("aa"), TextPart("aa"), TextPart("a"), done(TextBlock(text="aaaaa"))]),
        ([Say("abcde", chunks=2)],
         [TextPart("abc"), TextPart("de"), done(TextBlock(text="abcde"))]),
        ([Say("ab", chunks=9)], [TextPart("a"), TextPart("b"), done(TextBlock(text="ab"))]),
        ([Say(("a", "b"), repeat=2)],
         [TextPart("a"), TextPart("b"), TextPart("a"), TextPart("b"),
          done(TextBlock(text="abab"))]),
        ([Say("a"), Say("b")], [TextPart("a"), TextPart("b"), done(TextBlock(text="ab"))]),
        ([Think("h"), Think("m"), Say("a")],
         [ThinkingPart("h"), ThinkingPart("m"), TextPart("a"),
          done(ThinkingBlock(text="hm"), TextBlock(text="a"))]),
        ([Think("hm", chars=1, signature="s")],
         [ThinkingPart("h"), ThinkingPart("m", "s"),
          done(ThinkingBlock(text="hm", signature="s"))]),
        ([Think("", signature="s", repeat=2)],
         [ThinkingPart("", "s"), ThinkingPart("", "s"),
          done(ThinkingBlock(text="", signature="s"), ThinkingBlock(text="", signature="s"))]),
        ([Call("bash", {"command": "ls"}), Call("bash", raw="{")],
         [ONE, TWO, done(ONE_BLOCK, TWO_BLOCK, reason="tool_calls")]),
        ([Call("read", id="mine", repeat=2)],
         [MINE, MINE, done(MINE_BLOCK, MINE_BLOCK, reason="tool_calls")]),
        ([Report(Usage(input_tokens=5)), Say("a"), Finish("length")],
         [TextPart("a"), done(TextBlock(text="a"), reason="length", input_tokens=5)]),
        ([Call("read", id="mine"), Finish("stop")], [MINE, done(MINE_BLOCK)]),
        ([Fail("auth")], [failed("auth")]),
        ([Fail("overload", "busy", http_status=529, retry_after_ms=7)],
         [failed("overload", message="busy", http_status=529, retry_after_ms=7, retryable=True)]),
        ([Fail("auth", retryable=True, stage="connect", vendor_code="v", response_body="<p>")],
         [failed("auth", retryable=True, stage="connect", vendor_code="v", response_body="<p>")]),
        ([Cut()],
         [failed("unexpected_eof", message="the stream ended without its terminal marker",
                 stage="stream_finalize", retryable=True)]),
    ],
)  # fmt: skip
async def test_steps_become_parts(steps: list[Step], parts: list[Part]) -> None:
    assert await parts_of(Scripted([steps]), HI) == parts


async def test_a_failure_after_words_counts_what_had_arrived() -> None:
    first, last = await parts_of(Scripted([[Say("four"), Fail("transport")]]), HI)

    assert first == TextPart("four")
    assert isinstance(last, Failed)
    assert last.error.stage == "stream_decode"
    assert last.error.bytes_received > 0


async def test_words_of_the_conversation_are_put_into_arguments_as_json() -> None:
    said = 'a "quote"\nand ${user}'
    steps = [
        Call("write", {"content": "<${user}>", "list": ["${user}", 1]}),
        Call("x", raw="${user}"),
    ]

    whole, raw, _ = await parts_of(Scripted([steps]), request(user(said)))

    assert isinstance(whole, ToolCallPart)
    assert isinstance(raw, ToolCallPart)
    text = r"a \"quote\"\nand ${user}"
    assert whole.arguments == f'{{"content":"<{text}>","list":["{text}",1]}}'
    assert raw.arguments == said


async def test_call_ids_differ_from_turn_to_turn() -> None:
    provider = Scripted([Turn((Call("bash", repeat=2),), repeat=3)])
    answers = [AssistantMessage(content=())]

    ids = [
        part.model_call_id
        for turns in range(3)
        for part in await parts_of(provider, request(user("go"), *answers * turns))
        if isinstance(part, ToolCallPart)
    ]

    assert ids == ["call_1_1", "call_1_2", "call_2_1", "call_2_2", "call_3_1", "call_3_2"]


async def test_waits_go_through_the_clock() -> None:
    waits: list[str] = []
    steps = [Delay(3.5), Say("ab", chars=1, every=0.25), Delay(0)]

    await parts_of(Scripted([steps], clock=Waits(waits)), HI)

    assert waits == ["wait> 3.5", "wait> 0.25", "wait> 0.25", "wait> 0"]


async def test_a_stall_lasts_until_somebody_gives_up_whatever_the_clock_says() -> None:
    heard: list[Part] = []
    stalled = asyncio.Event()

    async def listen() -> None:
        async for part in Scripted([[Say("a"), Stall()]], clock=Waits([])).stream(HI):
            heard.append(part)
            stalled.set()

    task = asyncio.create_task(listen())
    await stalled.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard == [TextPart("a")]


async def test_a_flood_lets_others_run() -> None:
    turns_of_others = 0

    async def other() -> None:
        nonlocal turns_of_others
        while True:
            turns_of_others += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    parts = await parts_of(Scripted([Say("x", repeat=BREATH_PARTS * 10)]), HI)
    task.cancel()

    assert len(parts) == BREATH_PARTS * 10 + 1
    assert turns_of_others >= 10


async def test_a_request_without_a_turn_fails_and_names_script_and_turn() -> None:
    asked = request(user("a"), AssistantMessage(content=()), user("b"), attempt=2)
    said = "the script script has no turn for this request (turn 2, attempt 2 of the session)"

    parts = await parts_of(Scripted([Say("only one")]), asked)

    assert parts == [failed("invalid_request", message=said, stage="request_validation")]


async def test_the_requests_are_remembered_in_order() -> None:
    provider = Scripted([Turn((Say("a"),), repeat=2)])
    again = request(user("hi"), AssistantMessage(content=()))

    await parts_of(provider, HI)
    await parts_of(provider, again)

    assert provider.seen == [HI, again]


async def test_the_same_request_gets_the_same_parts_in_any_order_of_asking() -> None:
    turns = [
        Turn((Fail("overload"),), When(attempt=Span((1,)), user=Pattern("hi"))),
        Turn((Think("hm"), Call("bash", {"x": "${user}"}))),
        Turn((Say("second"),)),
    ]
    requests = [
        HI,
        request(user("hi"), attempt=2),
        request(user("ho")),
        request(user("hi"), AssistantMessage(content=()), attempt=2),
        request(user("hi"), *[AssistantMessage(content=())] * 5, attempt=2),
    ]
    expected = [await parts_of(Scripted(turns), asked) for asked in requests]
    provider = Scripted(turns)

    for order in itertools.permutations(range(len(requests))):
        assert [await parts_of(provider, requests[n]) for n in order] == [
            expected[n] for n in order
        ]


def binding(**setup: object) -> FrozenModelBinding:
    return FrozenModelBinding(
        model=ModelKey("mine/hello"),
        provider_id=ProviderId("mine"),
        adaptor="scripted",
        wire_model="hello",
        setup=setup,
    )


async def test_a_binding_names_its_script(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("- say: from a file\n")

    parts = await parts_of(make(binding(script=str(path)), Outside()), HI)

    assert parts == [TextPart("from a file"), done(TextBlock(text="from a file"))]


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        ({}, "mine/hello:1: expected setup.script, the path of a script"),
        ({"script": 5}, "mine/hello:1: expected setup.script, the path of a script"),
        (
            {"script": "no/such.yaml"},
            "no/such.yaml:1: can't read the script: No such file or directory",
        ),
    ],
)
async def test_a_bad_script_fails_its_requests_in_one_line(
    setup: dict[str, object], said: str
) -> None:
    parts = await parts_of(make(binding(**setup), Outside()), HI)

    assert parts == [failed("invalid_request", message=said, stage="request_validation")]


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_shared_scripts_can_be_read(path: Path) -> None:
    assert isinstance(make(binding(script=str(path)), Outside()), Scripted)


ASK = """
import asyncio
from tests.fakes.conversation import parts_of, request, user
from workers.providers.script import Say
from workers.providers.scripted import Scripted
stream = Scripted([Say("a")]).stream(request(user("hi")))
print("made", flush=True)
asyncio.run(anext(stream))
"""


def test_the_failpoint_is_hit_when_the_first_part_is_asked_for_and_not_before() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={"COOKIE_FP": "provider.first_part:1:exit=7", "PYTHONPATH": str(SCRIPTS.parents[2])},
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (7, b"made\n")
