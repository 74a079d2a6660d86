"""Content blocks: what people, models and tools say, and the shapes of their results."""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from ipc.ids import Digest

COUNT_MAX: Final = 2**63 - 1  # the largest count any peer can carry in 64 bits
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]

FinishReason = Literal[
    "stop",
    "tool_calls",
    "length",
    "content_filter",
    "cancelled",
    "error",
    "aborted",
    "timeout",
    "refused",
    "unknown",
    "other",
]


class Block(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of the blocks a turn or an input is made of; `type` tells them apart."""


class TextBlock(Block, frozen=True, kw_only=True, tag="text"):
    """Plain text."""

    text: str


class ThinkingBlock(Block, frozen=True, kw_only=True, tag="thinking"):
    """A model's reasoning; `redacted` means that the text is the provider's opaque form of it."""

    text: str
    signature: str | None = None
    redacted: bool = False


class ToolCallBlock(Block, frozen=True, kw_only=True, tag="tool_call"):
    """A model asks for a tool. `arguments` is the model's JSON text, exactly as it came."""

    model_call_id: str
    name: str
    arguments: str
    provider_item_id: str | None = None


class MediaBlock(Block, frozen=True, kw_only=True, tag="media"):
    """Bytes that live in the artifact store: an image, a document, a sound."""

    mime: str
    digest: Digest
    byte_length: Count
    name: str | None = None


TurnBlock = TextBlock | ThinkingBlock | ToolCallBlock | MediaBlock
InputBlock = TextBlock | MediaBlock


class UserInput(Struct, frozen=True, kw_only=True, gc=False):
    """What a person, or something in a person's place, says to a session."""

    content: tuple[InputBlock, ...]

    @property
    def text(self) -> str:
        """The text of the input, its text blocks joined by a blank line."""
        return "\n\n".join(block.text for block in self.content if isinstance(block, TextBlock))


def user_text(text: str) -> UserInput:
    """An input of one text block."""
    return UserInput(content=(TextBlock(text=text),))


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens of one request as its provider reported them; None = not reported.

    `input_tokens` is the whole input, what was read from and written to a cache included.
    """

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    cache_write_tokens: Count | None = None


class Truncation(Struct, frozen=True, kw_only=True):
    """How much of an output was kept; `artifact` is the URI that the whole can be read from."""

    kept_lines: Count
    kept_bytes: Count
    total_bytes: Count
    total_lines: Count | None = None
    artifact: str | None = None


class TextDisplay(Struct, frozen=True, kw_only=True, tag_field="kind", tag="text"):
    """A result to show as text."""

    text: str


class DiffDisplay(Struct, frozen=True, kw_only=True, tag_field="kind", tag="diff"):
    """A change of one file as unified hunks; `added` and `removed` count lines."""

    path: str
    hunks: str
    added: Count
    removed: Count


class TerminalDisplay(Struct, frozen=True, kw_only=True, tag_field="kind", tag="terminal"):
    """A command and the beginning of what it printed; no exit code when it did not end itself."""

    command: str
    head: str
    exit_code: int | None = None


class ListingDisplay(Struct, frozen=True, kw_only=True, tag_field="kind", tag="listing"):
    """The names in a directory."""

    path: str
    entries: tuple[str, ...]


DisplayBlock = TextDisplay | DiffDisplay | TerminalDisplay | ListingDisplay


class ToolResult(Struct, frozen=True, kw_only=True, gc=False):
    """What a tool call came to: `output` is for the model, `display` for people."""

    title: str
    output: str
    metadata: dict[str, Any] = {}
    truncation: Truncation | None = None
    attachments: tuple[MediaBlock, ...] = ()
    display: tuple[DisplayBlock, ...] = ()


class ToolError(Struct, frozen=True, kw_only=True):
    """Why a tool call came to nothing: a stable code, and words for the model."""

    code: str
    message: str
