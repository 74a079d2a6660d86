"""What is guessed of a command and a config before either can be read properly."""

from pathlib import Path

import pytest

from cookie.cli import foresee
from cookie.config.adaptors import HTTP

CONFIG = """
[providers.played]
source = "custom"
adaptor = "scripted"

[ providers.odd ]
[providers."far.one"]
  adaptor='anthropic' # a comment
[providers."far.one".models.m]
model_id = "x"
[providers.near]
adaptor = "openai-chat"
[providers.wrong]
adaptor = "sk-a-key-in-the-wrong-place"
[tool_output]
adaptor = "google-gemini"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".cookie-agent").mkdir()
    (tmp_path / ".cookie-agent" / "config.toml").write_text(CONFIG)
    workspace = tmp_path / "ws" / ".cookie-agent"
    workspace.mkdir(parents=True)
    (workspace / "config.toml").write_text("[providers.mine]\nadaptor = 'google-gemini'\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "ws")
    return tmp_path


def test_what_leaves_is_what_the_config_knows_of() -> None:
    assert set(foresee.HTTP_ADAPTORS) == HTTP


@pytest.mark.parametrize(
    ("words", "adaptors"),
    [
        (["run", "hi"], ["anthropic", "google-gemini", "openai-chat"]),
        (["run", "-m", "rehearsal/tour", "hi"], []),
        (["run", "-m", "played/x", "hi"], []),
        (["run", "-m", "wrong/x", "hi"], []),
        (["run", "-m", "far.one/m", "hi"], ["anthropic"]),
        (["run", "-mnear/m", "hi"], ["openai-chat"]),
        (["run", "--model", "near/m", "hi"], ["openai-chat"]),
        (["run", "--model=mine/m", "hi"], ["google-gemini"]),
        (["run", "--data-dir", "/nowhere", "hi"], ["google-gemini"]),
        (["run", "--data-dir=/nowhere", "-m", "near/m"], []),
        (["run", "-m"], ["anthropic", "google-gemini", "openai-chat"]),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("home")
def test_the_chosen_provider_or_all_there_are(words: list[str], adaptors: list[str]) -> None:
    assert foresee.adaptors(words) == adaptors


@pytest.mark.usefixtures("home")
def test_files_that_can_not_be_read_are_no_trouble(home: Path) -> None:
    config = home / ".cookie-agent" / "config.toml"
    config.write_bytes(b"\xff\xfe[providers.x]\nadaptor = \xff\n" * 20_000)
    assert foresee.adaptors(["run"]) == ["google-gemini"]
    config.unlink()
    config.mkdir()
    assert foresee.adaptors(["run"]) == ["google-gemini"]
    assert foresee.adaptors(["run", "--data-dir", "a\0b"]) == ["google-gemini"]
