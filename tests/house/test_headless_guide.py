"""The guide to headless runs: each recipe runs as it is printed, each flag it names is there."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.runs import COOKIE, YOLO, Home, home

pytestmark = pytest.mark.house

GUIDES = Path(__file__).parents[2] / "docs" / "guide"
GUIDE = (GUIDES / "headless.md").read_text()
RECIPES = re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def here() -> Iterator[Home]:
    with home() as made:
        command = made.path / "cookie"
        command.write_text(f'#!/bin/sh\nexec {" ".join(COOKIE)} "$@"\n')
        command.chmod(0o700)
        made.env["PATH"] = f"{made.path}:{made.env['PATH']}"
        # The config of the folder, so that it is there for whatever HOME a recipe chooses.
        (made.workspace / ".cookie-agent").mkdir()
        made.config.rename(made.workspace / ".cookie-agent" / "config.toml")
        (made.workspace / "task.md").write_text("Do it.\n")
        yield made
        assert made.left() == []


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.splitlines()[0][:40])
def test_a_recipe_runs_as_it_is_printed(here: Home, recipe: str) -> None:
    if "jq" in recipe and shutil.which("jq") is None:
        pytest.skip("there is no jq")

    ran = here.command(["bash", "-c", recipe])

    assert (ran.code, ran.err) == (0, "")
    if "answer.md" in recipe:
        assert ran.text == "done\n"
        assert (here.workspace / "answer.md").read_text() == "Hello from the script.\n"
    if "session.jsonl" in recipe:
        assert ran.text == "Hello from the script.\n"
        exported = (here.workspace / "session.jsonl").read_bytes().splitlines()
        assert {json.loads(line)["seq"] for line in exported} == set(range(1, len(exported) + 1))
    if "plan.jsonl" in recipe:
        log = next((here.path / ".cookie-agent" / "sessions").glob("*/*/events.jsonl"))
        assert log.read_bytes().count(b'"run_started"') == 3
    if "Task number" in recipe:
        assert ran.text.count("Task number") == 3


def test_the_recipes_are_found() -> None:
    assert len(RECIPES) == 6


def test_the_summary_is_as_it_is_printed(here: Home) -> None:
    (printed,) = re.findall(r"^```json\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    words = [*COOKIE, "run", "--json", "-m", "hello/script", *YOLO, "hi"]

    summary = here.command(words).summary

    shown = json.loads(printed)
    assert list(shown) == list(summary)
    assert set(shown["usage"]) <= set(summary["usage"])


def test_every_flag_and_command_that_the_guides_name_is_there(here: Home) -> None:
    helped = {
        command: here.command([*COOKIE, *command.split(), "--help"]).text
        for command in ("run", "sessions list", "sessions export", "sessions prune", "doctor")
    }
    known = {flag for text in helped.values() for flag in re.findall(r"--[a-z-]+", text)}
    for name in ("headless.md", "sessions.md"):
        named = set(re.findall(r"`[^`\n]*?(--[a-z][a-z-]+)", (GUIDES / name).read_text()))
        assert named - known == set(), name
