"""What a scripted model says, and to which request: the words of docs/guide/scripts.md as data.

Pure: `Script.choose` picks the turn that answers a request from the
request alone. So the same request gets the same answer after a kill, a resume or a retry.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from ipc.content import FinishReason, ToolCallBlock, Usage
from ipc.events import ModelErrorKind, ModelErrorStage
from workers.providers.base import AssistantMessage, Message, Request, ToolMessage, UserMessage

FAIL_MESSAGE: Final = "the script says so"

_REGEX = re.compile(r"/(.+)/([ims]*)\Z", re.DOTALL)
_PLACEHOLDER = re.compile(r"\$(\$?)\{(user|last_tool_output)\}")


# --- what a script is made of ------------------------------------------------------------------


class Say(Struct, frozen=True):
    """Text, streamed as one delta, or cut: every `chars` characters, or into `chunks` pieces.

    Several texts are a delta each. `every` waits that many seconds before each delta.
    """

    text: str | tuple[str, ...]
    chars: int = 0
    chunks: int = 0
    every: float = 0.0
    repeat: int = 1


class Think(Struct, frozen=True):
    """Reasoning, cut and paced like Say; a signature closes the block."""

    text: str | tuple[str, ...]
    chars: int = 0
    chunks: int = 0
    every: float = 0.0
    repeat: int = 1
    signature: str | None = None


class Call(Struct, frozen=True):
    """A tool call. `raw` is sent as it is, for arguments that are not even JSON."""

    name: str
    args: dict[str, Any] = {}
    raw: str | None = None
    id: str | None = None  # else call_<turn>_<n>, both from 1
    repeat: int = 1


class Delay(Struct, frozen=True):
    """Silence for some seconds."""

    seconds: float


class Report(Struct, frozen=True):
    """What the turn's usage says; without it every count is unknown."""

    usage: Usage


class Finish(Struct, frozen=True):
    """Ends the turn with this reason; without it `tool_calls` after a call, else `stop`."""

    reason: FinishReason


class Fail(Struct, frozen=True):
    """Ends the stream with a failure; `retryable` follows the kind unless given."""

    kind: ModelErrorKind
    message: str = FAIL_MESSAGE
    stage: ModelErrorStage | None = None
    retryable: bool | None = None
    http_status: int | None = None
    vendor_code: str | None = None
    retry_after_ms: int | None = None
    response_body: str | None = None


class Stall(Struct, frozen=True):
    """Says nothing more and stays open, until cancelled."""


class Cut(Struct, frozen=True):
    """The connection ends without a terminal marker: the failure `unexpected_eof`."""


Step = Say | Think | Call | Delay | Report | Finish | Fail | Stall | Cut
ENDINGS: Final = (Finish, Fail, Stall, Cut)


class Pattern(Struct, frozen=True):
    """A text to look for: a substring, or a regular expression written /between slashes/."""

    text: str
    regex: re.Pattern[str] | None = None

    @classmethod
    def parse(cls, text: str) -> "Pattern":
        """Read a pattern; raises re.error."""
        if (found := _REGEX.match(text)) is None:
            return cls(text)
        flags = re.RegexFlag(0)
        for letter in found[2]:
            flags |= {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}[letter]
        return cls(text, re.compile(found[1], flags))

    def found_in(self, text: str) -> bool:
        """Whether `text` holds it."""
        return self.text in text if self.regex is None else self.regex.search(text) is not None


class Span(Struct, frozen=True):
    """Some numbers from 1: those listed, or all from `first` on."""

    numbers: tuple[int, ...] = ()
    first: int | None = None

    def holds(self, number: int) -> bool:
        """Whether `number` is one of them."""
        return number in self.numbers or (self.first is not None and number >= self.first)


class ToolWhen(Struct, frozen=True):
    """What one result of the last tool batch must be; None = anything."""

    name: str | None = None
    args: Pattern | None = None
    output: Pattern | None = None
    error: bool | None = None


class When(Struct, frozen=True):
    """What must have come before; None = anything. All that is given must hold."""

    turn: Span | None = None
    round: Span | None = None
    attempt: Span | None = None
    user: Pattern | None = None
    assistant: Pattern | None = None
    tool: ToolWhen | None = None
    text: Pattern | None = None
    system: Pattern | None = None
    tools_include: tuple[str, ...] = ()

    def holds(self, request: Request) -> bool:
        """Whether `request` is such a one. Looks at the request and nothing else."""
        messages = request.messages
        return (
            (self.turn is None or self.turn.holds(request.turn + 1))
            and (self.attempt is None or self.attempt.holds(request.attempt))
            and (self.round is None or self.round.holds(round_of(messages)))
            and (self.user is None or self.user.found_in(last_user_text(messages)))
            and (self.assistant is None or self.assistant.found_in(_last_said(messages)))
            and (self.tool is None or _tool_holds(self.tool, messages))
            and (self.text is None or any(self.text.found_in(_text(m)) for m in messages))
            and (self.system is None or self.system.found_in(request.system))
            and {spec.name for spec in request.tools}.issuperset(self.tools_include)
        )


class Turn(Struct, frozen=True):
    """Steps that answer one request: one that `when` fits, or the next in order without one."""

    steps: tuple[Step, ...]
    when: When | None = None
    repeat: int = 1  # stands for so many turns in order


class Script(Struct, frozen=True):
    """Turns, and the name that errors give the script."""

    turns: tuple[Turn, ...]
    name: str = "script"

    def choose(self, request: Request) -> Turn | None:
        """The first turn whose `when` holds; else, of those without, the one next in order."""
        ordinal = 0
        plain: Turn | None = None
        for turn in self.turns:
            if turn.when is None:
                if ordinal <= request.turn < ordinal + turn.repeat:
                    plain = turn
                ordinal += turn.repeat
            elif turn.when.holds(request):
                return turn
        return plain


# --- what came before --------------------------------------------------------------------------


def round_of(messages: Sequence[Message]) -> int:
    """The number, from 1, of the coming turn since a user last spoke."""
    count = 1
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            break
        count += isinstance(message, AssistantMessage)
    return count


def last_user_text(messages: Sequence[Message]) -> str:
    """What the user said last; several messages in a row are one, joined by a blank line."""
    texts: list[str] = []
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            texts.append(message.text)
        elif texts:
            break
    return "\n\n".join(reversed(texts))


def last_tool_output(messages: Sequence[Message]) -> str:
    """The output of the last tool result, or nothing."""
    return next((m.output for m in reversed(messages) if isinstance(m, ToolMessage)), "")


def fill(text: str, messages: Sequence[Message]) -> str:
    """Replace `${user}` and `${last_tool_output}`; `$${user}` stands for the words themselves."""

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        return (last_user_text if found[2] == "user" else last_tool_output)(messages)

    return _PLACEHOLDER.sub(value, text) if "${" in text else text


def _last_said(messages: Sequence[Message]) -> str:
    return next((m.text for m in reversed(messages) if isinstance(m, AssistantMessage)), "")


def _text(message: Message) -> str:
    return message.output if isinstance(message, ToolMessage) else message.text


def _tool_holds(wanted: ToolWhen, messages: Sequence[Message]) -> bool:
    batch: list[ToolMessage] = []
    arguments: dict[str, str] = {}
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            batch.append(message)
        elif isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, ToolCallBlock):
                    arguments[block.model_call_id] = block.arguments
            break
    return any(
        (wanted.name is None or wanted.name == result.name)
        and (wanted.error is None or wanted.error == result.is_error)
        and (wanted.output is None or wanted.output.found_in(result.output))
        and (wanted.args is None or wanted.args.found_in(arguments.get(result.model_call_id, "")))
        for result in batch
    )
