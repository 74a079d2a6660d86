"""Batches that an earlier worker left half done: what was decided holds, and nothing runs twice."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from ipc.events import (
    AgentSnapshot,
    ApprovalEvaluated,
    ApprovalFinalized,
    ApprovalRequested,
    OperationDigest,
    Payload,
    StoredEvent,
    ToolCallExecuting,
    ToolCallStarted,
    ToolCallTerminated,
)
from ipc.events.codec import EncodeFault
from ipc.faults import Fault
from ipc.plan import fingerprint
from ipc.rules import PermissionMode, Rule
from tests.fakes.desk import ALLOWED, MemoryDesk, Stage, allowing, kit, story
from workers.actor.recovery import Facts, recover
from workers.providers.script import Call, Say
from workers.providers.scripted import Scripted
from workers.run.drive import drive
from workers.store.file import AppendFailed, LogPoisoned

ASKING = allowing("read", "bash", effect="ask")


def calls(*names: str, how: str = "") -> list[Call]:
    return [
        Call("look" if name[0] == "l" else "poke", args={"who": name, "how": how}, id=name)
        for name in names
    ]


async def whole(
    agent: AgentSnapshot = ALLOWED, mode: PermissionMode = "ask", *asked: Call
) -> list[StoredEvent]:
    """The events of one whole run: a batch, then an answer."""
    desk = MemoryDesk().open(agent=agent)
    script = Scripted([list(asked or calls("l1", "p1", "l2")), Say("done")])
    await drive(desk, kit(script, mode=mode))
    return desk.events


async def go_on(
    events: Sequence[StoredEvent], mode: PermissionMode = "ask", **changes: Any
) -> tuple[MemoryDesk, Stage]:
    """What another worker makes of a log."""
    desk, stage = MemoryDesk(events), Stage()
    desk.put(*recover(desk.state, Facts(cause="killed")).events)
    script = Scripted([calls("l1", "p1", "l2"), Say("done")])
    mine = kit(script, stage, mode)
    await drive(desk, msgspec.structs.replace(mine, **changes))
    return desk, stage


def upto(events: Sequence[StoredEvent], kind: type[Payload], nth: int = 1) -> list[StoredEvent]:
    """The log of a worker that died right after its n-th event of this kind."""
    places = [n for n, event in enumerate(events) if isinstance(event.payload, kind)]
    return list(events[: places[nth - 1] + 1])


def of(desk: MemoryDesk, kind: type[Any]) -> list[Any]:
    return [one for one in desk.payloads if isinstance(one, kind)]


async def test_a_batch_goes_on_wherever_its_worker_died() -> None:
    """At each event of a run: each call has one start and one end, and acted at most once."""
    for agent, mode in ((ALLOWED, "ask"), (ASKING, "yolo")):
        events = await whole(agent, mode)  # type: ignore[arg-type]
        for cut in range(4, len(events)):
            desk, stage = await go_on(events[:cut], mode)  # type: ignore[arg-type]
            assert desk.state.run is None
            starts = [one.owner.model_call_id for one in of(desk, ToolCallStarted)]
            assert len(starts) == len(set(starts)), cut
            assert len(of(desk, ToolCallTerminated)) == len(starts), cut
            executed = [one.tool_call_id for one in of(desk, ToolCallExecuting)]
            assert len(executed) == len(set(executed)), cut
            before = MemoryDesk(events[:cut])
            acted = {
                before.state.calls[one.tool_call_id].owner.model_call_id
                for one in of(before, ToolCallExecuting)
            }
            again = {line.split()[0] for line in stage.told}
            assert not (acted & again), cut


async def test_an_approval_is_not_asked_for_again() -> None:
    events = await whole(ASKING, "yolo")
    for n in (1, 2, 3):
        desk, _ = await go_on(upto(events, ApprovalFinalized, n), "yolo")
        assert len(of(desk, ApprovalRequested)) == 3
        assert len(of(desk, ApprovalFinalized)) == 3


async def test_an_approval_of_an_earlier_worker_holds_though_nobody_could_answer_now() -> None:
    events = await whole(ASKING, "yolo")
    desk, stage = await go_on(upto(events, ApprovalFinalized, 3), "ask")
    assert story(desk.payloads)[-1] == "run completed: done"
    assert "p1 ends" in stage.told


async def test_a_deny_that_came_meanwhile_beats_an_approval() -> None:
    events = await whole(ASKING, "yolo")
    plan = msgspec.structs.replace(
        kit(Scripted([])).plan, overlay=(Rule(action="bash", resource="*", effect="deny"),)
    )
    desk, stage = await go_on(upto(events, ApprovalFinalized, 3), "yolo", plan=plan)
    assert "p1 failed: tool_denied" in story(desk.payloads)
    assert "p1 begins" not in stage.told


async def test_a_question_whose_answer_was_torn_off_keeps_its_id() -> None:
    events = await whole(ASKING, "yolo")
    desk, _ = await go_on(upto(events, ApprovalRequested, 2), "yolo")
    asked = [one.request.approval_id for one in of(desk, ApprovalRequested)]
    answered = [one.approval_id for one in of(desk, ApprovalFinalized)]
    assert sorted(asked) == sorted(answered)
    assert len(set(asked)) == 3


async def test_what_was_judged_before_the_tear_is_not_judged_again() -> None:
    events = await whole(ASKING, "auto_approve_y")
    desk, _ = await go_on(upto(events, ApprovalEvaluated, 1), "auto_approve_y")
    assert len(of(desk, ApprovalEvaluated)) == 3
    assert len(of(desk, ApprovalRequested)) == 3


async def test_a_refusal_whose_result_was_torn_off_stays_a_refusal() -> None:
    """The refusal was in the log, the end of its call and of its run was not."""
    events = await whole(ASKING, "ask")
    cut = upto(events, ApprovalFinalized, 1)
    desk, stage = await go_on(cut, "yolo")
    assert "l1 failed: tool_denied" in story(desk.payloads)
    assert "l1 begins" not in stage.told
    assert "p1 ends" in stage.told


async def test_a_call_that_would_do_something_else_now_is_not_run() -> None:
    events = await whole()
    cut = upto(events, ToolCallStarted, 3)
    started = cut[-2].payload
    assert isinstance(started, ToolCallStarted)
    other = OperationDigest(digest=fingerprint("what another build made of it"))
    changed = msgspec.structs.replace(started, operation_fingerprint=other)
    cut[-2] = msgspec.structs.replace(cut[-2], payload=changed)
    desk, stage = await go_on(cut)
    assert "p1 failed: operation_changed" in story(desk.payloads)
    assert [line for line in stage.told if line.startswith("p1")] == []


async def test_a_call_that_may_have_acted_is_never_run_again() -> None:
    """Recovery ends such a run; the batch does not rely on it."""
    events = upto(await whole(), ToolCallExecuting, 3)
    desk, stage = MemoryDesk(events), Stage()
    await drive(desk, kit(Scripted([calls("x"), Say("done")]), stage))
    lines = story(desk.payloads)
    assert "p1 failed: outcome_unknown" in lines
    assert stage.told == []
    assert lines[-1] == "run completed: done"


async def test_a_tool_of_another_build_is_unknown_here_and_its_call_fails() -> None:
    events = upto(await whole(), ToolCallStarted, 3)
    desk, stage = await go_on(events, tools={"look": kit(Scripted([])).tools["look"]})
    assert "p1 failed: unknown_tool" in story(desk.payloads)
    assert {line.split()[0] for line in stage.told} == {"l1", "l2"}


async def test_the_limit_of_a_batch_counts_what_was_started_before_a_crash() -> None:
    asked = calls(*(f"l{n}" for n in range(4)))
    desk = MemoryDesk().open()
    await drive(desk, kit(Scripted([asked, Say("done")]), prepared_tools_max=3))
    cut = MemoryDesk(upto(desk.events, ToolCallStarted, 2))
    await drive(cut, kit(Scripted([asked, Say("done")]), prepared_tools_max=3))
    assert "l3 failed: too_many_calls" in story(cut.payloads)
    assert "l2 completed" in story(cut.payloads)


class Refusing(MemoryDesk):
    """Takes no result that can't be encoded, and says so with `fault`."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.fault = fault

    async def append(self, *payloads: Payload) -> None:
        for one in payloads:
            if isinstance(one, ToolCallTerminated) and one.result is not None:
                try:
                    one.result.output.encode()
                except UnicodeEncodeError:
                    raise self.fault from None
        await super().append(*payloads)


async def test_a_result_that_no_line_can_hold_fails_its_call_alone() -> None:
    desk = Refusing(EncodeFault(reason="surrogates")).open()
    await drive(desk, kit(Scripted([[*calls("p1", how="odd"), *calls("p2")], Say("done")])))
    lines = story(desk.payloads)
    assert "p1 failed: internal" in lines
    assert "p2 completed" in lines
    assert lines[-1] == "run completed: done"


@pytest.mark.parametrize("fault", [AppendFailed(reason="full"), LogPoisoned(reason="gone")])
@pytest.mark.parametrize("names", [("l1", "l2"), ("p1", "p2")])
async def test_a_log_that_breaks_stops_the_batch_and_is_told_as_what_it_is(
    fault: Fault, names: tuple[str, ...]
) -> None:
    stage = Stage()
    desk = Refusing(fault).open()
    asked = [*calls(names[0], how="odd"), *calls(names[1], how="wait")]
    with pytest.raises(type(fault)):
        await drive(desk, kit(Scripted([asked, Say("done")]), stage))
    assert not any(isinstance(one, ToolCallTerminated) for one in desk.payloads)
    assert f"{names[1]} ends" not in stage.told
