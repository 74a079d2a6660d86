"""Captured output: bounded previews, whole streams in artifacts, live words in time."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipc.content import Truncation
from ipc.plan import ToolOutput
from tests.fakes.room import FolderArtifacts, until
from workers.tools import capture
from workers.tools.capture import (
    CHUNK_CHARS_MAX,
    HELD_BYTES_MAX,
    LIVE_CHARS_MAX,
    SILENT,
    Live,
    Manifest,
    Preview,
    Shown,
    Stream,
    keep_streams,
    render,
)


def preview(data: bytes, lines: int, size: int, step: int = 1 << 20) -> Shown:
    made = Preview(ToolOutput(max_lines=lines, max_bytes=size))
    for at in range(0, len(data), step):
        made.feed(data[at : at + step])
    return made.shown()


@pytest.mark.parametrize(
    ("data", "lines", "size", "head", "tail", "next_line"),
    [
        (b"", 4, 40, "", "", 0),
        (b"a\nb\n", 4, 40, "a\nb\n", "", 2),
        (b"1\n2\n3\n4\n", 4, 40, "1\n2\n3\n4\n", "", 4),
        (b"1\n2\n3\n4\n5", 4, 40, "1\n2\n", "4\n5", 2),
        (b"1\n2\n3\n4\n5\n", 4, 40, "1\n2\n", "4\n5\n", 2),
        (b"0123456789" * 3, 4, 20, "0123456789", "0123456789", 0),
        (b"ab\n" + b"x" * 40, 4, 20, "ab\nxxxxxxx", "xxxxxxxxxx", 1),
        (b"abcdefgh\n" * 5, 9, 24, "abcdefgh\n", "abcdefgh\n", 1),
        ("ä".encode() * 20, 4, 10, "ää", "ää", 0),
        (b"a\0b", 4, 40, "a\ufffdb", "", 1),
        (b"a\xffb", 4, 40, "a\ufffdb", "", 1),
        (b"1\n2\n3\n", 0, 0, "", "", 0),
        (b"1\n2\n3\n", 1, 40, "", "", 0),
    ],
)
def test_head_and_tail(
    data: bytes, lines: int, size: int, head: str, tail: str, next_line: int
) -> None:
    for step in (1, 2, 3, 1 << 20):
        view = preview(data, lines, size, step)
        assert (view.head, view.tail, view.next_line) == (head, tail, next_line)


@given(st.binary(max_size=200), st.integers(0, 8), st.integers(0, 60), st.integers(1, 50))
@settings(max_examples=400, deadline=None)
def test_a_preview_is_a_beginning_and_an_end_within_the_limits(
    data: bytes, lines: int, size: int, step: int
) -> None:
    data = data.replace(b"a", b"\n")
    view = preview(data, lines, size, step)

    assert view.bytes <= size
    assert view.lines <= lines + 1
    if view.whole:
        assert view.head == data.decode("utf-8", "replace").replace("\0", "\ufffd")
    else:
        assert data.count(b"\n") + 1 > lines or len(data) > size
        plain = data.decode("latin-1").replace("\0", "\ufffd")
        if data.isascii():
            assert plain.startswith(view.head)
            assert plain.endswith(view.tail)
        assert view.bytes < len(data)


def streams_of(
    tmp_path: Path, *data: bytes, limits: ToolOutput | None = None
) -> tuple[list[Stream], FolderArtifacts]:
    artifacts = FolderArtifacts(tmp_path / "artifacts")
    streams = []
    for name, content in zip(("stdout", "stderr"), data, strict=True):
        stream = Stream(name, limits or ToolOutput(max_lines=4, max_bytes=40), artifacts)
        for at in range(0, len(content), 7):
            stream.feed(content[at : at + 7])
        streams.append(stream)
    return streams, artifacts


def test_a_small_output_makes_no_file(tmp_path: Path) -> None:
    streams, artifacts = streams_of(tmp_path, b"out", b"err\n")

    assert render(streams, None) == ("out\n[stderr]\nerr\n", None)
    assert artifacts.names() == []


def test_a_cut_output_is_kept_whole_with_every_stream(tmp_path: Path) -> None:
    out = b"".join(b"%d\n" % n for n in range(100))
    streams, artifacts = streams_of(tmp_path, out, b"")
    kept = keep_streams(streams, artifacts, complete=True)
    assert kept.manifest is not None
    with artifacts.open(kept.manifest) as reader:
        manifest = msgspec.json.decode(reader.page(0, 9999), type=Manifest)
    output = render(streams, kept)

    assert manifest.complete
    assert [(one.name, one.bytes) for one in manifest.streams] == [("stdout", 290), ("stderr", 0)]
    with artifacts.open(manifest.streams[0].digest) as reader:
        assert reader.page(0, 9999) == out
    with artifacts.open(manifest.streams[1].digest) as reader:
        assert reader.page(0, 9999) == b""
    assert output.text == (
        "0\n1\n[… 96 lines, 280 bytes left out …]\n98\n99\n"
        f'[Truncated. Read more: read(filePath="artifact://{kept.manifest}/stdout", offset=2)]\n'
    )
    assert output.truncation == Truncation(
        kept_lines=4,
        kept_bytes=10,
        total_lines=100,
        total_bytes=290,
        artifact=f"artifact://{kept.manifest}",
    )
    assert not [name for name in artifacts.names() if name.startswith(".part")]


def test_much_output_is_not_held_in_memory(tmp_path: Path) -> None:
    limits = ToolOutput(max_lines=1 << 30, max_bytes=1 << 30)
    artifacts = FolderArtifacts(tmp_path / "artifacts")
    stream = Stream("stdout", limits, artifacts)
    stream.feed(b"x" * HELD_BYTES_MAX)
    assert artifacts.names() == []
    stream.feed(b"x")
    assert len(artifacts.names()) == 1
    stream.discard()
    assert artifacts.names() == []


def test_a_full_disk_loses_the_artifact_and_says_so(tmp_path: Path) -> None:
    artifacts = FolderArtifacts(tmp_path / "artifacts")
    stream = Stream("stdout", ToolOutput(max_lines=4, max_bytes=40), artifacts)
    artifacts.full = True
    for number in range(1000):
        stream.feed(b"%d\n" % number)
    kept = keep_streams([stream], artifacts, complete=True)
    output = render([stream], kept)
    stream.discard()

    assert kept == (None, "No space left on device")
    assert output.text.endswith("[Not all of it could be kept: No space left on device]\n")
    assert "0\n1\n[…" in output.text
    assert output.truncation is not None
    assert output.truncation.artifact is None
    assert artifacts.names() == []


# --- live ----------------------------------------------------------------------------------------


class Told:
    def __init__(self) -> None:
        self.said: list[tuple[str, str | None]] = []

    async def __call__(self, message: str, chunk: str | None) -> None:
        self.said.append((message, chunk))


async def pumped(*chunks: tuple[str, bytes]) -> list[tuple[str, str | None]]:
    told = Told()
    live = Live(told)
    for stream, chunk in chunks:
        live.feed(stream, chunk)
    live.close()
    await live.pump()
    return told.said


async def test_neighbours_are_told_together_and_characters_are_never_split() -> None:
    euro = "€".encode()
    assert await pumped(
        ("stdout", b"a" + euro[:1]),
        ("stdout", euro[1:]),
        ("stderr", b"e\0\xff"),
        ("stdout", euro[:2]),
    ) == [("stdout", "a€"), ("stderr", "e\ufffd\ufffd"), ("stdout", "\ufffd")]


async def test_chunks_are_small() -> None:
    said = await pumped(("stdout", b"x" * 5000))

    assert [len(chunk or "") for _, chunk in said] == [1024, 1024, 1024, 1024, 904]
    assert max(len(chunk or "") for _, chunk in said) == CHUNK_CHARS_MAX


async def test_after_a_mebibyte_it_falls_silent_and_says_so() -> None:
    said = await pumped(*[("stdout", b"x" * 65536)] * 40)
    text = "".join(chunk or "" for _, chunk in said)

    assert text == "x" * LIVE_CHARS_MAX + SILENT


async def test_what_was_gathered_is_told_while_the_process_runs() -> None:
    told = Told()
    live = Live(told)
    pump = asyncio.create_task(live.pump())
    live.feed("stdout", b"soon")
    await until(lambda: bool(told.said))
    live.feed("stdout", b"y" * capture.FLUSH_CHARS)  # enough not to wait for more
    await until(lambda: len(told.said) >= 5)
    live.close()
    await pump

    assert told.said[0] == ("stdout", "soon")
