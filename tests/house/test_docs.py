"""The generated pages say what the code says, and a page that does not is found."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.house


def generate(docs: Path, *flags: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the generator of `root` on the pages in `docs`."""
    command = [sys.executable, "docs/generate.py", "--docs", str(docs), *flags]
    return subprocess.run(
        command, cwd=root, check=False, capture_output=True, text=True, timeout=50
    )


def test_the_generated_pages_are_fresh() -> None:
    checked = generate(ROOT / "docs", "--check")

    assert (checked.returncode, checked.stderr) == (0, "")


def test_one_stale_byte_a_missing_page_and_only_those_are_named(tmp_path: Path) -> None:
    assert generate(tmp_path).returncode == 0
    text = (tmp_path / "map.md").read_bytes()
    (tmp_path / "map.md").write_bytes(text[:-2] + b"\x00" + text[-1:])
    (tmp_path / "protocol.md").unlink()

    checked = generate(tmp_path, "--check")

    assert checked.returncode == 1
    assert [line.split(" is stale")[0] for line in checked.stderr.splitlines()] == [
        str(tmp_path / "map.md"),
        str(tmp_path / "protocol.md"),
    ]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda ipc: (ipc / "extra.py").write_text("X = 1\n"), "extra.py: no sign"),
        (lambda ipc: (ipc / "room" / "__init__.py").unlink(), "room: a room without"),
    ],
    ids=["a module without a docstring", "a room without an __init__"],
)
def test_a_door_without_a_sign_is_named(tmp_path: Path, change, named: str) -> None:
    copy = tmp_path / "copy"
    for floor in ("cookie", "workers", "ipc"):
        shutil.copytree(ROOT / floor, copy / floor, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "generate.py", copy / "docs")
    (copy / "ipc" / "room").mkdir()
    for name in ("__init__.py", "inside.py"):
        (copy / "ipc" / "room" / name).write_text('"""A room for one test."""\n')
    change(copy / "ipc")

    checked = generate(tmp_path, root=copy)

    assert checked.returncode == 1
    assert list(tmp_path.glob("*.md")) == []
    assert named in checked.stderr
    assert len(checked.stderr.splitlines()) == 1
