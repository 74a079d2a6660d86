"""The tool calls of one turn: taken up in order, all decided, and only then run."""

import asyncio
import sys
import traceback
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ipc.content import ToolCallBlock, ToolError
from ipc.events import (
    OUTCOME_UNKNOWN,
    ApprovalRequested,
    ModelTurnCommitted,
    OperationDigest,
    Payload,
    PreparedOperationIdentity,
    RunCancelled,
    ToolCallExecuting,
    ToolCallOwner,
    ToolCallStarted,
    ToolCallTerminated,
    ToolPresentation,
)
from ipc.faults import Fault, clean
from ipc.fold import ApprovalState, CallState, SessionView, TurnEntry
from ipc.ids import CallId, new_approval_id, new_call_id
from workers.permissions.gate import (
    Denial,
    Question,
    asked_before,
    denial_of,
    identify,
    judge,
    operation_fingerprint,
    unprepared_fingerprint,
)
from workers.permissions.match import Decision, decide
from workers.run.desk import Desk, Kit
from workers.run.machine import StartCalls, closing
from workers.run.offer import overlay
from workers.run.results import CUT, DENIED, FAILED
from workers.store.tree import LogBroken
from workers.tools.base import MESSAGE_CHARS_MAX, BadArguments, Tool, ToolFailure, parse

REASON_PERMISSION: Final = "permission"
TOO_MANY: Final = "too_many_calls"
DUPLICATE: Final = "duplicate_call_id"
TWICE: Final = "This call has the id of an earlier call of the same turn; call again."
OPERATION_CHANGED: Final = "operation_changed"
CHANGED: Final = (
    "What this call would do is not what was decided about before the worker died. "
    "It was not run; call again."
)
UNKNOWN: Final = (
    "Whether this call had its effect is not known. It was not run again: look at what is there "
    "before you repeat it."
)
TITLE_CHARS_MAX: Final = 80
PRIMARY_CHARS_MAX: Final = 400


class _Prepared(Struct, frozen=True):
    """A started call and what it is going to do."""

    call: CallState
    tool: Tool


class Opening(Struct, frozen=True):
    """What taking up calls adds to the log, and which of them are announced as executing in it."""

    events: tuple[Payload, ...] = ()
    announced: frozenset[CallId] = frozenset()


class _TakenUp(Struct, frozen=True):
    """A call of the model with an id of ours, and what its arguments came to."""

    call_id: CallId
    owner: ToolCallOwner
    block: ToolCallBlock
    parsed: Tool | BadArguments


def opening(desk: Desk, kit: Kit, turn: ModelTurnCommitted) -> Opening:
    """The calls of a turn that is about to be committed, for the same append as the turn.

    When nothing about them is in question, those that run first are announced in it too: a sync
    that the person would otherwise wait for (docs/decisions/0011).
    """
    if turn.turn.finish_reason in CUT | FAILED:
        return Opening()
    content = turn.turn.content
    asked = [(n, one) for n, one in enumerate(content) if isinstance(one, ToolCallBlock)]
    taken = _taken_up(kit, turn.model_turn_seq, asked, 0)
    events = _start_events(kit, taken)
    first = _first_to_run(desk, kit, taken)
    told = (ToolCallExecuting(tool_call_id=one.call_id) for one in first)
    return Opening((*events, *told), frozenset(one.call_id for one in first))


async def start_calls(desk: Desk, kit: Kit, step: StartCalls) -> None:
    """Take up the calls in the model's order; one that can't be run ends at once, told why."""
    # Some may have started already: a crash keeps the beginning of an append.
    begun = len(step.turn.calls)
    taken = _taken_up(kit, step.turn.event.model_turn_seq, step.asked, begun)
    await desk.append(*_start_events(kit, taken))


def _taken_up(
    kit: Kit, turn_seq: int, asked: Sequence[tuple[int, ToolCallBlock]], begun: int
) -> list[_TakenUp]:
    limit = kit.plan.limits.prepared_tools_max
    taken: list[_TakenUp] = []
    ids: set[str] = set()
    for number, (index, block) in enumerate(asked, begun):
        parsed = parse(block.name, block.arguments, kit.tools)
        if number >= limit:
            parsed = BadArguments(f"a turn may hold {limit} calls; ask again", code=TOO_MANY)
        elif block.model_call_id in ids:
            parsed = BadArguments(TWICE, code=DUPLICATE)
        if block.model_call_id:
            ids.add(block.model_call_id)
        owner = ToolCallOwner(
            model_turn_seq=turn_seq,
            content_index=index,
            model_call_id=block.model_call_id,
            provider_item_id=block.provider_item_id,
        )
        taken.append(_TakenUp(new_call_id(), owner, block, parsed))
    return taken


def _start_events(kit: Kit, taken: Sequence[_TakenUp]) -> list[Payload]:
    events: list[Payload] = []
    for one in taken:
        events.append(
            ToolCallStarted(
                tool_call_id=one.call_id,
                owner=one.owner,
                operation_fingerprint=_fingerprint(kit, one.block, one.parsed),
                presentation=_presentation(one.block, one.parsed),
            )
        )
        if isinstance(one.parsed, BadArguments):
            error = one.parsed.error()
            events.append(
                ToolCallTerminated(
                    tool_call_id=one.call_id, owner=one.owner, outcome="failed", error=error
                )
            )
    return events


def _first_to_run(desk: Desk, kit: Kit, taken: Sequence[_TakenUp]) -> list[_TakenUp]:
    """Those that run at once if the rules allow all that can be run; else none of them."""
    sound = [(one, one.parsed) for one in taken if isinstance(one.parsed, Tool)]
    if not all(_is_allowed(desk, kit, tool) for _, tool in sound):
        return []
    together = [one for one, tool in sound if tool.parallel]
    return together or [one for one, _ in sound[:1]]


def _is_allowed(desk: Desk, kit: Kit, tool: Tool) -> bool:
    return _decision(desk, kit, tool, tool.label(kit.workspace)).effect == "allow"


def _decision(desk: Desk, kit: Kit, tool: Tool, label: str | None) -> Decision:
    run = desk.state.run
    assert run is not None, "calls are decided inside a run"
    rules = run.agent.permissions
    return decide(rules, overlay(desk, kit), tool.action, label, kit.workspace)


async def run_calls(
    desk: Desk, kit: Kit, turn: TurnEntry, announced: frozenset[CallId] = frozenset()
) -> None:
    """Decide about every open call of the turn, then run those that may, parallel ones together.

    `announced` are those that this run itself has just announced (`opening`), so that they are
    known not to have begun. A question that nobody can answer ends the run (spec 1.1, headless).
    """
    ready: list[_Prepared] = []
    for call in turn.open_calls():
        if call.executing and call.call_id not in announced:
            # By somebody who is not there any more: never a second time.
            await desk.append(_failed(call, ToolError(code=OUTCOME_UNKNOWN, message=UNKNOWN)))
            continue
        tool = parse(call.name, call.arguments, kit.tools)
        if isinstance(tool, BadArguments):  # another build took it up, which knew this tool
            await desk.append(_failed(call, tool.error()))
        elif await _may_run(desk, kit, call, tool):
            ready.append(_Prepared(call, tool))
        if desk.state.run is None:
            return
    await _run_together(desk, kit, [one for one in ready if one.tool.parallel])
    for one in ready:
        if not one.tool.parallel:
            await _execute(desk, kit, one)


async def _run_together(desk: Desk, kit: Kit, calls: list[_Prepared]) -> None:
    """Run calls side by side; when the log breaks under one of them, all stop and it is raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for one in calls:
                tasks.create_task(_execute(desk, kit, one), name=one.tool.name)
    except ExceptionGroup as group:
        # Who closes the run asks what kind of failure it was, and a group has no kind.
        broken, _ = group.split(LogBroken)
        raise (broken or group).exceptions[0] from group


async def _may_run(desk: Desk, kit: Kit, call: CallState, tool: Tool) -> bool:
    """Whether the call may run; what was asked and answered is in the log either way.

    What an earlier worker had asked about this call is gone on with, not asked again.
    """
    run = desk.state.run
    assert run is not None, "calls are decided inside a run"
    operation = _operation(kit, tool)
    wanted = operation_fingerprint(operation)
    if call.started is not None and call.started.operation_fingerprint.digest != wanted:
        await desk.append(_failed(call, ToolError(code=OPERATION_CHANGED, message=CHANGED)))
        return False
    decision = _decision(desk, kit, tool, operation.label)
    earlier = _asked_about(desk.state, call)
    if earlier is not None and earlier.finalized is not None and decision.effect != "deny":
        answer = earlier.finalized.decision
        if answer.outcome != "approved":
            await desk.append(_denied(call, denial_of(answer)))
        return answer.outcome == "approved"
    verdict = judge(
        Question(
            approval_id=new_approval_id() if earlier is None else earlier.request.approval_id,
            call_id=call.call_id,
            operation=operation,
            fingerprint=wanted,
            decision=decision,
        ),
        mode=kit.plan.permission_mode,
        # Nobody can answer a question yet, so none is left open.
        attended=False,
        asked_before=max(0, asked_before(desk.state, wanted) - (earlier is not None)),
    )
    events = [event for event in verdict.events if not _is_said(event, earlier)]
    if verdict.denial is not None:
        events.append(_denied(call, verdict.denial))
    if verdict.cancel_run:
        end = RunCancelled(reason=REASON_PERMISSION)
        await desk.in_turn(
            lambda: (*events, *closing(desk.state, run, end, frozenset({call.call_id})))
        )
    elif events:
        await desk.append(*events)
    return verdict.outcome == "allow"


async def _execute(desk: Desk, kit: Kit, one: _Prepared) -> None:
    """Run one call: in the log before its effect, and after it."""
    call, tool = one.call, one.tool
    if not call.executing:  # else it was announced together with its turn
        await desk.append(ToolCallExecuting(tool_call_id=call.call_id))
    end = await _outcome(desk, kit, call, tool)
    try:
        await desk.append(end)
    except LogBroken:
        raise
    except Fault as unfit:  # a result that no line can hold fails its call and nothing else
        message = f"the result can't be recorded: {unfit}"
        await desk.append(_failed(call, ToolError(code="internal", message=message)))


async def _outcome(desk: Desk, kit: Kit, call: CallState, tool: Tool) -> ToolCallTerminated:
    try:
        result = await tool.run(kit.room(desk, call.call_id))
    except ToolFailure as failure:
        return ToolCallTerminated(
            tool_call_id=call.call_id,
            owner=call.owner,
            outcome="failed",
            result=failure.result,
            error=failure.error(),
        )
    except LogBroken:  # from telling how it goes: nothing can be recorded any more
        raise
    except Exception as bug:  # noqa: BLE001 - a tool's bug ends that call; its story goes to stderr
        traceback.print_exception(bug, file=sys.stderr)
        message = clean(f"the tool itself failed: {type(bug).__name__}: {bug}", MESSAGE_CHARS_MAX)
        return _failed(call, ToolError(code="internal", message=message))
    return ToolCallTerminated(
        tool_call_id=call.call_id, owner=call.owner, outcome="completed", result=result
    )


def _asked_about(state: SessionView, call: CallState) -> ApprovalState | None:
    """The newest question about a call, if there was one."""
    asked = [one for one in state.approvals.values() if one.call_id == call.call_id]
    return asked[-1] if asked else None


def _is_said(event: Payload, earlier: ApprovalState | None) -> bool:
    """Whether the log has this event of a question already: a crash kept the beginning of it."""
    if earlier is None:
        return False
    return isinstance(event, ApprovalRequested) or type(event) in map(type, earlier.history)


def _operation(kit: Kit, tool: Tool) -> PreparedOperationIdentity:
    label = tool.label(kit.workspace)
    return identify(tool.name, tool.action, tool.normalized(), label, kit.workspace)


def _fingerprint(kit: Kit, block: ToolCallBlock, parsed: Tool | BadArguments) -> OperationDigest:
    if isinstance(parsed, BadArguments):  # it does nothing; what was asked for is its identity
        digest = unprepared_fingerprint(block.name, block.arguments, kit.workspace)
        return OperationDigest(digest=digest)
    return OperationDigest(digest=operation_fingerprint(_operation(kit, parsed)))


def _presentation(block: ToolCallBlock, parsed: Tool | BadArguments) -> ToolPresentation:
    if isinstance(parsed, BadArguments):
        return ToolPresentation(title=clean(block.name, TITLE_CHARS_MAX) or "?")
    primary = parsed.primary_argument()
    return ToolPresentation(
        title=parsed.title(),
        primary_argument=None if primary is None else clean(primary, PRIMARY_CHARS_MAX),
    )


def _denied(call: CallState, denial: Denial) -> ToolCallTerminated:
    return _failed(call, ToolError(code=DENIED, message=denial.text()))


def _failed(call: CallState, error: ToolError) -> ToolCallTerminated:
    return ToolCallTerminated(
        tool_call_id=call.call_id, owner=call.owner, outcome="failed", error=error
    )
