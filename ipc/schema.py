"""JSON Schemas of what two processes agree on: the stored events, the methods, the orders."""

from collections.abc import Iterable
from typing import Any, Final, get_args

import msgspec
from msgspec import Struct

from ipc.events import StoredEvent
from ipc.methods.table import METHODS, NOTIFICATIONS
from ipc.orders import Birth, Down, Up

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REF: Final = "#/$defs/{name}"


def event_schema() -> dict[str, Any]:
    """The schema of one line of an event log; equal calls give equal documents."""
    (envelope,), records = msgspec.json.schema_components((StoredEvent,), ref_template=_REF)
    return _plain({"$schema": DIALECT, "title": "cookie events", **envelope, "$defs": records})


def method_schema() -> dict[str, Any]:
    """The schemas of all requests, answers and notifications, by method name.

    `methods` has for each name `params`, `result`, the fault codes it may answer with and
    whether it is ours, beside protocol 20; `notifications` has the `params` of each name.
    """
    records: dict[str, Any] = {}
    methods = {
        name: {
            "params": _of([method.params], records),
            "result": _of([method.result], records),
            "errors": list(method.errors),
            "ours": method.ours,
        }
        for name, method in sorted(METHODS.items())
    }
    notifications = {
        name: {"params": _of(kinds, records)} for name, kinds in sorted(NOTIFICATIONS.items())
    }
    return _plain(
        {
            "$schema": DIALECT,
            "title": "cookie methods",
            "methods": methods,
            "notifications": notifications,
            "$defs": records,
        }
    )


def order_schema() -> dict[str, Any]:
    """The heads that go `down` and `up` a link, and the `birth`; an array is a head's fields."""
    records: dict[str, Any] = {}
    schema = {
        "down": [_of([kind], records) for kind in get_args(Down)],
        "up": [_of([kind], records) for kind in get_args(Up)],
        "birth": _of([Birth], records),
        "$defs": records,
    }
    return _plain({"$schema": DIALECT, "title": "cookie orders", **schema})


def _of(kinds: Iterable[type[Struct]], records: dict[str, Any]) -> dict[str, Any]:
    """The schema of one of `kinds`; what it refers to is added to `records`."""
    schemas, parts = msgspec.json.schema_components(tuple(kinds), ref_template=_REF)
    records.update(parts)
    return schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as JSON alone: records by name, defaults as they are written in a line."""
    schema["$defs"] = dict(sorted(schema["$defs"].items()))
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema))
    return plain
