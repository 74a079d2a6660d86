"""Edit: byte-exact outside of the edited ranges, clear about what it did not find."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipc.content import DiffDisplay
from tests.fakes.room import FakeRoom, names
from workers.tools.base import ToolFailure
from workers.tools.diff import Change
from workers.tools.edit import Edit, Finder, dressed, replaced


async def edit(room: FakeRoom, data: bytes, old: str, new: str, **more: Any) -> bytes:
    path = Path(room.workspace) / "f"
    path.write_bytes(data)
    await Edit(filePath="f", oldString=old, newString=new, **more).run(room)
    return path.read_bytes()


async def refusal(
    room: FakeRoom, data: bytes, old: str, new: str = "new", **more: Any
) -> tuple[str, str]:
    with pytest.raises(ToolFailure) as caught:
        await edit(room, data, old, new, **more)
    folder = Path(room.workspace)
    assert (folder / "f").read_bytes() == data
    assert names(folder) == ["f"]
    return caught.value.code, caught.value.message


@pytest.mark.parametrize(
    ("data", "old", "new", "expected"),
    [
        (b"a b c", "b", "B", b"a B c"),
        (b"a b c", "b ", "", b"a c"),
        (b"a\nb\nc\n", "b\n", "", b"a\nc\n"),
        (b"no final newline", "newline", "one\n", b"no final one\n"),
        # an LF search text in a CRLF file
        (b"a\r\nb\r\nc\r\n", "a\nb", "a\nB", b"a\r\nB\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b", "b\nb2", b"a\r\nb\r\nb2\r\nc\r\n"),
        (b"a\r\nb\r\nc", "c", "c\nd\n", b"a\r\nb\r\nc\r\nd\r\n"),
        (b"a\r\nb\r\nc\r\n", "b\n", "", b"a\r\nc\r\n"),
        (b"a\r\nb\r\n", "\nb", "\nx\ny", b"a\r\nx\r\ny\r\n"),
        # each line's own ending, in a file that mixes them
        (b"a\nb\r\nc\n", "a\nb\nc", "a\nB\nc", b"a\nB\r\nc\n"),
        (b"a\nb\r\nc\nd\r\n", "a\nb\nc\nd\n", "a\nx\ny\nc\nd\n", b"a\nx\r\ny\r\nc\nd\r\n"),
        (b"a\nb\r\nc\r\n", "a", "a\na2", b"a\na2\nb\r\nc\r\n"),
        (b"a\nb\r\nc\r\n", "c", "c\nc2", b"a\nb\r\nc\r\nc2\r\n"),
        # a CR in the arguments: byte by byte
        (b"a\r\nb\r\n", "a\r\n", "a\n", b"a\nb\r\n"),
        (b"a\nb\n", "b", "b\r\nc", b"a\nb\r\nc\n"),
        # a byte order mark stays
        (b"\xef\xbb\xbfa\r\nb\r\n", "a\nb", "x\ny", b"\xef\xbb\xbfx\r\ny\r\n"),
        # other encodings, where nothing can be half a character
        (b"const x = 1;\n// caf\xe9\n", "1", "2", b"const x = 2;\n// caf\xe9\n"),
        (b"caf\xe9 = 1\n", " = 1", " = 2", b"caf\xe9 = 2\n"),
        ("größe = 1".encode(), "größe", "maß", "maß = 1".encode()),
        (b"a\x1b[0m", "\x1b[0m", "", b"a"),
        (b"a.b\r\nc+", "a.b\nc+", "x", b"x"),
    ],
)
async def test_only_the_edited_range_changes(
    room: FakeRoom, data: bytes, old: str, new: str, expected: bytes
) -> None:
    assert await edit(room, data, old, new) == expected


async def test_the_result_says_what_was_done(room: FakeRoom, workspace: Path) -> None:
    (workspace / "f").write_text("1\n2\n3\n4\n5\n6\n7\n8\n9\n")
    result = await Edit(filePath="f", oldString="5\n", newString="five\nfünf\n").run(room)

    assert result.output == "Edit applied atomically"
    assert result.metadata == {
        "new_sha256": hashlib.sha256((workspace / "f").read_bytes()).hexdigest(),
        "replacements": 1,
    }
    assert result.display == (
        DiffDisplay(
            path="f",
            hunks="@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n+fünf\n 6\n 7\n 8",
            added=2,
            removed=1,
        ),
    )


async def test_replace_all_replaces_all(room: FakeRoom) -> None:
    assert await edit(room, b"x.x\r\nx", "x", "yy", replaceAll=True) == b"yy.yy\r\nyy"
    assert await edit(room, b"a\r\nb\na\nb\n", "a\nb", "c\nd", replaceAll=True) == (
        b"c\r\nd\nc\nd\n"
    )
    result = await Edit(filePath="f", oldString="c", newString="C", replaceAll=True).run(room)
    assert result.output == "Edit applied atomically (2 replacements)"


async def test_the_exact_errors(room: FakeRoom) -> None:
    assert await refusal(room, b"a", "") == ("invalid_arguments", "oldString must not be empty")
    assert await refusal(room, b"a", "zzz") == ("not_found", "oldString was not found")
    assert await refusal(room, b"x\nx\nx\n", "x") == (
        "ambiguous",
        (
            "oldString matched 3 times (lines 1, 2, 3); "
            "give more of the text around it, or set replaceAll"
        ),
    )
    assert await refusal(room, b"a", "a", "a") == (
        "invalid_arguments",
        "oldString and newString are the same",
    )
    assert await refusal(room, b"a", "b", replaceAll=True) == (
        "not_found",
        "oldString was not found",
    )


async def test_places_that_overlap_are_two_meanings(room: FakeRoom) -> None:
    code, message = await refusal(room, b"aaa", "aa")
    assert (code, message[:27]) == ("ambiguous", "oldString matched 2 times (")


async def test_the_same_words_with_another_ending_are_ambiguous(room: FakeRoom) -> None:
    code, _ = await refusal(room, b"a\nb\n\na\r\nb\r\n", "a\nb")
    assert code == "ambiguous"


@pytest.mark.parametrize(
    ("data", "old", "hint"),
    [
        (
            b"def f():\n\treturn 1\n",
            "def f():\n    return 1",
            "; line 1 has the same words in other whitespace: `def f():`",
        ),
        (
            b"one\ntwo\nthree\nfour\n",
            "two\nthree\nfive\n",
            (
                "; the nearest place begins at line 2, but at line 4 the file has `four` "
                "where oldString has `five`"
            ),
        ),
        (
            b"one\ntwo\n",
            "two\nthree",
            (
                "; the nearest place begins at line 2, but at line 3 the file has `` "
                "where oldString has `three`"
            ),
        ),
        (b"alpha = 1\nbeta = 2\n", "betta = 2", "; the nearest line is line 2: `beta = 2`"),
        (b"\x1b[2Jred", "\x1b[3Jred", "; the nearest line is line 1: `\ufffd[2Jred`"),
    ],
)
async def test_a_miss_shows_the_nearest_place(
    room: FakeRoom, data: bytes, old: str, hint: str
) -> None:
    assert await refusal(room, data, old) == ("not_found", "oldString was not found" + hint)


async def test_a_miss_in_a_big_file_of_like_lines_is_told_soon(room: FakeRoom) -> None:
    code, _ = await refusal(room, b"}\n" * 500_000, "}\n" * 50 + "x")
    assert code == "not_found"


@pytest.mark.parametrize(
    ("data", "old", "new", "code"),
    [
        (b"a\0b", "a", "c", "binary"),
        ("\ufeffab".encode("utf-16-le"), "a", "b", "binary"),
        ("表\n".encode("shift_jis"), "\\", "/", "not_utf8"),
        (b"caf\xe9 x", "x", "é", "not_utf8"),
        ("é é".encode() + b"\xe9", "é", "e", "not_utf8"),
    ],
)
async def test_what_cannot_be_edited_without_harm_is_left_alone(
    room: FakeRoom, data: bytes, old: str, new: str, code: str
) -> None:
    assert (await refusal(room, data, old, new))[0] == code


async def test_a_link_is_kept_and_a_dangling_one_refused(room: FakeRoom, workspace: Path) -> None:
    (workspace / "f").write_text("a")
    (workspace / "l").symlink_to("f")
    (workspace / "d").symlink_to("nowhere")
    await Edit(filePath="l", oldString="a", newString="b").run(room)

    assert (workspace / "l").is_symlink()
    assert (workspace / "f").read_text() == "b"
    for path, code in (("d", "not_found"), (".", "is_directory"), ("artifact://x", "invalid_path")):
        with pytest.raises(ToolFailure) as caught:
            await Edit(filePath=path, oldString="a", newString="b").run(room)
        assert caught.value.code == code


# --- properties ----------------------------------------------------------------------------------

TEXT = st.text(alphabet="ab\n", max_size=12)


@given(
    st.lists(st.sampled_from([b"a", b"b", b"\n", b"\r\n", "é".encode()]), max_size=30),
    st.text(alphabet="ab\n", min_size=1, max_size=4),
    TEXT,
)
@settings(max_examples=500, deadline=None)
def test_an_edit_in_a_mixed_file_reads_like_the_edit_in_an_lf_file(
    pieces: list[bytes], old: str, new: str
) -> None:
    data = b"".join(pieces)
    places = list(Finder(data, old.encode(), by_byte=False).places())
    changes = [Change(i, j, dressed(new.encode(), data, i, j)) for i, j in places]
    result = replaced(data, changes)

    plain = data.replace(b"\r\n", b"\n")
    assert result.replace(b"\r\n", b"\n") == plain.replace(old.encode(), new.encode())
    at = 0
    kept = b""
    for change in changes:  # outside of the ranges: equal, in order
        kept += data[at : change.start]
        at = change.end
    kept += data[at:]
    shrunk = replaced(data, [Change(i, j, b"") for i, j in places])
    assert shrunk == kept
    if b"\r" not in data:
        assert b"\r" not in result


@given(st.lists(st.sampled_from([b"a\n", b"b\r\n", b"c\n", b"d\r\n"]), min_size=1, max_size=8))
def test_replacing_text_by_itself_changes_no_ending(lines: list[bytes]) -> None:
    data = b"".join(lines)
    same = data.replace(b"\r\n", b"\n")

    assert dressed(same, data, 0, len(data)) == data
