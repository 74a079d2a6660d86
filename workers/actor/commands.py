"""What a client may ask of a session: one function a method, called in the session's turn."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from ipc.events import (
    FrozenModelBinding,
    RootOrigin,
    RunSelection,
    RunStarted,
    SessionCreated,
    UserInputAdmitted,
    UserInputRecalledV2,
    UserInputSubmitted,
)
from ipc.faults import Fault
from ipc.ids import new_handle, new_run_id
from ipc.methods import (
    OfRun,
    RunCancelParams,
    RunCancelResult,
    RunRecallSteerResult,
    RunStartParams,
    RunStartResult,
    RunSteerParams,
    RunSteerResult,
    SessionCreateParams,
    SessionMeta,
    SessionResult,
)
from ipc.plan import Plan
from workers.actor.session import SessionActor
from workers.run.desk import Kit

REASON_USER: Final = "user"

Command = Callable[[SessionActor, Any], Awaitable[Any]]
COMMANDS: Final[dict[str, Command]] = {}


class RunActive(Fault):
    """A run is open; it can be steered or cancelled, and another one starts after it."""

    code = "run_active"


class RunNotFound(Fault):
    """No open run has this id."""

    code = "run_not_found"


class NoSuchSelection(Fault):
    """The agent or the model that was asked for is not in the plan."""

    code = "no_runnable_model"


class NoPlan(Fault):
    """The worker was not told yet what runs are made from."""

    code = "no_plan"


def command(method: str) -> Callable[[Command], Command]:
    """Enter a function into the table under its method's name."""

    def enter(function: Command) -> Command:
        COMMANDS[method] = function
        return function

    return enter


@command("session.create")
async def create(actor: SessionActor, params: SessionCreateParams) -> SessionResult:
    """Give a new root its first event in memory; the disk sees it with the first user message."""
    plan = _kit(actor).plan
    snapshot = plan.agent(params.selection.agent)
    if snapshot is None:
        raise NoSuchSelection(agent=params.selection.agent)
    _suffix(plan, params.selection)
    actor.newborn = SessionCreated(
        origin=RootOrigin(),
        cwd_identity=actor.workspace,
        creation_agent=snapshot,
        creation_selection=params.selection,
        revisions=plan.revisions,
        short_id=new_handle(snapshot.agent),
    )
    return SessionResult(session=_newborn_meta(actor, actor.newborn, _kit(actor).clock.now()))


@command("run.start")
async def start(actor: SessionActor, params: RunStartParams) -> RunStartResult:
    """Admit an input and open a run; asking again with the same client_run_id changes nothing."""
    known = actor.state.client_run_ids.get(params.client_run_id)
    if known is not None:
        return RunStartResult(run_id=known)
    if actor.state.run is not None:
        raise RunActive(run_id=actor.state.run.run_id)
    plan = _kit(actor).plan
    snapshot = plan.agent(params.selection.agent)
    if snapshot is None:
        raise NoSuchSelection(agent=params.selection.agent)
    run_id = new_run_id()
    seq = actor.log.last_seq + (actor.newborn is not None)
    started = RunStarted(
        client_run_id=params.client_run_id,
        input_through_seq=seq + 1,
        selection=params.selection,
        agent=snapshot,
        selected_suffix=_suffix(plan, params.selection),
        revisions=plan.revisions,
    )
    await actor.begin(run_id, UserInputSubmitted(input=params.input), started)
    actor.start_run()
    return RunStartResult(run_id=run_id)


@command("run.steer")
async def steer(actor: SessionActor, params: RunSteerParams) -> RunSteerResult:
    """Admit an input for the open run, which sees it at its next boundary."""
    _open_run(actor, params.run_id)
    await actor.append(UserInputAdmitted(input=params.input))
    return RunSteerResult(accepted=True)


@command("run.recall_steer")
async def recall(actor: SessionActor, params: OfRun) -> RunRecallSteerResult:
    """Take back the newest pending input."""
    _open_run(actor, params.run_id)
    if not actor.state.pending:
        return RunRecallSteerResult(recalled=None)
    seq, given = list(actor.state.pending.items())[-1]
    await actor.append(UserInputRecalledV2(input=given, user_input_seq=seq))
    return RunRecallSteerResult(recalled=given.text)


@command("run.cancel")
async def cancel(actor: SessionActor, params: RunCancelParams) -> RunCancelResult:
    """Cancel the open run; its terminal event follows."""
    run = actor.state.run
    if run is None or run.run_id != params.run_id:
        if params.run_id in actor.state.runs:
            return RunCancelResult(cancelled=False)
        raise RunNotFound(run_id=params.run_id)
    return RunCancelResult(cancelled=actor.cancel_run(params.reason or REASON_USER))


def _newborn_meta(actor: SessionActor, created: SessionCreated, now: str) -> SessionMeta:
    """A session that has no event yet, as a list would show it."""
    return SessionMeta(
        session_id=actor.session_id,
        origin=created.origin,
        cwd_identity=created.cwd_identity,
        status="idle",
        title_updated_seq=0,
        last_event_seq=0,
        last_activity=now,
        creation_selection=created.creation_selection,
        revisions=created.revisions,
    )


def _open_run(actor: SessionActor, run_id: str) -> None:
    if actor.state.run is None or actor.state.run.run_id != run_id:
        raise RunNotFound(run_id=run_id)


def _kit(actor: SessionActor) -> Kit:
    if actor.kit is None:
        raise NoPlan(session=actor.session_id)
    return actor.kit


def _suffix(plan: Plan, selection: RunSelection) -> tuple[FrozenModelBinding, ...]:
    """The models a run may use, the chosen one first, then the agent's chain behind it."""
    chosen = selection.model
    binding = plan.model(chosen.model, chosen.variant)
    if binding is None:
        raise NoSuchSelection(model=chosen.model)
    return (binding,)
