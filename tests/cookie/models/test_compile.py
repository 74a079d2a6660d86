"""From settings and flags to a plan."""

import re

import msgspec
import pytest

from cookie.config.agents import NoSuchAgent
from cookie.config.model_parts import Capabilities
from cookie.config.provider_models import CustomModel
from cookie.config.providers import CustomProvider
from cookie.config.settings import (
    ModelRetryTable,
    Settings,
    ToolOutputTable,
    WorkersTable,
)
from cookie.models.compile import (
    BadAllowedTool,
    NoRunnableModel,
    NoSuchModel,
    Selection,
    bindings,
    build_plan,
    overlay,
)
from ipc.events import FrozenModelBinding, ModelSelection, RunSelection
from ipc.ids import AgentId, BadId, ModelKey, ProviderId
from ipc.plan import decode_plan, encode_plan
from ipc.rules import Rule

MINE = Settings(
    providers={
        ProviderId("mine"): CustomProvider(
            source="custom",
            adaptor="scripted",
            setup={"script": "/talk.yaml"},
            models={
                "one": CustomModel(
                    model_id="wire-one",
                    capabilities=Capabilities(context_tokens=1000, output_tokens=50),
                ),
                "two": CustomModel(),
            },
        )
    }
)
NONE = Settings()
TOUR = Selection(model="rehearsal/tour")


def test_a_custom_provider_becomes_a_binding_for_each_of_its_models() -> None:
    common = {"provider_id": "mine", "adaptor": "scripted", "setup": {"script": "/talk.yaml"}}
    one, two, tour = bindings(MINE)

    assert one == FrozenModelBinding(
        model=ModelKey("mine/one"),
        provider_id=ProviderId("mine"),
        adaptor="scripted",
        wire_model="wire-one",
        setup={"script": "/talk.yaml"},
        context_limit=1000,
        max_output=50,
    )
    assert (two.model, two.wire_model, two.context_limit) == ("mine/two", "two", None)
    assert {name: getattr(two, name) for name in common} == common
    assert (tour.model, tour.adaptor) == ("rehearsal/tour", "rehearsal")


def test_without_a_model_the_refusal_says_what_to_do() -> None:
    with pytest.raises(NoRunnableModel) as refused:
        build_plan(NONE, Selection())

    assert refused.value.code == "no_runnable_model"
    assert str(refused.value) == (
        "no model is configured: try `--model rehearsal/tour`, which needs no key and no network, "
        "or add a provider to config.toml"
    )


@pytest.mark.parametrize(
    ("settings", "selection", "model", "variant"),
    [
        (NONE, TOUR, "rehearsal/tour", None),
        (NONE, Selection(model="rehearsal/tour", variant="base"), "rehearsal/tour", "base"),
        (MINE, Selection(), "mine/one", None),
        (MINE, Selection(model="mine/two", agent="default"), "mine/two", None),
        (MINE, TOUR, "rehearsal/tour", None),
    ],
)
def test_the_model_that_was_asked_for_or_the_first_one_runs(
    settings: Settings, selection: Selection, model: str, variant: str | None
) -> None:
    plan = build_plan(settings, selection)

    assert plan.default_selection == RunSelection(
        agent=AgentId("default"),
        model=ModelSelection(model=ModelKey(model), variant=variant),  # type: ignore[arg-type]
    )
    assert plan.model(ModelKey(model)) is not None


@pytest.mark.parametrize(
    ("selection", "fault", "said"),
    [
        (
            Selection(model="mine/three"),
            NoSuchModel,
            "there is no model mine/three; there is: mine/one, mine/two, rehearsal/tour",
        ),
        (
            Selection(model="mine/one", variant="high"),
            NoSuchModel,
            "there is no variant high of mine/one; there is: base",
        ),
        (
            Selection(agent="reviewer"),
            NoSuchAgent,
            "there is no agent 'reviewer'; there is: default",
        ),
    ],
)
def test_what_was_asked_for_and_is_not_there_is_an_error(
    selection: Selection, fault: type[Exception], said: str
) -> None:
    with pytest.raises(fault) as refused:
        build_plan(MINE, selection)

    assert str(refused.value) == said


def test_a_text_that_is_no_model_is_refused() -> None:
    with pytest.raises(BadId):
        build_plan(MINE, Selection(model="mine"))


def test_flags_and_settings_reach_the_plan() -> None:
    settings = msgspec.structs.replace(
        MINE,
        tool_output=ToolOutputTable(max_lines=7, max_bytes=8),
        model_retry=ModelRetryTable(standard_retries=-1, backoff_ceiling_ms=9),
        workers=WorkersTable(link_patience="5s", pass_env=("A",)),
    )
    plan = build_plan(
        settings,
        Selection(),
        permission_mode="yolo",
        allowed_tools=["bash"],
        max_turns=3,
        env={"A": "b"},
    )

    assert (plan.tool_output.max_lines, plan.tool_output.max_bytes) == (7, 8)
    assert (plan.model_retry.standard_retries, plan.model_retry.overload_retries) == (-1, 5)
    assert plan.model_retry.backoff_ceiling_ms == 9
    assert (plan.permission_mode, plan.attended, plan.approval_timeout_ms) == (
        "yolo",
        False,
        30_000,
    )
    assert (plan.limits.max_turns, plan.env, plan.pass_env) == (3, {"A": "b"}, ("A",))
    assert plan.link_patience_ms == 5000
    assert plan.overlay == (Rule(action="bash", resource="*", effect="allow"),)
    assert decode_plan(encode_plan(plan)) == plan


def test_equal_settings_have_equal_revisions_and_others_have_not() -> None:
    assert build_plan(MINE, Selection()) == build_plan(MINE, Selection())
    one, other = build_plan(MINE, TOUR).revisions, build_plan(NONE, TOUR).revisions
    assert (one.runtime == other.runtime, one.model == other.model) == (False, False)
    assert one.catalog == other.catalog


@pytest.mark.parametrize(
    ("name", "action", "resource"),
    [
        ("read", "read", "*"),
        ("write", "write", "*"),
        ("bash", "bash", "*"),
        ("delegate", "delegate", "*"),
        ("mcp", "mcp", "*"),
        ("plugin", "plugin", "*"),
        ("plugin:lint", "plugin", "lint"),
        ("skill:review", "skill", "review"),
    ],
)
def test_an_allowed_tool_is_one_rule_that_allows(name: str, action: str, resource: str) -> None:
    (rule,) = overlay([name])

    assert (rule.action, rule.resource, rule.effect) == (action, resource, "allow")


@pytest.mark.parametrize(
    "name", ["webfetch", "edit", "skill", "message", "bash:ls", "skill:", "", "skill:[x]"]
)
def test_a_name_that_can_not_be_allowed_is_refused(name: str) -> None:
    with pytest.raises(
        BadAllowedTool, match=re.escape(f"does not take {name!r}; it takes: read, write")
    ):
        overlay([name])
