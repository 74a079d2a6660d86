"""The mistakes people are most likely to make in config.toml: who does what is said, has it fixed.

Each is a file, what is said of it, and the change that a reader of that sentence would make.
"""

from pathlib import Path

import pytest
from inline_snapshot import snapshot

from cookie.config.files import BadConfig
from cookie.config.settings import Config, load_config

PROVIDER = """\
[providers.mine]
source = "custom"
adaptor = "openai-compatible"
endpoint = "https://api.example.com/v1"
auth = { method = "bearer-api-key-v1", values = { api_key = "${env:MY_KEY}" } }

[providers.mine.models.one]
capabilities = { context_tokens = 128000, output_tokens = 8192 }
"""
ENVIRON = {"MY_KEY": "k"}


def read(tmp_path: Path, text: str, environ: dict[str, str]) -> Config:
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "config.toml").write_text(text)
    return load_config(tmp_path / "data", tmp_path / "ws", environ)


def check(tmp_path: Path, text: str, said: str, old: str, new: str) -> None:
    """`text` is refused with `said`; with `new` in the place of `old` it loads."""
    with pytest.raises(BadConfig) as refused:
        read(tmp_path, text, ENVIRON)
    assert str(refused.value).removeprefix(f"{tmp_path}/data/") == said

    assert text.count(old) == 1
    assert read(tmp_path, text.replace(old, new), ENVIRON).unusable == {}


def test_a_text_without_quotes(tmp_path: Path) -> None:
    check(
        tmp_path,
        PROVIDER.replace('"openai-compatible"', "openai-compatible"),
        snapshot(
            "config.toml:3: not valid TOML: no value: a text needs quotes, "
            "true and false are in lower case"
        ),
        "= openai-compatible",
        '= "openai-compatible"',
    )


def test_a_key_that_is_misspelled(tmp_path: Path) -> None:
    check(
        tmp_path,
        "[tool_output]\nmax_line = 500\n",
        snapshot(
            "config.toml:2: tool_output.max_line: unknown key; did you mean max_lines? "
            "it may have max_lines, max_bytes"
        ),
        "max_line ",
        "max_lines ",
    )


def test_a_key_outside_of_its_table(tmp_path: Path) -> None:
    check(
        tmp_path,
        "max_lines = 500\n\n[model_retry]\nstandard_retries = 1\n",
        snapshot("config.toml:1: max_lines: belongs in [tool_output], below that line"),
        "max_lines",
        "[tool_output]\nmax_lines",
    )


def test_a_number_in_quotes(tmp_path: Path) -> None:
    check(
        tmp_path,
        '[model_retry]\nstandard_retries = "5"\n',
        snapshot(
            "config.toml:2: model_retry.standard_retries: must be a whole number, not a text; "
            "remove the quotes"
        ),
        '"5"',
        "5",
    )


def test_a_duration_that_is_a_number(tmp_path: Path) -> None:
    check(
        tmp_path,
        "[workers]\nidle_exit = 600\n",
        snapshot(
            "config.toml:2: workers.idle_exit: must be a duration "
            'like "500ms", "30s", "10m", "1h" or "2d", at most 7 days, not a number'
        ),
        "600",
        '"10m"',
    )


def test_a_variable_as_a_shell_writes_it(tmp_path: Path) -> None:
    check(
        tmp_path,
        PROVIDER.replace("${env:MY_KEY}", "$MY_KEY"),
        snapshot(
            "config.toml:5: providers.mine.auth.values.api_key: is read as it stands; "
            'write "${env:MY_KEY}"'
        ),
        "$MY_KEY",
        "${env:MY_KEY}",
    )


def test_a_variable_where_none_is_read(tmp_path: Path) -> None:
    check(
        tmp_path,
        PROVIDER.replace("models.one]", 'models.one]\nmodel_id = "${env:MY_MODEL}"'),
        snapshot(
            "config.toml:8: providers.mine.models.one.model_id: ${env:...} is not read here; "
            "it is in endpoint, base_url, setup, api_key, auth values and headers of a provider, "
            "url, env and headers of an MCP server, env of a plugin, and http.proxy"
        ),
        "${env:MY_MODEL}",
        "model-1",
    )


def test_an_api_key_where_a_custom_provider_wants_auth(tmp_path: Path) -> None:
    auth = 'auth = { method = "bearer-api-key-v1", values = { api_key = "${env:MY_KEY}" } }'
    check(
        tmp_path,
        PROVIDER.replace(auth, 'api_key = "${env:MY_KEY}"'),
        snapshot(
            "config.toml:5: providers.mine.api_key: "
            'is written auth = { method = "bearer-api-key-v1", values = { api_key = ... } }'
        ),
        'api_key = "${env:MY_KEY}"',
        auth,
    )


def test_an_endpoint_without_encryption(tmp_path: Path) -> None:
    check(
        tmp_path,
        PROVIDER.replace("https://", "http://"),
        snapshot(
            "config.toml:4: providers.mine.endpoint: must begin with https://; "
            "http:// is for this machine only (127.0.0.1, localhost)"
        ),
        "http://",
        "https://",
    )


def test_a_model_that_does_not_say_what_it_can_do(tmp_path: Path) -> None:
    lacks = "[providers.mine.models.one]\n"
    check(
        tmp_path,
        PROVIDER.partition("capabilities")[0],
        snapshot(
            "config.toml:7: providers.mine.models.one: needs the key capabilities, for example "
            "capabilities = { context_tokens = 128000, output_tokens = 8192 }"
        ),
        lacks,
        f"{lacks}capabilities = {{ context_tokens = 128000, output_tokens = 8192 }}\n",
    )


def test_a_server_of_tools_in_the_wrong_table(tmp_path: Path) -> None:
    check(
        tmp_path,
        '[mcp.github]\ncommand = "npx"\n',
        snapshot(
            "config.toml:1: mcp.github: unknown key; a server is written [mcp.servers.github]"
        ),
        "[mcp.github]",
        "[mcp.servers.github]",
    )


def test_a_schema_of_former_days(tmp_path: Path) -> None:
    check(
        tmp_path,
        "schema_version = 10\n\n[tool_output]\nmax_lines = 5\n",
        snapshot(
            "config.toml:1: schema_version: config files have no schema and no version any more; "
            "remove the line"
        ),
        "schema_version = 10\n",
        "",
    )


def test_a_price_that_is_no_text(tmp_path: Path) -> None:
    check(
        tmp_path,
        f"{PROVIDER}pricing = {{ input_per_million_usd = 1.25 }}\n",
        snapshot(
            "config.toml:9: providers.mine.models.one.pricing.input_per_million_usd: "
            'must be a text in quotes, like "1.25", so that it stays exact'
        ),
        "= 1.25",
        '= "1.25"',
    )


def test_a_variable_that_is_not_set_is_no_mistake_of_the_file_but_said_in_the_same_way(
    tmp_path: Path,
) -> None:
    config = read(tmp_path, PROVIDER, {})

    (lacking,) = config.unusable.values()
    assert str(lacking).removeprefix(f"{tmp_path}/data/") == snapshot(
        "config.toml:5: providers.mine.auth.values.api_key: the environment variable MY_KEY "
        "is not set: set it, or give it a value here with ${env:MY_KEY:-...}"
    )
    assert read(tmp_path, PROVIDER, {"MY_KEY": "k"}).unusable == {}
    assert read(tmp_path, PROVIDER.replace("MY_KEY}", "MY_KEY:-k}"), {}).unusable == {}
