"""Where in its agent's chain a session stands: what its next run begins with, in any worker."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ipc.events import (
    FallbackEntry,
    FrozenModelBinding,
    ModelSelection,
    RunSelection,
    RunStarted,
)
from tests.fakes.desk import ALLOWED, kit, story
from tests.fakes.logs import BINDING, SECOND, SELECTION, THIRD
from tests.fakes.session import Session, living
from workers.providers.base import Provider
from workers.providers.script import Fail, Say, Step, Turn, When
from workers.providers.scripted import Scripted
from workers.run.desk import Kit

ONE, TWO, THREE = BINDING.model, SECOND.model, THIRD.model
HIGH = msgspec.structs.replace(SECOND, variant="high")
CHAIN = tuple(FallbackEntry(model=one) for one in (ONE, TWO, THREE))


def always(step: Step) -> Scripted:
    return Scripted([Turn((step,), When())])


DOWN, UP = always(Fail("auth", "no key")), always(Say("hello"))
BOTH_UP, FIRST_DOWN = {ONE: UP, TWO: UP, THREE: UP}, {ONE: DOWN, TWO: UP, THREE: UP}


def chained(
    models: Mapping[Any, Provider],
    chain: tuple[FallbackEntry, ...] = CHAIN,
    bindings: tuple[FrozenModelBinding, ...] = (BINDING, SECOND, THIRD),
) -> Kit:
    mine = kit(UP)
    agent = msgspec.structs.replace(ALLOWED, fallback_chain=chain)
    plan = msgspec.structs.replace(mine.plan, agents=(agent,), models=bindings)
    return msgspec.structs.replace(mine, plan=plan, provider=lambda one: models[one.model])


def suffixes(session: Session) -> list[list[str]]:
    """The models of each run, in the order in which they would be asked."""
    started = [one for one in session.audience.payloads if isinstance(one, RunStarted)]
    for one in started:
        first = one.selected_suffix[0].model
        start = one.agent.selected_suffix_start
        assert one.agent.fallback_chain[start].model == first
    return [[binding.wire_model for binding in one.selected_suffix] for one in started]


async def runs(session: Session, *ids: str, **more: Any) -> list[str]:
    for number in ids:
        await session.start("go on", number, **more)
        await session.over()
    return story(session.audience.payloads)


async def test_a_run_has_the_whole_chain_behind_what_was_chosen(tmp_path: Path) -> None:
    async with living(tmp_path, UP, mine=chained(BOTH_UP)) as session:
        await runs(session, "c1", "c2")
        second = msgspec.structs.replace(SELECTION, model=ModelSelection(model=TWO))
        await runs(session, "c3", selection=second)
        assert suffixes(session) == [["one", "two", "three"]] * 2 + [["two", "three"]]


async def test_a_fallback_that_answered_is_where_the_next_run_begins(tmp_path: Path) -> None:
    async with living(tmp_path, UP, mine=chained(FIRST_DOWN)) as session:
        lines = await runs(session, "c1", "c2", "c3")
        assert suffixes(session) == [["one", "two", "three"], *[["two", "three"]] * 2]
    assert lines.count("model_fallback") == 1
    assert lines.count("run completed: hello") == 3


async def test_it_holds_in_another_worker(tmp_path: Path) -> None:
    async with living(tmp_path, UP, mine=chained(FIRST_DOWN)) as session:
        await runs(session, "c1")
    async with living(tmp_path, UP, mine=chained(BOTH_UP)) as again:
        await runs(again, "c2")
        assert suffixes(again) == [["two", "three"]]


async def test_a_fallback_that_fails_too_falls_further_and_stays_there(tmp_path: Path) -> None:
    async with living(tmp_path, UP, mine=chained(FIRST_DOWN)) as session:
        await runs(session, "c1")
        session.actor.kit = chained({**FIRST_DOWN, TWO: DOWN})
        await runs(session, "c2", "c3")
        assert suffixes(session) == [["one", "two", "three"], ["two", "three"], ["three"]]


async def test_a_fallback_that_did_not_answer_changes_nothing(tmp_path: Path) -> None:
    down = {ONE: DOWN, TWO: DOWN, THREE: DOWN}
    async with living(tmp_path, UP, mine=chained(down)) as session:
        lines = await runs(session, "c1", "c2")
        assert suffixes(session) == [["one", "two", "three"]] * 2
    assert lines[-1] == "run failed: fake/three: no key (after 3 attempts with 3 models)"


async def test_who_wants_the_first_model_again_gets_it_from_then_on(tmp_path: Path) -> None:
    async with living(tmp_path, UP, mine=chained(FIRST_DOWN)) as session:
        await runs(session, "c1")
        session.actor.kit = chained(BOTH_UP)
        await runs(session, "c2", reset_fallback=True)
        await runs(session, "c3")
        assert suffixes(session) == [["one", "two", "three"]] * 3


@pytest.mark.parametrize(
    "selection",
    [
        RunSelection(agent=SELECTION.agent, model=ModelSelection(model=THREE)),
        msgspec.structs.replace(SELECTION, preset="other"),
    ],
)
async def test_another_selection_begins_where_it_says(
    tmp_path: Path, selection: RunSelection
) -> None:
    async with living(tmp_path, UP, mine=chained(FIRST_DOWN)) as session:
        await runs(session, "c1")
        await runs(session, "c2", selection=selection)
        chosen = "three" if selection.model.model == THREE else "one"
        assert suffixes(session)[1][0] == chosen
        await runs(session, "c3")  # and what was chosen first is chosen anew
        assert suffixes(session)[2] == ["one", "two", "three"]


async def test_a_fallback_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    async with living(tmp_path, UP, mine=chained(FIRST_DOWN)) as session:
        await runs(session, "c1")
        session.actor.kit = chained(FIRST_DOWN, bindings=(BINDING, THIRD))
        await runs(session, "c2")
        assert suffixes(session)[1] == ["one", "three"]


async def test_a_variant_is_a_place_of_its_own(tmp_path: Path) -> None:
    chain = (CHAIN[0], FallbackEntry(model=TWO, variant="high"), CHAIN[1])  # type: ignore[arg-type]
    models = (BINDING, SECOND, HIGH)
    async with living(tmp_path, UP, mine=chained(FIRST_DOWN, chain, models)) as session:
        await runs(session, "c1", "c2")
        started = [one for one in session.audience.payloads if isinstance(one, RunStarted)]
    assert [[one.variant for one in run.selected_suffix] for run in started] == [
        [None, "high", None],
        ["high", None],
    ]


async def test_a_link_says_how_its_model_caches(tmp_path: Path) -> None:
    told = {"system": "off"}
    first, second, third = CHAIN
    first = msgspec.structs.replace(first, cache={"tools": "1h"})
    chain = (first, second, msgspec.structs.replace(third, cache=told))
    cached = tuple(msgspec.structs.replace(one, cache={"x": 1}) for one in (BINDING, SECOND, THIRD))
    async with living(tmp_path, UP, mine=chained(BOTH_UP, chain, cached)) as session:
        await runs(session, "c1")
        started = next(one for one in session.audience.payloads if isinstance(one, RunStarted))
    assert [one.cache for one in started.selected_suffix] == [{"tools": "1h"}, {"x": 1}, told]


async def test_a_session_goes_on_after_a_conversation_that_was_too_long(tmp_path: Path) -> None:
    long = always(Fail("context_length", "too long"))
    async with living(tmp_path, UP, mine=chained({ONE: long}, CHAIN[:1])) as session:
        assert (await runs(session, "c1"))[-1].startswith("run failed: fake/one: too long; ")
        other = msgspec.structs.replace(SELECTION, model=ModelSelection(model=THREE))
        session.actor.kit = chained({ONE: long, THREE: UP})
        assert (await runs(session, "c2", selection=other))[-1] == "run completed: hello"
