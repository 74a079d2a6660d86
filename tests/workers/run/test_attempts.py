"""Whole runs whose model fails: how often it is asked, how long between, who is asked next."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from ipc.content import Usage
from ipc.events import (
    AttemptAbandoned,
    FrozenModelBinding,
    ModelAttemptStarted,
    ModelFallback,
    ModelTurnCommitted,
    Payload,
    RunFailed,
    StoredEvent,
    WorkerRecovered,
)
from ipc.plan import ModelRetry
from tests.fakes.clock import FakeClock
from tests.fakes.desk import MemoryDesk, admit, kit, story
from tests.fakes.logs import BINDING, SECOND, THIRD
from workers.providers import UnknownAdaptor
from workers.providers.base import Done, Provider, ToolMessage
from workers.providers.script import Call, Cut, Fail, Say, Span, Step, Turn, When
from workers.providers.scripted import Scripted
from workers.run.drive import drive
from workers.run.machine import PAUSES_MAX

USER = "user: go on"
USAGE = "model_usage_recorded"
BUSY = Fail("overload", "busy", http_status=529)
BROKEN = Fail("provider", "no", http_status=500)
SLOW_DOWN = Fail("rate_limited", "slow down", http_status=429, retry_after_ms=7000)
NO_KEY = Fail("auth", "no such key", http_status=401)
TOO_LONG = Fail("context_length", "too long", http_status=400)
HELLO = ["text: hello", "turn: stop 'hello'", USAGE, "run completed: hello"]


def at_attempt(*numbers: int, steps: Sequence[Step]) -> Turn:
    return Turn(tuple(steps), When(attempt=Span(numbers)))


def failing(times: int, *ways: Step) -> Scripted:
    """A model that fails so often, in these ways by turns, and then answers."""
    failures = [at_attempt(n + 1, steps=[ways[n % len(ways)]]) for n in range(times)]
    return Scripted([*failures, Say("hello")])


def hopeless(way: Step) -> Scripted:
    return Scripted([Turn((way,), When())])


class Run:
    """One run on a clock that only its own pauses move; a provider for each model of its chain."""

    def __init__(
        self,
        *providers: Provider,
        models: Sequence[FrozenModelBinding] = (BINDING, SECOND, THIRD),
        retry: ModelRetry = ModelRetry(),  # noqa: B008 - it can't be changed
        events: Sequence[StoredEvent] = (),
        clock: FakeClock | None = None,
        **limits: Any,
    ) -> None:
        self.clock = clock or FakeClock()
        self.providers = providers
        table = dict(zip([one.model for one in models], providers, strict=False))
        self.desk = MemoryDesk(events, self.clock)
        if not events:
            self.desk.open(binding=models[0], fallbacks=models[1 : len(providers)])

        def provide(binding: FrozenModelBinding) -> Provider:
            return table[binding.model]

        mine = kit(Scripted([]), clock=self.clock, retry=retry, **limits)
        self.kit = msgspec.structs.replace(mine, provider=provide)

    async def play(self) -> list[str]:
        await drive(self.desk, self.kit)
        return story(self.desk.payloads)

    def of(self, kind: type[Payload]) -> list[Any]:
        return [one for one in self.desk.payloads if isinstance(one, kind)]

    def seen(self, place: int = 0) -> list[Any]:
        provider = self.providers[place]
        assert isinstance(provider, Scripted)
        return provider.seen

    @property
    def asked(self) -> list[int]:
        """How often each model was asked: as its provider knows it, and as the log does."""
        started = [one.fallback_index for one in self.of(ModelAttemptStarted)]
        asked = [len(self.seen(place)) for place in range(len(self.providers))]
        assert asked == [started.count(place) for place in range(len(self.providers))]
        return asked


# --- one model


async def test_an_attempt_that_fails_is_made_again_until_it_succeeds() -> None:
    run = Run(failing(2, BUSY))
    assert await run.play() == [
        *(USER, "attempt 1", "attempt_abandoned", "attempt 2", "attempt_abandoned", "attempt 3"),
        *HELLO,
    ]
    assert run.clock.naps == [1, 2]
    assert run.asked == [3]
    assert [one.attempt for one in run.seen()] == [1, 2, 3]
    assert [one.retry_in_ms for one in run.of(AttemptAbandoned)] == [1000, 2000]
    assert [one.error.kind for one in run.of(AttemptAbandoned)] == ["overload"] * 2
    started = run.of(ModelAttemptStarted)
    assert [(one.attempt_ordinal, one.retry_ordinal) for one in started] == [(1, 0), (2, 1), (3, 2)]


@pytest.mark.parametrize(
    ("way", "naps"),
    [
        (BROKEN, [1, 2, 4]),
        (Cut(), [1, 2, 4]),
        (Fail("timeout"), [1, 2, 4]),
        (BUSY, [1, 2, 4, 8, 16]),
        (Fail("provider", http_status=503), [1, 2, 4, 8, 16]),
        (SLOW_DOWN, [7, 7, 7, 8, 16]),
        (Fail("rate_limited", http_status=429, retry_after_ms=600_000), [600] * 5),
        (NO_KEY, []),
        (TOO_LONG, []),
        (Fail("abort"), []),
        (Fail("overload", retryable=False), []),
    ],
)
async def test_a_budget_is_spent_to_its_end_and_no_further(way: Step, naps: list[float]) -> None:
    run = Run(hopeless(way))
    lines = await run.play()
    assert run.clock.naps == naps
    assert run.asked == [len(naps) + 1]
    assert lines.count("attempt_abandoned") == len(naps) + 1
    abandoned = run.of(AttemptAbandoned)
    assert [one.retry_in_ms for one in abandoned] == [*(nap * 1000 for nap in naps), None]
    (failed,) = run.of(RunFailed)
    tried = f" (after {len(naps) + 1} attempts)"
    assert failed.error.endswith(tried) == bool(naps)
    assert (failed.model_error, failed.resolved_model) == (abandoned[-1].error, BINDING.resolved())


async def test_the_two_classes_have_a_budget_each() -> None:
    """An overload in between takes nothing from the others, nor makes their pauses longer."""
    run = Run(failing(99, BROKEN, BUSY))
    await run.play()
    assert run.clock.naps == [1, 1, 2, 2, 4, 4]
    assert run.asked == [7]  # the fourth of the standard class is the end


async def test_a_committed_turn_gives_the_whole_budget_back() -> None:
    look = Call("look", args={"who": "a"}, id="a")
    run = Run(Scripted([at_attempt(1, 2, 3, steps=[BROKEN]), [look], Say("hello")]))
    assert (await run.play())[-1] == "run completed: hello"
    assert run.clock.naps == [1, 2, 4, 1, 2, 4]
    assert run.asked == [8]


@pytest.mark.parametrize("retries", [0, 1])
async def test_a_class_that_is_off_is_not_tried_again(retries: int) -> None:
    run = Run(failing(1, BROKEN), retry=ModelRetry(standard_retries=retries))
    end = "run completed: hello" if retries else "run failed: fake/one: no"
    assert (await run.play())[-1] == end
    assert run.asked == [1 + retries]


async def test_without_a_bound_a_model_is_asked_until_it_answers() -> None:
    run = Run(failing(50, BROKEN), retry=ModelRetry(standard_retries=-1, backoff_ceiling_ms=1))
    assert (await run.play())[-1] == "run completed: hello"
    assert run.clock.naps == [0.001] * 50


async def test_what_a_failed_attempt_said_is_no_history() -> None:
    run = Run(Scripted([at_attempt(1, steps=[Say("I was ab"), Cut()]), Say("hello")]))
    assert (await run.play())[-1] == "run completed: hello"
    first, second = run.seen()
    assert first.messages == second.messages


async def test_what_is_said_in_a_pause_is_heard_by_the_next_attempt() -> None:
    look = Call("look", args={"who": "a"}, id="a")
    late = Turn((SLOW_DOWN,), When(turn=Span((2,)), attempt=Span((1,))))
    run = Run(Scripted([late, [look], Say("hello")]))
    plain = run.clock.sleep

    async def sleep(seconds: float) -> None:
        admit(run.desk, "hurry")
        await plain(seconds)

    run.clock.sleep = sleep  # type: ignore[method-assign]
    lines = await run.play()
    assert lines[-8:] == [
        *("attempt_abandoned", "admitted: hurry", "user: hurry", "attempt 2"),
        *HELLO,
    ]
    assert run.clock.naps == [7]


# --- a chain


async def test_when_a_budget_is_gone_the_next_model_is_asked_with_one_of_its_own() -> None:
    run = Run(hopeless(BROKEN), failing(6, BUSY), Scripted([]))
    lines = await run.play()
    assert lines[9:13] == ["model_fallback", "attempt 5", "attempt_abandoned", "attempt 6"]
    assert lines[-4:] == HELLO
    assert run.clock.naps == [1, 2, 4, 1, 2]
    assert run.asked == [4, 3, 0]
    (fell,) = run.of(ModelFallback)
    assert fell == ModelFallback(
        from_=BINDING.resolved(),
        to=SECOND.resolved(),
        from_fallback_index=0,
        to_fallback_index=1,
        attempts_on_from=4,
        error=run.of(AttemptAbandoned)[3].error,
    )
    (turn,) = run.of(ModelTurnCommitted)
    assert turn.resolved_model == SECOND.resolved()


async def test_what_cannot_pass_goes_to_the_next_model_at_once() -> None:
    run = Run(hopeless(NO_KEY), Scripted([Say("hello")]))
    assert await run.play() == [
        *(USER, "attempt 1", "attempt_abandoned", "model_fallback", "attempt 2"),
        *HELLO,
    ]
    assert run.clock.naps == []


async def test_a_run_stays_with_the_model_it_fell_back_to() -> None:
    look = Call("look", args={"who": "a"}, id="a")
    run = Run(hopeless(NO_KEY), Scripted([[look], Say("hello")]))
    assert (await run.play())[-4:] == HELLO
    assert run.asked == [1, 2]
    assert len(run.of(ModelFallback)) == 1


async def test_when_the_chain_is_over_the_run_fails_and_says_what_was_tried() -> None:
    run = Run(hopeless(NO_KEY), hopeless(BROKEN), hopeless(BUSY))
    lines = await run.play()
    assert lines[-1] == "run failed: fake/three: busy (after 11 attempts with 3 models)"
    assert run.asked == [1, 4, 6]
    assert [one.attempts_on_from for one in run.of(ModelFallback)] == [1, 4]
    (failed,) = run.of(RunFailed)
    assert failed.resolved_model == THIRD.resolved()
    assert failed.model_error.kind == "overload"


async def test_an_abort_asks_nobody_else() -> None:
    run = Run(hopeless(Fail("abort", "stopped")), Scripted([]))
    assert (await run.play())[-1] == "run failed: fake/one: stopped"
    assert run.asked == [1, 0]


def sized(*limits: int | None) -> list[FrozenModelBinding]:
    three = (BINDING, SECOND, THIRD)
    pairs = zip(three, limits, strict=False)
    return [msgspec.structs.replace(one, context_limit=limit) for one, limit in pairs]


async def test_what_is_too_long_is_said_to_a_model_that_reads_more() -> None:
    run = Run(
        hopeless(TOO_LONG), Scripted([]), Scripted([Say("hello")]), models=sized(100, 50, 200)
    )
    assert (await run.play())[-4:] == HELLO
    assert run.asked == [1, 0, 1]


async def test_what_is_too_long_for_all_fails_once_and_says_what_helps() -> None:
    run = Run(hopeless(TOO_LONG), Scripted([]), models=sized(100, 50))
    last = (await run.play())[-1]
    assert last.startswith("run failed: fake/one: too long; the conversation is longer than")
    assert run.asked == [1, 0]


# --- a model that can't even be asked


@pytest.mark.parametrize(
    "trouble",
    [UnknownAdaptor(adaptor="cohere", model="fake/one"), ImportError("no module named aiohttp")],
)
async def test_a_provider_that_cannot_be_made_is_a_failed_attempt(trouble: Exception) -> None:
    run = Run(Scripted([]), Scripted([Say("hello")]))
    plain = run.kit.provider

    def provide(binding: FrozenModelBinding) -> Provider:
        if binding is run.desk.state.run.models[0]:  # type: ignore[union-attr]
            raise trouble
        return plain(binding)

    run.kit = msgspec.structs.replace(run.kit, provider=provide)
    assert (await run.play())[-4:] == HELLO
    (abandoned,) = run.of(AttemptAbandoned)
    assert (abandoned.error.kind, abandoned.error.message) == ("unsupported", str(trouble))
    assert abandoned.retry_in_ms is None
    assert len(run.of(ModelFallback)) == 1


# --- pauses and the death of a worker


async def until_asleep(run: Run, seconds: float) -> list[StoredEvent]:
    """Play until a pause is slept for, and die there after so many seconds of it."""

    async def sleep(_seconds: float) -> None:
        run.clock.advance(seconds)
        raise ConnectionResetError

    plain, run.clock.sleep = run.clock.sleep, sleep  # type: ignore[method-assign,assignment]
    with pytest.raises(ConnectionResetError):
        await run.play()
    run.clock.sleep = plain  # type: ignore[method-assign]
    return run.desk.events


@pytest.mark.parametrize(("gone", "naps"), [(0, [600]), (599.5, [0.5]), (600, []), (10_000, [])])
async def test_a_later_worker_waits_only_for_the_rest(gone: float, naps: list[float]) -> None:
    way = Fail("rate_limited", http_status=429, retry_after_ms=600_000)
    run = Run(failing(1, way))
    events = await until_asleep(run, gone)
    run.desk.put(WorkerRecovered(cause="SIGKILL", resumed_run_id="run"))  # type: ignore[arg-type]
    later = Run(failing(1, way), events=events, clock=run.clock)
    assert (await later.play())[-5:] == ["attempt 2", *HELLO]
    assert later.clock.naps == naps


async def test_a_clock_that_was_set_back_makes_no_pause_longer() -> None:
    run = Run(failing(1, SLOW_DOWN))
    events = await until_asleep(run, -86_400)
    later = Run(failing(1, SLOW_DOWN), events=events, clock=run.clock)
    await later.play()
    assert later.clock.naps == [7]


async def test_an_attempt_that_a_worker_took_with_it_costs_no_retry_and_no_pause() -> None:
    run = Run(failing(1, BUSY))
    run.desk.before = _dies_at("attempt 2")
    with pytest.raises(ConnectionResetError):
        await run.play()
    lost = run.of(ModelAttemptStarted)[-1]
    run.desk.put(
        WorkerRecovered(cause="SIGKILL", resumed_run_id="run"),  # type: ignore[arg-type]
        AttemptAbandoned(attempt_id=lost.attempt_id),
    )
    later = Run(failing(6, BUSY), events=run.desk.events, clock=run.clock)
    assert (await later.play())[-4:] == HELLO
    assert later.clock.naps == [1, 2, 4, 8, 16]


def _dies_at(line: str) -> Any:
    seen = False

    async def before(payloads: Sequence[Payload]) -> None:
        nonlocal seen
        if seen:
            raise ConnectionResetError
        seen = line in story(payloads)

    return before


async def test_a_cancelled_pause_ends_at_once() -> None:
    """On the real clock: the test would take ten minutes if it did not."""
    run = Run(hopeless(Fail("rate_limited", http_status=429, retry_after_ms=600_000)))
    asleep = asyncio.Event()

    async def sleep(seconds: float) -> None:
        assert seconds == 600
        asleep.set()
        await asyncio.sleep(seconds)

    run.clock.sleep = sleep  # type: ignore[method-assign]
    task = asyncio.create_task(run.play())
    await asleep.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert run.desk.state.run is not None, "who called ends the run"
    assert run.desk.state.run.attempt is None


# --- turns that a provider breaks off to be sent back


class Pausing:
    """Breaks off so many turns in a row before it comes to an end."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.seen: list[Any] = []

    async def stream(self, request: Any) -> Any:
        self.seen.append(request)
        if len(self.seen) > self.times:
            yield Done(content=(), finish_reason="stop", usage=Usage())
            return
        metadata = {"stop_reason": "pause_turn"}
        yield Done(content=(), finish_reason="other", usage=Usage(), provider_metadata=metadata)


@pytest.mark.parametrize(
    ("times", "turns", "end"),
    [
        (3, 4, "run completed: "),
        (PAUSES_MAX, PAUSES_MAX + 1, "run completed: "),
        (99, PAUSES_MAX + 1, "run failed: the model broke off more than 16 turns in a row"),
    ],
)
async def test_a_turn_that_is_paused_is_gone_on_with(times: int, turns: int, end: str) -> None:
    provider = Pausing(times)
    run = Run(provider)
    lines = await run.play()
    assert lines[-1].startswith(end)
    assert len(provider.seen) == turns


async def test_paused_turns_count_against_the_limit_of_turns() -> None:
    run = Run(Pausing(99), max_turns=2)
    assert (await run.play())[-1] == "run cancelled: max_turns"


# --- a request that is refused for one of its blocks


async def test_a_request_that_is_refused_for_a_block_is_made_again_without_it_at_once() -> None:
    """What it is refused for is `isolation`'s to find; here it is a call by its id."""
    refusal = Fail("invalid_request", "toolu_123456 is not well-formed", http_status=400)
    look = Call("look", args={"who": "a"}, id="toolu_123456")
    late = Turn((refusal,), When(turn=Span((2,)), attempt=Span((1,))))
    run = Run(Scripted([late, [look], Say("hello")]), Scripted([]))
    lines = await run.play()
    assert lines[-8:-4] == [
        *("history_repaired", "attempt_abandoned", "attempt 2", "history_repaired"),
    ]
    assert lines[-4:] == HELLO
    assert [one.retry_in_ms for one in run.of(AttemptAbandoned)] == [0]
    assert run.clock.naps == []
    assert run.asked == [3, 0]
    _, refused, made_again = run.seen()
    assert any(isinstance(one, ToolMessage) for one in refused.messages)
    assert not any(isinstance(one, ToolMessage) for one in made_again.messages)


async def test_a_refusal_that_names_nothing_gives_way_to_the_next_model() -> None:
    refusal = Fail("invalid_request", "max_tokens is too large", http_status=400)
    run = Run(hopeless(refusal), Scripted([Say("hello")]))
    assert (await run.play())[-4:] == HELLO
    assert run.asked == [1, 1]
