"""Bad weather from a seed: the same faults again, and never a broken contract."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.clock import FakeClock
from tests.fakes.conversation import parts_of, request, user
from workers.providers import ADAPTORS
from workers.providers.base import Done, Failed, Part, Provider
from workers.providers.chaos import Chaos, Odds
from workers.providers.script import Say
from workers.providers.scripted import Scripted

HELLO = request(user("hello"))
NEVER = {"refuse": 0.0, "cut": 0.0, "stall": 0.0, "wait": 0.0}


def model() -> Provider:
    """One that says four words in four parts, each time."""
    return Scripted([Say(("one ", "two ", "three ", "four"))])


async def weather(seed: int, count: int = 20) -> tuple[list[list[Part]], Chaos]:
    chaos = Chaos(model(), seed, clock=FakeClock())
    return [await parts_of(chaos, HELLO) for _ in range(count)], chaos


def only(fault: str, **more: float) -> Odds:
    return Odds(**NEVER | {fault: 1.0} | more)  # type: ignore[arg-type]


@given(st.integers(0, 2**32))
def test_a_seed_makes_the_same_weather_again_and_keeps_the_contract(seed: int) -> None:
    first, chaos = asyncio.run(weather(seed))
    again, _ = asyncio.run(weather(seed))

    assert again == first
    for parts, fault in zip(first, chaos.faults, strict=True):
        assert isinstance(parts[-1], Done if fault is None else Failed)


async def test_among_many_requests_there_is_every_fault() -> None:
    _, chaos = await weather(1, 200)

    assert set(chaos.faults) == {"refuse", "cut", "stall", "wait", None}


async def test_without_odds_everything_goes_through() -> None:
    chaos = Chaos(model(), 1, odds=Odds(**NEVER))

    assert await parts_of(chaos, HELLO) == await parts_of(model(), HELLO)


async def test_a_refusal_comes_before_the_first_part() -> None:
    (part,) = await parts_of(Chaos(model(), 1, odds=only("refuse")), HELLO)

    assert isinstance(part, Failed)
    assert part.error.retryable


async def test_a_wish_to_be_left_alone_is_a_429() -> None:
    (part,) = await parts_of(Chaos(model(), 1, odds=only("wait", retry_after_ms=50)), HELLO)

    assert isinstance(part, Failed)
    assert (part.error.kind, part.error.http_status) == ("rate_limited", 429)
    assert part.error.retry_after_ms in range(1, 51)


@pytest.mark.parametrize("seed", range(8))
async def test_a_cut_lets_some_parts_through_but_never_the_end(seed: int) -> None:
    whole = await parts_of(model(), HELLO)
    *parts, last = await parts_of(Chaos(model(), seed, odds=only("cut", parts_max=9)), HELLO)

    assert parts == whole[: len(parts)]
    assert len(parts) < len(whole)
    assert isinstance(last, Failed)
    assert last.error.kind == "unexpected_eof"


async def test_a_stall_takes_its_time_and_then_times_out() -> None:
    clock = FakeClock()
    *_, last = await parts_of(Chaos(model(), 1, odds=only("stall", stall_s=7), clock=clock), HELLO)

    assert isinstance(last, Failed)
    assert last.error.kind == "timeout"
    assert clock.naps == [7]


async def test_a_stall_may_last_until_somebody_gives_up() -> None:
    chaos = Chaos(model(), 1, odds=only("stall", stall_s=0, parts_max=0))
    task = asyncio.create_task(parts_of(chaos, HELLO))
    await asyncio.sleep(0)
    assert chaos.faults == ["stall"]
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


def test_no_binding_can_name_it() -> None:
    assert "workers.providers.chaos" not in ADAPTORS.values()
