"""The tool calls of one turn: taken up in order, all decided, and only then run."""

import asyncio
import sys
import traceback
from typing import Final

from msgspec import Struct

from ipc.content import ToolCallBlock, ToolError
from ipc.events import (
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
from ipc.faults import clean
from ipc.fold import CallState, TurnEntry
from ipc.ids import new_approval_id, new_call_id
from workers.permissions.gate import (
    Question,
    asked_before,
    identify,
    judge,
    operation_fingerprint,
    unprepared_fingerprint,
)
from workers.permissions.match import decide
from workers.run.desk import Desk, Kit
from workers.run.history import DENIED
from workers.run.machine import StartCalls, cut_off
from workers.run.offer import overlay
from workers.store.tree import LogBroken
from workers.tools.base import BadArguments, Tool, ToolFailure, parse

REASON_PERMISSION: Final = "permission"
TOO_MANY: Final = "too_many_calls"
TITLE_CHARS_MAX: Final = 80
PRIMARY_CHARS_MAX: Final = 400


class _Prepared(Struct, frozen=True):
    """A started call and what it is going to do."""

    call: CallState
    tool: Tool


async def start_calls(desk: Desk, kit: Kit, step: StartCalls) -> None:
    """Take up the calls in the model's order; one that can't be run ends at once, told why."""
    events: list[Payload] = []
    for number, (index, block) in enumerate(step.asked):
        call_id = new_call_id()
        parsed = parse(block.name, block.arguments, kit.tools)
        if number >= kit.plan.limits.prepared_tools_max:
            limit = kit.plan.limits.prepared_tools_max
            parsed = BadArguments(f"a turn may hold {limit} calls; ask again", code=TOO_MANY)
        owner = ToolCallOwner(
            model_turn_seq=step.turn.event.model_turn_seq,
            content_index=index,
            model_call_id=block.model_call_id,
            provider_item_id=block.provider_item_id,
        )
        events.append(
            ToolCallStarted(
                tool_call_id=call_id,
                owner=owner,
                operation_fingerprint=_fingerprint(kit, block, parsed),
                presentation=_presentation(block, parsed),
            )
        )
        if isinstance(parsed, BadArguments):
            events.append(
                ToolCallTerminated(
                    tool_call_id=call_id, owner=owner, outcome="failed", error=parsed.error()
                )
            )
    await desk.append(*events)


async def run_calls(desk: Desk, kit: Kit, turn: TurnEntry) -> None:
    """Decide about every open call of the turn, then run those that may, parallel ones together.

    A question that nobody can answer ends the run (spec 1.1, headless).
    """
    ready: list[_Prepared] = []
    for call in turn.open_calls():
        tool = parse(call.name, call.arguments, kit.tools)
        if isinstance(tool, BadArguments):  # another build took it up, which knew this tool
            await desk.append(_failed(call, tool.error()))
        elif await _may_run(desk, kit, call, tool):
            ready.append(_Prepared(call, tool))
        if desk.state.run is None:
            return
    together = [one for one in ready if one.tool.parallel]
    if together:
        async with asyncio.TaskGroup() as tasks:
            for one in together:
                tasks.create_task(_execute(desk, kit, one), name=one.tool.name)
    for one in ready:
        if not one.tool.parallel:
            await _execute(desk, kit, one)


async def _may_run(desk: Desk, kit: Kit, call: CallState, tool: Tool) -> bool:
    """Whether the rules let the call run; what was asked and answered is in the log either way."""
    run = desk.state.run
    assert run is not None, "calls are decided inside a run"
    operation = _operation(kit, tool)
    wanted = operation_fingerprint(operation)
    decision = decide(
        run.agent.permissions, overlay(desk, kit), tool.action, operation.label, kit.workspace
    )
    verdict = judge(
        Question(
            approval_id=new_approval_id(),
            call_id=call.call_id,
            operation=operation,
            fingerprint=wanted,
            decision=decision,
        ),
        mode=kit.plan.permission_mode,
        # Nobody can answer a question yet, so none is left open.
        attended=False,
        asked_before=asked_before(desk.state, wanted),
    )
    events = list(verdict.events)
    if verdict.denial is not None:
        told = ToolError(code=DENIED, message=verdict.denial.text())
        events.append(_failed(call, told))
    if verdict.cancel_run:
        rest = [other for other in run.open_calls() if other.call_id != call.call_id]
        end = RunCancelled(reason=REASON_PERMISSION)
        events += [*(cut_off(other, end) for other in rest), end]
    if events:
        await desk.append(*events)
    return verdict.outcome == "allow"


async def _execute(desk: Desk, kit: Kit, one: _Prepared) -> None:
    """Run one call: in the log before its effect, and after it."""
    call, tool = one.call, one.tool
    await desk.append(ToolCallExecuting(tool_call_id=call.call_id))
    try:
        result = await tool.run(kit.room(call.call_id))
    except ToolFailure as failure:
        end = _failed(call, failure.error())
        if failure.result is not None:
            end = ToolCallTerminated(
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
        message = f"the tool itself failed: {type(bug).__name__}: {bug}"
        end = _failed(call, ToolError(code="internal", message=message))
    else:
        end = ToolCallTerminated(
            tool_call_id=call.call_id, owner=call.owner, outcome="completed", result=result
        )
    await desk.append(end)


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


def _failed(call: CallState, error: ToolError) -> ToolCallTerminated:
    return ToolCallTerminated(
        tool_call_id=call.call_id, owner=call.owner, outcome="failed", error=error
    )
