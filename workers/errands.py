"""Errands: one order, one answer, for who needs a worker's knowledge and has no tree.

There is one so far: what the permission rules and the gate make of a call.
"""

import os
import sys
import traceback
from typing import Final

import msgspec

from ipc.errands import (
    EXPLAIN,
    Consequence,
    Explain,
    Explained,
    Explanation,
    Unreadable,
    Weighed,
)
from ipc.ids import new_approval_id, new_call_id
from ipc.rules import ACTIONS, Action
from workers.permissions.gate import Question, Verdict, identify, judge, operation_fingerprint
from workers.permissions.match import PATH_ACTIONS, decide, ranking, visible
from workers.tools import TOOLS
from workers.tools.base import BadArguments, parse
from workers.tools.paths import label_of

EXIT_USAGE: Final = 2
EXIT_BROKEN: Final = 70  # EX_SOFTWARE of sysexits.h, as any worker's


def main() -> None:
    """Be one errand worker: an order from stdin, its answer to stdout, and gone."""
    if sys.argv[1:] != [EXPLAIN]:
        sys.stderr.write(f"usage: python -m workers {EXPLAIN} <ORDER >ANSWER\n")
        sys.exit(EXIT_USAGE)
    try:
        order = msgspec.json.decode(sys.stdin.buffer.read(), type=Explain)
        sys.stdout.buffer.write(msgspec.json.encode(explain(order)))
        sys.stdout.buffer.flush()
    except Exception as trouble:  # noqa: BLE001 - the outermost frame: told and not hidden
        traceback.print_exception(trouble, file=sys.stderr)
        sys.stderr.flush()
        os._exit(EXIT_BROKEN)


def explain(order: Explain) -> Explanation:
    """What a run would do with the call, decided by what a run decides with."""
    if order.arguments is not None:
        call = parse(order.name, order.arguments, TOOLS)
        if isinstance(call, BadArguments):
            known = order.name if order.name in TOOLS else None
            return Explained(tool=known, refused=f"{call.code}: {call.message}")
        return _weigh(order, call.name, call.action, call.label(order.workspace))
    tool = TOOLS.get(order.name)
    action = _action(order.name) if tool is None else tool.action
    if action is None:
        return Unreadable(reason=f"there is no {order.name!r}", names=_names())
    if not order.text:
        if tool is not None:  # each of its calls has a label
            return Unreadable(reason=f"it does not say what {order.name} is given", names=_names())
        return _weigh(order, None, action, None)
    label = label_of(order.text, order.workspace) if action in PATH_ACTIONS else order.text
    return _weigh(order, None if tool is None else tool.name, action, label)


def _action(name: str) -> Action | None:
    return next((action for action in ACTIONS if action == name), None)


def _names() -> tuple[str, ...]:
    return tuple(dict.fromkeys((*TOOLS, *ACTIONS)))


def _weigh(order: Explain, tool: str | None, action: Action, label: str | None) -> Explained:
    rules, overlay = order.rules, order.overlay
    decision = decide(rules, overlay, action, label, order.workspace)
    operation = identify(tool or action, action, {}, label, order.workspace)
    question = Question(
        approval_id=new_approval_id(),
        call_id=new_call_id(),
        operation=operation,
        fingerprint=operation_fingerprint(operation),
        decision=decision,
    )
    unattended, attended = (
        judge(question, mode=order.mode, attended=there, asked_before=0) for there in (False, True)
    )
    return Explained(
        tool=tool,
        action=action,
        label=label,
        tools=tuple(name for name, one in TOOLS.items() if one.action == action),
        visible=visible(rules, overlay, action),
        rules=sum(rule.action == action for rule in (*overlay, *rules)),
        weighed=tuple(
            Weighed(
                source=one.source,
                place=one.place,
                rule=one.rule,
                literal=one.specificity[0],
                wildcards=-one.specificity[1],
            )
            for one in ranking(rules, overlay, action, label, order.workspace)
        ),
        effect=decision.effect,
        unattended=_consequence(unattended),
        attended=_consequence(attended),
    )


def _consequence(verdict: Verdict) -> Consequence:
    reason = verdict.denial.reason if verdict.denial is not None else None
    return Consequence(outcome=verdict.outcome, reason=reason, ends_run=verdict.cancel_run)
