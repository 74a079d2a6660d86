"""Sessions in which everything went wrong that can, and the models that have to read them."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from msgspec import Struct

from ipc.content import (
    FinishReason,
    InputBlock,
    MediaBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolError,
    TurnBlock,
    UserInput,
    user_text,
)
from ipc.events import (
    BlockPlace,
    FrozenModelBinding,
    HistoryRepaired,
    MessageInjected,
    ModelCapabilities,
    ModelTurn,
    ModelTurnCommitted,
    RetainedOutput,
    RunInterrupted,
    SessionReverted,
    SkillLoaded,
    ToolCallOwner,
    ToolOutputElided,
    UserInputSubmitted,
    WorkerRecovered,
)
from tests.fakes import strict
from tests.fakes.logs import ANY, NOTHING_SPENT, Log
from workers.providers.base import Media, Request, Wire

CAN = ModelCapabilities(reasoning=True, input_media=("image/*", "application/pdf", "audio/*"))
PICTURE = b"\x89PNG of a pelican"


class Family(Struct, frozen=True):
    """One wire: who encodes it, who judges it, and the form that its turns are kept in."""

    name: str
    module: str
    kind: str
    binding: FrozenModelBinding
    judge: Callable[[bytes, bool], None]
    native: Callable[[Sequence[TurnBlock]], list[Any]] | None = None

    def wire(self) -> Wire:
        """The codec, or a skipped test in a build that has none."""
        module = pytest.importorskip(f"workers.providers.{self.module}")
        wire: Wire = getattr(module, self.kind)(self.binding)
        return wire

    def encode(self, request: Request, media: Media) -> bytes:
        """The body of a request."""
        return self.wire().encode(request, media).body

    def kept(self, content: Sequence[TurnBlock]) -> dict[str, Any] | None:
        """What a decoder of this family would have kept of a turn."""
        if self.native is None:
            return None
        family = {"compatible": "chat", "gemini3": "google"}.get(self.name, self.name)
        return {"family": family, "items": self.native(content)}


def _binding(adaptor: str, wire_model: str, endpoint: str | None = None) -> FrozenModelBinding:
    return FrozenModelBinding(
        model=f"{adaptor}/{wire_model}",  # type: ignore[arg-type]
        provider_id=adaptor,  # type: ignore[arg-type]
        adaptor=adaptor,
        wire_model=wire_model,
        endpoint=endpoint,
        max_output=4096,
        capabilities=CAN,
    )


def _arguments(block: ToolCallBlock) -> Any:
    try:
        return msgspec.json.decode(block.arguments or "{}")
    except msgspec.DecodeError:
        return {}


def _anthropic(content: Sequence[TurnBlock]) -> list[Any]:
    items: list[Any] = []
    for block in content:
        match block:
            case TextBlock(text=text):
                items.append({"type": "text", "text": text})
            case ThinkingBlock(text=text, redacted=True):
                items.append({"type": "redacted_thinking", "data": text.strip() or "x"})
            case ThinkingBlock(text=text, signature=signature):
                signed = signature or "signed"
                items.append({"type": "thinking", "thinking": text, "signature": signed})
            case ToolCallBlock(model_call_id=call, name=name):
                item = {"type": "tool_use", "id": call, "name": name, "input": _arguments(block)}
                items.append(item)
            case MediaBlock():
                pass
    return items


def _responses(content: Sequence[TurnBlock]) -> list[Any]:
    items: list[Any] = []
    for block in content:
        match block:
            case TextBlock(text=text) if text.strip():
                part = {"type": "output_text", "text": text, "annotations": []}
                items.append({"type": "message", "role": "assistant", "content": [part]})
            case ThinkingBlock():
                items.append({"type": "reasoning", "summary": [], "encrypted_content": "sealed"})
            case ToolCallBlock(model_call_id=call, name=name, arguments=arguments):
                asked = {"call_id": call, "name": name, "arguments": arguments}
                items.append({"type": "function_call", **asked})
            case _:
                pass
    return items


def _google(content: Sequence[TurnBlock]) -> list[Any]:
    items: list[Any] = []
    for block in content:
        match block:
            case TextBlock(text=text) if text.strip():
                items.append({"text": text})
            case ThinkingBlock(text=text) if text.strip():
                items.append({"text": text, "thought": True, "thoughtSignature": "c2lnbmVk"})
            case ToolCallBlock(name=name):
                call = {"name": name, "args": _arguments(block)}
                items.append({"functionCall": call, "thoughtSignature": "c2lnbmVk"})
            case _:
                pass
    return items


def _compatible(_content: Sequence[TurnBlock]) -> list[Any]:
    return [{"thinking": "reasoning_content"}]


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "anthropic",
            "anthropic",
            "Anthropic",
            _binding("anthropic", "claude-sonnet-4-5"),
            lambda body, paused: strict.anthropic(body, paused=paused, beta="extended-cache-ttl"),
            _anthropic,
        ),
        Family(
            "responses",
            "responses",
            "Responses",
            _binding("openai-responses", "gpt-5"),
            lambda body, _paused: strict.responses(body),
            _responses,
        ),
        Family(
            "chat",
            "chat",
            "Chat",
            _binding("openai-chat", "gpt-4.1"),
            lambda body, _paused: strict.chat(body),
        ),
        Family(
            "compatible",
            "chat",
            "Chat",
            _binding("openai-compatible", "local", "http://127.0.0.1:1/v1"),
            lambda body, _paused: strict.compatible(body),
            _compatible,
        ),
        Family(
            "google",
            "google",
            "Google",
            _binding("google-gemini", "gemini-2.5-pro"),
            lambda body, _paused: strict.google(body),
            _google,
        ),
        Family(
            "gemini3",
            "google",
            "Google",
            _binding("google-gemini", "gemini-3-pro-preview"),
            lambda body, _paused: strict.google(body, signs=True),
            _google,
        ),
    )
}

# --- what went wrong ---------------------------------------------------------------------------

TEXTS = st.sampled_from(["", " ", "\n", "hello", "a\0b", "\x07bell", "é😀", "\x1b[31mred", "mark"])
IDS = st.sampled_from(["c1", "c2", "", "call_with_a_rather_long_id_of_more_than_forty_characters"])
ODD_IDS = st.sampled_from(["functions.bash:0", "a b", "c1-2-0", "toolu_01", "ü", "x" * 300])
NAMES = st.sampled_from(["bash", "read", "", "a b/c", "7zip", "-x", "é", "x" * 99])
ARGUMENTS = st.sampled_from(
    (
        *("{}", "", " ", '{"a": 1}', "{", "[1]", "null", '{"a": "\\u0000"}', '{"a": "\\\\u0000"}'),
        *('{"n": 12345678901234567890}', '{"a": 1e999}', '{"é": {"b": [null]}}'),
    )
)
MEDIA = st.sampled_from(
    [
        MediaBlock(mime=mime, digest=ANY, byte_length=size, name=name)
        for mime, size, name in (
            ("image/png", 16, None),
            ("image/tiff", 16, "scan.tiff"),
            ("application/pdf", 16, "a.pdf"),
            ("audio/wav", 16, None),
            ("video/mp4", 16, None),
            ("image/png", 99_000_000, "huge.png"),
        )
    ]
)
MEDIA_BYTES: Media = {ANY: PICTURE}
THOUGHTS = st.builds(
    ThinkingBlock,
    text=TEXTS,
    signature=st.sampled_from([None, None, "signed"]),
    redacted=st.booleans(),
)
CALLS = st.builds(ToolCallBlock, model_call_id=IDS | ODD_IDS, name=NAMES, arguments=ARGUMENTS)
BLOCKS: st.SearchStrategy[Any] = st.builds(TextBlock, text=TEXTS) | THOUGHTS | CALLS | MEDIA
INPUTS: st.SearchStrategy[Any] = st.builds(TextBlock, text=TEXTS) | MEDIA
FINISHES: tuple[FinishReason, ...] = (
    *("stop", "tool_calls", "tool_calls", "length", "content_filter", "refused", "error"),
    *("aborted", "timeout", "cancelled", "unknown", "other"),
)
ENDS = ("ended", "ended", "ended", "failed", "attached", "lost", "unstarted")
Line = Callable[[Log], object]


class Turn(Struct, frozen=True):
    """A turn of some family's model, and how far its calls came."""

    family: str
    content: tuple[TurnBlock, ...]
    finish: FinishReason
    native: str
    paused: bool
    ends: tuple[str, ...]
    output: str

    def __call__(self, log: Log) -> None:
        family = FAMILIES[self.family]
        paused = self.paused and family.name == "anthropic"  # nobody else does so
        log.turns += 1
        log.add(
            ModelTurnCommitted(
                attempt_id=ANY,
                model_turn_seq=log.turns,
                input_through_seq=log.seq,
                resolved_model=family.binding.resolved(),
                turn=ModelTurn(
                    content=self.content,
                    finish_reason="other" if paused else self.finish,
                    usage=NOTHING_SPENT,
                    native_replay=self._kept(family),
                    provider_metadata={"stop_reason": "pause_turn"} if paused else {},
                ),
            )
        )
        calls = [n for n, block in enumerate(self.content) if isinstance(block, ToolCallBlock)]
        for index, end in zip(calls, self.ends, strict=False):
            _call(log, self.content[index], index, end, self.output)

    def _kept(self, family: Family) -> dict[str, Any] | None:
        match self.native:
            case "kept":
                return family.kept(self.content)
            case "junk":
                return {"items": "none"}
            case _:
                return None


def _call(log: Log, block: Any, index: int, end: str, output: str) -> None:
    if end == "unstarted":
        return
    ours = f"ours-{log.seq}"
    log.owners[ours] = ToolCallOwner(
        model_turn_seq=log.turns, content_index=index, model_call_id=block.model_call_id
    )
    log.started(ours)
    match end:
        case "ended":
            log.ended(ours, output)
        case "failed":
            log.ended(ours, error=ToolError(code="execution", message=output or "exit 1"))
        case "attached":
            attached = (
                MediaBlock(mime="image/png", digest=ANY, byte_length=16),
                MediaBlock(mime="audio/wav", digest=ANY, byte_length=16),
            )
            log.ended(ours, output, attachments=attached)
            if len(output) == 1:
                kept = RetainedOutput(uri="artifact://d")
                log.add(ToolOutputElided(tool_call_id=ours, original_bytes=9, retained=kept))  # type: ignore[arg-type]
        case _:
            pass


TURNS = st.builds(
    Turn,
    family=st.sampled_from(list(FAMILIES)),
    content=st.lists(BLOCKS, max_size=5).map(tuple),
    finish=st.sampled_from(FINISHES),
    native=st.sampled_from(["none", "none", "kept", "kept", "kept", "kept", "junk"]),
    paused=st.sampled_from([False, False, False, True]),
    ends=st.lists(st.sampled_from(ENDS), min_size=5, max_size=5).map(tuple),
    output=TEXTS,
)


def _said(content: Sequence[InputBlock]) -> Line:
    return lambda log: log.add(UserInputSubmitted(input=UserInput(content=tuple(content))))


def _injected(role: Any, words: str) -> Line:
    return lambda log: log.add(MessageInjected(role=role, input=user_text(words)))


def _again(log: Log) -> None:
    if log.run is not None:
        log.run_ended(RunInterrupted())
    log.run_started(f"run {log.seq}")


def _isolated(back: int, index: int) -> Line:
    def write(log: Log) -> None:
        place = BlockPlace(seq=max(log.seq - back, 0), index=index)
        log.add(
            HistoryRepaired(attempt_id=ANY, kinds=("isolated",), counts=(1,), isolated=(place,))
        )

    return write


def _reverted(back: int) -> Line:
    return lambda log: log.add(SessionReverted(through_seq=max(log.seq - back, 1)))


SKILL = SkillLoaded(name="s", args="", base_dir="", source_path="", rendered_body=" ")
LINES: st.SearchStrategy[Line] = st.one_of(
    TURNS,
    TURNS,
    TURNS,
    st.lists(INPUTS, max_size=3).map(_said),
    st.builds(_injected, st.sampled_from(["user", "assistant"]), TEXTS),
    st.just(_again),
    st.just(lambda log: log.add(WorkerRecovered(cause="killed"))),
    st.just(lambda log: log.add(SKILL)),
    st.integers(0, 6).map(_reverted),
    st.builds(_isolated, st.integers(0, 6), st.integers(-1, 3)),
)


def written(lines: Sequence[Line]) -> Log:
    """A log of a session in which all this happened."""
    log = Log()
    log.created()
    log.run_started("run")
    for line in lines:
        line(log)
    return log
