"""The agents of a workspace: the synthesized one, layers, presets, the choice."""

from pathlib import Path

import pytest

from cookie.config.agents import (
    DEFAULT_PROMPT,
    DEFAULT_RULES,
    Agents,
    NoSuchAgent,
    NoSuchPreset,
    NotRootRunnable,
    choose,
    default_agent,
    load_agents,
    snapshots,
)
from cookie.config.documents import BadDocument
from ipc.events import FallbackEntry
from ipc.ids import ModelKey
from ipc.rules import Effect, Rule, specificity
from workers.run.prompt import prompt_fingerprint

CHAIN = (FallbackEntry(model=ModelKey("rehearsal/tour")),)


def decide(action: str, label: str | None) -> Effect:
    """Spec 1.9: more literal characters, then fewer wildcards, then the later rule; else deny."""
    best: tuple[tuple[int, int], int, Rule] | None = None
    for number, rule in enumerate(DEFAULT_RULES):
        if rule.action == action and rule.matches(label, "/ws"):
            found = (specificity(rule.resource, "/ws"), number, rule)
            best = found if best is None or found[:2] >= best[:2] else best
    return "deny" if best is None else best[2].effect


@pytest.mark.parametrize(
    ("action", "label", "effect"),
    [
        ("read", "src/main.py", "allow"),
        ("read", "a", "allow"),
        ("read", None, "deny"),
        ("read", "/etc/passwd", "ask"),
        ("read", ".env", "deny"),
        ("read", "deep/er/.env", "deny"),
        ("read", "/elsewhere/.env", "deny"),
        ("read", ".env.local", "deny"),
        ("read", "deep/.env.local", "deny"),
        ("read", ".env.example", "allow"),
        ("read", "deep/.env.example", "allow"),
        ("read", ".environment", "allow"),
        ("read", "x.env", "allow"),
        ("read", "store-v3.json", "deny"),
        ("read", "p/token-v1", "deny"),
        ("read", "id_ed25519", "deny"),
        ("read", "/home/me/.ssh/id_rsa", "deny"),
        ("read", ".netrc", "deny"),
        ("read", "/home/me/.netrc", "deny"),
        ("read", "gcloud/application_default_credentials.json", "deny"),
        ("write", "src/main.py", "ask"),
        ("write", "/etc/passwd", "ask"),
        ("bash", "rm -rf /", "ask"),
        ("delegate", "reviewer", "ask"),
        ("webfetch", "https://example.org", "deny"),
        ("mcp", "github_x", "deny"),
        ("skill", "x", "deny"),
        ("message", "parent", "deny"),
        ("plugin", "x", "deny"),
    ],
)
def test_the_default_agent_decides(action: str, label: str | None, effect: Effect) -> None:
    assert decide(action, label) == effect


def test_only_four_actions_are_seen() -> None:
    assert {rule.action for rule in DEFAULT_RULES} == {"read", "write", "bash", "delegate"}


def test_the_snapshot_is_whole_and_its_fingerprint_is_that_of_its_prompt() -> None:
    (agent,) = snapshots({}, CHAIN)

    assert (agent.agent, agent.mode, agent.document_source) == ("default", "primary", "builtin")
    assert (agent.schema, agent.max_output_tokens, agent.delegation) == (6, 0, None)
    assert (agent.composed_prompt, agent.permissions) == (DEFAULT_PROMPT, DEFAULT_RULES)
    assert agent.prompt_fingerprint == prompt_fingerprint(DEFAULT_PROMPT)
    assert default_agent(CHAIN) == agent


def test_the_document_s_fingerprint_knows_the_chain() -> None:
    other = (FallbackEntry(model=ModelKey("mine/one")),)

    assert default_agent(CHAIN).document_fingerprint != default_agent(other).document_fingerprint


def test_an_agent_nobody_defined_is_refused_with_what_there_is() -> None:
    with pytest.raises(NoSuchAgent) as refused:
        choose({}, (default_agent(CHAIN),), "reviewer")

    assert str(refused.value) == "there is no agent 'reviewer'; there is: default"
    assert choose({}, (default_agent(CHAIN),), None) == choose(
        {}, (default_agent(CHAIN),), "default"
    )


def document(
    folder: Path, name: str, *, mode: str = "all", enabled: bool = True, body: str = "", **more: str
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = {"description": name, "mode": mode, "enabled": str(enabled).lower()} | more
    head = "\n".join(f"{key}: {value}" for key, value in lines.items())
    (folder / f"{name}.md").write_text(f"---\n{head}\n---\n{body or name}\n")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home" / "agents"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work" / ".cookie-agent" / "agents"


def loaded(tmp_path: Path) -> Agents:
    return load_agents(tmp_path / "home", tmp_path / "work")


def bodies(agents: Agents, preset: str | None = None) -> dict[str, str]:
    return {name: one.body for name, one in agents.effective(preset).items()}


def test_no_folder_is_no_agents(tmp_path: Path) -> None:
    assert loaded(tmp_path) == Agents()


def test_a_workspace_document_replaces_the_user_s_whole(
    tmp_path: Path, home: Path, work: Path
) -> None:
    document(home, "reviewer", body="mine", permissions="{ bash: allow }")
    document(home, "writer")
    document(work, "reviewer", body="ours")

    agents = loaded(tmp_path)

    assert bodies(agents) == {"reviewer": "ours", "writer": "writer"}
    assert agents.effective()["reviewer"].permissions == ()
    assert agents.effective()["reviewer"].source == "workspace"


def test_a_preset_replaces_shared_documents_and_adds_its_own(
    tmp_path: Path, home: Path, work: Path
) -> None:
    document(home, "primary", body="shared")
    document(home, "reviewer")
    document(home / "python", "primary", body="python")
    document(home / "python", "tester")
    document(work / "python", "tester", body="ours")
    document(home / "rust", "primary", body="rust")

    agents = loaded(tmp_path)

    assert bodies(agents) == {"primary": "shared", "reviewer": "reviewer"}
    assert bodies(agents, "python") == {
        "primary": "python",
        "reviewer": "reviewer",
        "tester": "ours",
    }
    assert bodies(agents, "rust") == {"primary": "rust", "reviewer": "reviewer"}
    with pytest.raises(NoSuchPreset, match="there is no preset 'go'; there is: python, rust"):
        agents.effective("go")


def test_context_files_and_hidden_files_are_no_documents(
    tmp_path: Path, home: Path, work: Path
) -> None:
    document(home, "a")
    document(work / "python", "b")
    for folder in (home, work, work / "python"):
        (folder / "AGENTS.md").parent.mkdir(parents=True, exist_ok=True)
        (folder / "AGENTS.md").write_text("context")
        (folder / ".DS_Store").write_bytes(b"\0")

    assert set(loaded(tmp_path).effective("python")) == {"a", "b"}


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("notes.txt", "only agent documents"),
        ("python/notes.txt", "only agent documents"),
        ("python/deep/x.md", "presets are one level deep"),
        ("Python/x.md", "a preset's name has"),
        ("python/x.md", "begins with a line ---"),  # also when no run selects it
    ],
)
def test_what_does_not_belong_into_the_folder_is_refused(
    tmp_path: Path, home: Path, path: str, told: str
) -> None:
    (home / path).parent.mkdir(parents=True)
    (home / path).write_text("x")
    with pytest.raises(BadDocument, match=told):
        loaded(tmp_path)


def test_a_delegate_rule_must_name_an_agent_that_takes_work(tmp_path: Path, home: Path) -> None:
    document(home, "lead", permissions='{ delegate: { "helper": allow, "gone": deny, "*x": ask } }')
    document(home, "helper", mode="subagent")
    agents = loaded(tmp_path)
    (lead,) = [one for one in snapshots(agents.effective(), CHAIN) if one.agent == "lead"]
    assert lead.delegation is not None
    assert lead.delegation.targets == ("helper",)

    document(home, "helper", mode="primary", models="[{ model: a/b }]")
    with pytest.raises(BadDocument, match="names 'helper', and it takes no delegation"):
        loaded(tmp_path)
    (home / "helper.md").unlink()
    with pytest.raises(BadDocument, match="names 'helper', and there is no such agent"):
        loaded(tmp_path)


def test_targets_are_checked_in_every_preset(tmp_path: Path, home: Path) -> None:
    document(home, "lead", permissions='{ delegate: { "helper": allow } }')
    document(home, "helper", mode="subagent")
    document(home / "python", "helper", mode="subagent", enabled=False)
    with pytest.raises(BadDocument, match="it takes no delegation"):
        loaded(tmp_path)


def test_the_choice_is_primary_then_the_first_that_runs_as_a_root(
    tmp_path: Path, home: Path
) -> None:
    document(home, "b")
    document(home, "a", mode="subagent")
    document(home, "c", enabled=False)

    def chosen(wanted: str | None = None) -> str:
        documents = loaded(tmp_path).effective()
        return choose(documents, snapshots(documents, CHAIN), wanted).agent

    assert chosen() == "b"
    document(home, "primary", mode="primary", models="[{ model: x/y }]")
    assert chosen() == "primary"
    assert chosen("b") == "b"
    with pytest.raises(NotRootRunnable, match="'a' is a subagent agent, so no root session"):
        chosen("a")
    with pytest.raises(NotRootRunnable, match="'c' is not enabled"):
        chosen("c")
    with pytest.raises(NoSuchAgent, match="there is no agent 'z'; there is: b, primary"):
        chosen("z")


def test_without_a_root_the_built_in_agent_is_there(tmp_path: Path, home: Path) -> None:
    document(home, "a", mode="subagent")
    documents = loaded(tmp_path).effective()
    assert [one.agent for one in snapshots(documents, CHAIN)] == ["default", "a"]
