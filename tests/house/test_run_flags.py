"""The flags of `cookie run` that choose what runs: variants, presets, and what is not built yet."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.house.runs import Home, home, one_line, resume_words, usage_line

pytestmark = pytest.mark.house

AGENT = """\
---
description: {name}
mode: primary
enabled: true
models: [{{model: hello/script}}]
permissions: {{read: allow}}
---
You are {name}.
"""


@pytest.fixture
def here() -> Iterator[Home]:
    with home() as made:
        text = made.config.read_text()
        for script in ("hello", "refused_key"):
            table = f"[providers.{script}.models.script]\n"
            assert table in text
            variants = f"[providers.{script}.models.script.variants.fast]\n"
            text = text.replace(table, table + variants + 'model_id = "script-fast"\n')
        made.config.write_text(text)
        careful = made.data / "agents" / "careful"
        careful.mkdir(parents=True)
        (made.data / "agents" / "primary.md").write_text(AGENT.format(name="shared"))
        (careful / "primary.md").write_text(AGENT.format(name="careful"))
        yield made
        assert made.left() == []


def started(here: Home, *words: str) -> dict[str, Any]:
    """The selection of the run, and who was to run it."""
    ran = here.run("hello", "--json", *words, "hi")
    assert (ran.code, ran.err) == (0, "")
    (run,) = [one["payload"] for one in ran.events if one["payload"]["type"] == "run_started"]
    return {**run["selection"]["model"], **run["selection"], "prompt": run["agent"]}


def test_a_variant_is_taken_by_its_name_and_base_is_the_model_itself(here: Home) -> None:
    assert started(here)["variant"] is None
    assert started(here, "--variant", "fast")["variant"] == "fast"
    assert started(here, "--continue")["variant"] is None  # the model is named anew
    assert started(here, "--variant", "base")["variant"] == "base"


def test_a_preset_brings_its_own_agents_and_its_session_keeps_it(here: Home) -> None:
    assert json.dumps(started(here)["prompt"]).count("You are shared.") == 1

    chosen = started(here, "--preset", "careful")
    assert chosen["preset"] == "careful"
    assert json.dumps(chosen["prompt"]).count("You are careful.") == 1
    assert started(here, "--continue")["preset"] == "careful"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--variant", "slow"], "there is no variant slow of hello/script; there is: base, fast"),
        (["--preset", "wild"], "there is no preset 'wild'; there is: careful"),
        (["--agent", "nobody"], "there is no agent 'nobody'; there is: primary"),
    ],
)
def test_a_name_that_is_not_here_is_no_set_up(here: Home, words: list[str], told: str) -> None:
    ran = here.run("hello", *words, "hi")

    assert (ran.code, ran.out, one_line(ran.err)) == (5, b"", told)
    assert here.space.trees() == []


def test_the_line_that_goes_on_says_the_variant_and_the_preset_again(here: Home) -> None:
    ran = here.run("refused_key", "--variant", "fast", "--preset", "careful", "hi")

    assert ran.code == 1
    words = resume_words(ran.err)
    assert words[words.index("--variant") + 1] == "fast"
    assert words[words.index("--preset") + 1] == "careful"


def test_skills_are_not_built_yet_and_say_so(here: Home) -> None:
    for words in (["--skill", "review"], ["--skill", "review", "--skill-args", "x"]):
        ran = here.run("hello", *words, "hi")
        assert (ran.code, ran.out) == (2, b"")
        assert one_line(ran.err) == "--skill is not built yet: say in the prompt what to do"
    alone = here.run("hello", "--skill-args", "x", "hi")
    assert (alone.code, usage_line(alone.err)) == (2, "--skill-args needs --skill")


@pytest.mark.parametrize("flag", ["--variant", "--preset", "--agent"])
def test_an_empty_name_is_wrong_usage(here: Home, flag: str) -> None:
    ran = here.run("hello", flag, "", "hi")

    assert ran.code == 2
    assert usage_line(ran.err) == f"{flag} is empty: give it a value or leave it out"
