"""Config files: layers, limits, and errors that name file and line."""

import os
from pathlib import Path

import pytest

from cookie.config import files
from cookie.config.files import BadConfig, Layer


def load(tmp_path: Path, text: str | bytes) -> tuple[Layer, ...]:
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    (data / "config.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return files.load(data, tmp_path / "ws")


def complaint(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(BadConfig) as refused:
        load(tmp_path, text)
    return str(refused.value).removeprefix(f"{tmp_path}/data/")


def nested(depth: int) -> str:
    return "a = " + "[" * (depth - 1) + "1" + "]" * (depth - 1)


def test_without_files_there_are_no_layers(tmp_path: Path) -> None:
    assert files.load(tmp_path / "data", tmp_path) == ()


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "  \r\n\n"])
def test_an_empty_file_is_an_empty_layer(tmp_path: Path, text: str) -> None:
    assert [layer.table for layer in load(tmp_path, text)] == [{}]


def test_the_users_file_comes_before_the_workspaces(tmp_path: Path) -> None:
    folder = tmp_path / "ws" / ".cookie-agent"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("b = 2")

    layers = load(tmp_path, "a = 1")

    assert [(layer.name, layer.table) for layer in layers] == [
        ("user", {"a": 1}),
        ("workspace", {"b": 2}),
    ]


def test_only_the_exact_workspace_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / ".cookie-agent").mkdir()
    (tmp_path / ".cookie-agent" / "config.toml").write_text("b = 2")
    (tmp_path / "ws").mkdir()

    assert files.load(tmp_path / "data", tmp_path / "ws") == ()


def test_a_file_that_is_both_is_read_once_as_the_users(tmp_path: Path) -> None:
    data = tmp_path / ".cookie-agent"
    data.mkdir()
    (data / "config.toml").write_text("a = 1")

    assert [layer.name for layer in files.load(data, tmp_path)] == ["user"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a = ",
            (
                "config.toml:1: not valid TOML: no value: "
                "a text needs quotes, true and false are in lower case"
            ),
        ),
        (
            "a = 1\nb = [1,\n",
            (
                "config.toml:3: not valid TOML: no value: "
                "a text needs quotes, true and false are in lower case"
            ),
        ),
        (
            "a = 1\n\na = 2\n",
            (
                "config.toml:3: not valid TOML: "
                "this key or table was there before; keep one of the two"
            ),
        ),
        (
            "[x]\n[x]\n",
            "config.toml:2: not valid TOML: this table was opened before; put its keys together",
        ),
        (
            'a = "x\nb = 1\n',
            "config.toml:1: not valid TOML: a text whose closing quote is missing on its line",
        ),
        (
            "a = 1\nb = '''x\nc = 1\n",
            "config.toml:2: not valid TOML: a text whose closing quote is missing",
        ),
        (b"a = 1\nb = '\xff'\n", "config.toml:2: not UTF-8; save the file as UTF-8"),
        (
            "a = 1\nb = 2020-01-01\n",
            "config.toml:2: b: dates and times are not used here; write a string",
        ),
        ("[t]\nb = [1, nan]\n", "config.toml:2: t.b: must be a finite number"),
        ("[t]\n'b c' = inf\n", 'config.toml:2: t."b c": must be a finite number'),
        ("a = 99999999999999999999", "config.toml:1: a: an integer of more than 64 bits"),
        ("a = " + "9" * 5000, "config.toml:1: a number or a key of more than 4096 letters"),
        ("a = " + "9" * 4096, "config.toml:1: a: an integer of more than 64 bits"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert complaint(tmp_path, text) == said


@pytest.mark.parametrize(
    ("fits", "over", "said"),
    [
        pytest.param(
            "#" * files.FILE_BYTES_MAX,
            "#" * (files.FILE_BYTES_MAX + 1),
            "config.toml: is larger than 1048576 bytes",
            id="bytes",
        ),
        pytest.param(
            nested(files.DEPTH_MAX),
            nested(files.DEPTH_MAX + 1),
            "config.toml:1: a: nested deeper than 32",
            id="depth of brackets",
        ),
        pytest.param(
            ".".join(["a"] * files.DEPTH_MAX) + " = 1",
            ".".join(["a"] * (files.DEPTH_MAX + 1)) + " = 1",
            f"config.toml:1: {'.'.join(['a'] * 33)}: nested deeper than 32",
            id="depth of keys",
        ),
        pytest.param(
            "".join(f"a{n} = 1\n" for n in range(files.ENTRIES_MAX)),
            "".join(f"a{n} = 1\n" for n in range(files.ENTRIES_MAX + 1)),
            "config.toml:4097: more than 4096 entries",
            id="keys",
        ),
        pytest.param(
            f"a = [{'1,' * (files.ENTRIES_MAX - 1)}]",
            f"a = [{'1,' * files.ENTRIES_MAX}]",
            "config.toml:1: a: more than 4096 entries",
            id="items",
        ),
        pytest.param(
            f"a = '{'x' * files.STRING_BYTES_MAX}'",
            f"a = '{'x' * (files.STRING_BYTES_MAX + 1)}'",
            "config.toml:1: a text longer than 262144 bytes",
            id="string",
        ),
    ],
)
def test_each_limit_holds_at_the_limit_and_not_one_past_it(
    tmp_path: Path, fits: str, over: str, said: str
) -> None:
    assert len(load(tmp_path, fits)) == 1
    assert complaint(tmp_path, over) == said


def test_what_is_no_file_is_refused_and_hangs_nobody(tmp_path: Path) -> None:
    path = tmp_path / "data" / "config.toml"
    path.mkdir(parents=True)
    with pytest.raises(BadConfig, match="is a directory; a TOML file belongs there"):
        files.load(tmp_path / "data", tmp_path)

    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(BadConfig, match="is no regular file"):
        files.load(tmp_path / "data", tmp_path)


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (("a",), 1),
        (("t",), 3),
        (("t", "b"), 4),
        (("t", "deep", "c"), 6),
        (("t", "x y", "z"), 8),
        (("t", "x y", "missing"), 7),
        (("list",), 10),
        (("nobody",), None),
    ],
)
def test_a_key_is_found_on_its_line(key: tuple[str, ...], line: int | None) -> None:
    text = (
        'a = [1, # ]\n  "x = 1"]\n[t]\nb = """\n"""\ndeep.c = {q = 1}\n'
        "[t.'x y'] # a comment = 1\nz = 1\n\n[[list]]\nq = 1\n"
    )

    assert files.line_of(text, key) == line
