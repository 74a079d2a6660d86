"""Each limit of spec 1.20 and of its tables: what is at it loads, what is one past it does not."""

from pathlib import Path
from typing import Any

import pytest

from cookie.config import files, headers, model_parts
from cookie.config.files import BadConfig
from cookie.config.settings import Config, load_config

SAFE = 2**53 - 1
KEYED = 'auth = { method = "bearer-api-key-v1", values = { api_key = "${env:K}" } }'
CUSTOM = f"""
[providers.p]
source = "custom"
adaptor = "openai-compatible"
endpoint = "https://api.example.com/v1"
{KEYED}
"""
MODEL = """
[providers.p.models.m]
capabilities = { context_tokens = 1000, output_tokens = 100 }
"""


def read(tmp_path: Path, text: str) -> Config:
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "config.toml").write_text(text)
    return load_config(tmp_path / "data", tmp_path / "ws", {"K": "k"})


def complaint(tmp_path: Path, text: str) -> str:
    with pytest.raises(BadConfig) as refused:
        read(tmp_path, text)
    return str(refused.value).removeprefix(f"{tmp_path}/data/")


def of(table: str, key: str, value: Any) -> str:
    return f"[{table}]\n{key} = {value}\n"


def number(table: str, key: str, low: int | None, high: int | None) -> list[Any]:
    """A row at each end of a range: what fits, and what is one past it."""
    name = f"{table}.{key}"
    rows = []
    if low is not None:
        rows.append(
            pytest.param(of(table, key, low), of(table, key, low - 1), name, id=f"{name} low")
        )
    if high is not None:
        rows.append(
            pytest.param(of(table, key, high), of(table, key, high + 1), name, id=f"{name} high")
        )
    return rows


RANGES = [
    *number("server", "port", 0, 65_535),
    *number("tool_output", "max_lines", 1, SAFE),
    *number("tool_output", "max_bytes", 1, SAFE),
    *number("approval", "timeout_ms", 1, SAFE),
    *number("agent_md", "max_bytes", 1, 2 << 20),
    *number("context_compaction", "buffer_tokens", 1, SAFE),
    *number("context_compaction", "max_summary_bytes", 1, 2 << 20),
    *number("context_compaction", "keep_recent_tokens", 0, SAFE),
    *number("context_compaction.trigger", "percent", 1, 99),
    *number("context_compaction.trigger", "buffer_tokens", 1, SAFE),
    *number("model_retry", "standard_retries", -SAFE, SAFE),
    *number("model_retry", "overload_retries", -SAFE, SAFE),
    *number("model_retry", "backoff_ceiling_ms", 1, SAFE),
    *number("session_title", "max_chars", 1, SAFE),
    *number("session_title", "max_input_messages", 1, SAFE),
    *number("delegation", "max_depth", 1, SAFE),
    *number("delegation", "max_concurrency", 1, SAFE),
    *number("delegation", "max_resident_subagents", 0, SAFE),
    *number("messaging", "max_hops", -SAFE, SAFE),
    *number("messaging", "max_body_bytes", 0, SAFE),
    *number("messaging", "max_pending_per_session", 0, SAFE),
    *number("messaging", "max_inflight_per_pair", 0, SAFE),
    *number("workers", "memory_max", 1, SAFE),
    *number("workers", "pids_max", 1, SAFE),
]


def duration(table: str, key: str, *, zero: bool = False) -> list[Any]:
    name = f"{table}.{key}"
    fits = of(table, key, '"7d"')
    short, none = of(table, key, '"1ms"'), of(table, key, '"0ms"')
    rows = [pytest.param(fits, of(table, key, '"169h"'), name, id=f"{name} high")]
    if not zero:
        rows.append(pytest.param(short, none, name, id=f"{name} low"))
    return rows


DURATIONS = [
    *(row for key in ("wedged_after", "link_patience", "idle_exit", "orphan_grace")
      for row in duration("workers", key)),
    *duration("delegation", "idle_eviction_after", zero=True),
]  # fmt: skip


def provider(part: str, models: str = MODEL) -> str:
    return CUSTOM + part + models


def with_headers(count: int, size: int = 1, name: str = "h") -> str:
    values = ", ".join(f'{name}{n} = "{"v" * size}"' for n in range(count))
    return provider(f"headers = {{ {values} }}\n")


def model(part: str) -> str:
    return CUSTOM + MODEL + part + "\n"


def capable(part: str) -> str:
    return CUSTOM + f"[providers.p.models.m.capabilities]\n{part}\n"


TEXTS = [
    pytest.param(
        model(f'display_name = "{"x" * 512}"'),
        model(f'display_name = "{"x" * 513}"'),
        "providers.p.models.m.display_name",
        id="display_name",
    ),
    pytest.param(
        model(f'model_id = "{"x" * 2048}"'),
        model(f'model_id = "{"x" * 2049}"'),
        "providers.p.models.m.model_id",
        id="model_id",
    ),
    pytest.param(
        with_headers(headers.HEADERS_MAX),
        with_headers(headers.HEADERS_MAX + 1),
        "providers.p.headers",
        id="number of headers",
    ),
    pytest.param(
        with_headers(1, headers.VALUE_BYTES_MAX),
        with_headers(1, headers.VALUE_BYTES_MAX + 1),
        "providers.p.headers.h0",
        id="value of a header",
    ),
    pytest.param(
        with_headers(1, name="h" * 127),
        with_headers(1, name="h" * 128),
        f"providers.p.headers.{'h' * 128}0",
        id="name of a header",
    ),
    pytest.param(
        with_headers(8, 8189, name="hh"),
        with_headers(8, 8190, name="hh"),
        "providers.p.headers",
        id="all headers",
    ),
    pytest.param(
        provider("timeouts = { connect_seconds = 86400 }\n"),
        provider("timeouts = { connect_seconds = 86401 }\n"),
        "providers.p.timeouts.connect_seconds",
        id="a timeout",
    ),
    pytest.param(
        provider("timeouts = { stream_idle_seconds = 0.001 }\n"),
        provider("timeouts = { stream_idle_seconds = 0 }\n"),
        "providers.p.timeouts.stream_idle_seconds",
        id="no timeout",
    ),
    pytest.param(
        provider(f'cache = {{ prompt_cache_key = "{"k" * 28}${{session_id}}" }}\n'),
        provider(f'cache = {{ prompt_cache_key = "{"k" * 29}${{session_id}}" }}\n'),
        "providers.p.cache.prompt_cache_key",
        id="key of a cache",
    ),
    pytest.param(
        capable("context_tokens = 10\noutput_tokens = 10\ninput_tokens = 10"),
        capable("context_tokens = 10\noutput_tokens = 10\ninput_tokens = 11"),
        "providers.p.models.m.capabilities.input_tokens",
        id="input_tokens",
    ),
    pytest.param(
        capable("context_tokens = 10\noutput_tokens = 10"),
        capable("context_tokens = 10\noutput_tokens = 11"),
        "providers.p.models.m.capabilities.output_tokens",
        id="output_tokens",
    ),
    pytest.param(
        model("generation_options = { max_output_tokens = 100 }"),
        model("generation_options = { max_output_tokens = 101 }"),
        "providers.p.models.m.generation_options.max_output_tokens",
        id="max_output_tokens",
    ),
    pytest.param(
        model('pricing = { input_per_million_usd = "9000" }'),
        model('pricing = { input_per_million_usd = "9000.000000000001" }'),
        "providers.p.models.m.pricing.input_per_million_usd",
        id="a price",
    ),
    pytest.param(
        model('pricing = { input_per_million_usd = "0.000000000001" }'),
        model('pricing = { input_per_million_usd = "0.0000000000001" }'),
        "providers.p.models.m.pricing.input_per_million_usd",
        id="decimals of a price",
    ),
    pytest.param(
        CUSTOM + f'[providers.p.models."{"m" * 510}"]' + MODEL.partition("]")[2],
        CUSTOM + f'[providers.p.models."{"m" * 511}"]' + MODEL.partition("]")[2],
        f"providers.p.models.{'m' * 511}",
        id="name of a model",
    ),
    pytest.param(
        provider("").replace("providers.p", f"providers.{'p' * 64}"),
        provider("").replace("providers.p", f"providers.{'p' * 65}"),
        f"providers.{'p' * 65}",
        id="name of a provider",
    ),
    pytest.param(
        CUSTOM + MODEL + f'[providers.p.models.m.variants."{"v" * 128}"]\n',
        CUSTOM + MODEL + f'[providers.p.models.m.variants."{"v" * 129}"]\n',
        f"providers.p.models.m.variants.{'v' * 129}",
        id="name of a variant",
    ),
    pytest.param(
        f'[mcp.servers."{"s" * 128}"]\ncommand = "x"\n',
        f'[mcp.servers."{"s" * 129}"]\ncommand = "x"\n',
        f"mcp.servers.{'s' * 129}",
        id="name of a server",
    ),
    *(
        row
        for key in (
            "interception_timeout_ms",
            "startup_timeout_ms",
            "shutdown_grace_ms",
            "tool_timeout_ms",
        )
        for row in [
            pytest.param(
                f'[plugins.x]\ncommand = "x"\n{key} = 1\n',
                f'[plugins.x]\ncommand = "x"\n{key} = 0\n',
                f"plugins.x.{key}",
                id=key,
            )
        ]
    ),
    pytest.param(
        '[mcp.servers.x]\ncommand = "x"\ntimeout_ms = 1\n',
        '[mcp.servers.x]\ncommand = "x"\ntimeout_ms = 0\n',
        "mcp.servers.x.timeout_ms",
        id="timeout of a server",
    ),
]


@pytest.mark.parametrize(("fits", "over", "key"), [*RANGES, *DURATIONS, *TEXTS])
def test_a_limit_of_a_table_holds_at_the_limit_and_not_one_past_it(
    tmp_path: Path, fits: str, over: str, key: str
) -> None:
    assert read(tmp_path, fits).unusable == {}

    said = complaint(tmp_path, over)
    assert said.startswith("config.toml:")
    assert f": {key}: " in said


EMPTY = "'',"
WIDE = "é" * (files.STRING_BYTES_MAX // 2)


@pytest.mark.parametrize(
    ("fits", "over", "said"),
    [
        pytest.param(
            "#" * files.FILE_BYTES_MAX,
            "#" * (files.FILE_BYTES_MAX + 1),
            "config.toml: is larger than 1048576 bytes",
            id="bytes of a file",
        ),
        pytest.param(
            f"[plugins.x]\ncommand = 'x'\nargs = [{EMPTY * (files.ENTRIES_MAX - 4)}]",
            f"[plugins.x]\ncommand = 'x'\nargs = [{EMPTY * (files.ENTRIES_MAX - 3)}]",
            "config.toml:3: plugins.x.args: more than 4096 entries",
            id="entries",
        ),
        pytest.param(
            f"[plugins.x]\ncommand = 'x'\nargs = ['{'a' * files.STRING_BYTES_MAX}']",
            f"[plugins.x]\ncommand = 'x'\nargs = ['{'a' * (files.STRING_BYTES_MAX + 1)}']",
            "config.toml:3: a text longer than 262144 bytes",
            id="a text",
        ),
        pytest.param(
            f'[plugins.x]\ncommand = "x"\nargs = ["{WIDE}"]',
            f'[plugins.x]\ncommand = "x"\nargs = ["{WIDE}\\u0041"]',
            "config.toml:3: plugins.x.args: longer than 262144 bytes",
            id="a text with an escape",
        ),
        pytest.param(
            "[plugins.x]\ncommand = 'x'\nargs = []",
            "[plugins.x]\ncommand = 'x'\nargs = [2020-01-01]",
            "config.toml:3: plugins.x.args: dates and times are not used here; write a string",
            id="a date",
        ),
        pytest.param(
            model("generation_options = { temperature = 1e308 }"),
            model("generation_options = { temperature = inf }"),
            (
                "config.toml:10: providers.p.models.m.generation_options.temperature: "
                "must be a finite number"
            ),
            id="a float",
        ),
    ],
)
def test_a_limit_of_the_file_holds_at_the_limit_and_not_one_past_it(
    tmp_path: Path, fits: str, over: str, said: str
) -> None:
    read(tmp_path, fits)

    assert complaint(tmp_path, over) == said


def test_a_file_may_be_32_deep_and_not_33(tmp_path: Path) -> None:
    deep = ".".join(["a"] * files.DEPTH_MAX)

    assert "unknown key" in complaint(tmp_path, f"{deep} = 1")  # read, and then judged
    assert complaint(tmp_path, f"{deep}.a = 1").endswith("nested deeper than 32")


@pytest.mark.parametrize(
    ("rate", "pico"),
    [
        ("0", 0),
        ("1", 10**12),
        ("1.25", 1_250_000_000_000),
        ("+1.250", 1_250_000_000_000),
        ("2.5e-3", 2_500_000_000),
        ("1e3", 10**15),
        ("0.000000000001", 1),
        ("1e-12", 1),
        ("9000", 9 * 10**15),
        ("", None),
        ("-1", None),
        (".5", None),
        ("1.", None),
        ("1e-13", None),
        ("9000.000000000001", None),
        ("1e99", None),
        ("nan", None),
        ("inf", None),
        ("1,5", None),
        ("$1", None),
        ("\u0661", None),
    ],
)
def test_a_price_is_exact_or_refused(rate: str, pico: int | None) -> None:
    assert model_parts.pico_usd(rate) == pico
