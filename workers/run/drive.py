"""The run loop: asks `machine` what comes next and has it done, until the run has ended."""

from ipc.events import AttemptAbandoned, RunCancelled, RunCompleted, RunFailed, UserInputSubmitted
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

REASON_MAX_TURNS = "max_turns"


async def drive(desk: Desk, kit: Kit) -> None:
    """Carry the open run to its end; returns when there is none.

    Every step ends in an append, so the same answer of `machine` can't come twice in a row.
    Cancellation and faults pass through; who called closes the run.
    """
    while True:
        match next_step(desk.state, kit.plan.limits.max_turns):
            case Rest():
                return
            case Abandon(attempt_id):
                await desk.append(AttemptAbandoned(attempt_id=attempt_id))
            case Submit(seqs):
                waiting = desk.state.pending
                await desk.append(*(UserInputSubmitted(input=waiting[seq]) for seq in seqs))
            case TakeTurn():
                await take_turn(desk, kit)
            case StartCalls() as step:
                await start_calls(desk, kit, step)
            case RunCalls(turn):
                await run_calls(desk, kit, turn)
            case Complete(text):
                await desk.append(RunCompleted(final_text=text))
            case GiveUp(error):
                await desk.append(RunFailed(error=error))
            case StopAtLimit():
                await desk.append(RunCancelled(reason=REASON_MAX_TURNS))
