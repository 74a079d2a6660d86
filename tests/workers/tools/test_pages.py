"""Pages of lines: the same as splitting the whole, in bounded memory."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.tools import pages
from workers.tools.base import ToolFailure
from workers.tools.pages import CHUNK_BYTES, LINE_BYTES_MAX, PAGE_BYTES_MAX, Page, take_page


def page_of(data: bytes, offset: int = 0, limit: int = 2000, step: int = 1 << 30) -> Page:
    """A page of bytes in memory, read at most `step` at a time."""
    return take_page(lambda at, count: data[at : at + min(count, step)], offset, limit)


def split(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


@given(
    st.binary(max_size=60).map(lambda data: data.replace(b"a", b"\n").replace(b"\0", b"\n")),
    st.integers(0, 20),
    st.integers(1, 20),
    st.integers(1, 7),
)
def test_a_page_is_a_slice_of_the_lines(data: bytes, offset: int, limit: int, step: int) -> None:
    lines = split(data)
    page = page_of(data, offset, limit, step)

    assert page.lines == lines[offset : offset + limit]
    assert page.total == len(lines)
    assert page.next_offset == (offset + limit if offset + limit < len(lines) else None)


@pytest.mark.parametrize(
    ("data", "offset", "lines", "total"),
    [
        (b"", 0, [], 0),
        (b"", 5, [], 0),
        (b"a", 0, [b"a"], 1),
        (b"a\n", 0, [b"a"], 1),
        (b"a\n\n", 0, [b"a", b""], 2),
        (b"a\nb", 1, [b"b"], 2),
        (b"a\nb\n", 2, [], 2),
        (b"a\nb", 9, [], 2),
        (b"a\rb\x0bc\xc2\x85d\xe2\x80\xa8e\n", 0, [b"a\rb\x0bc\xc2\x85d\xe2\x80\xa8e"], 1),
    ],
)
def test_lines_end_in_a_newline_and_in_nothing_else(
    data: bytes, offset: int, lines: list[bytes], total: int
) -> None:
    assert page_of(data, offset) == Page(lines, offset, total, {}, more=False)


@pytest.mark.parametrize("behind", [b"", b"\n", b"\nb", b"\nb\n"])
def test_a_line_longer_than_a_chunk_is_cut_and_the_next_one_found(behind: bytes) -> None:
    page = page_of(b"x" * (5 * CHUNK_BYTES) + behind)

    assert page.lines[0] == b"x" * LINE_BYTES_MAX
    assert page.lines[1:] == ([b"b"] if b"b" in behind else [])
    assert page.cut == {0: 5 * CHUNK_BYTES - LINE_BYTES_MAX}
    assert page.total == len(page.lines)


def test_a_page_is_full_at_its_byte_limit_and_says_where_to_go_on() -> None:
    line = b"y" * (LINE_BYTES_MAX - 1) + b"\n"
    data = line * 100
    page = page_of(data, 0, 100)

    assert len(page.lines) == PAGE_BYTES_MAX // LINE_BYTES_MAX
    assert (page.total, page.next_offset) == (100, 32)
    assert len(page_of(data, 96, 100).lines) == 4


def test_what_lies_too_far_in_is_refused_and_what_follows_is_not_counted(
    tmp_path: Path,
) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"first\n")
        file.truncate(1 << 40)
    fd = os.open(tmp_path / "sparse", os.O_RDONLY)
    reads: list[int] = []

    def pread(at: int, count: int) -> bytes:
        reads.append(at)
        return os.pread(fd, count, at)

    try:
        page = take_page(pread, 0, 1)
        with pytest.raises(ToolFailure, match="bytes in; use bash") as caught:
            take_page(pread, 5, 1)
    finally:
        os.close(fd)

    assert page == Page([b"first"], 0, None, {}, more=True)
    assert caught.value.code == "resource_limit"
    assert max(reads) <= pages.SCAN_BYTES_MAX
