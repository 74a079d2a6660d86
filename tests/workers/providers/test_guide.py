"""The guide to scripts: each of its examples is played as it is printed."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from cookie.config.settings import load_settings
from cookie.models.compile import bindings
from tests.fakes.conversation import Waits, replay
from workers.providers.scripted import Scripted
from workers.providers.scriptfile import _VERBS, parse_script  # the words the guide must explain

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "scripts.md"
_BOX = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Example(NamedTuple):
    line: int
    script: str
    transcript: list[str]


def boxes(language: str) -> list[str]:
    return [box[2] for box in _BOX.finditer(GUIDE.read_text()) if box[1] == language]


def examples() -> list[Example]:
    """Each yaml box, with the text box that follows it."""
    text = GUIDE.read_text()
    found = list(_BOX.finditer(text))
    return [
        Example(
            text.count("\n", 0, box.start()) + 1,
            box[2],
            after[2].splitlines() if after is not None and after[1] == "text" else [],
        )
        for box, after in zip(found, [*found[1:], None], strict=True)
        if box[1] == "yaml"
    ]


@pytest.mark.parametrize("example", examples(), ids=lambda example: f"line-{example.line}")
async def test_an_example_does_what_the_guide_prints(example: Example) -> None:
    lines: list[str] = []
    script = parse_script(example.script, GUIDE.name)

    await replay(Scripted(script, clock=Waits(lines)), example.transcript, lines)

    assert lines == example.transcript


def test_nearly_every_example_has_its_conversation() -> None:
    silent = [example.line for example in examples() if not example.transcript]

    assert len(silent) == 1  # the first one, which is for the real `cookie run`


def test_the_python_of_the_guide_runs() -> None:
    for source in boxes("python"):
        exec(compile(source, GUIDE.name, "exec"), {})


def test_the_config_of_the_guide_finds_its_script(tmp_path: Path) -> None:
    (config,) = boxes("toml")
    (tmp_path / "config.toml").write_text(config)

    (binding, _tour) = bindings(load_settings(tmp_path, tmp_path / "elsewhere"))

    assert (binding.model, binding.adaptor) == ("mine/hello", "scripted")
    assert binding.setup == {"script": str(tmp_path / "hello.yaml")}


def test_every_word_of_the_language_is_in_the_guide() -> None:
    text = GUIDE.read_text()

    assert [verb for verb in _VERBS if f"`{verb}`" not in text and f"`{verb}:" not in text] == []
