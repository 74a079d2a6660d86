"""What every provider takes of a block: characters, names, arguments; and words in its place."""

import re
from typing import Any, Final

import msgspec

from ipc.content import MediaBlock, TextBlock, ThinkingBlock, ToolCallBlock, TurnBlock

QUOTED_CHARS_MAX: Final = 1024  # of broken arguments, repeated to the model that wrote them
TOOL_NAME_CHARS_MAX: Final = 64  # what every provider takes
CALL_ID_STEM_CHARS_MAX: Final = 40  # of an id that gets an ending of ours

UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_-]")
# What some server refuses, or takes for the end of the text. Escape stays: all take it, and the
# programs that colour their output would have every history mended for nothing.
_CONTROLS: Final = bytes(set(range(0x20)) - set(b"\t\n\r\x1b"))
_REFUSED = re.compile("[" + re.escape(_CONTROLS.decode()) + "\ud800-\udfff]")
CALL_ID: Final = re.compile(r"[!-~]{1,256}")  # of a provider; it may be a whole sentence
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # an even number of backslashes escape each other
_JSON_OBJECT = msgspec.json.Decoder(dict[str, Any])


def blank(block: TurnBlock) -> bool:
    """Whether a block says nothing, so that providers refuse it."""
    match block:
        case TextBlock(text=text):
            return not text or text.isspace()
        case ThinkingBlock():
            sealed = None if block.redacted else block.signature
            return not (block.text.strip() or (sealed or "").strip())
        case _:
            return False


def in_words(block: TurnBlock, refusal: str) -> str:
    """What the model is told where a block stood that its provider refused."""
    why = f": {refusal}" if refusal else ""
    return f"[{what(block)} stood here; the provider refused it{why}]"


def what(block: TurnBlock) -> str:
    """A block in words: "an image", "a text", ..."""
    match block:
        case MediaBlock(mime=mime):
            return "an image" if mime.startswith("image/") else f"a file of type {mime}"
        case ToolCallBlock(name=name):
            return f"a call of the tool {safe_name(name)}"
        case _:
            return "a text"


def broken(block: ToolCallBlock) -> str | None:
    """Why a call cannot be run as it stands, for the model; None when its JSON is an object."""
    try:
        _JSON_OBJECT.decode(block.arguments if block.arguments.strip() else "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        shown = block.arguments[:QUOTED_CHARS_MAX]
        return f"The arguments are no JSON object ({error}). They began: {shown}"
    return None


def safe_name(name: str) -> str:
    """A tool's name in the characters, and of the length, that every provider takes."""
    safe = UNSAFE.sub("_", name)
    if safe[:1].isdigit() or safe[:1] == "-":
        safe = f"_{safe}"
    return safe[:TOOL_NAME_CHARS_MAX] or "unknown"


def sound(text: str) -> str:
    """`text` with U+FFFD for characters that providers refuse; itself when it has none of them."""
    try:
        data = text.encode()
    except UnicodeEncodeError:  # lone surrogates
        return _REFUSED.sub("\ufffd", text)
    if len(data.translate(None, _CONTROLS)) == len(data):
        return text
    return _REFUSED.sub("\ufffd", text)


def sound_arguments(arguments: str) -> str:
    """The JSON of a call with U+FFFD for an escaped NUL; else as the model wrote it."""
    if "\\u0000" not in arguments:
        return arguments
    return _NUL.sub(r"\1\\ufffd", arguments)
