"""`cookie config`: what it prints, and with which code it ends."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cookie.cli.config import config

BROKEN = """\
[tool_output]
max_line = 1

[providers.one]
source = "custum"

[providers.two]
source = "custom"
adaptor = "scripted"
setup = { script = "t.yaml" }
[providers.two.models.m]

[workers]
idle_exit = 5
"""
FINE = """\
[providers.two]
source = "custom"
adaptor = "scripted"
setup = { script = "t.yaml" }
[providers.two.models.m]
[providers.far]
source = "custom"
adaptor = "anthropic"
endpoint = "https://api.example.com"
auth = { method = "anthropic-api-key-v1", values = { api_key = "sk-literal" } }
timeouts = { headers_seconds = 2.5 }
[providers.far.models.a]
capabilities = { context_tokens = 10, output_tokens = 10 }
[providers.far.models.b]
capabilities = { context_tokens = 10, output_tokens = 10 }
[providers.openai]
source = "models_dev"
"""
AGENT = "---\ndescription: {0}\nmode: subagent\nenabled: true\n---\nYou are {0}.\n"


class Place:
    """A data directory and a workspace, with nothing in them."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data, self.work = tmp_path / "data", tmp_path / "ws"
        (self.data / "agents").mkdir(parents=True)
        (self.work / ".cookie-agent" / "agents" / "fast").mkdir(parents=True)
        monkeypatch.chdir(self.work)

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(config, [*words, "--data-dir", str(self.data)])

    def lines(self, *words: str) -> list[str]:
        printed = self.run(*words).stdout
        return printed.replace(f"{self.data}/", "D/").replace(f"{self.work}/", "W/").splitlines()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def test_nothing_at_all_is_fine(place: Place) -> None:
    assert place.lines("check") == ["ok: 0 config files, 0 providers, 0 models, 0 agents, 1 preset"]
    assert place.run("check").exit_code == 0


def test_every_mistake_of_every_file_is_one_line(place: Place) -> None:
    (place.data / "config.toml").write_text(BROKEN)
    (place.work / ".cookie-agent" / "config.toml").write_text("a = ")
    (place.data / "agents" / "good.md").write_text(AGENT.format("good"))
    (place.data / "agents" / "bad.md").write_text("no head")
    (place.work / ".cookie-agent" / "agents" / "fast" / "odd.md").write_text(
        AGENT.format("odd").replace("mode:", "mood:")
    )

    result = place.run("check")

    assert result.exit_code == 1
    assert [line.partition(": ")[0] for line in place.lines("check")] == [
        "D/config.toml:2",
        "D/config.toml:5",
        "D/config.toml:14",
        "W/.cookie-agent/config.toml:1",
        "D/agents/bad.md:1",
        "W/.cookie-agent/agents/fast/odd.md:3",
        "6 mistakes",
    ]


def test_what_loads_is_counted_and_what_is_of_no_use_is_noted(place: Place) -> None:
    (place.data / "agents" / "good.md").write_text(AGENT.format("good"))
    (place.data / "config.toml").write_text(FINE)
    assert place.lines("check") == [
        "note: openai can't be used: this build has no catalogue of models yet",
        "ok: 1 config file, 3 providers, 3 models, 1 agent, 1 preset",
    ]

    unbuilt = FINE.replace('"anthropic"', '"cohere-v2-chat"').replace("anthropic-api", "bearer-api")
    (place.data / "config.toml").write_text(unbuilt)
    assert place.lines("check") == [
        "note: 2 models of far can't be used: this build has no adaptor cohere-v2-chat yet",
        "note: openai can't be used: this build has no catalogue of models yet",
        "ok: 1 config file, 3 providers, 3 models (1 usable), 1 agent, 1 preset",
    ]
    assert place.run("check").exit_code == 0


def test_what_changes_nothing_yet_is_noted_and_no_mistake(place: Place) -> None:
    (place.data / "config.toml").write_text(
        "[workers]\nmemory_max = 5\nlink_patience = '1s'\n[debug]\n[model_retry]\n"
    )
    workspace = "[debug]\ndumpable = true\n[permissions]\ncommand_parts = false\n"
    (place.work / ".cookie-agent" / "config.toml").write_text(workspace)

    assert place.lines("check")[:1] == [
        "note: not in force in this version: workers.memory_max, permissions, debug"
    ]
    assert place.run("check").exit_code == 0


def test_a_variable_that_is_not_set_is_a_mistake_here(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.data / "config.toml").write_text(FINE.replace("sk-literal", "${env:NO_SUCH_KEY}"))
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)

    assert place.run("check").exit_code == 1
    assert place.lines("check")[0].startswith(
        "D/config.toml:10: providers.far.auth.values.api_key: "
        "the environment variable NO_SUCH_KEY is not set"
    )

    monkeypatch.setenv("NO_SUCH_KEY", "k")
    assert place.run("check").exit_code == 0


def test_show_says_every_value_and_with_origin_its_place(place: Place) -> None:
    (place.data / "config.toml").write_text(FINE)
    (place.work / ".cookie-agent" / "config.toml").write_text("[tool_output]\nmax_lines = 3\n")

    plain, placed = place.lines("show"), place.lines("show", "--origin")

    assert "tool_output.max_lines = 3" in plain
    assert "tool_output.max_lines = 3  # W/.cookie-agent/config.toml:2" in placed
    assert "tool_output.max_bytes = 51200  # default" in placed
    assert 'providers.far.auth.values.api_key = "***"  # D/config.toml:10' in placed
    assert "workers.pass_env = []  # default" in placed
    assert "providers.far.timeouts.connect_seconds = 10  # default" in placed
    assert "providers.far.timeouts.headers_seconds = 2.5  # D/config.toml:11" in placed
    assert "sk-literal" not in "".join(placed)


def test_show_as_json_is_one_object_a_line(place: Place) -> None:
    (place.data / "config.toml").write_text(FINE)

    found = {
        row["key"]: row for row in map(json.loads, place.run("show", "--json").stdout.splitlines())
    }

    assert found["providers.far.auth.values.api_key"] == {
        "key": "providers.far.auth.values.api_key",
        "value": "***",
        "origin": f"{place.data}/config.toml:10",
        "secret": True,
        "path": f"{place.data}/config.toml",
        "line": 10,
    }
    assert found["server.port"]["origin"] == "default"
    assert found["server.port"]["value"] == 7419


def test_show_of_a_broken_file_says_what_is_broken(place: Place) -> None:
    (place.data / "config.toml").write_text("a = 1\n")

    result = place.run("show")

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"cookie: {place.data}/config.toml:1: a: unknown key; the tables are" in result.stderr


def test_an_unknown_flag_ends_with_two(place: Place) -> None:
    assert place.run("check", "--no-such-flag").exit_code == 2


def test_a_folder_that_is_gone_is_said_in_one_line(place: Place) -> None:
    for folder in ("agents/fast", "agents", ""):
        (place.work / ".cookie-agent" / folder).rmdir()
    place.work.rmdir()

    result = place.run("check")

    assert (result.exit_code, result.stderr) == (
        5,
        "cookie: the current directory is gone: cd to one that is there\n",
    )
