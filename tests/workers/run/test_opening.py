"""What stands in one append with a turn: its calls, and those that nothing is in the way of."""

from collections.abc import Sequence

import pytest

from ipc.events import AgentSnapshot, Payload, ToolCallExecuting, ToolCallStarted
from ipc.rules import Effect
from tests.fakes.desk import ALLOWED, MemoryDesk, allowing, kit, story
from workers.providers.script import Call, Finish, Say, Step
from workers.providers.scripted import Scripted
from workers.run.drive import drive


async def appends(agent: AgentSnapshot, *turns: Sequence[Step]) -> list[list[str]]:
    """The appends of a run, each as the lines of its story; each is one sync."""
    desk = MemoryDesk().open(agent=agent)
    groups: list[tuple[Payload, ...]] = []

    async def note(payloads: Sequence[Payload]) -> None:
        groups.append(tuple(payloads))

    desk.before = note
    await drive(desk, kit(Scripted([*turns, Say("done")]), mode="yolo"))
    names = [one for one in desk.payloads if isinstance(one, ToolCallStarted)]
    usage = "model_usage_recorded"
    told = [
        [line for line in story([*names, *group])[len(names) :] if line != usage]
        for group in groups
    ]
    return [group for group in told if group and not group[0].startswith("text")]


def call(name: str, tool: str = "poke") -> Call:
    return Call(tool, args={"who": name}, id=name)


async def test_a_round_of_one_call_takes_three_syncs() -> None:
    assert await appends(ALLOWED, [call("p")], [call("q")]) == [
        ["attempt 1"],
        ["turn: tool_calls p", "p started", "p executing"],
        ["p completed"],
        ["attempt 1"],
        ["turn: tool_calls q", "q started", "q executing"],
        ["q completed"],
        ["attempt 1"],
        ["turn: stop 'done'"],
        ["run completed: done"],
    ]


async def test_calls_that_run_side_by_side_are_announced_together() -> None:
    groups = await appends(ALLOWED, [call("a", "look"), call("p"), call("b", "look")])
    assert groups[1] == [
        "turn: tool_calls a p b",
        *("a started", "p started", "b started"),
        *("a executing", "b executing"),
    ]
    assert sorted(map(tuple, groups[2:6])) == [
        ("a completed",),
        ("b completed",),
        ("p completed",),
        ("p executing",),
    ]


async def test_of_calls_that_run_one_by_one_the_first_is_announced() -> None:
    groups = await appends(ALLOWED, [call("p"), call("q")])
    assert groups[1:5] == [
        ["turn: tool_calls p q", "p started", "q started", "p executing"],
        ["p completed"],
        ["q executing"],
        ["q completed"],
    ]


@pytest.mark.parametrize("effect", ["ask", "deny"])
async def test_while_anything_is_in_question_nothing_is_announced(effect: Effect) -> None:
    agent = allowing("read")
    questioned = allowing("bash", effect=effect)
    mixed = type(agent)(
        **{name: getattr(agent, name) for name in agent.__struct_fields__}
        | {"permissions": (*agent.permissions, *questioned.permissions)}
    )
    groups = await appends(mixed, [call("a", "look"), call("p")])
    assert groups[1] == ["turn: tool_calls a p", "a started", "p started"]


async def test_a_call_that_cannot_be_run_holds_up_no_other() -> None:
    groups = await appends(ALLOWED, [Call("fly", id="x"), call("p")])
    assert groups[1] == [
        "turn: tool_calls x p",
        *("x started", "x failed: unknown_tool"),
        *("p started", "p executing"),
    ]


async def test_a_turn_that_was_cut_off_opens_no_call() -> None:
    groups = await appends(ALLOWED, [call("p"), Finish("length")])
    assert groups[1] == ["turn: length p"]


async def test_a_call_that_another_worker_announced_is_never_run() -> None:
    """Only the run that announced it knows that it has not begun."""
    desk = MemoryDesk().open()
    script = Scripted([[call("p")], Say("done")])
    with pytest.raises(RuntimeError, match="the worker dies"):
        await drive(_dying(desk), kit(script))
    assert any(isinstance(one, ToolCallExecuting) for one in desk.payloads)
    await drive(desk, kit(script))
    assert "p failed: outcome_unknown" in story(desk.payloads)


def _dying(desk: MemoryDesk) -> MemoryDesk:
    """The desk, until the first result of a call is to be written."""

    async def die(payloads: Sequence[Payload]) -> None:
        if "completed" in " ".join(story([*desk.payloads, *payloads])[-1:]):
            desk.before = None
            raise RuntimeError("the worker dies")

    desk.before = die
    return desk
