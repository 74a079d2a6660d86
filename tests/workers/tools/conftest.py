"""A workspace and its room, fresh for each test."""

from pathlib import Path

import pytest

from tests.fakes.room import FakeRoom


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


@pytest.fixture
def room(workspace: Path) -> FakeRoom:
    return FakeRoom(workspace)
