"""The gate: for every mode and every moment, what the log says and what holds after it."""

import json
from typing import Any

import pytest

from ipc.content import ToolError
from ipc.events import (
    ApprovalDoomLoopDetected,
    ApprovalEscalated,
    ApprovalEvaluated,
    ApprovalFinalized,
    ApprovalRequested,
    FinalDecision,
    OperationDigest,
    Payload,
    RunCompleted,
    ToolCallStarted,
    ToolPresentation,
)
from ipc.fold import SessionState, apply
from ipc.ids import ApprovalId, CallId, GrantId
from ipc.rules import MODES, Effect, PermissionMode, Rule
from tests.fakes.logs import Log, call
from workers.permissions.gate import (
    FEEDBACK_DOOM,
    FEEDBACK_N,
    FEEDBACK_UNATTENDED,
    Denial,
    Question,
    Verdict,
    asked_before,
    denial_of,
    identify,
    judge,
    operation_fingerprint,
    unprepared_fingerprint,
)
from workers.permissions.match import Decision

PUSH = identify("bash", "bash", {"command": "git push"}, "git push", "/w")
LIST = identify("bash", "bash", {"command": "ls"}, "ls", "/w")


def question(effect: Effect = "ask", rule: bool = True) -> Question:
    found = Rule(action="bash", resource="git *", effect=effect) if rule else None
    return Question(
        approval_id=ApprovalId("q"),
        call_id=CallId("c"),
        operation=PUSH,
        fingerprint=operation_fingerprint(PUSH),
        decision=Decision(
            effect=effect, source="agent_document" if rule else "default", rule=found
        ),
        expires_at="2026-01-02T03:04:05.000Z",
    )


def verdict(
    mode: PermissionMode,
    *,
    attended: bool = False,
    asked: int = 0,
    effect: Effect = "ask",
    grant: GrantId | None = None,
) -> Verdict:
    return judge(question(effect), mode=mode, attended=attended, asked_before=asked, grant=grant)


def shape(events: tuple[Payload, ...]) -> list[Any]:
    """Approval events in short: the kind, and the reason it carries."""
    short: list[Any] = []
    for event in events:
        match event:
            case ApprovalRequested():
                short.append("requested")
            case ApprovalEvaluated(decision=judged):
                short.append(("evaluated", judged.decision, judged.source, judged.reason_code))
            case ApprovalEscalated(reason_code=reason):
                short.append(("escalated", reason))
            case ApprovalDoomLoopDetected(repetitions=count):
                short.append(("doom_loop", count))
            case ApprovalFinalized(decision=end):
                short.append((end.outcome, end.source, end.reason_code, end.feedback))
    assert len(short) == len(events)
    return short


JUDGED = ("evaluated", "escalate", "system", "escalated")
UNATTENDED = ("rejected", "system", "unattended", FEEDBACK_UNATTENDED)
REJECTED_N = ("rejected", "permission_mode", "auto_approve_n_rejected", FEEDBACK_N)
APPROVED_Y = ("approved", "permission_mode", "auto_approve_y_approved", None)
YOLO = ("approved", "permission_mode", "yolo_approved", None)
ESCALATED = ("escalated", "escalated")


@pytest.mark.parametrize(
    ("mode", "attended", "outcome", "events", "cancel_run"),
    [
        ("yolo", False, "allow", ["requested", YOLO], False),
        ("yolo", True, "allow", ["requested", YOLO], False),
        ("ask", False, "deny", ["requested", UNATTENDED], True),
        ("ask", True, "ask", ["requested", ("escalated", "policy_requires_approval")], False),
        ("auto_approve", False, "deny", ["requested", JUDGED, UNATTENDED], True),
        ("auto_approve", True, "ask", ["requested", JUDGED, ESCALATED], False),
        ("auto_approve_n", False, "deny", ["requested", JUDGED, REJECTED_N], True),
        ("auto_approve_n", True, "deny", ["requested", JUDGED, REJECTED_N], False),
        ("auto_approve_y", False, "allow", ["requested", JUDGED, ESCALATED, APPROVED_Y], False),
        ("auto_approve_y", True, "allow", ["requested", JUDGED, ESCALATED, APPROVED_Y], False),
    ],
)
def test_an_ask_by_mode(
    mode: PermissionMode, attended: bool, outcome: str, events: list[Any], cancel_run: bool
) -> None:
    found = verdict(mode, attended=attended)

    assert (found.outcome, shape(found.events), found.cancel_run) == (outcome, events, cancel_run)
    assert (found.denial is not None) == (outcome == "deny")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("asked", [0, 99])
def test_an_allowed_call_is_no_question_and_leaves_no_event(
    mode: PermissionMode, asked: int
) -> None:
    assert verdict(mode, effect="allow", asked=asked) == Verdict(outcome="allow")


@pytest.mark.parametrize("mode", MODES)
def test_a_hard_deny_stands_before_grant_and_mode(mode: PermissionMode) -> None:
    found = verdict(mode, effect="deny", grant=GrantId("g"), attended=True)

    assert found == Verdict(
        outcome="deny",
        denial=Denial(
            source="policy", reason="policy_denied", feedback="denied by the rule bash: git *"
        ),
    )


def test_a_denial_is_the_json_of_the_specification() -> None:
    found = judge(question("deny", rule=False), mode="yolo", attended=True, asked_before=0)

    assert found.denial is not None
    assert found.denial.text() == (
        '{"kind":"tool_denied","source":"policy","reason":"policy_denied",'
        '"feedback":"no permission rule covers this call"}'
    )
    assert list(json.loads(found.denial.text())) == ["kind", "source", "reason", "feedback"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("asked", [3, 4, 100])
def test_the_doom_loop_guard_stands_before_grant_and_mode(mode: PermissionMode, asked: int) -> None:
    found = verdict(mode, asked=asked, grant=GrantId("g"), attended=True)
    end = ("rejected", "doom_loop_guard", "doom_loop_detected", FEEDBACK_DOOM)

    assert found.outcome == "deny"
    assert shape(found.events) == ["requested", ("doom_loop", asked + 1), end]
    assert not found.cancel_run  # the model is told, and may think of something else


def test_a_grant_stands_before_the_mode() -> None:
    found = verdict("ask", grant=GrantId("g"))

    assert found.outcome == "allow"
    assert shape(found.events) == [
        "requested",
        ("approved", "tree_grant", "tree_grant_matched", None),
    ]
    end = found.events[-1]
    assert isinstance(end, ApprovalFinalized)
    assert end.decision.tree_grant_id == "g"


@pytest.mark.parametrize("attended", [True, False])
def test_the_request_says_what_is_asked_and_until_when(attended: bool) -> None:
    asked = verdict("ask", attended=attended).events[0]

    assert isinstance(asked, ApprovalRequested)
    request = asked.request
    assert (request.approval_id, request.tool_call_id, request.revision) == ("q", "c", 1)
    assert request.operation == PUSH
    assert request.operation_fingerprint == operation_fingerprint(PUSH)
    assert [one.effect for one in request.evaluations] == ["ask"]
    assert (request.constraints.expires_at is not None) == attended


# --- identities ----------------------------------------------------------------------------------


def test_equal_operations_have_equal_fingerprints_and_others_have_not() -> None:
    same = identify("bash", "bash", {"command": "git push"}, "git push", "/w")
    others = [
        LIST,
        identify("bash", "bash", {"command": "git push"}, "git push", "/elsewhere"),
        identify("bash", "bash", {"command": "git push", "timeout": 1}, "git push", "/w"),
        identify("bash2", "bash", {"command": "git push"}, "git push", "/w"),
        identify("bash", "bash", {"command": "git push"}, None, "/w"),
    ]

    assert operation_fingerprint(same) == operation_fingerprint(PUSH)
    assert len({operation_fingerprint(one) for one in [PUSH, *others]}) == 1 + len(others)


def test_the_order_of_arguments_does_not_matter() -> None:
    one = identify("edit", "write", {"a": 1, "b": 2}, "f", "/w")
    other = identify("edit", "write", {"b": 2, "a": 1}, "f", "/w")

    assert one == other


def test_a_fingerprint_never_changes() -> None:
    # It is compared across builds: grants and doom loops live in logs.
    assert operation_fingerprint(PUSH) == (
        "sha256:882e392c6052832f7eec5220d4fc691ebbd691dd39be101fab166c743635168d"
    )


def test_what_could_not_be_prepared_has_a_fingerprint_too() -> None:
    broken = ["{", "\ud800", "", "{" * 100_000]
    found = {unprepared_fingerprint("bash", text, "/w") for text in broken}

    assert len(found) == len(broken)


# --- how often it was asked ----------------------------------------------------------------------


class Session:
    """A log that grows, and its state."""

    def __init__(self) -> None:
        self.log = Log()
        self.state = SessionState()
        self.calls = 0
        self.log.created()
        self.log.user("go")
        self.begin("run 1")

    def begin(self, run: str) -> None:
        self.log.run_started(run)
        self.fold()

    def fold(self) -> None:
        for event in self.log.events:
            if event.seq > self.state.seq:
                apply(self.state, event)

    def ask(self, operation: Any = PUSH, *, fails: bool = False) -> Verdict:
        """A turn with one call: taken up, judged in yolo mode, run if it may."""
        self.calls += 1
        name = f"c{self.calls}"
        self.log.turn(call(name))
        wanted = operation_fingerprint(operation)
        self.log.add(
            ToolCallStarted(
                tool_call_id=CallId(name),
                owner=self.log.owners[name],
                operation_fingerprint=OperationDigest(digest=wanted),
                presentation=ToolPresentation(title=name),
            )
        )
        self.fold()
        found = judge(
            Question(
                approval_id=ApprovalId(f"q{self.calls}"),
                call_id=CallId(name),
                operation=operation,
                fingerprint=wanted,
                decision=Decision(effect="ask", source="agent_document"),
            ),
            mode="yolo",
            attended=False,
            asked_before=asked_before(self.state.view(), wanted),
        )
        for event in found.events:
            self.log.add(event)
        failed = fails or found.outcome != "allow"
        self.log.ended(name, error=ToolError(code="x", message="x") if failed else None)
        self.fold()
        return found


def test_the_fourth_time_is_one_too_many() -> None:
    session = Session()

    assert [session.ask().outcome for _ in range(6)] == ["allow"] * 3 + ["deny"] * 3


def test_another_call_that_completes_begins_the_count_anew() -> None:
    session = Session()
    outcomes = [session.ask().outcome for _ in range(3)]
    outcomes.append(session.ask(LIST).outcome)

    assert outcomes + [session.ask().outcome for _ in range(4)] == ["allow"] * 7 + ["deny"]


def test_another_call_that_fails_does_not() -> None:
    session = Session()
    for _ in range(3):
        session.ask()
    session.ask(LIST, fails=True)

    assert session.ask().outcome == "deny"


def test_a_word_of_a_person_begins_the_count_anew() -> None:
    session = Session()
    for _ in range(3):
        session.ask()
    session.log.user("again, please")

    assert [session.ask().outcome for _ in range(4)] == ["allow"] * 3 + ["deny"]


def test_a_new_run_begins_the_count_anew() -> None:
    session = Session()
    for _ in range(4):
        session.ask()
    session.log.run_ended(RunCompleted())
    session.fold()
    assert asked_before(session.state, operation_fingerprint(PUSH)) == 0
    session.begin("run 2")

    assert [session.ask().outcome for _ in range(4)] == ["allow"] * 3 + ["deny"]


def test_a_rejected_question_counts_as_one() -> None:
    session = Session()
    for _ in range(2):
        session.ask()
    assert asked_before(session.state, operation_fingerprint(PUSH)) == 2
    session.log.asked("other", f"c{session.calls}")
    session.fold()
    assert asked_before(session.state, operation_fingerprint(PUSH)) == 2


def test_the_end_of_a_question_is_told_to_the_model() -> None:
    end = FinalDecision(
        outcome="rejected", source="user", reason_code="user_rejected", feedback="not today"
    )
    assert denial_of(end) == Denial(source="user", reason="user_rejected", feedback="not today")
