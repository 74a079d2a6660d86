"""The tables of config.toml that most files do not have; imported when one of them is there."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta, Struct, structs

from cookie.config.files import Layer
from cookie.config.reader import Reader
from cookie.config.schema import (
    Filled,
    Natural,
    Positive,
    Whole,
    check_known,
    is_table,
    kind_of,
    record,
)
from cookie.config.secrets import Kept
from ipc.rules import ACTIONS

LOOPBACK: Final = "127.0.0.1"
PORT: Final = 7419
AGENT_MD_BYTES_MAX: Final = 2 << 20
SUMMARY_BYTES_MAX: Final = 2 << 20


class ServerTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server]`: where the daemon's front door is."""

    NAME: ClassVar = "server"

    host: str = LOOPBACK  # nothing else: the door is for this machine only
    port: Annotated[int, Meta(ge=0, le=65_535)] = PORT  # 0 = any that is free
    local_handoff: bool = True  # the token for this user's own processes, without a copy
    metrics: bool = False  # /metrics beside /healthz


class ApprovalTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[approval]`: how long a question waits for a person."""

    NAME: ClassVar = "approval"

    timeout_ms: Positive | None = None  # 30 s for `cookie run`, else for ever


class AgentMdTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agent_md]`: whether root runs read AGENTS.md, and how much of each."""

    NAME: ClassVar = "agent_md"

    enabled: bool = True
    max_bytes: Annotated[int, Meta(ge=1, le=AGENT_MD_BYTES_MAX)] = 32_768


class Trigger(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a context is compacted: at a part of the input budget, or at what must stay free."""

    percent: Annotated[int, Meta(ge=1, le=99)] | None = None
    buffer_tokens: Positive | None = None


class ContextCompactionTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[context_compaction]`: when a long history is summarised, and how much of it stays."""

    NAME: ClassVar = "context_compaction"

    auto: bool = True
    trigger: Trigger = Trigger(percent=70)
    buffer_tokens: Positive | None = None  # an older way to write trigger = { buffer_tokens = N }
    max_summary_bytes: Annotated[int, Meta(ge=1, le=SUMMARY_BYTES_MAX)] = 262_144
    keep_recent_tokens: Natural = 16_384

    def when(self) -> Trigger:
        """The trigger in force, whichever way it was written."""
        older = self.buffer_tokens
        return self.trigger if older is None else Trigger(buffer_tokens=older)


class SessionTitleTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[session_title]`: titles that sessions get by themselves."""

    NAME: ClassVar = "session_title"

    max_chars: Positive = 80
    max_input_messages: Positive = 4
    generate_on_first_turn: bool = True
    fallback_to_input_excerpt: bool = True


class DelegationTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[delegation]`: how deep and how wide a tree of sessions may get."""

    NAME: ClassVar = "delegation"
    DURATIONS: ClassVar = ("idle_eviction_after",)
    MAY_BE_ZERO: ClassVar = ("idle_eviction_after",)

    max_depth: Positive = 3  # below the root
    max_concurrency: Positive = 4  # running in the background, of one root
    max_resident_subagents: Natural = 20
    idle_eviction_after: str = "1h"


class MessagingTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[messaging]`: mail between the agents of one tree."""

    NAME: ClassVar = "messaging"

    enabled: bool = True
    max_hops: Whole = 0  # 0 or less = no limit
    max_body_bytes: Natural = 32_768
    max_pending_per_session: Natural = 32
    max_inflight_per_pair: Natural = 4  # 0 = no limit


class LoopWarningTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[loop_warning]`: whether a model is told that it repeats itself."""

    NAME: ClassVar = "loop_warning"

    enabled: bool = True


class HttpTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[http]`: how requests to models get out, beside HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE."""

    NAME: ClassVar = "http"

    ca_file: Filled | None = None  # a path; relative to the config file's folder
    proxy: str | Kept | None = None  # a secret: such an address often holds a password


class PermissionsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[permissions]`: how rules are applied; the rules themselves are in agent documents."""

    NAME: ClassVar = "permissions"
    GONE: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ACTIONS, "rules are written in agent documents, under permissions; remove it here"
    )

    command_parts: bool = True  # a bash command is also judged by the commands in it


class DebugTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[debug]`: what makes cookie itself easier to look into, and less safe."""

    NAME: ClassVar = "debug"

    dumpable: bool = False  # other processes of this user may read our memory


KINDS: Final[dict[str, type[Struct]]] = {
    ServerTable.NAME: ServerTable,
    ApprovalTable.NAME: ApprovalTable,
    AgentMdTable.NAME: AgentMdTable,
    ContextCompactionTable.NAME: ContextCompactionTable,
    SessionTitleTable.NAME: SessionTitleTable,
    DelegationTable.NAME: DelegationTable,
    MessagingTable.NAME: MessagingTable,
    LoopWarningTable.NAME: LoopWarningTable,
    HttpTable.NAME: HttpTable,
    PermissionsTable.NAME: PermissionsTable,
    DebugTable.NAME: DebugTable,
}


def read_table(reader: Reader, name: str) -> Struct:
    """One of `KINDS` out of the file that is read; raises BadConfig."""
    layer, value = reader.layer, reader.layer.table[name]
    special = _SPECIAL.get(name)
    if special is not None:
        return special(reader, is_table(layer, (name,), value))
    return record(layer, (name,), value, KINDS[name])


def _server(reader: Reader, table: dict[str, Any]) -> Struct:
    found = record(reader.layer, ("server",), table, ServerTable)
    if found.host != LOOPBACK:
        reason = f'must be "{LOOPBACK}": the daemon is for this machine only; remove the line'
        raise reader.layer.wrong(("server", "host"), reason)
    return found


def _compaction(reader: Reader, table: dict[str, Any]) -> Struct:
    layer, key = reader.layer, ("context_compaction",)
    made: dict[str, Any] = {}
    if "trigger" in table:
        made["trigger"] = _trigger(layer, table["trigger"])
    found = record(layer, key, table, ContextCompactionTable, **made)
    if found.buffer_tokens is not None and "trigger" in table:
        raise layer.wrong((*key, "buffer_tokens"), "is the same as trigger; keep one of the two")
    # The older way leaves no trigger, or two would be shown.
    return found if found.buffer_tokens is None else structs.replace(found, trigger=Trigger())


def _trigger(layer: Layer, value: object) -> Trigger:
    key = ("context_compaction", "trigger")
    if not isinstance(value, dict):
        reason = f"must be {{ percent = 70 }} or {{ buffer_tokens = 33000 }}, not {kind_of(value)}"
        raise layer.wrong(key, reason)
    found = record(layer, key, value, Trigger)
    if (found.percent is None) == (found.buffer_tokens is None):
        raise layer.wrong(key, "needs either percent or buffer_tokens, and only one of them")
    return found


def _http(reader: Reader, table: dict[str, Any]) -> Struct:
    layer, key = reader.layer, ("http",)
    check_known(layer, key, table, HttpTable.__struct_fields__)
    made: dict[str, Any] = {}
    if "proxy" in table:
        made["proxy"] = reader.text(
            (*key, "proxy"), table["proxy"], "http", "proxy", secret=True, check=_proxy
        )
    found = record(layer, key, {name: v for name, v in table.items() if name != "proxy"}, HttpTable)
    if found.ca_file is not None:
        made["ca_file"] = reader.path((*key, "ca_file"), found.ca_file)
    return reader.with_fields(found, made)


def _proxy(address: str) -> str | None:
    from urllib.parse import urlsplit  # noqa: PLC0415 - where there is a proxy

    try:
        split = urlsplit(address)
        fine = split.scheme in {"http", "https"} and bool(split.hostname) and split.port != 0
    except ValueError:
        fine = False
    return None if fine else "must be an address like http://proxy.example:3128"


_SPECIAL: Final = {
    "server": _server,
    "context_compaction": _compaction,
    "http": _http,
}
