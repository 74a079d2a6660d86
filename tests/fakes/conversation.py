"""A conversation in plain lines: what goes into a provider, and the parts that come out."""

from contextlib import aclosing
from typing import Any

from ipc.content import TextBlock
from ipc.ids import SessionId
from ipc.seams.clock import Clock
from workers.providers.base import (
    AssistantMessage,
    Done,
    Failed,
    Message,
    Part,
    Provider,
    Request,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    ToolSpec,
    UserMessage,
    checked,
)

SESSION = SessionId("01890000-0000-7000-8000-000000000000")


def user(text: str) -> UserMessage:
    """A message of one text."""
    return UserMessage(content=(TextBlock(text=text),))


def request(*messages: Message, tools: tuple[str, ...] = (), **more: Any) -> Request:
    """A request after `messages`; its turn is the number of assistant messages."""
    turn = sum(isinstance(message, AssistantMessage) for message in messages)
    specs = tuple(ToolSpec(name=name, description="", parameters={}) for name in tools)
    facts = {"system": "", "session_id": SESSION, "turn": turn, **more}
    return Request(messages=messages, tools=specs, **facts)


async def parts_of(provider: Provider, asked: Request) -> list[Part]:
    """All parts of one stream, held to the contract."""
    async with aclosing(checked(provider.stream(asked))) as parts:
        return [part async for part in parts]


class Waits(Clock):
    """A clock that never waits: it writes down how long it was asked to."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    async def sleep(self, seconds: float) -> None:
        self.lines.append(f"wait> {seconds:g}")


class Conversation:
    """Plays a transcript: `user>`, `tool>`, `tool!>` and `attempt>` go in, the rest comes out."""

    def __init__(self, provider: Provider, lines: list[str]) -> None:
        self.provider = provider
        self.lines = lines  # what happened so far
        self.messages: list[Message] = []
        self.calls: list[ToolCallPart] = []

    async def hear(self, line: str) -> None:
        """Take one incoming line."""
        self.lines.append(line)
        word, _, rest = line.partition("> ")
        if word == "user":
            self.messages.append(user(rest))
        elif word in {"tool", "tool!"}:
            name, _, output = rest.partition(": ")
            call = self.calls.pop(0)
            assert call.name == name
            self.messages.append(
                ToolMessage(
                    model_call_id=call.model_call_id,
                    name=name,
                    output=output,
                    is_error=word == "tool!",
                )
            )

    async def answer(self, attempt: int = 1) -> None:
        """Ask the provider once and write down what it says."""
        asked = request(*self.messages, attempt=attempt)
        async with aclosing(checked(self.provider.stream(asked))) as parts:
            async for part in parts:
                self.lines += self._told(part)

    def _told(self, part: Part) -> list[str]:
        match part:
            case TextPart(text):
                return [f"say> {text}"]
            case ThinkingPart(text):
                return [f"think> {text}"]
            case ToolCallPart(model_call_id=id_, name=name, arguments=arguments):
                self.calls.append(part)
                return [f"call> {id_} {name} {arguments}"]
            case Done(content=content, finish_reason=reason, usage=usage):
                self.messages.append(AssistantMessage(content=content))
                known = {f: n for f in usage.__struct_fields__ if (n := getattr(usage, f))}
                shown = " ".join(f"{field}={count}" for field, count in known.items())
                return ([f"usage> {shown}"] if known else []) + [f"done> {reason}"]
            case Failed(error=error):
                return [f"failed> {error.kind}: {error.message}"]


INCOMING = ("user> ", "tool> ", "tool!> ")


async def replay(provider: Provider, transcript: list[str], lines: list[str]) -> None:
    """Play the incoming lines of `transcript` into `provider`; `lines` fills with what happened."""
    conversation = Conversation(provider, lines)
    for line, after in zip(transcript, [*transcript, ""][1:], strict=True):
        if line.startswith("attempt> "):
            lines.append(line)
            await conversation.answer(int(line.removeprefix("attempt> ")))
        elif line.startswith(INCOMING):
            await conversation.hear(line)
            if not after.startswith(INCOMING):
                await conversation.answer()
