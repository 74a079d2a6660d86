"""What the rules say: a table of cases."""

import pytest

from cookie.config.agents import DEFAULT_RULES
from ipc.rules import Action, Effect, Rule
from workers.permissions.match import Decision, decide, visible

WORKSPACE = "/home/me/project"


def rules(*lines: str) -> tuple[Rule, ...]:
    """Rules as "action effect pattern"."""
    made = []
    for line in lines:
        action, effect, resource = line.split(" ", 2)
        made.append(Rule(action=action, effect=effect, resource=resource))
    return tuple(made)


def effect(
    document: tuple[Rule, ...],
    action: Action,
    label: str | None,
    overlay: tuple[Rule, ...] = (),
) -> Effect:
    return decide(document, overlay, action, label, WORKSPACE).effect


@pytest.mark.parametrize(
    ("document", "action", "label", "expected"),
    [
        # nothing matches: deny
        (rules(), "read", "a", "deny"),
        (rules("read allow *"), "write", "a", "deny"),
        (rules("read allow src/*"), "read", "lib/a", "deny"),
        # more literal characters
        (rules("bash allow git *", "bash deny git push*"), "bash", "git push -f", "deny"),
        (rules("bash deny git push*", "bash allow git *"), "bash", "git push -f", "deny"),
        (rules("bash allow git *", "bash deny git push*"), "bash", "git status", "allow"),
        (rules("bash ask *", "bash allow git status"), "bash", "git status", "allow"),
        # then fewer wildcards
        (rules("bash deny a?*", "bash allow a*"), "bash", "ab", "allow"),
        (rules("bash allow a*", "bash deny a?*"), "bash", "ab", "allow"),
        (rules("read allow *a*", "read deny a*"), "read", "ab", "deny"),
        # then the later declaration
        (rules("bash allow ab*", "bash deny a*b"), "bash", "abb", "deny"),
        (rules("bash deny a*b", "bash allow ab*"), "bash", "abb", "allow"),
        (rules("bash allow *", "bash deny *"), "bash", "x", "deny"),
        # `*` crosses slashes and lines
        (rules("read allow src/*"), "read", "src/a/b/c", "allow"),
        (rules("bash allow git *"), "bash", "git status && rm -rf d", "allow"),
        (rules("bash allow git *", "bash deny *rm *"), "bash", "git status; rm d", "allow"),
        (rules("bash allow git *", "bash deny *rm -rf*"), "bash", "git x\nrm -rf d", "deny"),
        (rules("bash deny *\n*"), "bash", "a\nb", "deny"),
        # no label: only a bare effect or `*`
        (rules("plugin allow *"), "plugin", None, "allow"),
        (rules("plugin allow x*", "plugin allow ?*"), "plugin", None, "deny"),
        (rules("plugin allow *", "plugin deny x*"), "plugin", None, "allow"),
        # the workspace, in path actions
        (rules("read allow ${workspace_dir}/*"), "read", "src/a", "allow"),
        (rules("read allow ${workspace_dir}/*"), "read", ".", "allow"),
        (rules("read allow ${workspace_dir}/*"), "read", "/home/me/other", "deny"),
        (rules("read allow ${workspace_dir}/*"), "read", f"artifact://{'0' * 64}", "deny"),
        (rules("write deny ${workspace_dir}/x", "write allow x"), "write", "x", "deny"),
        (rules("read allow /etc/*"), "read", "/etc/passwd", "allow"),
        # and nowhere else: there it is text that no pattern parser would let in
        (rules("bash allow ${workspace_dir}*"), "bash", f"{WORKSPACE}/x", "deny"),
        # artifacts
        (rules("read allow artifact://*"), "read", f"artifact://{'0' * 64}/stdout", "allow"),
        (rules("read allow artifact://*"), "read", "artifact", "deny"),
        # a label is a name and no pattern
        (rules("read deny secret"), "read", "*", "deny"),
        (rules("read allow *", "read deny a[b]"), "read", "ab", "allow"),
    ],
)
def test_the_most_exact_rule_decides(
    document: tuple[Rule, ...], action: Action, label: str | None, expected: Effect
) -> None:
    assert effect(document, action, label) == expected


@pytest.mark.parametrize(
    ("overlay", "label", "expected", "source"),
    [
        (rules("bash allow *"), "git push", "allow", "session_overlay"),
        (rules("bash allow ls*"), "git push", "deny", "agent_document"),
        (rules("read deny *"), "git push", "deny", "agent_document"),
        (rules(), "rm", "deny", "default"),
    ],
)
def test_the_overlay_speaks_first_however_vague_it_is(
    overlay: tuple[Rule, ...], label: str, expected: Effect, source: str
) -> None:
    found = decide(rules("bash deny git push*"), overlay, "bash", label, WORKSPACE)

    assert (found.effect, found.source) == (expected, source)


def test_a_decision_names_its_rule_and_becomes_an_evaluation() -> None:
    document = rules("read ask *", "read deny .env")
    found = decide(document, (), "read", ".env", WORKSPACE)

    assert found == Decision(effect="deny", source="agent_document", rule=document[1])
    evaluation = found.evaluation("read", ".env")
    assert (evaluation.effect, evaluation.label, evaluation.rule) == ("deny", ".env", document[1])


@pytest.mark.parametrize(
    ("document", "overlay", "seen"),
    [
        (rules(), rules(), False),
        (rules("read deny *"), rules(), False),
        (rules("write allow *"), rules(), False),
        (rules("read ask one/file"), rules(), True),
        (rules(), rules("read allow *"), True),
        (rules("read allow *"), rules("read deny *"), True),  # hides nothing
        (rules("read deny *"), rules("read ask x"), True),
    ],
)
def test_a_tool_is_visible_if_any_rule_leaves_a_way_to_it(
    document: tuple[Rule, ...], overlay: tuple[Rule, ...], seen: bool
) -> None:
    assert visible(document, overlay, "read") is seen


# --- the built-in agent, spec 1.9 ----------------------------------------------------------------

SECRET = [
    ".env",
    ".env.local",
    "store-v3.json",
    "token-v1",
    "id_ed25519",
    ".netrc",
    "application_default_credentials.json",
]


@pytest.mark.parametrize("name", SECRET)
@pytest.mark.parametrize("folder", ["", "deep/er/", "/home/me/.ssh/", "/"])
def test_the_default_agent_reads_no_secret_file(folder: str, name: str) -> None:
    assert effect(DEFAULT_RULES, "read", folder + name) == "deny"


@pytest.mark.parametrize(
    ("action", "label", "expected"),
    [
        ("read", "src/main.py", "allow"),
        ("read", ".", "allow"),
        ("read", ".env.example", "allow"),
        ("read", "deploy/.env.example", "allow"),
        ("read", f"artifact://{'0' * 64}/stdout", "allow"),
        ("read", "/etc/passwd", "ask"),
        ("read", "/", "ask"),
        ("write", "src/main.py", "ask"),
        ("write", ".env", "ask"),
        ("write", "/etc/passwd", "ask"),
        ("bash", "ls", "ask"),
        ("bash", "cat .env", "ask"),  # never parsed: bash decides, not read
        ("delegate", "reviewer", "ask"),
        ("webfetch", "https://example.org/", "deny"),
        ("mcp", "server_tool", "deny"),
        ("message", "parent", "deny"),
        ("skill", "x", "deny"),
        ("plugin", None, "deny"),
    ],
)
def test_the_default_agent(action: Action, label: str | None, expected: Effect) -> None:
    assert effect(DEFAULT_RULES, action, label) == expected


def test_the_default_agent_sees_four_actions() -> None:
    actions: list[Action] = [
        "read", "write", "bash", "delegate", "message", "mcp", "plugin", "skill", "webfetch"
    ]  # fmt: skip
    assert [one for one in actions if visible(DEFAULT_RULES, (), one)] == actions[:4]
