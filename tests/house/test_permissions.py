"""Rules at work in real runs: what is offered, asked, refused and done; and what explains it."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.house.runs import COOKIE, YOLO, Home, home, one_line, usage_line

pytestmark = pytest.mark.house

REVIEWER = """\
---
description: Reviews
mode: primary
enabled: true
models:
  - { model: "talk/script" }
permissions:
  read:
    "*": allow
    "*secret*": deny
    "${workspace_dir}/notes/*": ask
  bash:
    "*": ask
    "rm *": deny
  write: deny
---
Review.
"""
DOOM = (
    '{"kind":"tool_denied","source":"doom_loop_guard","reason":"doom_loop_detected","feedback":'
    '"the same call was asked for again and again without anything else in between; '
    'do something different"}\n'
)


def denied(feedback: str) -> str:
    """What a model is told about a hard deny, as the script repeats it."""
    return (
        '{"kind":"tool_denied","source":"policy","reason":"policy_denied",'
        f'"feedback":"{feedback}"}}\n'
    )


@pytest.fixture
def here() -> Iterator[Home]:
    with home() as made:
        agents = made.workspace / ".cookie-agent" / "agents"
        agents.mkdir(parents=True)
        (agents / "reviewer.md").write_text(REVIEWER)
        yield made
        assert made.left() == []


def talk(here: Home, script: str) -> None:
    """Have the model `talk/script` play this."""
    (here.data / "talk.yaml").write_text(dedent(script))
    here.config.write_text(
        '[providers.talk]\nsource = "custom"\nadaptor = "scripted"\n'
        'setup = { script = "talk.yaml" }\n[providers.talk.models.script]\n'
    )


def once(here: Home, tool: str, **arguments: Any) -> None:
    """Have it make one call and repeat what it was told."""
    call = json.dumps({"name": tool, "args": arguments})
    talk(here, f'- call: {call}\n- say: "${{last_tool_output}}"\n')


def payloads(here: Home) -> list[dict[str, Any]]:
    return [json.loads(line)["payload"] for line in here.log().splitlines()]


def of(here: Home, kind: str) -> list[dict[str, Any]]:
    return [one for one in payloads(here) if one["type"] == kind]


# --- the doom loop -------------------------------------------------------------------------------


def test_the_fourth_time_in_a_row_is_refused_in_yolo_too_and_the_run_goes_on(here: Home) -> None:
    talk(
        here,
        """\
        - repeat: 5
          steps:
            - call: {name: bash, args: {command: echo again >> effects.txt}}
        - say: "${last_tool_output}"
        """,
    )

    ran = here.run("talk", *YOLO, "go")

    assert (ran.code, ran.text, ran.err) == (0, DOOM, "")
    assert here.space.effects() == ["again"] * 3
    assert [one["repetitions"] for one in of(here, "approval_doom_loop_detected")] == [4, 5]
    reasons = [one["decision"]["reason_code"] for one in of(here, "approval_finalized")]
    assert reasons == ["yolo_approved"] * 3 + ["doom_loop_detected"] * 2


def test_four_of_a_kind_in_one_turn_are_a_doom_loop_and_something_else_in_between_is_none(
    here: Home,
) -> None:
    talk(
        here,
        """\
        - when: {round: 1}
          steps:
            - call: {name: bash, args: {command: echo again >> effects.txt}}
              repeat: 4
        - when: {round: 2}
          steps:
            - call: {name: bash, args: {command: echo other >> effects.txt}}
        - when: {round: 3}
          steps:
            - call: {name: bash, args: {command: echo again >> effects.txt}}
        - when: {}
          steps:
            - say: done
        """,
    )

    ran = here.run("talk", *YOLO, "go")

    assert (ran.code, ran.text) == (0, "done\n")
    assert here.space.effects() == [*["again"] * 3, "other", "again"]
    assert [one["repetitions"] for one in of(here, "approval_doom_loop_detected")] == [4]


# --- denied --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["yolo", "auto-approve-y", "auto-approve"])
def test_a_deny_of_a_document_stands_in_every_mode_and_the_run_goes_on(
    here: Home, mode: str
) -> None:
    once(here, "bash", command="rm seed.txt")

    ran = here.run("talk", "--agent", "reviewer", "--permission-mode", mode, "go")

    assert (ran.code, ran.text) == (0, denied("denied by the rule bash: rm *"))
    assert (here.workspace / "seed.txt").exists()
    assert not [one for one in payloads(here) if one["type"].startswith("approval_")]
    (ended,) = of(here, "tool_call_terminated")
    assert (ended["outcome"], ended["error"]["code"]) == ("failed", "tool_denied")
    assert ended["error"]["message"] + "\n" == ran.text


def test_a_path_is_judged_by_where_it_leads_as_text(here: Home) -> None:
    (here.workspace / "secret.txt").write_text("hush")
    once(here, "read", filePath="./docs/../secret.txt")

    ran = here.run("talk", "--agent", "reviewer", *YOLO, "go")

    assert (ran.code, ran.text) == (0, denied("denied by the rule read: *secret*"))


def test_what_is_not_offered_is_refused_when_it_is_called_all_the_same(here: Home) -> None:
    talk(
        here,
        """\
        - {when: {tools_include: write}, steps: [say: I could write.]}
        - when: {round: 1, tools_include: [read, bash]}
          steps:
            - call: {name: write, args: {filePath: made.txt, content: x}}
        - when: {tool: write}
          steps:
            - say: "${last_tool_output}"
        """,
    )

    ran = here.run("talk", "--agent", "reviewer", *YOLO, "go")
    assert (ran.code, ran.text) == (0, denied("denied by the rule write: *"))
    assert not (here.workspace / "made.txt").exists()

    allowed = here.run("talk", "--agent", "reviewer", "--allowed-tools", "write", "go")
    assert (allowed.code, allowed.text) == (0, "I could write.\n")


def test_an_allowed_tool_is_laid_over_a_deny_of_the_document(here: Home) -> None:
    once(here, "write", filePath="made.txt", content="x")

    ran = here.run("talk", "--agent", "reviewer", "--allowed-tools", "write", "go")

    assert (ran.code, ran.err) == (0, "")
    assert (here.workspace / "made.txt").read_text() == "x"
    assert not [one for one in payloads(here) if one["type"].startswith("approval_")]


# --- asked ---------------------------------------------------------------------------------------


def test_an_ask_of_a_document_ends_the_run_with_the_flag_that_would_allow_it(here: Home) -> None:
    (here.workspace / "notes").mkdir()
    (here.workspace / "notes" / "a").write_text("noted")
    once(here, "read", filePath="notes/a")
    reviewer = ["--agent", "reviewer"]

    ran = here.run("talk", *reviewer, "go")
    assert ran.code == 3
    assert one_line(ran.err) == (
        "stopped: read 'notes/a' must be asked for and nobody can answer here; "
        "allow it with --allowed-tools read, or everything with --permission-mode yolo"
    )
    (asked,) = of(here, "approval_requested")
    (evaluated,) = asked["request"]["evaluations"]
    assert evaluated == {
        "action": "read",
        "effect": "ask",
        "source": "agent_document",
        "label": "notes/a",
        "rule": {"action": "read", "resource": "${workspace_dir}/notes/*", "effect": "ask"},
    }


def test_the_flag_that_was_named_lets_it_pass(here: Home) -> None:
    (here.workspace / "notes").mkdir()
    (here.workspace / "notes" / "a").write_text("noted")
    once(here, "read", filePath="notes/a")

    ran = here.run("talk", "--agent", "reviewer", "--allowed-tools", "read", "go")

    assert (ran.code, ran.err) == (0, "")
    assert "1: noted" in ran.text


# --- explained -----------------------------------------------------------------------------------


def explain(here: Home, *words: str) -> Any:
    data = ["--data-dir", str(here.data)]
    return here.command([*COOKIE, "permissions", "explain", *data, *words])


def test_a_call_is_explained_as_a_run_decides_it(here: Home) -> None:
    before = sorted(here.path.rglob("*"))
    document = ".cookie-agent/agents/reviewer.md"

    ran = explain(here, "--agent", "reviewer", '{"name":"bash","arguments":{"command":"rm a"}}')

    assert (ran.code, ran.err) == (0, "")
    assert ran.text == (
        f"agent      reviewer ({document})\n"
        "tool       bash (offered)\n"
        "action     bash\n"
        "label      rm a\n"
        "\n"
        "These rules match, the strongest first:\n"
        f"   1  deny   rm *  {document}:14\n"
        f"   2  ask    *     {document}:13\n"
        "Rule 1 decides: it has more literal characters than rule 2 (3, not 0).\n"
        "\n"
        "deny: it is refused in every mode, yolo too; the model is told, and the run goes on.\n"
    )
    assert sorted(here.path.rglob("*")) == before


def test_flags_mode_and_the_built_in_agent_are_explained_too(here: Home) -> None:
    flags = ["--allowed-tools", "bash,read", "--allowed-tools", "write"]
    laid_over = explain(here, "-a", "reviewer", *flags, "edit: secret.txt")
    assert laid_over.code == 0
    assert "   1  allow  *  --allowed-tools write\n" in laid_over.text
    assert laid_over.text.endswith("allow: it runs without a question, in every mode.\n")

    (here.workspace / ".cookie-agent" / "agents" / "reviewer.md").unlink()
    asked = explain(here, "--permission-mode", "yolo", "bash: ls")
    assert asked.text.splitlines()[0] == "agent      default (built in)"
    assert "In yolo:\n  nobody to ask, as in `cookie run`: it runs\n" in asked.text


def test_words_that_stand_for_no_call_are_told_which_do(here: Home) -> None:
    wrong = explain(here, "git status")
    assert (wrong.code, wrong.out) == (2, b"")
    assert usage_line(wrong.err) == (
        "Invalid value for 'TOOL_CALL': there is no 'git status'; a call begins with one of read, "
        "write, edit, bash, delegate, message, mcp, plugin, skill, webfetch. "
        "Write it like 'bash: git status'"
    )

    nobody = explain(here, "--agent", "nobody", "bash: ls")
    assert (nobody.code, one_line(nobody.err)) == (
        5,
        "there is no agent 'nobody'; there is: reviewer",
    )


def test_the_guide_explains_what_it_shows(here: Home) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "permissions.md").read_text()
    (document,) = re.findall("```markdown\n(.*?)```", guide, re.DOTALL)
    (command, output) = re.findall(r"```text\n\$ cookie (.*?)\n(.*?)```", guide, re.DOTALL)[0]
    (here.workspace / ".cookie-agent" / "agents" / "primary.md").write_text(document)

    assert explain(here, *shlex.split(command)[2:]).text == output
    loses = explain(here, "--allowed-tools", "bash", "bash: git push")
    assert loses.text.endswith("allow: it runs without a question, in every mode.\n")
