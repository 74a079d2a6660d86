"""The verdict on a run: its exit code, its status, and the one line about it."""

import pytest

from cookie.cli.verdict import Ended, Verdict, cancellation, cancelled, judge, permission_advice
from ipc.events import (
    ApprovalConstraints,
    ApprovalFinalized,
    ApprovalRequest,
    ApprovalRequested,
    FinalDecision,
    PreparedOperationIdentity,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunInterrupted,
)
from ipc.fold import SessionState, apply
from tests.fakes.logs import ANY, Log, call


@pytest.mark.parametrize(
    ("ended", "verdict", "who"),
    [
        (RunCompleted(final_text="x"), Verdict("completed", 0, None), None),
        (RunFailed(error="no key"), Verdict("failed", 1, "no key"), None),
        (
            RunCancelled(reason="permission"),
            Verdict("cancelled", 3, "stopped by a permission"),
            "permission",
        ),
        (RunCancelled(reason="user"), Verdict("cancelled", 4, "cancelled: user"), "user"),
        (RunCancelled(), Verdict("cancelled", 4, "cancelled: no reason given"), "user"),
        (RunCancelled(reason="budget"), Verdict("cancelled", 6, "cancelled: budget"), "user"),
        (RunInterrupted(reason="a"), Verdict("interrupted", 4, "interrupted: a"), None),
    ],
)
def test_every_end_has_an_exit_code_and_a_line(
    ended: Ended, verdict: Verdict, who: str | None
) -> None:
    assert judge(ended, SessionState()) == verdict
    assert cancellation(ended) == who


def test_a_limit_names_its_flag() -> None:
    assert cancelled("timeout") == "cancelled: timeout (raise --timeout to allow more)"
    assert cancelled("max_turns") == "cancelled: max_turns (raise --max-turns to allow more)"


def asked(*questions: tuple[str, str | None, str]) -> SessionState:
    """A session in which these were asked: action, label, and how it came out."""
    log = Log()
    log.created()
    log.user("hi")
    log.run_started("run")
    log.attempt("a1")
    log.turn(*(call(f"c{n}") for n in range(len(questions))), attempt="a1")
    for n, (action, label, outcome) in enumerate(questions):
        log.started(f"c{n}")
        request = ApprovalRequest(
            approval_id=f"q{n}",  # type: ignore[arg-type]
            tool_call_id=f"c{n}",  # type: ignore[arg-type]
            revision=1,
            trigger="permission_policy",
            operation=PreparedOperationIdentity(
                tool=f"the {action} tool",
                action=action,  # type: ignore[arg-type]
                arguments_digest=ANY,
                workspace="/w",
                label=label,
            ),
            operation_fingerprint=ANY,
            evaluations=(),
            constraints=ApprovalConstraints(
                allow_once=True, allow_tree_grant=True, cancellable=True
            ),
        )
        log.add(ApprovalRequested(request=request))
        decision = FinalDecision(
            outcome=outcome,  # type: ignore[arg-type]
            source="system",
            reason_code="unattended",
        )
        log.add(ApprovalFinalized(approval_id=f"q{n}", decision=decision))  # type: ignore[arg-type]
    state = SessionState()
    for event in log.events:
        apply(state, event)
    return state


YOLO = "--permission-mode yolo"


@pytest.mark.parametrize(
    ("questions", "which", "how"),
    [
        (
            [("bash", "make all", "rejected")],
            "the bash tool 'make all'",
            f"--allowed-tools bash, or everything with {YOLO}",
        ),
        (
            [("write", "/w/a b", "rejected"), ("bash", "make", "approved")],
            "the write tool '/w/a b'",
            f"--allowed-tools write, or everything with {YOLO}",
        ),
        (
            [("skill", "my skill", "rejected")],
            "the skill tool 'my skill'",
            f"--allowed-tools 'skill:my skill', or everything with {YOLO}",
        ),
        ([("webfetch", None, "rejected")], "the webfetch tool", YOLO),
    ],
)
def test_a_refused_call_is_named_with_the_flag_that_allows_it(
    questions: list[tuple[str, str | None, str]], which: str, how: str
) -> None:
    assert permission_advice(asked(*questions)) == (
        f"stopped: {which} must be asked for and nobody can answer here; allow it with {how}"
    )
