"""The failpoint before an effect: a worker that dies there has done nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import asyncio, sys
from pathlib import Path
from tests.fakes.room import FakeRoom
from workers.tools import TOOLS
from workers.tools.base import parse

call = parse(sys.argv[1], sys.argv[2], TOOLS)
asyncio.run(call.run(FakeRoom(Path(sys.argv[3]))))
"""

pytestmark = pytest.mark.house


def run(workspace: Path, tool: str, arguments: str, failpoint: str) -> int:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, tool, arguments, str(workspace)],
        check=False,
        cwd=ROOT,
        env={"COOKIE_FP": failpoint, "PATH": os.defpath},
        stderr=subprocess.DEVNULL,
        timeout=50,
    ).returncode


@pytest.mark.parametrize(
    ("tool", "arguments", "after"),
    [
        ("write", '{"filePath":"f","content":"new"}', "new"),
        ("edit", '{"filePath":"f","oldString":"old","newString":"new"}', "new"),
        ("bash", '{"command":"printf new > f"}', "new"),
    ],
)
def test_a_tool_that_dies_before_its_effect_has_had_none(
    tmp_path: Path, tool: str, arguments: str, after: str
) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "f").write_text("old")
    assert run(workspace, tool, arguments, "tool.effect:1:exit=7") == 7
    assert (workspace / "f").read_text() == "old"
    assert [path.name for path in workspace.iterdir()] == ["f"]

    assert run(workspace, tool, arguments, "tool.effect:2:exit=7") == 0  # once a call, no more
    assert (workspace / "f").read_text() == after
