"""Models behind a double: a binding for each family that speaks HTTP, and a tiny family of ours."""

import importlib
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from ipc.content import Usage
from ipc.events import FrozenModelBinding
from ipc.events.base import ModelTimeouts
from ipc.ids import ModelKey, ProviderId, SecretRef
from tests.fakes.turns import (
    Text,
    anthropic_error,
    anthropic_turn,
    chat_turn,
    deltas,
    event,
    gemini_error,
    gemini_turn,
    openai_error,
    responses_failed,
    responses_turn,
)
from workers.providers.base import (
    Assembler,
    HttpCall,
    Media,
    Outside,
    Part,
    Provider,
    Request,
    TextPart,
    failure,
)
from workers.providers.errors import in_stream
from workers.providers.http import HttpProvider, close
from workers.providers.sse import Events

KEY = "sk-double-0123456789"
REF = SecretRef(provider_id=ProviderId("double"), field="auth")
GENEROUS = ModelTimeouts(connect_ms=20_000, headers_ms=20_000, stream_idle_ms=20_000)


# --- a family as small as one can be -----------------------------------------------------------


def tiny_turn(text: Text = "", **_more: Any) -> list[bytes]:
    """A turn of the tiny family."""
    return [*(event({"text": each}) for each in deltas(text)), event("END")]


class Tiny:
    """A wire whose events are {"text": ...}, {"ping": ...}, {"error": ...} and END."""

    def __init__(self, binding: FrozenModelBinding) -> None:
        self._binding = binding

    def encode(self, request: Request, media: Media) -> HttpCall:
        texts = [message.text for message in request.messages if hasattr(message, "text")]
        return HttpCall(
            url=f"{self._binding.endpoint}/turn",
            headers={"Content-Type": "application/json"},
            body=msgspec.json.encode({"texts": texts, "media": [*map(len, media.values())]}),
        )

    def decoder(self, content_type: str) -> "TinyDecoder":
        return TinyDecoder()


class TinyDecoder:
    """What it answers."""

    def __init__(self) -> None:
        self.progress = 0
        self._events = Events()
        self._assembler = Assembler()

    def feed(self, data: bytes) -> Sequence[Part]:
        made: list[Part] = []
        for _, said in self._events.feed(data):
            if self._assembler.ended:
                break
            made += self._part(said)
        return made

    def end(self) -> Sequence[Part]:
        if self._assembler.ended:
            return []
        return [failure("unexpected_eof", "it ended without END", stage="stream_finalize")]

    def _part(self, said: bytes) -> list[Part]:
        if said == b"END":
            return [self._assembler.done("stop", Usage())]
        value = msgspec.json.decode(said)
        if "error" in value:
            failed = in_stream(message=value["error"], vendor_code=value.get("code"))
            self._assembler.add(failed)
            return [failed]
        if "text" not in value:
            return []
        self.progress += 1
        part = TextPart(value["text"])
        self._assembler.add(part)
        return [part]


# --- the families ------------------------------------------------------------------------------


class Family(Struct, frozen=True, kw_only=True):
    """How a family talks, for tests that run over all of them."""

    name: str
    adaptor: str
    turn: Callable[..., list[bytes]]
    auth: str
    header: tuple[str, str]  # what the key becomes
    error: bytes  # an event inside a stream that says: too much load
    ping: bytes
    overflow: tuple[int, dict[str, Any]]
    module: str | None = None
    path: str = ""  # of the endpoint

    def make(self, binding: FrozenModelBinding, outside: Outside) -> Provider:
        """Its provider; skips the test while it has none."""
        if self.module is None:
            return HttpProvider(Tiny, binding, outside)
        pytest.importorskip(self.module)
        made: Provider = importlib.import_module(self.module).make(binding, outside)
        return made


BEARER = ("authorization", f"Bearer {KEY}")
TOO_LONG = openai_error(
    "Your input exceeds the context window of this model.",
    "invalid_request_error",
    "context_length_exceeded",
)

FAMILIES = [
    Family(
        name="tiny",
        adaptor="tiny",
        turn=tiny_turn,
        auth="bearer-api-key-v1",
        header=BEARER,
        error=event({"error": "too many at once", "code": "overloaded_error"}),
        ping=event({"ping": 1}),
        overflow=(400, TOO_LONG),
    ),
    Family(
        name="anthropic",
        adaptor="anthropic",
        module="workers.providers.anthropic",
        turn=anthropic_turn,
        auth="anthropic-api-key-v1",
        header=("x-api-key", KEY),
        error=event(anthropic_error("overloaded_error", "Overloaded"), "error"),
        ping=event({"type": "ping"}, "ping"),
        overflow=(
            400,
            anthropic_error(
                "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"
            ),
        ),
        path="/v1",
    ),
    Family(
        name="responses",
        adaptor="openai-responses",
        module="workers.providers.responses",
        turn=responses_turn,
        auth="bearer-api-key-v1",
        header=BEARER,
        error=responses_failed("server_is_overloaded", "too many at once"),
        ping=b": ping\n\n",
        overflow=(400, TOO_LONG),
        path="/v1",
    ),
    Family(
        name="chat",
        adaptor="openai-chat",
        module="workers.providers.chat",
        turn=chat_turn,
        auth="bearer-api-key-v1",
        header=BEARER,
        error=event(openai_error("too many at once", "server_error", "engine_overloaded")),
        ping=b": ping\n\n",
        overflow=(400, TOO_LONG),
        path="/v1",
    ),
    Family(
        name="google",
        adaptor="google-gemini",
        module="workers.providers.google",
        turn=gemini_turn,
        auth="google-api-key-header-v1",
        header=("x-goog-api-key", KEY),
        error=event(gemini_error(503, "UNAVAILABLE", "The model is overloaded.")),
        ping=b": ping\r\n\r\n",
        overflow=(
            400,
            gemini_error(
                400,
                "INVALID_ARGUMENT",
                "The input token count (1250074) exceeds the maximum number of tokens allowed.",
            ),
        ),
        path="/v1beta",
    ),
]


def binding_of(family: Family, url: str, **more: Any) -> FrozenModelBinding:
    """A model of this family at that address."""
    facts: dict[str, Any] = {
        "model": ModelKey("double/m"),
        "provider_id": ProviderId("double"),
        "adaptor": family.adaptor,
        "wire_model": "m",
        "endpoint": url + family.path,
        "auth": family.auth,
        "auth_ref": REF,
        "timeouts": GENEROUS,
    }
    return FrozenModelBinding(**facts | more)


def keys(values: dict[SecretRef, str] | None = None) -> Callable[[SecretRef], str | None]:
    """Where a provider finds its secrets: the key of `binding_of`, and these."""
    known = {REF: f'{{"api_key":"{KEY}"}}'} | (values or {})
    return known.get


@asynccontextmanager
async def outside_of(**more: Any) -> Any:
    """An Outside with the key; its connections are closed at the end."""
    outside = Outside(**{"secret": keys()} | more)
    try:
        yield outside
    finally:
        await close(outside)
