"""Write: whole files, atomically, with a diff for people."""

import hashlib
import os
from pathlib import Path

import pytest

from ipc.content import DiffDisplay
from tests.fakes.room import FakeRoom, names
from workers.tools.base import ToolFailure
from workers.tools.write import Write


async def test_a_file_is_created_with_its_directories(room: FakeRoom, workspace: Path) -> None:
    result = await Write(filePath="a/b/c.txt", content="größe\r\n\0").run(room)

    data = "größe\r\n\0".encode()
    assert (workspace / "a/b/c.txt").read_bytes() == data
    assert result.output == "Created a/b/c.txt: 10 bytes"
    assert result.metadata == {
        "bytes": 10,
        "created": True,
        "new_sha256": hashlib.sha256(data).hexdigest(),
    }


async def test_replacing_shows_what_changed(room: FakeRoom, workspace: Path) -> None:
    (workspace / "f").write_text("1\n2\n3\n4\n5\n6\n7\n8\n9\n")
    result = await Write(filePath="f", content="1\n2\n3\n4\n5\nsix\n7\n8\n9\n").run(room)

    assert result.output == "Replaced f: 20 bytes"
    assert result.display == (
        DiffDisplay(
            path="f",
            hunks="@@ -3,7 +3,7 @@\n 3\n 4\n 5\n-6\n+six\n 7\n 8\n 9",
            added=1,
            removed=1,
        ),
    )


async def test_what_was_no_text_is_replaced_all_the_same(room: FakeRoom, workspace: Path) -> None:
    (workspace / "f").write_bytes(b"\0\xff" * (1 << 20))
    result = await Write(filePath="f", content="x").run(room)

    assert (workspace / "f").read_text() == "x"
    assert result.display == ()


async def test_a_link_to_the_outside_is_written_through_and_its_label_is_the_link(
    room: FakeRoom, workspace: Path
) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir()
    (workspace / "out").symlink_to(outside)
    (workspace / "d.txt").symlink_to(outside / "new")
    inside = Write(filePath="out/x", content="1")

    assert inside.label(room.workspace) == "out/x"  # lexical, and no second check (spec 1.9)
    await inside.run(room)
    await Write(filePath="d.txt", content="2").run(room)
    assert (outside / "x").read_text() == "1"
    assert (outside / "new").read_text() == "2"
    assert (workspace / "d.txt").is_symlink()


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (".", "is_directory"),
        ("fifo", "not_a_file"),
        ("loop", "link_loop"),
        ("artifact://" + "0" * 64, "invalid_path"),
        ("artifact://x", "invalid_path"),
    ],
)
async def test_what_cannot_be_written_is_refused(
    room: FakeRoom, workspace: Path, path: str, code: str
) -> None:
    os.mkfifo(workspace / "fifo")
    (workspace / "loop").symlink_to("loop")
    with pytest.raises(ToolFailure) as caught:
        await Write(filePath=path, content="x").run(room)

    assert caught.value.code == code
    assert names(workspace) == ["fifo", "loop"]
