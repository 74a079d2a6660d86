"""Errands: what an order comes to, and the process that takes one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ipc.errands import (
    EXPLAIN,
    Consequence,
    Explain,
    Explained,
    Explanation,
    Unreadable,
    Weighed,
)
from ipc.rules import ACTIONS, MODES, PermissionMode, Rule
from workers.errands import explain
from workers.tools import TOOLS

ROOT = Path(__file__).resolve().parents[2]
RULES = (
    Rule(action="read", resource="*", effect="allow"),
    Rule(action="bash", resource="*", effect="ask"),
    Rule(action="bash", resource="git *", effect="allow"),
    Rule(action="bash", resource="git push*", effect="deny"),
    Rule(action="plugin", resource="*", effect="deny"),
)
ALLOW_WRITE = (Rule(action="write", resource="*", effect="allow"),)


def order(name: str, text: str | None = None, **changes: Any) -> Explain:
    whole: dict[str, Any] = {
        "rules": RULES, "overlay": (), "workspace": "/w", "mode": "auto_approve",
    }  # fmt: skip
    return Explain(name=name, text=text, **(whole | changes))


def explained(name: str, text: str | None = None, **changes: Any) -> Explained:
    found = explain(order(name, text, **changes))
    assert isinstance(found, Explained)
    return found


def test_a_call_is_weighed_by_all_rules_that_match() -> None:
    assert explained("bash", "git push -f") == Explained(
        tool="bash",
        action="bash",
        label="git push -f",
        tools=("bash",),
        visible=True,
        rules=3,
        weighed=(
            Weighed(source="agent_document", place=3, rule=RULES[3], literal=8, wildcards=1),
            Weighed(source="agent_document", place=2, rule=RULES[2], literal=4, wildcards=1),
            Weighed(source="agent_document", place=1, rule=RULES[1], literal=0, wildcards=1),
        ),
        effect="deny",
        unattended=Consequence(outcome="deny", reason="policy_denied"),
        attended=Consequence(outcome="deny", reason="policy_denied"),
    )


RUNS, ASKS = Consequence(outcome="allow"), Consequence(outcome="ask")
UNATTENDED = Consequence(outcome="deny", reason="unattended", ends_run=True)
REJECTED = Consequence(outcome="deny", reason="auto_approve_n_rejected")
ENDED = msgspec.structs.replace(REJECTED, ends_run=True)


@pytest.mark.parametrize(
    ("mode", "unattended", "attended"),
    [
        ("auto_approve", UNATTENDED, ASKS),
        ("auto_approve_n", ENDED, REJECTED),
        ("auto_approve_y", RUNS, RUNS),
        ("ask", UNATTENDED, ASKS),
        ("yolo", RUNS, RUNS),
    ],
)
def test_an_ask_becomes_what_the_gate_makes_of_it(
    mode: PermissionMode, unattended: Consequence, attended: Consequence
) -> None:
    found = explained("bash", "ls", mode=mode)

    assert (found.effect, found.unattended, found.attended) == ("ask", unattended, attended)


@pytest.mark.parametrize("mode", MODES)
def test_no_mode_changes_an_allow_or_a_deny(mode: PermissionMode) -> None:
    allowed, denied = explained("read", "a", mode=mode), explained("bash", "git push", mode=mode)

    assert (allowed.unattended, allowed.attended) == (RUNS, RUNS)
    assert denied.unattended == Consequence(outcome="deny", reason="policy_denied")


@pytest.mark.parametrize(
    ("name", "text", "tool", "action", "label"),
    [
        ("read", "./a/../b", "read", "read", "b"),
        ("read", "/w", "read", "read", "."),
        ("read", "../x", "read", "read", "/x"),
        ("read", "artifact://00ff/stdout", "read", "read", "artifact://00ff/stdout"),
        ("edit", "/w/a", "edit", "write", "a"),
        ("bash", "  ls\n", "bash", "bash", "  ls\n"),
        ("delegate", "reviewer", None, "delegate", "reviewer"),
        ("mcp", "github_list", None, "mcp", "github_list"),
        ("plugin", None, None, "plugin", None),
    ],
)
def test_a_persons_words_become_the_label_that_the_tool_would_make(
    name: str, text: str | None, tool: str | None, action: str, label: str | None
) -> None:
    found = explained(name, text)

    assert (found.tool, found.action, found.label) == (tool, action, label)


@pytest.mark.parametrize("name", [*TOOLS, *ACTIONS])
def test_every_tool_and_every_action_can_be_named(name: str) -> None:
    assert explained(name, "x").action in ACTIONS


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("grep", "x", "there is no 'grep'"),
        ("", "x", "there is no ''"),
        ("Bash", "x", "there is no 'Bash'"),
        ("bash", None, "it does not say what bash is given"),
        ("read", "", "it does not say what read is given"),
    ],
)
def test_other_words_stand_for_no_call(name: str, text: str | None, reason: str) -> None:
    found = explain(order(name, text))

    assert isinstance(found, Unreadable)
    assert found.reason == reason
    assert {*TOOLS, *ACTIONS} == set(found.names)


def test_a_models_call_is_taken_as_a_run_takes_it() -> None:
    found = explained("read", arguments='{"filePath": "/w/./a"}')
    assert (found.tool, found.label, found.effect, found.refused) == ("read", "a", "allow", None)

    unknown = explained("grep", arguments="{}")
    assert (unknown.tool, unknown.action, unknown.effect) == (None, None, "deny")
    assert unknown.refused is not None
    assert unknown.refused.startswith('unknown_tool: There is no tool "grep".')

    wrong = explained("bash", arguments='{"cmd": "ls"}')
    assert wrong.tool == "bash"
    assert wrong.refused is not None
    assert wrong.refused.startswith("invalid_arguments: ")


def test_tools_are_offered_by_either_layer() -> None:
    assert not explained("write", "a").visible
    assert explained("write", "a", overlay=ALLOW_WRITE).visible
    assert not explained("plugin", "a").visible  # a rule that denies shows nothing


# --- the process ---------------------------------------------------------------------------------


def errand(given: bytes, *flags: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-P", "-m", "workers", *flags],
        check=False,
        input=given,
        capture_output=True,
        env={"PYTHONPATH": str(ROOT)},
        timeout=30,
    )


# Between two processes of one build, so that it may change; this is what it is today.
ASKED: dict[str, Any] = {
    "rules": [{"action": "bash", "resource": "git *", "effect": "allow"}],
    "overlay": [],
    "workspace": "/w",
    "mode": "yolo",
    "name": "bash",
    "text": "git status",
    "arguments": None,
}
ANSWERED: dict[str, Any] = {
    "type": "explained",
    "tool": "bash",
    "refused": None,
    "action": "bash",
    "label": "git status",
    "tools": ["bash"],
    "visible": True,
    "rules": 1,
    "weighed": [
        {
            "source": "agent_document",
            "place": 0,
            "rule": {"action": "bash", "resource": "git *", "effect": "allow"},
            "literal": 4,
            "wildcards": 1,
        }
    ],
    "effect": "allow",
    "unattended": {"outcome": "allow", "reason": None, "ends_run": False},
    "attended": {"outcome": "allow", "reason": None, "ends_run": False},
}


@pytest.mark.house
def test_an_errand_worker_takes_one_order_and_gives_one_answer() -> None:
    done = errand(json.dumps(ASKED).encode(), EXPLAIN)

    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == ANSWERED
    assert msgspec.json.decode(done.stdout, type=Explanation) == explain(
        msgspec.convert(ASKED, Explain)
    )


@pytest.mark.house
def test_a_worker_that_can_not_do_its_errand_says_so_and_gives_no_answer() -> None:
    broken = errand(b'{"rules":', EXPLAIN)
    assert (broken.returncode, broken.stdout) == (70, b"")
    assert b"truncated" in broken.stderr.splitlines()[-1]

    unknown = errand(b"", "--errand=teleport")
    assert (unknown.returncode, unknown.stdout) == (2, b"")
    assert unknown.stderr == b"usage: python -m workers --errand=explain <ORDER >ANSWER\n"
