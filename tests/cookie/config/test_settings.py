"""The schema of config.toml: what it takes, and what it says about what it does not take."""

from pathlib import Path

import pytest

from cookie.config.files import BadConfig
from cookie.config.model_parts import Capabilities
from cookie.config.provider_models import CustomModel
from cookie.config.providers import CustomProvider
from cookie.config.schema import BadDuration, duration_s
from cookie.config.settings import (
    ModelRetryTable,
    Settings,
    ToolOutputTable,
    WorkersTable,
    load_settings,
)
from cookie.config.tables import (
    KINDS,
    AgentMdTable,
    ApprovalTable,
    ContextCompactionTable,
    DebugTable,
    DelegationTable,
    HttpTable,
    LoopWarningTable,
    MessagingTable,
    PermissionsTable,
    ServerTable,
    SessionTitleTable,
    Trigger,
)
from ipc.ids import ProviderId

PROVIDER = """
[providers.mine]
source = "custom"
adaptor = "scripted"
setup = { script = "talk.yaml" }
[providers.mine.models.one]
display_name = "One"
capabilities.context_tokens = 1000
capabilities.output_tokens = 5
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
idle_exit = "1h"
orphan_grace = "1d"
memory_max = 1000000000
pids_max = 100
pass_env = ["LISTEN_FDS"]
[server]
port = 0
local_handoff = false
metrics = true
[approval]
timeout_ms = 5000
[agent_md]
enabled = false
max_bytes = 1
[context_compaction]
auto = false
trigger = {{ buffer_tokens = 33000 }}
max_summary_bytes = 9
keep_recent_tokens = 0
[session_title]
max_chars = 9
max_input_messages = 1
generate_on_first_turn = false
fallback_to_input_excerpt = false
[delegation]
max_depth = 1
max_concurrency = 2
max_resident_subagents = 0
idle_eviction_after = "0s"
[messaging]
enabled = false
max_hops = -1
max_body_bytes = 0
max_pending_per_session = 1
max_inflight_per_pair = 0
[loop_warning]
enabled = false
[http]
ca_file = "ca.pem"
[permissions]
command_parts = false
[debug]
dumpable = true
{PROVIDER}model_id = "wire"
"""
    assert settings(tmp_path, text) == Settings(
        providers={
            ProviderId("mine"): CustomProvider(
                source="custom",
                adaptor="scripted",
                setup={"script": f"{tmp_path}/data/talk.yaml"},
                models={
                    "one": CustomModel(
                        display_name="One",
                        model_id="wire",
                        capabilities=Capabilities(context_tokens=1000, output_tokens=5),
                    )
                },
            )
        },
        tool_output=ToolOutputTable(max_lines=10, max_bytes=20),
        model_retry=ModelRetryTable(standard_retries=0, overload_retries=-1, backoff_ceiling_ms=1),
        workers=WorkersTable(
            wedged_after="1m",
            link_patience="500ms",
            idle_exit="1h",
            orphan_grace="1d",
            memory_max=1_000_000_000,
            pids_max=100,
            pass_env=("LISTEN_FDS",),
        ),
        others={
            "server": ServerTable(port=0, local_handoff=False, metrics=True),
            "approval": ApprovalTable(timeout_ms=5000),
            "agent_md": AgentMdTable(enabled=False, max_bytes=1),
            "context_compaction": ContextCompactionTable(
                auto=False,
                trigger=Trigger(buffer_tokens=33_000),
                max_summary_bytes=9,
                keep_recent_tokens=0,
            ),
            "session_title": SessionTitleTable(
                max_chars=9,
                max_input_messages=1,
                generate_on_first_turn=False,
                fallback_to_input_excerpt=False,
            ),
            "delegation": DelegationTable(
                max_depth=1,
                max_concurrency=2,
                max_resident_subagents=0,
                idle_eviction_after="0s",
            ),
            "messaging": MessagingTable(
                enabled=False,
                max_hops=-1,
                max_body_bytes=0,
                max_pending_per_session=1,
                max_inflight_per_pair=0,
            ),
            "loop_warning": LoopWarningTable(enabled=False),
            "http": HttpTable(ca_file=f"{tmp_path}/data/ca.pem"),
            "permissions": PermissionsTable(command_parts=False),
            "debug": DebugTable(dumpable=True),
        },
    )


def test_every_default_is_the_one_that_is_documented() -> None:
    found = {name: kind() for name, kind in KINDS.items()}

    assert found == {
        "server": ServerTable(host="127.0.0.1", port=7419, local_handoff=True, metrics=False),
        "approval": ApprovalTable(timeout_ms=None),
        "agent_md": AgentMdTable(enabled=True, max_bytes=32_768),
        "context_compaction": ContextCompactionTable(
            auto=True,
            trigger=Trigger(percent=70),
            max_summary_bytes=262_144,
            keep_recent_tokens=16_384,
        ),
        "session_title": SessionTitleTable(
            max_chars=80,
            max_input_messages=4,
            generate_on_first_turn=True,
            fallback_to_input_excerpt=True,
        ),
        "delegation": DelegationTable(
            max_depth=3, max_concurrency=4, max_resident_subagents=20, idle_eviction_after="1h"
        ),
        "messaging": MessagingTable(
            enabled=True,
            max_hops=0,
            max_body_bytes=32_768,
            max_pending_per_session=32,
            max_inflight_per_pair=4,
        ),
        "loop_warning": LoopWarningTable(enabled=True),
        "http": HttpTable(ca_file=None, proxy=None),
        "permissions": PermissionsTable(command_parts=True),
        "debug": DebugTable(dumpable=False),
    }
    assert Settings().table(ServerTable) == ServerTable()


def test_both_ways_to_write_the_trigger_mean_the_same(tmp_path: Path) -> None:
    older = settings(tmp_path, "[context_compaction]\nbuffer_tokens = 9\n")
    newer = settings(tmp_path, "[context_compaction]\ntrigger = { buffer_tokens = 9 }\n")

    assert older.table(ContextCompactionTable).when() == Trigger(buffer_tokens=9)
    assert newer.table(ContextCompactionTable).when() == Trigger(buffer_tokens=9)
    assert Settings().table(ContextCompactionTable).when() == Trigger(percent=70)


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
        name: (table.models["one"].display_name, table.setup["script"])
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
                "config.toml:1: tool_outptu: unknown key; did you mean tool_output? "
                "the tables are server, tool_output, approval, agent_md, context_compaction, "
                "model_retry, session_title, delegation, messaging, loop_warning, providers, mcp, "
                "plugins, http, workers, permissions, debug"
            ),
        ),
        (
            "\n[tool_output]\nmax_line = 1\n",
            (
                "config.toml:3: tool_output.max_line: unknown key; did you mean max_lines? "
                "it may have max_lines, max_bytes"
            ),
        ),
        (
            "[tool_output]\nmax_lines = '9'\n",
            (
                "config.toml:2: tool_output.max_lines: must be a whole number of at least 1, "
                "not a text; remove the quotes"
            ),
        ),
        (
            "[tool_output]\nmax_bytes = 0\n",
            "config.toml:2: tool_output.max_bytes: must be a whole number of at least 1",
        ),
        (
            "tool_output = 3\n",
            "config.toml:1: tool_output: must be a table, like [tool_output], not a number",
        ),
        (
            "[workers]\nwedged_after = '30'\n",
            (
                "config.toml:2: workers.wedged_after: must be a duration "
                'like "500ms", "30s", "10m", "1h" or "2d", at most 7 days'
            ),
        ),
        (
            "[workers]\npass_env = [1]\n",
            "config.toml:2: workers.pass_env: must be a list of texts",
        ),
        (
            "providers = []\n",
            "config.toml:1: providers: must be a table, like [providers], not a list",
        ),
        (
            PROVIDER.replace('"scripted"', '"antropic"'),
            (
                'config.toml:4: providers.mine.adaptor: must be "scripted", "openai-compatible", '
                '"openai-chat", "openai-responses", "anthropic", "anthropic-compatible", '
                '"google-gemini", "google-vertex-gemini", "aws-bedrock-converse", '
                '"azure-openai-chat", "azure-openai-responses" or "cohere-v2-chat"; '
                "did you mean anthropic?"
            ),
        ),
        (
            PROVIDER.replace('"custom"', '"models_dev"'),
            (
                "config.toml:4: providers.mine.adaptor: comes from the catalogue; remove it, "
                "or make a custom provider"
            ),
        ),
        (
            PROVIDER.replace('source = "custom"', ""),
            (
                "config.toml:2: providers.mine: needs the key source, for example "
                'source = "models_dev" or source = "custom"'
            ),
        ),
        (
            PROVIDER.replace("script =", "skript ="),
            (
                "config.toml:5: providers.mine.setup.skript: unknown key; "
                "did you mean script? it may have script"
            ),
        ),
        (
            PROVIDER.replace('{ script = "talk.yaml" }', "{}"),
            (
                "config.toml:2: providers.mine: needs the key setup.script, "
                'for example setup = { script = "talk.yaml" }'
            ),
        ),
        (
            PROVIDER.replace("talk.yaml", "talk\\u0000.yaml"),
            (
                "config.toml:5: providers.mine.setup.script: "
                "holds a control character or a line break"
            ),
        ),
        (
            PROVIDER.partition("[providers.mine.models")[0],
            (
                "config.toml:2: providers.mine: needs at least one model: "
                "add a [providers.mine.models.<name>]"
            ),
        ),
        (
            PROVIDER.replace("display_name", "dispay_name"),
            (
                "config.toml:7: providers.mine.models.one.dispay_name: unknown key; did you mean "
                "display_name? it may have enabled, display_name, model_id, capabilities, "
                "generation_options, adaptor_options, pricing, headers, variants, default_variant"
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
                "`.`, `_` and `-`, at most 64"
            ),
        ),
        (
            PROVIDER.replace("models.one", 'models."a b"'),
            (
                'config.toml:6: providers.mine.models."a b": is no usable name: printable, '
                "without blanks, at most 512 characters together with its provider"
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
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("10m", 600),
        ("1h", 3600),
        ("168h", 604800),
        ("7d", 604800),
        ("0s", 0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "30", "s", "-1s", "1.5s", "1w", "8d", "169h", "1s ", "٣s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(BadDuration):
        duration_s(text)
