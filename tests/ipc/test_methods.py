import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from ipc.faults import RPC_CODES
from ipc.ids import ClientId, ProviderId, Revision
from ipc.methods.mcp import McpDefinition
from ipc.methods.notify import (
    NOTIFY_PREFIX,
    NOTIFY_SUFFIX,
    NoEvent,
    event_of,
    is_event,
    notification,
)
from ipc.methods.runs import EventsSubscribeResult, RunCancelParams, SubscriptionEvent
from ipc.methods.runtime import ProviderConnectParams
from ipc.methods.sessions import SessionCreateParams
from ipc.methods.table import EXTENSIONS, METHODS, NOTIFICATIONS, PROTOCOL_VERSION
from ipc.schema import method_schema
from tests.ipc.test_golden import bare, pretty
from tests.ipc.test_golden import breaks as record_breaks

GOLDEN = Path(__file__).parent / "golden" / "methods.schema.json"
WRITE = os.environ.get("COOKIE_GOLDEN") == "write"

# spec 1.3: name, params without a "?", result; "?" marks what may be left out.
SPEC = """
handshake: protocol_version -> protocol_version
runtime.snapshot.get: -> snapshot
provider.connect: provider_id expected_catalog_revision auth_method client_connect_id
    setup? credentials? -> durable_connection effective_auth_source replayed runtime
provider.disconnect: provider_id client_request_id expected_connection_generation?
    expected_provider_state_revision expected_runtime_revision
    -> disconnected durable_receipt effective_auth_state provider_id replayed runtime
session.create: selection cwd? env? -> session
session.list: cwd_identity? -> sessions
session.get: session_id -> session
session.children: session_id -> children
session.tree: session_id -> session children
session.resume: session_id -> session
session.rename: session_id client_rename_id change -> session client_rename_id
session.usage: session_id -> usage
session.tree_usage: session_id -> session_id session_count usage
agent.usage: agent -> usage
usage.global: -> usage
session.set_permission_mode: session_id mode ->
session.permission.get: session_id -> current_mode permissions
session.permission.set: session_id action resource effect -> permissions
session.permission.clear: session_id action resource -> permissions
session.compact: session_id focus -> compacted cancellation_reason
session.revert: session_id through_seq -> session instructions_override
session.fork: session_id through_seq -> session_id
session.goal.get: session_id -> goal
session.goal.set: session_id objective selection? -> goal
session.goal.lifecycle: session_id goal_id expected_revision action selection? -> goal
session.producers: session_id -> producers plugin_recovery
skills.list: session_id -> skills
skills.get: session_id name args? -> skill rendered
run.start: session_id client_run_id selection input reset_fallback? -> run_id
run.steer: run_id input -> accepted handled_reason
run.recall_steer: run_id -> recalled
run.cancel: run_id reason? -> cancelled
run.tool_stdin: run_id call_id data? eof -> accepted
events.subscribe: session_id cursor? limit? -> events
approval.list: root_session_id status? -> approvals tree_grants
approval.respond: session_id approval_id request_revision operation_fingerprint
    client_response_id decision feedback? -> approval client_response_id
mcp.server.list: -> servers
mcp.server.add: name definition -> server
mcp.server.edit: name definition -> server
mcp.server.remove: name -> server
mcp.server.reconnect: name -> server
mcp.server.set_enabled: name enabled -> server
mcp.server.persist: name target -> server
mcp.auth.begin: server -> server authorization_url
mcp.auth.cancel: server -> server
session.stop: session_id mode -> stopped
session.delete: session_id -> deleted
session.why: session_id -> waits
approval.inbox: -> approvals
permission.rehearse: session_id? cwd? rule -> counts examples
usage.explain: session_id -> misses
budget.get: session_id -> budgets
budget.answer: session_id decision limit? -> budgets
workers.list: -> trees
"""
OURS = {
    "session.stop",
    "session.delete",
    "session.why",
    "approval.inbox",
    "permission.rehearse",
    "usage.explain",
    "budget.get",
    "budget.answer",
    "workers.list",
}


def spec() -> dict[str, tuple[set[str], set[str]]]:
    joined = SPEC.replace("\n    ", " ")
    rows = (line.partition(": ") for line in joined.strip().splitlines())
    sides = ((name, rest.partition("->")) for name, _, rest in rows)
    return {name: (set(left.split()), set(right.split())) for name, (left, _, right) in sides}


def asked(struct: type[Struct]) -> set[str]:
    """The fields, an optional one with a "?"."""
    fields = msgspec.structs.fields(struct)
    return {field.encode_name + ("" if field.required else "?") for field in fields}


def test_the_table_has_exactly_the_methods_of_the_spec() -> None:
    assert set(METHODS) == set(spec())
    assert {name for name, method in METHODS.items() if method.ours} == OURS
    assert (PROTOCOL_VERSION, EXTENSIONS) == (20, ("cookie.py/1",))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_fields_of_the_spec(name: str) -> None:
    params, result = spec()[name]
    assert asked(METHODS[name].params) == params
    if name != "handshake":  # its result gains what is ours
        assert {field.rstrip("?") for field in asked(METHODS[name].result)} == result


@pytest.mark.parametrize("name", METHODS)
def test_params_refuse_what_they_do_not_know_and_results_pass_it_over(name: str) -> None:
    method = METHODS[name]
    assert method.params.__struct_config__.forbid_unknown_fields
    assert not method.result.__struct_config__.forbid_unknown_fields
    assert method.params.__struct_config__.frozen
    assert method.result.__struct_config__.frozen


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_routed_by_a_field_that_it_requires(name: str) -> None:
    method = METHODS[name]
    if method.routed_by != "daemon":
        assert method.routed_by in asked(method.params)


@pytest.mark.parametrize("name", METHODS)
def test_every_fault_code_of_a_method_has_a_number(name: str) -> None:
    assert set(METHODS[name].errors) <= set(RPC_CODES)


def test_requests_that_must_have_an_id() -> None:
    needing = {name for name, method in METHODS.items() if method.needs_id}
    assert needing == {"runtime.snapshot.get", "provider.connect", "provider.disconnect"}


def test_the_notifications_are_those_of_the_spec() -> None:
    assert set(NOTIFICATIONS) == {
        "runtime.changed",
        "events.subscription",
        "events.plugin",
        "events.tool_output_snapshot",
        "events.tool_output_delta",
        "events.tool_output_gap",
        "trees.changed",
    }


def test_a_cancel_may_say_why() -> None:
    plain = msgspec.json.decode(b'{"run_id":"r"}', type=RunCancelParams)
    told = msgspec.json.decode(b'{"run_id":"r","reason":"timeout"}', type=RunCancelParams)
    assert (plain.reason, told.reason) == (None, "timeout")


# ---- the notification of an event

LINES = [
    b'{"seq":1}',
    b'{"text":"}}","more":"\\"}}"}',
    '{"text":"\u2028é\u0085"}'.encode(),
    b'{ "spaces" : 1.50, "order" : {"b":1,"a":2} }',
]


@pytest.mark.parametrize("line", LINES)
def test_an_event_is_cut_out_of_its_notification_byte_for_byte(line: bytes) -> None:
    text = notification(line)
    assert event_of(text) == line
    assert is_event(text)
    assert msgspec.json.decode(text) == {
        "jsonrpc": "2.0",
        "method": "events.subscription",
        "params": {"type": "event", "event": msgspec.json.decode(line)},
    }


@pytest.mark.parametrize("line", LINES)
def test_a_notification_is_what_the_structs_say(line: bytes) -> None:
    params = msgspec.json.encode(SubscriptionEvent(event=msgspec.Raw(line)))
    text = b'{"jsonrpc":"2.0","method":"events.subscription","params":' + params + b"}"
    assert text == notification(line)


@pytest.mark.parametrize("text", [b"", b"{}", NOTIFY_PREFIX, NOTIFY_SUFFIX, b"x" + NOTIFY_PREFIX])
def test_what_is_no_notification_of_an_event_is_not_cut(text: bytes) -> None:
    assert not is_event(text)
    with pytest.raises(NoEvent):
        event_of(text)


def test_replayed_events_are_passed_on_as_they_are() -> None:
    result = EventsSubscribeResult(events=tuple(map(msgspec.Raw, LINES)))
    assert msgspec.json.encode(result) == b'{"events":[' + b",".join(LINES) + b"]}"


# ---- secrets


def test_credentials_and_environments_are_in_no_repr() -> None:
    secret = {"api_key": "hunter2"}
    connect = ProviderConnectParams(
        provider_id=ProviderId("acme"),
        expected_catalog_revision=Revision("sha256:0"),
        auth_method="bearer-api-key-v1",
        client_connect_id=ClientId("c"),
        credentials=secret,
    )
    create = msgspec.json.decode(
        b'{"selection":{"agent":"a","model":{"model":"p/m"}},"env":{"K":"hunter2"}}',
        type=SessionCreateParams,
    )
    shown = repr((connect, create, McpDefinition(command="x", env=secret, headers=secret)))
    assert "hunter2" not in shown


# ---- the golden


def opened(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as it is for who asks: a client uses a new param only after the handshake."""
    for record in schema["$defs"].values():
        record.pop("additionalProperties", None)
    return schema


def breaks(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What in `new` is not an addition to `old`."""
    found = record_breaks({"$defs": opened(old)["$defs"]}, {"$defs": opened(new)["$defs"]})
    for kind in ("methods", "notifications"):
        for name, was in old[kind].items():
            now = new[kind].get(name)
            if now is None:
                found.append(f"{name}: removed")
                continue
            gone = set(was.get("errors", ())) - set(now.get("errors", ()))
            same = {key: value for key, value in was.items() if key != "errors"}
            if gone or any(now.get(key) != value for key, value in same.items()):
                found.append(f"{name}: changed")
    return found


def golden() -> dict[str, Any]:
    schema: dict[str, Any] = msgspec.json.decode(GOLDEN.read_bytes())
    return schema


def test_the_methods_only_ever_grew() -> None:
    current = bare(method_schema())
    if not GOLDEN.exists() and WRITE:
        GOLDEN.write_bytes(pretty(current))

    assert breaks(golden(), bare(method_schema())) == []

    if WRITE:
        GOLDEN.write_bytes(pretty(current))
    assert golden() == current, "additions only: COOKIE_GOLDEN=write brings it up to date"


def test_additions_to_methods_pass_and_changes_are_caught() -> None:
    more = golden()
    more["methods"]["session.sneeze"] = {"params": {}, "result": {}, "errors": []}
    more["methods"]["run.start"]["errors"].append("too_tired")
    more["$defs"]["RunStartParams"]["properties"]["mood"] = {"type": "string", "default": ""}
    assert breaks(golden(), more) == []

    gone, fewer, other, record = golden(), golden(), golden(), golden()
    del gone["methods"]["run.start"]
    fewer["methods"]["run.start"]["errors"].remove("idempotency_conflict")
    other["methods"]["run.start"]["params"] = {"$ref": "#/$defs/OfRun"}
    record["$defs"]["RunStartParams"]["properties"]["client_run_id"] = {"type": "integer"}
    assert [breaks(golden(), new) for new in (gone, fewer, other, record)] == [
        ["run.start: removed"],
        ["run.start: changed"],
        ["run.start: changed"],
        ["RunStartParams.client_run_id: changed"],
    ]
