"""The schema of config.toml: what it takes, and what it says about what it does not take."""

from pathlib import Path

import pytest

from cookie.config.files import BadConfig
from cookie.config.settings import (
    BadDuration,
    CustomModel,
    CustomProvider,
    ModelRetryTable,
    ScriptedSetup,
    Settings,
    ToolOutputTable,
    WorkersTable,
    duration_s,
    load_settings,
)
from ipc.ids import ProviderId

PROVIDER = """
[providers.mine]
source = "custom"
adaptor = "scripted"
setup = { script = "talk.yaml" }
[providers.mine.models.one]
display_name = "One"
context_limit = 1000
"""


def settings(tmp_path: Path, user: str = "", workspace: str = "") -> Settings:
    for folder, text in ((tmp_path / "data", user), (tmp_path / "ws/.cookie-agent", workspace)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(text)
    return load_settings(tmp_path / "data", tmp_path / "ws")


def complaint(tmp_path: Path, text: str) -> str:
    with pytest.raises(BadConfig) as refused:
        settings(tmp_path, text)
    return str(refused.value).removeprefix(f"{tmp_path}/data/")


def test_without_a_config_everything_has_its_default(tmp_path: Path) -> None:
    assert load_settings(tmp_path / "data", tmp_path) == Settings()
    assert Settings().tool_output == ToolOutputTable(max_lines=2000, max_bytes=51_200)
    assert Settings().model_retry == ModelRetryTable(
        standard_retries=3, overload_retries=5, backoff_ceiling_ms=60_000
    )


def test_everything_there_is_can_be_set(tmp_path: Path) -> None:
    text = f"""
[tool_output]
max_lines = 10
max_bytes = 20
[model_retry]
standard_retries = 0
overload_retries = -1
backoff_ceiling_ms = 1
[workers]
wedged_after = "1m"
link_patience = "500ms"
pass_env = ["LISTEN_FDS"]
{PROVIDER}model_id = "wire"
max_output = 5
"""
    assert settings(tmp_path, text) == Settings(
        providers={
            ProviderId("mine"): CustomProvider(
                source="custom",
                adaptor="scripted",
                setup=ScriptedSetup(script=f"{tmp_path}/data/talk.yaml"),
                models={
                    "one": CustomModel(
                        display_name="One", model_id="wire", context_limit=1000, max_output=5
                    )
                },
            )
        },
        tool_output=ToolOutputTable(max_lines=10, max_bytes=20),
        model_retry=ModelRetryTable(standard_retries=0, overload_retries=-1, backoff_ceiling_ms=1),
        workers=WorkersTable(wedged_after="1m", link_patience="500ms", pass_env=("LISTEN_FDS",)),
    )


def test_a_table_of_the_workspace_replaces_the_users_whole(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        "[tool_output]\nmax_lines = 1\nmax_bytes = 1\n[model_retry]\nstandard_retries = 9\n",
        "[tool_output]\nmax_lines = 2\n",
    )

    assert found.tool_output == ToolOutputTable(max_lines=2, max_bytes=51_200)
    assert found.model_retry.standard_retries == 9


def test_providers_are_replaced_one_by_one(tmp_path: Path) -> None:
    other = PROVIDER.replace("mine", "other")
    found = settings(tmp_path, PROVIDER + other, PROVIDER.replace('"One"', '"Mine"'))

    names = {
        name: (table.models["one"].display_name, table.setup.script)
        for name, table in found.providers.items()
    }
    assert names == {
        "mine": ("Mine", f"{tmp_path}/ws/.cookie-agent/talk.yaml"),
        "other": ("One", f"{tmp_path}/data/talk.yaml"),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[tool_outptu]\n",
            (
                "config.toml:1: tool_outptu: unknown key; "
                "the tables are providers, tool_output, model_retry, workers"
            ),
        ),
        (
            "\n[tool_output]\nmax_line = 1\n",
            "config.toml:3: tool_output.max_line: unknown key; it may have max_lines, max_bytes",
        ),
        (
            "[tool_output]\nmax_lines = '9'\n",
            "config.toml:2: tool_output.max_lines: expected `int`, got `str`",
        ),
        (
            "[tool_output]\nmax_bytes = 0\n",
            "config.toml:2: tool_output.max_bytes: expected `int` >= 1",
        ),
        ("tool_output = 3\n", "config.toml:1: tool_output: must be a table, not a number"),
        (
            "[workers]\nwedged_after = '30'\n",
            (
                "config.toml:2: workers.wedged_after: must be a duration "
                'like "500ms", "30s", "10m" or "1h", at most 7 days'
            ),
        ),
        (
            "[workers]\npass_env = [1]\n",
            "config.toml:2: workers.pass_env: expected `str`, got `int`",
        ),
        ("providers = []\n", "config.toml:1: providers: must be a table, not a list"),
        (
            PROVIDER.replace('"scripted"', '"anthropic"'),
            "config.toml:4: providers.mine.adaptor: invalid enum value 'anthropic'",
        ),
        (
            PROVIDER.replace('"custom"', '"models_dev"'),
            "config.toml:3: providers.mine.source: invalid enum value 'models_dev'",
        ),
        (
            PROVIDER.replace('source = "custom"', ""),
            "config.toml:2: providers.mine: needs the key source",
        ),
        (
            PROVIDER.replace("script =", "skript ="),
            "config.toml:5: providers.mine.setup.skript: unknown key; it may have script",
        ),
        (
            PROVIDER.replace('{ script = "talk.yaml" }', "{}"),
            "config.toml:5: providers.mine.setup: needs the key script",
        ),
        (
            PROVIDER.replace("talk.yaml", "talk\\u0000.yaml"),
            "config.toml:5: providers.mine.setup.script: is no path: it holds a control character",
        ),
        (
            PROVIDER.partition("[providers.mine.models")[0],
            (
                "config.toml:2: providers.mine: needs at least one model: "
                "add a [providers.<id>.models.<name>]"
            ),
        ),
        (
            PROVIDER.replace("context_limit", "contxt_limit"),
            (
                "config.toml:8: providers.mine.models.one.contxt_limit: unknown key; "
                "it may have display_name, model_id, context_limit, max_output"
            ),
        ),
        (
            PROVIDER.replace("mine", "rehearsal"),
            "config.toml:2: providers.rehearsal: is built in; give your provider another name",
        ),
        (
            PROVIDER.replace("mine", "Mine"),
            (
                "config.toml:2: providers.Mine: is no usable name: lower-case letters, digits, "
                "`.`, `_` and `-` for a provider; no blanks in a model"
            ),
        ),
        (
            PROVIDER.replace("models.one", 'models."a b"'),
            (
                'config.toml:6: providers.mine.models."a b": is no usable name: lower-case '
                "letters, digits, `.`, `_` and `-` for a provider; no blanks in a model"
            ),
        ),
    ],
)
def test_a_mistake_is_named_with_its_file_line_and_key(
    tmp_path: Path, text: str, said: str
) -> None:
    assert complaint(tmp_path, text) == said


def test_a_mistake_in_the_workspaces_file_names_that_file(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"/ws/\.cookie-agent/config\.toml:2: workers\.x"):
        settings(tmp_path, "[workers]\n", "[workers]\nx = 1\n")


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("30s", 30), ("10m", 600), ("1h", 3600), ("168h", 604800)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "30", "s", "-1s", "1.5s", "0s", "1d", "169h", "1s ", "٣s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(BadDuration):
        duration_s(text)
