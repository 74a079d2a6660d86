"""What a client may ask of a session, and what it is answered."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ipc.content import user_text
from ipc.events import ModelSelection, RunSelection, RunStarted, UserInputSubmitted
from ipc.faults import rpc_code
from ipc.ids import ClientId, RunId, SessionId
from ipc.methods.runs import OfRun, RunStartParams
from ipc.methods.sessions import SessionCreateParams
from tests.fakes.desk import kit, story
from tests.fakes.logs import BINDING, SELECTION
from tests.fakes.session import Session, living, on_disk
from workers.actor.commands import (
    COMMANDS,
    IdempotencyConflict,
    NoPlan,
    NoSuchSelection,
    RunActive,
    RunNotFound,
    SessionBegun,
)
from workers.providers.script import Say, Stall
from workers.providers.scripted import Scripted

NOBODY = RunId("01890000-0000-7000-8000-0000000000ff")
HELLO = Scripted([Say("hello"), Say("hello")])
STALL = Scripted([[Say("x"), Stall()]])
OTHER = RunSelection(agent=SELECTION.agent, model=ModelSelection(model=BINDING.model, variant="v"))  # type: ignore[arg-type]


def runs(session: Session) -> list[Any]:
    return [one for one in session.audience.payloads if isinstance(one, RunStarted)]


async def test_a_session_is_in_memory_until_it_is_told_something(tmp_path: Path) -> None:
    async with living(tmp_path, HELLO) as session:
        meta = (await session.create()).session
        assert (meta.status, meta.last_event_seq) == ("idle", 0)
        assert session.audience.told == []
        assert session.tree.paths.directory.name.startswith(".staging-")
        await session.start()
        assert session.tree.paths.directory.name == session.actor.session_id
        await session.over()
    assert len(on_disk(tmp_path)) == len(session.audience.told)


async def test_a_session_that_has_begun_is_not_created_again(tmp_path: Path) -> None:
    async with living(tmp_path, HELLO) as session:
        await session.start()
        with pytest.raises(SessionBegun):
            await session.create()


async def test_a_run_names_its_input_by_its_number(tmp_path: Path) -> None:
    async with living(tmp_path, HELLO) as session:
        await session.start("one", "c1")
        await session.over()
        await session.start("two", "c2")
        await session.over()
    seqs = {e.seq: e.payload for e, _ in session.audience.told}
    inputs = [seqs[one.input_through_seq] for one in runs(session)]
    assert [one.input.text for one in inputs if isinstance(one, UserInputSubmitted)] == [
        "one",
        "two",
    ]


async def test_the_same_start_runs_once_however_often_it_is_asked_for(tmp_path: Path) -> None:
    async with living(tmp_path, HELLO) as session:
        first = await session.start("hi", "c1")
        assert await session.start("hi", "c1") == first  # while it runs
        await session.over()
        assert await session.start("hi", "c1") == first  # when it is over
        await session.over()
    assert len(runs(session)) == 1
    async with living(tmp_path, HELLO) as again:  # and in another worker
        assert await again.start("hi", "c1") == first
    assert again.audience.told == []


@pytest.mark.parametrize("while_it_runs", [True, False])
async def test_another_start_under_the_same_id_is_a_conflict(
    tmp_path: Path, while_it_runs: bool
) -> None:
    async with living(tmp_path, STALL if while_it_runs else HELLO) as session:
        run = await session.start("hi", "c1")
        if not while_it_runs:
            await session.over()
        for changed in ({"words": "hi!"}, {"selection": OTHER}):
            with pytest.raises(IdempotencyConflict) as conflict:
                await session.start(**{"words": "hi", "client_id": "c1", **changed})  # type: ignore[arg-type]
            body = conflict.value.body()
            assert (body.code, body.facts["run_id"]) == ("idempotency_conflict", run)
            assert rpc_code(body.code) == -32602
        await session.cancel(run)
        await session.over()
    assert len(runs(session)) == 1


async def test_a_second_run_waits_for_the_first_to_be_over(tmp_path: Path) -> None:
    async with living(tmp_path, STALL) as session:
        run = await session.start()
        with pytest.raises(RunActive) as active:
            await session.start("again", "c2")
        assert active.value.facts["run_id"] == run
        await session.cancel(run)
        await session.over()


@pytest.mark.parametrize(
    "selection",
    [
        RunSelection(agent="nobody", model=SELECTION.model),  # type: ignore[arg-type]
        RunSelection(agent=SELECTION.agent, model=ModelSelection(model="fake/none")),  # type: ignore[arg-type]
        OTHER,
    ],
)
async def test_what_the_plan_does_not_hold_cannot_be_chosen(
    tmp_path: Path, selection: RunSelection
) -> None:
    async with living(tmp_path, HELLO) as session:
        with pytest.raises(NoSuchSelection):
            await session.command("session.create", SessionCreateParams(selection=selection))
        with pytest.raises(NoSuchSelection):
            await session.start(selection=selection)
        assert session.audience.told == []


async def test_without_a_plan_nothing_is_begun(tmp_path: Path) -> None:
    async with living(tmp_path, HELLO) as session:
        session.actor.kit = None
        with pytest.raises(NoPlan):
            await session.start()


@pytest.mark.parametrize("method", ["run.steer", "run.recall_steer", "run.cancel"])
async def test_a_run_that_nobody_knows_is_not_found(tmp_path: Path, method: str) -> None:
    async with living(tmp_path, STALL) as session:
        run = await session.start()
        params: Any = OfRun(run_id=NOBODY)
        if method != "run.recall_steer":
            params = COMMANDS[method].params(
                run_id=NOBODY, **({"input": user_text("x")} if method == "run.steer" else {})
            )
        with pytest.raises(RunNotFound):
            await session.command(method, params)
        await session.cancel(run)
        await session.over()


async def test_a_run_that_is_over_is_not_cancelled_nor_steered(tmp_path: Path) -> None:
    async with living(tmp_path, HELLO) as session:
        run = await session.start()
        await session.over()
        assert await session.cancel(run) is False
        with pytest.raises(RunNotFound):
            await session.steer(run, "too late")
        with pytest.raises(RunNotFound):
            await session.recall(run)


async def test_inputs_are_recalled_last_first_and_the_end_of_the_run_voids_the_rest(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, STALL) as session:
        run = await session.start()
        for words in ("one", "two", "three"):
            assert (await session.steer(run, words)).accepted
        assert await session.recall(run) == "three"
        assert await session.recall(run) == "two"
        await session.cancel(run)
        await session.over()
        assert not session.actor.state.pending
    lines = story(session.audience.payloads)
    assert [line for line in lines if line.startswith("admitted")] == [
        *("admitted: one", "admitted: two", "admitted: three"),
    ]
    assert not any(line.startswith("user: one") for line in lines)


async def test_nothing_pending_means_nothing_recalled(tmp_path: Path) -> None:
    async with living(tmp_path, STALL) as session:
        run = await session.start()
        assert await session.recall(run) is None
        await session.cancel(run)
        await session.over()


async def test_a_run_that_waits_to_be_gone_on_with_can_be_cancelled(tmp_path: Path) -> None:
    """Its worker has no plan yet: nobody works on it, and it has an end all the same."""
    async with living(tmp_path, Scripted([Stall()])) as session:
        run = await session.start()
    mine = kit(HELLO)
    async with living(tmp_path, HELLO, mine=mine, resume=False) as again:
        assert again.actor.run_id == run
        assert await again.cancel(run, "changed my mind")
        assert again.actor.run_id is None
    assert story(again.audience.payloads)[-1] == "run cancelled: changed my mind"


def test_every_command_takes_the_params_of_its_method() -> None:
    from ipc.methods.table import METHODS  # noqa: PLC0415 - all 150 words, for this one look

    for name, known in COMMANDS.items():
        assert METHODS[name].params is known.params


def test_params_are_decoded_strictly() -> None:
    good = RunStartParams(
        session_id=SessionId("s"),
        client_run_id=ClientId("c"),
        selection=SELECTION,
        input=msgspec.json.decode(b'{"content":[]}', type=Any),
    )
    text = msgspec.json.encode({**msgspec.structs.asdict(good), "more": 1})
    with pytest.raises(msgspec.ValidationError, match="more"):
        msgspec.json.decode(text, type=COMMANDS["run.start"].params)
