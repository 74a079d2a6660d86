"""Read: files, directories, artifacts, and everything that is none of them."""

import os
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ipc.content import ListingDisplay
from tests.fakes.room import FakeRoom
from workers.tools.base import ToolFailure
from workers.tools.capture import Manifest, ManifestStream
from workers.tools.read import Read


async def read(room: FakeRoom, path: str | Path, **more: Any) -> str:
    return (await Read(filePath=str(path), **more).run(room)).output


async def refusal(room: FakeRoom, path: str | Path, **more: Any) -> tuple[str, str]:
    with pytest.raises(ToolFailure) as caught:
        await Read(filePath=str(path), **more).run(room)
    return caught.value.code, caught.value.message


def shown(path: str, *lines: str) -> str:
    body = "".join(f"{line}\n" for line in lines)
    return f"<path>{path}</path>\n<type>file</type>\n<content>\n{body}</content>"


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", ["1: "]),
        (b"one\ntwo\n", ["1: one", "2: two"]),
        (b"one\ntwo", ["1: one", "2: two"]),
        (b"one\r\ntwo\r\n", ["1: one", "2: two"]),
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", ["1: one", "2: \ufefftwo"]),
        ("größe\u2028x\n".encode(), ["1: größe\u2028x"]),
    ],
)
async def test_a_file_is_shown_with_numbers_from_one(
    room: FakeRoom, workspace: Path, data: bytes, lines: list[str]
) -> None:
    (workspace / "f.txt").write_bytes(data)

    assert await read(room, "f.txt") == shown("f.txt", *lines)


async def test_a_page_says_where_it_lies_and_how_to_read_on(
    room: FakeRoom, workspace: Path
) -> None:
    (workspace / "f").write_text("a\nb\nc\nd\n")
    middle = await Read(filePath="./f", offset=1, limit=2).run(room)

    assert middle.output == (
        shown("f", "2: b", "3: c") + '\n[Lines 2-3 of 4. Read on: read(filePath="f", offset=3)]'
    )
    assert middle.metadata == {
        "kind": "file",
        "offset": 1,
        "limit": 2,
        "total_lines": 4,
        "next_offset": 3,
    }
    assert await read(room, "f", offset=3) == shown("f", "4: d") + "\n[Lines 4-4 of 4, the end.]"
    assert await read(room, "f", offset=4) == (
        shown("f") + "\n[Nothing at offset 4: there are 4 lines.]"
    )


async def test_two_thousand_lines_are_the_default_page(room: FakeRoom, workspace: Path) -> None:
    (workspace / "f").write_text("x\n" * 2001)
    result = await Read(filePath="f").run(room)

    assert result.metadata["next_offset"] == 2000
    assert "\n2000: x\n</content>" in result.output


async def test_a_path_outside_is_absolute(room: FakeRoom, workspace: Path) -> None:
    outside = workspace.parent / "o"
    outside.write_text("x\n")

    assert await read(room, "../o") == shown(str(outside), "1: x")
    assert await read(room, outside) == shown(str(outside), "1: x")


async def test_a_link_is_followed_and_keeps_its_name(room: FakeRoom, workspace: Path) -> None:
    (workspace / "f").write_text("x\n")
    (workspace / "l").symlink_to("f")

    assert await read(room, "l") == shown("l", "1: x")


async def test_bytes_that_are_no_utf8_are_shown_and_said(room: FakeRoom, workspace: Path) -> None:
    (workspace / "f").write_bytes(b"caf\xe9\nok \xef\xbf\xbd\n")

    assert await read(room, "f") == (
        shown("f", "1: caf\ufffd", "2: ok \ufffd")
        + "\n[Some bytes are not UTF-8; they are shown as \ufffd.]"
    )
    (workspace / "f").write_bytes(b"ok \xef\xbf\xbd\n")
    assert await read(room, "f") == shown("f", "1: ok \ufffd")


async def test_a_line_of_5_mb_is_cut_in_bounded_memory(room: FakeRoom, workspace: Path) -> None:
    (workspace / "f").write_bytes("é".encode() * 2_500_000 + b"\nnext\n")
    tracemalloc.start()
    try:
        output = await read(room, "f")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert output == shown(
        "f", "1: " + "é" * 32768 + " [… 4934464 bytes of this line are left out]", "2: next"
    )
    assert peak < 8 << 20


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x7fELF\x02\x01\x01\x00", "application/x-elf"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "image/png"),
        (b"text\x00more", "binary data"),
    ],
)
async def test_what_is_no_text_is_refused_with_type_and_size(
    room: FakeRoom, workspace: Path, data: bytes, kind: str
) -> None:
    (workspace / "f").write_bytes(data)

    assert await refusal(room, "f") == ("binary", f"f is no text: {kind}, {len(data)} bytes")


async def test_a_huge_sparse_file_is_refused_at_once(room: FakeRoom, workspace: Path) -> None:
    with (workspace / "f").open("wb") as file:
        file.truncate(1 << 40)

    assert await refusal(room, "f") == ("binary", f"f is no text: binary data, {1 << 40} bytes")


async def test_a_fifo_and_a_device_are_refused(room: FakeRoom, workspace: Path) -> None:
    os.mkfifo(workspace / "f")
    (workspace / "l").symlink_to("/dev/zero")

    assert await refusal(room, "f") == ("not_a_file", "f is a FIFO, not a regular file")
    assert await refusal(room, "l") == (
        "not_a_file",
        "l is a character device, not a regular file",
    )


async def test_a_missing_file_names_what_may_have_been_meant(
    room: FakeRoom, workspace: Path
) -> None:
    (workspace / "settings.py").write_text("")
    (workspace / "a\u00a0b.txt").write_text("")

    assert await refusal(room, "setings.py") == (
        "not_found",
        "setings.py does not exist; did you mean settings.py?",
    )
    assert await refusal(room, "a b.txt") == (
        "not_found",
        "a b.txt does not exist; 'a\\xa0b.txt' looks the same but is spelled with other characters",
    )
    assert await refusal(room, "no/where") == ("not_found", "no/where does not exist")
    assert (await refusal(room, "settings.py/x"))[0] == "not_found"
    (workspace / "loop").symlink_to("loop")
    assert (await refusal(room, "loop"))[0] == "link_loop"
    assert (await refusal(room, "x" * 5000))[0] == "invalid_path"


# --- directories ---------------------------------------------------------------------------------


def listed(path: str, *names: str) -> str:
    body = "".join(f"{name}\n" for name in names)
    return f"<path>{path}</path>\n<type>directory</type>\n<entries>\n{body}</entries>"


async def test_a_directory_is_listed_in_order_with_slashes(room: FakeRoom, workspace: Path) -> None:
    (workspace / "b").mkdir()
    (workspace / "a").write_text("")
    (workspace / "to_b").symlink_to("b")
    (workspace / "dangling").symlink_to("nowhere")
    (workspace / ".hidden").write_text("")
    result = await Read(filePath=".").run(room)

    assert result.output == listed(".", ".hidden", "a", "b/", "dangling", "to_b/")
    assert result.metadata == {"kind": "directory", "offset": 0, "limit": 2000, "total_lines": 5}
    assert result.display == (
        ListingDisplay(path=".", entries=(".hidden", "a", "b/", "dangling", "to_b/")),
    )
    assert await read(room, "b") == listed("b")
    assert await read(room, ".", offset=1, limit=2) == (
        listed(".", "a", "b/") + '\n[Names 2-3 of 5. Read on: read(filePath=".", offset=3)]'
    )


async def test_a_name_cannot_break_the_listing(room: FakeRoom, workspace: Path) -> None:
    (workspace / os.fsdecode(b"a\xe9")).write_text("")
    (workspace / "b\n<entries>\x1b[2J").write_text("")

    assert await read(room, ".") == listed(".", "a\ufffd", "b\ufffd<entries>\ufffd[2J")


# --- artifacts -----------------------------------------------------------------------------------


async def test_an_artifact_is_paged_raw(room: FakeRoom) -> None:
    digest = room.artifacts.put(b"one\r\ntwo\nthree")
    uri = f"artifact://{digest}"
    whole = await Read(filePath=uri).run(room)

    assert whole.output == "one\r\ntwo\nthree"
    assert whole.metadata == {"kind": "artifact", "offset": 0, "limit": 2000, "total_lines": 3}
    assert await read(room, uri, offset=1, limit=1) == (
        f'two\n[Lines 2-2 of 3. Read on: read(filePath="{uri}", offset=2)]'
    )


async def test_a_page_of_an_artifact_has_2000_lines_and_2_mib_at_most(room: FakeRoom) -> None:
    many = room.artifacts.put(b"x\n" * 5000)
    result = await Read(filePath=f"artifact://{many}", limit=9999).run(room)
    assert (result.metadata["limit"], result.metadata["next_offset"]) == (2000, 2000)

    big = room.artifacts.put((b"y" * 9999 + b"\n") * 1000)
    result = await Read(filePath=f"artifact://{big}").run(room)
    assert result.metadata["next_offset"] == 209
    assert len(result.output) < (2 << 20) + 200


async def test_a_stream_is_found_through_its_manifest(room: FakeRoom) -> None:
    digest = room.artifacts.put(b"hello\n")
    empty = room.artifacts.put(b"")
    manifest = room.artifacts.put(
        msgspec.json.encode(
            Manifest(
                streams=(
                    ManifestStream(name="stdout", digest=digest, bytes=6),
                    ManifestStream(name="stderr", digest=empty, bytes=0),
                )
            )
        )
    )

    assert await read(room, f"artifact://{manifest}/stdout") == "hello"
    assert await read(room, f"artifact://{manifest}/stderr") == ""
    assert await refusal(room, f"artifact://{manifest}/x") == (
        "artifact_no_stream",
        "no stream x; it has stdout, stderr",
    )
    assert (await refusal(room, f"artifact://{digest}/stdout"))[0] == "artifact_no_streams"


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("artifact://" + "0" * 64, "artifact_missing"),
        ("artifact://" + "A" * 64, "bad_artifact_uri"),
        ("artifact://" + "0" * 64 + "?x", "bad_artifact_uri"),
        ("artifact://" + "0" * 64 + "/a/b", "bad_artifact_uri"),
        ("artifact://../../etc/passwd", "bad_artifact_uri"),
    ],
)
async def test_an_artifact_that_is_none_is_a_normal_error(
    room: FakeRoom, uri: str, code: str
) -> None:
    assert (await refusal(room, uri))[0] == code
