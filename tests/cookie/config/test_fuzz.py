"""Random config files: whatever they hold, they load or are refused in one line."""

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cookie.config.files import BadConfig, Layer, read_layer
from cookie.config.settings import Read, checked, merged
from ipc.faults import clean

SHORT, LONG = 2_000, 100_000
SECRET = "s3cr3t-of-the-environment"
ENVIRON = {"GOOD_KEY": SECRET, "EMPTY": "", "BROKEN": "a\nb"}
MEMORY_MAX = 64 << 20  # bytes; a file has at most one MiB


def words(text: str) -> list[str]:
    return text.split()


# Words that mean something somewhere, so that a random file gets past the first check.
KEYS = st.sampled_from(
    words(
        """
    server host port tool_output max_lines max_bytes approval timeout_ms agent_md enabled
    context_compaction auto trigger percent buffer_tokens model_retry standard_retries schema
    session_title delegation max_depth idle_eviction_after messaging max_hops loop_warning
    providers mine source adaptor endpoint auth method values api_key parameters header_name
    setup script region headers authorization x-team cache system tools rolling mode ttl
    prompt_cache_key timeouts connect_seconds models one display_name model_id capabilities
    context_tokens output_tokens input output media image mime_types max_count reasoning
    generation_options temperature stop seed tool_choice adaptor_options beta store pricing
    input_per_million_usd variants high type value default_variant compaction base_url
    auth_override mcp servers command args env cwd url oauth client_id client_secret scopes
    plugins http proxy ca_file workers pass_env wedged_after permissions command_parts debug
    dumpable version
    """
    )
) | st.text(max_size=6)
TEXTS = st.sampled_from(
    words(
        """
    custom models_dev scripted openai-compatible anthropic google-gemini aws-bedrock-converse
    cohere-v2-chat no-auth-v1 bearer-api-key-v1 anthropic-api-key-v1 api-key-header-v1
    ${env:GOOD_KEY} ${env:NOT_SET} ${env:EMPTY:-x} ${env:BROKEN} ${env: $${ ${session_id} $KEY
    https://api.example.com/v1 http://127.0.0.1:8080 http://far.example 127.0.0.1 1h 5m off
    30s effort toggle budget_tokens high base text image image/png 1.25 1e-13 ~nobody/x
    talk.yaml
    """
    )
) | st.text(max_size=8)
VALUES = (
    TEXTS
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-2, 100)
    | st.floats()
    | st.sampled_from([1979, "2020-01-01"])
    | st.lists(TEXTS, max_size=3)
)
TABLES = st.recursive(
    st.dictionaries(KEYS, VALUES, max_size=4),
    lambda inner: st.dictionaries(KEYS, VALUES | inner, max_size=5),
    max_leaves=12,
)
_TOP = st.sampled_from(
    words(
        """
    server tool_output approval agent_md context_compaction model_retry session_title
    delegation messaging loop_warning http workers permissions debug
    """
    )
)
_MODEL: Any = st.fixed_dictionaries(
    {},
    optional={
        "capabilities": TABLES,
        "variants": st.dictionaries(KEYS, TABLES, max_size=2),
        "generation_options": TABLES,
        "adaptor_options": TABLES,
        "pricing": st.dictionaries(KEYS, TEXTS, max_size=2),
        "headers": st.dictionaries(KEYS, TEXTS, max_size=2),
        "enabled": VALUES,
    },
)
_PROVIDER: Any = st.fixed_dictionaries(
    {"source": st.sampled_from(["custom", "models_dev"])},
    optional={
        "adaptor": TEXTS,
        "endpoint": TEXTS,
        "auth": TABLES,
        "setup": st.dictionaries(KEYS, TEXTS, max_size=2),
        "headers": st.dictionaries(KEYS, TEXTS, max_size=2),
        "cache": TABLES,
        "timeouts": TABLES,
        "models": st.dictionaries(KEYS, _MODEL, max_size=2),
        "api_key": TEXTS,
        "base_url": TEXTS,
    },
)
FILES: Any = st.one_of(
    TABLES,
    st.dictionaries(_TOP, TABLES, max_size=3),
    st.fixed_dictionaries({"providers": st.dictionaries(KEYS, _PROVIDER, max_size=2)}),
    st.fixed_dictionaries(
        {
            "mcp": st.fixed_dictionaries({"servers": st.dictionaries(KEYS, TABLES, max_size=2)}),
            "plugins": st.dictionaries(KEYS, TABLES, max_size=2),
        }
    ),
)
TEXT_FILES = (
    st.text(max_size=60)
    | st.text(alphabet="ab.=[]{}\"'\\#\n ,1:-$", max_size=60)
    | st.binary(max_size=40)
)


def toml(value: Any) -> str:
    """A value in one line of TOML; only what the tests make."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{toml(name)} = {toml(child)}' for name, child in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(toml(child) for child in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + "".join(_escaped(letter) for letter in value) + '"'
    return str(value)


def _escaped(letter: str) -> str:
    return letter if letter.isalnum() or letter in " .:/-{}" else f"\\U{ord(letter):08x}"


def document(table: dict[str, Any]) -> str:
    return "".join(f"{toml(name)} = {toml(child)}\n" for name, child in table.items())


def judge(folder: Path, data: bytes) -> Read | None:
    """Load one file; only a BadConfig may stop it, and it says all in one line without secrets."""
    path = folder / "config.toml"
    path.write_bytes(data)
    try:
        layer = read_layer("user", path)
    except BadConfig as bad:
        _one_clear_line(bad, path)
        return None
    if layer is None or not layer.table:
        return None
    wrong: list[BadConfig] = []
    read = checked(layer, ENVIRON, wrong)
    for bad in wrong:
        _one_clear_line(bad, path)
    assert bool(wrong) == (_first(layer) is not None)  # the list says no more and no less
    config = merged([read])
    assert SECRET not in repr((config, config.settings, layer, read))
    for lacking in config.unusable.values():
        _one_clear_line(lacking, path)
    return read


def _first(layer: Layer) -> BadConfig | None:
    try:
        checked(layer, ENVIRON)
    except BadConfig as bad:
        return bad
    return None


def _one_clear_line(bad: BadConfig, path: Path) -> None:
    said = str(bad)
    assert said.startswith(f"{path}:")
    assert clean(said, len(said)) == said
    assert SECRET not in said
    assert bad.body().code == "bad_config"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def quick(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


@pytest.mark.timeout(300)  # for a machine that has other things to do; it takes 5 s of CPU
@quick(SHORT // 2)
@given(FILES)
def test_a_random_table_loads_or_is_refused_in_one_line(folder: Path, table: Any) -> None:
    judge(folder, document(table).encode("utf-8", "surrogatepass"))


@quick(SHORT // 2)
@given(TEXT_FILES)
@example("a = 2020-01-01")
@example('"')
def test_a_random_text_loads_or_is_refused_in_one_line(folder: Path, text: str | bytes) -> None:
    judge(folder, text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))


@pytest.mark.long
@pytest.mark.timeout(3600)
@quick(LONG)
@given(FILES | TEXT_FILES)
def test_a_hundred_thousand_random_files(folder: Path, content: Any) -> None:
    if isinstance(content, dict):
        content = document(content)
    judge(
        folder, content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    )


HOSTILE = {
    "brackets": "a = " + "[" * 500_000,
    "tables": "a = " + "{a=" * 300_000,
    "dotted key": "a." * 500_000 + "a = 1",
    "quoted dotted key": '"a"."b c".' * 100_000 + "a = 1",
    "escaped dotted key": '"\\"".' * 200_000 + "a = 1",
    "dotted header": "[" + "a." * 500_000 + "a]",
    "headers": "[[a]]\n" * 170_000,
    "keys": "".join(f"a.b{n}=1\n" for n in range(90_000)),
    "items": "a = [" + "0," * 500_000 + "]",
    "a text that never ends": '"""' + '\\"""' * 250_000,
    "a text that never ends, line by line": '"""' + '\\"""\n' * 200_000,
    "escaped quotes": 'a = "' + '\\"' * 500_000,
    "quotes": "a=" + '"' * 1_000_000,
    "single quotes": "a=" + "'" * 1_000_001,
    "quotes on lines of their own": 'a = "\n' * 340_000,
    "one long text": 'a = "' + "x" * 1_000_000 + '"',
    "one long text of escapes": 'a = "' + "\\u0041" * 170_000 + '"',
    "digits": "a = " + "9" * 1_000_000,
    "hex digits": "a = 0x" + "f" * 1_000_000,
    "a long float": "a = 1." + "9" * 1_000_000,
    "comments": "#\n" * 500_000 + "a = nan",
    "blanks": " " * 1_000_000 + "a",
    "carriage returns": "\r" * 1_000_000,
    "commas that are none": "a = [" + "[],".replace(",", " ") * 300_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_file_takes_little_memory_and_ends(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    tracemalloc.start()
    try:
        judge(tmp_path, text.encode())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < MEMORY_MAX


def test_of_a_file_of_300_megabytes_not_one_byte_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    with path.open("wb") as file:
        file.truncate(300 << 20)
    before = _bytes_read()

    with pytest.raises(BadConfig, match="is larger than 1048576 bytes"):
        read_layer("user", path)

    assert _bytes_read() - before < 65_536  # what asking for the figure itself reads


def _bytes_read() -> int:
    with open("/proc/self/io") as file:  # noqa: PTH123
        return int(file.readline().split()[1])


def test_a_file_that_grows_while_it_is_read_has_the_same_limit(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(write_end)
    try:
        with pytest.raises(BadConfig, match="is no regular file"):
            read_layer("user", Path(f"/proc/self/fd/{read_end}"))
    finally:
        os.close(read_end)
