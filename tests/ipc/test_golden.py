"""The committed schema and log of events: history grows by additions only and is read for ever.

After an addition the goldens are behind; `COOKIE_GOLDEN=write pytest tests/ipc/test_golden.py`
brings them up to date, and refuses to when something else than an addition was done.
"""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ipc.events import EVENT_TYPES, StoredEvent, tag_of
from ipc.events.codec import Read, encode, read_line
from ipc.schema import event_schema
from tests.fakes.samples import all_samples, required_only, stored

HERE = Path(__file__).parent / "golden"
SCHEMA, LOG, VALUES = (
    HERE / "events.schema.json",
    HERE / "log-v1.jsonl",
    HERE / "log-v1.values.json",
)
WRITE = os.environ.get("COOKIE_GOLDEN") == "write"

Schema = dict[str, Any]
PROSE = {"description", "title", "discriminator"}  # says nothing about what is read


def bare(schema: Any) -> Any:
    """A schema without its prose, so that a better docstring is no change of the format."""
    if isinstance(schema, dict) and not isinstance(schema.get("properties"), dict):
        return {key: bare(value) for key, value in schema.items() if key not in PROSE}
    if isinstance(schema, dict):
        rest = {key: bare(v) for key, v in schema.items() if key not in PROSE | {"properties"}}
        return {**rest, "properties": {k: bare(v) for k, v in schema["properties"].items()}}
    return [bare(part) for part in schema] if isinstance(schema, list) else schema


def breaks(old: Schema, new: Schema) -> list[str]:
    """Everything in `new` that is not an addition to `old`, by place; none = history is safe."""
    found = _differences("", _without(old, "$defs"), _without(new, "$defs"))
    for name, record in old["$defs"].items():
        if name not in new["$defs"]:
            found.append(f"{name}: removed")
        else:
            found += _differences(name, record, new["$defs"][name])
    return found


def _differences(place: str, old: Schema, new: Schema) -> list[str]:
    if "anyOf" in old and "anyOf" in new:
        return _choices(place, old, new)
    if "properties" in old and "properties" in new:
        return _fields(place, old, new)
    if "enum" in new and len(old.get("enum", ())) > 1:  # of one value it is a tag: never two
        gone = [value for value in old["enum"] if value not in new["enum"]]
        found = [f"{place}: {value!r} removed" for value in gone]
        return found + _differences(place, _without(old, "enum"), _without(new, "enum"))
    if "items" in old and "items" in new and isinstance(old["items"], dict):
        found = _differences(f"{place}[]", old["items"], new["items"])
        return found + _differences(place, _without(old, "items"), _without(new, "items"))
    if isinstance(old.get("default"), dict) and isinstance(new.get("default"), dict):
        # The default of a nested record shows that record's own defaults: it grows with it.
        changed = lost(old["default"], new["default"])
        found = [f"{place}: default {where}" for where in changed]
        return found + _differences(place, _without(old, "default"), _without(new, "default"))
    return [] if old == new else [f"{place}: changed"]


def _choices(place: str, old: Schema, new: Schema) -> list[str]:
    """A union may only grow by records: a reader that does not know one skips it by its tag."""
    found = []
    rest = list(new["anyOf"])
    for choice in old["anyOf"]:
        match = next((n for n in rest if not _differences(place, choice, n)), None)
        if match is None:
            found.append(f"{place}: a choice removed or changed")
        else:
            rest.remove(match)
    tagged = sum("$ref" in choice for choice in old["anyOf"]) > 1
    if not all(tagged and "$ref" in choice for choice in rest):
        found.append(f"{place}: a choice added that old readers cannot tell by its tag")
    return found + _differences(place, _without(old, "anyOf"), _without(new, "anyOf"))


def _fields(place: str, old: Schema, new: Schema) -> list[str]:
    found = []
    for name, field in old["properties"].items():
        if name not in new["properties"]:
            found.append(f"{place}.{name}: removed")
        else:
            found += _differences(f"{place}.{name}", field, new["properties"][name])
    added = set(new["properties"]) - set(old["properties"])
    was, now = set(old.get("required", ())), set(new.get("required", ()))
    found += [f"{place}.{name}: required now" for name in sorted(now - was)]
    found += [f"{place}.{name}: not required any more" for name in sorted(was - now)]
    if old.get("additionalProperties") is False:
        found += [f"{place}.{name}: old readers refuse it" for name in sorted(added)]
    parts = ("properties", "required")
    return found + _differences(place, _without(old, *parts), _without(new, *parts))


def _without(schema: Schema, *keys: str) -> Schema:
    return {key: value for key, value in schema.items() if key not in keys}


def golden_schema() -> Schema:
    schema: Schema = msgspec.json.decode(SCHEMA.read_bytes())
    return schema


def pretty(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def test_the_schema_of_events_only_ever_grew() -> None:
    current = bare(event_schema())
    if not SCHEMA.exists() and WRITE:
        SCHEMA.write_bytes(pretty(current))

    assert breaks(golden_schema(), current) == []

    if WRITE:
        SCHEMA.write_bytes(pretty(current))
    assert golden_schema() == current, "additions only; see this module's docstring"


def _rename(schema: Schema, record: str, old: str, new: str) -> None:
    fields = schema["$defs"][record]["properties"]
    fields[new] = fields.pop(old)


def _mutate(change: Callable[[Schema], None]) -> Schema:
    """The golden schema with one change; the records are at hand as `$defs`."""
    planted = copy.deepcopy(golden_schema())
    change(planted)
    return planted


def _payload(schema: Schema) -> list[Schema]:
    choices: list[Schema] = schema["$defs"]["StoredEvent"]["properties"]["payload"]["anyOf"]
    return choices


def _add_tag(schema: Schema) -> None:
    schema["$defs"]["Sneezed"] = {
        "type": "object",
        "properties": {"type": {"enum": ["sneezed"]}, "how": {"type": "string"}},
        "required": ["type", "how"],
    }
    _payload(schema).append({"$ref": "#/$defs/Sneezed"})


def _add_optional(schema: Schema) -> None:
    schema["$defs"]["RunCompleted"]["properties"]["mood"] = {"type": "string", "default": "good"}


def _add_optional_in_a_nested_record(schema: Schema) -> None:
    schema["$defs"]["Truncation"]["properties"]["mood"] = {
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "default": None,
    }


def _widen_enum(schema: Schema) -> None:
    schema["$defs"]["ModelErrorSummary"]["properties"]["kind"]["enum"].append("moon_phase")


def _add_optional_to_a_record_that_is_a_default(schema: Schema) -> None:
    schema["$defs"]["ModelCapabilities"]["properties"]["mood"] = {"type": "string", "default": ""}
    schema["$defs"]["FrozenModelBinding"]["properties"]["capabilities"]["default"]["mood"] = ""


def _add_display_block(schema: Schema) -> None:
    schema["$defs"]["Hologram"] = {"type": "object", "properties": {"kind": {"enum": ["hologram"]}}}
    display = schema["$defs"]["ToolResult"]["properties"]["display"]
    display["items"]["anyOf"].append({"$ref": "#/$defs/Hologram"})


@pytest.mark.parametrize(
    "change",
    [
        _add_tag,
        _add_optional,
        _add_optional_in_a_nested_record,
        _widen_enum,
        _add_optional_to_a_record_that_is_a_default,
        _add_display_block,
    ],
)
def test_an_addition_is_let_through(change: Callable[[Schema], None]) -> None:
    planted = _mutate(change)
    assert planted != golden_schema()
    assert breaks(golden_schema(), planted) == []


def _drop_event(schema: Schema) -> None:
    _payload(schema).remove({"$ref": "#/$defs/RunFailed"})
    del schema["$defs"]["RunFailed"]


def _drop_event_from_the_union_only(schema: Schema) -> None:
    _payload(schema).remove({"$ref": "#/$defs/RunFailed"})


def _rename_tag(schema: Schema) -> None:
    schema["$defs"]["RunFailed"]["properties"]["type"]["enum"] = ["run_broke"]


def _second_tag(schema: Schema) -> None:
    schema["$defs"]["RunFailed"]["properties"]["type"]["enum"].append("run_broke")


def _second_tag_of_a_block(schema: Schema) -> None:
    schema["$defs"]["DiffDisplay"]["properties"]["kind"]["enum"].append("patch")


def _drop_optional(schema: Schema) -> None:
    del schema["$defs"]["RunCompleted"]["properties"]["final_text"]


def _drop_required(schema: Schema) -> None:
    del schema["$defs"]["TextDelta"]["properties"]["text"]
    schema["$defs"]["TextDelta"]["required"].remove("text")


def _rename_required(schema: Schema) -> None:
    _rename(schema, "TextDelta", "text", "words")
    schema["$defs"]["TextDelta"]["required"] = ["type", "attempt_id", "words"]


def _rename_optional(schema: Schema) -> None:
    _rename(schema, "RunCompleted", "final_text", "last_words")


def _change_type(schema: Schema) -> None:
    schema["$defs"]["TextDelta"]["properties"]["text"] = {"type": "integer"}


def _change_type_of_items(schema: Schema) -> None:
    schema["$defs"]["SkillLoaded"]["properties"]["supporting_files"]["items"] = {"type": "integer"}


def _change_record(schema: Schema) -> None:
    schema["$defs"]["RunStarted"]["properties"]["agent"]["$ref"] = "#/$defs/RunSelection"


def _make_nullable(schema: Schema) -> None:
    fields = schema["$defs"]["TextDelta"]["properties"]
    fields["text"] = {"anyOf": [{"type": "string"}, {"type": "null"}]}


def _no_longer_nullable(schema: Schema) -> None:
    fields = schema["$defs"]["RunCompleted"]["properties"]
    fields["final_text"] = {"type": "string", "default": None}


def _widen_a_plain_union(schema: Schema) -> None:
    fields = schema["$defs"]["RunCompleted"]["properties"]
    fields["final_text"]["anyOf"].append({"type": "integer"})


def _narrow_bound(schema: Schema) -> None:
    schema["$defs"]["StoredEvent"]["properties"]["seq"]["maximum"] = 1000


def _new_required(schema: Schema) -> None:
    schema["$defs"]["RunCompleted"]["properties"]["mood"] = {"type": "string"}
    schema["$defs"]["RunCompleted"]["required"].append("mood")


def _new_required_in_a_nested_record(schema: Schema) -> None:
    schema["$defs"]["Truncation"]["properties"]["mood"] = {"type": "string"}
    schema["$defs"]["Truncation"]["required"].append("mood")


def _optional_becomes_required(schema: Schema) -> None:
    schema["$defs"]["RunCompleted"]["required"].append("final_text")


def _required_becomes_optional(schema: Schema) -> None:
    schema["$defs"]["TextDelta"]["required"].remove("text")


def _change_default(schema: Schema) -> None:
    schema["$defs"]["AgentSnapshot"]["properties"]["max_output_tokens"]["default"] = 5


def _change_default_of_a_nested_record(schema: Schema) -> None:
    fields = schema["$defs"]["FrozenModelBinding"]["properties"]
    fields["capabilities"]["default"]["tools"] = False


def _lose_default(schema: Schema) -> None:
    del schema["$defs"]["AgentSnapshot"]["properties"]["max_output_tokens"]["default"]


def _narrow_enum(schema: Schema) -> None:
    schema["$defs"]["ModelErrorSummary"]["properties"]["kind"]["enum"].remove("timeout")


def _new_envelope_key(schema: Schema) -> None:
    schema["$defs"]["StoredEvent"]["properties"]["crc"] = {"type": "integer", "default": 0}


def _open_envelope(schema: Schema) -> None:
    del schema["$defs"]["StoredEvent"]["additionalProperties"]


@pytest.mark.parametrize(
    "change",
    [
        _drop_event,
        _drop_event_from_the_union_only,
        _rename_tag,
        _second_tag,
        _second_tag_of_a_block,
        _drop_optional,
        _drop_required,
        _rename_required,
        _rename_optional,
        _change_type,
        _change_type_of_items,
        _change_record,
        _make_nullable,
        _no_longer_nullable,
        _widen_a_plain_union,
        _narrow_bound,
        _new_required,
        _new_required_in_a_nested_record,
        _optional_becomes_required,
        _required_becomes_optional,
        _change_default,
        _change_default_of_a_nested_record,
        _lose_default,
        _narrow_enum,
        _new_envelope_key,
        _open_envelope,
    ],
)
def test_anything_else_than_an_addition_is_caught(change: Callable[[Schema], None]) -> None:
    planted = _mutate(change)
    assert planted != golden_schema()
    assert breaks(golden_schema(), planted) != []


def value_of(event: StoredEvent) -> dict[str, Any]:
    """What was decoded, defaults included, as plain data."""
    plain: dict[str, Any] = msgspec.to_builtins(event)
    return plain


def lost(old: Any, new: Any, place: str = "$") -> list[str]:
    """What of `old` is not in `new`; fields that `new` has beside it are no loss."""
    if isinstance(old, dict) and isinstance(new, dict):
        missing = [f"{place}.{key}" for key in old if key not in new]
        both = [key for key in old if key in new]
        return missing + [gone for k in both for gone in lost(old[k], new[k], f"{place}.{k}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [gone for n, o in enumerate(old) for gone in lost(o, new[n], f"{place}[{n}]")]
    return [] if old == new and type(old) is type(new) else [place]


def write_log() -> None:
    """Add the samples of events the log does not know yet; what is there is never rewritten."""
    lines = LOG.read_bytes().splitlines() if LOG.exists() else []
    known = {msgspec.json.decode(line)["payload"]["type"] for line in lines}
    fresh = [sample for sample in all_samples() if tag_of(type(sample)) not in known]
    for sample in fresh:
        lines.append(encode(stored(sample, len(lines) + 1)))
        older = msgspec.json.encode(required_only(stored(sample, len(lines) + 1)))
        lines.append(older)  # its defaults are history, too
    values = msgspec.json.decode(VALUES.read_bytes()) if VALUES.exists() else []
    for line in lines[len(values) :]:
        answer = read_line(line)
        assert isinstance(answer, Read)
        values.append(value_of(answer.event))
    LOG.write_bytes(b"".join(line + b"\n" for line in lines))
    VALUES.write_bytes(b"[\n" + b",\n".join(map(msgspec.json.encode, values)) + b"\n]\n")


def test_the_first_log_decodes_for_ever_to_the_same_values() -> None:
    if WRITE:
        write_log()
    lines = LOG.read_bytes().split(b"\n")[:-1]
    values = msgspec.json.decode(VALUES.read_bytes())
    assert len(lines) == len(values)

    for line, value in zip(lines, values, strict=True):
        answer = read_line(line)

        assert isinstance(answer, Read), answer
        assert answer.degraded == ()
        assert lost(value, msgspec.json.decode(msgspec.json.encode(value_of(answer.event)))) == []


def test_the_first_log_has_every_event() -> None:
    tags = {msgspec.json.decode(line)["payload"]["type"] for line in LOG.read_bytes().splitlines()}
    assert tags == {tag_of(event) for event in EVENT_TYPES}


def test_a_value_that_changed_or_went_missing_is_a_loss() -> None:
    old = {"a": 1, "b": [{"c": None}]}
    assert lost(old, {"a": 1, "b": [{"c": None, "d": 2}], "e": 3}) == []
    assert lost(old, {"a": 1.0, "b": [{"c": None}]}) == ["$.a"]
    assert lost(old, {"a": 1, "b": [{}]}) == ["$.b[0].c"]
    assert lost(old, {"a": 1, "b": []}) == ["$.b"]
