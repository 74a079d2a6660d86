"""The guide to the configuration: each example loads, and its defaults are the real ones."""

import re
from pathlib import Path

import pytest

from cookie.config.settings import EVERY_RUN, load_config
from cookie.config.tables import KINDS, ApprovalTable

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "config.md"
BOXES = [
    (GUIDE.read_text().count("\n", 0, box.start()) + 1, box[1])
    for box in re.finditer(r"^```toml\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
]
ENVIRON = {"MY_KEY": "k", "GITHUB_TOKEN": "t", "MY_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize("text", [box for _, box in BOXES], ids=[f"line-{n}" for n, _ in BOXES])
def test_an_example_of_the_guide_loads(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)

    assert load_config(tmp_path, tmp_path / "ws", ENVIRON).unusable == {}


def test_what_is_commented_out_loads_too(tmp_path: Path) -> None:
    tables = re.sub(r"^# (\w+ = )", r"\1", BOXES[0][1], flags=re.MULTILINE)
    assert tables != BOXES[0][1]
    (tmp_path / "config.toml").write_text(tables)

    assert load_config(tmp_path, tmp_path / "ws", ENVIRON).unusable == {}


def test_the_tables_of_the_guide_are_all_there_are_and_have_their_defaults(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(BOXES[0][1])
    settings = load_config(tmp_path, tmp_path / "ws", ENVIRON).settings

    found = {name: getattr(settings, name) for name in EVERY_RUN} | settings.others
    defaults = {name: kind() for name, kind in (EVERY_RUN | KINDS).items()}
    assert found == defaults | {"approval": ApprovalTable(timeout_ms=30_000)}
