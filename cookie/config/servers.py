"""`[mcp.servers.<name>]` and `[plugins.<name>]`: processes and servers that bring tools along."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from msgspec import Struct

from cookie.config.files import KeyPath
from cookie.config.headers import read_headers
from cookie.config.reader import Reader
from cookie.config.schema import (
    Positive,
    a_text,
    check_known,
    is_plain,
    is_table,
    kind_of,
    needs,
    record,
)
from cookie.config.secrets import Kept

NAME_BYTES_MAX: Final = 128


class McpOAuth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who we are to an authorization server, where that was settled in advance."""

    client_id: str | None = None
    client_secret: Kept | None = None
    client_metadata_url: str | None = None
    scopes: tuple[str, ...] = ()


class McpServerTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server of tools: `command` for a process of ours, `url` for one that is reached."""

    GONE: ClassVar[Mapping[str, str]] = {
        "type": "follows from command or url; remove it",
        "transport": "follows from command or url; remove it",
        "disabled": "is written enabled = false",
        "timeout": "is written timeout_ms, in milliseconds",
    }

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str | Kept] = {}
    cwd: str | None = None
    url: str | Kept | None = None
    headers: dict[str, str | Kept] = {}
    oauth: bool | McpOAuth | None = None  # None = when the server asks for it
    enabled: bool = True
    lazy: bool = False
    timeout_ms: Positive = 30_000


class PluginTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plugin: a process with nothing in its environment but `env`."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str | Kept] = {}
    cwd: str | None = None
    enabled: bool = True
    interception_timeout_ms: Positive = 2000
    startup_timeout_ms: Positive = 10_000
    shutdown_grace_ms: Positive = 3000
    tool_timeout_ms: Positive = 30_000
    producer_messaging: bool = False


_PROCESS: Final = ("args", "env", "cwd")  # what only a server with a command has
_REMOTE: Final = ("headers", "oauth")


def read_server(reader: Reader, name: str, value: object) -> McpServerTable:
    """One MCP server of the file; raises BadConfig."""
    layer, key = reader.layer, ("mcp", "servers", name)
    _check_name(reader, key)
    table = is_table(layer, key, value)
    check_known(layer, key, table, McpServerTable.__struct_fields__, McpServerTable.GONE)
    if ("command" in table) == ("url" in table):
        example = 'command = "npx", or url = "https://mcp.example.com/mcp"'
        raise layer.wrong(key, f"needs either command or url, for example {example}")
    for odd in _REMOTE if "command" in table else _PROCESS:
        if odd in table:
            other = "url" if "command" in table else "command"
            raise layer.wrong((*key, odd), f"belongs to a server with {other}; remove it")
    owner = f"mcp:{name}"
    made = _process(reader, key, table, owner)
    if "url" in table:
        # An address may hold a key as a part of its query, so the whole of it is a secret then.
        hidden = isinstance(table["url"], str) and bool({"?", "@"} & set(table["url"]))
        made["url"] = reader.text(
            (*key, "url"), table["url"], owner, "url", secret=hidden, check=_url
        )
    if "headers" in table:
        here = (*key, "headers")
        made["headers"] = read_headers(
            reader, here, table["headers"], owner, "headers", secret=True
        )
    oauth = table.get("oauth", True)
    if not isinstance(oauth, bool | dict):
        reason = f"must be true or false, or a table, not {kind_of(oauth)}"
        raise layer.wrong((*key, "oauth"), reason)
    if isinstance(oauth, dict):
        made["oauth"] = _oauth(reader, (*key, "oauth"), table["oauth"], owner)
    return record(layer, key, table, McpServerTable, **made)


def read_plugin(reader: Reader, name: str, value: object) -> PluginTable:
    """One plugin of the file; raises BadConfig."""
    layer, key = reader.layer, ("plugins", name)
    _check_name(reader, key)
    table = is_table(layer, key, value)
    check_known(layer, key, table, PluginTable.__struct_fields__)
    if "command" not in table:
        needs(layer, key, "command", 'command = "/opt/plugins/example"')
    made = _process(reader, key, table, f"plugin:{name}")
    return record(layer, key, table, PluginTable, **made)


def _check_name(reader: Reader, key: KeyPath) -> None:
    name = key[-1]
    if not name or not is_plain(name) or len(name.encode()) > NAME_BYTES_MAX:
        raise reader.layer.wrong(key, f"is no name: printable, at most {NAME_BYTES_MAX} bytes")


def _process(reader: Reader, key: KeyPath, table: dict[str, Any], owner: str) -> dict[str, Any]:
    layer = reader.layer
    made: dict[str, Any] = {
        name: a_text(layer, (*key, name), table[name])
        for name in ("command", "cwd")
        if name in table
    }
    if "env" in table:
        here = (*key, "env")
        made["env"] = {
            name: _variable(reader, (*here, name), text, owner)
            for name, text in is_table(layer, here, table["env"]).items()
        }
    return made


def _variable(reader: Reader, key: KeyPath, value: object, owner: str) -> str | Kept:
    name = key[-1]
    if not name or "=" in name or not is_plain(name):
        raise reader.layer.wrong(key, "is no name of a variable")
    return reader.text(key, value, owner, f"env.{name}", secret=True, empty=True)


def _oauth(reader: Reader, key: KeyPath, table: dict[str, Any], owner: str) -> McpOAuth:
    layer = reader.layer
    check_known(layer, key, table, McpOAuth.__struct_fields__)
    made: dict[str, Any] = {
        name: a_text(layer, (*key, name), table[name])
        for name in ("client_id", "client_metadata_url")
        if name in table
    }
    if "client_secret" in table:
        here = (*key, "client_secret")
        if "client_id" not in table:
            raise layer.wrong(here, "needs a client_id beside it")
        made["client_secret"] = reader.text(
            here, table["client_secret"], owner, "oauth.client_secret", secret=True
        )
    found = record(layer, key, table, McpOAuth, **made)
    address = found.client_metadata_url
    if address is not None and not _is_document(address):
        raise layer.wrong((*key, "client_metadata_url"), "must be an https:// address with a path")
    if any(not scope.strip() for scope in found.scopes):
        raise layer.wrong((*key, "scopes"), "must not hold an empty text")
    return found


def _url(address: str) -> str | None:
    from urllib.parse import urlsplit  # noqa: PLC0415 - where there is an address

    try:
        split = urlsplit(address)
        fine = split.scheme in {"http", "https"} and bool(split.hostname) and split.port != 0
    except ValueError:
        fine = False
    return None if fine else 'must be a whole address, like "https://mcp.example.com/mcp"'


def _is_document(address: str) -> bool:
    from urllib.parse import urlsplit  # noqa: PLC0415

    try:
        split = urlsplit(address)
    except ValueError:
        return False
    return split.scheme == "https" and bool(split.hostname) and split.path not in {"", "/"}
