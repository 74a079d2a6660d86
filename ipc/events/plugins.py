"""Events that plugins add, and what went wrong with plugins."""

from typing import Any, ClassVar, Literal

from ipc.content import Count
from ipc.events.base import Event

PLUGIN_EVENT_NAME_CHARS_MAX = 128
PLUGIN_EVENT_PAYLOAD_BYTES_MAX = 256 * 1024
PLUGIN_EVENT_BYTES_MAX = 272 * 1024

PluginDiagnosticKind = Literal[
    "event_drop",
    "interception_timeout",
    "interception_crash",
    "hook_blocked",
    "oversized_event",
    "invalid_modification",
    "unsupported_capability",
    "context_mismatch",
    "rate_limited",
    "recovery_failed",
]


class PluginEventAdded(Event, frozen=True, kw_only=True, tag="plugin_event_added"):
    """A plugin left a note in the log. Runless, at any time; has no meaning to the history."""

    chars_max: ClassVar[dict[str, int]] = {"name": PLUGIN_EVENT_NAME_CHARS_MAX}

    plugin: str
    name: str
    payload: Any


class PluginDiagnostic(Event, frozen=True, kw_only=True, tag="plugin_diagnostic"):
    """Something of a plugin went wrong `count` times. At any time, inside a run or runless."""

    plugin: str
    kind: PluginDiagnosticKind
    message: str
    count: Count
