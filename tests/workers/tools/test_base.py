"""From a model's JSON to a call, or to words the model can act on."""

import asyncio
import json
import threading
from typing import Any

import jsonschema
import pytest

from tests.fakes.room import FakeRoom, until
from workers.tools import TOOLS
from workers.tools.base import (
    BadArguments,
    Room,
    Tool,
    ToolFailure,
    json_schema,
    off_loop,
    parse,
    settled,
)
from workers.tools.bash import Bash
from workers.tools.edit import Edit
from workers.tools.read import Read
from workers.tools.write import Write


def refused(name: str, arguments: str) -> str:
    bad = parse(name, arguments, TOOLS)
    assert isinstance(bad, BadArguments)
    assert bad.error().code == bad.code
    assert len(bad.message) < 3000
    return bad.message


def test_the_table_names_every_tool_by_its_own_name() -> None:
    assert list(TOOLS) == ["read", "write", "edit", "bash"]
    assert all(tool.name == name for name, tool in TOOLS.items())


def test_the_fake_room_is_a_room(room: FakeRoom) -> None:
    typed: Room = room
    assert typed.workspace == room.workspace


@pytest.mark.parametrize(
    ("name", "arguments", "call"),
    [
        ("read", '{"filePath":"a"}', Read(filePath="a", offset=0, limit=2000)),
        ("read", '{"filePath":"a","offset":3,"limit":1}', Read(filePath="a", offset=3, limit=1)),
        ("write", '{"filePath":"a","content":""}', Write(filePath="a", content="")),
        ("write", r'{"filePath":"a","content":"\u0000"}', Write(filePath="a", content="\0")),
        (
            "edit",
            '{"filePath":"a","oldString":"x","newString":"y"}',
            Edit(filePath="a", oldString="x", newString="y", replaceAll=False),
        ),
        ("bash", '{"command":"ls"}', Bash(command="ls", timeout=120_000, interactive=False)),
        ("bash", ' {"command":"ls","timeout":0}\n', Bash(command="ls", timeout=0)),
    ],
)
def test_arguments_and_their_defaults_are_those_of_the_specification(
    name: str, arguments: str, call: Tool
) -> None:
    assert parse(name, arguments, TOOLS) == call


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("read", "", "missing required field `filePath`"),
        ("read", "  \n", "missing required field `filePath`"),
        ("read", "{", "no JSON object"),
        ("read", '{"filePath":"a"} x', "no JSON object"),
        ("read", "null", "Expected `object`, got `null`"),
        ("read", '["a"]', "Expected `object`, got `array`"),
        ("read", '{"filePath":1}', "Expected `str`, got `int` - at `$.filePath`"),
        ("read", '{"filePath":null}', "Expected `str`, got `null`"),
        ("read", '{"filePath":"a","offset":"3"}', "Expected `int`, got `str`"),
        ("read", '{"filePath":"a","offset":-1}', "`int` >= 0"),
        ("read", '{"filePath":"a","limit":0}', "`int` >= 1"),
        ("read", '{"filePath":"a","limit":1e30}', "`$.limit`"),
        ("read", '{"filePath":"a","limit":99999999999999999999}', "`limit` is too large"),
        ("read", '{"filePath":"a","path":"b"}', "unknown field `path`"),
        ("read", '{"filePath":"a","filePath":"b"}', "given twice: `filePath`"),
        ("read", r'{"filePath":"a","file\u0050ath":"b"}', "given twice: `filePath`"),
        ("read", r'{"filePath":"a\u0000b"}', "`filePath` contains a NUL"),
        ("read", r'{"filePath":"\ud800"}', "no JSON object"),
        ("read", '{"filePath":"\ud800"}', "no JSON object"),
        ("read", '{"filePath":""}', "`filePath` is empty"),
        ("write", r'{"filePath":"\u0000","content":""}', "`filePath` contains a NUL"),
        ("bash", r'{"command":"ls \u0000 x"}', "`command` contains a NUL"),
        ("bash", '{"command":"ls","interactive":"yes"}', "Expected `bool`, got `str`"),
        ("read", "[" * 200_000, "Expected `object`"),
        ("read", '{"filePath":' + "[" * 200_000, "Expected `str`"),
        ("read", '{"x":' + "[" * 200_000, "unknown field `x`"),
        ("read", '{"' + "x" * 100_000 + '":1}', "unknown field `xxx"),
    ],
)
def test_a_call_that_cannot_be_read_says_what_to_change(
    name: str, arguments: str, said: str
) -> None:
    message = refused(name, arguments)

    assert said in message
    assert f"Arguments of {name}: " in message


def test_the_refusal_lists_the_arguments_with_types_and_defaults() -> None:
    assert refused("read", "{}") == (
        "Object missing required field `filePath`. Arguments of read: filePath (string, required), "
        "offset (integer, default 0), limit (integer, default 2000)."
    )


def test_an_unknown_tool_is_answered_with_the_known_ones() -> None:
    assert refused("grep\x1b", "{}") == (
        'There is no tool "grep\ufffd". The tools are: read, write, edit, bash.'
    )


@pytest.mark.parametrize("tool", TOOLS.values())
def test_a_schema_is_plain_and_agrees_with_the_decoder(tool: type[Tool]) -> None:
    schema = json_schema(tool)
    jsonschema.Draft202012Validator.check_schema(schema)
    sample: dict[str, Any] = {"filePath": "a", "content": "", "oldString": "a", "newString": "b"}
    sample = {field: sample.get(field, "ls") for field in schema["required"]}

    jsonschema.validate(sample, schema)
    assert isinstance(parse(tool.name, json.dumps(sample), TOOLS), tool)
    assert schema["additionalProperties"] is False
    assert list(schema["properties"]) == list(tool.__struct_fields__)
    assert "$" not in json.dumps(schema)


@pytest.mark.parametrize("tool", TOOLS.values())
def test_a_description_is_one_paragraph(tool: type[Tool]) -> None:
    said = tool.description()

    assert said.endswith(".")
    assert "\n" not in said


def test_normalized_arguments_hold_the_defaults() -> None:
    assert Read(filePath="a").normalized() == {"filePath": "a", "offset": 0, "limit": 2000}


def test_a_failure_is_an_error_for_the_log() -> None:
    failure = ToolFailure("not_found", "x does not exist")

    assert (failure.error().code, failure.error().message) == ("not_found", "x does not exist")


async def test_who_is_cancelled_waits_for_the_work_on_its_thread() -> None:
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go.wait(10)
        ended.set()

    task = asyncio.create_task(off_loop(work))
    await until(begun.is_set)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # a second one is no reason to leave the work alone
    await asyncio.sleep(0)
    assert not task.done()
    go.set()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_waiting_for_what_never_comes_ends() -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    assert await settled(never, 0.01) is False
    never.cancel()
