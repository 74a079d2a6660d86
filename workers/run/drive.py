"""The run loop: asks `machine` what comes next and has it done, until the run has ended."""

from typing import Final

from ipc.events import (
    AttemptAbandoned,
    ModelFallback,
    Payload,
    RunCancelled,
    RunCompleted,
    RunFailed,
    UserInputSubmitted,
)
from ipc.fold import SessionView, Setback
from ipc.ids import CallId
from ipc.instants import milliseconds
from workers.run.batch import run_calls, start_calls
from workers.run.desk import Desk, Kit
from workers.run.machine import (
    Abandon,
    Complete,
    FallBack,
    GiveUp,
    Rest,
    Retry,
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
    Cancellation and faults pass through, also out of a pause; who called closes the run.
    """
    limit = kit.plan.limits.max_turns
    announced = frozenset[CallId]()  # by the last turn: they can't have begun before it
    while True:
        match next_step(desk.state, limit):
            case Rest():
                return
            case Abandon(attempt_id):
                await desk.append(AttemptAbandoned(attempt_id=attempt_id))
            case TakeTurn():
                announced = await take_turn(desk, kit)
            case Retry(setback):
                await _pause(kit, setback)
                # Somebody may have said something meanwhile, which the model is to hear.
                if isinstance(next_step(desk.state, limit), Retry):
                    announced = await take_turn(desk, kit)
            case FallBack() as step:
                await desk.append(_fallback(desk.state, step))
            case StartCalls() as step:
                await start_calls(desk, kit, step)
            case RunCalls(turn):
                await run_calls(desk, kit, turn, announced)
            case Submit() | Complete() | GiveUp() | StopAtLimit():
                await desk.in_turn(lambda: boundary(desk.state, limit))


async def _pause(kit: Kit, setback: Setback) -> None:
    """Wait until a failed attempt may be made again; a worker that comes later waits for less."""
    rest_ms = setback.rest_ms(milliseconds(kit.clock.now()))
    if rest_ms > 0:
        await kit.clock.sleep(rest_ms / 1000)


def _fallback(state: SessionView, step: FallBack) -> ModelFallback:
    run = state.run
    assert run is not None, "a fallback needs an open run"
    return ModelFallback(
        from_=run.models[run.fallback_index].resolved(),
        to=run.models[step.index].resolved(),
        from_fallback_index=run.fallback_index,
        to_fallback_index=step.index,
        attempts_on_from=run.asked,
        error=step.error,
    )


def boundary(state: SessionView, max_turns: int | None) -> tuple[Payload, ...]:
    """What is appended between two turns, if that is where the run is: inputs, or its end.

    Asked again in the session's turn: what a person did since the step was found counts.
    """
    match next_step(state, max_turns):
        case Submit(seqs):
            return tuple(UserInputSubmitted(input=state.pending[seq]) for seq in seqs)
        case Complete(text):
            return (RunCompleted(final_text=text),)
        case GiveUp(error, model_error, model):
            return (RunFailed(error=error, model_error=model_error, resolved_model=model),)
        case StopAtLimit():
            return (RunCancelled(reason=REASON_MAX_TURNS),)
        case _:
            return ()
