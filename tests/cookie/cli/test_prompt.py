"""Prompts: what is one, and what is said about what is none."""

from pathlib import Path

import pytest

from cookie.cli.prompt import PROMPT_BYTES_MAX, BadPrompt, from_file, given


@pytest.mark.parametrize("text", ["hi", " two\nlines ", "日本語", "-"])
def test_a_prompt_is_taken_as_it_stands(tmp_path: Path, text: str) -> None:
    (tmp_path / "p").write_text(text)

    assert given(text) == text
    assert from_file(str(tmp_path / "p")) == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "the prompt: it is empty; say what to do"),
        (" \n\t", "the prompt: it is empty; say what to do"),
        ("a\udcff", "the prompt: not UTF-8 text at byte 1"),  # a byte of argv that is no UTF-8
        ("x" * (PROMPT_BYTES_MAX + 1), "the prompt: more than 2097152 bytes are not taken as a pr"),
        ("é" * (PROMPT_BYTES_MAX // 2), None),
        ("a\0", "the prompt: not a text: it has a NUL character at 1"),
    ],
    ids=["empty", "blank", "bytes", "long", "just right", "NUL"],
)
def test_what_is_no_prompt_is_refused(text: str, line: str | None) -> None:
    if line is None:
        assert given(text) == text
        return
    with pytest.raises(BadPrompt) as bad:
        given(text)
    assert str(bad.value).startswith(line)


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(BadPrompt, match="more than 2097152 bytes"):
        from_file("/dev/zero")
