"""What a client may ask of a session: one function a method, called in the session's turn."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct, structs

from ipc.events import (
    AgentMdLoaded,
    AgentMdSkipped,
    AgentSnapshot,
    FallbackEntry,
    FrozenModelBinding,
    RootOrigin,
    RunCancelled,
    RunSelection,
    RunStarted,
    SessionCreated,
    UserInputAdmitted,
    UserInputRecalledV2,
    UserInputSubmitted,
)
from ipc.faults import Fault, clean
from ipc.fold import SessionView, Standing, UserEntry
from ipc.ids import BASE_VARIANT, RunId, VariantName, new_handle, new_run_id
from ipc.methods.records import SessionMeta
from ipc.methods.runs import (
    CANCEL_REASON_CHARS_MAX,
    OfRun,
    RunCancelParams,
    RunCancelResult,
    RunRecallSteerResult,
    RunStartParams,
    RunStartResult,
    RunSteerParams,
    RunSteerResult,
)
from ipc.methods.sessions import SessionCreateParams, SessionResult
from ipc.plan import Plan
from workers.actor.session import SessionActor
from workers.run import agentmd
from workers.run.desk import Kit
from workers.run.machine import closing

REASON_USER: Final = "user"

Command = Callable[[SessionActor, Any], Awaitable[Any]]


class Known(NamedTuple):
    """A method that a session serves: the shape of its params, and who carries it out."""

    params: type[Struct]
    carry_out: Command


COMMANDS: Final[dict[str, Known]] = {}


class RunActive(Fault):
    """A run is open; it can be steered or cancelled, and another one starts after it."""

    code = "run_active"


class RunNotFound(Fault):
    """No open run has this id."""

    code = "run_not_found"


class IdempotencyConflict(Fault):
    """This client_run_id started a run before, with another input or another selection."""

    code = "idempotency_conflict"


class SessionBegun(Fault):
    """The session has begun already."""

    code = "session_begun"


class SessionMissing(Fault):
    """The session was not created."""

    code = "session_missing"


class NoSuchSelection(Fault):
    """The agent or the model that was asked for is not in the plan."""

    code = "no_runnable_model"


class NoPlan(Fault):
    """The worker was not told yet what runs are made from."""

    code = "no_plan"


def command(method: str, params: type[Struct]) -> Callable[[Command], Command]:
    """Enter a function into the table under its method's name, with that method's params."""

    def enter(function: Command) -> Command:
        COMMANDS[method] = Known(params, function)
        return function

    return enter


@command("session.create", SessionCreateParams)
async def create(actor: SessionActor, params: SessionCreateParams) -> SessionResult:
    """Give a new root its first event in memory; the disk sees it with the first user message."""
    if actor.state.created is not None:
        raise SessionBegun(session=actor.session_id)
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


@command("run.start", RunStartParams)
async def start(actor: SessionActor, params: RunStartParams) -> RunStartResult:
    """Admit an input and open a run; asking again with the same client_run_id changes nothing."""
    known = actor.state.client_run_ids.get(params.client_run_id)
    if known is not None:
        if not _same_start(actor.state, known, params):
            raise IdempotencyConflict(client_run_id=params.client_run_id, run_id=known)
        return RunStartResult(run_id=known)
    if actor.state.created is None and actor.newborn is None:
        raise SessionMissing(session=actor.session_id)
    if actor.state.run is not None:
        raise RunActive(run_id=actor.state.run.run_id)
    plan = _kit(actor).plan
    snapshot = plan.agent(params.selection.agent)
    if snapshot is None:
        raise NoSuchSelection(agent=params.selection.agent)
    standing = None if params.reset_fallback else actor.state.standing
    suffix = _standing_suffix(_suffix(plan, params.selection), params.selection, standing)
    snapshot = _begun_at(snapshot, suffix[0])
    run_id = new_run_id()
    before = _instructions(actor, plan, snapshot, params.selection)
    started = RunStarted(
        client_run_id=params.client_run_id,
        input_through_seq=actor.log.next_seq + (actor.newborn is not None) + len(before),
        selection=params.selection,
        agent=snapshot,
        selected_suffix=suffix,
        revisions=plan.revisions,
    )
    await actor.begin(run_id, before, UserInputSubmitted(input=params.input), started)
    actor.start_run()
    return RunStartResult(run_id=run_id)


@command("run.steer", RunSteerParams)
async def steer(actor: SessionActor, params: RunSteerParams) -> RunSteerResult:
    """Admit an input for the open run, which sees it at its next boundary."""
    _open_run(actor, params.run_id)
    await actor.append(UserInputAdmitted(input=params.input))
    return RunSteerResult(accepted=True)


@command("run.recall_steer", OfRun)
async def recall(actor: SessionActor, params: OfRun) -> RunRecallSteerResult:
    """Take back the newest pending input."""
    _open_run(actor, params.run_id)
    if not actor.state.pending:
        return RunRecallSteerResult(recalled=None)
    seq, given = list(actor.state.pending.items())[-1]
    await actor.append(UserInputRecalledV2(input=given, user_input_seq=seq))
    return RunRecallSteerResult(recalled=given.text)


@command("run.cancel", RunCancelParams)
async def cancel(actor: SessionActor, params: RunCancelParams) -> RunCancelResult:
    """Cancel the open run; its terminal event follows."""
    run = actor.state.run
    if run is None or run.run_id != params.run_id:
        if params.run_id in actor.state.runs:
            return RunCancelResult(cancelled=False)
        raise RunNotFound(run_id=params.run_id)
    reason = clean(params.reason or REASON_USER, CANCEL_REASON_CHARS_MAX)
    if not actor.cancel_run(reason):  # it waits to be gone on with, and nobody works on it
        await actor.append(*closing(actor.state, run, RunCancelled(reason=reason)))
    return RunCancelResult(cancelled=True)


def _same_start(state: SessionView, run_id: RunId, params: RunStartParams) -> bool:
    """Whether a run was started by the same request; so it is taken, where that can't be told."""
    if state.run is not None and state.run.run_id == run_id:
        selection, seq = state.run.started.selection, state.run.started_seq
    elif (ended := state.runs.get(run_id)) is not None:
        selection, seq = ended.selection, ended.started_seq
    else:  # a revert took it out of sight
        return True
    # The input stands right before its run_started: they were one append.
    inputs = (one for one in state.entries if isinstance(one, UserEntry) and one.seq == seq - 1)
    given = next((one.original or one.input for one in inputs), params.input)
    return (given, selection) == (params.input, params.selection)


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


def _instructions(
    actor: SessionActor, plan: Plan, agent: AgentSnapshot, selection: RunSelection
) -> Sequence[AgentMdLoaded | AgentMdSkipped]:
    """What the workspace's AGENTS.md files have to say to this run; root sessions only."""
    created = actor.newborn or actor.state.created
    asked = plan.agent_md.enabled if agent.agent_md is None else agent.agent_md
    if not asked or created is None or not isinstance(created.origin, RootOrigin):
        return ()
    found = agentmd.read(Path(actor.workspace), selection.preset, plan.agent_md.max_bytes)
    return agentmd.news(actor.state, found)


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
    binding = plan.model(chosen.model, _unbased(chosen.variant))
    if binding is None:
        raise NoSuchSelection(model=chosen.model)
    agent = plan.agent(selection.agent)
    chain = () if agent is None else agent.fallback_chain
    models = [entry.model for entry in chain]
    if chosen.model not in models:
        return (binding,)
    first = models.index(chosen.model)
    rest = (_linked(plan, entry) for entry in chain[first + 1 :])
    return (_cached(binding, chain[first]), *(one for one in rest if one is not None))


def _linked(plan: Plan, entry: FallbackEntry) -> FrozenModelBinding | None:
    """The model of one link of an agent's chain, unless it can't be called."""
    binding = plan.model(entry.model, _unbased(entry.variant))
    return None if binding is None else _cached(binding, entry)


def _cached(binding: FrozenModelBinding, entry: FallbackEntry) -> FrozenModelBinding:
    """The binding with what the link has to say of caching, which replaces all else (1.14)."""
    return binding if entry.cache is None else structs.replace(binding, cache=entry.cache)


def _standing_suffix(
    suffix: tuple[FrozenModelBinding, ...], selection: RunSelection, standing: Standing | None
) -> tuple[FrozenModelBinding, ...]:
    """The suffix from where the session stands in it: a fallback that has answered stays.

    Not when something else is selected than what it stood in for, or it can't be called any more.
    """
    if standing is None or standing.selection != selection:
        return suffix
    where = [(one.model, one.variant) for one in suffix]
    at = (standing.model, standing.variant)
    return suffix[where.index(at) :] if at in where else suffix


def _begun_at(agent: AgentSnapshot, first: FrozenModelBinding) -> AgentSnapshot:
    """The snapshot that says where in its chain the suffix begins."""
    chain = [(entry.model, _unbased(entry.variant)) for entry in agent.fallback_chain]
    models = [model for model, _ in chain]
    exactly = (first.model, first.variant)
    start = chain.index(exactly) if exactly in chain else 0
    if exactly not in chain and first.model in models:  # another variant was asked for
        start = models.index(first.model)
    if start == agent.selected_suffix_start:
        return agent
    return structs.replace(agent, selected_suffix_start=start)


def _unbased(variant: VariantName | None) -> VariantName | None:
    """ "base" asks for a model as it is, which is the binding without a variant."""
    return None if variant == BASE_VARIANT else variant
