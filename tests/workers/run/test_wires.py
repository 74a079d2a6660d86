"""Whatever a session went through, each provider takes the request that is made of it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from ipc.events.base import ReasoningWish
from ipc.events.codec import encode, read_line
from ipc.fold import SessionState, fold
from tests.fakes.poison import FAMILIES, LINES, MEDIA_BYTES, Family, Line, written
from workers.providers.base import Request, ToolMessage, ToolSpec
from workers.run.checker import check
from workers.run.history import Projection, project

TOOLS = tuple(
    ToolSpec(
        name=name,
        description=f"{name}s.",
        parameters={
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        },
    )
    for name in ("bash", "read")
)
EACH_FAMILY = pytest.mark.parametrize("name", list(FAMILIES))


def projected(state: SessionState, family: Family) -> Projection:
    view, model = state.view(), family.binding.resolved()
    return check(project(view, model), family.binding)


def asked(projection: Projection) -> Request:
    return Request(
        system="You are a pelican.",
        messages=projection.messages,
        tools=TOOLS,
        session_id="01890000-0000-7000-8000-00000000000a",  # type: ignore[arg-type]
    )


def body(state: SessionState, family: Family) -> bytes:
    projection = projected(state, family)
    made = family.encode(asked(projection), MEDIA_BYTES)
    family.judge(made, projection.paused)
    return made


@EACH_FAMILY
@settings(deadline=None)
@given(lines=st.lists(LINES, max_size=10))
def test_every_request_is_accepted_and_the_same_again(name: str, lines: list[Line]) -> None:
    log, family = written(lines), FAMILIES[name]

    first = body(fold(log.events), family)

    assert body(fold(log.events), family) == first
    again = [read_line(encode(event)) for event in log.events]
    assert body(fold([one.event for one in again]), family) == first  # type: ignore[union-attr]


def asked_otherwise(name: str, **more: Any) -> Family:
    family = FAMILIES[name]
    return structs.replace(family, binding=structs.replace(family.binding, **more))


MARKED = {"mode": "explicit", "system": True, "rolling": True}
OTHERWISE = {
    "a budget": asked_otherwise("anthropic", reasoning=ReasoningWish(budget_tokens=2048)),
    "short marks": asked_otherwise("anthropic", cache={"tools": "off", "system": "5m"}),
    "marks in chat": asked_otherwise("chat", cache=MARKED),
    "marks in responses": asked_otherwise(
        "responses", cache=MARKED, reasoning=ReasoningWish(effort="low")
    ),
    "short ids": asked_otherwise("compatible", endpoint="https://api.mistral.ai/v1"),
    "an echo": asked_otherwise("compatible", endpoint="https://api.deepseek.com"),
    "a thinking budget": asked_otherwise("google", reasoning=ReasoningWish(budget_tokens=1000)),
    "a level": asked_otherwise("gemini3", reasoning=ReasoningWish(effort="low")),
}


@pytest.mark.parametrize("how", list(OTHERWISE))
@settings(deadline=None, max_examples=40)
@given(lines=st.lists(LINES, max_size=10))
def test_every_request_is_accepted_also_when_a_model_is_asked_otherwise(
    how: str, lines: list[Line]
) -> None:
    body(fold(written(lines).events), OTHERWISE[how])


@settings(deadline=None)
@given(lines=st.lists(LINES, max_size=10), name=st.sampled_from(list(FAMILIES)))
def test_places_lead_back_to_their_blocks_and_what_was_checked_is_sound(
    lines: list[Line], name: str
) -> None:
    family = FAMILIES[name]
    projection = projected(fold(written(lines).events), family)

    assert len(projection.places) == len(projection.messages)
    for message, row in zip(projection.messages, projection.places, strict=True):
        if isinstance(message, ToolMessage):
            assert len(row) == 1 + len(message.attachments)
        else:
            assert len(row) == len(message.content)
    assert check(projection, family.binding) is projection
    assert msgspec.json.encode(projection.messages)
