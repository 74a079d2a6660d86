"""The run loop: asks `machine` what comes next and has it done, until the run has ended."""

from typing import Final

from ipc.events import (
    AttemptAbandoned,
    Payload,
    RunCancelled,
    RunCompleted,
    RunFailed,
    UserInputSubmitted,
)
from ipc.fold import SessionView
from workers.run.batch import run_calls, start_calls
from workers.run.desk import Desk, Kit
from workers.run.machine import (
    Abandon,
    Complete,
    GiveUp,
    Rest,
    RunCalls,
    StartCalls,
    StopAtLimit,
    Submit,
    TakeTurn,
    next_step,
)
from workers.run.turn import take_turn

REASON_MAX_TURNS: Final = "max_turns"


async def drive(desk: Desk, kit: Kit) -> None:
    """Carry the open run to its end; returns when there is none.

    Every step ends in an append, so the same answer of `machine` can't come twice in a row.
    Cancellation and faults pass through; who called closes the run.
    """
    limit = kit.plan.limits.max_turns
    while True:
        match next_step(desk.state, limit):
            case Rest():
                return
            case Abandon(attempt_id):
                await desk.append(AttemptAbandoned(attempt_id=attempt_id))
            case TakeTurn():
                await take_turn(desk, kit)
            case StartCalls() as step:
                await start_calls(desk, kit, step)
            case RunCalls(turn):
                await run_calls(desk, kit, turn)
            case Submit() | Complete() | GiveUp() | StopAtLimit():
                await desk.in_turn(lambda: boundary(desk.state, limit))


def boundary(state: SessionView, max_turns: int | None) -> tuple[Payload, ...]:
    """What is appended between two turns, if that is where the run is: inputs, or its end.

    Asked again in the session's turn: what a person did since the step was found counts.
    """
    match next_step(state, max_turns):
        case Submit(seqs):
            return tuple(UserInputSubmitted(input=state.pending[seq]) for seq in seqs)
        case Complete(text):
            return (RunCompleted(final_text=text),)
        case GiveUp(error):
            return (RunFailed(error=error),)
        case StopAtLimit():
            return (RunCancelled(reason=REASON_MAX_TURNS),)
        case _:
            return ()
