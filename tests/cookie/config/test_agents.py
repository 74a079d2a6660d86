"""The synthesized agent and its exact rules."""

import pytest

from cookie.config.agents import DEFAULT_PROMPT, DEFAULT_RULES, NoSuchAgent, agents, choose
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
    (agent,) = agents(CHAIN)

    assert (agent.agent, agent.mode, agent.document_source) == ("default", "primary", "builtin")
    assert (agent.schema, agent.max_output_tokens, agent.delegation) == (6, 0, None)
    assert (agent.composed_prompt, agent.permissions) == (DEFAULT_PROMPT, DEFAULT_RULES)
    assert agent.prompt_fingerprint == prompt_fingerprint(DEFAULT_PROMPT)
    assert agents(CHAIN) == (agent,)


def test_the_document_s_fingerprint_knows_the_chain() -> None:
    other = (FallbackEntry(model=ModelKey("mine/one")),)

    assert agents(CHAIN)[0].document_fingerprint != agents(other)[0].document_fingerprint


def test_an_agent_nobody_defined_is_refused_with_what_there_is() -> None:
    with pytest.raises(NoSuchAgent) as refused:
        choose(agents(CHAIN), "reviewer")

    assert str(refused.value) == "there is no agent 'reviewer'; there is: default"
    assert choose(agents(CHAIN), None) == choose(agents(CHAIN), "default")
