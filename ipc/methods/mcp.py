"""MCP servers: list, add, edit, remove, connect, authorize."""

from typing import Any, Literal

from msgspec import Struct

from ipc.content import Count

McpSource = Literal["user_file", "workspace_file", "runtime"]
McpState = Literal[
    "connected",
    "connecting",
    "failed",
    "needs_auth",
    "disabled",
    "lazy_not_connected",
    "disconnected",
]
McpTarget = Literal["user_file", "workspace_file"]


class McpDefinition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a server is reached: `command` or `url`. Its repr shows no environment or header."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    oauth: dict[str, Any] | None = None
    enabled: bool = True
    lazy: bool = False
    timeout_ms: Count = 30_000

    def __repr__(self) -> str:
        return f"McpDefinition({self.url or self.command!r})"


class McpServer(Struct, frozen=True, kw_only=True):
    """A server and how it is."""

    name: str
    definition: McpDefinition
    source: McpSource
    state: McpState
    tool_count: Count = 0
    message: str | None = None
    auth_in_progress: bool | None = None


class McpServerListResult(Struct, frozen=True, kw_only=True):
    """Every server, by name."""

    servers: tuple[McpServer, ...]


class McpServerParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name and what it shall stand for."""

    name: str
    definition: McpDefinition


class McpNameParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which server is meant."""

    name: str


class McpServerResult(Struct, frozen=True, kw_only=True):
    """The server after the change; null when it is gone."""

    server: McpServer | None


class McpSetEnabledParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Switch a server on or off."""

    name: str
    enabled: bool


class McpPersistParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Write a runtime definition into a config file."""

    name: str
    target: McpTarget


class McpAuthParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which server's authorization is meant."""

    server: str


class McpAuthBeginResult(Struct, frozen=True, kw_only=True):
    """Where a person must go."""

    server: McpServer
    authorization_url: str
