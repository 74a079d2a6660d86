"""Where each setting comes from, and that none shows a secret."""

from pathlib import Path
from typing import Any

from cookie.config.files import load
from cookie.config.origin import DEFAULT, rows
from cookie.config.settings import load_config

ENVIRON = {"K": "sk-environment"}


def shown(tmp_path: Path, user: str = "", workspace: str = "") -> dict[str, tuple[Any, str]]:
    """Value and origin by key: `u:<line>` in the user's file, `w:<line>` in the workspace's."""
    for folder, text in ((tmp_path / "data", user), (tmp_path / "ws/.cookie-agent", workspace)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(text)
    where = (tmp_path / "data", tmp_path / "ws")
    found = rows(load_config(*where, ENVIRON).settings, load(*where))
    names = {f"{tmp_path}/data/config.toml": "u", f"{tmp_path}/ws/.cookie-agent/config.toml": "w"}
    return {
        ".".join(row.key): (
            row.value,
            DEFAULT if row.path is None else f"{names[str(row.path)]}:{row.line}",
        )
        for row in found
    }


def part(found: dict[str, tuple[Any, str]], start: str) -> dict[str, tuple[Any, str]]:
    return {key: value for key, value in found.items() if key.startswith(start)}


def test_without_a_file_everything_is_a_default(tmp_path: Path) -> None:
    found = shown(tmp_path)

    assert {origin for _, origin in found.values()} == {DEFAULT}
    assert found["server.port"] == (7419, DEFAULT)
    assert found["context_compaction.trigger.percent"] == (70, DEFAULT)
    assert found["delegation.idle_eviction_after"] == ("1h", DEFAULT)
    assert "approval.timeout_ms" not in found  # not set: somebody else decides


def test_a_table_of_the_workspace_takes_the_users_values_away(tmp_path: Path) -> None:
    found = shown(
        tmp_path,
        "[tool_output]\nmax_lines = 1\nmax_bytes = 1\n\n[model_retry]\nstandard_retries = 9\n",
        "[tool_output]\nmax_bytes = 2\n",
    )

    assert part(found, "tool_output") == {
        "tool_output.max_lines": (2000, DEFAULT),
        "tool_output.max_bytes": (2, "w:2"),
    }
    assert found["model_retry.standard_retries"] == (9, "u:6")
    assert found["model_retry.overload_retries"] == (5, DEFAULT)


def test_a_value_that_is_the_default_and_was_written_has_its_line(tmp_path: Path) -> None:
    assert shown(tmp_path, "tool_output.max_lines = 2000\n")["tool_output.max_lines"] == (
        2000,
        "u:1",
    )


def test_providers_and_servers_have_the_file_of_their_own(tmp_path: Path) -> None:
    provider = (
        '[providers.{name}]\nsource = "custom"\nadaptor = "scripted"\n'
        'setup = {{ script = "/t.yaml" }}\n[providers.{name}.models.m]\n'
    )
    found = shown(
        tmp_path,
        provider.format(name="a") + provider.format(name="b") + '[plugins.p]\ncommand = "1"\n',
        provider.format(name="b") + '[mcp.servers.s]\ncommand = "x"\n',
    )

    assert found["providers.a.adaptor"] == ("scripted", "u:3")
    assert found["providers.b.adaptor"] == ("scripted", "w:3")
    assert found["providers.b.setup.script"] == ("/t.yaml", "w:4")
    assert found["providers.b.models.m.enabled"] == (True, DEFAULT)
    assert found["plugins.p.command"] == ("1", "u:12")
    assert found["mcp.servers.s.command"] == ("x", "w:7")


def test_a_secret_is_masked_and_a_variable_stays_as_it_was_written(tmp_path: Path) -> None:
    found = shown(
        tmp_path,
        """\
[providers.p]
source = "custom"
adaptor = "openai-compatible"
endpoint = "https://${env:K}.example.com"
headers = { Authorization = "Bearer sk-1", X-Team = "a", x-key = "${env:K}" }
[providers.p.auth]
method = "bearer-api-key-v1"
values.api_key = "sk-1"
[providers.p.models.m]
capabilities = { context_tokens = 10, output_tokens = 1 }
[mcp.servers.s]
command = "x"
[mcp.servers.s.env]
TOKEN = "sk-1"
OTHER = "${env:K:-sk-1}"
[http]
proxy = "http://me:sk-1@proxy"
""",
    )

    assert found["providers.p.endpoint"] == ("https://${env:K}.example.com", "u:4")
    assert part(found, "providers.p.headers") == {
        "providers.p.headers.authorization": ("***", "u:5"),
        "providers.p.headers.x-team": ("a", "u:5"),
        "providers.p.headers.x-key": ("${env:K}", "u:5"),
    }
    assert found["providers.p.auth.values.api_key"] == ("***", "u:8")
    assert part(found, "mcp.servers.s.env") == {
        "mcp.servers.s.env.TOKEN": ("***", "u:14"),
        "mcp.servers.s.env.OTHER": ("${env:K:-***}", "u:15"),
    }
    assert found["http.proxy"] == ("***", "u:17")
    assert "sk-" not in str(found)


def test_the_older_way_to_write_a_trigger_is_shown_as_it_was_written(tmp_path: Path) -> None:
    found = shown(tmp_path, "[context_compaction]\nbuffer_tokens = 9\n")

    assert found["context_compaction.buffer_tokens"] == (9, "u:2")
    assert not part(found, "context_compaction.trigger")
