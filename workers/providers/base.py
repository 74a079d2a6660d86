"""The provider seam: a request to a model, the parts that come back, and how they make a turn."""

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from ipc.content import (
    FinishReason,
    InputBlock,
    MediaBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    TurnBlock,
    Usage,
)
from ipc.events import (
    RESPONSE_BODY_CHARS_MAX,
    ModelErrorKind,
    ModelErrorStage,
    ModelErrorSummary,
)
from ipc.faults import Fault, clean
from ipc.ids import Digest, SecretRef, SessionId
from ipc.plan import Http
from ipc.seams.clock import REAL, Clock

Media: TypeAlias = Mapping[Digest, bytes]
NO_HTTP: Final = Http()
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

ERROR_CHARS_MAX: Final = 4096  # characters of a failure's message that reach the log

# Kinds that may go away by themselves, so that trying again makes sense. What the run loop does
# about it (which budget, how long a pause) is its own business: workers/run/retry.
PASSING: Final[frozenset[ModelErrorKind]] = frozenset(
    {"transport", "timeout", "rate_limited", "overload", "unexpected_eof", "provider"}
)


class BrokenStream(Fault):
    """An adapter broke the contract of a part stream: a mistake in code, not in the world."""

    code = "provider_stream"

    def __init__(self, rule: str) -> None:
        super().__init__(rule=rule)


# --- what is asked -----------------------------------------------------------------------------


class UserMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="user"):
    """What a person said, or something that stands in a person's place."""

    content: tuple[InputBlock, ...]

    @property
    def text(self) -> str:
        """Its text blocks, joined by a blank line."""
        return "\n\n".join(block.text for block in self.content if isinstance(block, TextBlock))


class AssistantMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    """A turn the model took, in the order it took it.

    `native` is what its family kept of it for replay (`Done.native_replay`); it is there only
    when the model that reads the history may be sent it and nothing of `content` was mended.
    """

    content: tuple[TurnBlock, ...]
    native: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """Its text blocks, joined as they were streamed."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))


class ToolMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="tool"):
    """What one tool call of the turn before came to."""

    model_call_id: str
    name: str
    output: str
    is_error: bool = False
    attachments: tuple[MediaBlock, ...] = ()


Message = UserMessage | AssistantMessage | ToolMessage


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool the model may call; `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


class Request(Struct, frozen=True, kw_only=True):
    """One attempt at one turn. Equal histories make equal requests, also after a resume."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    session_id: SessionId
    attempt: int = 1  # from 1, inside this turn
    turn: int = 0  # how many assistant turns the history holds


# --- what comes back ---------------------------------------------------------------------------


class TextPart(Struct, frozen=True):
    """More text. Neighbours make one block."""

    text: str


class ThinkingPart(Struct, frozen=True):
    """More reasoning. Neighbours make one block; a signature or a redacted part closes it."""

    text: str
    signature: str | None = None
    redacted: bool = False


class ToolCallPart(Struct, frozen=True, kw_only=True):
    """A whole tool call; `arguments` is the model's JSON text, however broken."""

    model_call_id: str
    name: str
    arguments: str
    provider_item_id: str | None = None


class Done(Struct, frozen=True, kw_only=True):
    """The last part when the model finished its turn: the whole turn, ready to be committed."""

    content: tuple[TurnBlock, ...]
    finish_reason: FinishReason
    usage: Usage
    native_replay: dict[str, Any] | None = None
    provider_metadata: dict[str, Any] = {}
    response_metadata: dict[str, Any] = {}


class Failed(Struct, frozen=True, kw_only=True):
    """The last part when it went wrong; the run loop decides what happens next."""

    error: ModelErrorSummary


ContentPart = TextPart | ThinkingPart | ToolCallPart
Part = ContentPart | Done | Failed


class Provider(Protocol):
    """One model behind one wire."""

    def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        """The parts of one turn: any number of content parts, then exactly one Done or Failed.

        An expected failure is a Failed, never an exception. Cancellation passes through. Who
        stops listening early calls `aclose()`; nothing is open after that.
        """
        ...


# --- families that speak HTTP ------------------------------------------------------------------


class HttpCall(Struct, frozen=True, kw_only=True):
    """One POST: the whole address, the family's own headers (no credentials), the JSON body."""

    url: str
    headers: dict[str, str]
    body: bytes


class Decoder(Protocol):
    """The bytes of one response body to the parts of a turn; pure, and split anywhere.

    `progress` counts the events that carried content, arguments of calls included; a ping is none.
    """

    progress: int

    def feed(self, data: bytes) -> Sequence[Part]:
        """The parts that these bytes complete; nothing more after a Done or Failed."""
        ...

    def end(self) -> Sequence[Part]:
        """The body ended: empty if the last part was given, else what makes it one Failed."""
        ...


class Wire(Protocol):
    """One family's words for one model: a pure codec."""

    def encode(self, request: Request, media: Media) -> HttpCall:
        """The call of one attempt; equal requests make equal bytes.

        `media` holds the bytes of every media block that could be read; one that is missing is
        told to the model in words. Raises CannotEncode when the request can't be said at all.
        """
        ...

    def decoder(self, content_type: str) -> Decoder:
        """For a 2xx response: of server-sent events or, for application/json, of one object."""
        ...


class CannotEncode(Fault):
    """A request that its family has no words for; `kind` is that of the failure it becomes."""

    code = "cannot_encode"

    def __init__(self, reason: str, kind: ModelErrorKind = "invalid_request") -> None:
        super().__init__(reason=reason)
        self.args = (reason,)
        self.kind = kind


class Outside:
    """What an adaptor may touch beside its model: clock, network settings, secrets, media.

    `client` is for `workers/providers/http` alone, which makes one connection pool in a worker.
    """

    def __init__(
        self,
        *,
        clock: Clock = REAL,
        http: Http = NO_HTTP,
        environ: Mapping[str, str] = NOTHING,
        secret: Callable[[SecretRef], str | None] = lambda _ref: None,
        media: Callable[[MediaBlock], Awaitable[bytes | None]] | None = None,
    ) -> None:
        self.clock = clock
        self.http = http
        self.environ = environ  # where HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE are looked for
        self.secret = secret  # None: it was not granted
        self.media = media
        self.client: Any = None


def failure(
    kind: ModelErrorKind,
    message: str,
    *,
    stage: ModelErrorStage,
    retryable: bool | None = None,
    http_status: int | None = None,
    vendor_code: str | None = None,
    request_id: str | None = None,
    retry_after_ms: int | None = None,
    bytes_received: int = 0,
    response_body: str | None = None,
) -> Failed:
    """A Failed whose texts are bounded and harmless; `retryable` follows the kind unless given."""
    body = response_body and clean(response_body, RESPONSE_BODY_CHARS_MAX)
    return Failed(
        error=ModelErrorSummary(
            kind=kind,
            stage=stage,
            message=clean(message, ERROR_CHARS_MAX),
            http_status=http_status,
            vendor_code=vendor_code,
            request_id=request_id,
            retry_after_ms=retry_after_ms,
            retryable=kind in PASSING if retryable is None else retryable,
            bytes_received=bytes_received,
            response_body=body,
        )
    )


# --- parts to a turn ---------------------------------------------------------------------------


class Assembler:
    """Folds the parts of one stream into the ordered content of a turn.

    Neighbouring text makes one block, so does neighbouring thinking. Empty text, and empty
    thinking without a signature, leave no block: a provider refuses a history that holds one.
    After a Done or Failed it takes nothing more.
    """

    __slots__ = ("_blocks", "_text", "_thinking", "ended")

    def __init__(self) -> None:
        self._blocks: list[TurnBlock] = []
        self._text: list[str] = []  # at most one of the two is not empty
        self._thinking: list[str] = []
        self.ended = False

    def add(self, part: Part) -> None:
        """Take the next part; raises BrokenStream when the stream has already ended."""
        if self.ended:
            raise BrokenStream("nothing may follow the last part")
        match part:
            case TextPart(text):
                self.text(text)
            case ThinkingPart():
                self.thinking(part.text, part.signature, redacted=part.redacted)
            case ToolCallPart():
                self._close()
                self._blocks.append(
                    ToolCallBlock(
                        model_call_id=part.model_call_id,
                        name=part.name,
                        arguments=part.arguments,
                        provider_item_id=part.provider_item_id,
                    )
                )
            case Done() | Failed():
                self.ended = True

    def text(self, text: str) -> None:
        """Take more text: what `add` does for a TextPart, without the part."""
        if text:
            if self._thinking:
                self._close()
            self._text.append(text)

    def thinking(self, text: str, signature: str | None = None, *, redacted: bool = False) -> None:
        """Take more thinking: what `add` does for a ThinkingPart, without the part."""
        if not text and signature is None and not redacted:
            return
        if self._text or redacted:
            self._close()
        if text:
            self._thinking.append(text)
        if signature is not None or redacted:
            self._close_thinking(signature, redacted=redacted)

    def content(self) -> tuple[TurnBlock, ...]:
        """The blocks so far, in the order of their parts; what comes later starts a new one."""
        self._close()
        return tuple(self._blocks)

    def done(
        self,
        finish_reason: FinishReason,
        usage: Usage,
        *,
        native_replay: dict[str, Any] | None = None,
        provider_metadata: dict[str, Any] | None = None,
        response_metadata: dict[str, Any] | None = None,
    ) -> Done:
        """End the stream with the turn that its parts made."""
        done = Done(
            content=self.content(),
            finish_reason=finish_reason,
            usage=usage,
            native_replay=native_replay,
            provider_metadata=provider_metadata or {},
            response_metadata=response_metadata or {},
        )
        self.add(done)
        return done

    def _close(self) -> None:
        if self._text:
            self._blocks.append(TextBlock(text="".join(self._text)))
            self._text.clear()
        elif self._thinking:
            self._close_thinking(None, redacted=False)

    def _close_thinking(self, signature: str | None, *, redacted: bool) -> None:
        text = "".join(self._thinking)
        self._thinking.clear()
        # A signature without text is what a provider sends that hides its reasoning: it must
        # be sent back, so it stays.
        if text or signature is not None:
            self._blocks.append(ThinkingBlock(text=text, signature=signature, redacted=redacted))


async def checked(parts: AsyncIterator[Part]) -> AsyncGenerator[Part, None]:
    """The same parts, held to the contract; raises BrokenStream where an adapter breaks it.

    One Done or Failed, nothing after it, no exception, and a Done whose text, thinking and calls
    are those that were streamed (media has no part and is not compared).
    """
    assembler = Assembler()
    try:
        async for part in parts:
            assembler.add(part)
            if isinstance(part, Done):
                _check_content(part, assembler)
            yield part
    except BrokenStream:
        raise
    except Exception as escaped:
        raise BrokenStream(f"an adapter may not raise, but {escaped!r} came out") from escaped
    finally:
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()
    if not assembler.ended:
        raise BrokenStream("a stream ends in one Done or Failed")


def _check_content(done: Done, assembler: Assembler) -> None:
    told = tuple(block for block in done.content if not isinstance(block, MediaBlock))
    if told != assembler.content():
        raise BrokenStream("the content of Done is not what was streamed")
