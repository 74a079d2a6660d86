"""The request of the next attempt, out of the log: its messages mended, its replay decided."""

from typing import Final

from msgspec import Struct

from ipc.events import (
    FrozenModelBinding,
    HistoryRepaired,
    ModelReplayEvaluated,
    Payload,
    ReplayDecision,
    ResolvedModel,
)
from ipc.fold import OpenRun, SessionView
from ipc.ids import AttemptId
from workers.providers.base import AssistantMessage, Failed, Request, failure
from workers.run.blocks import sound
from workers.run.checker import check
from workers.run.desk import Desk, Kit
from workers.run.history import Projection, project
from workers.run.offer import overlay, tool_specs

CANNOT_CONTINUE: Final = (
    "this model can only go on from its own record of what it thought, and of {count} earlier "
    "turn(s) there is none that it may be sent; choose another model, or start a new session"
)


class Prepared(Struct, frozen=True, kw_only=True):
    """One request, where its blocks stand in the log, and what the log is to say about it."""

    request: Request
    projection: Projection
    model: ResolvedModel
    repair: tuple[tuple[str, ...], tuple[int, ...]] | None = None  # kinds and counts, when new
    discarded: tuple[ReplayDecision, ...] = ()  # decisions of all turns, when one's form was left
    failure: Failed | None = None  # it can't be said: do not send it

    def events(self, attempt_id: AttemptId) -> tuple[Payload, ...]:
        """What follows the model_attempt_started of this request and precedes its being sent."""
        told: list[Payload] = []
        if self.repair is not None:
            kinds, counts = self.repair
            told.append(HistoryRepaired(attempt_id=attempt_id, kinds=kinds, counts=counts))
        if self.discarded:
            told.append(
                ModelReplayEvaluated(
                    attempt_id=attempt_id,
                    resolved_model=self.model,
                    ordered_decisions=self.discarded,
                )
            )
        return tuple(told)


def prepare(desk: Desk, kit: Kit, run: OpenRun, binding: FrozenModelBinding) -> Prepared:
    """The request of the next attempt: equal for an equal log."""
    state = desk.state
    assert state.session_id is not None, "a run needs a session"  # the fold opens none before it
    model = binding.resolved()
    replay, warn = binding.capabilities.native_replay, kit.plan.loop_warning
    projection = check(project(state, model, replay, warn=warn), binding)
    caps = [cap for cap in (run.agent.max_output_tokens, binding.max_output) if cap]
    request = Request(
        system=sound(run.agent.composed_prompt),
        messages=projection.messages,
        tools=tool_specs(kit.tools, run.agent.permissions, overlay(desk, kit)),
        max_output_tokens=min(caps, default=None),
        session_id=state.session_id,
        attempt=run.attempts + 1,
        turn=sum(isinstance(message, AssistantMessage) for message in projection.messages),
    )
    return Prepared(
        request=request,
        projection=projection,
        model=model,
        repair=_new_repair(state, projection),
        discarded=_discarded(run, projection),
        failure=_cannot_continue(projection),
    )


def _new_repair(
    state: SessionView, projection: Projection
) -> tuple[tuple[str, ...], tuple[int, ...]] | None:
    """What was mended, unless the session was told the same the last time or nothing was."""
    kinds = tuple(sorted(projection.repairs))
    repair = (kinds, tuple(projection.repairs[kind] for kind in kinds))
    return repair if kinds and repair != state.last_repair else None


def _discarded(run: OpenRun, projection: Projection) -> tuple[ReplayDecision, ...]:
    """The decisions about native forms, once for each model that a run asks, if one was left out.

    Told at every attempt they would make a log that grows with the square of its turns, to say
    that all is well.
    """
    first = run.attempts == 0 and run.turns == 0
    fell_back = run.fallbacks > 0 and run.failures == 0
    left_out = any(one.disposition.startswith("discarded") for one in projection.decisions)
    return projection.decisions if left_out and (first or fell_back) else ()


def _cannot_continue(projection: Projection) -> Failed | None:
    if not projection.unreplayed:
        return None
    words = CANNOT_CONTINUE.format(count=len(projection.unreplayed))
    return failure("replay", words, stage="replay_encode")
