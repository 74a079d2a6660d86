"""From providers to bindings: variants, prices, capabilities, and why a model can't be called."""

from pathlib import Path

import msgspec
import pytest

from cookie.config.adaptors import BUILT
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
from ipc.events.base import (
    Generation,
    MediaLimit,
    ModelCapabilities,
    ModelTimeouts,
    Pricing,
    ReasoningWish,
)
from ipc.ids import AgentId, ModelKey, ProviderId, SecretRef, VariantName
from ipc.plan import Http, Plan
from ipc.rules import Rule
from workers.providers import ADAPTORS as PROVIDER_MODULES

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
            media_limits=(
                MediaLimit(mime_types=("image/png", "image/webp"), max_bytes=1, max_count=1),
            ),
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
            auth="azure-api-key-v1",
            secrets={"endpoint": SecretRef(provider_id=ProviderId("cloud"), field="endpoint")},
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


EVERYTHING = """
[http]
ca_file = "company.pem"
proxy = "http://me:pw@proxy.example:3128"
[loop_warning]
enabled = false
[providers.far]
source = "custom"
adaptor = "anthropic"
endpoint = "https://${env:HOST}/v1"
auth = { method = "anthropic-api-key-v1", values = { api_key = "${env:KEY}" } }
headers = { x-team = "a", x-wide = "w", authorization = "Bearer ${env:KEY}", x-token = "t-1" }
timeouts = { connect_seconds = 1, headers_seconds = 2.5, stream_idle_seconds = 0.0001 }
[providers.far.models.one]
generation_options = { temperature = 1, max_output_tokens = 40, stop = ["x"], tool_choice = { named = "bash" } }
adaptor_options = { beta = ["b1"] }
headers = { x-team = "b", x-wide = "" }
[providers.far.models.one.capabilities]
context_tokens = 1000
output_tokens = 50
reasoning = true
native_replay = "required"
[providers.far.models.one.variants.high]
generation_options = { stop = [], max_output_tokens = 45, tool_choice = "auto" }
adaptor_options = { beta = ["b2"] }
reasoning = { type = "budget_tokens", value = 8000 }
headers = { x-token = "plain-not-here", authorization = "" }
[providers.far.models.one.variants.word]
reasoning = { type = "effort", value = "low" }
[providers.far.models.one.variants.off]
reasoning = { type = "toggle", enabled = false }
generation_options = { max_output_tokens = 10 }
"""  # noqa: E501


def far(field: str) -> SecretRef:
    return SecretRef(provider_id=ProviderId("far"), field=field)


def test_a_binding_has_all_that_a_call_needs_and_a_variant_what_it_says_itself(
    tmp_path: Path,
) -> None:
    text = EVERYTHING
    base, high, word, off = models(config(tmp_path, text))["far/one"].bindings

    assert base == FrozenModelBinding(
        model=ModelKey("far/one"),
        provider_id=ProviderId("far"),
        adaptor="anthropic",
        wire_model="one",
        endpoint="https://${env:HOST}/v1",
        auth_ref=far("auth"),
        auth="anthropic-api-key-v1",
        context_limit=1000,
        max_output=40,
        capabilities=ModelCapabilities(reasoning=True, native_replay="required"),
        headers={"x-team": "b", "x-wide": ""},
        secrets={
            "headers.authorization": far("headers.authorization"),
            "headers.x-token": far("headers.x-token"),
            "endpoint": far("endpoint"),
        },
        generation=Generation(temperature=1, stop=("x",), tool_choice="named:bash"),
        options={"beta": ["b1"]},
        timeouts=ModelTimeouts(connect_ms=1000, headers_ms=2500, stream_idle_ms=1),
    )
    narrow = "models.one.variants.high.headers"
    assert high == msgspec.structs.replace(
        base,
        variant=VariantName("high"),
        max_output=45,
        secrets={
            "headers.authorization": far(f"{narrow}.authorization"),
            "headers.x-token": far(f"{narrow}.x-token"),
            "endpoint": far("endpoint"),
        },
        generation=Generation(temperature=1, tool_choice="auto"),
        reasoning=ReasoningWish(budget_tokens=8000),
        options={"beta": ["b2"]},
    )
    assert word == msgspec.structs.replace(
        base, variant=VariantName("word"), reasoning=ReasoningWish(effort="low")
    )
    assert off == msgspec.structs.replace(
        base,
        variant=VariantName("off"),
        max_output=10,
        reasoning=ReasoningWish(enabled=False),
    )


def test_a_plan_names_the_secrets_of_its_models_and_the_vault_has_each_of_them(
    tmp_path: Path,
) -> None:
    found = config(tmp_path, EVERYTHING)
    made = plan(found, Selection(model="far/one"))

    proxy = SecretRef(provider_id=ProviderId("http"), field="proxy")
    assert made.http == Http(ca_file=str(tmp_path / "data" / "company.pem"), proxy=proxy)
    assert not made.loop_warning
    assert made.secrets() == set(found.vault.refs())
    assert found.vault.value(far("endpoint")) == "https://s3cret.example.com/v1"
    assert found.vault.value(proxy) == "http://me:pw@proxy.example:3128"
    text = msgspec.json.encode(made)
    for secret in (b"sk-1", b"s3cret", b"me:pw", b"t-1", b"plain-not-here"):
        assert secret not in text


def test_a_model_that_needs_no_key_says_no_method_and_one_in_a_header_says_which(
    tmp_path: Path,
) -> None:
    text = """
[providers.near]
source = "custom"
adaptor = "openai-compatible"
endpoint = "http://127.0.0.1:11434/v1"
auth = { method = "no-auth-v1" }
[providers.near.models.m]
capabilities = { context_tokens = 10, output_tokens = 5 }
adaptor_options = { request_endpoint = "responses" }
"""
    keyed = text.replace("near", "keyed").replace(
        '"no-auth-v1"',
        '"api-key-header-v1", values = { api_key = "k" }, parameters = { header_name = "api-key" }',
    )
    found = models(config(tmp_path, text + keyed))
    near, with_key = found["near/m"].bindings[0], found["keyed/m"].bindings[0]

    assert (near.auth, near.auth_ref, near.secrets) == (None, None, {})
    assert near.options == {"request_endpoint": "responses"}
    assert (with_key.auth, with_key.auth_header) == ("api-key-header-v1", "api-key")


def test_a_proxy_that_is_not_there_keeps_every_model_that_would_need_it(tmp_path: Path) -> None:
    text = SCRIPTED + AZURE.replace("azure-openai-responses", "openai-chat").replace(
        'setup = { deployment = "prod", api_version = "v1" }', ""
    ).replace("azure-api-key-v1", "bearer-api-key-v1")
    found = config(tmp_path, text + '[http]\nproxy = "${env:PROXY}"\n')

    lame = models(found)["cloud/gpt"].unavailable
    assert lame is not None
    assert (lame.kind, "PROXY is not set" in lame.reason) == ("needs_credentials", True)
    assert models(found)["mine/one"].unavailable is None


def test_every_adaptor_that_is_built_has_a_module_in_the_worker() -> None:
    assert set(PROVIDER_MODULES) == BUILT


@pytest.mark.parametrize(
    ("cache", "settled"),
    [
        (None, None),
        ({}, None),
        ({"openai": {"mode": "auto"}}, None),  # of another family
        ({"anthropic": {}}, {"system": "1h", "tools": "1h", "rolling": "5m"}),
        ({"anthropic": {"system": "off"}}, {"system": "off", "tools": "1h", "rolling": "5m"}),
    ],
)
def test_an_entry_of_an_agent_replaces_the_cache_of_its_provider_whole(
    tmp_path: Path, cache: dict[str, object] | None, settled: dict[str, str] | None
) -> None:
    text = EVERYTHING.replace(
        "timeouts =", 'cache = { system = "5m", tools = "5m", rolling = "off" }\ntimeouts ='
    )
    agents = document(models=(FallbackEntry(model=ModelKey("far/one"), cache=cache),))

    made = plan(config(tmp_path, text), Selection(), agents)

    assert [entry.cache for entry in made.agents[0].fallback_chain] == [settled]
    found = made.model(ModelKey("far/one"))
    assert found is not None
    assert found.cache == {"system": "5m", "tools": "5m", "rolling": "off"}


def test_a_daemon_and_a_command_that_read_the_same_agree_on_its_revisions(tmp_path: Path) -> None:
    found, agents = config(tmp_path, SCRIPTED), document()

    known = compiled(found.settings, found.unusable)
    assert plan(found, Selection(variant="low"), agents).revisions == revisions(
        found.settings, agents, known
    )
