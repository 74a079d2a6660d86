"""One turn of the model: the attempt is in the log before its request goes out, the turn after."""

from contextlib import aclosing
from typing import Any

from ipc.events import (
    RUN_ERROR_CHARS_MAX,
    AttemptAbandoned,
    FrozenModelBinding,
    ModelAttemptStarted,
    ModelRequestPrepared,
    ModelTurn,
    ModelTurnCommitted,
    ModelUsageRecorded,
    ReasoningDelta,
    RunFailed,
    TextDelta,
)
from ipc.faults import clean
from ipc.fold import OpenRun
from ipc.ids import AttemptId, new_attempt_id
from ipc.seams.failpoints import ARMED, hit
from workers.providers.base import (
    AssistantMessage,
    Done,
    Failed,
    Request,
    TextPart,
    ThinkingPart,
    failure,
)
from workers.run.desk import Desk, Kit
from workers.run.history import messages
from workers.run.offer import overlay, tool_specs
from workers.run.usage import cost


async def take_turn(desk: Desk, kit: Kit) -> None:
    """Ask the model once. Appends a committed turn, or an abandoned attempt and the run's end.

    Cancellation leaves the attempt open; who ends the run closes it.
    """
    run = desk.state.run
    assert run is not None, "a turn needs an open run"
    binding = run.models[run.fallback_index]
    attempt = new_attempt_id()
    request = prepare(desk, kit, run, binding)
    through = desk.state.seq
    prompt = run.agent.prompt_fingerprint
    await desk.append(
        ModelAttemptStarted(
            attempt_id=attempt,
            attempt_ordinal=request.attempt,
            fallback_index=run.fallback_index,
            retry_ordinal=run.failures,
            prompt_fingerprint=prompt,
            resolved_model=binding.resolved(),
        ),
        ModelRequestPrepared(attempt_id=attempt, prompt_fingerprint=prompt),
    )
    end = await _stream(desk, kit, binding, request, attempt)
    if isinstance(end, Failed):
        failed = RunFailed(
            error=clean(f"{binding.model}: {end.error.message}", RUN_ERROR_CHARS_MAX),
            model_error=end.error,
            resolved_model=binding.resolved(),
        )
        await desk.in_turn(lambda: (AttemptAbandoned(attempt_id=attempt), failed))
        return
    seq = desk.state.next_turn_seq
    await desk.append(
        ModelTurnCommitted(
            attempt_id=attempt,
            model_turn_seq=seq,
            input_through_seq=through,
            resolved_model=binding.resolved(),
            turn=_turn(end),
        ),
        ModelUsageRecorded(
            model_turn_seq=seq,
            agent_id=run.agent.agent,
            resolved_model=binding.resolved(),
            usage=end.usage,
            estimated_cost_pico_usd=cost(end.usage, binding.pricing),
        ),
    )


def prepare(desk: Desk, kit: Kit, run: OpenRun, binding: FrozenModelBinding) -> Request:
    """The request of the next attempt: equal for an equal log."""
    created = desk.state.created
    assert created is not None, "a run needs a session"  # the fold opens no run before it
    assert desk.state.session_id is not None
    caps = [cap for cap in (run.agent.max_output_tokens, binding.max_output) if cap]
    history = messages(desk.state, binding.resolved())
    return Request(
        system=run.agent.composed_prompt,
        messages=history,
        tools=tool_specs(kit.tools, run.agent.permissions, overlay(desk, kit)),
        max_output_tokens=min(caps, default=None),
        session_id=desk.state.session_id,
        attempt=run.attempts + 1,
        turn=sum(isinstance(message, AssistantMessage) for message in history),
    )


async def _stream(
    desk: Desk, kit: Kit, binding: FrozenModelBinding, request: Request, attempt: AttemptId
) -> Done | Failed:
    provider = kit.provider(binding)
    if ARMED:
        hit("provider.request")
    async with aclosing(provider.stream(request)) as parts:
        async for part in parts:
            if isinstance(part, TextPart) and part.text:  # the likeliest first: once a token
                await desk.delta(TextDelta(attempt_id=attempt, text=part.text))
            elif isinstance(part, ThinkingPart):
                if part.text and not part.redacted:
                    await desk.delta(ReasoningDelta(attempt_id=attempt, text=part.text))
            elif isinstance(part, Done | Failed):
                return part
    return failure(
        "unexpected_eof", "the stream ended without its last event", stage="stream_finalize"
    )


def _turn(done: Done) -> ModelTurn:
    native: dict[str, Any] | None = done.native_replay
    return ModelTurn(
        content=done.content,
        finish_reason=done.finish_reason,
        usage=done.usage,
        native_replay=native,
        provider_metadata=done.provider_metadata,
        response_metadata=done.response_metadata,
    )
