"""The runtime snapshot: what clients are told of config and agents, and when again."""

from pathlib import Path

import msgspec
import pytest

from cookie.config.agents import Agents, load_agents
from cookie.config.settings import load_config
from cookie.daemon.runtime import Runtime, changes, runtime
from cookie.models.compile import Selection, build_plan
from ipc.events import FallbackEntry
from ipc.events.base import ModelCapabilities
from ipc.ids import AgentId, ModelKey, ProviderId, VariantName
from ipc.methods.runtime import (
    CatalogState,
    RuntimeAgent,
    RuntimeModel,
    RuntimeProvider,
    SetupField,
    Support,
)

CONFIG = """
[providers.mine]
source = "custom"
adaptor = "scripted"
setup = { script = "/talk.yaml" }
[providers.mine.models.one]
display_name = "One"
default_variant = "high"
variants.high = { model_id = "wire-high" }
[providers.mine.models.off]
enabled = false
[providers.far]
source = "custom"
adaptor = "google-vertex-gemini"
endpoint = "https://api.example.com"
setup = { project = "p", location = "l" }
auth = { method = "oauth-access-token-v1", values = { access_token = "${env:TOKEN}" } }
[providers.far.models.two]
capabilities = { context_tokens = 10, output_tokens = 10 }
[providers.openai]
source = "models_dev"
api_key = "sk-literal"
[providers.local]
source = "custom"
adaptor = "openai-compatible"
endpoint = "http://127.0.0.1:1234"
auth = { method = "no-auth-v1" }
[providers.local.models.m]
capabilities = { context_tokens = 10, output_tokens = 10 }
"""
AGENT = """---
description: {name}
mode: {mode}
enabled: {enabled}
models:
  - {{ model: "mine/one" }}
  - {{ model: "far/two" }}
permissions:
  read: allow
{more}---
You are {name}.
"""


class Place:
    """A data directory whose files a test writes."""

    def __init__(self, tmp_path: Path) -> None:
        self.data, self.work = tmp_path / "data", tmp_path / "ws"
        (self.data / "agents").mkdir(parents=True)
        self.work.mkdir()

    def config(self, text: str) -> None:
        (self.data / "config.toml").write_text(text)

    def agent(
        self, name: str, mode: str = "primary", *, enabled: bool = True, more: str = ""
    ) -> None:
        text = AGENT.format(name=name, mode=mode, enabled=str(enabled).lower(), more=more)
        (self.data / "agents" / f"{name}.md").write_text(text)

    def read(self, environ: dict[str, str] | None = None) -> Runtime:
        variables = {"TOKEN": "sk-token"} if environ is None else environ
        return runtime(
            load_config(self.data, self.work, variables), load_agents(self.data, self.work)
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_without_anything_there_are_the_built_in_agent_and_the_tour(place: Place) -> None:
    snapshot = place.read().snapshot

    assert snapshot.schema == 5
    assert snapshot.agents == (
        RuntimeAgent(id=AgentId("default"), mode="primary", enabled=True, runnable_as_root=True),
    )
    assert [model.key for model in snapshot.models] == ["rehearsal/tour"]
    assert [provider.id for provider in snapshot.providers] == ["rehearsal"]
    assert (snapshot.catalog_source, snapshot.catalog_state) == (
        "bootstrap",
        CatalogState(stale=False),
    )


def test_agents_are_listed_with_what_they_may_do(place: Place) -> None:
    place.config(CONFIG)
    place.agent("lead", more="  delegate:\n    helper: allow\n")
    place.agent("helper", "subagent")
    place.agent("old", enabled=False)
    live = (FallbackEntry(model=ModelKey("mine/one"), variant=VariantName("high")),)

    assert place.read().snapshot.agents == (
        RuntimeAgent(
            id=AgentId("helper"),
            mode="subagent",
            enabled=True,
            runnable_as_root=False,
            resolved_fallback=live,
        ),
        RuntimeAgent(
            id=AgentId("lead"),
            mode="primary",
            enabled=True,
            runnable_as_root=True,
            delegation_targets=(AgentId("helper"),),
            resolved_fallback=live,
        ),
        RuntimeAgent(id=AgentId("old"), mode="primary", enabled=False, runnable_as_root=False),
    )


def test_models_are_those_that_can_be_called_now(place: Place) -> None:
    place.config(CONFIG)

    one, local, tour = place.read().snapshot.models
    assert (local.key, tour.key) == ("local/m", "rehearsal/tour")
    assert one == RuntimeModel(
        key=ModelKey("mine/one"),
        display_name="One",
        capabilities=ModelCapabilities(),
        variant_order=(VariantName("high"),),
        variants={VariantName("high"): {"wire_model": "wire-high"}},
        default_variant=VariantName("high"),
    )


def test_providers_say_how_far_they_are_set_up(place: Place) -> None:
    place.config(CONFIG)

    found = {one.id: one for one in place.read().snapshot.providers}
    assert found[ProviderId("far")] == RuntimeProvider(
        id=ProviderId("far"),
        presence="current",
        support=Support(
            state="unsupported", reason="this build has no adaptor google-vertex-gemini yet"
        ),
        configuration="authored",
        effective_auth_state="authored_override",
        auth_methods=("oauth-access-token-v1",),
        setup_fields=(
            SetupField(name="project"),
            SetupField(name="location"),
            SetupField(name="resource", required=False),
        ),
    )
    assert {name: (one.support.state, one.effective_auth_state) for name, one in found.items()} == {
        "mine": ("supported", "no_auth"),
        "far": ("unsupported", "authored_override"),
        "openai": ("unsupported", "authored_api_key"),
        "local": ("supported", "no_auth"),
        "rehearsal": ("supported", "no_auth"),
    }


def test_a_provider_whose_variable_is_not_set_is_unavailable(place: Place) -> None:
    place.config(CONFIG)

    found = {one.id: one for one in place.read({}).snapshot.providers}
    assert found[ProviderId("far")].effective_auth_state == "unavailable"


def test_no_secret_is_in_a_snapshot_nor_in_the_repr_of_a_runtime(place: Place) -> None:
    place.config(CONFIG)
    found = place.read()

    wire = msgspec.json.encode(found.snapshot).decode()
    assert "sk-" not in wire
    assert repr(found) == f"Runtime({found.snapshot.runtime_revision})"


def test_a_plan_and_a_snapshot_of_the_same_files_have_the_same_revisions(place: Place) -> None:
    place.config(CONFIG)
    place.agent("lead")
    found = place.read()

    plan = build_plan(
        found.config.settings,
        Selection(),
        authored=load_agents(place.data, place.work),
        unusable=found.config.unusable,
    )
    assert plan.revisions == found.revisions
    assert place.read().snapshot == found.snapshot


def test_clients_are_told_when_something_changed_and_why(place: Place) -> None:
    place.config(CONFIG)
    place.agent("lead")
    first = place.read()

    assert changes(None, first) == ("startup",)
    assert changes(first, place.read()) == ()

    place.agent("helper", "subagent")
    second = place.read()
    assert changes(first, second) == ("agent_reloaded",)

    place.config(CONFIG + "[tool_output]\nmax_lines = 1\n")
    third = place.read()
    assert changes(second, third) == ("config_reloaded",)
    assert second.snapshot.runtime_revision != third.snapshot.runtime_revision

    place.config(CONFIG)
    place.agent("helper", "subagent", more="  write: allow\n")
    assert changes(third, place.read()) == ("agent_reloaded", "config_reloaded")


def test_a_variable_that_appears_is_a_change_of_the_config(place: Place) -> None:
    place.config(CONFIG)

    assert changes(place.read({}), place.read()) == ("config_reloaded",)


def test_agents_of_a_preset_are_a_change_too_though_they_are_not_listed(place: Place) -> None:
    empty = runtime(place.read().config, Agents())
    (place.data / "agents" / "fast").mkdir()
    place.agent("lead")
    (place.data / "agents" / "lead.md").rename(place.data / "agents" / "fast" / "lead.md")

    assert changes(empty, place.read()) == ("agent_reloaded",)
