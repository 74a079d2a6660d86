"""Whether a call may run, has to be asked about or is refused, and what the log says about it.

Nothing happens in here. `judge` returns the approval events to append, in their order, and the
outcome that holds once they are durable; who runs the batch obeys.

The order is that of spec 1.9: a hard deny, the doom-loop guard, the grants of the tree, the mode.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from ipc.events import (
    DOOM_LOOP_REPETITIONS_MIN,
    ApprovalConstraints,
    ApprovalDoomLoopDetected,
    ApprovalEscalated,
    ApprovalEvaluated,
    ApprovalFinalized,
    ApprovalReasonCode,
    ApprovalRequest,
    ApprovalRequested,
    DecisionSource,
    EvaluatedDecision,
    FinalDecision,
    OperationResource,
    Payload,
    PolicyEvaluation,
    PreparedOperationIdentity,
)
from ipc.fold import SessionView, TurnEntry, UserEntry
from ipc.ids import ApprovalId, CallId, Digest, Fingerprint, GrantId
from ipc.plan import fingerprint
from ipc.rules import Action, PermissionMode
from workers.permissions.match import Decision

FEEDBACK_N: Final = "rejected by auto-approve(N) mode"
FEEDBACK_DOOM: Final = (
    "the same call was asked for again and again without anything else in between; "
    "do something different"
)
FEEDBACK_UNATTENDED: Final = "nobody is there to approve this call; do without it"


# --- what is asked for ---------------------------------------------------------------------------


def identify(
    tool: str, action: Action, arguments: Mapping[str, Any], label: str | None, workspace: str
) -> PreparedOperationIdentity:
    """The identity of a prepared call; `arguments` are the normalized ones."""
    resources: tuple[OperationResource, ...] = ()
    if label is not None:
        resources = (OperationResource(label=label, boundary="exact", lifetime="restart_stable"),)
    return PreparedOperationIdentity(
        tool=tool,
        action=action,
        arguments_digest=_digest(arguments),
        workspace=workspace,
        label=label,
        resources=resources,
    )


def operation_fingerprint(operation: PreparedOperationIdentity) -> Fingerprint:
    """Equal for equal operations, also in another process and another build."""
    return fingerprint(operation)


def unprepared_fingerprint(tool: str, arguments: str, workspace: str) -> Fingerprint:
    """The fingerprint of a call that could not be prepared: of the model's own words."""
    words = arguments.encode("utf-8", "surrogatepass").hex()
    return fingerprint({"tool": tool, "unprepared": words, "workspace": workspace})


def _digest(value: Any) -> Digest:
    text = msgspec.json.encode(value, order="deterministic")
    return Digest(hashlib.sha256(text).hexdigest())


def asked_before(state: SessionView, wanted: Fingerprint) -> int:
    """How often this operation was asked about in the open run since something else happened.

    Something else is an input of a person, or another operation that completed (spec 1.9).
    """
    run = state.run
    if run is None:
        return 0
    since = _last_change(state, wanted, run.started_seq)
    return sum(
        approval.seq > since and approval.request.operation_fingerprint == wanted
        for approval in state.approvals.values()
    )


def _last_change(state: SessionView, wanted: Fingerprint, started_seq: int) -> int:
    last = started_seq
    for entry in reversed(state.entries):
        if entry.seq <= started_seq:
            break
        if isinstance(entry, UserEntry):
            return max(last, entry.seq)
        if isinstance(entry, TurnEntry):
            for call in entry.calls:
                started, ended = call.started, call.ended
                same = started is not None and started.operation_fingerprint.digest == wanted
                if ended is not None and ended.outcome == "completed" and not same:
                    last = max(last, call.ended_seq or 0)
    return last


# --- the judgement -------------------------------------------------------------------------------


class Denial(Struct, frozen=True, kw_only=True, tag_field="kind", tag="tool_denied"):
    """What the model is told about a refused call, as JSON (spec 1.9)."""

    source: DecisionSource
    reason: ApprovalReasonCode
    feedback: str | None = None

    def text(self) -> str:
        """The JSON."""
        return msgspec.json.encode(self).decode()


class Verdict(Struct, frozen=True, kw_only=True):
    """What to append, and what holds after that.

    "allow": run it. "deny": refuse it with `denial`, and with `cancel_run` the run ends there,
    since nobody can answer what it will go on asking. "ask": a question is open, wait for its
    answer.
    """

    outcome: Literal["allow", "deny", "ask"]
    events: tuple[Payload, ...] = ()
    denial: Denial | None = None
    cancel_run: bool = False


class Question(Struct, frozen=True, kw_only=True):
    """One prepared call before the gate. The ids are made by the caller, so that equal is equal."""

    approval_id: ApprovalId
    call_id: CallId
    operation: PreparedOperationIdentity
    fingerprint: Fingerprint
    decision: Decision
    expires_at: str | None = None  # RFC 3339; when an unanswered question is refused

    @property
    def evaluations(self) -> tuple[PolicyEvaluation, ...]:
        """What the rules said."""
        return (self.decision.evaluation(self.operation.action, self.operation.label),)


def judge(
    question: Question,
    *,
    mode: PermissionMode,
    attended: bool,
    asked_before: int,
    grant: GrantId | None = None,
) -> Verdict:
    """Whether the call may run.

    `asked_before` is how often the same operation was asked about already, without anything else
    in between; `grant` is a live grant of the tree for it; `attended` says that somebody answers.
    """
    if question.decision.effect == "allow":
        return Verdict(outcome="allow")
    if question.decision.effect == "deny":
        denial = Denial(
            source="policy", reason="policy_denied", feedback=_rule_feedback(question.decision)
        )
        return Verdict(outcome="deny", denial=denial)
    asked = _requested(question, attended=attended)
    if asked_before + 1 >= DOOM_LOOP_REPETITIONS_MIN:
        return _doom_loop(question, asked, asked_before + 1)
    if grant is not None:
        decision = FinalDecision(
            outcome="approved",
            source="tree_grant",
            reason_code="tree_grant_matched",
            tree_grant_id=grant,
        )
        return Verdict(outcome="allow", events=(asked, _finalized(question, decision)))
    return _by_mode(question, asked, mode, attended=attended)


def _by_mode(
    question: Question, asked: ApprovalRequested, mode: PermissionMode, *, attended: bool
) -> Verdict:
    if mode == "yolo":
        decision = FinalDecision(
            outcome="approved", source="permission_mode", reason_code="yolo_approved"
        )
        return Verdict(outcome="allow", events=(asked, _finalized(question, decision)))
    if mode == "ask":
        return _to_a_person(question, (asked,), "policy_requires_approval", attended=attended)
    # No classifier exists yet, and one that can't answer escalates.
    judged = ApprovalEvaluated(
        approval_id=question.approval_id,
        decision=EvaluatedDecision(
            decision="escalate",
            source="system",
            reason_code="escalated",
            evaluations=question.evaluations,
        ),
    )
    if mode == "auto_approve_y":
        escalated = ApprovalEscalated(approval_id=question.approval_id, reason_code="escalated")
        decision = FinalDecision(
            outcome="approved", source="permission_mode", reason_code="auto_approve_y_approved"
        )
        events = (asked, judged, escalated, _finalized(question, decision))
        return Verdict(outcome="allow", events=events)
    if mode == "auto_approve_n":
        decision = _rejection("permission_mode", "auto_approve_n_rejected", FEEDBACK_N)
        return _rejected(question, (asked, judged), decision, cancel_run=not attended)
    return _to_a_person(question, (asked, judged), "escalated", attended=attended)


def _to_a_person(
    question: Question,
    events: tuple[Payload, ...],
    reason: ApprovalReasonCode,
    *,
    attended: bool,
) -> Verdict:
    if not attended:
        decision = _rejection("system", "unattended", FEEDBACK_UNATTENDED)
        return _rejected(question, events, decision, cancel_run=True)
    escalated = ApprovalEscalated(approval_id=question.approval_id, reason_code=reason)
    return Verdict(outcome="ask", events=(*events, escalated))


def _doom_loop(question: Question, asked: ApprovalRequested, repetitions: int) -> Verdict:
    detected = ApprovalDoomLoopDetected(
        approval_id=question.approval_id,
        operation_fingerprint=question.fingerprint,
        repetitions=repetitions,
    )
    decision = _rejection("doom_loop_guard", "doom_loop_detected", FEEDBACK_DOOM)
    return _rejected(question, (asked, detected), decision, cancel_run=False)


def _requested(question: Question, *, attended: bool) -> ApprovalRequested:
    return ApprovalRequested(
        request=ApprovalRequest(
            approval_id=question.approval_id,
            tool_call_id=question.call_id,
            revision=1,
            trigger="permission_policy",
            operation=question.operation,
            operation_fingerprint=question.fingerprint,
            evaluations=question.evaluations,
            constraints=ApprovalConstraints(
                allow_once=True,
                allow_tree_grant=True,
                cancellable=True,
                expires_at=question.expires_at if attended else None,
            ),
        )
    )


def _rejection(source: DecisionSource, reason: ApprovalReasonCode, feedback: str) -> FinalDecision:
    return FinalDecision(outcome="rejected", source=source, reason_code=reason, feedback=feedback)


def _rejected(
    question: Question,
    events: tuple[Payload, ...],
    decision: FinalDecision,
    *,
    cancel_run: bool,
) -> Verdict:
    return Verdict(
        outcome="deny",
        events=(*events, _finalized(question, decision)),
        denial=denial_of(decision),
        cancel_run=cancel_run,
    )


def denial_of(decision: FinalDecision) -> Denial:
    """What the model is told when a question ended without an approval."""
    return Denial(source=decision.source, reason=decision.reason_code, feedback=decision.feedback)


def _finalized(question: Question, decision: FinalDecision) -> ApprovalFinalized:
    return ApprovalFinalized(approval_id=question.approval_id, decision=decision)


def _rule_feedback(decision: Decision) -> str:
    if decision.rule is None:
        return "no permission rule covers this call"
    return f"denied by the rule {decision.rule.action}: {decision.rule.resource}"
