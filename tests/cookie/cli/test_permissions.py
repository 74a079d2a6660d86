"""What `cookie permissions explain` reads, and the page it prints."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

from cookie.cli.permissions import _call, _page, _Subject
from cookie.config.agents import default_agent, load_agents, snapshot
from cookie.config.documents import BadDocument
from cookie.config.frontmatter import rule_lines
from ipc.errands import Consequence, Explained, Weighed
from ipc.rules import Rule

DOCUMENT = """\
---
description: Works
mode: primary
enabled: true
models:
  - { model: "a/b" }
permissions:   # in this order
  read: allow

  bash:
    "*": ask
    "git *":
      allow
    "git push*": deny
---
Work.
"""
LINES = (8, 11, 12, 14)
RUNS, ASKS = Consequence(outcome="allow"), Consequence(outcome="ask")
UNATTENDED = Consequence(outcome="deny", reason="unattended", ends_run=True)
DENIED = Consequence(outcome="deny", reason="policy_denied")


@pytest.fixture
def subject(tmp_path: Path) -> _Subject:
    """An agent with a document in the workspace, and two flags."""
    folder = tmp_path / ".cookie-agent" / "agents"
    folder.mkdir(parents=True)
    (folder / "primary.md").write_text(DOCUMENT)
    documents = load_agents(tmp_path / "data", tmp_path).effective()
    (document,) = documents.values()
    return _Subject(
        snapshot=snapshot(document, documents),
        document=document,
        flags=("write", "skill:review"),
        workspace=str(tmp_path),
    )


def weighed(place: int, pattern: str, effect: Any, source: Any = "agent_document") -> Weighed:
    wildcards = pattern.count("*")
    return Weighed(
        source=source,
        place=place,
        rule=Rule(action="bash", resource=pattern, effect=effect),
        literal=len(pattern) - wildcards,
        wildcards=wildcards,
    )


STAR, GIT = weighed(1, "*", "ask"), weighed(2, "git *", "allow")
PUSH = weighed(3, "git push*", "deny")


def bash(*rules: Weighed, **changes: Any) -> Explained:
    found = Explained(
        tool="bash",
        action="bash",
        label="git push -f",
        tools=("bash",),
        visible=True,
        rules=3,
        weighed=rules,
        effect=rules[0].rule.effect if rules else "deny",
        unattended=UNATTENDED,
        attended=ASKS,
    )
    return msgspec.structs.replace(found, **changes)


def page(found: Explained, subject: _Subject) -> str:
    return "\n".join(_page(found, subject, "auto_approve"))


def test_a_deny_is_shown_with_the_line_of_each_rule(subject: _Subject) -> None:
    assert page(bash(PUSH, GIT, STAR), subject) == (
        "agent      primary (.cookie-agent/agents/primary.md)\n"
        "tool       bash (offered)\n"
        "action     bash\n"
        "label      git push -f\n"
        "\n"
        "These rules match, the strongest first:\n"
        "   1  deny   git push*  .cookie-agent/agents/primary.md:14\n"
        "   2  allow  git *      .cookie-agent/agents/primary.md:12\n"
        "   3  ask    *          .cookie-agent/agents/primary.md:11\n"
        "Rule 1 decides: it has more literal characters than rule 2 (8, not 4).\n"
        "\n"
        "deny: it is refused in every mode, yolo too; the model is told, and the run goes on."
    )


def test_an_ask_is_shown_with_what_the_mode_does(subject: _Subject) -> None:
    assert page(bash(STAR), subject).partition("\n\n")[2] == (
        "These rules match, the strongest first:\n"
        "   1  ask    *  .cookie-agent/agents/primary.md:11\n"
        "Rule 1 decides: no other matches.\n"
        "\n"
        "ask: what happens then depends on the mode. In auto-approve:\n"
        "  nobody to ask, as in `cookie run`: it is refused (unattended), and the run ends "
        "(exit code 3)\n"
        "  somebody to ask:                   that person decides\n"
        "Asked for a fourth time with nothing else in between, it is refused in every mode."
    )


def test_a_rule_of_the_command_line_is_shown_as_its_flag(subject: _Subject) -> None:
    flag = weighed(1, "*", "allow", "session_overlay")

    assert page(bash(flag, PUSH), subject).partition("\n\n")[2] == (
        "These rules match, the strongest first:\n"
        "   1  allow  *          --allowed-tools skill:review\n"
        "   2  deny   git push*  .cookie-agent/agents/primary.md:14\n"
        "Rule 1 decides: what is laid over the agent's rules comes before them.\n"
        "\n"
        "allow: it runs without a question, in every mode."
    )


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (weighed(2, "*a*", "ask"), "as rule 2 and fewer wildcards (1, not 2)"),
        (weighed(0, "b*", "ask"), "it is as exact as rule 2 and declared after it"),
        (weighed(2, "*", "ask"), "it has more literal characters than rule 2 (1, not 0)"),
    ],
)  # fmt: skip
def test_the_reason_is_the_first_difference_of_two_rules(
    subject: _Subject, second: Weighed, why: str
) -> None:
    assert f"{why}.\n" in page(bash(weighed(1, "a*", "allow"), second), subject)


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (bash(), "None of the 3 rules for bash matches."),
        (bash(rules=0), "There is no rule for bash."),
        (
            bash(visible=False),
            "tool       bash (not offered: no rule of its action allows or asks)",
        ),
        (bash(tool=None), "tool       bash (offered)"),
        (bash(tool=None, tools=("write", "edit")), "tool       write, edit (offered)"),
        (bash(tool=None, tools=()), "tool       no tool of this build falls under bash"),
        (bash(label=None), "label      none"),
        (bash(label="a\x1b[2Jb\nc"), "label      a\ufffd[2Jb\ufffdc"),
        (bash(label="x" * 10_000), f"label      {'x' * 399}\u2026"),
        (Explained(refused="x: no"), "No rule is asked. The model is told: x: no"),
        (Explained(refused="x"), "tool       none of that name"),
    ],
)  # fmt: skip
def test_each_line_says_how_it_is(subject: _Subject, found: Explained, line: str) -> None:
    assert line in page(found, subject).splitlines()


@pytest.mark.parametrize(
    ("one", "line"),
    [
        (RUNS, "it runs"),
        (ASKS, "that person decides"),
        (UNATTENDED, "it is refused (unattended), and the run ends (exit code 3)"),
        (DENIED, "it is refused (policy_denied), and the run goes on"),
    ],
)
def test_a_consequence_is_told(subject: _Subject, one: Consequence, line: str) -> None:
    lines = page(bash(STAR, attended=one), subject).splitlines()

    assert f"  somebody to ask:                   {line}" in lines


def test_the_rules_of_the_built_in_agent_are_in_no_file(subject: _Subject) -> None:
    built_in = default_agent(())
    place = [rule.resource for rule in built_in.permissions].index(".env")
    mine = msgspec.structs.replace(subject, snapshot=built_in, document=None)

    shown = page(bash(weighed(place, ".env", "deny")), mine).splitlines()

    assert shown[0] == "agent      default (built in)"
    assert shown[6] == "   1  deny   .env  built in"


# --- where rules are -----------------------------------------------------------------------------


def test_each_rule_has_its_line(subject: _Subject, tmp_path: Path) -> None:
    assert subject.document is not None
    path = Path(subject.document.path)
    assert rule_lines(path) == LINES
    assert len(subject.snapshot.permissions) == len(LINES)

    path.write_text(DOCUMENT.replace('    "git *":\n      allow\n', ""))
    assert subject.origins() == (".cookie-agent/agents/primary.md",) * 4  # it changed under us
    path.unlink()
    assert subject.origins() == (".cookie-agent/agents/primary.md",) * 4
    with pytest.raises(BadDocument):
        rule_lines(path)


@pytest.mark.parametrize("head", ["", "permissions:", "permissions: x", "permissions: [a]", "- a"])
def test_a_document_without_rules_has_no_lines(tmp_path: Path, head: str) -> None:
    (tmp_path / "a.md").write_text(f"---\n{head}\n---\nx\n")

    assert rule_lines(tmp_path / "a.md") == ()


# --- what is asked -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "name", "text", "arguments"),
    [
        ("bash: git status", "bash", "git status", None),
        ("bash:git status", "bash", "git status", None),
        ("bash:  ls ", "bash", " ls ", None),
        ("bash: echo a: b", "bash", "echo a: b", None),
        ("bash: {a,b}", "bash", "{a,b}", None),
        (" read : a", "read", "a", None),
        ("plugin", "plugin", None, None),
        ("bash:", "bash", "", None),
        ("", "", None, None),
        ('{"name": "bash", "arguments": {"command": "ls"}}', "bash", None, '{"command": "ls"}'),
        ('{"name": "a", "arguments": "{\\"b\\": \\"c\\"}"}', "a", None, '{"b": "c"}'),
        (' {"name": "bash"}', "bash", None, "{}"),
        ('{"name": "bash", "arguments": [1]}', "bash", None, "[1]"),  # the tool says what is wrong
    ],
)  # fmt: skip
def test_words_are_a_call(words: str, name: str, text: str | None, arguments: str | None) -> None:
    assert _call(words) == (name, text, arguments)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("{", "it is no {"),
        ('{"tool": "bash"}', "it is no {"),
        ('{"name": "bash", "input": {}}', "unknown field `input`"),
        ('{"name": 1}', "it is no {"),
        ('{"name": "bash", "arguments": "\\ud800"}', "it is no {"),
        ("bash: \udcff", "it is not UTF-8"),
    ],
)
def test_other_words_are_told_what_is_wrong(words: str, reason: str) -> None:
    with pytest.raises(typer.BadParameter) as told:
        _call(words)

    assert reason in told.value.message
    assert told.value.message.endswith("Write it like 'bash: git status'")
