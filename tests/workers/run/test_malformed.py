"""Calls that a model wrote wrongly: none has an effect, each is answered with what to change."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc.events import ToolCallExecuting
from tests.fakes.desk import MemoryDesk, Stage, kit
from workers.providers.base import AssistantMessage, ToolMessage
from workers.providers.script import Call, Finish, Say, Step
from workers.providers.scripted import Scripted
from workers.run.drive import drive

GOOD = '{"who": "good"}'
ARGUMENTS = "Arguments of look: who (string, default"

MALFORMED = [
    ("{", "invalid_arguments: The arguments are no JSON object"),
    ('{"who": "x"', "invalid_arguments: The arguments are no JSON object"),
    ('{"who": "x"} trailing', "invalid_arguments: The arguments are no JSON object"),
    ("{'who': 'x'}", "invalid_arguments: The arguments are no JSON object"),
    ("not json at all", "invalid_arguments: The arguments are no JSON object"),
    ("[" * 100_000, "invalid_arguments: "),
    ('["x"]', "invalid_arguments: Expected `object`, got `array`"),
    ('"who"', "invalid_arguments: Expected `object`, got `str`"),
    ("null", "invalid_arguments: Expected `object`, got `null`"),
    ('{"who": 7}', "invalid_arguments: Expected `str`, got `int` - at `$.who`"),
    ('{"who": null}', "invalid_arguments: Expected `str`, got `null` - at `$.who`"),
    ('{"who": {"x": 1}}', "invalid_arguments: Expected `str`, got `object` - at `$.who`"),
    ('{"who": "x", "much": 1}', "invalid_arguments: Object contains unknown field `much`"),
    ('{"who": "x", "who": "y"}', "invalid_arguments: The same argument is given twice: `who`"),
    ('{"who": "\ud800"}', "invalid_arguments: "),
]


class Heard:
    """A run of one turn of calls and what came of it."""

    def __init__(self, *calls: Step) -> None:
        self.stage = Stage()
        self.provider = Scripted([calls, Say("hello")])
        self.desk = MemoryDesk().open()

    async def play(self) -> list[ToolMessage]:
        """The results that the model was sent, in the order of its calls."""
        await drive(self.desk, kit(self.provider, self.stage))
        assert self.desk.state.status == "completed"
        asked, *results = self.provider.seen[-1].messages[-1 - self._calls() :]
        assert isinstance(asked, AssistantMessage)
        return [one for one in results if isinstance(one, ToolMessage)]

    def _calls(self) -> int:
        return len(next(iter(self.desk.state.turns.values())).asked())

    @property
    def begun(self) -> list[str]:
        """Who acted: by the stage, and by what the log announced, which must be the same."""
        acted = [line.split()[0] for line in self.stage.told if line.endswith("begins")]
        announced = [one for one in self.desk.payloads if isinstance(one, ToolCallExecuting)]
        assert len(acted) == len(announced)
        return acted


@pytest.mark.parametrize(("arguments", "told"), MALFORMED, ids=lambda text: ascii(text)[:30])
async def test_a_malformed_call_is_not_run_and_the_model_is_told_what_to_change(
    arguments: str, told: str
) -> None:
    run = Heard(Call("look", raw=arguments, id="bad"), Call("look", raw=GOOD, id="good"))
    bad, good = await run.play()
    assert run.begun == ["good"]
    assert (bad.model_call_id, bad.is_error, good.is_error) == ("bad", True, False)
    assert bad.output.startswith(told)
    assert ARGUMENTS in bad.output
    assert len(bad.output) < 4096
    bad.output.encode()  # whatever the model wrote, it can be sent


async def test_what_is_sent_back_of_a_malformed_call_is_a_json_object() -> None:
    for arguments, _ in MALFORMED:
        run = Heard(Call("look", raw=arguments, id="bad"))
        await run.play()
        asked = run.provider.seen[-1].messages[-2]
        assert isinstance(asked, AssistantMessage)
        (block,) = asked.content
        sent = msgspec.json.decode(block.arguments)  # type: ignore[union-attr]
        assert isinstance(sent, dict)


async def test_a_tool_that_is_not_there_is_answered_with_those_that_are() -> None:
    run = Heard(Call("fly", raw=GOOD, id="bad"), Call("", raw=GOOD, id="worse"))
    bad, worse = await run.play()
    assert run.begun == []
    assert bad.output == 'unknown_tool: There is no tool "fly". The tools are: look, poke.'
    assert worse.output == 'unknown_tool: There is no tool "". The tools are: look, poke.'


@pytest.mark.parametrize("reason", ["length", "content_filter"])
@pytest.mark.parametrize("arguments", [GOOD, '{"who": "go', '{"who": "go"}'])
async def test_of_a_turn_that_was_cut_off_no_call_is_run(reason: Any, arguments: str) -> None:
    """Also one that looks whole: what stood behind it is not known."""
    run = Heard(
        Call("poke", raw=GOOD, id="whole"),
        Call("poke", raw=arguments, id="last"),
        Finish(reason),
    )
    results = await run.play()
    assert run.begun == []
    assert [one.model_call_id for one in results] == ["whole", "last"]
    assert all(one.output.startswith("not_run: ") and one.is_error for one in results)


async def test_arguments_that_are_left_out_are_the_defaults() -> None:
    for arguments in ("", "  \n", "{}"):
        run = Heard(Call("look", raw=arguments, id="a"))
        (result,) = await run.play()
        assert not result.is_error


JUNK = st.one_of(
    st.text(max_size=40),
    st.text('{}[]":,who0n \\u', max_size=30),
    st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists).map(
        lambda value: msgspec.json.encode(value).decode()
    ),
    st.dictionaries(st.sampled_from(["who", "how", "x"]), st.none() | st.text(max_size=3)).map(
        lambda value: msgspec.json.encode(value).decode()
    ),
)


@given(st.lists(JUNK, min_size=1, max_size=4))
async def test_whatever_a_model_writes_each_call_has_one_result_and_acts_only_if_it_is_sound(
    arguments: list[str],
) -> None:
    calls = [Call("look", raw=text, id=f"c{n}") for n, text in enumerate(arguments)]
    run = Heard(*calls)
    results = await run.play()
    assert [one.model_call_id for one in results] == [f"c{n}" for n in range(len(arguments))]
    assert len(run.begun) == sum(not one.output.startswith("invalid_") for one in results)
    for text, result in zip(arguments, results, strict=True):
        if not result.output.startswith("invalid_arguments: "):
            given_ = msgspec.json.decode(text) if text.strip() else {}
            assert set(given_) <= {"who", "how", "whom"}
            assert all(isinstance(value, str) for value in given_.values())


async def test_of_calls_of_one_turn_with_the_same_id_the_first_is_run() -> None:
    run = Heard(
        Call("look", raw=GOOD, id="same"),
        Call("look", raw='{"who": "other"}', id="same"),
        Call("look", raw='{"who": "last"}', id="another"),
    )
    results = await run.play()
    assert run.begun == ["good", "last"]
    assert len({one.model_call_id for one in results}) == 3
    assert results[1].output == (
        "duplicate_call_id: This call has the id of an earlier call of the same turn; call again."
    )
