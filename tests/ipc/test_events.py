"""ipc.events: which events there are, how they are named, and which must be on disk first."""

import inspect
import re
from typing import get_args

import msgspec
import pytest
from jsonschema import Draft202012Validator

from ipc import events
from ipc.content import FinishReason
from ipc.events import (
    DELTAS,
    EVENT_TYPES,
    ApprovalReasonCode,
    DecisionSource,
    Event,
    FrozenModelBinding,
    ModelErrorKind,
    Payload,
    ReasoningDelta,
    StoredEvent,
    TextDelta,
    ToolCallProgress,
    is_commit,
    tag_of,
)
from ipc.events.codec import encode
from ipc.ids import ModelKey, ProviderId, SecretRef
from ipc.methods.table import METHODS, NOTIFICATIONS
from ipc.schema import event_schema, method_schema
from tests.fakes.samples import all_samples, samples, stored

OF_THE_SPECIFICATION = """
session_created session_reverted session_permission_overlay_set session_title_committed
skill_loaded skill_invocation_noted delegated_context_seeded plugin_event_added plugin_diagnostic
message_injected user_input_admitted user_input_submitted user_input_recalled
user_input_transformed user_input_recalled_v2 user_input_applied
run_started run_completed run_failed run_cancelled run_interrupted
model_attempt_started model_request_prepared text_delta reasoning_delta attempt_abandoned
model_replay_evaluated model_turn_committed model_usage_recorded model_fallback
tool_call_started tool_call_executing tool_call_progress tool_call_terminated tool_output_elided
tool_stdin_submitted tool_call_linked
worker_recovered tree_adopted tree_drained tree_ended budget_paused budget_resumed lease_waited
history_repaired
agent_md_loaded agent_md_skipped
delegate_queued delegate_finished delegate_finished_v2 delegate_child_terminated
delegation_reserved delegation_started delegation_run_started delegation_run_attached
delegation_finished
approval_requested approval_evaluated approval_escalated approval_user_decision_recorded
approval_finalized approval_cancelled approval_doom_loop_detected tree_approval_grant_committed
internal_agent_started internal_agent_usage_recorded internal_agent_completed
internal_agent_failed internal_agent_cancelled internal_agent_interrupted internal_agent_fallback
context_checkpoint_committed context_rehydrated context_compaction_auto_disabled
"""


def test_there_are_the_events_of_the_specification_and_no_others() -> None:
    assert {tag_of(event) for event in EVENT_TYPES} == set(OF_THE_SPECIFICATION.split())


def test_the_union_holds_every_event_that_was_written_down() -> None:
    written = {
        thing
        for thing in vars(events).values()
        if isinstance(thing, type) and issubclass(thing, Event) and thing is not Event
    }
    assert set(EVENT_TYPES) == written
    assert set(get_args(Payload)) == written


@pytest.mark.parametrize("event", EVENT_TYPES, ids=tag_of)
def test_an_event_is_named_like_its_tag_and_says_when_it_comes(event: type[Event]) -> None:
    words = [word.capitalize() for word in tag_of(event).split("_")]
    assert event.__name__ == "".join(words)
    assert event.__struct_config__.frozen
    assert event.__struct_config__.tag_field == "type"
    assert not event.__struct_config__.omit_defaults
    sign = inspect.getdoc(event) or ""
    assert sign != inspect.getdoc(Event)
    order = (
        r"\b(after|before|between|while|first|last|only|once|ends|comes?|runless|inside|where)\b"
    )
    assert re.search(order, sign, re.IGNORECASE), sign


@pytest.mark.parametrize("event", EVENT_TYPES, ids=tag_of)
def test_a_line_has_every_field_also_those_with_defaults(event: type[Event]) -> None:
    for payload in samples(event):
        line = msgspec.to_builtins(stored(payload))
        names = [field.encode_name for field in msgspec.structs.fields(event)]
        assert list(line["payload"]) == ["type", *names]
        assert line["payload"]["type"] == tag_of(event)


def test_the_envelope_is_the_one_of_the_specification() -> None:
    assert list(msgspec.to_builtins(stored(samples(TextDelta)[0]))) == [
        "engine_version",
        "session_id",
        "run_id",
        "seq",
        "timestamp",
        "payload",
    ]
    required = [f.name for f in msgspec.structs.fields(StoredEvent) if f.required]
    assert required == ["session_id", "run_id", "seq", "timestamp", "payload"]


def test_all_but_three_events_must_be_on_disk_before_anybody_acts_on_them() -> None:
    assert {TextDelta, ReasoningDelta, ToolCallProgress} == DELTAS
    for event in EVENT_TYPES:
        assert is_commit(samples(event)[0]) is (event not in DELTAS)


def test_the_enumerations_are_those_of_the_specification() -> None:
    assert len(get_args(ModelErrorKind)) == 20
    assert len(get_args(ApprovalReasonCode)) == 24
    assert len(get_args(DecisionSource)) == 8
    assert len(get_args(FinishReason)) == 11


def test_a_binding_tells_what_a_resumed_run_needs_and_no_secret() -> None:
    binding = FrozenModelBinding(
        model=ModelKey("acme/large"),
        provider_id=ProviderId("acme"),
        adaptor="openai-chat",
        wire_model="large-2",
        endpoint="https://api.example.org/v1",
        auth_ref=SecretRef(provider_id=ProviderId("acme"), field="api_key"),
    )
    assert msgspec.to_builtins(binding)["auth_ref"] == {"provider_id": "acme", "field": "api_key"}
    assert binding.resolved() == events.ResolvedModel(
        model=ModelKey("acme/large"),
        provider_id=ProviderId("acme"),
        adaptor="openai-chat",
        wire_model="large-2",
        endpoint="https://api.example.org/v1",
    )


def test_the_schema_knows_every_event_by_its_tag() -> None:
    schema = event_schema()
    payload = schema["$defs"]["StoredEvent"]["properties"]["payload"]
    assert set(payload["discriminator"]["mapping"]) == {tag_of(event) for event in EVENT_TYPES}
    assert schema == event_schema()


def test_every_line_of_ours_is_valid_under_the_schema() -> None:
    check = Draft202012Validator(event_schema())
    for payload in all_samples():
        check.validate(msgspec.json.decode(encode(stored(payload))))
    assert not check.is_valid({"seq": 1})


def test_the_schema_of_methods_names_each_one_and_holds_all_it_refers_to() -> None:
    schema = method_schema()
    assert set(schema["methods"]) == set(METHODS)
    assert set(schema["notifications"]) == set(NOTIFICATIONS)
    Draft202012Validator.check_schema(schema)
    text = msgspec.json.encode(schema).decode()
    referred = set(re.findall(r'"#/\$defs/([^"]+)"', text))
    assert referred <= set(schema["$defs"])
    assert schema == method_schema()
