"""One turn of the model: the attempt is in the log before its request goes out, the turn after."""

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ipc.events import (
    AttemptAbandoned,
    FrozenModelBinding,
    ModelAttemptStarted,
    ModelErrorSummary,
    ModelRequestPrepared,
    ModelTurn,
    ModelTurnCommitted,
    ModelUsageRecorded,
    Payload,
    ReasoningDelta,
    TextDelta,
)
from ipc.faults import Fault
from ipc.ids import AttemptId, CallId, new_attempt_id
from ipc.seams.failpoints import ARMED, hit
from workers.providers.base import (
    Done,
    Failed,
    Provider,
    Request,
    TextPart,
    ThinkingPart,
    failure,
)
from workers.run.batch import opening
from workers.run.desk import Desk, Kit
from workers.run.request import Prepared, prepare
from workers.run.retry import retry_in_ms
from workers.run.usage import cost

if TYPE_CHECKING:
    from workers.run.isolation import Encode


async def take_turn(desk: Desk, kit: Kit) -> frozenset[CallId]:
    """Ask the model once. Appends a committed turn with its calls, or an abandoned attempt.

    Answers which calls it has announced as executing. What follows a failure is for `machine` to
    say. Cancellation leaves the attempt open; who ends the run closes it.
    """
    run = desk.state.run
    assert run is not None, "a turn needs an open run"
    binding = run.models[run.fallback_index]
    attempt = new_attempt_id()
    prepared = prepare(desk, kit, run, binding)
    through = desk.state.seq
    prompt = run.agent.prompt_fingerprint
    sent = ModelRequestPrepared(attempt_id=attempt, prompt_fingerprint=prompt)
    await desk.append(
        ModelAttemptStarted(
            attempt_id=attempt,
            attempt_ordinal=prepared.request.attempt,
            fallback_index=run.fallback_index,
            retry_ordinal=run.failures,
            prompt_fingerprint=prompt,
            resolved_model=binding.resolved(),
        ),
        *prepared.events(attempt),
        *((sent,) if prepared.failure is None else ()),
    )
    provider = prepared.failure or _provider(kit, binding)
    if isinstance(provider, Failed):
        await desk.append(*_failed(desk, kit, prepared, attempt, provider.error))
        return frozenset()
    end = await _stream(desk, provider, prepared.request, attempt)
    if isinstance(end, Failed):
        await desk.append(*_failed(desk, kit, prepared, attempt, end.error, provider))
        return frozenset()
    turn = ModelTurnCommitted(
        attempt_id=attempt,
        model_turn_seq=desk.state.next_turn_seq,
        input_through_seq=through,
        resolved_model=binding.resolved(),
        turn=_turn(end),
    )
    usage = ModelUsageRecorded(
        model_turn_seq=turn.model_turn_seq,
        agent_id=run.agent.agent,
        resolved_model=turn.resolved_model,
        usage=end.usage,
        estimated_cost_pico_usd=cost(end.usage, binding.pricing),
    )
    calls = opening(desk, kit, turn)
    await desk.append(turn, usage, *calls.events)
    return calls.announced


def _failed(
    desk: Desk,
    kit: Kit,
    prepared: Prepared,
    attempt: AttemptId,
    error: ModelErrorSummary,
    provider: Provider | None = None,
) -> tuple[Payload, ...]:
    """The end of a failed attempt, and when the same model is asked again, if it is.

    At once and at no cost, when the next request leaves out what this one was refused for.
    """
    from workers.run.isolation import refused  # noqa: PLC0415 - for a request that failed

    state, run = desk.state, desk.state.run
    assert run is not None, "an attempt is made inside a run"
    encode = _encode_of(provider)
    without = refused(state, prepared.projection, prepared.request, error, attempt, encode)
    if without is not None:
        return (without, AttemptAbandoned(attempt_id=attempt, error=error, retry_in_ms=0))
    failures = run.failures_like(error) + 1
    again = retry_in_ms(error, failures, kit.plan.model_retry, kit.jitter())
    return (AttemptAbandoned(attempt_id=attempt, error=error, retry_in_ms=again),)


def _provider(kit: Kit, binding: FrozenModelBinding) -> Provider | Failed:
    try:
        return kit.provider(binding)
    except (Fault, ImportError) as unfit:  # what this build can't ask, another model may answer
        return failure("unsupported", str(unfit), stage="request_validation")


def _encode_of(provider: Provider | None) -> "Encode | None":
    """How the provider's family would say a request; None where there are no such words."""
    from workers.run.isolation import body_of  # noqa: PLC0415

    encode = getattr(provider, "encode", None)
    return None if encode is None else body_of(encode)


async def _stream(
    desk: Desk, provider: Provider, request: Request, attempt: AttemptId
) -> Done | Failed:
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
