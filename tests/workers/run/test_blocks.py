"""What every provider takes of a block."""

import json

import pytest

from workers.run.blocks import sound, sound_arguments


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("", ""),
        ("plain\r\n\ttext \x1b[31m", "plain\r\n\ttext \x1b[31m"),
        ("é😀\x7f", "é😀\x7f"),
        ("a\0b\x08c", "a\ufffdb\ufffdc"),
        ("é\x0b", "é\ufffd"),
        ("half \ud83d a character", "half \ufffd a character"),
    ],
)
def test_characters_that_a_provider_refuses_are_replaced(text: str, safe: str) -> None:
    assert sound(text) == safe


def test_a_sound_text_is_the_same_object() -> None:
    text = "as it " + "was é"

    assert sound(text) is text


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (r'{"a": "\u0000"}', {"a": "\ufffd"}),
        (r'{"\u0000": ["\u0000\u0000", 1]}', {"\ufffd": ["\ufffd\ufffd", 1]}),
        (r'{"a": "\\u0000"}', {"a": r"\u0000"}),
        (r'{"a": "\\\u0000"}', {"a": "\\\ufffd"}),
        (r'{"a": "\\\\u0000"}', {"a": r"\\u0000"}),
    ],
)
def test_a_nul_in_arguments_is_replaced_and_nothing_else(arguments: str, value: object) -> None:
    made = sound_arguments(arguments)

    assert json.loads(made) == value
    assert (made == arguments) is (json.loads(arguments) == value)


def test_arguments_keep_their_numbers_and_blanks() -> None:
    assert sound_arguments(r'{ "n":1.50,"a" : "\u0000"}') == r'{ "n":1.50,"a" : "\ufffd"}'
