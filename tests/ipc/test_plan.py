from typing import Any

import msgspec
import pytest

from ipc.events import AGENT_SNAPSHOT_SCHEMA
from ipc.events.base import (
    AgentSnapshot,
    FallbackEntry,
    FrozenModelBinding,
    ModelSelection,
    Revisions,
    RunSelection,
)
from ipc.ids import AgentId, Fingerprint, ModelKey, ProviderId, Revision, SecretRef, VariantName
from ipc.plan import (
    ENV_BYTES_MAX,
    PLAN_BYTES_MAX,
    BadPlan,
    ModelRetry,
    Plan,
    ToolOutput,
    decode_plan,
    encode_plan,
    fingerprint,
    sealed,
)
from ipc.rules import RULES_MAX, Rule

REVISION = Revision("sha256:" + "ab" * 32)
KEY = SecretRef(provider_id=ProviderId("acme"), field="api_key")
ACME = ModelKey("acme/large")


def agent(name: str = "primary") -> AgentSnapshot:
    return AgentSnapshot(
        schema=AGENT_SNAPSHOT_SCHEMA,
        agent=AgentId(name),
        description="",
        mode="primary",
        document_source="builtin",
        composed_prompt="",
        document_fingerprint=Fingerprint(REVISION),
        prompt_fingerprint=Fingerprint(REVISION),
        permissions=(Rule(action="read", resource="*", effect="allow"),),
        fallback_chain=(FallbackEntry(model=ACME),),
        selected_suffix_start=0,
    )


def binding(variant: str | None = None, **more: Any) -> FrozenModelBinding:
    return FrozenModelBinding(
        model=ACME,
        provider_id=ProviderId("acme"),
        adaptor="openai-chat",
        wire_model="large-1",
        variant=None if variant is None else VariantName(variant),
        **more,
    )


def plan(**more: Any) -> Plan:
    known: dict[str, Any] = {
        "revisions": Revisions(**dict.fromkeys(Revisions.__struct_fields__, REVISION)),
        "agents": (agent(),),
        "models": (binding(), binding("high", auth_ref=KEY)),
        "default_selection": RunSelection(
            agent=AgentId("primary"), model=ModelSelection(model=ACME)
        ),
        "env": {"PATH": "/bin", "TOKEN_OF_NOBODY": "hunter2"},
    }
    return Plan(**{**known, **more})


def test_a_plan_is_read_as_it_was_written() -> None:
    one = sealed(plan())
    assert decode_plan(encode_plan(one)) == one


def test_the_defaults_are_those_of_the_spec() -> None:
    assert ModelRetry() == ModelRetry(
        standard_retries=3, overload_retries=5, backoff_ceiling_ms=60_000
    )
    assert ToolOutput() == ToolOutput(max_lines=2000, max_bytes=51_200)
    assert (plan().permission_mode, plan().attended, plan().approval_timeout_ms) == (
        "auto_approve",
        True,
        0,
    )


def test_equal_content_has_an_equal_revision_whatever_the_order_of_its_maps() -> None:
    first = sealed(plan(env={"A": "1", "B": "2"}))
    second = sealed(plan(env={"B": "2", "A": "1"}))
    assert first.revision == second.revision
    assert sealed(first) == first
    assert first.revision.startswith("sha256:")
    assert len(first.revision) == len(REVISION)


@pytest.mark.parametrize(
    "change",
    [
        {"permission_mode": "yolo"},
        {"attended": False},
        {"env": {}},
        {"overlay": (Rule(action="bash", resource="*", effect="allow"),)},
        {"models": (binding(),)},
        {"tool_output": ToolOutput(max_lines=1)},
    ],
)
def test_any_change_is_another_revision(change: dict[str, Any]) -> None:
    assert sealed(plan(**change)).revision != sealed(plan()).revision


def test_agents_and_models_are_found_by_what_they_are_called() -> None:
    one = plan()
    assert one.agent(AgentId("primary")) == agent()
    assert one.agent(AgentId("nobody")) is None
    assert one.model(ACME) == binding()
    assert one.model(ACME, VariantName("high")) == binding("high", auth_ref=KEY)
    assert one.model(ACME, VariantName("low")) is None
    assert one.secrets() == {KEY}


def test_a_plan_names_secrets_and_its_repr_shows_no_environment() -> None:
    assert "hunter2" not in repr(sealed(plan()))
    written = msgspec.json.decode(encode_plan(sealed(plan())))
    assert written["models"][1]["auth_ref"] == {"provider_id": "acme", "field": "api_key"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"agents": (agent(), agent())}, "an agent is there twice"),
        ({"models": (binding(), binding())}, "a model is there twice"),
        ({"agents": (agent("other"),)}, "the default agent is not among"),
        ({"env": {"A": "x" * ENV_BYTES_MAX}}, "the environment has"),
        (
            {"overlay": (Rule(action="bash", resource="*", effect="allow"),) * (RULES_MAX + 1)},
            "overlay rules",
        ),
    ],
)
def test_a_plan_that_contradicts_itself_is_not_sealed(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadPlan, match=reason):
        sealed(plan(**change))


def test_a_plan_over_the_limit_is_not_written() -> None:
    fat = msgspec.structs.replace(agent(), composed_prompt="x" * PLAN_BYTES_MAX)
    with pytest.raises(BadPlan, match="too big"):
        encode_plan(sealed(plan(agents=(fat,))))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"revision":"x"}', b"\xff"])
def test_what_is_no_plan_is_refused(text: bytes) -> None:
    with pytest.raises(BadPlan):
        decode_plan(text)


def test_a_plan_that_was_changed_on_its_way_is_refused() -> None:
    text = encode_plan(sealed(plan(permission_mode="ask")))
    with pytest.raises(BadPlan, match="revision"):
        decode_plan(text.replace(b'"permission_mode":"ask"', b'"permission_mode":"yolo"'))


def test_a_plan_of_a_newer_build_can_be_read_and_keeps_its_revision() -> None:
    one = sealed(plan())
    newer = {**msgspec.json.decode(encode_plan(one)), "moon_phase": "full"}
    assert decode_plan(msgspec.json.encode(newer)) == one


def test_a_fingerprint_is_that_of_the_canonical_json() -> None:
    empty = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert fingerprint({}) == empty  # the SHA-256 of "{}"
    assert fingerprint({"b": 1, "a": [None]}) == fingerprint({"a": [None], "b": 1})
