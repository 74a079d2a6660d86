"""The guide to models: each box is a config that is right, and its models can be used."""

import re
from pathlib import Path
from typing import get_args

import pytest

from cookie.config.check import inspect, not_in_force
from cookie.models.families import TOUR, compiled
from ipc.events import ModelErrorKind

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "guide" / "models.md").read_text()
BOXES = [
    (f"{name}-{text.count(chr(10), 0, box.start()) + 1}", box[1])
    for name, text in (("models", GUIDE), ("README", (ROOT / "README.md").read_text()))
    for box in re.finditer(r"^```toml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
]
ENVIRON = dict.fromkeys(re.findall(r"\$\{env:(\w+)", GUIDE), "http://me:pw@proxy.example:3128")
UNSEEN = {"invalid_tool_input", "replay", "native_context"}  # never the end of an attempt yet


@pytest.mark.parametrize("text", [box for _, box in BOXES], ids=[name for name, _ in BOXES])
def test_a_box_of_the_guide_is_right_and_its_models_can_be_used(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)

    found = inspect(tmp_path, tmp_path / "ws", ENVIRON)

    assert [str(one) for one in found.wrong] == []
    assert found.config is not None
    models = [one for one in compiled(found.config.settings) if one.key != TOUR]
    assert {one.key: one.unavailable for one in models if one.unavailable is not None} == {}
    assert models or "[http]" in text
    assert not_in_force(found.layers) == []


def test_the_boxes_are_found() -> None:
    assert len(BOXES) == 9


def test_every_kind_of_failure_is_explained() -> None:
    table = GUIDE.partition("| kind |")[2]
    rows = [row.split("|") for row in table.splitlines() if row.startswith("| `")]
    named = [kind for row in rows for kind in re.findall(r"`(\w+)`", row[1])]

    assert sorted(named) == sorted(set(get_args(ModelErrorKind)) - UNSEEN)
    assert all(len(row) == 5 and row[2].strip() and row[3].strip() for row in rows)
