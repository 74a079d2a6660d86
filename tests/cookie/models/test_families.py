"""From providers to bindings: variants, prices, capabilities, and why a model can't be called."""

from pathlib import Path

import msgspec
import pytest

from cookie.config.agents import Agents
from cookie.config.documents import AgentDocument
from cookie.config.settings import Config, load_config
from cookie.models.compile import (
    ModelUnavailable,
    NoRunnableModel,
    Selection,
    build_plan,
    revisions,
)
from cookie.models.families import TOUR, Compiled, Unavailable, compiled
from ipc.events import FallbackEntry, FrozenModelBinding, ModelSelection
from ipc.events.base import ModelCapabilities, Pricing
from ipc.ids import AgentId, ModelKey, ProviderId, SecretRef, VariantName
from ipc.plan import Plan
from ipc.rules import Rule

SCRIPTED = """
[providers.mine]
source = "custom"
adaptor = "scripted"
setup = { script = "/talk.yaml" }
[providers.mine.models.one]
display_name = "One"
model_id = "wire-one"
default_variant = "high"
pricing = { input_per_million_usd = "1.25", output_per_million_usd = "5", cache_read_per_million_usd = "0.1" }
[providers.mine.models.one.capabilities]
context_tokens = 1000
output_tokens = 50
reasoning = true
parallel_tool_calls = false
input = ["text", "image"]
media.image = { mime_types = ["image/png", "image/webp"], max_bytes = 1, max_count = 1 }
[providers.mine.models.one.variants.low]
[providers.mine.models.one.variants.high]
model_id = "wire-high"
[providers.mine.models.one.variants.gone]
enabled = false
[providers.mine.models.two]
pricing = { input_per_million_usd = "1" }
[providers.mine.models.three]
enabled = false
"""  # noqa: E501
AZURE = """
[providers.cloud]
source = "custom"
adaptor = "azure-openai-responses"
endpoint = "https://${env:HOST}/openai"
setup = { deployment = "prod", api_version = "v1" }
auth = { method = "azure-api-key-v1", values = { api_key = "${env:KEY}" } }
cache = { mode = "auto" }
[providers.cloud.models.gpt]
capabilities = { context_tokens = 10, output_tokens = 5 }
"""
ENVIRON = {"HOST": "s3cret.example.com", "KEY": "sk-1"}


def config(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> Config:
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "config.toml").write_text(text)
    return load_config(tmp_path / "data", tmp_path, ENVIRON if environ is None else environ)


def models(found: Config) -> dict[str, Compiled]:
    return {one.key: one for one in compiled(found.settings, found.unusable)}


def plan(found: Config, selection: Selection, agents: Agents | None = None) -> Plan:
    return build_plan(
        found.settings, selection, unusable=found.unusable, authored=agents or Agents()
    )


def test_a_model_has_a_binding_for_itself_and_one_for_each_variant(tmp_path: Path) -> None:
    one = models(config(tmp_path, SCRIPTED))["mine/one"]
    base = FrozenModelBinding(
        model=ModelKey("mine/one"),
        provider_id=ProviderId("mine"),
        adaptor="scripted",
        wire_model="wire-one",
        setup={"script": "/talk.yaml"},
        context_limit=1000,
        max_output=50,
        capabilities=ModelCapabilities(
            tools=True,
            reasoning=True,
            parallel_tools=False,
            input_media=("image/png", "image/webp"),
        ),
        pricing=Pricing(
            input=1_250_000_000_000, output=5_000_000_000_000, cache_read=100_000_000_000
        ),
    )

    assert one == Compiled(
        key=ModelKey("mine/one"),
        display_name="One",
        bindings=(
            base,
            msgspec.structs.replace(base, variant=VariantName("low")),
            msgspec.structs.replace(base, variant=VariantName("high"), wire_model="wire-high"),
        ),
        default_variant=VariantName("high"),
    )


def test_a_price_without_both_of_what_every_request_costs_is_none(tmp_path: Path) -> None:
    assert models(config(tmp_path, SCRIPTED))["mine/two"].bindings[0].pricing is None


def test_a_binding_names_what_is_secret_and_does_not_hold_it(tmp_path: Path) -> None:
    found = config(tmp_path, AZURE)
    gpt = models(found)["cloud/gpt"]

    assert gpt.bindings == (
        FrozenModelBinding(
            model=ModelKey("cloud/gpt"),
            provider_id=ProviderId("cloud"),
            adaptor="azure-openai-responses",
            wire_model="prod",
            endpoint="https://${env:HOST}/openai",
            setup={"deployment": "prod", "api_version": "v1"},
            auth_ref=SecretRef(provider_id=ProviderId("cloud"), field="auth"),
            context_limit=10,
            max_output=5,
            cache={
                "prompt_cache_retention": None,
                "mode": "auto",
                "ttl": None,
                "system": False,
                "rolling": False,
            },
        ),
    )
    (binding,) = gpt.bindings
    assert binding.auth_ref is not None
    assert found.vault.value(binding.auth_ref) == '{"api_key":"sk-1"}'
    assert b"s3cret" not in msgspec.json.encode(binding)


@pytest.mark.parametrize(
    ("text", "environ", "model", "why"),
    [
        (
            AZURE,
            ENVIRON,
            "cloud/gpt",
            Unavailable("unsupported", "this build has no adaptor azure-openai-responses yet"),
        ),
        (
            SCRIPTED,
            ENVIRON,
            "mine/three",
            Unavailable("disabled", "the config says enabled = false"),
        ),
        (
            '[providers.p]\nsource = "models_dev"\n[providers.p.models.m]\n',
            ENVIRON,
            "p/m",
            Unavailable("unsupported", "this build has no catalogue of models yet"),
        ),
    ],
)
def test_a_model_that_can_not_be_called_says_why(
    tmp_path: Path, text: str, environ: dict[str, str], model: str, why: Unavailable
) -> None:
    found = config(tmp_path, text, environ)

    assert models(found)[model].unavailable == why
    with pytest.raises(ModelUnavailable) as refused:
        plan(found, Selection(model=model))
    assert str(refused.value) == f"the model {model} can't be used: {why.reason}"


def test_a_variable_that_is_not_set_is_the_reason_once_the_adaptor_is_there(tmp_path: Path) -> None:
    script = SCRIPTED.replace('"/talk.yaml"', '"${env:SCRIPTS}/talk.yaml"')
    found = config(tmp_path, script, {})

    with pytest.raises(ModelUnavailable, match="the environment variable SCRIPTS is not set"):
        plan(found, Selection(model="mine/one"))
    with pytest.raises(
        NoRunnableModel, match=r"no model can be used \(mine/one: .* SCRIPTS is not set.*; and 1"
    ):
        plan(found, Selection())
    assert plan(found, Selection(model=TOUR)).default_selection is not None


def document(**changes: object) -> Agents:
    found = AgentDocument(
        agent=AgentId("primary"),
        path="/primary.md",
        source="user",
        description="d",
        mode="primary",
        enabled=True,
        body="b",
        models=(
            FallbackEntry(model=ModelKey("mine/one")),
            FallbackEntry(model=ModelKey("mine/two"), variant=VariantName("base")),
        ),
        permissions=(Rule(action="read", resource="*", effect="allow"),),
    )
    found = msgspec.structs.replace(found, **changes)
    return Agents(shared={found.agent: found})


@pytest.mark.parametrize(
    ("selection", "model", "variant"),
    [
        (Selection(), "mine/one", "high"),
        (Selection(variant="base"), "mine/one", "base"),
        (Selection(variant="low"), "mine/one", "low"),
        (Selection(model="mine/one"), "mine/one", "high"),
        (Selection(model="mine/two"), "mine/two", None),
    ],
)
def test_who_names_no_variant_gets_the_default_one_of_the_model(
    tmp_path: Path, selection: Selection, model: str, variant: str | None
) -> None:
    found = plan(config(tmp_path, SCRIPTED), selection, document())

    assert found.default_selection is not None
    assert found.default_selection.model == ModelSelection(
        model=ModelKey(model), variant=None if variant is None else VariantName(variant)
    )
    (agent,) = found.agents
    assert [(one.model, one.variant) for one in agent.fallback_chain] == [
        ("mine/one", "high"),
        ("mine/two", "base"),
    ]


def test_settings_that_a_plan_has_a_place_for_are_in_it(tmp_path: Path) -> None:
    agents = document(
        permissions=(Rule(action="delegate", resource="helper", effect="allow"),),
    )
    helper = document(agent=AgentId("helper"), mode="subagent").shared[AgentId("helper")]
    agents.shared[helper.agent] = helper
    tables = (
        "[approval]\ntimeout_ms = 7\n[agent_md]\nenabled = false\nmax_bytes = 9\n"
        "[delegation]\nmax_depth = 5\n"
    )

    found = plan(config(tmp_path, SCRIPTED + tables), Selection(), agents)

    assert found.approval_timeout_ms == 7
    assert (found.agent_md.enabled, found.agent_md.max_bytes) == (False, 9)
    delegation = found.agents[1].delegation
    assert delegation is not None
    assert (delegation.targets, delegation.effective_depth_ceiling) == (("helper",), 5)


def test_a_daemon_and_a_command_that_read_the_same_agree_on_its_revisions(tmp_path: Path) -> None:
    found, agents = config(tmp_path, SCRIPTED), document()

    known = compiled(found.settings, found.unusable)
    assert plan(found, Selection(variant="low"), agents).revisions == revisions(
        found.settings, agents, known
    )
